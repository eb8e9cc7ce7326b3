#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds and runs each simulator with each mutation of mutations/*.patch (README.md): every one must be found.

A patch names the commands that must find it, in lines "Found by: PROGRAM ARGUMENT…". Such a command must end with status 1 and a line
"found …" that says where. Prints a table and "N passed, N failed".
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

PATCHES = pathlib.Path(__file__).resolve().parent / "mutations"
ROOT = PATCHES.parents[2]


def commands(names):
    """(mutation, program, arguments) of each line "Found by"."""
    for patch in sorted(PATCHES.glob("*.patch")):
        text = patch.read_text(encoding="utf-8")
        assert re.search("^Found by: ", text, re.M), f"{patch.name} names nothing that finds it"
        for line in re.findall(r"^Found by: (sim_.*)$", text, re.M):
            program, *rest = shlex.split(line)
            if not names or patch.stem in names:
                yield patch.stem, program, rest


def functions(diff):
    """For each hunk of a diff the name of the function that git names behind its second "@@"."""
    return [re.sub(r"\(.*", "", line) for line in re.findall(r"^@@ [^@]* @@ ?(.*)$", diff, re.M)]


def check_places(build, names):
    """A patch still applies where its context moved to: it must not change another function than it says."""
    for patch in sorted(PATCHES.glob("*.patch")):
        text = patch.read_text(encoding="utf-8")
        if names and patch.stem not in names:
            continue
        diff = ""
        for file in re.findall(r"^\+\+\+ b/(.*)$", text, re.M):
            copy = f"{build}/tests/mutations/{patch.stem}/{file}"
            diff += subprocess.run(["git", "diff", "--no-index", ROOT / file, copy], capture_output=True, text=True, check=False).stdout
        assert functions(diff) == functions(text), f"{patch.name} is applied to {functions(diff)}"


def run(build, mutation, program, rest):
    began = time.monotonic()
    done = subprocess.run([f"{build}/{program}_{mutation}", *rest], capture_output=True, text=True, check=False)
    found = re.findall(r"^found .*", done.stdout, re.M)
    passed = done.returncode == 1 and len(found) == 1
    what = found[0] if passed else f"NOT FOUND (status {done.returncode}) {done.stderr.strip()[-200:]}"
    print(f"{mutation:21} {program:14} {time.monotonic() - began:6.1f} s  {shlex.join(rest)}: {what}", flush=True)
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="MUTATION", help="these alone")
    parser.add_argument("--build", required=True, help="the folder of a build with REDLOCKD_TESTS")
    options = parser.parse_args()
    jobs = str(os.cpu_count())
    subprocess.run(["cmake", "--build", options.build, "--target", "mutations", "-j", jobs], stdout=subprocess.DEVNULL, check=True)
    check_places(options.build, options.names)
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        results = list(pool.map(lambda work: run(os.path.abspath(options.build), *work), commands(options.names)))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
