# SPDX-License-Identifier: MIT
"""A malformed request gets one answer, and then its connection ends: over TCP, a Unix socket and TLS, in one piece and byte by byte, to a client that
reads at once and to one that reads when all is over.

libmicrohttpd answers some of these requests by itself (docs/contributing/libraries.md). An answer of redlockd must not come on top, and no bytes that
the client still sends may reset the connection under it. The rows are those of test_malformed.py, which explains the marks.
"""

import select
import ssl

import pytest

from certificates import Authority
from harness import SLOW, Lab, connect_to
from test_malformed import CODES, is_strict, parse_answers, rows, to_bytes

# Beyond this a request has no more to show byte by byte.
BYTES_MAX = 1000
# A client that goes on for long with what was refused is reset in the end.
SENT_MAX = 40000

GOOD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
TRIALS = 100


def framing(files):
    """The rows of which redlockd cannot say where the next request begins; the others leave the connection open."""
    return [row for row in rows(files) if row.values[0][:3] in ("400", "413", "414", "431", "505") and len(to_bytes(row.values[1])) < SENT_MAX
            and not row.id.startswith(("method-put-on-", "method-delete-on-", "body-on-", "origin-"))]


FIRST_LINES, HEADS = framing("1-*.txt"), framing("3-*.txt")
# Without those that are an empty line, or only the beginning of one, to libmicrohttpd 0.9.75.
LINES = [row for row in FIRST_LINES if row.id != "zeros"]


@pytest.fixture(scope="module")
def listeners():
    """(address, ssl context or None) of each kind of socket."""
    with Lab() as lab:
        authority = Authority(lab.folder)
        issued = authority.issue("server", "IP:127.0.0.1")
        masters = lab.redises(1)
        plain = lab.redlockd(masters, "--request-timeout-ms", "3000", listen=["127.0.0.1:0", f"unix:{lab.folder}/listen"])
        secure = lab.redlockd(masters, "--request-timeout-ms", "3000", "--tls-cert", issued.certificate, "--tls-key", issued.key, trust=authority.certificate)
        yield {"tcp": (plain.address, None), "unix": (f"unix:{lab.folder}/listen", None), "tls": (secure.address, secure.tls)}


@pytest.fixture(scope="module")
def strict_library(listeners):
    return is_strict(listeners["tcp"][0])


def pieces(content, bytewise):
    first = max(len(content) - BYTES_MAX, 0) if bytewise else len(content)
    return [content[:first], *(content[at:at + 1] for at in range(first, len(content)))]


def send_all(plain, content):
    """False where the other side has stopped to listen: it need not read to the end what it has refused; its answer can still be read."""
    try:
        plain.sendall(content)
    except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
        return False
    return True


def take(plain):
    """All that comes until the end, which is no reset."""
    content = b""
    while piece := plain.recv(65536):
        content += piece
    return content


def arrived(plain):
    """What is there already, or None. Tickets of TLS are not."""
    patience = plain.gettimeout()
    plain.settimeout(0)
    try:
        return plain.recv(65536)
    except (BlockingIOError, ssl.SSLWantReadError):
        return None
    finally:
        plain.settimeout(patience)


def ask(listener, content, *, bytewise, late):
    """What comes back. `late`: it is read when the connection has ended, otherwise as soon as it is there."""
    address, tls = listener
    early = None
    with connect_to(address, 20, tls) as plain:
        for piece in pieces(content, bytewise):
            if not send_all(plain, piece) or (not late and (early := arrived(plain)) is not None):
                break
        if late:
            ended = select.poll()
            ended.register(plain, select.POLLRDHUP)
            assert ended.poll(30000 * SLOW), "the connection does not end"
        return (early or b"") + take(plain)


def check(content, expected, *, may_be_none=False, by_library):
    status, marks = int(expected[:3]), expected[3:]
    answers = parse_answers(content)
    if not answers:
        assert may_be_none or "!" in marks, "closed without an answer"
        return
    assert len(answers) == 1, content
    assert answers[0].status == status or ("@" in marks and answers[0].status == 413), content
    assert answers[0].headers["connection"].lower() == "close", content
    if not by_library or answers[0].headers.get("content-type", "").startswith("application/problem+json"):
        assert answers[0].code == CODES[answers[0].status], content


WAYS = [{"bytewise": bytewise, "late": late} for bytewise in (False, True) for late in (False, True)]


@pytest.mark.parametrize("over", ["tcp", "unix"])
@pytest.mark.parametrize("expected, sent", FIRST_LINES)
def test_a_first_line(listeners, over, expected, sent):
    for way in WAYS:
        check(ask(listeners[over], to_bytes(sent), **way), expected, by_library=False)


@pytest.mark.parametrize("expected, sent", LINES)
def test_a_first_line_over_tls(listeners, expected, sent):
    """redlockd does not see it: the library answers, or closes."""
    for way in WAYS:
        check(ask(listeners["tls"], to_bytes(sent), **way), expected, may_be_none=True, by_library=True)


@pytest.mark.parametrize("over", ["tcp", "unix", "tls"])
@pytest.mark.parametrize("expected, sent", HEADS)
def test_a_head(listeners, strict_library, request, over, expected, sent):
    whole = request.node.callspec.id.startswith(("length-", "host-missing"))
    for way in WAYS:
        check(ask(listeners[over], to_bytes(sent), **way), expected, by_library="*" in expected or (strict_library and not whole))


@pytest.mark.parametrize("over", ["unix", "tls"])
@pytest.mark.parametrize("expected, sent", [*LINES, *HEADS])
def test_after_a_good_request(listeners, over, expected, sent):
    """The first line of a later request is in the buffer of the library already."""
    content = ask(listeners[over], GOOD + to_bytes(sent), bytewise=False, late=True)
    head, _, rest = content.partition(b'{"status":"ok"}')
    assert head.startswith(b"HTTP/1.1 200 "), content
    check(rest, expected, may_be_none=True, by_library=True)


@pytest.mark.parametrize("line, status", [(b"GET /healthz http/1.1", 400), (b"GET /healthz HTTP/0.9", 505), (b"nonsense", 400)])
def test_an_answer_however_soon_it_is_read(listeners, line, status):
    """The kernel does not tell whether anything was sent through a Unix socket once it has been read."""
    for _ in range(TRIALS):
        answers = parse_answers(ask(listeners["unix"], line + b"\r\nHost: localhost\r\n\r\n", bytewise=False, late=False))
        assert [answer.status for answer in answers] == [status]
