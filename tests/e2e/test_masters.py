"""Masters that are ill, gone, or not what they seem to be: what the callers then get, and what /masters says."""

import re
import socket
import threading
import time

import pytest

from harness import SLOW, run_redlockd, wait_until
from proxy import Proxy

# A request must not wait for a master that is ill. Far more than it takes, far less than a person would wait.
FAST_SECONDS = 1.0 * SLOW
TIMEOUT_MS = str(round(200 * SLOW))


def master_of(service, server):
    """What /masters says of one server."""
    address = re.sub("//.*@", "//", server if isinstance(server, str) else server.url)
    found = [master for master in service.curl("GET", "/masters").json["masters"] if master["address"] == address]
    assert len(found) == 1, service.curl("GET", "/masters").body
    assert set(found[0]) >= {"address", "state", "reason", "rtt_us", "version", "run_id", "warnings"}
    return found[0]


def wait_for_reason(service, server, *words):
    """Until the master may not vote, for a reason in which one of the words appears; returns what /masters says."""
    def reached():
        master = master_of(service, server)
        return master if master["state"] != "voting" and any(word in (master["reason"] or "").lower() for word in words) else None
    try:
        return wait_until(reached, 10, f"a reason with one of {words}")
    except AssertionError as error:
        raise AssertionError(f"{error}; now {master_of(service, server)}") from None


def check_a_majority_serves(service, name):
    """With one of three masters ill, everything works, fast, and the votes tell that one did not take part."""
    def timed(*request, **more):
        answer = service.curl(*request, **more)
        assert answer.seconds < FAST_SECONDS, answer
        return answer
    lease = timed("POST", "/locks", body={"resource": name, "owner": "me"})
    assert lease.status == 201, lease
    refused = timed("POST", "/locks", body={"resource": name})
    assert refused.status == 409 and refused.code == "locked", refused
    assert refused.json["holder"] == {"owner": "me", "fence": lease.json["fence"]}
    seen = timed("GET", f"/locks/{name}")
    assert seen.status == 200 and seen.json["held"] is True
    for votes in (refused.json["votes"], seen.json["votes"]):
        assert votes["needed"] == 2 and votes["masters"] == 3, votes
        assert votes["failed"] + votes["barred"] <= 1, votes
    extended = timed("PUT", f"/locks/{name}", body={"token": lease.json["token"]})
    assert extended.status == 200, extended
    wrong = timed("PUT", f"/locks/{name}", body={"token": "0" * 40})
    assert wrong.status == 409 and wrong.code == "not-owner", wrong
    assert timed("DELETE", f"/locks/{name}", body={"token": lease.json["token"]}).status == 204
    again = timed("DELETE", f"/locks/{name}", body={"token": lease.json["token"]})
    assert again.status == 410, again
    assert timed("GET", "/readyz").status == 200


def check_votes_without_one(service, name):
    """Once a master is known to be ill, it is counted as failed or barred, at once."""
    votes = service.curl("GET", f"/locks/{name}").json["votes"]
    assert votes["failed"] + votes["barred"] == 1, votes


def check_no_quorum(service, name):
    """With two of three masters ill: 503, which does not look like held by somebody."""
    calls = [("POST", "/locks", {"resource": name}), ("PUT", f"/locks/{name}", {"token": "0" * 40}),
             ("DELETE", f"/locks/{name}", {"token": "0" * 40}), ("GET", f"/locks/{name}", None)]
    for method, path, body in calls:
        answer = service.curl(method, path, body=body)
        assert answer.status == 503 and answer.code == "no-quorum", (method, answer)
        assert int(answer.headers["retry-after"]) >= 1
        votes = answer.json["votes"]
        assert votes["needed"] == 2 and votes["masters"] == 3 and votes["failed"] + votes["barred"] == 2, votes
        assert answer.seconds < FAST_SECONDS, (method, answer.seconds)
    ready = service.curl("GET", "/readyz")
    assert ready.status == 503 and ready.code == "no-quorum", ready
    assert ready.json["quorum"]["needed"] == 2 and ready.json["quorum"]["masters"] == 3 and ready.json["quorum"]["voting"] < 2
    assert service.curl("GET", "/healthz").status == 200


def test_masters_that_are_well(service):
    seen = service.curl("GET", "/masters").json
    assert seen["quorum"] == {"needed": 2, "voting": 3, "masters": 3}
    assert len(seen["masters"]) == 3
    for server in service.masters:
        master = master_of(service, server)
        info = dict(line.split(":", 1) for line in server.cli("INFO", "server").split("\r\n") if ":" in line)
        assert master["state"] == "voting" and master["reason"] is None and master["warnings"] == []
        assert master["version"] == info["redis_version"] and master["run_id"] == info["run_id"]
        assert 0 < master["rtt_us"] < 5e6 * SLOW
    assert service.curl("GET", "/readyz").json == {"status": "ready", "quorum": seen["quorum"]}


def test_one_killed_and_back(lab):
    service = lab.service(3, "--master-timeout-ms", TIMEOUT_MS)
    dead = service.masters[1]
    dead.kill()
    check_a_majority_serves(service, "at-once")
    master = wait_for_reason(service, dead, "connect", "refused", "down", "closed", "lost", "no such file")
    assert master["state"] == "down"
    check_a_majority_serves(service, "later")
    check_votes_without_one(service, "x")
    dead.restart()
    service.wait_voting(3)
    assert master_of(service, dead)["reason"] is None
    service.acquire("after")
    wait_until(lambda: dead.cli("EXISTS", "after") == 1, what="the restarted master takes part")


def test_two_killed_and_one_back(lab):
    service = lab.service(3, "--master-timeout-ms", TIMEOUT_MS)
    held = service.acquire("held")
    for server in service.masters[:2]:
        server.kill()
    wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="not ready")
    check_no_quorum(service, "x")
    assert service.curl("PUT", "/locks/held", body={"token": held["token"]}).status == 503
    assert service.masters[2].cli("EXISTS", "x") == 0
    service.masters[0].restart()
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready again")
    check_a_majority_serves(service, "y")


def test_one_stopped_and_continued(lab):
    service = lab.service(3, "--master-timeout-ms", TIMEOUT_MS)
    hung = service.masters[0]
    hung.stop()
    check_a_majority_serves(service, "at-once")
    wait_for_reason(service, hung, "timeout", "silent", "timed out", "answer")
    check_a_majority_serves(service, "later")
    check_votes_without_one(service, "x")
    hung.cont()
    service.wait_voting(3)
    service.acquire("after")
    wait_until(lambda: hung.cli("EXISTS", "after") == 1, what="the continued master takes part")
    # Nothing of what was asked while it slept is left.
    wait_until(lambda: hung.cli("EXISTS", "at-once", "later") == 0, what="no zombies")


def test_two_stopped_and_continued(lab):
    service = lab.service(3, "--master-timeout-ms", TIMEOUT_MS)
    for server in service.masters[1:]:
        server.stop()
    first = service.curl("POST", "/locks", body={"resource": "x"})
    assert first.status == 503 and first.code == "no-quorum" and first.seconds < FAST_SECONDS, first
    assert first.json["votes"]["failed"] == 2
    wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="not ready")
    check_no_quorum(service, "x")
    for server in service.masters[1:]:
        server.cont()
    service.wait_voting(3)
    wait_until(lambda: all(server.cli("EXISTS", "x") == 0 for server in service.masters), what="no zombies")
    check_a_majority_serves(service, "x")


def test_one_that_loads_its_file(lab):
    servers = lab.redises(3)
    servers[0].cli("DEBUG", "POPULATE", "3000", "key", "100")
    servers[0].cli("SAVE")
    servers[0].kill()
    servers[0].start(wait=False, options=["--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"])
    service = lab.redlockd(servers, "--master-timeout-ms", TIMEOUT_MS, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    wait_for_reason(service, servers[0], "loading")
    check_a_majority_serves(service, "x")
    check_votes_without_one(service, "x")


def test_one_is_a_replica(lab):
    servers = [*lab.redises(2), lab.redis("--replicaof", "127.0.0.1", "1")]
    service = lab.redlockd(servers, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    master = wait_for_reason(service, servers[2], "replica")
    assert master["state"] == "barred"
    check_a_majority_serves(service, "x")
    check_votes_without_one(service, "x")


def test_one_becomes_a_replica(lab):
    service = lab.service(3)
    service.masters[0].cli("REPLICAOF", "127.0.0.1", "1")
    check_a_majority_serves(service, "x")
    wait_for_reason(service, service.masters[0], "replica", "readonly", "read-only", "read only")
    service.masters[0].cli("REPLICAOF", "NO", "ONE")
    service.wait_voting(3)


def test_one_is_out_of_memory(lab):
    service = lab.service(3)
    full = service.masters[2]
    full.cli("CONFIG", "SET", "maxmemory", "1mb", "maxmemory-policy", "noeviction")
    full.pipeline([("SET", f"fill{i}", "x" * 10000) for i in range(500)])
    check_a_majority_serves(service, "x")
    wait_until(lambda: service.curl("GET", "/locks/x").status == 200)
    # Whether it may go on voting between two errors is its own affair; that it fails must be seen.
    errors = [name for name, value in service.metrics().items() if "error" in name and "oom" in name.lower() and value > 0]
    assert errors, service.metrics()
    for server in service.masters[:2]:
        server.cli("CONFIG", "SET", "maxmemory", "1mb", "maxmemory-policy", "noeviction")
        server.pipeline([("SET", f"fill{i}", "x" * 10000) for i in range(500)])
    answer = service.curl("POST", "/locks", body={"resource": "y"})
    assert answer.status == 503 and answer.code == "no-quorum", answer


def serve(lab, answer):
    """A server of the wrong kind: says `answer` to whatever it gets, or nothing at all."""
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
    servers = [*lab.redises(2), serve(lab, answer)]
    service = lab.redlockd(servers, "--master-timeout-ms", TIMEOUT_MS, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    check_a_majority_serves(service, "x")
    master = master_of(service, servers[2])
    assert master["state"] in ("down", "barred") and master["reason"], master
    check_votes_without_one(service, "x")


def test_one_address_is_a_closed_port(lab):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    servers = [*lab.redises(2), f"redis://127.0.0.1:{port}"]
    service = lab.redlockd(servers, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    check_a_majority_serves(service, "x")
    assert master_of(service, servers[2])["state"] == "down"


def test_one_address_is_a_name_that_does_not_resolve(lab):
    servers = [*lab.redises(2), "redis://no-such-host.invalid:6379"]
    service = lab.redlockd(servers, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    check_a_majority_serves(service, "x")
    master = master_of(service, servers[2])
    assert master["state"] == "down" and master["reason"]


def test_a_name_is_resolved(lab):
    server = lab.redis(tcp=True)
    service = lab.redlockd([f"redis://localhost:{server.port}"])
    service.acquire("x")
    assert server.cli("EXISTS", "x") == 1


def test_nobody_there_at_the_start(lab):
    """It starts, says that it is not ready, and becomes ready when the masters come."""
    servers = lab.redises(3)
    for server in servers:
        server.kill()
    service = lab.redlockd(servers, wait=False)
    ready = service.curl("GET", "/readyz")
    assert ready.status == 503 and ready.code == "no-quorum" and ready.json["detail"]
    answer = service.curl("POST", "/locks", body={"resource": "x"})
    assert answer.status == 503 and answer.code == "no-quorum" and answer.seconds < FAST_SECONDS
    assert answer.json["votes"]["failed"] + answer.json["votes"]["barred"] >= 2
    for server in servers:
        server.start()
    service.wait_voting(3)
    service.acquire("x")


@pytest.mark.parametrize("url, options, auth", [
    ("redis://:s3cret@127.0.0.1:{port}", ["--requirepass", "s3cret"], ["s3cret"]),
    ("redis://locker:p%40ss%3Aw%2Frd@127.0.0.1:{port}", ["--user", "locker", "on", ">p@ss:w/rd", "~*", "&*", "+@all", "--user", "default", "off"],
     ["locker", "p@ss:w/rd"]),
], ids=["password", "acl-user"])
def test_password_and_user(lab, url, options, auth):
    server = lab.redis(*options, tcp=True, auth=auth)
    service = lab.redlockd([url.format(port=server.port)])
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
    servers = [*lab.redises(2), f"redis://{login}127.0.0.1:{locked.port}"]
    service = lab.redlockd(servers, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    check_a_majority_serves(service, "x")
    master = wait_for_reason(service, servers[2], "auth", "password", "wrongpass")
    check_votes_without_one(service, "x")
    assert "pass@" not in str(master) and "right-pass" not in str(master) and "wrong-pass" not in str(master)
    service.stop()
    assert "right-pass" not in service.stderr() and "wrong-pass" not in service.stderr()


def test_an_acl_user_who_may_not_run_scripts(lab):
    server = lab.redis("--user", "poor", "on", ">p", "~*", "&*", "+@all", "-@scripting", tcp=True)
    servers = [*lab.redises(2), f"redis://poor:p@127.0.0.1:{server.port}"]
    service = lab.redlockd(servers, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    check_a_majority_serves(service, "x")
    assert server.cli("DBSIZE") == 0


def test_database_number(lab):
    server = lab.redis(tcp=True)
    service = lab.redlockd([f"{server.url}/5"])
    service.acquire("x")
    assert server.pipeline([("SELECT", "5"), ("EXISTS", "x"), ("SELECT", "0"), ("EXISTS", "x")]) == ["OK", 1, "OK", 0]
    server.restart()
    wait_until(lambda: service.curl("POST", "/locks", body={"resource": "y"}).status == 201, what="connected again")
    assert server.pipeline([("SELECT", "5"), ("EXISTS", "y"), ("SELECT", "0"), ("EXISTS", "y")]) == ["OK", 1, "OK", 0]


def test_script_flush_does_not_matter(lab):
    service = lab.service(3)
    lease = service.acquire("x")
    calls = [lambda: service.curl("PUT", "/locks/x", body={"token": lease["token"]}).status == 200,
             lambda: service.curl("POST", "/locks", body={"resource": "x"}).status == 409,
             lambda: service.curl("GET", "/locks/x").json["held"] is True,
             lambda: service.curl("DELETE", "/locks/x", body={"token": lease["token"]}).status == 204,
             lambda: service.curl("POST", "/locks", body={"resource": "x"}).status == 201]
    for call in calls:
        for server in service.masters:
            server.cli("SCRIPT", "FLUSH")
        assert call()


def test_a_restarted_master_does_not_know_the_scripts(lab):
    service = lab.service(1)
    service.masters[0].restart()
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    service.acquire("x")


def test_one_server_under_two_addresses_is_refused(lab):
    servers = lab.redises(2)
    both = lab.redis(tcp=True)
    result = run_redlockd("--listen", "127.0.0.1:0", "--masters", f"{servers[0].url},redis://127.0.0.1:{both.port},unix:{both.path}")
    assert result.returncode == 2, result
    assert f"127.0.0.1:{both.port}" in result.stderr and both.path in result.stderr
    assert servers[0].path not in result.stderr.splitlines()[-1]


def test_eviction_policy_is_warned_of(lab):
    servers = [*lab.redises(2), lab.redis("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")]
    service = lab.redlockd(servers)
    master = master_of(service, servers[2])
    assert any("maxmemory" in warning or "allkeys-lru" in warning for warning in master["warnings"]), master
    assert master_of(service, servers[0])["warnings"] == []
    assert any("warning" in name and value > 0 for name, value in service.metrics().items())
    assert any(line["level"] == "warn" and "maxmemory" in str(line) for line in service.log()), service.stderr()


def test_a_redis_cluster_node_is_not_taken_for_a_master(lab):
    servers = [*lab.redises(2), lab.redis("--cluster-enabled", "yes", tcp=True)]
    service = lab.redlockd(servers, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    check_a_majority_serves(service, "x")
    master = master_of(service, servers[2])
    assert "cluster" in str(master["reason"]).lower() + str(master["warnings"]).lower(), master


def test_a_release_reaches_a_master_that_was_stopped_during_the_acquire(lab):
    service = lab.service(3, "--master-timeout-ms", TIMEOUT_MS)
    for number in range(3):
        sleeper = service.masters[number]
        sleeper.stop()
        lease = service.acquire(f"x{number}", 60000)
        assert service.release(lease).status == 204
        sleeper.cont()
        service.wait_voting(3)
        wait_until(lambda name=f"x{number}", one=sleeper: one.cli("EXISTS", name) == 0, what="no zombie")
        assert [server.cli("EXISTS", f"x{number}") for server in service.masters] == [0, 0, 0]


def test_a_release_reaches_a_master_that_was_cut_off(lab):
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    service = lab.redlockd(proxies)
    lease = service.acquire("x", 60000)
    wait_until(lambda: all(server.cli("EXISTS", "x") for server in servers), what="the key on all masters")
    proxies[0].cut()
    service.wait_voting(2)
    assert service.release(lease).status == 204
    assert servers[0].cli("EXISTS", "x") == 1
    proxies[0].heal()
    wait_until(lambda: servers[0].cli("EXISTS", "x") == 0, 15, "given back after the reconnection")


def test_a_failed_acquire_is_given_back_where_the_master_was_cut_off(lab):
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    service = lab.redlockd(proxies)
    service.release(service.acquire("warm-up"))
    for proxy in proxies[:2]:
        proxy.cut_at_script = True
    answer = service.curl("POST", "/locks", body={"resource": "x", "ttl_ms": 60000})
    assert answer.status == 503 and answer.code == "no-quorum", answer
    assert [server.cli("EXISTS", "x") for server in servers[:2]] == [1, 1]
    wait_until(lambda: servers[2].cli("EXISTS", "x") == 0, what="released where it can be reached")
    for proxy in proxies[:2]:
        proxy.heal()
    wait_until(lambda: all(server.cli("EXISTS", "x") == 0 for server in servers), 15, "given back after the reconnection")


def test_a_slow_master_costs_nothing(lab):
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    service = lab.redlockd(proxies, "--master-timeout-ms", str(round(3000 * SLOW)))
    proxies[1].reply_delay = 1.5 * SLOW
    for number in range(3):
        start = time.monotonic()
        service.acquire(f"x{number}")
        assert time.monotonic() - start < 1.0 * SLOW


def test_the_connection_of_a_master_can_be_killed_at_any_time(lab):
    service = lab.service(3)
    client = service.client()
    for number in range(30):
        service.masters[number % 3].cli("CLIENT", "KILL", "TYPE", "normal")
        answer = client.call("POST", "/locks", {"resource": f"x{number}", "ttl_ms": 60000})
        assert answer.status in (201, 503), answer
        if answer.status == 503:
            assert answer.json["code"] in ("no-quorum", "split-vote")
        else:
            assert client.call("DELETE", f"/locks/x{number}", {"token": answer.json["token"]}).status in (204, 410, 503)
        wait_until(lambda: client.call("GET", "/readyz").status == 200, what="ready")
    service.wait_voting(3)
    client.close()


def test_a_master_that_came_back_as_another_process_is_warned_of(lab):
    servers = lab.redises(3)
    service = lab.redlockd(servers)
    assert not any("restarted" in warning for master in service.curl("GET", "/masters").json["masters"] for warning in master["warnings"])
    servers[0].kill()
    servers[0].restart()
    wait_until(lambda: any(warning.startswith("restarted:") for warning in master_of(service, servers[0])["warnings"]), what="the warning")
    assert not master_of(service, servers[1])["warnings"]
    assert any("restarted" in event["warning"] for event in service.log("master-warning"))


def test_a_master_that_never_came_up_is_logged(lab):
    servers = lab.redises(3)
    servers[2].kill()
    service = lab.redlockd(servers)
    wait_until(lambda: [event for event in service.log("master") if event["state"] == "down"], what="the log line")
    assert [event for event in service.log("master") if event["state"] == "down"][0]["reason"].startswith("connection: ")
