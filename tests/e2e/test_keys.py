# SPDX-License-Identifier: MIT
"""Keys over HTTP: sessions of callers and operators. The whole table of who may do what is test_access_matrix.py."""

import itertools
import json
import os
import re
import time

import pytest

import harness
from certificates import Authority
from harness import curl, read_response, wait_until
from key_fixtures import Key, Keyed, new_secret


@pytest.fixture(scope="module", name="keyed")
def keyed_service():
    """For tests that leave it as it was."""
    with harness.Lab() as lab:
        yield Keyed(lab, [Key("billing", ["billing/"], ["acquire", "inspect"]), Key("short", [""], ["acquire"], max_ttl_ms=5000),
                          Key("tiny", [""], ["acquire"], max_ttl_ms=1)]).wait_ready()


def calm(keyed):
    """No key is in what redlockd wrote."""
    written = keyed.redlockd.stderr()
    assert not [secret for secret in keyed.all_secrets() if secret in written]


def counted(keyed, route, method, status):
    lines = keyed.call("operator", "GET", "/metrics").body.decode().splitlines()
    name = f'redlockd_http_requests_total{{route="{route}",method="{method}",status="{status}"}} '
    return sum(float(line[len(name):]) for line in lines if line.startswith(name))


# ---- callers ----


def test_a_wrong_key_and_a_wrong_prefix(keyed):
    before = counted(keyed, "acquire", "POST", 401), counted(keyed, "acquire", "POST", 403)
    body = {"resource": "billing/1", "ttl_ms": 30000}
    nobody = keyed.call(None, "POST", "/locks", body=body)
    assert (nobody.status, nobody.code) == (401, "unauthorized") and nobody.headers["www-authenticate"] == 'Bearer realm="redlockd"'
    assert "key" in nobody.json["detail"]
    wrong = keyed.call(None, "POST", "/locks", body=body, headers={"X-Api-Key": new_secret()})
    assert (wrong.status, wrong.code) == (401, "unauthorized") and "not known" in wrong.json["detail"]
    beyond = keyed.call("billing", "POST", "/locks", body={"resource": "orders/1"})
    assert (beyond.status, beyond.code) == (403, "forbidden") and "prefixes" in beyond.json["detail"] and "www-authenticate" not in beyond.headers
    lease = keyed.call("billing", "POST", "/locks", body=body)
    assert lease.status == 201
    listing = keyed.call("billing", "GET", "/locks?prefix=billing/")
    assert (listing.status, listing.code) == (403, "forbidden") and "list" in listing.json["detail"]
    assert keyed.redlockd.release(lease.json).status == 204  # without any key: the token is the right
    assert (counted(keyed, "acquire", "POST", 401), counted(keyed, "acquire", "POST", 403)) == (before[0] + 2, before[1] + 1)
    calm(keyed)


def test_who_called_is_in_the_log(keyed):
    mark = {"X-Request-Id": "who-called"}
    lease = keyed.call("billing", "POST", "/locks", body={"resource": "billing/log"}, headers=mark).json
    keyed.call("billing", "POST", "/locks", body={"resource": "orders/log"}, headers=mark)
    keyed.call(None, "GET", "/locks/billing/log", headers={"Authorization": "Bearer " + new_secret(), **mark})
    keyed.redlockd.curl("DELETE", "/locks/billing/log", body={"token": lease["token"]}, headers=mark)

    def lines():
        return [line for line in keyed.redlockd.log("request") if line["id"] == mark["X-Request-Id"]]
    wait_until(lambda: len(lines()) >= 4, what="four lines")
    found = [(line["route"], line.get("caller"), line["status"], "address" in line) for line in lines()]
    assert found == [("acquire", "billing", "201", False), ("acquire", "billing", "403", True), ("inspect", None, "401", True), ("release", None, "204", False)]
    calm(keyed)


def test_who_am_i(keyed):
    def whoami(name):
        return keyed.call(name, "GET", "/whoami").json
    assert whoami("billing") == {"caller": "billing", "rights": ["acquire", "inspect"], "prefixes": ["billing/"]}
    assert whoami("operator") == {"caller": "operator", "rights": ["acquire", "inspect", "list", "admin"], "prefixes": [""]}
    for headers in ({}, {"X-Api-Key": new_secret()}):
        assert keyed.call(None, "GET", "/whoami", headers=headers).code == "unauthorized"
    calm(keyed)


def test_the_token_is_enough_to_extend_and_release(keyed):
    lease = keyed.call("billing", "POST", "/locks", body={"resource": "billing/token"}).json
    for headers in ({}, {"X-Api-Key": new_secret()}, keyed.keys["short"].header()):
        answer = keyed.call(None, "PUT", "/locks/billing/token", body={"token": lease["token"]}, headers=headers)
        assert answer.status == 200, answer
    assert keyed.call("short", "DELETE", "/locks/billing/token", body={"token": "0" * 40}).status == 409
    assert keyed.call("operator", "GET", "/locks/billing/token").json["held"]
    assert keyed.call(None, "DELETE", "/locks/billing/token", body={"token": lease["token"]}).status == 204


def told(answer):
    """All of an answer but its number and the time of day."""
    return answer.status, answer.body, {name: value for name, value in answer.headers.items() if name not in ("x-request-id", "date")}


def test_a_stranger_does_not_learn_what_is_held(keyed):
    """Without a key, or with one that is not known: a token that holds nothing is told the same about any name, also the
    token of a lease that another one has followed."""
    def take(**members):
        answer = keyed.call("operator", "POST", "/locks", body={"ttl_ms": 60000, **members})
        assert answer.status == 201, answer
        return answer.json
    former = take(resource="stranger/held")
    assert keyed.redlockd.release(former).status == 204
    take(resource="stranger/held")
    take(resource="stranger/shared", mode="shared")
    take(resource="stranger/slots", slots=2)
    take(resources=["stranger/set-a", "stranger/set-b"])
    keyed.masters[0].cli("SET", "stranger/other", "of another library")
    keyed.masters[1].cli("SET", "stranger/other", "of another library")
    keyed.masters[0].cli("SET", "stranger/one", "on one master alone")
    paths = [f"/locks/stranger/{name}" for name in ("held", "shared", "slots", "set-a", "other", "one", "free")]
    bodies = [{"resources": [f"stranger/{name}" for name in names]} for names in (("set-a", "set-b"), ("set-a", "free"), ("held", "slots"), ("free", "free-2"))]
    requests = [(path, {}) for path in paths] + [("/locks", body) for body in bodies]
    for (token, headers), methods in zip(itertools.product(("0" * 40, former["token"]), ({}, {"X-Api-Key": new_secret()})), (("PUT", "DELETE"), ("PUT",)) * 2):
        for method in methods:
            answers = [keyed.call(None, method, path, body={"token": token, **body}, headers=headers) for path, body in requests]
            assert (answers[0].status, answers[0].code) == (410, "lease-expired"), answers[0]
            assert answers[0].json["votes"] == {"needed": 2, "granted": 0, "refused": 2, "failed": 0, "quarantined": 0, "masters": 3}
            for (path, body), answer in zip(requests, answers):
                assert told(answer) == told(answers[0]), (path, body, answer)
    for path, body in (("/locks/stranger/held", {}), ("/locks", bodies[0])):
        for method in ("PUT", "DELETE"):
            answer = keyed.call("short", method, path, body={"token": "0" * 40, **body})
            assert (answer.status, answer.code) == (409, "not-owner"), "a caller with a key is told"
    calm(keyed)


def test_a_stranger_does_not_learn_what_is_held_beside_a_lost_master(lab):
    """Nor by the number of masters that answered."""
    keyed = Keyed(lab, []).wait_ready()
    assert keyed.call("operator", "POST", "/locks", body={"resource": "held", "ttl_ms": 60000}).status == 201
    wait_until(lambda: all(master.cli("EXISTS", "held") for master in keyed.masters), what="held on all")
    keyed.masters[0].cli("DEL", "held")
    keyed.masters[2].kill()
    wait_until(lambda: keyed.call("operator", "GET", "/masters").json["quorum"]["voting"] == 2, what="one is down")
    answers = [keyed.call(None, "PUT", f"/locks/{name}", body={"token": "0" * 40}) for name in ("held", "free")]
    assert answers[0].status == 410 and told(answers[0]) == told(answers[1]), answers


def test_the_longest_ttl_of_a_key(keyed):
    too_long = keyed.call("short", "POST", "/locks", body={"resource": "a", "ttl_ms": 5001})
    assert (too_long.status, too_long.code) == (400, "invalid-request")
    assert too_long.json["errors"] == [{"field": "ttl_ms", "reason": "must be from 100 to 5000; extend it for longer"}]
    for body, ttl_ms in (({"ttl_ms": 5000}, 5000), ({"ttl_ms": 1000}, 1000), ({}, 5000)):  # the default is 30000
        lease = keyed.call("short", "POST", "/locks", body={"resource": "a", **body})
        assert lease.status == 201 and lease.json["ttl_ms"] == ttl_ms and lease.json["validity_ms"] < ttl_ms, lease
        assert keyed.redlockd.release(lease.json).status == 204
    lease = wait_until(lambda: (answer := keyed.call("tiny", "POST", "/locks", body={"resource": "a"})).status == 201 and answer, what="a very short lease")
    assert lease.json["ttl_ms"] == 100  # --min-ttl-ms
    assert keyed.call("billing", "POST", "/locks", body={"resource": "billing/ttl", "ttl_ms": 60000}).status == 201


def test_force_needs_admin(keyed):
    lease = keyed.call("billing", "POST", "/locks", body={"resource": "billing/force", "ttl_ms": 60000}).json
    refused = keyed.call("billing", "DELETE", "/locks/billing/force?force=true")
    assert (refused.status, refused.code) == (403, "forbidden") and "admin" in refused.json["detail"]
    assert keyed.call(None, "DELETE", "/locks/billing/force?force=true").status == 401
    assert keyed.call("operator", "GET", "/locks/billing/force").json["fence"] == lease["fence"]
    assert not keyed.redlockd.log("forced-release")
    assert keyed.call("operator", "DELETE", "/locks/billing/force?force=true").status == 204
    [line] = wait_until(lambda: keyed.redlockd.log("forced-release"), what="its line")
    assert (line["level"], line["caller"], line["address"], line["resource"]) == ("warn", "operator", "127.0.0.1", "billing/force")
    assert keyed.redlockd.release(lease).status == 410
    calm(keyed)


# ---- operators ----


def test_a_reload_takes_a_right_away_and_keeps_connections(lab):
    billing = Key("billing", ["billing/"], ["acquire", "inspect"])
    keyed = Keyed(lab, [billing], "--workers", "2").wait_ready()
    client = keyed.redlockd.client()
    assert client.call("GET", "/locks/billing/1", headers=billing.header()).status == 200
    lease = client.call("POST", "/locks", {"resource": "billing/1", "ttl_ms": 60000}, billing.header()).json

    billing.entry["rights"] = ["acquire"]
    added = Key("added", [""], ["list"])
    keyed.write([billing, added])
    assert keyed.reload()["keys"] == "3"
    wait_until(lambda: client.call("GET", "/locks/billing/1", headers=billing.header()).status == 403, what="the right is gone, on the same connection")
    wait_until(lambda: client.call("GET", "/locks", headers=added.header()).status == 200, what="the new key counts")
    for _ in range(8):  # on both workers
        wait_until(lambda: keyed.call("added", "GET", "/locks").status == 200, what="the new key counts everywhere")
        wait_until(lambda: keyed.call("billing", "GET", "/locks/billing/1").status == 403, what="the right is gone everywhere")

    keyed.write([])
    keyed.keys["billing"] = billing
    keyed.reload()
    wait_until(lambda: client.call("GET", "/locks/billing/2", headers=billing.header()).status == 401, what="the key is gone")
    assert client.call("DELETE", "/locks/billing/1", {"token": lease["token"]}).status == 204
    client.close()
    calm(keyed)


BAD_FILES = {
    "not JSON": ("{keys", r"line 1, column \d+: not valid JSON"),
    "wrong right": ('{"keys":[{"name":"a","certificates":"a","prefixes":[""],"rights":["read"]}]}', r"keys\[0\]\.rights\[0\]: must be "),
    "unknown member": ('{"keys":[],"comment":"none"}', "line 1: must be a JSON object with the members"),
    "empty": ("", "line 1, column 0: not valid JSON"),
    "nobody may call": ('{"keys":[]}', "keys: must be a list of 1 to 1000 keys"),
}


def test_a_bad_file_on_reload_keeps_the_old(lab):
    billing = Key("billing", ["billing/"], ["inspect"])
    keyed = Keyed(lab, [billing]).wait_ready()

    def check_kept(words):
        line = keyed.reload("keys-reload-failed")
        assert line["level"] == "error" and keyed.path in line["message"] and re.search(words, line["message"]), line
        assert keyed.call("billing", "GET", "/locks/billing/1").status == 200
        assert keyed.call(None, "GET", "/locks/billing/1").status == 401
    for text, words in BAD_FILES.values():
        keyed.write_text(text)
        check_kept(words)
    keyed.write_text(json.dumps({"keys": []}), 0o666)
    check_kept("must not be writable")
    os.unlink(keyed.path)
    check_kept("No such file")
    os.mkfifo(keyed.path, 0o600)
    check_kept("not a regular file")
    assert not keyed.redlockd.log("keys-reloaded")
    os.unlink(keyed.path)
    keyed.write([])
    keyed.keys["billing"] = billing
    assert keyed.reload()["keys"] == "1"
    wait_until(lambda: keyed.call("billing", "GET", "/locks/billing/1").status == 401, what="the good file counts")
    calm(keyed)


# ---- bounds ----


def test_the_rate_of_a_key_over_all_workers(lab):
    limited, other = Key("limited", [""], ["inspect"], rate=10), Key("other", [""], ["inspect"])
    keyed = Keyed(lab, [limited, other], "--workers", "2").wait_ready()
    clients = [keyed.redlockd.client() for _ in range(6)]
    start, statuses = time.monotonic(), []
    while statuses.count(429) < 10:
        answer = clients[len(statuses) % len(clients)].call("GET", "/locks/a", headers=limited.header())
        statuses.append(answer.status)
        if answer.status == 429:
            assert answer.code == "too-many-requests" and answer.headers["retry-after"] == "1"
            assert clients[0].call("GET", "/locks/a", headers=other.header()).status == 200
    granted, seconds = statuses.count(200), time.monotonic() - start
    assert set(statuses) == {200, 429} and statuses[:10] == [200] * 10
    assert 10 <= granted <= 10 + 10 * seconds + 1, (granted, seconds)
    wait_until(lambda: clients[1].call("GET", "/locks/a", headers=limited.header()).status == 200, what="allowed again")
    assert {line["caller"] for line in keyed.redlockd.log("request") if line["status"] == "429"} == {"limited"}
    for client in clients:
        client.close()
    assert counted(keyed, "inspect", "GET", 429) >= statuses.count(429)
    calm(keyed)


def wait_for(keyed, one, resource):
    """A request that waits for a lock; returns its socket."""
    body = json.dumps({"resource": resource, "ttl_ms": 60000, "wait_ms": 50000})
    plain = harness.connect_to(keyed.redlockd.address, 60)
    plain.sendall(f"POST /locks HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {one.secret}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    return plain


def waiters(keyed, resource):
    return keyed.call("operator", "GET", f"/locks/{resource}").json["waiters"]


def test_how_many_of_a_key_may_wait(lab):
    few, other = Key("few", [""], ["acquire"], max_waiting=2), Key("other", [""], ["acquire"])
    keyed = Keyed(lab, [few, other]).wait_ready()
    lease = keyed.call("operator", "POST", "/locks", body={"resource": "a", "ttl_ms": 60000}).json
    waiting = [wait_for(keyed, few, "a") for _ in range(2)]
    wait_until(lambda: waiters(keyed, "a") == 2, what="two wait")

    def refused():
        answer = keyed.call("few", "POST", "/locks", body={"resource": "b", "wait_ms": 1000})
        if answer.status == 201:
            keyed.redlockd.release(answer.json)
        return answer
    answer = refused()
    assert (answer.status, answer.code) == (429, "too-many-requests") and answer.headers["retry-after"] == "1"
    assert keyed.call("few", "POST", "/locks", body={"resource": "c"}).status == 201  # it does not wait
    waiting.append(wait_for(keyed, other, "a"))
    wait_until(lambda: waiters(keyed, "a") == 3, what="another key may wait")

    keyed.write([few, other])
    keyed.reload()
    keyed.write([few, other, Key("more", [""], ["acquire"])])
    keyed.reload()
    assert refused().status == 429  # a reload forgets nobody
    waiting[0].close()
    wait_until(lambda: refused().status == 201, what="who left is not counted")
    assert keyed.redlockd.release(lease).status == 204
    lease = read_response(waiting[1]).json
    waiting[1].close()
    wait_until(lambda: refused().status == 201, what="who was answered is not counted")
    assert keyed.redlockd.release(lease).status == 204
    assert read_response(waiting[2]).status == 201
    waiting[2].close()


# ---- ways in ----


def test_keys_are_asked_for_on_a_unix_socket_too(lab):
    path = os.path.join(lab.folder, "socket")
    keyed = Keyed(lab, [], listen=("127.0.0.1:0", f"unix:{path}")).wait_ready()
    assert curl(f"unix:{path}", "GET", "/locks/a").status == 401
    assert curl(f"unix:{path}", "GET", "/healthz").status == 200
    assert curl(f"unix:{path}", "GET", "/locks/a", headers=keyed.operator.header()).status == 200
    assert curl(f"unix:{path}", "GET", "/locks/a", headers=keyed.operator.header()).status == 200


def test_hold_and_pipelined_requests_ask_each_time(lab):
    """The rights of one request do not apply to the next one on its connection."""
    keyed = Keyed(lab, [Key("billing", ["billing/"], ["inspect"])]).wait_ready()
    plain = harness.connect_to(keyed.redlockd.address)

    def request(secret, path):
        header = f"X-Api-Key: {secret}\r\n" if secret else ""
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode()
    secret = keyed.keys["billing"].secret
    rows = [(secret, "/locks/billing/1", 200), (None, "/locks/billing/1", 401), (secret, "/locks/orders/1", 403),
            (keyed.operator.secret, "/locks/orders/1", 200), (None, "/locks/orders/1", 401), (new_secret(), "/version", 401), (secret, "/version", 200)]
    for one, path, _ in rows:
        plain.sendall(request(one, path))
    with plain.makefile("rb") as answers:
        statuses = []
        while len(statuses) < len(rows):
            statuses.append(int(answers.readline().split()[1]))
            head = b"".join(iter(answers.readline, b"\r\n"))
            answers.read(int(re.search(rb"(?i)^content-length: (\d+)", head, re.M).group(1)))
    plain.close()
    assert statuses == [status for _, _, status in rows]
    held = keyed.call("billing", "POST", "/locks", body={"resource": "billing/1", "hold": True})
    assert held.status == 403


@pytest.fixture(scope="module", name="authority")
def make_authority(tmp_path_factory):
    return Authority(str(tmp_path_factory.mktemp("tls")))


def with_certificate(one):
    return ("--cert", one.certificate, "--key", one.key)


def test_keys_and_certificates_over_https(lab, authority):
    server = authority.issue("server", "IP:127.0.0.1", usage="serverAuth")
    entry = {"name": "pods", "certificates": ["spiffe://example/billing", "billing.example"], "prefixes": ["billing/"], "rights": ["acquire", "inspect"]}
    keyed = Keyed(lab, [Key("billing", ["orders/"], ["inspect"])], "--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca",
                  authority.certificate, entries=[entry], trust=authority.certificate).wait_ready()

    def ask(one, path, name=None):
        return keyed.call(name, "GET", path, *(with_certificate(one) if one else ()))
    known = authority.issue("pod-1", "URI:spiffe://example/billing", "DNS:pod-1.example")
    assert ask(known, "/locks/billing/1").status == 200
    assert ask(known, "/locks/orders/1").code == "forbidden"
    assert ask(known, "/whoami").json == {"caller": "pods", "rights": ["acquire", "inspect"], "prefixes": ["billing/"]}
    assert ask(known, "/whoami", "billing").json == {"caller": "billing", "rights": ["inspect"], "prefixes": ["orders/"]}
    assert ask(None, "/locks/billing/1").code == "unauthorized"
    assert ask(None, "/locks/orders/1", "billing").status == 200  # a key over HTTPS
    assert ask(known, "/locks/orders/1", "billing").status == 200  # a key goes before a certificate
    assert ask(known, "/locks/billing/1", "billing").code == "forbidden"
    bad = {"stranger": authority.issue("stranger", "DNS:stranger.example"), "common name beside others": authority.issue("billing.example", "DNS:x.example"),
           "expired": authority.issue("pod-2", "URI:spiffe://example/billing", ended=True),
           "not yet": authority.issue("pod-3", "URI:spiffe://example/billing", future=True),
           "of another": Authority(lab.folder, "other").issue("pod-4", "URI:spiffe://example/billing")}
    reasons = {}
    for label, one in bad.items():
        answer = ask(one, "/locks/billing/1")
        assert (answer.status, answer.code) == (401, "unauthorized"), (label, answer)
        reasons[label] = answer.json["detail"]
        assert ask(one, "/healthz").status == 200, label
    assert "expired" in reasons["expired"] and "keys file" in reasons["stranger"] and len(set(reasons.values())) >= 4, reasons
    assert ask(authority.issue("billing.example"), "/locks/billing/1").status == 200  # the common name, where there is no other
    callers = {"pods", "billing", None}
    wait_until(lambda: {line.get("caller") for line in keyed.redlockd.log("request") if line["route"] == "inspect"} == callers, what=f"lines of {callers}")
    calm(keyed)


def test_certificates_without_a_keys_file(lab, authority):
    server = authority.issue("server", "IP:127.0.0.1", usage="serverAuth")
    masters = lab.redises(3)
    daemon = lab.redlockd(masters, "--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca", authority.certificate,
                          trust=authority.certificate, wait=False)
    known = with_certificate(authority.issue("pod-1", "DNS:pod-1.example"))
    wait_until(lambda: daemon.curl("GET", "/masters", *known).json["quorum"]["voting"] == 3, 30, "all masters vote")
    lease = daemon.curl("POST", "/locks", *known, body={"resource": "anything", "ttl_ms": 60000})
    assert lease.status == 201
    assert daemon.curl("GET", "/locks", *known).json["locks"][0]["resource"] == "anything"
    assert daemon.curl("DELETE", "/locks/anything?force=true", *known).code == "forbidden"
    assert daemon.curl("GET", "/whoami", *known).json == {"caller": "pod-1.example", "rights": ["acquire", "inspect", "list"], "prefixes": [""]}
    assert daemon.curl("GET", "/locks").code == daemon.curl("GET", "/whoami").code == "unauthorized"
    assert daemon.curl("GET", "/locks", headers={"X-Api-Key": new_secret()}).code == "unauthorized"
    assert daemon.release(lease.json).status == 204
    assert "pod-1.example" in {line.get("caller") for line in daemon.log("request")}
