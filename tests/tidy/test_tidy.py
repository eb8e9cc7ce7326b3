# SPDX-License-Identifier: MIT
"""clang-tidy finds nothing in the sources, with the checks of .clang-tidy."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
SOURCES = sorted(str(path.relative_to(ROOT)) for folder in ("api", "cli", "server") for path in (ROOT / folder).rglob("*.c"))


def check(*arguments):
    program = shutil.which("clang-tidy")
    if program is None:
        pytest.skip("clang-tidy is not installed")
    done = subprocess.run([program, "--quiet", f"--config-file={ROOT}/.clang-tidy", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_sources():
    assert len(SOURCES) > 100
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(lambda name: check("-p", BUILD, name), SOURCES))
    found = [line for _, said in done for line in re.findall(r"^\S+: (?:warning|error): .*", said, re.M)]
    assert found == []
    assert not any(status for status, _ in done)


def test_it_would_find_something(tmp_path):
    file = tmp_path / "x.c"
    file.write_text("int read_it(const int *given);\nint read_it(const int *given) { return given ? 0 : *given; }\n", "utf-8")
    status, said = check(file, "--")
    assert status != 0 and "NullDereference" in said
