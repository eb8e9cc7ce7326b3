# SPDX-License-Identifier: MIT
"""redlockctl run: the command, its streams and its status, signals, who gets the lock."""

import json
import os
import pathlib
import select
import signal
import subprocess

import pytest

from ctl import BINARY, FOREVER, Run, ctl, is_free, url
from harness import SLOW, clean_environment, process_state


@pytest.mark.parametrize("script, status", [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_exit_status_is_that_of_the_command(service, resource, script, status):
    assert ctl("run", resource, "--", "sh", "-c", script, server=service).returncode == status
    assert is_free(service, resource)


def test_environment(service, resource):
    script = 'printf "%s\\n" "$REDLOCK_RESOURCE" "$REDLOCK_TOKEN" "$REDLOCK_FENCE" "$OTHER"; exec redlockctl status "$REDLOCK_RESOURCE" --json'
    path = f"{os.path.dirname(BINARY)}:{os.environ['PATH']}"
    done = ctl("run", resource, "--owner", "me", "--", "sh", "-c", script, server=service, env={"OTHER": "kept", "PATH": path})
    name, token, fence, other, state = done.stdout.splitlines()
    assert (name, other, len(token), done.returncode, done.stderr) == (resource, "kept", 40, 0, "")
    state = json.loads(state)
    assert state["held"] and state["fence"] == int(fence) and state["owner"] == "me"


def test_streams_pass_through(service, resource):
    data = os.urandom(1000 * 1024)
    command = [BINARY, "run", resource, "--", "sh", "-c", "tee /dev/stderr"]
    done = subprocess.run(command, env=clean_environment({"REDLOCKCTL_SERVER": url(service)}), input=data, capture_output=True, timeout=20 * SLOW, check=False)
    assert (done.returncode, done.stdout == data, done.stderr == data) == (0, True, True)


def test_descriptors(service, resource):
    """Those that redlockctl got go on to the command, its own do not; and it keeps no end of the command's stdout."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as passed:
        done = subprocess.run([BINARY, "run", resource, "--", "sh", "-c", f"echo yes >/dev/fd/{writer}; ls /proc/$$/fd"], pass_fds=[writer],
                              env=clean_environment({"REDLOCKCTL_SERVER": url(service)}), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        os.close(writer)
        assert passed.read() == "yes\n"
    assert set(done.stdout.split()) <= {"0", "1", "2", "10", str(writer)}, done


def test_reader_sees_the_end_of_stdout(lab, service, resource):
    run = Run(lab, resource, command="echo all; exec >&-; " + FOREVER, servers=[service])
    assert run.process.stdout.readline() == b"all\n"
    assert select.select([run.process.stdout], [], [], 20 * SLOW)[0] and run.process.stdout.read(1) == b""
    assert run.process.poll() is None
    run.process.terminate()
    assert run.wait() == 143


@pytest.mark.parametrize("command, status", [("no-such-command", 127), ("/etc/passwd", 126)])
def test_command_that_cannot_be_run(service, resource, command, status):
    done = ctl("run", resource, "--", command, server=service)
    assert (done.returncode, command in done.stderr) == (status, True)
    assert is_free(service, resource)


def test_unix_socket_and_several_addresses(lab, resource):
    socket_path = os.path.join(lab.folder, "d.sock")
    lab.redlockd(lab.redises(3), listen=[f"unix:{socket_path}"])
    nobody = f"unix:{lab.folder}/nobody"
    assert ctl("run", resource, "--", "true", server=f"{nobody},unix:{socket_path}").returncode == 0
    assert ctl("run", resource, "-s", nobody, "-s", f"unix:{socket_path}", "--", "true").returncode == 0


# ---------------------------------------------------------------------------------------------- who gets it


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signal_ends_the_wait(lab, service, resource, number):
    service.acquire(resource, ttl_ms=60000)
    run = Run(lab, resource, command="echo ran >ran", servers=[service])
    run.event("waiting")
    run.process.send_signal(number)
    assert run.wait() == (-number if number in (signal.SIGINT, signal.SIGQUIT) else 128 + number)
    assert not (run.folder / "ran").exists()


def test_runs_exclude_each_other(lab, service, resource):
    critical = f"mkdir {lab.folder}/in || exit 99; echo x >>{lab.folder}/count; rmdir {lab.folder}/in"
    runs = [Run(lab, resource, command=critical, servers=[service]) for _ in range(6)]
    assert [run.wait() for run in runs] == [0] * 6
    assert pathlib.Path(lab.folder, "count").read_text() == "x\n" * 6


def test_waits_for_a_server(lab, resource):
    path = os.path.join(lab.folder, "late.sock")
    run = Run(lab, resource, command="true", servers=[f"unix:{path}"])
    assert run.event("waiting")["code"] == "unreachable"
    lab.redlockd(lab.redises(3), listen=[f"unix:{path}"])
    assert run.wait() == 0


# --------------------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH", "CONT"])
def test_signals_are_passed_on(lab, service, resource, name):
    run = Run(lab, resource, command=f"trap 'echo {name} >got; exit 5' {name}; " + FOREVER, servers=[service])
    run.file("pid")
    run.process.send_signal(getattr(signal, f"SIG{name}"))
    assert (run.file("got"), run.wait()) == (name, 5)


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 143), (signal.SIGUSR1, 138), (signal.SIGINT, -2), (signal.SIGQUIT, -3)])
def test_signal_that_ends_the_command(lab, service, resource, number, status):
    run = Run(lab, resource, command=["sh", "-c", "ulimit -c 0; " + FOREVER], servers=[service])
    run.file("pid")
    run.process.send_signal(number)
    assert run.wait() == status
    assert is_free(service, resource)


def test_usr1_is_for_the_command_alone(lab, service, resource):
    """A script that knows SIGUSR1 may have started programs that would be ended by it."""
    run = Run(lab, resource, command="trap 'echo got >got' USR1; sh -c 'echo $$ >inner; while :; do sleep 0.02; done' & echo $$ >pid; wait; wait; kill $!; exit 5",
              servers=[service])
    run.file("inner")
    run.file("pid")
    run.process.send_signal(signal.SIGUSR1)
    run.file("got")
    assert process_state(run.file("inner"))
    run.process.send_signal(signal.SIGUSR1)


GIVES_WAY = "trap 'echo wanted; exit 3' USR1; echo ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize("name", ["USR1", "SIGUSR1", "usr1", str(int(signal.SIGUSR1))])
def test_signal_when_somebody_waits(lab, service, resource, name):
    """It is sent to the command alone: the sleep that the shell runs would end by it, and then the shell would not come to its trap."""
    run = Run(lab, resource, "--signal-wanted", name, command=GIVES_WAY, servers=[service], ttl_ms=3000)
    assert run.process.stdout.readline() == b"ready\n"
    other = ctl("run", resource, "--wait", "30s", "--", "echo", "mine", server=service)
    assert (other.returncode, other.stdout) == (0, "mine\n"), other
    assert run.wait() == 3
    assert run.process.stdout.read() == b"wanted\n"


def test_no_signal_without_a_waiter(lab, service, resource):
    run = Run(lab, resource, "--verbose", "--signal-wanted", "USR1", command=GIVES_WAY, servers=[service], ttl_ms=3000)
    assert run.process.stdout.readline() == b"ready\n"
    assert run.event("extended", 3) and not run.events("wanted")
    run.process.terminate()
    assert run.wait() == 143
