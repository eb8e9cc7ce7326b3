#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Searches for bugs, and writes what was searched into docs/explanation/evidence.md: `./dev evidence [--minutes M]`.

Builds: build/release with tests, build/sim, build/fuzz. All searches together take about M minutes; each has its share.
Histories, faults and inputs are other ones each time, and the page names their seeds. If a search finds anything, the
page stays as it is, the log is in build/results/evidence, and the exit status is 1. The sources must be those of a
commit, since the page names it.
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/explanation/evidence.md"
LOGS = ROOT / "build/results/evidence"
BEGIN, END = "<!-- made by ./dev evidence -->\n", "<!-- end -->\n"
SOURCES = ("server", "api", "cli", "clients", "tests", "cmake", "CMakeLists.txt")
STATES_A_MINUTE = 25_000  # of each configuration of the exhaustive search
SEQUENCES_A_MINUTE = 3_000
FUZZ_TARGETS = 7
FAULTS, DURABLE = ([sys.executable, f"tests/faults/{name}.py", "--redlockd", "build/release/redlockd"]
                   for name in ("faults", "durable"))


class Found(Exception):
    """A search did not end as it must."""


def run(name, command):
    """The output of a command that must find nothing."""
    log = LOGS / f"{name}.log"
    began = time.monotonic()
    with open(log, "w", encoding="utf-8") as file:
        done = subprocess.run([str(word) for word in command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file,
                              stderr=subprocess.STDOUT, check=False)
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    if done.returncode:
        raise Found(f"{shlex.join(map(str, command))} ended with {done.returncode}: see {log.relative_to(ROOT)}")
    return log.read_text(encoding="utf-8", errors="replace")


def read(pattern, text):
    """The groups of the one line that has the pattern."""
    found = re.findall(pattern, text, re.M)
    if len(found) != 1:
        raise Found(f"{len(found)} lines like {pattern}, and not one")
    return found[0]


def number(digits):
    return f"{int(digits):,}"


def counts(text):
    """{name: count} of "name 1, another, longer name 2"."""
    return {name: int(count) for name, count in re.findall(r"(\D.*?) (\d+)(?:, |$)", text.strip())}


def list_counts(found):
    return ", ".join(f"{name} {count:,}" for name, count in sorted(found.items(), key=lambda item: -item[1]) if count)


# ---- the searches: each returns the rows (search, figures, command that repeats it), and lines below the table ----


def histories(minutes):
    begin = random.SystemRandom().randrange(1_000_000_000)
    command = ["build/sim/sim_random", "--from", begin, "--seconds", round(minutes * 60)]
    return tell_histories(run("histories", command), begin)


def tell_histories(text, begin):
    seeds, events, seconds, held = read(
        r"^(\d+) seeds in .*; (\d+) events, (\d+) s simulated, leases held for (\d+) s$", text)
    leases, extensions = read(r" leases (\d+) extensions (\d+) ", text)
    faults = {name: count for name, count in counts(read(r"^faults: (.*)$", text)).items() if count}
    figures = (f"{number(seeds)} histories (seeds) with {len(faults)} kinds of faults, the rarest "
               f"{min(faults.values()):,} times; {number(events)} events, {number(seconds)} s of a cluster, "
               f"{number(leases)} leases and {number(extensions)} extensions, {number(held)} lease-seconds")
    excused = list_counts(counts(read(r"^excused: (.*)$", text))) or "none"
    return [("random histories", figures, f"`./dev sim --from {begin} --seeds {seeds}`")], [
        "Overlaps and orders in the random histories that [no redlockd can prevent](safety.md#what-is-not-promised), "
        f"by reason: {excused}."]


def configurations(program):
    """Names, as the program lists them for a configuration that it does not have."""
    command = [ROOT / "build/release" / program, "--config", "?"]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stderr.partition("checks:")[0]
    return re.findall(r"^  (\w+) +\S", text, re.M)


def states(minutes):
    found, complete, most = [], [], round(STATES_A_MINUTE * minutes)
    for program in ("sim_exhaustive", "sim_exhaustive3"):
        for name in configurations(program):
            command = [f"build/release/{program}", "--config", name, "--max-states", most]
            seen, moves, stopped = tell_states(run(f"states-{name}", command))
            found.append((seen, moves))
            if not stopped:
                complete.append(f"`{name}`")
    figures = (f"{len(found)} [configurations](../../tests/sim/README.md#sim_exhaustive), "
               f"{sum(one[0] for one in found):,} states, {sum(one[1] for one in found):,} transitions; all states of "
               f"{', '.join(complete) or 'none'}, up to {most:,} of each other one")
    repeat = f"`build/release/sim_exhaustive --config NAME --max-states {most}`; names with a 3: `sim_exhaustive3`"
    return [("every order of events", figures, repeat)], []


def tell_states(text):
    """(states, transitions, whether it was stopped before all were found)"""
    seen, moves = read(r" states (\d+)  transitions (\d+) ", text)
    return int(seen), int(moves), "ok: all there are" not in text


def comparison(minutes):
    seed = random.SystemRandom().randrange(1_000_000)
    sequences = max(1000, round(SEQUENCES_A_MINUTE * minutes))
    command = ["build/release/sim_compare", "--sequences", sequences, "--seed", seed]
    return tell_comparison(run("comparison", command), shlex.join(map(str, command)))


def tell_comparison(text, command):
    sequences, commands = read(r"^(\d+) sequences, (\d+) commands: all alike$", text)
    figures = f"{number(sequences)} sequences of {number(commands)} commands"
    return [("model of Redis beside a real one", figures, f"`{command}`")], []


def real_faults(minutes):
    seed, seconds = random.SystemRandom().randrange(1, 1_000_000), round(minutes * 60)
    options = ["--seconds", seconds, "--seed", seed]
    text = run("faults", [*FAULTS, *options])
    done, kinds = read(r"^faults: (\d+): (.*)$", text)
    leases, extended, released = read(r"^leases: (\d+) acquired, (\d+) extended, (\d+) released", text)
    writes, refused, stale = read(
        r"^guarded resource: (\d+) writes taken, (\d+) refused; stale writes refused: (\d+)", text)
    checks = read(r"^(\d+) passed, 0 failed$", text)
    excused = read(r"^overlaps: 0; excused: (\d+)$", text)
    figures = (f"{number(done)} faults of {len(counts(kinds))} kinds in {seconds} s, {number(leases)} leases, "
               f"{number(extended)} extensions, {number(released)} releases; {number(writes)} guarded writes taken, "
               f"{number(refused)} refused, {number(stale)} of these stale; {checks} checks; {excused} overlaps that "
               "no redlockd can prevent")
    return [("faults in real servers", figures, f"`./dev faults {shlex.join(map(str, options))}`")], []


def restarts(minutes):
    seed, seconds = random.SystemRandom().randrange(1, 1_000_000), round(minutes * 60)
    options = ["--rolling", "--seconds", seconds, "--seed", seed]
    text = run("restarts", [*FAULTS, *options])
    done, leases, extended = read(r"^(\d+) restarts of \d+ masters, (\d+) leases of \d+ ms extended (\d+) times", text)
    figures = (f"{number(done)} restarts under {number(leases)} leases that are held all the time, "
               f"{number(extended)} extensions, none lost")
    return [("masters restarted in turn", figures, f"`./dev faults {shlex.join(map(str, options))}`")], []


def networks(minutes):
    seed, seconds = random.SystemRandom().randrange(1, 1_000_000), round(minutes * 60)
    options = ["--network", "--seconds", seconds, "--seed", seed]
    text = run("networks", [*FAULTS, *options])
    return tell_networks(text, seconds, f"`./dev faults {shlex.join(map(str, options))}`")


def tell_networks(text, seconds, repeat):
    if why := re.search(r"^skipped: (.*)$", text, re.M):
        return [("each process on a host of its own", f"not searched: {why[1]}", repeat)], []
    leases, during, extended, requests, unanswered = read(
        r"^(\d+) leases, (\d+) of them granted under a fault, extended (\d+) times; (\d+) requests, (\d+) without", text)
    kinds = counts(read(r"^faults: (.*)$", text))
    checks = read(r"^(\d+) passed, 0 failed$", text)
    figures = (f"{sum(kinds.values()):,} faults of {len(kinds)} kinds in {seconds} s, {number(leases)} leases, "
               f"{number(during)} of them granted under a fault, {number(extended)} extensions; {number(requests)} "
               f"requests, {number(unanswered)} without an answer; {checks} checks")
    return [("each process on a host of its own", figures, repeat)], []


def durable_kills(minutes):
    times, seed = max(5, round(3 * minutes)), random.SystemRandom().randrange(1, 1_000_000)
    options = ["--one", times, "--all", times, "--seed", seed]
    text = run("durable", [*DURABLE, *options])
    one, every, leases, extended = read(
        r"^(\d+) times one, (\d+) times all, \d+ s: (\d+) leases, (\d+) extensions;", text)
    figures = (f"one killed {one} times, all {every} times; {number(leases)} leases, {number(extended)} extensions, "
               "none lost")
    repeat = f"`./dev faults --durable {shlex.join(map(str, options))}`"
    return [("durable masters under `kill -9`", figures, repeat)], []


def fuzzing(minutes):
    seed, seconds = random.SystemRandom().randrange(1, 1_000_000), max(10, round(minutes * 60 * 2 / FUZZ_TARGETS))
    options = ["--seconds", seconds, "--seed", seed]
    command = [sys.executable, "tests/fuzz/run.py", "--build", "build/fuzz", "--results", LOGS, *options]
    text = run("fuzz", command)
    found = re.findall(r"^(\w+) +([\d,]+) executions, +[\d,]+ a second, +(\d+) edges, .*inputs$", text, re.M)
    mutated = re.findall(r"^\w+ with mutation \d+: found after", text, re.M)
    figures = "executions of inputs (edges of the code reached): " + ", ".join(
        f"`{name}` {executions} ({number(edges)})" for name, executions, edges in found)
    row = ("fuzzing", figures, f"`./dev fuzz {shlex.join(map(str, options))}`")
    return [row, ("mutations of the fuzzed code", f"{len(mutated)} of {len(mutated)} found", "`./dev test fuzz`")], []


def mutations(_minutes):
    text = run("mutations", [sys.executable, "tests/sim/run_mutations.py", "--build", "build/release"])
    passed = read(r"^(\d+) passed, 0 failed$", text)
    names = {line.split()[0] for line in text.splitlines() if ": found " in line}
    there = len(list((ROOT / "tests/sim/mutations").glob("*.patch")))
    if len(names) != there:
        raise Found(f"{len(names)} of {there} mutations were tried")
    figures = f"{len(names)} of {there} found, by {passed} searches"
    return [("mutations of the core, the daemon and the scripts", figures, "`./dev test mutations`")], []


# ---- all of it ----


SEARCHES = {  # name: the search, for a run of so many minutes
    "histories": lambda minutes: histories(minutes * 0.35),
    "states": states,
    "comparison": comparison,
    "faults": lambda minutes: real_faults(minutes * 0.12),
    "networks": lambda minutes: networks(minutes * 0.1),
    "restarts": lambda minutes: restarts(minutes * 0.05),
    "durable": durable_kills,
    "fuzzing": lambda minutes: fuzzing(minutes * 0.2),
    "mutations": mutations,
}


def search(minutes, tried):
    """The rows and the lines of all searches. If one fails, the next run of this commit does not repeat the others."""
    kept, done = LOGS / "searches.json", {}
    if kept.exists() and (before := json.loads(kept.read_text(encoding="utf-8")))["of"] == [tried, minutes]:
        done = before["done"]

    def do(name):
        if name not in done:
            done[name] = SEARCHES[name](minutes)
            kept.write_text(json.dumps({"of": [tried, minutes], "done": done}), encoding="utf-8")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # of one processor each
        for result in [pool.submit(do, "histories"), pool.submit(lambda: [do("states"), do("comparison")])]:
            result.result()
    for name in SEARCHES:
        do(name)
    kept.unlink()
    rows = [row for name in SEARCHES for row in done[name][0]]
    return rows, [line for name in SEARCHES if done[name][1] for line in ("", *done[name][1])]


def commit():
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    if git("status", "--porcelain", "-uno", "--", *SOURCES):
        sys.exit("evidence: sources have changes that are not committed; commit them first, since the page names one")
    return git("rev-parse", "--short=8", "HEAD")


def write(head, rows, below):
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{PAGE} has no place for the figures"
    table = ["| search | what was searched | repeat it |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    made = "\n".join(["", head, "", *table, *below, "", ""])
    PAGE.write_text(before + begin + made + end + after, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="about how long all searches take; default: 60")
    options = parser.parse_args()
    if not options.minutes > 0:
        parser.error(f"--minutes is {options.minutes:g}, and must be above 0")
    tried = commit()
    LOGS.mkdir(parents=True, exist_ok=True)
    try:
        rows, below = search(options.minutes, tried)
    except Found as found:
        sys.exit(f"evidence: {found}")
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    head = (f"Commit {tried}, {today}, {os.cpu_count()} processors: `./dev evidence --minutes {options.minutes:g}`. "
            "No search found a bug.")
    write(head, rows, below)
    print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
