# SPDX-License-Identifier: MIT
"""Messages to the service manager (sd_notify): that redlockd serves, reloads, ends, how many masters vote, and that the
loop of every worker runs."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import pytest

from harness import SLOW, run_redlockd, wait_until

NUMBER = iter(range(1 << 30))


class Manager:
    """The socket that NOTIFY_SOCKET names, a path or (`abstract`) a name that is no file. Keeps all it has read, each with the time it was read at."""

    def __init__(self, folder, abstract=False):
        name = f"@redlockd-test-{os.getpid()}-{next(NUMBER)}" if abstract else os.path.join(folder, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(name.replace("@", "\0", 1) if abstract else name)
        self.environment = {"NOTIFY_SOCKET": name}
        self.heard = []

    def kill(self):
        self.socket.close()

    def read(self, seconds):
        """Reads one more message; None if none comes."""
        self.socket.settimeout(max(seconds, 0.001))
        try:
            lines = self.socket.recv(65536).decode().splitlines()
        except TimeoutError:
            return None
        self.heard.append((time.monotonic(), dict(line.split("=", 1) for line in lines)))
        return self.heard[-1][1]

    def wait_for(self, name, value=None, seconds=20.0):
        """Reads up to the next message that holds this line, and returns it."""
        deadline = time.monotonic() + seconds * SLOW
        while time.monotonic() < deadline:
            message = self.read(deadline - time.monotonic())
            if message is not None and name in message and (value is None or message[name] == value):
                return message
        raise AssertionError(f"no {name}={value}: {self.heard}")

    def rest(self):
        """All that is still to be read."""
        messages = []
        while (message := self.read(0)) is not None:
            messages.append(message)
        return messages

    def names(self):
        return [name for _, message in self.heard for name in message]


@pytest.fixture
def manager(lab):
    return lab.keep(Manager(lab.folder))


# ---- ready, stopping, reloading ----


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
@pytest.mark.parametrize("workers", ["1", "3"])
def test_ready_when_it_serves_and_stopping_when_it_drains(lab, abstract, workers):
    manager = lab.keep(Manager(lab.folder, abstract))
    service = lab.redlockd(lab.redises(3), "--workers", workers, env=manager.environment, wait=False)
    first = manager.wait_for("READY", "1")
    assert service.log("listening"), "it said that it serves before it did"
    # It serves as soon as each master was tried: on a busy machine, more text may say that too few vote yet.
    assert len(manager.heard) == 1 and first["STATUS"][1:].startswith(" of 3 masters voting"), manager.heard
    service.wait_voting(3)
    service.process.send_signal(signal.SIGTERM)
    assert manager.wait_for("STOPPING", "1")["STATUS"] == "draining"
    service.process.wait(20 * SLOW)
    assert manager.rest() == [] and "WATCHDOG" not in manager.names()


def test_a_start_that_fails_is_never_ready(lab, manager):
    master = lab.redis(tcp=True)
    result = run_redlockd("--masters", f"{master.url},unix:{master.path}", "--listen", f"unix:{lab.folder}/http", env=manager.environment)
    assert result.returncode == 2, result
    assert manager.rest() == []


def test_a_reload_is_told(lab, manager):
    service = lab.service(1, env=manager.environment)
    manager.wait_for("READY")
    for _ in range(2):
        before = time.monotonic()
        service.process.send_signal(signal.SIGHUP)
        reloading = manager.wait_for("RELOADING", "1")
        after = time.monotonic()
        assert before <= int(reloading["MONOTONIC_USEC"]) / 1e6 <= after
        assert manager.wait_for("READY", "1")["STATUS"] == "1 of 1 masters voting"
    assert service.curl("GET", "/readyz").status == 200


def test_the_status_follows_the_masters(lab, manager):
    masters = lab.redises(3)
    lab.redlockd(masters, env=manager.environment)
    manager.wait_for("STATUS", "3 of 3 masters voting")
    masters[0].kill()
    manager.wait_for("STATUS", "2 of 3 masters voting")
    masters[1].kill()
    manager.wait_for("STATUS", "1 of 3 masters voting: too few, no lock can be taken")
    told = [message["STATUS"] for _, message in manager.heard]
    assert all(first != second for first, second in zip(told, told[1:])), "told again without a change"


# ---- the watchdog ----


@pytest.fixture(scope="module")
def stuck_library(tmp_path_factory):
    library = tmp_path_factory.mktemp("stuck") / "stuck_loop.so"
    source = pathlib.Path(__file__).with_name("stuck_loop.c")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", library, source, "-ldl"], check=True)
    return str(library)


def test_it_says_that_it_is_alive(lab, manager):
    lab.service(1, "--workers", "2", env={**manager.environment, "WATCHDOG_USEC": "2000000"})
    for _ in range(6):  # in five seconds: some may lie there before they are read
        manager.wait_for("WATCHDOG", "1")
    times = [at for at, message in manager.heard if "WATCHDOG" in message]
    assert times[-1] - times[0] > 1.5, "more often than it needs to"


def test_a_loop_that_hangs_is_no_sign_of_life(lab, manager, stuck_library):
    stuck = os.path.join(lab.folder, "stuck")
    env = {"LD_PRELOAD": stuck_library, "STUCK_FILE": stuck, "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}
    service = lab.service(1, "--workers", "2", env={**manager.environment, **env, "WATCHDOG_USEC": "1000000"})
    manager.wait_for("WATCHDOG", "1")
    for _ in range(2):
        before = len(service.log("worker-stuck"))
        pathlib.Path(stuck).touch()
        wait_until(lambda: len(service.log("worker-stuck")) > before, 20, "the loop that hangs is noticed")
        manager.rest()
        assert manager.read(1.5) is None, "it says that it is alive while a loop hangs"
        os.unlink(stuck)
        manager.wait_for("WATCHDOG", "1")
    assert {line["level"] for line in service.log("worker-stuck")} == {"error"}
    assert service.curl("GET", "/healthz").status == 200


@pytest.mark.parametrize("env", [{"WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": ""}],
                         ids=lambda env: " ".join(env.values()) or "empty")
def test_no_watchdog_where_none_is_asked_for(lab, manager, env):
    master = lab.redis()
    lab.redlockd([master], env={**manager.environment, **env})
    manager.wait_for("READY")
    master.kill()
    manager.wait_for("STATUS", "0 of 1 masters voting: too few, no lock can be taken")  # by now it has looked round a few times
    assert "WATCHDOG" not in manager.names()


# ---- no manager, a strange one ----


@pytest.mark.parametrize("name", ["", "/", "@", "relative", "vsock:2:1234", "/" + "x" * 200])
def test_what_is_no_socket_is_left_alone(lab, name):
    service = lab.service(1, env={"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "100000"})
    assert service.curl("GET", "/readyz").status == 200
    service.stop()
    assert not service.log("notify-failed")


def test_a_manager_that_is_gone_stops_nothing(lab):
    service = lab.service(1, env={"NOTIFY_SOCKET": f"{lab.folder}/gone"})
    failed = wait_until(lambda: service.log("notify-failed"), 20, "a line in the log")
    assert failed[0]["text"] == "READY=1" and failed[0]["level"] == "warn", failed
    assert service.curl("GET", "/readyz").status == 200


def test_children_are_not_given_the_socket(lab, manager):
    wrapper, seen = pathlib.Path(lab.folder, "redis-server"), pathlib.Path(lab.folder, "environment")
    wrapper.write_text(f'#!/bin/sh\nenv >{seen}\nexec {shutil.which("redis-server")} "$@"\n')
    wrapper.chmod(0o755)
    env = {**manager.environment, "PATH": f"{lab.folder}:{os.environ['PATH']}", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "0"}
    lab.redlockd([], "--dev=1", env=env, wait=False).wait_voting(1)
    names = {line.partition("=")[0] for line in seen.read_text().splitlines()}
    assert {"PATH", "TMPDIR"} <= names and not names & {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}, names
