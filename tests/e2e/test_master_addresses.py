# SPDX-License-Identifier: MIT
"""Addresses that lead to no master of ours, or only with a login or a database: what the callers then get, and what /masters says."""

import socket
import threading

import pytest

from fixtures import certified, needs_localhost
from harness import Redis, run_redlockd, wait_until
from master_checks import TIMEOUT_MS, check_a_majority_serves, check_votes_without_one, master_of, wait_for_reason


def serve(lab, answer):
    """A server of the wrong kind: answers everything with `answer`, or not at all."""
    listener = socket.create_server(("127.0.0.1", 0))
    kept = []

    def one(plain):
        try:
            while plain.recv(65536):
                if answer:
                    plain.sendall(answer)
        except OSError:
            pass

    def run():
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            kept.append(plain)
            threading.Thread(target=one, args=(plain,), daemon=True).start()

    class Server:
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"

        def kill(self):
            for plain in [listener, *kept]:
                try:
                    plain.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                plain.close()
    threading.Thread(target=run, daemon=True).start()
    return lab.keep(Server())


def closed_port(lab):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"redis://127.0.0.1:{listener.getsockname()[1]}"


def locked(login):
    return lambda lab: f"redis://{login}127.0.0.1:{lab.redis('--requirepass', 'right-pass', tcp=True, auth=['right-pass']).port}"


def with_rights(*denied):
    return lambda lab: f"redis://poor:p@127.0.0.1:{lab.redis('--user', 'poor', 'on', '>p', '~*', '&*', '+@all', *denied, tcp=True).port}"


KINDS = {
    "http": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "smtp": b"220 mail.example.org ESMTP\r\n",
    "binary": b"\x00\x01\x02\x03" * 100,
    "status": b"+OK\r\n",
    "number": b":1\r\n",
    "null": b"*-1\r\n",
    "string": b"$5\r\nhello\r\n",
    "error": b"-ERR unknown command\r\n",
    "huge-array": b"*2147483647\r\n",
    "silent": None,
}
# Kind: what makes it and returns its address, the state that it has then, and words of which one is in its reason.
OTHERS = {
    **{kind: (lambda lab, answer=answer: serve(lab, answer), ("down", "quarantined"), [""]) for kind, answer in KINDS.items()},
    "closed port": (closed_port, ("down",), [""]),
    "unknown name": (lambda lab: "redis://no-such-host.invalid:6379", ("down",), [""]),
    "no login": (locked(""), ("down", "quarantined"), ["auth", "password", "wrongpass"]),
    "wrong password": (locked(":wrong-pass@"), ("down", "quarantined"), ["auth", "password", "wrongpass"]),
    "unknown user": (locked("nobody:right-pass@"), ("down", "quarantined"), ["auth", "password", "wrongpass"]),
    "no scripts": (with_rights("-@scripting"), ("down",), ["auth: "]),
    "no eval": (with_rights("-eval"), ("down",), ["auth: "]),
    "cluster": (lambda lab: lab.redis("--cluster-enabled", "yes", tcp=True), ("quarantined",), ["redis-cluster: "]),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_one_address_is_something_else(lab, kind):
    make, states, words = OTHERS[kind]
    good = certified(lab, 3)[:2]
    before = len(lab.started)
    servers = [*good, make(lab)]
    service = lab.redlockd(servers, "--master-timeout-ms", TIMEOUT_MS, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    check_a_majority_serves(service, "x")
    master = wait_for_reason(service, servers[2], *words)
    assert master["state"] in states and master["reason"], master
    check_votes_without_one(service, "x")
    if words == ["auth: "]:
        assert "noperm" in master["reason"].lower(), master
        assert any(line["reason"].startswith("auth: ") for line in service.log("master") if line["state"] == "down"), service.stderr()
    assert not [one for one in lab.started[before:] if isinstance(one, Redis) and one.cli("DBSIZE")], "something was written there"
    service.stop()
    for secret in ("pass@", "right-pass", "wrong-pass"):
        assert secret not in str(master) and secret not in service.stderr()


@needs_localhost
def test_a_name_is_resolved(lab):
    server = lab.redis(tcp=True)
    service = lab.redlockd([f"redis://localhost:{server.port}"])
    service.acquire("x")
    assert server.cli("EXISTS", "x") == 1


@pytest.mark.parametrize("url, options, auth", [
    ("redis://:s3cret@127.0.0.1:{port}", ["--requirepass", "s3cret"], ["s3cret"]),
    ("redis://locker:p%40ss%3Aw%2Frd@127.0.0.1:{port}", ["--user", "locker", "on", ">p@ss:w/rd", "~*", "&*", "+@all", "--user", "default", "off"],
     ["locker", "p@ss:w/rd"]),
], ids=["password", "acl-user"])
def test_password_and_user(lab, url, options, auth):
    server = lab.redis(*options, tcp=True, auth=auth)
    service = lab.redlockd([url.format(port=server.port)], "--restart-guard", "off")
    lease = service.acquire("x")
    assert server.cli("GET", "x").startswith(lease["token"])
    server.restart()
    wait_until(lambda: service.curl("POST", "/locks", body={"resource": "y"}).status == 201, what="logged in again")
    shown = service.curl("GET", "/masters").body.decode() + service.curl("GET", "/metrics").body.decode()
    service.stop()
    for secret in ("s3cret", "p@ss", "p%40ss"):
        assert secret not in shown and secret not in service.stderr()


def test_an_acl_user_who_may_not_certify(lab):
    """Quarantined, for what it may have forgotten: what it refuses is said beside that, for as long as it is so."""
    server = lab.redis("--user", "poor", "on", ">p", "~*", "&*", "+@all", "-hdel", tcp=True)
    servers = [*certified(lab, 3)[:2], f"redis://poor:p@127.0.0.1:{server.port}"]
    service = lab.redlockd(servers, wait=False)
    master = wait_for_reason(service, servers[2], "; also refused: auth: hdel: noperm")
    assert master["state"] in ("quarantined", "down"), master
    check_a_majority_serves(service, "x")
    wait_until(lambda: master_of(service, servers[2])["state"] == "quarantined", what="quarantined")
    assert master_of(service, servers[2])["reason"].startswith("no-epoch: "), master_of(service, servers[2])
    server.cli("ACL", "SETUSER", "poor", "+hdel")
    wait_until(lambda: "refused" not in master_of(service, servers[2])["reason"], what="only quarantined")
    assert master_of(service, servers[2])["reason"] == "no-epoch: it never had an epoch, or lost all it had; it votes again by itself", master_of(service, servers[2])


def test_database_number(lab):
    server = lab.redis(tcp=True)
    service = lab.redlockd([f"{server.url}/5"], "--restart-guard", "off")
    service.acquire("x")
    assert server.pipeline([("SELECT", "5"), ("EXISTS", "x"), ("SELECT", "0"), ("DBSIZE",)]) == ["OK", 1, "OK", 0]
    server.restart()
    wait_until(lambda: service.curl("POST", "/locks", body={"resource": "y"}).status == 201, what="connected again")
    assert server.pipeline([("SELECT", "5"), ("EXISTS", "y"), ("SELECT", "0"), ("DBSIZE",)]) == ["OK", 1, "OK", 0]


def test_the_certificate_is_in_the_database(lab):
    server = lab.redis(tcp=True)
    service = lab.redlockd([f"{server.url}/5"])
    service.acquire("x")
    look = [("SELECT", "5"), ("HEXISTS", "redlockd:master", "epoch"), ("SELECT", "0"), ("DBSIZE",)]
    assert server.pipeline(look) == ["OK", 1, "OK", 0]
    server.cli("CLIENT", "KILL", "TYPE", "normal")
    wait_until(lambda: service.curl("POST", "/locks", body={"resource": "y"}).status == 201, what="found again on the next connection")


def test_one_server_under_two_addresses_is_refused(lab):
    servers = lab.redises(2)
    both = lab.redis(tcp=True)
    result = run_redlockd("--listen", "127.0.0.1:0", "--masters", f"{servers[0].url},redis://127.0.0.1:{both.port},unix:{both.path}")
    assert result.returncode == 2, result
    assert f"127.0.0.1:{both.port}" in result.stderr and both.path in result.stderr
    assert servers[0].path not in result.stderr.splitlines()[-1]
