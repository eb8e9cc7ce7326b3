#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the fuzz targets of a build (README.md): each for so many seconds, two at a time, beginning with the seeds.

Then, unless --no-mutated, runs the copies with mutations, which must fail within --mutated-seconds. Ends with "N passed, N failed" and prints how many
executions each target had. An input that makes a target fail is kept in --results, and its path is printed. The corpus stays in the build folder, so that
the next run continues from it; --merge makes the archives of found inputs anew from the corpus and the seeds.
"""
import argparse
import concurrent.futures
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import xml.sax.saxutils

HERE = os.path.dirname(os.path.abspath(__file__))
# Name: longest input, number of mutations in fuzz_NAME_mutated (FUZZ_MUTATION=0 …).
TARGETS = {"path": (2100, 1), "body": (2048, 1), "headers": (2048, 1), "reply": (2048, 1), "http": (4096, 3), "handshake": (2048, 1), "token": (2048, 1)}
FOUND_MAX = 512  # bytes of an input that --merge keeps


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=" ".join(TARGETS))
    parser.add_argument("--build", required=True, help="the folder of a build with REDLOCKD_FUZZ")
    parser.add_argument("--results", required=True, help="where inputs that fail, logs and fuzz.xml go")
    parser.add_argument("--seconds", type=int, default=20, help="of each target")
    parser.add_argument("--runs", type=int, default=-1, help="end a target after so many executions")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers; 0: another one each time")
    parser.add_argument("--at-once", type=int, default=2, help="how many targets run side by side")
    parser.add_argument("--mutated-seconds", type=int, default=60)
    parser.add_argument("--no-mutated", action="store_true")
    parser.add_argument("--merge", action="store_true", help="no fuzzing: make the archives of found inputs anew")
    options = parser.parse_args()
    unknown = [name for name in options.targets if name not in TARGETS]
    if unknown:
        parser.error(f"no such target: {' '.join(unknown)}; there are {' '.join(TARGETS)}")
    return options


def environment(**more):
    options = {"ASAN_OPTIONS": "detect_leaks=1:allow_addr2line=1:handle_abort=1:quarantine_size_mb=16", "UBSAN_OPTIONS": "print_stacktrace=1"}
    return {**os.environ, **options, **more}


def seeds_of(name):
    """The folder of the inputs that have a name."""
    return os.path.join(HERE, "seeds", name)


def unpack(options, name):
    """Unpacks the archive of found inputs into the build folder, and returns where."""
    folder = os.path.join(options.build, "found", name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with tarfile.open(seeds_of(name) + ".tar") as archive:
        for member in archive.getmembers():
            with open(os.path.join(folder, os.path.basename(member.name)), "wb") as file:
                file.write(archive.extractfile(member).read())
    return folder


def pack(name, inputs):
    """Writes the archive of found inputs, the same bytes for the same inputs. Uncompressed: Git stores only what changed."""
    with tarfile.open(seeds_of(name) + ".tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        for file in sorted(inputs):
            member = tarfile.TarInfo(file)
            member.size = len(inputs[file])
            archive.addfile(member, io.BytesIO(inputs[file]))


def read_inputs(folder):
    return {file: open(os.path.join(folder, file), "rb").read() for file in os.listdir(folder)}


def command(options, name, corpus, artifacts, seconds):
    dictionary = os.path.join(HERE, "dict", name + ".dict")
    program = os.path.join(os.path.abspath(options.build), "fuzz_" + name)
    flags = [f"-max_total_time={seconds}", f"-runs={options.runs}", f"-seed={options.seed}", f"-max_len={TARGETS[name][0]}",
             f"-artifact_prefix={artifacts}", "-timeout=10",
             "-rss_limit_mb=2048", "-print_final_stats=1"]
    if os.path.exists(dictionary):
        flags.append("-dict=" + dictionary)
    return [program, *flags, corpus, seeds_of(name), os.path.join(options.build, "found", name)]


def figure(log, name):
    found = re.search(rf"stat::{name}:\s+(\d+)", log)
    return int(found.group(1)) if found else 0


def reason(log):
    """The line that says what was wrong."""
    known = (r"broken: .*", r"\S+: Assertion .*", r".*runtime error: .*", r"ERROR: \w+Sanitizer: .*", r"ERROR: libFuzzer: .*", r"libFuzzer: run interrupted")
    for pattern in known:
        found = re.search(pattern, log)
        if found:
            return found.group(0)
    return (log.strip().splitlines() or ["nothing was said"])[-1]


def fuzz(options, name):
    corpus = os.path.join(options.build, "corpus", name)
    os.makedirs(corpus, exist_ok=True)
    artifacts = os.path.join(options.results, f"fuzz-{name}-")
    run = subprocess.run(command(options, name, corpus, artifacts, options.seconds), capture_output=True, env=environment(), check=False)
    log = run.stderr.decode("utf-8", "replace")
    with open(os.path.join(options.results, f"fuzz-{name}.log"), "w", encoding="utf-8") as file:
        file.write(log)
    executions, speed = figure(log, "number_of_executed_units"), figure(log, "average_exec_per_sec")
    covered = re.findall(r"cov: (\d+)", log)
    line = f"{name:8} {executions:>11,} executions, {speed:>7,} a second, {covered[-1] if covered else 0:>5} edges, {len(os.listdir(corpus)):>5} inputs"
    if run.returncode == 0 and executions > 0:
        return name, None, line
    kept = re.search(r"Test unit written to (\S+)", log)
    why = reason(log) + (f"; the input is {kept.group(1)}" if kept else "")
    return name, why, f"{line}: FAILED: {why}"


def fuzz_mutated(options, name, number):
    """Must fail. From the seeds alone, in folders that are thrown away."""
    label = f"{name} with mutation {number}"
    with tempfile.TemporaryDirectory() as folder:
        flags = command(options, name, folder, folder + "/", options.mutated_seconds)
        flags[0] += "_mutated"
        began = time.monotonic()
        run = subprocess.run(flags, capture_output=True, env=environment(FUZZ_MUTATION=str(number)), check=False)
    log = run.stderr.decode("utf-8", "replace")
    if run.returncode != 0 and ("Test unit written" in log or "Sanitizer" in log):
        return label, None, f"{label}: found after {time.monotonic() - began:.1f} s: {reason(log)[:150]}"
    return label, "the mutation was not found", f"{label}: FAILED: not found in {options.mutated_seconds} s"


def merge(options, name):
    """Makes the archive anew: as few inputs of it and of the corpus as reach, beside the named ones, all that they reach. Small inputs alone."""
    with tempfile.TemporaryDirectory() as folder:
        chosen, corpus = os.path.join(folder, "chosen"), os.path.join(options.build, "corpus", name)
        os.mkdir(chosen)
        os.makedirs(corpus, exist_ok=True)
        flags = ["-set_cover_merge=1", f"-max_len={FOUND_MAX}", chosen, seeds_of(name), unpack(options, name), corpus]
        subprocess.run([os.path.join(options.build, "fuzz_" + name), *flags], check=True, capture_output=True, env=environment())
        named = read_inputs(seeds_of(name)).values()
        found = {file[:16]: bytes for file, bytes in read_inputs(chosen).items() if bytes not in named}
    pack(name, found)
    print(f"{name}: {len(named)} named seeds, {len(found)} found inputs of {sum(map(len, found.values())):,} bytes")


def write_junit(options, outcomes):
    def case(name, why):
        text = f'<testcase classname="fuzz" name={xml.sax.saxutils.quoteattr(name)}>'
        return text + (f"<failure message={xml.sax.saxutils.quoteattr(why)}/>" if why else "") + "</testcase>"

    failed = sum(why is not None for _, why, _ in outcomes)
    with open(os.path.join(options.results, "fuzz.xml"), "w", encoding="utf-8") as file:
        cases = "".join(case(name, why) for name, why, _ in outcomes)
        file.write(f'<testsuite name="fuzz" tests="{len(outcomes)}" failures="{failed}">{cases}</testsuite>\n')
    return len(outcomes) - failed, failed


def main():
    options = arguments()
    names = options.targets or list(TARGETS)
    os.makedirs(options.results, exist_ok=True)
    if options.merge:
        for name in names:
            merge(options, name)
        return 0
    for name in names:
        unpack(options, name)
    work = [(fuzz, name) for name in names]
    if not options.no_mutated:
        work += [(fuzz_mutated, name, number) for name in names for number in range(TARGETS[name][1])]
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        for outcome in pool.map(lambda job: job[0](options, *job[1:]), work):
            print(outcome[2], flush=True)
            outcomes.append(outcome)
    passed, failed = write_junit(options, outcomes)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
