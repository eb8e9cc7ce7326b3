# SPDX-License-Identifier: MIT
"""Small programs that use the library for Java: for the tests of what only that library has."""

import subprocess

import pytest

from driver import BUILT
from harness import DIES_WITH_US, ROOT, SLOW, clean_environment

SOURCE = ROOT / "clients" / "java"
IMPORTS = """
import io.github.redlockd.*;
import io.github.redlockd.internal.Json;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
"""
# Waits until `lease` is renewed, or lost.
RENEWED = """
    for (Duration left = Duration.ZERO, now = lease.remaining(); !lease.isLost(); ) {
        left = now;
        Thread.sleep(5);
        now = lease.remaining();
        if (now.compareTo(left) > 0) break;
    }
"""


def run(*command, cwd="/"):
    done = subprocess.run([*DIES_WITH_US, *map(str, command)], cwd=cwd, env=clean_environment({"LC_ALL": "C.UTF-8"}), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300 * SLOW, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done


class Java:
    """Compiles and runs small programs that use the library."""

    def __init__(self, folder, classes=BUILT / "java"):
        self.folder, self.classes = folder, classes

    def compile(self, body, package="", options=()):
        """`body`: of main(String[] arguments). With a package, it sees what the package keeps to itself."""
        text = f"{IMPORTS}\npublic class Program {{\npublic static void main(String[] arguments) throws Exception {{\n{body}\n}}\n}}\n"
        (self.folder / "Program.java").write_text((f"package {package};\n" if package else "") + text, encoding="utf-8")
        run("javac", "--release", "11", "-Xlint:all", "-Werror", "-encoding", "UTF-8", "-cp", self.classes, "-d", self.folder, self.folder / "Program.java")
        return ["java", *options, "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-cp", f"{self.folder}:{self.classes}", (package + "." if package else "") + "Program"]

    def run(self, body, *arguments, package=""):
        """Returns what it prints, as lines."""
        return run(*self.compile(body, package), *arguments).stdout.splitlines()

    def start(self, body, *arguments, options=()):
        return subprocess.Popen([*DIES_WITH_US, *self.compile(body, options=options), *arguments], env=clean_environment({}), stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def java(tmp_path):
    return Java(tmp_path)
