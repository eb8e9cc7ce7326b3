# SPDX-License-Identifier: MIT
"""A flood of tokens that were not seen before: their list has a bound, an address has a share of it, and nobody else pays.

The tokens are forged, so that each takes the whole time of a signature: they name a key of 8192 bits. redlockd is
stopped while they are sent, so that all of them are there at once."""

import collections
import contextlib
import json
import secrets
import signal
import socket

import pytest

from fixtures import open_files
from harness import freeze, patience, read_response
from token_fixtures import Issuer, Signer, Tokened, encode, rule

LIST, SHARE = 4096, 1024  # VERIFY_MAX and VERIFY_SHARE
FILES = 8192
LIMITED = 'redlockd_http_requests_limited_total{limit="token-checks"}'


class Slow(Signer):
    """A public key whose private one nobody knows."""

    def __init__(self):
        self.kid, self.algorithm = "slow", "RS256"

    def jwk(self, **more):
        number = secrets.randbits(8192) | 1 << 8191 | 1
        return {"kty": "RSA", "kid": self.kid, "e": "AQAB", "n": encode(number.to_bytes(1024, "big")), **more}


@pytest.fixture(name="files", autouse=True)
def fixture_files():
    yield from open_files(FILES)


@pytest.fixture(name="issuer")
def fixture_issuer(lab):
    return Issuer(lab, "https://issuer.example", Signer("good", "ES256"), Slow())


@pytest.fixture(name="world")
def fixture_world(lab, issuer):
    return Tokened(lab, [issuer.entry([rule({"sub": "**"}, "{sub}", [""], ["acquire"])])], "--workers", "1", "--max-connections", "7000",
                   "--request-timeout-ms", "1h", "--log-requests", "all")


class Flood:
    """Connections from addresses of their own. All that is sent within stopped() is there when redlockd goes on."""

    def __init__(self, world, issuer):
        self.world, self.issuer, self.stack = world, issuer, contextlib.ExitStack()
        self.claims = encode(json.dumps(issuer.claims(sub="flood")).encode())

    def forged(self):
        """Each is another one by its signature."""
        header = encode(json.dumps({"alg": "RS256", "kid": "slow"}).encode())
        return f"{header}.{self.claims}.{encode(secrets.token_bytes(1024))}"

    def connect(self, address, count=1):
        host, _, port = self.world.redlockd.address.rpartition(":")
        return [self.stack.enter_context(socket.create_connection((host, int(port)), patience(60), (address, 0))) for _ in range(count)]

    @contextlib.contextmanager
    def stopped(self):
        process = self.world.redlockd.process
        freeze(process)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    @staticmethod
    def ask(plain, token):
        plain.sendall(f"GET /whoami HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())

    def statuses(self, crowd):
        """{status: count} of the answers. Those that were refused say when to come again."""
        answers = [read_response(plain) for plain in crowd]
        for answer in answers:
            assert answer.status == 401 or (answer.code, answer.headers["retry-after"]) == ("too-many-requests", "1"), answer
        return collections.Counter(answer.status for answer in answers)


@pytest.fixture(name="flood")
def fixture_flood(world, issuer):
    flood = Flood(world, issuer)
    with flood.stack:
        yield flood


def test_a_full_list(world, issuer, flood):
    """Six addresses fill it: the rest is answered 429. A token that was seen before and a key, which come last, are answered long before the list is empty."""
    seen, key = issuer.token(sub="seen"), world.operator.secret
    assert world.by(seen, "GET", "/whoami").status == 200
    crowd = [plain for i in range(6) for plain in flood.connect(f"127.0.0.{2 + i}", SHARE)]
    (by_token,), (by_key,) = flood.connect("127.0.0.1"), flood.connect("127.0.0.1")
    with flood.stopped():
        for plain in crowd:
            flood.ask(plain, flood.forged())
        flood.ask(by_token, seen)
        flood.ask(by_key, key)
    assert read_response(by_token).json["caller"] == "seen" and read_response(by_key).json["caller"] == "operator"
    found = flood.statuses(crowd)
    assert found[429] > 0 and found[401] >= LIST and found.keys() == {401, 429}, found
    assert world.call("operator", "GET", "/metrics").body.decode().count(f"{LIMITED} {found[429]}\n") == 1
    assert world.refusals() == {"signature": found[401]}
    order = [line.get("caller", line["status"]) for line in world.redlockd.log("request")]
    for caller in ("seen", "operator"):
        after = order[::-1].index(caller)  # so many lines came later
        assert order[len(order) - after:].count("401") > LIST // 2, caller


def test_one_address_has_a_share(world, issuer, flood):
    """However many it sends: the new tokens of another address, which come last, are verified."""
    crowd, others = flood.connect("127.0.0.2", LIST + 512), flood.connect("127.0.0.1", 64)
    with flood.stopped():
        for plain in crowd:
            flood.ask(plain, flood.forged())
        for i, plain in enumerate(others):
            flood.ask(plain, issuer.token(sub=f"other{i}"))
    answers = [read_response(plain) for plain in others]
    assert [answer.status for answer in answers] == [200] * len(others), answers
    found = flood.statuses(crowd)
    assert found[401] >= SHARE and found[429] > 0, found
    again = crowd[:SHARE]  # nothing stays counted
    with flood.stopped():
        for plain in again:
            flood.ask(plain, flood.forged())
    assert flood.statuses(again) == {401: SHARE}
