"""redlockctl: a real redlockd, real processes, a real terminal.

What is shown about time is shown from outside: a command was dead while its lock still lay in Redis, or earlier than the first
lease, counted from before redlockctl was started, could have been over.
"""

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import subprocess
import time

import pytest

import harness
from harness import DIES_WITH_US, SANITIZER, SLOW, children_of, clean_environment, process_state, quote, wait_until

BINARY = os.environ.get("REDLOCKCTL", os.path.join(os.path.dirname(harness.BINARY), "redlockctl"))
TTL_MS = round(3000 * SLOW)
HELD, UNREACHABLE, LOST, USAGE = 75, 69, 79, 64


def url(daemon):
    return daemon.address if daemon.address.startswith("unix:") else f"http://{daemon.address}"


def ctl(*args, server=None, env=None, stdin="", seconds=20):
    """Runs redlockctl to its end."""
    environment = clean_environment({**({"REDLOCKCTL_SERVER": server if isinstance(server, str) else url(server)} if server else {}), **(env or {})})
    done = subprocess.run([*DIES_WITH_US, BINARY, *args], env=environment, input=stdin, capture_output=True, text=True, timeout=seconds * SLOW, check=False)
    assert not SANITIZER.search(done.stderr), done.stderr
    return done


class Run:
    """`redlockctl run` in the background, with --json. Its messages lie in a file; the command writes files into `folder`."""

    def __init__(self, lab, resource, *options, command, servers, ttl_ms=TTL_MS):
        self.folder = pathlib.Path(lab.folder, f"run{len(lab.started)}")
        self.folder.mkdir()
        self.errors = self.folder / "stderr"
        addresses = ",".join(server if isinstance(server, str) else url(server) for server in servers)
        args = ["run", resource, "--json", "--ttl", f"{ttl_ms}ms", *options, "--", *(["sh", "-c", command] if isinstance(command, str) else command)]
        self.started = time.monotonic()
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen([*DIES_WITH_US, "env", "--default-signal", BINARY, *args], env=clean_environment({"REDLOCKCTL_SERVER": addresses}), cwd=self.folder,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        lab.keep(self)

    def kill(self):
        harness.end_process(self.process)
        self.process.stdout.close()
        assert not SANITIZER.search(self.errors.read_text()), self.errors.read_text()

    def events(self, event=None):
        """What it said so far; messages of the command itself are left out."""
        lines = [json.loads(line) for line in self.errors.read_text().split("\n")[:-1] if line.startswith("{")]
        return [line for line in lines if event is None or line["event"] == event]

    def event(self, event, count=1):
        return wait_until(lambda: (self.events(event) + [None] * count)[count - 1], what=f"event {event}")

    def file(self, name):
        """Waits for a whole line in a file of the command's."""
        path = self.folder / name
        wait_until(lambda: path.exists() and path.read_text().endswith("\n"), what=name)
        return path.read_text().strip()

    @property
    def keeper(self):
        return wait_until(lambda: children_of(self.process.pid), what="the keeper")[0]

    def wait(self, seconds=30):
        return self.process.wait(seconds * SLOW)


def until_dead(pid, seconds=30):
    """Waits for the end of a process that is not ours; returns when it was noticed."""
    try:
        file = os.pidfd_open(int(pid))
    except ProcessLookupError:
        return time.monotonic()
    try:
        assert select.select([file], [], [], seconds * SLOW)[0], f"{pid} lives on"
        return time.monotonic()
    finally:
        os.close(file)


def lies_in(masters, resource):
    """On how many masters the lock lies."""
    return sum(master.cli("PTTL", resource) > 0 for master in masters if process_state(master.process.pid) == "S" or process_state(master.process.pid) == "R")


def is_free(daemon, resource):
    return not daemon.curl("GET", "/locks/" + quote(resource)).json["held"]


FOREVER = "echo $$ >pid; while :; do sleep 0.02; done"
STUBBORN = "trap 'echo asked >term' TERM; " + FOREVER


# ---------------------------------------------------------------------------------------------- the command


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


def test_held_by_somebody_else(service, resource):
    service.acquire(resource, owner="worker-7")
    done = ctl("run", resource, "--no-wait", "--", "echo", "ran", server=service)
    assert (done.returncode, done.stdout) == (HELD, "") and "worker-7" in done.stderr
    assert ctl("run", "-n", "-E", "3", resource, "--", "true", server=service).returncode == 3
    assert ctl("run", "--wait", "300ms", resource, "--", "true", server=service).returncode == HELD
    done = ctl("acquire", resource, "--json", server=service)
    assert (done.returncode, json.loads(done.stdout)["code"]) == (HELD, "locked")


def test_waits_until_it_is_free(lab, service, resource):
    lease = service.acquire(resource, ttl_ms=60000)
    run = Run(lab, resource, command="true", servers=[service])
    assert run.event("waiting")["code"] == "locked"
    assert service.release(lease).status == 204
    assert run.wait() == 0


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


def test_unreachable(lab, resource):
    done = ctl("run", resource, "-n", "--", "echo", "ran", server=f"unix:{lab.folder}/nobody")
    assert (done.returncode, done.stdout) == (UNREACHABLE, "") and "nobody" in done.stderr
    daemon = lab.service(3)
    for master in daemon.masters[:2]:
        master.kill()
    assert ctl("run", resource, "-n", "--", "true", server=daemon).returncode == UNREACHABLE
    assert ctl("masters", server=daemon).returncode == UNREACHABLE


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


# ------------------------------------------------------------------------------------------------------ loss


def test_one_master_killed_is_no_loss(lab, resource):
    daemon = lab.service(3)
    run = Run(lab, resource, command="echo $$ >pid; until [ -e go ]; do sleep 0.02; done", servers=[daemon])
    run.event("extended")
    daemon.masters[0].kill()
    run.event("extended", len(run.events("extended")) + 2)
    (run.folder / "go").touch()
    assert run.wait() == 0
    assert not run.events("lost")


def test_all_masters_killed(lab, resource):
    daemon = lab.service(3)
    ttl_ms = TTL_MS * 2  # killed before the first extension: nothing but the first lease counts
    run = Run(lab, resource, command=FOREVER, servers=[daemon], ttl_ms=ttl_ms)
    pid = run.file("pid")
    assert not run.events("extended")
    for master in daemon.masters:
        master.kill()
    validity_ms = run.events("acquired")[0]["validity_ms"]
    assert until_dead(pid) < run.started + validity_ms / 1000
    assert (run.wait(), run.events("lost")[0]["code"]) == (LOST, "unreachable")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_server_gone(lab, resource, how):
    daemon = lab.service(3)
    run = Run(lab, resource, command=FOREVER, servers=[daemon])
    run.event("extended", 2)
    daemon.process.send_signal(how)
    until_dead(run.file("pid"))
    assert lies_in(daemon.masters, resource) == 3, "the command lived on without its lock"
    assert (run.wait(), run.events("lost")[0]["code"]) == (LOST, "unreachable")
    daemon.kill()


def test_stubborn_command_is_killed_in_time(lab, resource):
    daemon = lab.service(3)
    run = Run(lab, resource, "--kill-after", f"{TTL_MS // 3}ms", command=STUBBORN, servers=[daemon])
    run.event("extended")
    daemon.process.send_signal(signal.SIGSTOP)
    pid = run.file("pid")
    assert run.file("term") == "asked"
    until_dead(pid)
    assert lies_in(daemon.masters, resource) == 3, "the command lived on without its lock"
    assert run.wait() == LOST
    daemon.kill()


@pytest.mark.parametrize("taken, code", [(False, "lease-expired"), (True, "not-owner")])
def test_lock_deleted(lab, resource, taken, code):
    daemon = lab.service(3)
    run = Run(lab, resource, command="trap 'echo asked >term; exit 0' TERM; " + FOREVER, servers=[daemon])
    run.file("pid")
    for master in daemon.masters:
        master.cli("SET", resource, "f" * 40, "PX", "60000") if taken else master.cli("DEL", resource)
    assert (run.wait(), run.file("term")) == (LOST, "asked")
    assert run.events("lost")[0]["code"] == code


def test_lock_lost_before_the_end(lab, resource):
    """Nobody noticed before the command had ended: then it is said at the release."""
    daemon = lab.service(3)
    run = Run(lab, resource, command="echo $$ >pid; until [ -e go ]; do sleep 0.02; done", servers=[daemon], ttl_ms=min(TTL_MS * 10, 60000))
    run.file("pid")
    for master in daemon.masters:
        master.cli("DEL", resource)
    (run.folder / "go").touch()
    assert (run.wait(), len(run.events("lost"))) == (LOST, 1)


def test_longest_hold(lab, resource):
    daemon = lab.service(3, f"--max-hold-ms={TTL_MS * 2}")
    run = Run(lab, resource, command=FOREVER, servers=[daemon])
    until_dead(run.file("pid"))
    lost = run.event("lost")  # the server is there, so the lock is given back before anybody could look
    assert (run.wait(), lost["code"]) == (LOST, "max-hold") and lost["left_ms"] > 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_fail_over(lab, resource, how):
    masters = lab.redises(3)
    first, second = lab.redlockd(masters), lab.redlockd(masters)
    run = Run(lab, resource, command="echo $REDLOCK_TOKEN >pid; until [ -e go ]; do sleep 0.02; done", servers=[first, second])
    assert run.event("extended")["server"] == url(first)
    before = second.curl("GET", "/locks/" + quote(resource)).json
    first.process.send_signal(how)
    wait_until(lambda: sum(event["server"] == url(second) for event in run.events("extended")) >= 3, what="three extensions at the second")
    after = second.curl("GET", "/locks/" + quote(resource)).json
    assert after["held"] and after["fence"] == before["fence"]
    (run.folder / "go").touch()
    assert run.wait() == 0
    assert not run.events("lost") and is_free(second, resource)
    first.kill()


# ----------------------------------------------------------------------------------- what the command leaves

DAEMON = "setsid sh -c 'setsid sh -c \"echo \\$\\$ >daemon; while :; do sleep 0.02; done\" & exit 0'; "


def test_double_fork_is_ended_as_well(lab, resource):
    daemon = lab.service(3)
    run = Run(lab, resource, command=DAEMON + FOREVER, servers=[daemon])
    pids = [run.file("daemon"), run.file("pid")]
    daemon.kill()
    for pid in pids:
        until_dead(pid)
    assert lies_in(daemon.masters, resource) == 3
    assert run.wait() == LOST


def test_what_is_left_behind_is_ended(lab, service, resource):
    run = Run(lab, resource, command=DAEMON + "until [ -e daemon ]; do sleep 0.02; done; exit 3", servers=[service])
    assert run.wait() == 3
    assert not process_state(run.file("daemon")) and is_free(service, resource)


def test_wait_all(lab, service, resource):
    run = Run(lab, resource, "--wait-all", command=DAEMON + "until [ -e daemon ]; do sleep 0.02; done; exit 3", servers=[service])
    run.event("ended")
    run.event("extended", len(run.events("extended")) + 2)
    assert not is_free(service, resource)
    os.kill(int(run.file("daemon")), signal.SIGKILL)
    assert run.wait() == 3
    assert is_free(service, resource)


# --------------------------------------------------------------------------------------- redlockctl is killed


def test_killed_itself(lab, service, resource):
    run = Run(lab, resource, command=DAEMON + FOREVER, servers=[service])
    pids = [run.file("daemon"), run.file("pid"), run.keeper]
    run.process.kill()
    for pid in pids:
        until_dead(pid)
    assert is_free(service, resource)


def test_keeper_killed(lab, service, resource):
    run = Run(lab, resource, command=DAEMON + FOREVER, servers=[service])
    pids = [run.file("daemon"), run.file("pid")]
    os.kill(run.keeper, signal.SIGKILL)
    for pid in pids:
        until_dead(pid)
    assert run.wait() == LOST


def test_keeper_stopped(lab, resource):
    daemon = lab.service(3)
    run = Run(lab, resource, command=DAEMON + FOREVER, servers=[daemon], ttl_ms=min(TTL_MS * 2, 60000))
    pids = [run.file("daemon"), run.file("pid")]
    os.kill(run.keeper, signal.SIGSTOP)
    for pid in pids:
        until_dead(pid)
    assert lies_in(daemon.masters, resource) == 3
    assert run.wait() == LOST


# ---------------------------------------------------------------------------------------------- the terminal


class Shell:
    """An interactive bash on a terminal of its own."""

    def __init__(self, lab, server):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(lab.folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"],
                       clean_environment({"REDLOCKCTL_SERVER": url(server), "PS1": "$ ", "TERM": "dumb", "HISTFILE": "/dev/null"}))
        self.seen = self.before = ""
        lab.keep(self)

    def kill(self):
        for pid in [*children_of(self.pid), self.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)

    def type(self, text):
        os.write(self.terminal, text.encode())

    def sees(self, text):
        """Waits until the text was printed, and forgets what came before and with it."""
        def arrived():
            if text not in self.seen and select.select([self.terminal], [], [], 0.05)[0]:
                self.seen += os.read(self.terminal, 65536).decode(errors="replace")
            return text in self.seen
        wait_until(arrived, 20, f"{text!r} in {self.seen!r}")
        self.before, _, self.seen = self.seen.partition(text)

    def foreground(self):
        return int(pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[5])


def test_ctrl_z_keeps_the_lock(lab, service, resource):
    shell = Shell(lab, service)
    shell.sees("$ ")
    shell.type(f"{BINARY} run {resource} --ttl {TTL_MS}ms -- sh -c 'echo $$ >pid; echo be''gun; read line; echo got-$line'; echo status-$?\n")
    shell.sees("begun")
    command = int(pathlib.Path(lab.folder, "pid").read_text())
    wait_until(lambda: shell.foreground() == command, what="the command has the terminal")
    shell.type("\x1a")
    shell.sees("Stopped")
    wait_until(lambda: shell.foreground() == shell.pid, what="the shell has the terminal")
    fence = service.curl("GET", "/locks/" + quote(resource)).json["fence"]
    expiry = time.monotonic() + 1.5 * TTL_MS / 1000
    wait_until(lambda: time.monotonic() > expiry, what="longer than a lease lasts by itself")
    assert process_state(command) == "T"
    assert service.curl("GET", "/locks/" + quote(resource)).json["fence"] == fence
    shell.type("fg\n")
    wait_until(lambda: shell.foreground() == command, what="the command has the terminal again")
    shell.type("hello\n")
    shell.sees("got-hello")
    wait_until(lambda: shell.foreground() == shell.pid, what="the shell has the terminal")
    assert is_free(service, resource)


def test_ctrl_c(lab, service, resource):
    shell = Shell(lab, service)
    shell.sees("$ ")
    shell.type(f"{BINARY} run {resource} -- sh -c 'trap \"echo in''terrupted; exit 4\" INT; echo be''gun; while :; do sleep 0.02; done'; echo status-$?\n")
    shell.sees("begun")
    shell.type("\x03")
    shell.sees("interrupted")
    shell.sees("status-4")


def script(lab, resource, command):
    path = pathlib.Path(lab.folder, "script")
    path.write_text(f"{BINARY} run {resource} -- sh -c '{command}'\necho after\n")
    return path


@pytest.mark.parametrize("shell_name", ["sh", "bash"])
def test_ctrl_c_in_a_script(lab, service, resource, shell_name):
    """The script is interrupted as well, and not only its command."""
    shell = Shell(lab, service)
    shell.sees("$ ")
    shell.type(f"{shell_name} {script(lab, resource, 'echo begun; while :; do sleep 0.02; done')}; echo status-$?\n")
    shell.sees("begun")
    shell.type("\x03")
    shell.sees("$ ")
    assert "after" not in shell.before
    assert is_free(service, resource)


def test_ctrl_z_in_a_script(lab, service, resource):
    shell = Shell(lab, service)
    shell.sees("$ ")
    shell.type(f"sh {script(lab, resource, 'echo begun; read line; echo got-$line')}\n")
    shell.sees("begun")
    shell.type("\x1a")
    shell.sees("Stopped")
    shell.type("fg\n")
    shell.sees("script")
    shell.type("hello\n")
    shell.sees("got-hello")
    shell.sees("after")


def test_pipeline_keeps_the_terminal(lab, service, resource):
    """The other programs of the job need the terminal; the command gets it when it asks."""
    shell = Shell(lab, service)
    shell.sees("$ ")
    shell.type(f"{BINARY} run {resource} -- sh -c 'echo $$ >pid; echo be''gun; read line; echo got-$line' | cat; echo status-${{PIPESTATUS[0]}}\n")
    shell.sees("begun")
    command = int(pathlib.Path(lab.folder, "pid").read_text())
    wait_until(lambda: shell.foreground() == command, what="the command asked for the terminal")
    shell.type("hello\n")
    shell.sees("got-hello")
    shell.sees("status-0")


def test_ctrl_c_in_a_pipeline(lab, service, resource):
    shell = Shell(lab, service)
    shell.sees("$ ")
    shell.type(f"{BINARY} run {resource} -- sh -c 'trap \"echo in''terrupted >&2; exit 4\" INT; echo be''gun; while :; do sleep 0.02; done' | (trap '' INT; cat); echo status-${{PIPESTATUS[0]}}\n")
    shell.sees("begun")
    shell.type("\x03")
    shell.sees("interrupted")
    shell.sees("status-4")


# --------------------------------------------------------------------------------------------- other commands


def test_acquire_extend_release(lab, service, resource):
    path = os.path.join(lab.folder, "token")
    lease = json.loads(ctl("acquire", resource, "--owner", "me", "--json", server=service).stdout)
    assert lease["resource"] == resource and 0 < lease["validity_ms"] < 30000 and lease["owner"] == "me"
    again = ctl("extend", resource, "--ttl", "20s", "--json", server=service, env={"REDLOCK_TOKEN": lease["token"]})
    assert json.loads(again.stdout)["fence"] == lease["fence"] and lease["token"] not in again.stdout + again.stderr
    assert ctl("release", resource, "--token-file", "-", server=service, stdin=lease["token"] + "\n").returncode == 0
    again = ctl("release", resource, "--json", server=service, env={"REDLOCK_TOKEN": lease["token"]})
    assert (again.returncode, json.loads(again.stdout)["code"]) == (LOST, "lease-expired")
    done = ctl("acquire", resource, "--token-file", path, server=service)
    assert done.returncode == 0 and pathlib.Path(path).read_text().strip() not in done.stdout
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert ctl("release", resource, "--token", pathlib.Path(path).read_text().strip(), server=service).returncode == 0
    assert is_free(service, resource)


def test_status_list_masters(service, resource):
    assert ctl("status", resource, server=service).stdout == f"{resource}: free\n"
    service.acquire(resource, owner="me")
    assert ctl("status", resource, server=service).stdout.startswith(f"{resource}: held by me, fence ")
    assert json.loads(ctl("status", resource, "--json", server=service).stdout)["held"] is True
    listed = json.loads(ctl("list", "--prefix", resource, "--json", server=service).stdout)
    assert [lock["resource"] for lock in listed["locks"]] == [resource]
    assert resource in ctl("list", server=service).stdout
    assert json.loads(ctl("masters", "--json", server=service).stdout)["quorum"]["voting"] == 3
    assert "3 of 3 may vote" in ctl("masters", server=service).stdout


def test_strange_names(service):
    for name in ("a/../b", "../..", "a b%20?x=1#y", "ü/é", "-n"):
        lease = json.loads(ctl("acquire", "--json", "--", name, server=service).stdout)
        assert lease["resource"] == name
        assert ctl("release", "--", name, server=service, env={"REDLOCK_TOKEN": lease["token"]}).returncode == 0


def test_server_refuses_the_ttl(service, resource):
    done = ctl("acquire", resource, "--ttl", "2h", server=service)
    assert done.returncode == USAGE and "ttl_ms" in done.stderr


@pytest.mark.parametrize("args, named", [
    ([], "command"), (["fly"], "fly"), (["status"], "NAME"), (["status", "a", "b"], "b"), (["status", "redlockd:a"], "NAME"), (["status", ""], "NAME"),
    (["list", "a"], "NAME"), (["acquire", "a", "--ttl", "5"], "--ttl '5'"), (["acquire", "a", "--ttl=1d"], "--ttl"), (["acquire", "a", "--ttl"], "--ttl"),
    (["acquire", "a", "--wait", "1s", "--no-wait"], "--no-wait"), (["acquire", "a", "--json=1"], "--json"), (["acquire", "a", "--owner", "x\n"], "--owner"),
    (["acquire", "a", "-E", "256"], "--conflict-exit-code"), (["acquire", "a", "--nope"], "--nope"), (["acquire", "a", "--server", "ftp://x:1"], "--server"),
    (["acquire", "a", "--server", "http://x"], "port"), (["status", "a", "--ttl", "1s"], "--ttl"), (["release", "a"], "REDLOCK_TOKEN"),
    (["release", "a", "--token", "deadbeef"], "--token"), (["release", "a", "--token-file", "/nowhere"], "--token-file"), (["run", "a"], "command"),
    (["run", "a", "--"], "command"), (["run", "a", "true"], "--"), (["run", "a", "--ttl", "10ms", "--", "true"], "--ttl"),
    (["run", "a", "--kill-after", "20s", "--", "true"], "--kill-after"), (["run", "a", "--token", "x", "--", "true"], "--token"),
])
def test_bad_input(args, named):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        done = ctl(*args, server=f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert (done.returncode, done.stdout) == (USAGE, "")
        assert named in done.stderr and done.stderr.count("\n") == 1 and "deadbeef" not in done.stderr
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_man_page():
    page = pathlib.Path(harness.ROOT, "cli", "redlockctl.1")
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    text = page.read_text()
    options = set(re.findall(r"--([a-z][a-z-]+)", ctl("--help").stdout))
    assert len(options) >= 15
    for option in options:
        assert f"Fl -{option}" in text, f"the man page lacks --{option}"
        for shell in ("redlockctl.bash", "_redlockctl"):
            completion = pathlib.Path(harness.ROOT, "cli", "completion", shell).read_text()
            assert f"--{option}" in completion or option == "help", f"{shell} lacks --{option}"
