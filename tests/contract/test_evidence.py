# SPDX-License-Identifier: MIT
"""docs/explanation/evidence.md names tests, commits and commands that exist, and figures can be read from searches."""

import pathlib
import re
import subprocess
import sys

import pytest

from harness import BINARY, ROOT

sys.path.insert(0, str(ROOT / "tests/dev"))
import evidence  # noqa: E402

PAGE = evidence.PAGE.read_text(encoding="utf-8")
MADE = PAGE.partition(evidence.BEGIN)[2].partition(evidence.END)[0]
BUILD = pathlib.Path(BINARY).parent


def rows_of(text):
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


OURS = PAGE.partition("## Our own bugs")[2].partition("### Alarms")[0]
BUGS = [row for row in rows_of(OURS) if row[0] != "what went wrong"]


def files_of(name):
    """A file below tests/, or the CMakeLists.txt that names a test of ctest."""
    return [ROOT / "tests" / name] if "/" in name else [ROOT / "tests/CMakeLists.txt"]


def missing(cell):
    """The names in a cell that are neither a file, nor a test of ctest, nor in the file named before."""
    wrong, files = [], []
    for name in re.findall(r"`([^`]+)`", cell):
        if "/" in name or name.startswith("sim_"):
            files = files_of(name)
        if not files or not files[0].exists():
            wrong.append(name)
        elif "/" not in name and not re.search(rf"\b{name}\b", files[0].read_text(encoding="utf-8")):
            wrong.append(name)
    return wrong


def test_each_bug_has_a_test():
    assert sum(len(row[3].split(", ")) for row in BUGS) >= 25
    assert [row for row in BUGS if len(row) != 4 or "`" not in row[2]] == []
    assert [row[0] for row in BUGS if not re.fullmatch(r"[0-9a-f]{8}(, [0-9a-f]{8})*", row[3])] == []
    assert [(row[0], missing(row[2])) for row in BUGS if missing(row[2])] == []


@pytest.mark.parametrize("cell", ["`e2e/test_keep.py`: `test_that_is_not_there`", "`e2e/test_not_there.py`",
                                  "`sim_random_not_there`", "`test_keep`"])
def test_a_missing_test_is_found(cell):
    assert missing(cell)


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def test_commits_exist():
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("the history is not here")
    named = {commit for row in BUGS for commit in row[3].split(", ")}
    named |= set(re.findall(r"^Commit ([0-9a-f]+),", MADE, re.M))
    assert len(named) > 20
    assert sorted(commit for commit in named if git("cat-file", "-e", f"{commit}^{{commit}}").returncode) == []


def test_commands_exist():
    """Each search has one that repeats it: of ./dev, or a program of the build."""
    dev = (ROOT / "dev").read_text(encoding="utf-8")
    programs = (ROOT / "tests/CMakeLists.txt").read_text(encoding="utf-8")
    figures = [row for row in rows_of(MADE) if len(row) == 3 and row[0] != "search"]
    assert len(figures) >= 9
    for search, _, repeat in figures:
        found = re.search(r"`(?:\./dev (\w+)|build/release/(\w+))", repeat)
        assert found, search
        assert not found[1] or re.search(rf"^(?:\w+ \| )*{found[1]}\)", dev, re.M), repeat
        assert not found[2] or f"sim_program({found[2]} " in programs, repeat
    states = next(row[1] for row in figures if row[0] == "every order of events")
    source = (ROOT / "tests/sim/sim_exhaustive.c").read_text(encoding="utf-8")
    known = set(re.findall(r'\.name = "(\w+)"', source))
    named = set(re.findall(r"`(\w+)`", states))
    assert 20 < int(states.partition(" ")[0]) <= len(known) and named and named <= known


def simulator(*words):
    if not (BUILD / words[0]).exists():
        pytest.skip(f"no {words[0]} beside redlockd: build it with ./dev test build")
    return subprocess.run([BUILD / words[0], *words[1:]], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_figures_of_the_simulators_are_read():
    rows, below = evidence.tell_histories(simulator("sim_random", "--from", "1", "--seeds", "20"), 1)
    assert re.match(r"20 histories .* [1-9]\d* kinds of faults, .* [1-9][\d,]* lease-seconds$", rows[0][1])
    assert rows[0][2] == "`./dev sim --from 1 --seeds 20`"
    assert "by reason: " in below[0]
    text = simulator("sim_compare", "--sequences", "100", "--seed", "7")
    assert evidence.tell_comparison(text, "sim_compare")[0][0][1].startswith("100 sequences of ")
    text = simulator("sim_exhaustive", "--config", "plain", "--max-states", "1000")
    seen, moves, stopped = evidence.tell_states(text)
    assert seen >= 1000 and moves > 0 and stopped


def test_the_figures_of_networks_are_read():
    text = ("12 leases, 5 of them granted under a fault, extended 8 times; 140 requests, 11 without an answer; 9 writes, 1 "
            "refused, 1 of them of former holders\nfaults: black_hole 2, one_way 3\npackets: carried 3086, lost 712, to a "
            "device that is down 6\n11 passed, 0 failed\n")
    rows, below = evidence.tell_networks(text, 60, "`./dev faults --network`")
    assert rows[0][1] == ("5 faults of 2 kinds in 60 s, 12 leases, 5 of them granted under a fault, 8 extensions; 140 "
                          "requests, 11 without an answer; 11 checks")
    assert below == []
    with pytest.raises(evidence.Found):
        evidence.tell_networks(text.replace("0 failed", "1 failed"), 60, "")
    skipped = evidence.tell_networks("skipped: only root may do it\n0 passed, 0 failed, 1 skipped\n", 60, "")
    assert skipped[0][0][1] == "not searched: only root may do it"


def test_a_search_that_says_something_else_is_no_evidence():
    with pytest.raises(evidence.Found):
        evidence.tell_histories("127 passed, 1 failed\n", 1)
