# SPDX-License-Identifier: MIT
"""Malformed requests: each is answered with the 4xx that its row says, and nothing of it reaches Redis.

The rows are in malformed/*.txt, one a line: a name, the status expected, the bytes to send.

    \\r \\n \\t \\0 \\xNN \\\\   as in C
    \\{N*TEXT}             TEXT, N times (TEXT ends at the first brace)
    $L                    the length of what follows the first empty line

    after the status:     *  the HTTP library may answer by itself, without a problem document
                          !  it is far beyond all bounds: closing without an answer will do as well
                          @  413 will do as well as 400: a number without bounds

One row is answered 505: HTTP of another major version.
"""

import json
import pathlib
import re

import pytest

from harness import Lab, Response, curl, read_response, wait_until

CODES = {400: "invalid-request", 403: "forbidden", 415: "invalid-request", 404: "not-found", 405: "method-not-allowed", 413: "too-large", 414: "too-large", 431: "too-large", 505: "invalid-request"}

# Commands that redlockd sends without a request. Any other command comes from a request that was let through. The guard
# sends its scripts with EVAL; they call HMGET, HINCRBY and HSET. Scripts of requests are sent with EVALSHA.
BACKGROUND = {"ping", "info", "hello", "auth", "select", "time", "role", "client", "client|setname", "client|setinfo", "client|id", "config|get",
              "command", "script|load", "echo", "eval", "hmget", "hincrby", "hset"}

ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|\{(\d+)\*([^}]*)\}|([rnt0\\]))")
PLAIN = {"r": b"\r", "n": b"\n", "t": b"\t", "0": b"\0", "\\": b"\\"}


def to_bytes(text):
    """The bytes that a row stands for."""
    parts, at = [], 0
    for match in ESCAPE.finditer(text):
        parts.append(text[at:match.start()].encode("ascii"))
        digits, times, repeated, plain = match.groups()
        if digits:
            parts.append(bytes([int(digits, 16)]))
        elif times:
            parts.append(to_bytes(repeated) * int(times))
        else:
            parts.append(PLAIN[plain])
        at = match.end()
    parts.append(text[at:].encode("ascii"))
    whole = b"".join(parts)
    return whole.replace(b"$L", str(len(whole.partition(b"\r\n\r\n")[2])).encode(), 1)


def rows(files="*.txt"):
    for path in sorted(pathlib.Path(__file__).with_name("malformed").glob(files)):
        for line in path.read_text("ascii").splitlines():
            if line and not line.startswith("#"):
                name, expected, sent = re.fullmatch(r"(\S+) +(\d{3}[*!@]*) {1,5}(.*)", line).groups()
                yield pytest.param(expected, sent, id=name)


ROWS = list(rows())


def is_strict(address):
    return int(curl(address, "GET", "/version").json["libraries"]["libmicrohttpd"].partition(".")[0]) >= 1


@pytest.fixture(scope="module")
def target():
    """A service of its own: nothing but these requests may make it speak to its masters."""
    with Lab() as lab:
        service = lab.service(3, "--request-timeout-ms", "2000")
        service.release(service.acquire("warm-up"))
        wait_until(lambda: all(master.calls().get("evalsha", 0) >= 2 for master in service.masters), what="both on all masters")
        yield service


@pytest.fixture(scope="module")
def strict_library(target):
    """From 1.0 on libmicrohttpd answers many more of these requests by itself, with the same status."""
    return is_strict(target.address)


def foreground_calls(service):
    return [{name: count for name, count in master.calls().items() if name not in BACKGROUND} for master in service.masters]


def send(service, content):
    """Sends the bytes and reads one answer; None where the connection was closed without one."""
    plain = service.connect(10)
    try:
        try:
            plain.sendall(content)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it need not read to the end what it has refused; its answer can still be read
        return read_response(plain)
    finally:
        plain.close()


def parse_answers(content):
    """All answers that came on a connection, each with its Content-Length."""
    answers = []
    while content:
        head, end, rest = content.partition(b"\r\n\r\n")
        lines = head.decode("ascii").split("\r\n")
        assert end and lines[0].startswith("HTTP/1."), content
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        length = int(headers["content-length"])
        assert len(rest) >= length or rest.startswith(b"HTTP/1."), content
        length = 0 if rest.startswith(b"HTTP/1.") else length
        answers.append(Response(int(lines[0].split()[1]), headers, rest[:length], 0))
        content = rest[length:]
    return answers


def test_there_are_rows_enough():
    names = [row.id for row in ROWS]
    assert len(names) >= 200 and len(set(names)) == len(names), [name for name in names if names.count(name) > 1]


@pytest.mark.parametrize("expected, sent", ROWS)
def test_malformed(target, strict_library, expected, sent):
    status, marks = int(expected[:3]), expected[3:]
    before = foreground_calls(target)
    answer = send(target, to_bytes(sent))
    if answer is None:
        assert "!" in marks, "closed without an answer"
    else:
        assert answer.status == status or ("@" in marks and answer.status == 413), answer
        by_library = "*" in marks or strict_library
        if not by_library or answer.headers.get("content-type", "").startswith("application/problem+json"):
            assert answer.code == CODES[answer.status], answer
        if answer.status == 405:
            assert answer.headers["allow"]
    healthy = send(target, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert healthy.status == 200
    assert foreground_calls(target) == before, "something reached Redis"


def test_the_witness_sees_what_does_reach_redis(target):
    """Otherwise the test above could not fail."""
    before = foreground_calls(target)
    target.release(target.acquire("witness"))
    wait_until(lambda: all(new.get("evalsha", 0) >= old.get("evalsha", 0) + 2 for new, old in zip(foreground_calls(target), before)), what="both on all masters")


def test_a_malformed_request_does_not_end_the_connection_where_its_end_is_known(target):
    """Mistakes within well-framed requests leave the connection open for the next one."""
    client = target.client()
    for body in ('{"resource":1}', "", "{}", "[]", "x" * 16384):
        client.connection.request("POST", "/locks", body, {})
        answer = client.connection.getresponse()
        answer.read()
        assert answer.status == 400 and answer.getheader("connection") != "close", body[:20]
    assert client.call("GET", "/healthz").status == 200
    client.close()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_writes_a_large_body_before_it_reads_gets_its_413(target, chunked):
    """What it still sends is discarded for a moment: closing with unread bytes would reset the connection under the answer."""
    for size in (17_000, 1 << 20, 6 << 20):
        client = target.client()
        body = b"a" * size
        client.connection.request("POST", "/locks", iter([body]) if chunked else body, {"Transfer-Encoding": "chunked"} if chunked else {}, encode_chunked=chunked)
        answer = client.connection.getresponse()
        assert answer.status == 413 and json.loads(answer.read())["code"] == "too-large"
        client.close()
