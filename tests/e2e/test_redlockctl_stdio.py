# SPDX-License-Identifier: MIT
"""redlockctl with standard files that are closed or that nobody reads: the lease is extended all the same, and no message goes into a socket."""

import fcntl
import os
import pty
import subprocess
import termios

import pytest

from ctl import BINARY, TTL_MS, ctl, url
from fixtures import needs_pts
from harness import BINARY as REDLOCKD, DIES_WITH_US, SLOW, clean_environment, wait_until


def in_shell(service, line):
    """redlockctl is $1."""
    return subprocess.run([*DIES_WITH_US, "sh", "-c", line, "sh", BINARY], env=clean_environment({"REDLOCKCTL_SERVER": url(service)}), capture_output=True,
                          timeout=30 * SLOW, check=False)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_run_with_closed_files(service, resource, closed):
    assert in_shell(service, f"$1 run {resource} sh -c 'exit 7' {closed}").returncode == 7
    assert not service.curl("GET", f"/locks/{resource}").json["held"]


def test_the_command_gets_them_closed(service, resource):
    done = in_shell(service, f"$1 run {resource} sh -c 'for fd in 0 1; do [ -e /proc/$$/fd/$fd ] && echo $fd is open >&2; done; true' <&- >&-")
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_lease_that_cannot_be_told_is_released(service, resource):
    done = in_shell(service, f"$1 acquire {resource} >&-")
    assert done.returncode not in (0, 128)
    wait_until(lambda: not service.curl("GET", f"/locks/{resource}").json["held"], what="the release")


def test_redlockd_with_closed_files(lab):
    """Its messages go nowhere: not to the first master or client."""
    masters = lab.redises(3)
    path = f"{lab.folder}/closed"
    process = subprocess.Popen([*DIES_WITH_US, "sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", REDLOCKD, "--listen", f"unix:{path}", "--restart-guard", "off",
                                "--masters", ",".join(master.url for master in masters)], env=clean_environment())
    try:
        done = wait_until(lambda: (found := ctl("acquire", "x", "--no-wait", server=f"unix:{path}")).returncode == 0 and found, what="a lease")
        assert "token" in done.stdout
    finally:
        process.terminate()
        assert process.wait(30 * SLOW) == 0


def run_beyond_its_ttl(service, resource, stderr):
    """With messages: each extension is one."""
    seconds = 1.5 * TTL_MS / 1000
    process = subprocess.Popen([*DIES_WITH_US, BINARY, "run", resource, "-v", "--ttl", f"{TTL_MS}ms", "sleep", str(seconds)],
                               env=clean_environment({"REDLOCKCTL_SERVER": url(service)}), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        return process.wait(10 * seconds * SLOW)
    finally:
        process.kill()
        process.wait()


def test_nobody_reads_the_pipe(service, resource):
    read_end, write_end = os.pipe()
    try:
        os.set_blocking(write_end, False)
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
        os.write(write_end, b"x" * 4096)
        os.set_blocking(write_end, True)
        assert run_beyond_its_ttl(service, resource, write_end) == 0
    finally:
        os.close(read_end)
        os.close(write_end)


@needs_pts
def test_the_terminal_is_stopped(service, resource):
    """As by Ctrl-S."""
    master, slave = pty.openpty()
    try:
        termios.tcflow(slave, termios.TCOOFF)
        assert run_beyond_its_ttl(service, resource, slave) == 0
    finally:
        os.close(master)
        os.close(slave)
