# SPDX-License-Identifier: MIT
"""The hostile loads. Each is a function that makes a crowd do something until it is over, and says what must have come of it.

`stage.look()` is called all the time: it moves the sockets and measures. `stage.seconds` is how long a load without an end of its own goes on."""

import collections
import time

HOST = b"Host: localhost\r\n"
# Deadlines, and a little: a request's, an idle connection's, both one after the other; SOON is at once.
REQUEST, IDLE, BOTH, SOON = "request", "idle", "both", 5.0

MANY = 5000
LARGE = 100000
QUICK = 0.0001  # seconds, far less than a grant takes


def get(path, *lines):
    return b"GET %s HTTP/1.1\r\n" % path + HOST + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def post(body, *lines):
    return b"POST /locks HTTP/1.1\r\n" + HOST + b"".join(line + b"\r\n" for line in lines) + b"Content-Length: %d\r\n\r\n" % len(body) + body


class Load:
    """A load: its function, what it is called in the table, what must come of each of its connections, on which service it runs.

    outcomes: {label: {outcome: seconds}}: a status and within what time it must have come, "closed" (without a word) and when at the latest, or "left" (by
    the client itself). ends: when each of the connections must be closed at the latest."""

    def __init__(self, run, title, outcomes, ends="request", service="plain"):
        self.run, self.title, self.outcomes, self.ends, self.service = run, title, outcomes, ends, service
        self.name = run.__name__


def open_many(stage, count, make):
    """Opens `count` connections, some at a time, so that no backlog overflows."""
    for i in range(count):
        make(i)
        if i % 50 == 49:
            stage.look(0)


def wait_for_ends(stage, seconds):
    """Until redlockd has ended every one of them, or `seconds` have passed."""
    until = time.monotonic() + seconds
    while stage.crowd.open and time.monotonic() < until:
        stage.look()


# ---- connections that are slow, or silent ----


def drip(stage):
    """A byte every quarter of the time that a request may take."""
    request, pause = post(b'{"resource":"drip"}', b"X-Padding: " + b"x" * 200), stage.request_seconds / 4
    turns = collections.deque()

    def make(i):
        turns.append((time.monotonic() + pause, 1, stage.crowd.add("drip", request[:1])))
    open_many(stage, MANY, make)
    until = time.monotonic() + stage.request_seconds * 3
    while stage.crowd.open and time.monotonic() < until:
        while turns and turns[0][0] <= time.monotonic():
            due, at, member = turns.popleft()
            if member.closed is None:
                stage.crowd.send(member, request[at:at + 1])
                turns.append((due + pause, at + 1, member))
        stage.look()


def silent(stage):
    open_many(stage, MANY, lambda i: stage.crowd.add("silent"))
    wait_for_ends(stage, stage.request_seconds * 3)


def idle(stage):
    """One request each, and then nothing."""
    open_many(stage, MANY, lambda i: stage.crowd.add("idle", get(b"/healthz")))
    wait_for_ends(stage, stage.idle_seconds * 3)


def half_body(stage):
    """Everything but the last byte of the body."""
    open_many(stage, MANY, lambda i: stage.crowd.add("half", post(b'{"resource":"half"}')[:-1]))
    wait_for_ends(stage, stage.request_seconds * 3)


def too_many(stage):
    """More than one address may have; those above are told so at once."""
    began = time.monotonic()
    open_many(stage, MANY, lambda i: stage.crowd.add("silent"))
    above = [stage.crowd.add("above") for _ in range(1000)]
    while any(member.closed is None for member in above) and time.monotonic() < began + stage.request_seconds * 3:
        stage.look()
    wait_for_ends(stage, stage.request_seconds * 3)


# ---- clients that do not read ----


def never_reads(stage):
    """A thousand times the metrics, and none of it is read."""
    open_many(stage, 200, lambda i: stage.crowd.add("metrics", get(b"/metrics", *stage.credentials) * 1000, reads=False, receive_buffer=2048))
    wait_for_ends(stage, stage.request_seconds * 5)


# ---- many requests ----


def paced(stage, per_second, act):
    """Calls act() so often, evenly, for stage.seconds."""
    began, done = time.monotonic(), 0
    while time.monotonic() < began + stage.seconds:
        for _ in range(20):  # where the machine is too slow for the pace it is not caught up with at once
            if done < (time.monotonic() - began) * per_second:
                act(done)
                done += 1
        stage.look()


def pipelined(stage):
    """Twenty connections, each of which sends a hundred requests at once, once a second, and reads all the answers."""
    members = [stage.crowd.add("pipelined") for _ in range(20)]
    sent = collections.Counter()

    def act(i):
        member = members[i % len(members)]
        stage.crowd.send(member, get(b"/healthz") * 100)
        sent[member] += 100
    paced(stage, len(members), act)
    until = time.monotonic() + 10
    while any(len(member.statuses) < sent[member] for member in members) and time.monotonic() < until:
        stage.look()
    stage.expect(all(member.statuses == [200] * sent[member] for member in members), "every pipelined request is answered 200")
    stage.crowd.leave_all()


def come_and_go(stage):
    """Connections that send a whole request for a lock, and leave at once, without waiting for the answer. Their grants
    are released, but for connections that were held up on their way out: their answer may have been written."""
    count = 0
    while count < MANY:
        for _ in range(20):
            stage.crowd.add("gone", post(b'{"resource":"gone/%d"}' % count), leaves=True)
            count += 1
        pause = time.monotonic() + 20 * stage.seconds / MANY
        while time.monotonic() < pause or len(stage.crowd.open) > 1000:
            stage.look()
    wait_for_ends(stage, 10)
    stage.expect_no_lock(b"gone/", but=[b"gone/%d" % i for i, member in enumerate(stage.crowd.all) if member.leaving > QUICK])


RUBBISH = {
    "two Content-Lengths": (400, b"POST /locks HTTP/1.1\r\n" + HOST + b"Content-Length: 16\r\nContent-Length: 0\r\n\r\n" + b'{"resource":"h"}'),
    "Content-Length with Transfer-Encoding": (400, b"POST /locks HTTP/1.1\r\n" + HOST + b"Content-Length: 26\r\nTransfer-Encoding: chunked\r\n\r\n"
                                              + b'10\r\n{"resource":"h"}\r\n0\r\n\r\n'),
    "%00 in the path": (400, get(b"/locks/a%00b")),
    "overlong UTF-8 in the path": (400, get(b"/locks/a%C0%AFb")),
    "overlong UTF-8 in the body": (400, post(b'{"resource":"a\xc0\xafb"}')),
    "deep JSON": (400, post(b'{"resource":' + b"[" * 8000 + b"]" * 8000 + b"}")),
    "a body of 1 MB": (413, post(b'{"resource":"' + b"a" * 2**20 + b'"}')),
    "chunks without end": (413, b"POST /locks HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + (b"1000\r\n" + b"x" * 4096 + b"\r\n") * 20),
    "1 MB of headers": (431, b"GET /healthz HTTP/1.1\r\n" + HOST + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 1000) for i in range(1000)) + b"\r\n"),
    "one header of 1 MB": (431, get(b"/healthz", b"X-Long: " + b"y" * 2**20)),
    "a URL of 1 MB": (414, get(b"/" + b"u" * 2**20)),
    "NUL in a header's name": (400, get(b"/healthz", b"X-\0Name: v")),
    "NUL in a header's value": (400, get(b"/healthz", b"X-Name: v\0w")),
    "a folded header": (400, get(b"/healthz", b"X-A: b", b" c")),
    "HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)),
    "TLS to the plain port": (400, bytes.fromhex("1603010200010001fc0303") + bytes(range(256)) * 2),
    "nothing but NULs": (None, bytes(4096) + b"\r\n\r\n"),  # the 0.9 series takes them for an empty line
    "endless first line without a space": (None, b"A" * 2**17),
}


def rubbish_outcomes(status, content):
    """A client that still sends a MB may be cut off before it has read the answer. Without a status the library may
    wait for more."""
    if status is None:
        return {"400": SOON, "414": SOON, "closed": REQUEST}
    return {str(status): SOON, "closed": SOON} if len(content) > LARGE else {str(status): SOON}


def rubbish(stage):
    """One connection after the other, of every kind in turn; those that are large, more seldom."""
    kinds = list(RUBBISH)

    def act(i):
        kind = kinds[i % len(kinds)]
        status, content = RUBBISH[kind]
        if len(content) <= LARGE or i // len(kinds) % 10 == 0:
            stage.crowd.add(kind, content)
    paced(stage, 300, act)
    wait_for_ends(stage, stage.idle_seconds + 5)  # some mistakes do not end the connection
    for kind, (status, _) in RUBBISH.items():
        answers = [member.statuses[:1] for member in stage.crowd.all if member.label == kind]
        stage.expect(status is None or [status] in answers, f"{kind} is answered {status}")


# ---- keys ----


def wrong_keys(stage):
    """Guessing: another key with each request, over ten connections."""
    members = [stage.crowd.add("guess") for _ in range(10)]
    sent = collections.Counter()

    def act(i):
        stage.crowd.send(members[i % 10], post(b'{"resource":"guess"}', b"Authorization: Bearer rlk_%043d" % i))
        sent[members[i % 10]] += 1
    paced(stage, 1000, act)
    until = time.monotonic() + 10
    while any(len(member.statuses) < sent[member] for member in members) and time.monotonic() < until:
        stage.look()
    stage.expect(all(member.statuses == [401] * sent[member] for member in members), "every wrong key is answered 401")
    stage.crowd.leave_all()


# ---- TLS ----

HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(32)) + bytes.fromhex("20") + bytes(range(32)) + bytes.fromhex("0002130101")


def tls_silent(stage):
    open_many(stage, MANY, lambda i: stage.crowd.add("silent"))
    wait_for_ends(stage, stage.request_seconds * 3)


def tls_half_hello(stage):
    """The first half of a ClientHello."""
    open_many(stage, MANY, lambda i: stage.crowd.add("half", HELLO))
    wait_for_ends(stage, stage.request_seconds * 3)


def tls_plain(stage):
    """Plain HTTP, and rubbish, to the port that speaks TLS."""
    paced(stage, 300, lambda i: stage.crowd.add("plain", get(b"/healthz")) if i % 2 else stage.crowd.add("rubbish", b"\x16\x03\x01\xff\xff" + bytes(500)))
    wait_for_ends(stage, stage.request_seconds * 3)


def vector(size, content):
    return len(content).to_bytes(size, "big") + content


def extension(kind, content):
    return kind.to_bytes(2, "big") + vector(2, content)


FIELD = b"\x01\x04"  # ffdhe8192
FIELD_EXTENSIONS = (extension(10, vector(2, FIELD)) + extension(13, vector(2, b"\x04\x03\x08\x04")) + extension(43, vector(1, b"\x03\x04"))
                    + extension(51, vector(2, FIELD + vector(2, b"\x7f" * 1024))))
FIELD_HELLO = b"\x01" + vector(3, b"\x03\x03" + bytes(range(32)) + vector(1, bytes(range(32))) + vector(2, b"\x13\x02") + vector(1, b"\x00")
                               + vector(2, FIELD_EXTENSIONS))


def tls_absurd(stage):
    """Hellos that ask for a finite field of 8,192 bits, and certificates that are expensive to check."""
    clients = stage.service.start_absurd_clients(50, ["rsa:60000:60000", "ec rsa:30000:30000", "names:3000", "purposes:1000"])
    paced(stage, 100, lambda i: stage.crowd.add("field", b"\x16\x03\x01" + vector(2, FIELD_HELLO)))
    wait_for_ends(stage, stage.request_seconds)
    until, said = time.monotonic() + 30, []
    for client in clients:
        while client.poll() is None and time.monotonic() < until:
            stage.look()
        client.kill()
        said += client.communicate()[0].splitlines()
    stage.expect(said == ["alert Certificate is not supported"] * 50 * len(clients), "every absurd certificate is refused")


def ends(label, *outcomes):
    return {label: {str(outcome): seconds for outcome, seconds in outcomes}}


LOADS = [
    Load(silent, "5,000 connections that send nothing", ends("silent", ("closed", REQUEST))),
    Load(drip, "5,000 that drip a byte now and then", ends("drip", ("closed", REQUEST))),
    Load(half_body, "5,000 that send half a request", ends("half", ("closed", REQUEST))),
    Load(idle, "5,000 that ask once and stay", ends("idle", (200, SOON)), ends=IDLE),
    Load(too_many, "6,000 from one address", {**ends("silent", ("closed", REQUEST)), **ends("above", (429, SOON))}),
    Load(never_reads, "200 that never read 1,000 answers", ends("metrics", ("closed", BOTH)), ends=BOTH),
    Load(pipelined, "20 that pipeline 100 requests a second each", ends("pipelined", (200, SOON)), ends=None),
    Load(come_and_go, "5,000 that ask for a lock and leave", ends("gone", ("left", SOON)), ends=None),
    Load(rubbish, "300 malformed requests a second", {kind: rubbish_outcomes(*row) for kind, row in RUBBISH.items()}, ends=IDLE),
    Load(wrong_keys, "1,000 wrong keys a second", ends("guess", (401, SOON)), service="guarded", ends=None),
    Load(tls_silent, "5,000 to the TLS port that send nothing", ends("silent", ("closed", REQUEST)), service="guarded"),
    Load(tls_half_hello, "5,000 with half a TLS hello", ends("half", ("closed", REQUEST)), service="guarded"),
    Load(tls_plain, "300 without TLS a second to the TLS port", {**ends("plain", ("closed", SOON), (400, SOON)), **ends("rubbish", ("closed", REQUEST))},
         service="guarded"),
    Load(tls_absurd, "absurd TLS handshakes, 100 a second and more", ends("field", ("closed", SOON)), service="guarded"),
]
