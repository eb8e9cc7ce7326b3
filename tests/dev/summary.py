#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Adds up what the parts of the tests left in a folder: PART….xml (JUnit) and `seconds` (a line "PART SECONDS" for each part).

    summary.py sum FOLDER                       prints skips, failures with their causes, a table, and "N passed, N failed"
    summary.py case FILE NAME OUTCOME MESSAGE   writes a file with one test case: passed, failure or skipped
    summary.py checks FILE NAME LOG STATUS      writes a file from the lines "passed: …", "FAILED: …" and "skipped: …" of a log
"""

import collections
import itertools
import pathlib
import re
import sys
import xml.etree.ElementTree as tree

CAUSE_LINES = 30
LINE_LENGTH = 300
SKIPPED = re.compile(r"^(\w+): skipped, (.*)$", re.M)


def write(path, name, cases):
    """Writes test cases: (name, outcome, message)."""
    suite = tree.Element("testsuite", name=name, tests=str(len(cases)))
    for case_name, outcome, message in cases:
        case = tree.SubElement(suite, "testcase", classname=name, name=case_name)
        if outcome != "passed":
            tree.SubElement(case, outcome, message=message)
    tree.ElementTree(suite).write(path)


def write_checks(path, name, log, status):
    lines = pathlib.Path(log).read_text(encoding="utf-8", errors="replace").splitlines()
    cases = []
    for number, line in enumerate(lines):
        if found := re.fullmatch(r"(passed|FAILED): (.*)", line):
            evidence = itertools.takewhile(lambda below: below.startswith(" "), lines[number + 1:])
            cases.append((found[2], "passed" if found[1] == "passed" else "failure", "\n".join([f"{found[2]}; see {log}", *evidence])))
        elif found := re.fullmatch(r"skipped: (.*)", line):
            cases.append((name, "skipped", found[1]))
    if status != "0" and all(outcome != "failure" for _, outcome, _ in cases):
        cases.append((name, "failure", "\n".join(lines[-CAUSE_LINES:]) or "it did not run"))
    write(path, name, cases or [(name, "failure", "nothing was checked")])


def is_failed(case):
    return case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail"


def cause(case):
    """Why a test failed: the first lines of its message and where, or what its program printed about it."""
    element = case.find("failure") if case.find("failure") is not None else case.find("error")
    message = element.get("message", "") if element is not None else ""
    if message in ("", "Failed") and case.findtext("system-out"):  # from ctest
        lines = case.findtext("system-out").strip().splitlines()
        told = [line for line in lines if re.search(r":[FE]:|[Aa]ssert|ERROR:|runtime error|FAILED|violat", line)]
        return (told or lines)[-CAUSE_LINES:]
    where = (element.text or "").strip().splitlines()[-1:] if element is not None else []
    return [*message.splitlines()[:CAUSE_LINES], *where]


def part_of(stem, parts):
    """The part that left a file: the longest name that the file's name begins with."""
    return max((part for part in parts if stem == part or stem.startswith(part + "-")), key=len, default=stem)


def add_up(folder):
    seconds = collections.Counter()
    for line in (folder / "seconds").read_text().splitlines():
        part, count = line.split()
        seconds[part] += int(count)
    counts = collections.defaultdict(collections.Counter)
    skips, failures = collections.Counter(), []
    for path in sorted(folder.glob("*.xml")):
        part = part_of(path.stem, seconds)
        for case in tree.parse(path).getroot().iter("testcase"):
            skipped = case.find("skipped")
            if is_failed(case):
                counts[part]["failed"] += 1
                failures.append((f"{path.stem}: {case.get('classname', '')} {case.get('name')}", cause(case)))
            elif skipped is not None:
                counts[part]["skipped"] += 1
                skips[part, skipped.get("message") or "no reason given"] += 1
            else:
                counts[part]["passed"] += 1
            for name, reason in SKIPPED.findall(case.findtext("system-out") or ""):  # a test of a C program
                counts[part]["skipped"] += 1
                skips[part, reason] += 1
    for part in seconds:
        if part != "install" and not counts[part]:
            counts[part]["failed"] += 1
            failures.append((part, ["it ran no test"]))
    return seconds, counts, skips, failures


def print_sum(folder):
    seconds, counts, skips, failures = add_up(folder)
    for (part, reason), count in sorted(skips.items()):
        print(f"skipped: {part}: {count} × {reason}")
    for name, lines in failures:
        print(f"\nfailed: {name}")
        print("\n".join("    " + line[:LINE_LENGTH] for line in lines))
    print(f"\n{'part':14} {'seconds':>7} {'passed':>7} {'failed':>7} {'skipped':>7}")
    for part in [*seconds, *(part for part in counts if part not in seconds)]:
        numbers = [counts[part][outcome] or "" for outcome in ("passed", "failed", "skipped")]
        print(f"{part:14} {seconds[part]:>7} {numbers[0]:>7} {numbers[1]:>7} {numbers[2]:>7}")
    passed, failed, skipped = (sum(count[outcome] for count in counts.values()) for outcome in ("passed", "failed", "skipped"))
    print(f"{'all':14} {sum(seconds.values()):>7} {passed:>7} {failed:>7} {skipped:>7}\n")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


def main():
    command, *arguments = sys.argv[1:]
    if command == "case":
        path, name, outcome, message = arguments
        write(path, name, [(name, outcome, message)])
    elif command == "checks":
        write_checks(*arguments)
    else:
        return print_sum(pathlib.Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
