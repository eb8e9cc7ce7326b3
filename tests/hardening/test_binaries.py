# SPDX-License-Identifier: MIT
"""The hardening options of CMakeLists.txt, read back from the programs; and that these checks find a program without
them."""

import json
import os
import pathlib
import platform
import re
import subprocess

import pytest

from harness import BINARY

BUILD = pathlib.Path(BINARY).resolve().parent
PROGRAMS = [BUILD / "redlockd", BUILD / "redlockctl"]

WITHOUT = """
#include <stdio.h>
#include <string.h>
int main(int argc, char *argv[]) { char text[64]; (void)argc; strcpy(text, argv[0]); return puts(text); }
"""


def readelf(*args):
    return subprocess.run(["readelf", "--wide", *args], env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, check=True).stdout


def faults(program):
    """The protections that a program lacks, as words."""
    header, segments = readelf("--file-header", program), readelf("--program-headers", program)
    dynamic, symbols = readelf("--dynamic", program), readelf("--dyn-syms", program)
    flags = " ".join(re.findall(r"\((?:FLAGS|FLAGS_1)\)\s+(.*)", dynamic))
    stack = re.search(r"GNU_STACK\s+(?:0x\w+\s+){5}(R?W?E?)\s", segments)
    imported = set(re.findall(r"UND (\w+)", symbols))
    checks = {
        "position-independent": re.search(r"Type:\s+DYN", header) and re.search(r"\bPIE\b", flags),
        "bound at the start": "BIND_NOW" in flags and re.search(r"\bNOW\b", flags),
        "relocations read-only": "GNU_RELRO" in segments,
        "no code on the stack": stack and "E" not in stack[1],
        "stack protector": "__stack_chk_fail" in imported,
        "fortified": {"__snprintf_chk", "__vsnprintf_chk", "__memcpy_chk"} & imported,
        "no path of libraries": not re.search(r"\((RPATH|RUNPATH)\)", dynamic),
    }
    return {what for what, good in checks.items() if not good}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_programs_are_hardened(program):
    assert faults(program) == set()


def test_a_program_without_is_seen(tmp_path):
    source, program = tmp_path / "without.c", tmp_path / "without"
    source.write_text(WITHOUT)
    flags = ["-O2", "-no-pie", "-fno-pie", "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-Wl,-z,norelro,-z,lazy,-z,execstack,-rpath,/tmp"]
    subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", program, source], check=True)
    assert faults(program) == {"position-independent", "bound at the start", "relocations read-only", "no code on the stack", "stack protector", "fortified",
                               "no path of libraries"}


def test_every_file_is_compiled_so():
    """One file without would not show above."""
    wanted = ["-fPIE", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3", "-fstack-clash-protection"]
    if platform.machine() == "x86_64":
        wanted.append("-fcf-protection")
    commands = {entry["file"]: entry["command"].split() for entry in json.loads((BUILD / "compile_commands.json").read_text())}
    root = pathlib.Path(re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)[1])
    ours = [str(path) for folder in ("api", "cli", "server") for path in (root / folder).rglob("*.c")]
    compiled = [path for path in ours if path in commands]
    assert len(compiled) > 50 and not [path for path in ours if path.endswith("main.c") and path not in compiled]
    for path in compiled:
        command = commands[path]
        assert all(flag in command for flag in wanted), f"{path}: {command}"
        assert command.index("-U_FORTIFY_SOURCE") < command.index("-D_FORTIFY_SOURCE=3")
        assert not [flag for flag in command if flag.startswith(("-fno-stack", "-fno-pi", "-no-pie", "-O0")) or flag == "-DNDEBUG"], command
