#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which lines of api, server and cli the tests of a build with --coverage have reached.

    coverage.py BUILD       prints the lines by folder, those not reached, and a check for each of the three. It needs gcov, which comes with gcc.

A file in a build folder counts its lines in several programs: a line is reached if one of them has reached it. Not
counted: the files with main(), and cli/run and the drill, whose processes only end-to-end tests start.
"""

import collections
import itertools
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEAST = 85  # percent
COUNTED = re.compile(r"(api|server|cli)/(?!daemon/main\.c|run/|drill_|redlockctl\.c).*\.c")


def read_counts(build):
    """File: {line: whether it was reached}."""
    notes = [str(path) for top in ("api", "server", "cli") for path in sorted((build / top).rglob("*.gcno"))]
    files = collections.defaultdict(dict)
    with subprocess.Popen(["gcov", "--json-format", "--stdout", *notes], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as gcov:
        for document in gcov.stdout:
            for source in json.loads(document)["files"]:
                path = pathlib.Path(source["file"])
                name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
                if COUNTED.fullmatch(name):
                    lines = files[name]
                    for line in source["lines"]:
                        number = line["line_number"]
                        lines[number] = lines.get(number, False) or line["count"] > 0
    assert gcov.returncode == 0 and files, "gcov failed"
    return files


def ranges(numbers):
    """[1, 2, 3, 7] as "1-3, 7"."""
    texts = []
    for _, group in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        part = [number for _, number in group]
        texts.append(f"{part[0]}-{part[-1]}" if len(part) > 1 else f"{part[0]}")
    return ", ".join(texts)


def percent(lines):
    return 100 * sum(lines) / len(lines)


def main():
    files = read_counts(pathlib.Path(sys.argv[1]).resolve())
    folders, tops = collections.defaultdict(list), collections.defaultdict(list)
    print("Not reached:")
    for name, lines in sorted(files.items()):
        folders[name.rsplit("/", 1)[0]] += lines.values()
        tops[name.split("/")[0]] += lines.values()
        missed = sorted(number for number, reached in lines.items() if not reached)
        if missed:
            print(f"  {name}: {ranges(missed)}")
    print(f"\n{'folder':24} {'lines':>6} {'reached':>8} {'%':>6}")
    for name, lines in [*sorted(folders.items()), *sorted(tops.items()), ("all", sum(tops.values(), []))]:
        print(f"{name:24} {len(lines):>6} {sum(lines):>8} {percent(lines):>6.1f}")
    print()
    for name, lines in sorted(tops.items()):
        verdict = "passed" if percent(lines) >= LEAST else "FAILED"
        print(f"{verdict}: {name}: {percent(lines):.1f} % of the lines are reached, at least {LEAST} % are wanted")
    return int(any(percent(lines) < LEAST for lines in tops.values()))


if __name__ == "__main__":
    sys.exit(main())
