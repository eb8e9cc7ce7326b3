# SPDX-License-Identifier: MIT
"""Addresses that lead to no master of ours, or only with a login or a database: what the callers then get, and what /masters says."""

import socket
import threading

import pytest

from fixtures import certified, needs_localhost
from harness import run_redlockd, wait_until
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


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    b"220 mail.example.org ESMTP\r\n",
    b"\x00\x01\x02\x03" * 100,
    b"+OK\r\n",
    b":1\r\n",
    b"*-1\r\n",
    b"$5\r\nhello\r\n",
    b"-ERR unknown command\r\n",
    b"*2147483647\r\n",
    None,
], ids=["http", "smtp", "binary", "status", "number", "null", "string", "error", "huge-array", "silent"])
def test_one_address_is_another_kind_of_server(lab, answer):
    servers = [*certified(lab, 3)[:2], serve(lab, answer)]
    service = lab.redlockd(servers, "--master-timeout-ms", TIMEOUT_MS, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    check_a_majority_serves(service, "x")
    master = master_of(service, servers[2])
    assert master["state"] in ("down", "quarantined") and master["reason"], master
    check_votes_without_one(service, "x")


def test_one_address_is_a_closed_port(lab):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    servers = [*certified(lab, 3)[:2], f"redis://127.0.0.1:{port}"]
    service = lab.redlockd(servers, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    check_a_majority_serves(service, "x")
    assert master_of(service, servers[2])["state"] == "down"


def test_one_address_is_a_name_that_does_not_resolve(lab):
    servers = [*certified(lab, 3)[:2], "redis://no-such-host.invalid:6379"]
    service = lab.redlockd(servers, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    check_a_majority_serves(service, "x")
    master = master_of(service, servers[2])
    assert master["state"] == "down" and master["reason"]


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


@pytest.mark.parametrize("login", ["", ":wrong-pass@", "nobody:right-pass@"])
def test_one_with_a_wrong_password(lab, login):
    locked = lab.redis("--requirepass", "right-pass", tcp=True, auth=["right-pass"])
    servers = [*certified(lab, 3)[:2], f"redis://{login}127.0.0.1:{locked.port}"]
    service = lab.redlockd(servers, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    check_a_majority_serves(service, "x")
    master = wait_for_reason(service, servers[2], "auth", "password", "wrongpass")
    check_votes_without_one(service, "x")
    assert "pass@" not in str(master) and "right-pass" not in str(master) and "wrong-pass" not in str(master)
    service.stop()
    assert "right-pass" not in service.stderr() and "wrong-pass" not in service.stderr()


@pytest.mark.parametrize("denied", ["-@scripting", "-eval"])
def test_an_acl_user_who_may_not_run_scripts(lab, denied):
    server = lab.redis("--user", "poor", "on", ">p", "~*", "&*", "+@all", denied, tcp=True)
    servers = [*certified(lab, 3)[:2], f"redis://poor:p@127.0.0.1:{server.port}"]
    service = lab.redlockd(servers, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    check_a_majority_serves(service, "x")
    master = wait_for_reason(service, servers[2], "auth: ")
    assert master["state"] == "down" and "noperm" in master["reason"].lower(), master
    assert any(line["reason"].startswith("auth: ") for line in service.log("master") if line["state"] == "down"), service.stderr()
    assert server.cli("DBSIZE") == 0


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


def test_a_redis_cluster_node_is_not_taken_for_a_master(lab):
    servers = [*certified(lab, 3)[:2], lab.redis("--cluster-enabled", "yes", tcp=True)]
    service = lab.redlockd(servers, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    check_a_majority_serves(service, "x")
    master = master_of(service, servers[2])
    assert master["state"] == "quarantined" and master["reason"].startswith("redis-cluster: "), master
    check_votes_without_one(service, "x")
    assert servers[2].cli("DBSIZE") == 0
