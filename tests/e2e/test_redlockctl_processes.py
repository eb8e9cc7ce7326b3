# SPDX-License-Identifier: MIT
"""redlockctl run and processes that are hard to end: another user's, and those whose names look like something else in
/proc.

The tests with another user's processes need root: redlockctl runs as one user without rights, its command as a second
one (a copy of setpriv with the set-user-ID bit), so that the kernel refuses every signal.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from ctl import BINARY, FOREVER, LOST, TTL_MS, Run, check_dead_in_time, url
from harness import SLOW, clean_environment, process_state, quote, wait_until

MINE, OTHER = 54321, 54322
LONG_TTL_MS = min(round(30000 * SLOW), 60000)  # redlockctl tries for ten seconds, and the lock must outlast that


def as_user(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


class Ended:
    """Processes that only root may end."""

    def __init__(self):
        self.pids = []

    def kill(self):
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(name="become_other")
def fixture_become_other(lab):
    """A command, for users without rights, that becomes OTHER."""
    if os.geteuid() != 0:
        pytest.skip("only root can run a command as another user")
    os.chmod(lab.folder, 0o755)
    helper = os.path.join(lab.folder, "become")
    shutil.copyfile(shutil.which("setpriv"), helper)
    os.chmod(helper, 0o4755)
    become = [helper, *as_user(OTHER)[1:]]
    seen = subprocess.run([*as_user(MINE), *become, "id", "-u"], capture_output=True, text=True, check=False)
    if seen.stdout.strip() != str(OTHER):
        pytest.skip(f"no command can change its user here: {seen.stderr.strip()}")
    return " ".join(become)


def refused(pid):
    """MINE may not signal it."""
    return subprocess.run([*as_user(MINE), "sh", "-c", f"kill -0 {pid}"], capture_output=True, check=False).returncode != 0


def start_as_mine(lab, daemon, resource, *options, command, ttl_ms):
    script = os.path.join(lab.folder, "command")
    with open(script, "w", encoding="utf-8") as file:
        file.write(command)
    binary = shutil.copy(BINARY, lab.folder)  # where it was built others may not read
    run = Run(lab, resource, *options, command=["sh", "-c", f"umask 0; exec sh {script}"], servers=[daemon], ttl_ms=ttl_ms, prefix=as_user(MINE), binary=binary)
    os.chmod(run.folder, 0o777)
    return run


def holder(daemon, resource):
    state = daemon.curl("GET", "/locks/" + quote(resource)).json
    return state["fence"] if state["held"] else None


@pytest.mark.parametrize("how", ["command", "left-behind"])
@pytest.mark.slow
def test_what_cannot_be_killed_keeps_the_lock(lab, resource, become_other, how):
    """The command itself, when redlockctl is killed; and what it leaves behind. The lock runs out by itself, and that is said."""
    daemon, ended = lab.service(3), lab.keep(Ended())
    loop = f"{become_other} sh -c 'until [ -e start ]; do sleep 0.02; done; {FOREVER}'"
    command = "exec " + loop if how == "command" else loop + " & until [ -e pid ]; do sleep 0.02; done; exit 3"
    run = start_as_mine(lab, daemon, resource, "--kill-after", "0s", command=command, ttl_ms=LONG_TTL_MS)
    (run.folder / "start").touch()
    pid = int(run.file("pid"))
    ended.pids.append(pid)
    supervisor = run.supervisor
    assert refused(pid), "the test is worth nothing: the signal is not refused"
    fence = run.events("acquired")[0]["fence"]
    if how == "command":
        run.process.kill()
    said = wait_until(lambda: run.events("unkillable"), 30, "the message")[0]
    wait_until(lambda: not process_state(supervisor), 30, "the end of the supervisor")
    assert process_state(pid) and holder(daemon, resource) == fence, "the lock was given away under a command that runs"
    assert 0 < said["left_ms"] <= LONG_TTL_MS and "not released" in said["message"] and not run.events("released")
    assert how == "command" or run.wait() == LOST


@pytest.mark.slow
def test_what_cannot_be_killed_when_the_lock_is_over(lab, resource, become_other):
    """Nothing is left to be kept then. The foreground process does not say that the command was killed, or that the supervisor hung."""
    daemon, ended = lab.service(3), lab.keep(Ended())
    run = start_as_mine(lab, daemon, resource, "--kill-after", "0s", command=f"exec {become_other} sh -c '{FOREVER}'", ttl_ms=TTL_MS)
    ended.pids.append(int(run.file("pid")))
    assert refused(ended.pids[0])
    daemon.kill()
    assert run.wait() == LOST
    assert run.events("unkillable")[0]["left_ms"] == 0 and process_state(ended.pids[0])
    assert [event["code"] for event in run.events("lost")] == ["unreachable"]


@pytest.mark.slow
def test_a_killed_supervisor_does_not_claim_what_is_not_so(lab, resource, become_other):
    daemon, ended = lab.service(3), lab.keep(Ended())
    run = start_as_mine(lab, daemon, resource, command=f"exec {become_other} sh -c '{FOREVER}'", ttl_ms=LONG_TTL_MS)
    ended.pids.append(int(run.file("pid")))
    os.kill(run.supervisor, signal.SIGKILL)
    assert run.wait() == LOST and process_state(ended.pids[0])
    message = run.events("lost")[0]["message"]
    assert "cannot be killed" in message and "was killed:" not in message.replace("the supervisor of the lock was killed:", "")
    assert holder(daemon, resource)


NAMES = ["a\nb", "\n", "a)\nb", ") Z 0 0", "\n1 (x) Z 0 0 0", "))((", " ", ")"]
NAMED = """
import ctypes, os, sys
for name in sys.argv[1:]:
    if os.fork() == 0:  # and forks once more: nothing but its name tells of it
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        ctypes.CDLL(None).prctl(15, name.encode())
        if os.fork() == 0:
            os.setsid()
        with open("pids", "a") as file:
            file.write(f"{os.getpid()}\\n")
        break
import time
while True:
    time.sleep(60)
"""


def test_no_name_hides_a_process(lab, resource):
    """Names that a program gives itself, line feeds and parentheses included: also what these start is ended, before the lock is over."""
    daemon, ended = lab.service(3), lab.keep(Ended())
    run = Run(lab, resource, command=["python3", "-c", NAMED, *NAMES], servers=[daemon])

    def pids():
        path = run.folder / "pids"
        return path.read_text().split() if path.exists() else []

    wait_until(lambda: len(pids()) == 2 * len(NAMES), what="all processes")
    ended.pids = [int(pid) for pid in pids()]
    daemon.kill()
    check_dead_in_time(ended.pids, daemon.masters, resource)
    assert run.wait() == LOST


@pytest.mark.parametrize("command", [["run", "{}", "--", "true"], ["acquire", "{}"], ["status", "{}"]], ids=lambda command: command[0])
def test_too_few_files_are_named_at_once(service, resource, command):
    words = " ".join(word.format(quote(resource)) for word in command)
    done = subprocess.run(["sh", "-c", f"ulimit -n 8; exec {BINARY} {words}"], env=clean_environment({"REDLOCKCTL_SERVER": url(service)}),
                          capture_output=True, text=True, timeout=20 * SLOW, check=False)
    assert done.returncode == 71 and "ulimit -n" in done.stderr and done.stderr.count("\n") == 1, done


# Without /proc: as in a namespace that has none. Another process of the group is left behind, or the command itself is stopped for good.
@pytest.mark.parametrize("command", ["sleep 1000 & exit 3", "trap '' TERM; touch ready; sleep 1000"], ids=["left-behind", "itself"])
def test_processes_are_ended_without_proc(lab, resource, command):
    if b"__asan_" in pathlib.Path(BINARY).read_bytes():
        pytest.skip("AddressSanitizer needs /proc, also to read its options")
    hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if subprocess.run([*hide, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no namespace of mounts can be made here")
    daemon = lab.service(1)
    run = Run(lab, resource, "--kill-after", "0s", command=command, servers=[daemon], prefix=hide)
    if "trap" in command:
        wait_until(lambda: (run.folder / "ready").exists(), what="the command")
        daemon.curl("DELETE", f"/locks/{quote(resource)}?force=true")
        assert run.wait() == LOST
    else:
        assert run.wait() == 3
    assert not run.events("unkillable")
    assert holder(daemon, resource) is None
