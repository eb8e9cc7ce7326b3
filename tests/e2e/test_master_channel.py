# SPDX-License-Identifier: MIT
"""The second connection to each master, on which notifications arrive: with a password or a user, in another database,
without the right to the channel, and with messages of strangers on it. A notification decides how soon a waiter tries,
never who has the lock."""

import pathlib
import re

import pytest

from fixtures import needs_localhost
from harness import ROOT, wait_until
from master_checks import master_of
from waiting_fixtures import check_notifications_are_heard, crowd, line, readable, wait_for_queue  # noqa: F401


@pytest.mark.parametrize("url, options, auth", [
    ("redis://:s3cret@127.0.0.1:{port}", ["--requirepass", "s3cret"], ["s3cret"]),
    ("redis://locker:p%40ss@127.0.0.1:{port}", ["--user", "locker", "on", ">p@ss", "~*", "&*", "+@all", "--user", "default", "off"], ["locker", "p@ss"]),
    ("redis://127.0.0.1:{port}/7", [], []),
    pytest.param("redis://localhost:{port}", [], [], marks=needs_localhost),
], ids=["password", "acl-user", "database", "name"])
def test_it_is_opened_as_the_first_one(lab, crowd, url, options, auth):
    servers = [lab.redis(*options, tcp=True, auth=auth) for _ in range(3)]
    service = lab.redlockd([url.format(port=server.port) for server in servers], "--restart-guard", "off")
    check_notifications_are_heard(service, crowd, servers)
    for server in servers:
        server.restart()
    wait_until(lambda: service.curl("POST", "/locks", body={"resource": "y"}).status == 201, what="connected again")
    check_notifications_are_heard(service, crowd, servers)
    service.stop()
    assert not [secret for secret in ("s3cret", "p@ss") if secret in service.stderr()]


def documented_user():
    """The ACL SETUSER of docs/reference/configuration.md, as arguments."""
    text = pathlib.Path(ROOT, "docs/reference/configuration.md").read_text(encoding="utf-8")
    return re.search(r"^(ACL SETUSER locks .*)$", text, re.M)[1].split()


def test_the_documented_rights_are_enough(lab, crowd):
    servers = [lab.redis(tcp=True) for _ in range(3)]
    for server in servers:
        server.cli(*documented_user())
    service = lab.redlockd([f"redis://locks:secret@127.0.0.1:{server.port}" for server in servers], "--key-prefix", "prod:", "--bootstrap")
    check_notifications_are_heard(service, crowd, servers, "prod:redlockd:wake")
    lease = service.acquire("x")
    assert service.curl("PUT", "/locks/x", body={"token": lease["token"]}).status == 200
    assert [lock["resource"] for lock in service.curl("GET", "/locks").json["locks"]] == ["x"]
    assert service.release(lease).status == 204
    servers[0].cli("SCRIPT", "FLUSH")
    servers[1].restart()  # loses its memory and its user: handshake, quarantine and a new epoch with the documented rights alone
    servers[1].cli(*documented_user())
    wait_until(lambda: master_of(service, f"redis://127.0.0.1:{servers[1].port}")["state"] == "quarantined", 20, "quarantined")
    assert service.release(service.acquire("x")).status == 204
    assert [master["warnings"] for master in service.curl("GET", "/masters").json["masters"]] == [[], [], []]
    service.stop()
    assert "NOPERM" not in service.stderr() and "permission" not in service.stderr()
    denied = [entry for server in servers for entry in server.cli("ACL", "LOG") if entry[3] != "auth"]  # "auth": before it had its user again
    assert denied == []


RUBBISH = [
    b"", b" ", b"x", b"\0", b"\xff" * 40, b"message", b":", b"0123456789abcdef", b"0123456789abcdef:", b"0123456789abcdef:1795215206922001",
    b"0123456789abcdef:1795215206922001 ", b"0123456789abcdef:1795215206922001x", b"0123456789abcdef 1795215206922001 wanted",
    b"0123456789abcdef:179521520692200x wanted", b"0123456789abcdef:-795215206922001 wanted", b"0123456789abcdef:9999999999999999 wanted",
    b"0123456789ABCDEF:1795215206922001 wanted", b"gggggggggggggggg:1795215206922001 wanted", b"0123456789abcdef:1795215206922001 " + b"x" * 257,
    b"0123456789abcdef:1795215206922001 " + b"x" * 100_000, b"0123456789abcdef:1795215206922001 \xff\xfe\0\r\n", b"x" * 1_000_000,
]


def test_rubbish_on_the_channel_does_no_harm(lab, crowd):
    service = lab.service(3)
    lease = service.acquire("wanted", 60000)
    waiters = crowd.queue_up(service, "wanted", 2, ttl_ms=60000)
    replica = line(service.masters[0], "wanted")[0].partition(":")[0].encode()
    heard = 0
    for server in service.masters:
        wait_until(lambda one=server: one.cli("PUBSUB", "NUMSUB", "redlockd:wake")[1] == 1, what="subscribed")
        for word in [*RUBBISH, *(word.replace(b"0123456789abcdef", replica) for word in RUBBISH)]:
            heard += server.cli("PUBLISH", "redlockd:wake", word)
    assert heard == 2 * 3 * len(RUBBISH)
    assert not waiters[0].is_answered() and not waiters[1].is_answered()
    wait_for_queue(service.masters, "wanted", 2)
    service.release(lease)
    waiters[0].granted()
    waiters[0].release()
    waiters[1].granted()
    assert not [log for log in service.log() if log["level"] == "error"]


def test_who_calls_falsely_makes_somebody_try_and_no_more(lab, crowd):
    """A forged notification, in due form, for a waiter of a held lock: it is refused, and keeps its queue entry."""
    service = lab.service(3)
    lease = service.acquire("wanted", 60000)
    first, second = crowd.queue_up(service, "wanted", 2, ttl_ms=60000)
    places = line(service.masters[0], "wanted")
    before = service.masters[0].calls()["evalsha"]
    for _ in range(20):
        for server in service.masters:
            assert server.cli("PUBLISH", "redlockd:wake", f"{places[1]} wanted") == 1
    wait_until(lambda: service.masters[0].calls()["evalsha"] > before, what="it tries")
    assert service.masters[0].calls()["evalsha"] - before <= 3 * 20
    wait_for_queue(service.masters, "wanted", 2)
    assert [line(server, "wanted") for server in service.masters] == [places] * 3
    assert not first.is_answered() and not second.is_answered()
    service.release(lease)
    first.granted()
    assert not second.is_answered()


def test_calls_for_others_keep_nobody_from_looking_for_ever(lab, crowd):
    """Notifications for another waiter, again and again: a cluster in another database of the same servers shares the
    channel. The holder has crashed, and its lease runs out without a notification: a waiter looks after some seconds
    all the same."""
    service = lab.service(3)
    service.acquire("x", 3000)
    waiter = crowd.wait(service, "x", wait_ms=60000)

    def answered_among_calls():
        for server in service.masters:
            server.cli("PUBLISH", "redlockd:wake", "feedfeedfeedfeed:1795215206922001 x")
        return readable([waiter], 0.1)
    wait_until(answered_among_calls, what="granted")
    waiter.granted()
