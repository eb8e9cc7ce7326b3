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
NAMES = re.compile(r".*\.(c|h|lua|py|sh|js|css|html|md|yaml|yml|json|cmake|in|txt)|.*/?(dev|run|Dockerfile|CMakeLists.txt)")


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


def test_there_are_files():
    assert len(C_FILES) > 100 and len(TEXT_FILES) > 200


@pytest.mark.parametrize("name", C_FILES)
def test_clang_format(formatter, name):
    done = subprocess.run([formatter, "--dry-run", "-Werror", "--style=file", name], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000] + f"\nrepair: clang-format -i {name}"


def test_formatter_would_find_something(formatter):
    done = subprocess.run([formatter, "--dry-run", "-Werror", "--style=file", f"--assume-filename={ROOT}/server/x.c"], cwd=ROOT, input="int  x;\n",
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0


@pytest.mark.parametrize("name", TEXT_FILES)
def test_editorconfig(name):
    """UTF-8, lines that end with LF and without spaces, one LF at the end."""
    text = (ROOT / name).read_bytes().decode("utf-8")
    assert "\r" not in text
    assert re.search(r"[^\n]\n\Z|\A\Z", text[-2:]), "one LF at the end"
    wrong = [number for number, line in enumerate(text.split("\n"), 1) if line != line.rstrip()]
    assert not wrong, f"spaces at the ends of lines {wrong[:10]}"
