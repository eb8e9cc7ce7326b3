# SPDX-License-Identifier: MIT
"""Shell scripts are without warnings of shellcheck, Python files without those of flake8, and some without those of mypy."""

import pathlib
import re
import shutil
import subprocess

import pytest

from test_format import FILES, ROOT

PYTHON = [name for name in FILES if name.endswith(".py")]
TYPED = [name for name in PYTHON if re.match(r"tests/(dev/|e2e/harness|faults/(?!test_))", name)]
LIBRARY = ROOT / "clients" / "python"
SHELL = [name for name in FILES if name.endswith(".sh") or re.match(rb"#!/bin/(ba)?sh\b", (ROOT / name).read_bytes()[:16])]


def run(program, package, *arguments, cwd=ROOT):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed (Debian: {package})")
    done = subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def check_shell(*files):
    return run("shellcheck", "shellcheck", "--severity=warning", "--format=gcc", *files)


def check_python(*files):
    return run("flake8", "flake8", *files)


def check_types(*files):
    return run("mypy", "mypy", "--cache-dir=/dev/null", f"--config-file={ROOT}/.mypy.ini", *files)


def test_shell_scripts():
    assert len(SHELL) > 10
    status, said = check_shell(*SHELL)
    assert status == 0, said


def test_python():
    assert len(PYTHON) > 100
    status, said = check_python(*PYTHON)
    assert status == 0, said


def test_types_of_tests():
    assert len(TYPED) > 20
    status, said = check_types(*TYPED)
    assert status == 0, said


@pytest.mark.parametrize("what", ["src/redlockd", ROOT / "tests/clients/types/typed_program.py"], ids=["itself", "a program"])
def test_strict_types_of_the_library(monkeypatch, what):
    """A program also gets an error for each wrong call."""
    monkeypatch.setenv("MYPYPATH", "src")
    # Unpack: needed before mypy 1.7, as Debian 12 has it.
    status, said = run("mypy", "mypy", "--strict", "--enable-incomplete-feature=Unpack", "--cache-dir=/dev/null", what, cwd=LIBRARY)
    assert status == 0, said


@pytest.mark.parametrize(("check", "name", "text", "found"), [(check_shell, "x.sh", "#!/bin/sh\nread -r unused\ncd /tmp\n", "SC2034"),
                                                            (check_python, "x.py", "def f():\n    return unknown\n", "F821"),
                                                            (check_types, "y.py", "def f():\n    return 1 + ''\n", "[operator]")])
def test_they_would_find_something(tmp_path, check, name, text, found):
    file = pathlib.Path(tmp_path, name)
    file.write_text(text, "utf-8")
    status, said = check(str(file))
    assert status != 0 and found in said
