# SPDX-License-Identifier: MIT
"""docs/how-to/recipes/make-and-pipelines.md and coding-agents.md: the commands there with GNU make, xargs and git."""

import os
import re
import signal
import subprocess

from recipes import Page, bench  # noqa: F401

SLOTS = Page("make-and-pipelines")
AGENTS = Page("coding-agents")


def instruction(words):
    """The command with these words that the agents are told to use."""
    command, = re.findall(rf"`(redlockctl run [^`]*{words}[^`]*)`", AGENTS.block("markdown"))
    return command


def cases(machine, *names):
    (machine / "cases").mkdir()
    (machine / "results").mkdir()
    for name in names:
        (machine / "cases" / name).touch()


def test_make_and_a_pipeline_share_two_slots(bench):
    """One job of make is killed in the middle."""
    bench.work("simulate")
    maker, piper = bench.machine("maker"), bench.machine("piper")
    cases(maker, "a", "b", "c")
    cases(piper, "d", "e", "f")
    (maker / "Makefile").write_text(SLOTS.block("make"), encoding="utf-8")
    make = bench.start(maker, SLOTS.block("sh", "make -j"))
    bench.begun(2)
    bench.until_waiting("simulator", 1, holders=2)
    pipeline = bench.start(piper, SLOTS.block("sh", "xargs"))
    bench.until_waiting("simulator", 4, holders=2)
    killed, _, case = bench.lines("begin")[0]
    os.kill(int(killed), signal.SIGKILL)
    for ended in range(1, 6):
        bench.proceed(bench.begun(ended + 1)[ended])
    assert (make.wait(), pipeline.wait()) == (2, 0)
    assert {case for _, _, case in bench.lines("begin")} == {f"cases/{name}" for name in "abcdef"}
    assert bench.most_at_once(int(killed)) <= 2
    made = {f"cases/{path.name}" for path in (maker / "results").iterdir()}
    assert made == {"cases/a", "cases/b", "cases/c"} - {case}


def git(folder, *args):
    return subprocess.run(["git", *args], cwd=folder, capture_output=True, text=True, check=True).stdout


def shared_repository(bench, monkeypatch):
    """A bare repository with one commit; the tests of it are the work."""
    for role in ("AUTHOR", "COMMITTER"):
        bench.environment |= {f"GIT_{role}_NAME": "one", f"GIT_{role}_EMAIL": "one@example.org"}
    for name, value in bench.environment.items():
        monkeypatch.setenv(name, value)
    bench.work("suite")
    first = bench.machine("first")
    git(first, "init", "--quiet", "--initial-branch", "main")
    (first / "Makefile").write_text("test: ; @suite\n", encoding="utf-8")
    git(first, "add", "Makefile")
    git(first, "commit", "--quiet", "--message", "Begin")
    git(bench.folder, "clone", "--quiet", "--bare", "first", "origin")
    return first


def clone_with_a_change(bench, name):
    git(bench.folder, "clone", "--quiet", "origin", name)
    clone = bench.folder / name
    (clone / name).touch()
    git(clone, "add", name)
    git(clone, "commit", "--quiet", "--message", name)
    AGENTS.save(clone)
    return clone


def subjects(repository):
    return git(repository, "log", "--format=%s", "main").split("\n")[:-1]


def test_what_is_merged_was_tested_on_the_latest_commit(bench, monkeypatch):
    """One is killed while it tests, and does it again."""
    shared_repository(bench, monkeypatch)
    left, right = (clone_with_a_change(bench, name) for name in ("left", "right"))
    merge = instruction("merge.sh")
    job = bench.start(left, merge)
    tested, = bench.begun()
    other = bench.start(right, merge)
    bench.until_waiting("shop/merge")
    os.kill(tested, signal.SIGKILL)
    assert job.wait() == 2
    bench.proceed(bench.begun(2)[1])
    assert other.wait() == 0
    again = bench.start(left, merge)
    bench.proceed(bench.begun(3)[2])
    assert again.wait() == 0
    assert subjects(bench.folder / "origin") == ["left", "right", "Begin"]


def test_commits_in_one_checkout(bench, monkeypatch):
    """A hook keeps the first one in the middle. Without the lock the second one finds .git/index.lock."""
    checkout = shared_repository(bench, monkeypatch)
    (checkout / ".git" / "hooks" / "pre-commit").symlink_to(bench.programs / "suite")
    for name in ("a.txt", "b.txt"):
        (checkout / name).touch()
        git(checkout, "add", name)
    command = instruction("git commit").replace("…", "--quiet --message 'Change a' a.txt")
    first = bench.start(checkout, command)
    hook, = bench.begun()
    unlocked = bench.start(checkout, "git commit --quiet --message 'Change b' b.txt")
    assert unlocked.wait() == 128 and "index.lock': File exists" in unlocked.output()
    second = bench.start(checkout, command.replace("a.txt", "b.txt").replace("Change a", "Change b"))
    bench.until_waiting("shop/checkout")
    bench.proceed(hook)
    assert first.wait() == 0
    bench.proceed(bench.begun(2)[1])
    assert second.wait() == 0
    assert subjects(checkout) == ["Change b", "Change a", "Begin"]


def test_a_merge_tests_as_the_agents_are_told():
    assert instruction("make test") in AGENTS.block("bash")
