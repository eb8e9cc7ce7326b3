# SPDX-License-Identifier: MIT
"""Other processes on the host, also of the same user, see nothing of a running redlockd but what is public."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from harness import DIES_WITH_US, BINARY, clean_environment, end_process, wait_until

PASSWORD = "s3cret-of-the-masters"
NOBODY = 65534
PTRACE_SEIZE = 0x4206

# Run as the same user: prints which files of process argv[1] can be read, and whether it can be traced.
LOOK = f"""
import ctypes, os, sys
pid, seen = int(sys.argv[1]), []
for name in "environ", "maps", "auxv":
    try:
        if open(f"/proc/{{pid}}/{{name}}", "rb").read(1): seen.append(name)
    except PermissionError: pass
try: seen += ["fd"] if os.listdir(f"/proc/{{pid}}/fd") else []
except PermissionError: pass
try: os.readlink(f"/proc/{{pid}}/exe"); seen.append("exe")
except PermissionError: pass
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace({PTRACE_SEIZE}, pid, None, None) == 0: seen.append("ptrace")
print(*seen)
"""


def as_somebody():
    """The beginning of a command that makes it one of a user that is not root."""
    if os.getuid() != 0:
        return []
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"root may not become another user here: {tried.stderr.strip()}")
    return command


def look_at(pid):
    done = subprocess.run([*as_somebody(), "/usr/bin/python3", "-c", LOOK, str(pid)], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.fixture
def folder(lab):
    """Ours, and that other user's to read."""
    os.chmod(lab.folder, 0o755)
    return pathlib.Path(lab.folder)


@pytest.fixture
def daemon(lab, folder):
    """A redlockd of a user that is not root, with secrets in its environment. It needs no masters for this."""
    program, log = folder / "redlockd", folder / "log"
    shutil.copy(BINARY, program)
    program.chmod(0o755)
    environment = clean_environment({"REDLOCKD_MASTERS": f"redis://:{PASSWORD}@127.0.0.1:1"})
    with open(log, "wb") as to:
        process = subprocess.Popen([*as_somebody(), *DIES_WITH_US, program, "--listen", "127.0.0.1:0"], env=environment, stdin=subprocess.DEVNULL, stderr=to)
    try:
        def listens():
            assert process.poll() is None, log.read_text()
            return re.search(r"event=listening address=(\S+)", log.read_text())
        yield process, wait_until(listens, 20, "redlockd listens")[1]
    finally:
        end_process(process)


def test_another_process_of_the_same_user_sees_nothing(daemon):
    assert look_at(daemon[0].pid) == set()
    assert os.stat(f"/proc/{daemon[0].pid}/environ").st_uid == 0, "not dumpable: its files are root's"


def test_of_another_program_it_sees_all():
    """The check above looks in the right places."""
    sleeper = subprocess.Popen([*as_somebody(), *DIES_WITH_US, "sleep", "60"], stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: pathlib.Path(f"/proc/{sleeper.pid}/comm").read_text() == "sleep\n", 20, "sleep")
        yama = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
        may_trace = not yama.exists() or yama.read_text().strip() == "0"
        assert look_at(sleeper.pid) == {"environ", "maps", "auxv", "fd", "exe"} | ({"ptrace"} if may_trace else set())
    finally:
        end_process(sleeper)


def test_no_core_dumps(daemon):
    limits = pathlib.Path(f"/proc/{daemon[0].pid}/limits").read_text()
    assert re.search(r"Max core file size\s+0\s+0\s", limits), limits


def test_it_still_counts_its_own_descriptors(daemon):
    """The process itself may read what others may not."""
    text = subprocess.run(["curl", "-sS", "--noproxy", "*", f"http://{daemon[1]}/metrics"], capture_output=True, text=True, check=True).stdout
    assert float(re.search(r"^process_open_fds (\S+)$", text, re.M)[1]) > 3
    assert re.search(r"^process_resident_memory_bytes [1-9]", text, re.M)


def test_a_password_is_nowhere_to_be_seen(lab, folder):
    """Neither in the list of processes nor in the log nor in what it answers, wherever it came from."""
    server = lab.redis("--requirepass", PASSWORD, tcp=True, auth=(PASSWORD,))
    address = f"redis://:{PASSWORD}@127.0.0.1:{server.port}"
    masters, config = folder / "masters", folder / "redlockd.json"
    masters.write_text(f"# one\n{address}\n")
    config.write_text(f'{{"masters": ["{address}"]}}')
    masters.chmod(0o600)
    config.chmod(0o600)
    for options, env in ((["--masters-file", str(masters)], {}), (["--config", str(config)], {}), ([], {"REDLOCKD_MASTERS": address})):
        service = lab.redlockd([], *options, "--bootstrap", "--log-level", "debug", env=env, wait=False)
        service.wait_voting(1)
        shown = [pathlib.Path(f"/proc/{service.process.pid}/cmdline").read_bytes().decode(), service.stderr()]
        shown += [service.curl("GET", path).body.decode() for path in ("/masters", "/metrics", "/version", "/")]
        assert not [text for text in shown if PASSWORD in text]
        service.stop()
