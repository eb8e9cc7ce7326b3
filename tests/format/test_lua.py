# SPDX-License-Identifier: MIT
"""The scripts for Redis are without warnings of luacheck, and nothing in their library is left over."""

import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "server" / "scripts"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.lua"))


def assemble(name):
    """As it is built into redlockd (cmake/embed.cmake): with the files of lib/ that it includes."""
    text = (FOLDER / f"{name}.lua").read_text("utf-8")
    return re.sub(r"^\t?--include (\S+)\n", lambda found: (FOLDER / "lib" / found[1]).read_text("utf-8"), text, flags=re.M)


def check(folder, text):
    program = shutil.which("luacheck")
    if program is None:
        pytest.skip("luacheck is not installed (Debian: lua-check)")
    file = folder / "script.lua"
    file.write_text(text, "utf-8")
    done = subprocess.run([program, "--no-color", "--no-cache", "--config", ROOT / ".luacheckrc", file], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_no_warnings(tmp_path, name):
    status, said = check(tmp_path, assemble(name))
    assert status == 0, said


def test_luacheck_would_find_something(tmp_path):
    assert check(tmp_path, "local x = 1\n")[0] != 0


def test_each_function_of_the_library_is_used():
    sources = [assemble(name) for name in SCRIPTS]
    functions = [name for path in (FOLDER / "lib").glob("*.lua") for name in re.findall(r"^local function (\w+)", path.read_text("utf-8"), re.M)]
    assert len(functions) > 20
    unused = [name for name in functions if not any(len(re.findall(rf"\b{name}\(", source)) > 1 for source in sources)]
    assert unused == []
