# SPDX-License-Identifier: MIT
"""systemd/redlockd.service: what systemd makes of it, how open it says it is, and that redlockd gets along with the system calls that it leaves."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

import pytest

import harness
from certificates import Authority
from harness import BINARY, DIES_WITH_US, ROOT, clean_environment, curl, curl_command, wait_until
from test_notify import Manager

UNIT = pathlib.Path(BINARY).resolve().parent / "redlockd.service"
MAX_EXPOSURE = 1.5


def analyze(*args):
    done = subprocess.run(["systemd-analyze", "--no-pager", *args], env={**os.environ, "LC_ALL": "C.UTF-8"}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def unit(tmp_path):
    """Writes the unit to a folder, with a program that is there, and changed by `change`."""
    def write(change=lambda text: text):
        path = tmp_path / "redlockd.service"
        path.write_text(change(re.sub(r"^ExecStart=\S+", f"ExecStart={pathlib.Path(BINARY).resolve()}", UNIT.read_text(), flags=re.M)))
        return str(path)
    return write


def without(*names):
    return lambda text: re.sub(rf"^({'|'.join(names)})=.*\n", "", text, flags=re.M)


def test_systemd_finds_no_mistake(unit):
    assert analyze("verify", "--man=no", unit()) == (0, "")
    assert "MemoryDenyWriteExcute" in analyze("verify", "--man=no", unit(lambda text: text.replace("MemoryDenyWriteExecute", "MemoryDenyWriteExcute")))[1]


def test_it_is_closed(unit):
    def exposure(path):
        status, text = analyze("security", "--offline=yes", f"--threshold={MAX_EXPOSURE * 10:.0f}", path)
        found = float(re.search(r"Overall exposure level for redlockd.service: ([0-9.]+)", text)[1])
        assert (status == 0) == (found <= MAX_EXPOSURE), text
        return found
    assert exposure(unit()) <= MAX_EXPOSURE
    assert exposure(unit(without("SystemCallFilter", "PrivateUsers", "ProtectSystem"))) > MAX_EXPOSURE


def test_the_program_is_where_it_is_installed():
    program = re.search(r"^ExecStart=(\S+)", UNIT.read_text(), re.M)[1]
    cache = (UNIT.parent / "CMakeCache.txt").read_text()
    assert program == re.search(r"^CMAKE_INSTALL_PREFIX:PATH=(.*)$", cache, re.M)[1] + "/bin/redlockd"


def test_the_options_of_the_unit_exist(tmp_path):
    """A start with the unit's own command: only the files of the credentials are others."""
    command = shlex.split(re.search(r"^ExecStart=(.*)", UNIT.read_text(), re.M)[1].replace("%d", str(tmp_path)))
    config = tmp_path / "redlockd.json"
    config.write_text("{}")
    masters = tmp_path / "masters"
    masters.touch(mode=0o600)
    done = subprocess.run([BINARY, *command[1:]], env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "masters: holds no address" in done.stderr, done


# ---- the system calls ----


def expand(group, seen=None):
    """The names of a group of system calls, as this systemd has it."""
    seen = set() if seen is None else seen
    status, text = analyze("syscall-filter", group)
    assert status == 0, text
    for name in (line.strip() for line in text.splitlines()[1:]):
        if name.startswith("@") and name not in seen:
            seen.add(name)
            expand(name, seen)
        elif name and not name.startswith("#"):
            seen.add(name)
    return seen


def allowed_calls(text):
    """As systemd reads the lines: the first one allows, those with a ~ take away again. The calls of @default always
    stay."""
    calls = set()
    for line in re.findall(r"^SystemCallFilter=(.*)", text, re.M):
        names = set().union(*(expand(name) if name.startswith("@") else {name} for name in line.lstrip("~").split()))
        calls = calls - names if line.startswith("~") else calls | names
    return {name for name in calls | expand("@default") if not name.startswith("@")}


@pytest.fixture
def confined(tmp_path):
    """A program that is redlockd with these system calls and no others."""
    def write(calls):
        names, program = tmp_path / "calls", tmp_path / "redlockd-confined"
        names.write_text("\n".join(sorted(calls)))
        words = [sys.executable, ROOT / "tests/hardening/sandbox.py", names, pathlib.Path(BINARY).resolve()]
        program.write_text(f"#!/bin/sh\nexec {' '.join(shlex.quote(str(word)) for word in words)} \"$@\"\n")
        program.chmod(0o755)
        return str(program)
    return write


def live(lab, service, trust):
    """All that a service does: every call, a wait, a hold, a client that leaves, files read anew, masters that go and come."""
    lease = service.acquire("a", ttl_ms=1000)
    assert service.curl("POST", "/locks", body={"resource": "a", "wait_ms": 20000}).status == 201, "it waits until that lease ends"
    assert service.release(lease).status == 409
    assert service.curl("PUT", "/locks/b", body={"token": service.acquire("b")["token"]}).status == 200
    for path in ("/locks/b", "/locks?prefix=", "/metrics", "/masters", "/version", "/openapi.yaml", "/", "/healthz"):
        assert service.curl("GET", path).status == 200, path
    for address in service.addresses[1:]:
        assert curl(address, "GET", "/readyz").status == 200
    command = curl_command(service.address, "POST", "/locks", "-N", "--cacert", trust, body={"resource": "c", "hold": True, "ttl_ms": 300})
    with subprocess.Popen([*DIES_WITH_US, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as holder:
        assert b"acquired" in holder.stdout.readline() and b"renewed" in holder.stdout.readline()
        holder.kill()
    wait_until(lambda: service.curl("POST", "/locks", body={"resource": "c"}).status == 201, 20, "a client that leaves loses its lock")
    service.process.send_signal(signal.SIGHUP)
    wait_until(lambda: [line for line in service.log() if line["event"].endswith("-reloaded")], 20, "the files are read anew")
    service.masters[0].kill()
    service.wait_voting(2)
    service.masters[0].start()
    wait_until(lambda: service.curl("GET", "/masters").json["masters"][0]["state"] == "quarantined", 20, "it is back")


def test_it_lives_within_its_system_calls(lab, confined, monkeypatch):
    calls = allowed_calls(UNIT.read_text())
    assert "accept4" in calls and not calls & {"ptrace", "mount", "chown", "setuid", "bpf", "keyctl", "shmget", "init_module", "mlock"}
    authority, manager = Authority(lab.folder), lab.keep(Manager(lab.folder))
    server = authority.issue("server", "IP:127.0.0.1")
    masters = [lab.redis(tcp=True), *lab.redises(2)]
    names = pathlib.Path(lab.folder, "masters")
    names.write_text("\n".join([f"redis://localhost:{masters[0].port}", masters[1].url, masters[2].url]))
    names.chmod(0o600)
    monkeypatch.setattr(harness, "BINARY", confined(calls))
    service = lab.redlockd([], "--masters-file", str(names), "--tls-cert", server.certificate, "--tls-key", server.key, "--workers", "2", "--bootstrap",
                           listen=("127.0.0.1:0", "http://[::1]:0", f"unix:{lab.folder}/http"), env={**manager.environment, "WATCHDOG_USEC": "1000000"},
                           trust=authority.certificate, wait=False)
    service.masters = masters
    service.wait_voting(3)
    live(lab, service, authority.certificate)
    manager.wait_for("WATCHDOG")
    service.stop(signal.SIGTERM, 20)


@pytest.mark.parametrize("call", ["epoll_ctl", "listen", "getrandom", "socket"])
def test_a_call_that_is_missing_is_seen(confined, call):
    calls = allowed_calls(UNIT.read_text())
    assert call in calls
    done = subprocess.run([confined(calls - {call}), "--masters", "redis://127.0.0.1:1", "--listen", "127.0.0.1:0"], env=clean_environment(),
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
    assert done.returncode == -signal.SIGSYS, done
