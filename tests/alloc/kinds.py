"""Every kind of request of the sweep. See world.py."""

import json
import time

from harness import SLOW, wait_until
from world import CLOSED, Answer, Kind, read_answer, request_bytes, send, shape

NOBODYS = "0" * 40
JSON = {"content-type": "application/json"}


def simple(name, method, path, body=None, headers=(), keeps=0):
    return Kind(name, lambda world, _: [world.call(method, path, body, headers)], keeps=keeps)


def raw(name, data, least=10, also=()):
    return Kind(name, lambda world, _: [world.raw(data)], least=least, also=also)


def until_failed(world, seconds):
    """What goes on by itself, for so long or until an allocation of it has failed."""
    end = time.monotonic() + seconds
    while not world.control.failed and time.monotonic() < end:
        time.sleep(0.001)
    return []


def come_back(world, _):
    """A master drops its connections, and they are opened anew."""
    before = world.swept.stderr().count("state=voting")
    world.masters[0].cli("CLIENT", "KILL", "TYPE", "normal")
    end = time.monotonic() + 5 * SLOW
    while world.alive() and world.swept.stderr().count("state=voting") == before and time.monotonic() < end:
        time.sleep(0.002)
    return []


# ---- leases ----


def give_back(world, what, got):
    """What the client really got it gives back, to whom it got it from: an acquisition may still be on the way to a master, and nothing overtakes it there."""
    for answer in got:
        if isinstance(answer, Answer) and answer.status == 201:
            lease = answer.json
            world.call("DELETE", "/locks/" + lease["resource"], {"token": lease["token"]})


def acquire(world, _):
    return [world.call("POST", "/locks", {"resource": world.resource(), "ttl_ms": 30000, "owner": "sweep"})]


def forget_scripts(world):
    for master in world.masters:
        master.cli("SCRIPT", "FLUSH")


def held(world):
    return world.hold()


def release_held(world, lease, _):
    world.release(lease)


def on_held(method, path="/locks/{resource}", **members):
    """A request about a lock that is held; `token` as a member: what is given, True is the holder's."""
    def make(world, lease):
        body = {name: lease[name] if value is True else value for name, value in members.items()}
        return [world.call(method, path.format(**lease), body or None)]
    return make


def place_taken(world):
    """True if somebody waits, as the masters see it."""
    return sum(bool(master.cli("KEYS", "redlockd:queue:*")) for master in world.masters) == len(world.masters)


def readable(plain):
    plain.setblocking(False)
    try:
        plain.recv(1, 2)  # MSG_PEEK
        return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        plain.settimeout(10 * SLOW)


def wait_in_queue(world, lease, hold=False):
    plain = world.connect()
    send(plain, request_bytes("POST", "/locks", {"resource": lease["resource"], "ttl_ms": 30000, "wait_ms": 8000, "hold": hold}))
    end = time.monotonic() + 0.3 * SLOW
    while not place_taken(world) and not readable(plain) and time.monotonic() < end:
        time.sleep(0.0005)
    return plain


def wait_granted(world, lease):
    with wait_in_queue(world, lease) as plain:
        world.release(lease)
        return [read_answer(plain)]


def in_queue(world):
    lease = world.hold()
    return lease, wait_in_queue(world, lease)


def stay_in_queue(world, what):
    """What goes on beside a request that waits: its replica says that it lives."""
    lease, plain = what
    with plain:
        until_failed(world, 0.4)
        world.release(lease)
        return [read_answer(plain)]


def wait_and_leave(world, lease):
    wait_in_queue(world, lease).close()
    wait_until(lambda: not world.alive() or not any(master.cli("KEYS", "redlockd:queue:*") for master in world.masters), 5, "the place is gone")
    return []


# ---- held connections ----


class Stream:
    """What came down a stream, as one answer: without the lines that depend on the time."""

    @staticmethod
    def read(plain, lines):
        """Reads the headers and so many lines, or to the end."""
        data = b""
        while data.count(b'"event"') < lines:
            try:
                piece = plain.recv(65536)
            except ConnectionError:
                piece = b""
            if not piece:
                break
            data += piece
        return data


def stream_of(data):
    """An answer from the pieces of a chunked one."""
    if not data:
        return CLOSED
    head, _, rest = data.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    body = b"\n".join(line for line in rest.replace(b"\r\n", b"\n").split(b"\n") if line.startswith(b"{")) if int(status.split()[1]) == 201 else rest
    if int(status.split()[1]) == 201 and b"acquired" not in body:
        return CLOSED  # headers alone are no lease
    return Answer(int(status.split()[1]), [tuple(line.lower().split(": ", 1)) for line in lines], body)


def hold_stream(world, _):
    with world.connect() as plain:
        send(plain, request_bytes("POST", "/locks", {"resource": world.resource(), "ttl_ms": 30000, "hold": True}, ("Connection: close",)))
        return [stream_of(Stream.read(plain, 1))]


def open_stream(world):
    plain = world.connect()
    send(plain, request_bytes("POST", "/locks", {"resource": world.resource(), "ttl_ms": 240, "hold": True}))
    assert b"acquired" in Stream.read(plain, 1)
    return plain


def renewed(world, plain):
    with plain:
        data = Stream.read(plain, 1)
    assert not data or b'"renewed"' in data or b'"lost"' in data, data
    return []


# ---- listings ----


def three_held(world):
    return [world.hold() for _ in range(3)]


def release_three(world, leases, _):
    for lease in leases:
        world.release(lease)


def first_page(world):
    leases = three_held(world)
    return leases, world.others_call("GET", "/locks?prefix=alloc/&limit=2").json


def completeness(leases, listed):
    """Where a page had to begin with another master it may hold again what was listed before: what counts is that nothing is missing."""
    missing = {lease["resource"] for lease in leases} - {lock["resource"] for lock in listed}
    return json.dumps({"complete": not missing, "last": shape(listed[-1])}).encode()


def list_all(world, leases):
    answer = world.call("GET", "/locks?prefix=alloc/&limit=100")
    if isinstance(answer, Answer) and answer.status == 200:
        answer.body = completeness(leases, answer.json["locks"])
    return [answer]


def list_rest(world, what):
    leases, before = what
    answer = world.call("GET", f"/locks?prefix=alloc/&limit=3&cursor={before['cursor']}")
    if isinstance(answer, Answer) and answer.status == 200:
        pages = [before, answer.json]
        while pages[-1]["cursor"]:  # a page may hold less than it might
            pages.append(world.others_call("GET", f"/locks?prefix=alloc/&limit=3&cursor={pages[-1]['cursor']}").json)
        listed = [lock for page in pages for lock in page["locks"]]
        answer.body = completeness(leases, listed)
    return [answer]


# ---- connections ----


def until_quiet(world):
    """Until nothing has been allocated for a moment."""
    counted, since, end = 0, time.monotonic(), time.monotonic() + 0.3
    while time.monotonic() < end and (counted == 0 or time.monotonic() < since + 0.01):
        if world.control.counted != counted:
            counted, since = world.control.counted, time.monotonic()
        time.sleep(0.0005)


def come_and_go(world, _):
    with world.connect():
        until_quiet(world)
    return []


def half_a_request(world, _):
    with world.connect() as plain:
        send(plain, b'POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"reso')
        until_quiet(world)
    return []


def two_on_one(world, _):
    with world.connect() as plain:
        send(plain, request_bytes("GET", "/healthz"))
        first = read_answer(plain)
        send(plain, request_bytes("GET", "/version"))
        return [first, read_answer(plain)]


def with_continue(world, _):
    with world.connect() as plain:
        send(plain, request_bytes("POST", "/locks", b"", ("Expect: 100-continue",)).replace(b"Content-Length: 0", b"Content-Length: 2"))
        try:
            if not plain.recv(4096):
                return [CLOSED]
            send(plain, b"{}")
        except ConnectionError:
            return [CLOSED]
        return [read_answer(plain)]


KINDS = [
    Kind("acquire", acquire, tidy=give_back),
    Kind("acquire-noscript", acquire, prepare=forget_scripts, tidy=give_back),
    Kind("locked", on_held("POST", "/locks", resource=True, owner="sweep"), held, release_held),
    Kind("wait-granted", wait_granted, held, give_back),
    Kind("wait-runs-out", on_held("POST", "/locks", resource=True, wait_ms=30), held, release_held),
    Kind("wait-and-leave", wait_and_leave, held, release_held),
    Kind("hold", hold_stream),
    Kind("hold-renewed", renewed, open_stream, least=3),
    Kind("extend", on_held("PUT", token=True, ttl_ms=30000), held, release_held),
    Kind("extend-not-owner", on_held("PUT", token=NOBODYS), held, release_held),
    simple("extend-expired", "PUT", "/locks/alloc/none", {"token": NOBODYS}),
    Kind("release", on_held("DELETE", token=True), held, release_held),
    Kind("release-not-owner", on_held("DELETE", token=NOBODYS), held, release_held),
    simple("release-by-header", "DELETE", "/locks/alloc/none", headers=(f"Lock-Token: {NOBODYS}",)),
    Kind("inspect", on_held("GET"), held, release_held),
    simple("inspect-free", "GET", "/locks/alloc/none"),
    Kind("list", list_all, three_held, release_three),
    Kind("list-second-page", list_rest, first_page, lambda world, what, got: release_three(world, what[0], got)),
    simple("healthz", "GET", "/healthz"),
    simple("readyz", "GET", "/readyz"),
    simple("metrics", "GET", "/metrics"),
    simple("masters", "GET", "/masters"),
    simple("stats", "GET", "/stats"),
    simple("openapi", "GET", "/openapi.yaml"),
    simple("version", "GET", "/version"),
    simple("page", "GET", "/"),
    simple("head", "HEAD", "/masters"),
    simple("bad-json", "POST", "/locks", b'{"resource":'),
    simple("bad-members", "POST", "/locks", {"resource": 1, "ttl_ms": "x", "colour": "red", "wait_ms": -1}),
    simple("number-too-large", "POST", "/locks", b'{"resource":"a","ttl_ms":99999999999999999999}'),
    simple("bad-query", "GET", "/locks?limit=0&cursor=x&colour=red"),
    simple("bad-resource", "GET", "/locks/%ff"),
    simple("bad-token-header", "DELETE", "/locks/a", headers=("Lock-Token: x",)),
    simple("no-path", "GET", "/nothing"),
    simple("no-method", "PATCH", "/locks"),
    simple("body-too-large", "POST", "/locks", b"{" + b" " * 20000),
    raw("chunks-too-large", b"POST /locks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + (b"1000\r\n" + b" " * 4096 + b"\r\n") * 5),
    simple("url-too-long", "GET", "/locks/" + "a" * 3000),
    simple("headers-too-large", "GET", "/healthz", headers=("X-Long: " + "a" * 9000,)),
    raw("two-lengths", b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
    raw("rubbish", b"\x16\x03\x01 rubbish\r\n\r\n", least=1, also=(400,)),
    Kind("come-and-go", come_and_go, least=1),
    Kind("half-a-request", half_a_request, least=1),
    Kind("two-on-one-connection", two_on_one),
    Kind("expect-continue", with_continue),
]

# On masters that only it talks to.
RECONNECT = Kind("reconnect", come_back, least=30)
HEARTBEAT = Kind("heartbeat", lambda world, _: until_failed(world, 1.5))  # one a second: all of one, and some of the next

# With a second redlockd.
IN_LINE = Kind("stay-in-line", stay_in_queue, in_queue, give_back)

# Where no master is there.
ALONE = [
    simple("readyz-not-ready", "GET", "/readyz"),
    simple("masters-down", "GET", "/masters"),
    simple("acquire-no-quorum", "POST", "/locks", {"resource": "alloc/none"}),
    simple("release-no-quorum", "DELETE", "/locks/alloc/none", {"token": NOBODYS}, keeps=3),  # owed to each master
    simple("list-no-quorum", "GET", "/locks"),
]

# With a key, and without a right.
KEYED = [
    Kind("acquire-with-key", acquire, tidy=give_back),
    simple("bad-key", "GET", "/masters", headers=("X-Api-Key: 0123456789abcdef",)),
    simple("not-among-its-prefixes", "POST", "/locks", {"resource": "other/1"}),
    Kind("force", on_held("DELETE", path="/locks/{resource}?force=true"), held, release_held),
    simple("force-nothing", "DELETE", "/locks/alloc/none?force=true"),
    simple("list-with-key", "GET", "/locks?prefix=alloc/"),
]


def by_name(*names):
    return [kind for kind in KINDS if kind.name in names]
