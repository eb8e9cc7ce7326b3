# SPDX-License-Identifier: MIT
"""Messages for operators: each reason why a master does not vote says what to do; a quarantine is logged once; a
request without a quorum is a warning."""

import pathlib
import socket
import struct
import subprocess
import threading

import pytest

from guard_fixtures import quarantine_seconds, guarded
from harness import DIES_WITH_US, end_process, free_port, wait_until
from master_checks import TIMEOUT_MS, master_of
from proxy import Proxy

DENIED = (b"-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user. In this mode connections "
          b"are only accepted from the loopback interface. If you want to connect from external computers to Redis you may adopt one of the following "
          b"solutions: 1) Just disable protected mode sending the command 'CONFIG SET protected-mode no' from the loopback interface.\r\n")


class Stranger:
    """A server of another kind: says `hello` at once and `answer` to what it gets, then closes; with a reset where it says nothing."""

    def __init__(self, hello=b"", answer=b""):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.hello, self.answer = hello, answer
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                plain, _ = self.listener.accept()
            except OSError:
                return
            with plain:
                self._serve(plain)

    def _serve(self, plain):
        try:
            plain.settimeout(5)
            plain.sendall(self.hello)
            if not self.hello:
                plain.recv(65536)
                plain.sendall(self.answer)
            if not self.hello and not self.answer:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass

    def kill(self):
        self.listener.close()


def reason_of(lab, url, *words):
    """Of a master alone; each of the words is in it."""
    service = lab.redlockd([url], "--bootstrap", "--master-timeout-ms", TIMEOUT_MS, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="an answer")
    found = wait_until(lambda: master_of(service, url)["reason"] if all(word in (master_of(service, url)["reason"] or "") for word in words) else None, 10,
                       f"{words} in the reason")
    assert found.isprintable() and len(found) < 300, found
    wait_until(lambda: [line for line in service.log("master") if line["reason"] == found], 5, "the same in the log")
    return found


@pytest.mark.parametrize("hello, answer, words", [
    (DENIED, b"", ["auth: DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user"]),
    (b"-ERR max number of clients reached\r\n", b"", ["ERR max number of clients reached"]),
    (b"", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", ["protocol: ", "HTTP"]),
    (b"", b"\x15\x03\x01\x00\x02\x02\x46", ["protocol: ", "rediss://"]),
    (b"", b"", ["connection: ", "rediss://"]),
    (b"", b"-ERR \x1b[31mred\x07\xff\xfe\r\n" * 30, ["ERR ?[31mred???"]),
], ids=["protected-mode", "max-clients", "http", "tls-alert", "tls-reset", "rubbish"])
def test_a_server_that_is_no_master(lab, hello, answer, words):
    reason_of(lab, lab.keep(Stranger(hello, answer)).url, *words)


@pytest.mark.parametrize("login, words", [("", "NOAUTH"), (":wrong@", "WRONGPASS"), ("nobody:right@", "WRONGPASS")])
def test_a_wrong_login(lab, login, words):
    server = lab.redis("--requirepass", "right", tcp=True, auth=["right"])
    found = reason_of(lab, f"redis://{login}127.0.0.1:{server.port}/3", "auth: ", words)
    assert "INFO" not in found and "SCRIPT" not in found, found  # that all else is refused, too, is no news


@pytest.mark.parametrize("database", ["", "/3"])
def test_a_sentinel(lab, tmp_path, database):
    port = free_port()
    config, log = pathlib.Path(tmp_path, "sentinel.conf"), pathlib.Path(tmp_path, "log")
    log.touch()
    config.write_text(f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nlogfile {tmp_path}/log\n", encoding="utf-8")
    process = subprocess.Popen([*DIES_WITH_US, "redis-server", str(config), "--sentinel"], stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: "+monitor" in log.read_text(encoding="utf-8") or "Sentinel ID is" in log.read_text(encoding="utf-8"), what="a Sentinel")
        wait_until(lambda: socket.create_connection(("127.0.0.1", port)).close() is None, what="its port")
        found = reason_of(lab, f"redis://127.0.0.1:{port}{database}", "sentinel: ")
        assert found == "sentinel: this is a Sentinel, not a master; name the masters themselves"
    finally:
        end_process(process)


class Valkey(Proxy):
    """A Redis whose INFO says what that of a Valkey does, in as many bytes."""

    def changed(self, data):
        return data.replace(b"redis_git_sha1:00000000", b"valkey_version:8.1.1-rc")


def test_a_valkey_shows_its_own_version(lab, tmp_path):
    proxy = lab.keep(Valkey(tmp_path, lab.redis()))
    service = lab.redlockd([proxy], "--bootstrap")
    service.wait_voting(1)
    assert master_of(service, proxy)["version"] == "valkey 8.1.1-rc"
    assert service.log("master")[-1]["version"] == "valkey 8.1.1-rc"
    service.acquire("x")


@pytest.mark.parametrize("hazard, mend, code", [
    (lambda server: server.restart(), None, "no-epoch"),
    (lambda server: server.cli("FLUSHALL"), None, "bad-epoch"),
    (lambda server: server.cli("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "replica"),
    (lambda server: server.cli("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"), ("CONFIG", "SET", "maxmemory-policy", "noeviction"),
     "maxmemory-policy"),
], ids=["restart", "flush", "replica", "policy"])
@pytest.mark.slow
def test_a_quarantine_is_logged_once(lab, hazard, mend, code):
    """One log line when it begins and one when it ends, for any number of requests and heartbeats; counted once,
    too."""
    servers = lab.redises(3)
    service = guarded(lab, servers)
    service.wait_voting(3)
    hazard(servers[0])

    def ask():
        answer = service.curl("POST", "/locks", body={"resource": "asked", "ttl_ms": 1000})
        if answer.status == 201:
            service.release(answer.json)
        return service.log("master-quarantined")
    wait_until(ask, 10, "quarantined")
    seen = 0

    def heartbeats():
        nonlocal seen
        ask()
        seen += 1
        return seen >= 20
    wait_until(heartbeats, 20, "requests during the quarantine")
    if mend:
        servers[0].cli(*mend)
    wait_until(lambda: ask() and master_of(service, servers[0])["state"] == "voting", quarantine_seconds() + 10, "it votes again")
    lines = [line for line in service.log() if line["event"] in ("master", "master-quarantined") and line["master"] == servers[0].url]
    told = [line.get("state", "quarantined") for line in lines if line.get("state") != "down"]
    assert told == ["voting", "quarantined", "voting"], lines
    begun = next(line for line in lines if line["event"] == "master-quarantined")
    assert begun["reason"].startswith(f"{code}: ") and begun["level"] == "warn", begun
    quarantines = {name: value for name, value in service.metrics().items() if name.startswith("redlockd_master_quarantines_total") and servers[0].url in name and value}
    assert [value for name, value in quarantines.items() if f'reason="{code}"' in name] == [1], quarantines


def test_no_quorum_is_a_warning(lab):
    """One line, that of the request, with the votes; a refusal by a holder is none."""
    service = lab.service(3)
    lease = service.acquire("x")
    service.curl("POST", "/locks", body={"resource": "x"})
    for server in service.masters[:2]:
        server.kill()
    wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="not ready")
    calls = [("POST", "/locks", {"resource": "y"}), ("PUT", "/locks/x", {"token": lease["token"]}), ("GET", "/locks/x", None),
             ("DELETE", "/locks/x", {"token": lease["token"]}), ("GET", "/locks", None)]
    answers = [service.curl(method, path, body=body) for method, path, body in calls]
    assert [answer.code for answer in answers] == ["no-quorum"] * len(calls)
    wait_until(lambda: len([line for line in service.log("request") if line.get("code") == "no-quorum"]) == len(calls), what="their lines")
    lines = [line for line in service.log("request") if line.get("code") == "no-quorum"]
    for line, answer in zip(lines, answers, strict=True):
        assert line["level"] == "warn", line
        assert {name: int(line[name]) for name in answer.json["votes"]} == answer.json["votes"], line
    others = [line for line in service.log("request") if line.get("code") != "no-quorum"]
    assert {line["level"] for line in others} == {"info"} and any(line.get("code") == "locked" for line in others)
