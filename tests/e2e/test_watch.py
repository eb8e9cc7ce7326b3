# SPDX-License-Identifier: MIT
"""Watching a lock: ETag and If-None-Match, waiting for a change, event streams. Several redlockd over real masters;
the watchers are curl."""

import collections
import concurrent.futures
import contextlib
import json
import re
import signal
import subprocess
import threading
import time

import pytest

from harness import DIES_WITH_US, SLOW, curl_command, freeze, quote, wait_until
from key_fixtures import Key, Keyed

Event = collections.namedtuple("Event", "tag kind state")


class Watcher:
    """curl on the event stream of a resource. `events` grows; `over` when the stream has ended."""

    def __init__(self, service, resource, *options, last=None):
        last = ["-H", f"Last-Event-ID: {last}"] if last else []
        command = curl_command(service.address, "GET", f"/locks/{quote(resource)}", "--no-buffer", "--include", "--max-time", "600", "-H",
                               "Accept: text/event-stream", *last, *options)
        self.events, self.comments, self.status, self.over = [], 0, None, False
        self.process = subprocess.Popen([*DIES_WITH_US, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        fields = {}
        for line in self.process.stdout:
            line = line.rstrip("\r\n")
            if self.status is None:
                self.status = int(line.split()[1])
            if line.startswith(":"):
                self.comments += 1
            elif line and not line.startswith(("HTTP/", "X-")):
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                self.events.append(Event(fields["id"], fields.get("event"), json.loads(fields["data"])))
            if not line:
                fields = {}
        self.over = True

    def tags(self):
        return [event.tag for event in self.events]

    def sees(self, tag, seconds=10.0):
        """Waits until the last event has this tag."""
        wait_until(lambda: self.events and self.events[-1].tag == tag, seconds, f"{tag} (so far {self.tags()[-5:]})")
        return self.events[-1]

    def check(self):
        """No tag twice in a row, and fences that grow."""
        tags = self.tags()
        assert all(tag != following for tag, following in zip(tags, tags[1:])), tags
        fences = [event.state["fence"] for event in self.events if event.state.get("fence") and event.tag.isdigit()]
        assert fences == sorted(fences), fences

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.thread.join()


@pytest.fixture(name="watch")
def fixture_watch():
    watchers = []

    def begin(*args, **options):
        watchers.append(Watcher(*args, **options))
        return watchers[-1]
    yield begin
    for watcher in watchers:
        watcher.stop()
    for watcher in watchers:
        watcher.check()


def tag_of(answer):
    return re.fullmatch('"([a-z0-9]+)"', answer.headers["etag"])[1]


def get(service, resource, *options, seen=None, **query):
    seen = ["-H", f'If-None-Match: "{seen}"'] if seen else []
    query = "?" + "&".join(f"{name}={value}" for name, value in query.items()) if query else ""
    return service.curl("GET", f"/locks/{quote(resource)}{query}", *seen, *options)


# ---- conditions ----


def test_a_tag_is_the_same_everywhere(lab, resource):
    masters = lab.redises(3)
    first, second = lab.redlockd(masters), lab.redlockd(masters)
    assert tag_of(get(first, resource)) == tag_of(get(second, resource)) == "free"
    lease = first.acquire(resource, ttl_ms=60000)
    assert tag_of(get(first, resource)) == tag_of(get(second, resource)) == str(lease["fence"])
    assert second.curl("PUT", f"/locks/{resource}", body={"token": lease["token"], "ttl_ms": 60000}).status == 200
    assert tag_of(get(second, resource)) == str(lease["fence"]), "an extension is no change"
    second.stop()
    second = lab.redlockd(masters)
    answer = get(second, resource, seen=lease["fence"])
    assert (answer.status, answer.body) == (304, b"") and tag_of(answer) == str(lease["fence"])
    assert first.release(lease).status == 204
    assert get(second, resource, seen=lease["fence"]).status == 200
    assert first.acquire(resource)["fence"] > lease["fence"]


def test_another_librarys_holder(lab, resource, watch):
    masters = lab.redises(3)
    first, second = lab.redlockd(masters), lab.redlockd(masters)
    watcher = watch(second, resource)
    watcher.sees("free")
    for master in masters:
        master.cli("SET", resource, "theirs", "PX", 20000)
    tag = tag_of(get(first, resource))
    assert re.fullmatch("x[0-9a-f]{8}", tag) and tag == tag_of(get(second, resource)) and "theirs" not in tag
    assert watcher.sees(tag).state["held"]  # nobody publishes it: the next look finds it
    for master in masters:
        master.cli("SET", resource, "other", "PX", 5000)
    assert tag_of(get(first, resource)) not in (tag, "free")
    watcher.sees("free")


# ---- waiting for a change ----


def test_a_wait_for_a_change(lab, resource):
    masters = lab.redises(3)
    first, second = lab.redlockd(masters), lab.redlockd(masters)
    lease = first.acquire(resource, ttl_ms=60000)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(get, service, resource, seen=lease["fence"], wait_ms=50000) for service in (first, second)]
        wait_until(lambda: all(service.metrics()["redlockd_watchers"] == 1 for service in (first, second)), what="both watch")
        assert first.release(lease).status == 204
        for wait in waits:
            answer = wait.result()
            assert answer.status == 200 and tag_of(answer) == "free" and not answer.json["held"]
    assert get(second, resource, seen="7", wait_ms=50000).status == 200, "the state is another one already"
    since = time.monotonic()
    answer = get(second, resource, seen="free", wait_ms=300)
    assert answer.status == 304 and tag_of(answer) == "free" and time.monotonic() - since >= 0.3
    answer = get(second, resource, seen="free", wait_ms=-1)
    assert answer.status == 400 and answer.json["errors"][0]["field"] == "wait_ms"


# ---- streams ----


def test_changes_over_two_redlockd(lab, resource, watch):
    """200 changes, each by one of two redlockd. Each watcher ends with the last state; fences grow, and no tag comes twice in a row
    (Watcher.check)."""
    masters = lab.redises(3)
    services = [lab.redlockd(masters), lab.redlockd(masters)]
    watchers = [watch(services[i % 2], resource) for i in range(6)]
    for watcher in watchers:
        watcher.sees("free")
    for i in range(100):
        lease = services[i % 2].acquire(resource, owner=f"number {i}", ttl_ms=60000)
        assert services[i // 2 % 2].release(lease).status == 204
        if i % 50 == 25:  # a change that lasts is missed by nobody
            lease = services[0].acquire(resource, owner="stays", ttl_ms=60000)
            for watcher in watchers:
                assert watcher.sees(str(lease["fence"])).state["owner"] == "stays"
            assert services[1].release(lease).status == 204
    last = services[0].acquire(resource, owner="last", ttl_ms=60000)
    for watcher in watchers:
        assert watcher.sees(str(last["fence"])).state["owner"] == "last"


@pytest.mark.parametrize("members", [{"mode": "shared"}, {"slots": 2}], ids=lambda members: next(iter(members)))
def test_a_change_under_way_is_no_state(lab, resource, watch, members):
    """Several acquire and release through two redlockd: no watcher is told the moment in which each master has another lease."""
    masters = lab.redises(3)
    services = [lab.redlockd(masters), lab.redlockd(masters)]
    watcher = watch(services[0], resource)
    watcher.sees("free")

    def acquire_and_release(service):
        client = service.client()
        for _ in range(400):
            lease = client.call("POST", "/locks", {"resource": resource, "ttl_ms": 60000, "wait_ms": 20000, **members}).json
            assert client.call("DELETE", f"/locks/{quote(resource)}", {"token": lease["token"]}).status == 204
        client.close()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(acquire_and_release, service) for service in services]:
            done.result()
    watcher.sees("free")
    assert [event for event in watcher.events if event.tag == "split"] == []


def test_what_the_holder_said(lab, resource, watch):
    """Metadata, caller and names are those of the state that is told, also to a watcher that comes later."""
    service = lab.service(3)
    watcher = watch(service, resource)
    watcher.sees("free")
    metadata = {"address": "a" * 900}
    lease = service.curl("POST", "/locks", body={"resources": [resource, f"{resource}/b"], "ttl_ms": 60000, "metadata": metadata}).json
    state = watcher.sees(str(lease["fence"])).state
    assert (state["metadata"], state["resources"]) == (metadata, [resource, f"{resource}/b"])
    for i in range(20):
        service.acquire(f"{resource}/other/{i}", metadata={"another": "b" * 900})
    later = watch(service, resource).sees(str(lease["fence"])).state
    assert (later["metadata"], later["resources"]) == (metadata, [resource, f"{resource}/b"])


def test_a_set_on_each_of_its_names(lab, resource, watch):
    """A watcher of any one name of a set sees its holder, at either redlockd, and its end: released, or run out."""
    masters = lab.redises(3)
    services = [lab.redlockd(masters), lab.redlockd(masters)]
    names = [f"{resource}/{letter}" for letter in "abc"]
    watchers = [watch(service, name) for name in names for service in services]
    for watcher in watchers:
        watcher.sees("free")
    single = services[1].acquire(names[1], ttl_ms=60000)
    for watcher in watchers[2:4]:
        watcher.sees(str(single["fence"]))
    assert services[0].release(single).status == 204
    fences = [single["fence"]]
    for ttl_ms in (60000, 5000):
        body = {"resources": names[::-1], "owner": "of all", "ttl_ms": ttl_ms, "metadata": {"address": "10.0.0.1:9000"}}
        lease = services[0].curl("POST", "/locks", body=body).json
        fences.append(lease["fence"])
        for watcher in watchers:
            event = watcher.sees(str(lease["fence"]))
            assert [event.state[member] for member in ("resources", "owner", "metadata")] == [names, "of all", {"address": "10.0.0.1:9000"}]
        if ttl_ms == 60000:
            assert services[1].curl("DELETE", "/locks", body={"resources": names, "token": lease["token"]}).status == 204
        for watcher in watchers:
            watcher.sees("free")
    assert fences == sorted(set(fences))
    assert watchers[0].tags() == ["free", str(fences[1]), "free", str(fences[2]), "free"], "the single lease on another name is no event here"


def test_a_holder_whose_redlockd_is_killed(lab, resource, watch):
    """A lease by `hold`, whose redlockd has no time to release it: watchers at another one see its end, and the next holder."""
    masters = lab.redises(3)
    killed, watching = lab.redlockd(masters), lab.redlockd(masters)
    watcher = watch(watching, resource)
    watcher.sees("free")
    body = json.dumps({"resource": resource, "owner": "first", "ttl_ms": 2000, "hold": True}).encode()
    with contextlib.closing(killed.connect(30)) as holder:
        holder.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        wait_until(lambda: watcher.events[-1].state["held"], what="the holder is seen")
        assert watcher.events[-1].state["owner"] == "first"
        killed.kill()
        lease = watching.acquire(resource, owner="second", ttl_ms=60000, wait_ms=20000)
    assert watcher.sees(str(lease["fence"])).state["owner"] == "second"


def test_a_master_that_is_lost(lab, resource, watch):
    """One of three: nothing is missed. Two: the state is unknown, until they are back."""
    masters = lab.redises(3)
    service = lab.redlockd(masters, "--restart-guard", "off")
    watcher = watch(service, resource)
    watcher.sees("free")
    masters[0].kill()
    lease = service.acquire(resource, ttl_ms=60000)
    watcher.sees(str(lease["fence"]))
    masters[1].kill()
    event = watcher.sees("unknown")
    assert event.kind == "unknown" and event.state["held"] is None and event.state["votes"]["failed"] == 2
    masters[0].start()
    masters[1].start()
    assert watcher.sees("free", 20).kind is None  # they have forgotten the lease


def test_a_master_forgets_the_watch(lab, resource, watch):
    """FLUSHALL takes the watch with it; it is set again."""
    masters = lab.redises(3)
    service = lab.redlockd(masters, "--restart-guard", "off")
    watcher = watch(service, resource)
    watcher.sees("free")
    for master in masters:
        master.cli("FLUSHALL")
    wait_until(lambda: all(master.cli("EXISTS", f"redlockd:watch:{resource}") for master in masters), what="the watch is set again")
    watcher.sees(str(service.acquire(resource)["fence"]))


def test_a_stopped_redlockd(lab, resource, watch):
    """Publications that came while it stood still are not lost on its watchers."""
    masters = lab.redises(3)
    working, stopped = lab.redlockd(masters), lab.redlockd(masters)
    watcher = watch(stopped, resource)
    watcher.sees("free")
    freeze(stopped.process)
    lease = working.acquire(resource, ttl_ms=60000)
    stopped.process.send_signal(signal.SIGCONT)
    watcher.sees(str(lease["fence"]))


def test_a_drain(lab, resource, watch):
    service = lab.service(3)
    watcher = watch(service, resource)
    watcher.sees("free")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        wait = pool.submit(get, service, resource, seen="free", wait_ms=50000)
        wait_until(lambda: service.metrics()["redlockd_watchers"] == 2, what="both watch")
        service.process.send_signal(signal.SIGTERM)
        answer = wait.result()
    assert answer.status == 503 and answer.json["code"] == "draining"
    wait_until(lambda: watcher.over, what="the end of the stream")
    assert watcher.process.wait() == 0, "a whole answer"
    assert service.process.wait(30 * SLOW) == 0


def test_keys(lab, resource, watch):
    """The right is that of GET; what waits is bounded for each key; a key that is taken away ends its watches."""
    taker = Key("taker", ["a/"], ["acquire"])
    keyed = Keyed(lab, [Key("watcher", ["a/"], ["inspect"], max_waiting=2), taker]).wait_ready()
    secret = ["-H", f"X-Api-Key: {keyed.keys['watcher'].secret}"]
    watchers = [watch(keyed.redlockd, "a/b", *secret) for _ in range(2)]
    for watcher in watchers:
        watcher.sees("free")
    assert get(keyed.redlockd, "a/b", *secret, "-H", "Accept: text/event-stream").status == 429
    assert get(keyed.redlockd, "b/b", *secret, "-H", "Accept: text/event-stream").status == 403
    assert get(keyed.redlockd, "a/b", "-H", "Accept: text/event-stream").status == 401
    assert get(keyed.redlockd, "a/b", "-H", f"X-Api-Key: {taker.secret}", "-H", "Accept: text/event-stream").status == 403
    keyed.write([taker])
    keyed.reload()
    for watcher in watchers:
        wait_until(lambda: watcher.over, what="the end of the stream")


# ---- what it costs ----


def scripts_run(masters):
    """How often a script was run so far, on all masters."""
    return sum(int(calls) for master in masters for calls in re.findall(r"cmdstat_evalsha:calls=(\d+)", master.cli("INFO", "commandstats")))


def changes(service, resource, masters, first, count=20):
    """How many scripts the masters run for so many changes."""
    before = scripts_run(masters)
    for _ in range(count):
        lease = service.acquire(resource, ttl_ms=60000)
        first.sees(str(lease["fence"]))
        assert service.release(lease).status == 204
        first.sees("free")
    return scripts_run(masters) - before


def test_many_watchers_cost_the_masters_what_one_does(many_files, lab, resource, watch):
    masters = lab.redises(3)
    service = lab.redlockd(masters)
    first = watch(service, resource)
    first.sees("free")
    alone = changes(service, resource, masters, first)
    request = f"GET /locks/{quote(resource)} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(service.connect(60)) for _ in range(900)]
        for plain in many:
            plain.sendall(request)
        wait_until(lambda: service.metrics()["redlockd_watchers"] == 901, what="all watch")
        crowded = changes(service, resource, masters, first)
        last = service.acquire(resource, ttl_ms=60000)
        for plain in many:
            text = b""
            while b"id: %d\n" % last["fence"] not in text:
                piece = plain.recv(65536)
                assert piece, text[-300:]
                text += piece
    # 20 changes twice, each a script on 3 masters, and one or two looks for each; a look every few seconds besides
    assert 240 <= crowded <= 1.6 * alone + 60, (alone, crowded)
    wait_until(lambda: service.metrics()["redlockd_watchers"] == 1, what="they have left")


def test_nobody_watches(lab, resource):
    """Without a watcher no script looks for a watch, or publishes."""
    service = lab.service(3)
    for _ in range(5):
        assert service.release(service.acquire(resource)).status == 204
    for master in service.masters:
        stats = master.cli("INFO", "commandstats")
        tried = int(re.search(r"cmdstat_publish:calls=(\d+)", stats)[1])
        assert tried <= 2, "master_check.c tries it once"
        assert master.cli("KEYS", "redlockd:watch:*") == []
