# SPDX-License-Identifier: MIT
"""The C sources are as clang-format leaves them, and all text files are as .editorconfig says."""

import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = 14  # of Debian 12; others format a few things otherwise
FOLDERS = ("server", "api", "cli", "tests")
NOT_TEXT = re.compile(r"tests/fuzz/seeds/|tests/e2e/malformed/|tests/clients/generated/|/testdata/")
NAMES = re.compile(r".*\.(c|h|lua|php|py|sh|js|css|html|md|yaml|yml|json|cmake|in|txt)|.*/?(dev|run|Dockerfile|CMakeLists.txt)")


def tracked():
    """The files that git knows; without git (a tarball) those that are there, but for what was built."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        names = listed.stdout.rstrip("\0").split("\0")
    else:
        names = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.rglob("*"))]
        names = [name for name in names if not re.search(r"(^|/)(build|\.git|node_modules|__pycache__|\.pytest_cache)/", name)]
    return [name for name in names if (ROOT / name).is_file()]


FILES = tracked()
C_FILES = [name for name in FILES if name.startswith(FOLDERS) and name.endswith((".c", ".h")) and not NOT_TEXT.search(name)]
TEXT_FILES = [name for name in FILES if NAMES.fullmatch(name) and not NOT_TEXT.search(name)]


@pytest.fixture(scope="session")
def formatter():
    program = shutil.which(f"clang-format-{VERSION}") or shutil.which("clang-format")
    if program is None:
        pytest.skip("clang-format is not installed")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    if f"version {VERSION}." not in said:
        pytest.skip(f"the sources are formatted by clang-format {VERSION}, and this is {said.strip()}")
    if not (ROOT / ".clang-format").exists():
        pytest.skip("no .clang-format")
    return program


def check(formatter, *arguments, text=None):
    command = [formatter, "--dry-run", "-Werror", "--style=file", *arguments]
    return subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=False)


def test_c_sources_are_formatted(formatter):
    assert len(C_FILES) > 100
    done = check(formatter, *C_FILES)
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", done.stderr, re.M)))
    assert not wrong, f"repair them with: clang-format -i {' '.join(wrong)}"
    assert done.returncode == 0, done.stderr[:2000]


def test_formatter_would_find_something(formatter):
    assert check(formatter, f"--assume-filename={ROOT}/server/x.c", text="int  x;\n").returncode != 0


def test_lines_of_c_have_at_most_120_columns():
    """clang-format leaves comments as they are."""
    wrong = [f"{name}:{number}" for name in C_FILES for number, line in enumerate((ROOT / name).read_text("utf-8").split("\n"), 1)
             if len(line.expandtabs(8)) > 120]
    assert wrong == []


def test_comments_begin_with_a_sentence_or_a_noun():
    """Not with a relative clause: a stranger understands them without the line below."""
    opening = re.compile(r"(?:/\*|^\s*(?:--|#))\s*(?:What|Whose|Those|Which|Where|Who|Of)\b", re.M)
    assert opening.search("/* Of both. */") and not opening.search("/* Offers both. */")
    names = [name for name in FILES if re.match(r"(server|api|cli)/.*\.(c|h|lua)$", name)]
    assert len(names) > 100
    wrong = [f"{name}:{number}" for name in names for number, line in enumerate((ROOT / name).read_text("utf-8").split("\n"), 1)
             if opening.search(line)]
    assert wrong == []


def lines_with(pattern):
    """Where text files have something: ["file:line", …]."""
    found = []
    for name in TEXT_FILES:
        text = (ROOT / name).read_bytes().decode("utf-8")
        found += [f"{name}:{text.count(chr(10), 0, match.start()) + 1}" for match in re.finditer(pattern, text, re.M)]
    return found


def test_lines_end_without_spaces():
    assert len(TEXT_FILES) > 200
    assert lines_with(r"[ \t\r]+$") == []


def test_files_end_with_one_newline():
    assert lines_with(r"[^\n]\Z|\n\n\Z") == []
