# SPDX-License-Identifier: MIT
"""What lies in Redis, against a sample of it that is recorded beside the number of its layout.

redlockd of several versions may run over the same masters if what they write there is the same. LAYOUT
(server/masters/master_digest.c) is what keeps others apart, so it must rise with each change of a key, a value or a
message. Record the sample again with

    REDLOCKD_RECORD_LAYOUT=1 REDLOCKD=… pytest tests/e2e/test_layout.py

which refuses to put another sample under the number of the recorded one.
"""

import json
import os
import pathlib
import re
import time

from guard_fixtures import HASH, guarded
from harness import Resp, wait_until
from key_fixtures import Keyed
from test_hold import Stream
from test_watch import fixture_watch  # noqa: F401
from waiting_fixtures import crowd, wait_for_queue  # noqa: F401

SAMPLE = pathlib.Path(__file__).with_name("layout.json")
DIFFERS = "what lies in Redis has changed: raise LAYOUT in server/masters/master_digest.c, and record the sample again (see the top of this file)"


def masked(text):
    """Without what differs from run to run: hexadecimal numbers of 16 and 40 digits, and decimal ones by their length, but for a sum of tokens."""
    def mask(match):
        return f"<{len(match[0])}>" if len(match[0]) >= 10 else "<n>"
    text = re.sub(r"^(redlockd:holders:.*: digest = )\d+$", r"\1<sum>", text)
    return re.sub(r"\b[0-9a-f]{40}\b|\b[0-9a-f]{16}\b|\d+", mask, text)


def content_of(server, key, kind):
    if kind == "string":
        return [server.cli("GET", key)]
    if kind == "hash":
        flat = server.cli("HGETALL", key)
        return [f"{field} = {value}" for field, value in zip(flat[::2], flat[1::2])]
    assert kind == "zset", f"{key}: {kind}"
    flat = server.cli("ZRANGE", key, 0, -1, "WITHSCORES")
    return [f"{member} by {score}" for member, score in zip(flat[::2], flat[1::2])]


def keys_of(server, *keys):
    """A line for each key, and for each kind of element in it."""
    found = set()
    for key in keys:
        kind = server.cli("TYPE", key)
        expires = ", expires" if server.cli("PTTL", key) > 0 else ""
        found.add(f"{masked(key)}: {kind}{expires}")
        found |= {masked(f"{key}: {one}") for one in content_of(server, key, kind)}
    return found


def take_all_kinds(plain, keyed):
    """A lease of each kind."""
    again = {"Idempotency-Key": "a-key-of-a-test-0001"}
    everything = {"owner": "worker", "metadata": {"job": "x"}}
    for members in ({"resource": "exclusive"},
                    {"resource": "exclusive-owner", **everything},
                    {"resource": "shared", "mode": "shared"},
                    {"resource": "shared", "mode": "shared", **everything},
                    {"resource": "slots", "slots": 2},
                    {"resource": "slots", "slots": 2, **everything},
                    {"resources": ["set-a", "set-b"], **everything},
                    {"resources": ["shared-set-a", "shared-set-b"], "mode": "shared"}):
        answer = plain.curl("POST", "/locks", body={"ttl_ms": 60000, "wait_ms": 10000, **members})  # the second slot takes a second try
        assert answer.status == 201, answer
    for members in ({"resource": "kept", **everything}, {"resource": "kept-shared", "mode": "shared"}, {"resource": "kept-slots", "slots": 1}, {"resources": ["kept-set-a", "kept-set-b"]}):
        lease = plain.curl("POST", "/locks", body={"ttl_ms": 60000, **members}).json
        named = {name: value for name, value in members.items() if name.startswith("resource")}
        answer = plain.curl("DELETE", "/locks", body={**named, "token": lease["token"], "keep_ms": 60000})
        assert answer.status == 204, answer
    for members in ({"resource": "keyed"}, {"resource": "keyed-shared", "mode": "shared"}, {"resource": "keyed-slots", "slots": 2},
                    {"resources": ["keyed-set-a", "keyed-set-b"]}):
        answer = keyed.call("operator", "POST", "/locks", body={"ttl_ms": 60000, **members, **everything}, headers=again)
        assert answer.status == 201, answer


def wait_in_all_ways(plain, crowd):
    """A lease on each resource, and a waiter for each kind of entry."""
    leases, waiters = [], []
    for resource, held, wanted in (("wait", {}, {}), ("wait-shared", {}, {"mode": "shared"}), ("wait-slot", {"slots": 1}, {"slots": 1})):
        leases.append(plain.acquire(resource, 60000, **held))
        waiters.append(crowd.wait(plain, resource, **wanted))
        wait_for_queue(plain.masters, resource, 1)
    return leases, waiters


def messages_of(listener, server):
    """Those on the channel so far."""
    server.cli("PUBLISH", "redlockd:wake", "the end")
    return {masked(text) for text in iter(lambda: listener.receive()[2], "the end") if text}


def look(lab, crowd, watch):  # noqa: F811
    """The layout, and what was found of each kind of lock, queue, message and hash."""
    server = lab.redis()
    plain = guarded(lab, [server], ttl_ms=60000)
    keyed = Keyed(lab, [], "--max-ttl-ms", "60000", masters=[server]).wait_ready()
    listener = lab.keep(Listener(server))
    take_all_kinds(plain, keyed)
    leases, waiters = wait_in_all_ways(plain, crowd)
    watcher = watch(plain, "exclusive")
    wait_until(lambda: server.cli("EXISTS", "redlockd:watch:exclusive"), what="watched")
    for resource, members in (("held", {}), ("held-shared", {"mode": "shared"})):
        lab.keep(Stream(plain, resource, ttl_ms=60000, **members)).acquired()
        wait_until(lambda name=f"redlockd:wanted:{resource}": server.cli("EXISTS", name), what="asked for messages of waiters")
    crowd.wait(plain, "held")
    wait_for_queue(plain.masters, "held", 1)
    found = None
    while not found:
        since = time.monotonic()
        kept = plain.curl("POST", "/locks", body={"resource": "wait", "wait_ms": 50}, headers={"Idempotency-Key": "a-key-of-a-test-0002"})
        assert kept.json["place_kept_ms"] == 2000, kept
        found = keys_of(server, *(key for key in server.cli("KEYS", "*") if "redlockd:check:" not in key))
        if time.monotonic() - since > 1.5:
            found = None  # the place may not have been there any more
    for lease, waiter in zip(leases, waiters):
        assert plain.release(lease).status == 204
        waiter.granted()
    assert plain.curl("DELETE", "/locks/exclusive?force=true").status == 204
    wait_until(lambda: watcher.events and not watcher.events[-1].state["held"], what="the watcher sees it")
    found |= {f"message {text}" for text in messages_of(listener.resp, server)}
    layout = int(server.cli("HGET", HASH, "digest")[:4], 16)
    server.cli("DEL", HASH)
    wait_until(lambda: server.cli("HEXISTS", HASH, "marker") and server.cli("HEXISTS", HASH, "timeout_ms"), what="quarantined, and a heartbeat after that")
    return layout, found | {f"quarantined {line}" for line in keys_of(server, HASH)}


class Listener:
    def __init__(self, server):
        self.resp = Resp(server.path, 20)
        self.resp.send("SUBSCRIBE", "redlockd:wake")
        self.resp.receive()

    def kill(self):
        self.resp.close()


def record(now):
    before = json.loads(SAMPLE.read_text(encoding="utf-8")) if SAMPLE.exists() else {"layout": 0}
    assert now["layout"] > before["layout"] or now == before, "another sample needs another LAYOUT: raise it in server/masters/master_digest.c"
    SAMPLE.write_text(json.dumps(now, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def test_what_lies_in_redis_is_what_was_recorded_for_this_layout(lab, crowd, watch):  # noqa: F811
    layout, found = look(lab, crowd, watch)
    now = {"layout": layout, "sample": sorted(found)}
    if os.environ.get("REDLOCKD_RECORD_LAYOUT"):
        record(now)
    sample = json.loads(SAMPLE.read_text(encoding="utf-8"))
    gone, come = sorted(set(sample["sample"]) - found), sorted(found - set(sample["sample"]))
    assert not gone and not come, f"{DIFFERS}\ngone: {json.dumps(gone, indent=1)}\nnew: {json.dumps(come, indent=1)}"
    assert now["layout"] == sample["layout"], "LAYOUT has changed: record the sample again (see the top of this file)"
