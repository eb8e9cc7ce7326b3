# SPDX-License-Identifier: MIT
"""The rights of callers over HTTP: every route × every kind of caller × every set of rights × many spellings of
resources. Each answer is compared with the rule of the documentation, which is written a second time here. One service,
one keep-alive connection; nothing is skipped, nothing is random."""

import collections
import itertools
import json
import re

import pytest

import harness
from harness import SCALE, read_response, run_redlockd, wait_until
from key_fixtures import RIGHTS, Key, new_secret
from token_fixtures import Issuer, Signer, Tokened, rule

SUBSETS = [[right for bit, right in enumerate(RIGHTS) if number >> bit & 1] for number in range(1, 16)]
PREFIXES = {"orders": ["orders/"], "all": [""], "cafe": ["caf\u00e9/"], "two": ["a/", "orders/4"]}
NAME_MAX = 256
NUMBERS = itertools.count(1)
TOKEN = "0123456789abcdef0123456789abcdef01234567"

# Spellings of resources in a path or a query. decode() below gives their meaning.
SPELLINGS = [
    "orders/", "orders/42", "orders/4", "orders/5", "orders", "order", "orders2/1", "Orders/42", "ORDERS/42", "/orders/42", "a/orders/42", "a/", "a",
    "%6frders/42", "%6Frders/42", "orders%2F42", "orders%2f42", "%6f%72%64%65%72%73%2f%34%32", "orders%252F42", "orders%25252f42", "%256frders/42",
    "orders/%2e%2e/billing/1", "orders/../billing/1", "billing/%2e%2e/orders/42", "billing/../orders/42", "./orders/42", "%2e/orders/42", "orders//42",
    "orders%5c42", "orders%3a42", "orders;/42", "orders+/42", "orders%20/42", "%20orders/42", "orders%EF%BC%8F42", "orders%E2%81%8442",
    "caf%C3%A9/1", "caf%c3%a9/1", "cafe%CC%81/1", "cafe/1", "CAF%C3%89/1", "caf%C3%A9", "caf%C3%A8/1",
    # not a resource at all
    "", "%", "orders/%", "orders/%4", "orders/%zz", "orders/%u0034", "orders%c0%af42", "orders%e0%80%af42", "orders%ff/42", "caf%C3", "orders/%ed%a0%80",
    "orders/42%00", "%00orders/42", "orders%00/42", "orders/42%0a", "orders/42%0d%0aX: y".replace(" ", "%20"), "orders/%7f", "orders/%c2%85",
    "redlockd:master", "redlockd%3amaster", "orders/" + "x" * (NAME_MAX - 7), "orders/" + "x" * (NAME_MAX - 6),
]


# ---- the rule, from the documentation ----


def decode(spelling, plus=False):
    """The bytes that are meant, or None where it is no proper spelling."""
    out, at = bytearray(), 0
    while at < len(spelling):
        char = spelling[at]
        if char == "%":
            digits = spelling[at + 1:at + 3]
            if not re.fullmatch(r"[0-9a-fA-F]{2}", digits):
                return None
            out.append(int(digits, 16))
            at += 3
            continue
        out += b" " if char == "+" and plus else char.encode()
        at += 1
    return bytes(out)


def is_text(name):
    """At most 256 bytes of UTF-8 without control characters."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return False
    return len(name) <= NAME_MAX and not any(ord(char) < 0x20 or 0x7f <= ord(char) < 0xa0 for char in text)


def is_resource(name):
    return name is not None and 1 <= len(name) and is_text(name) and b"redlockd:" not in name and not {b".", b".."} & set(name.split(b"/"))


def is_within(name, prefixes):
    return any(name.startswith(prefix.encode()) for prefix in prefixes)


# The rights that each call needs. None: nothing; "known": any caller; "token": the token in the request; otherwise a
# right and a prefix.
NEEDS = {("GET", "/healthz"): None, ("GET", "/readyz"): None, ("GET", "/openapi.yaml"): None, ("GET", "/docs/errors"): None, ("GET", "/"): None,
         ("GET", "/metrics"): "known", ("GET", "/masters"): "known", ("GET", "/stats"): "known", ("GET", "/version"): "known",
         ("GET", "/whoami"): "known",
         ("POST", "/locks"): "acquire", ("GET", "/locks/{resource}"): "inspect", ("GET", "/locks"): "list",
         ("PUT", "/locks/{resource}"): "token", ("DELETE", "/locks/{resource}"): "token",
         ("PUT", "/locks"): "token", ("DELETE", "/locks"): "token"}
# The answers to allowed and valid requests. No lock is held, and the token belongs to no lease.
DONE = {"POST": 201, "GET": 200, "HEAD": 200, "PUT": 410, "DELETE": 410}


class Caller:
    """Headers, and who they say calls: a Key, or None; `twice`: a key is given twice, and who calls is not clear."""

    def __init__(self, label, headers, one=None, twice=False):
        self.label, self.headers, self.key, self.twice = label, headers, one, twice

    def has(self, right):
        return self.key is not None and right in self.key.entry["rights"]

    def is_within(self, name):
        return is_within(name, self.key.entry["prefixes"])


def expected(need, caller, name, proper):
    """The status of the refusal, or None. Checked in order: the caller, its right, the name of the resource, its
    prefixes."""
    if need not in (None, "token"):
        if caller.key is None:
            return 401
        if need != "known" and not caller.has(need):
            return 403
    if not proper or caller.twice:
        return 400
    if need in RIGHTS and not caller.is_within(name):
        return 403
    return None


# ---- the requests ----


class Call:
    """One request: how it is written, what it needs, which bytes it names (None: none), and whether it is proper but for its caller."""

    def __init__(self, label, method, target, need, *, name=None, proper=True, body=None, more=()):
        self.label, self.method, self.target, self.need, self.name, self.proper, self.body, self.more = label, method, target, need, name, proper, body, more

    def text(self, caller):
        lines = [f"{self.method} {self.target} HTTP/1.1", "Host: localhost", *caller.headers, *self.more]
        if self.body is not None:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + (self.body or b"")


def path_calls(spelling):
    """Every call with a resource in its path."""
    name, target = decode(spelling), "/locks/" + spelling
    proper, token = is_resource(name), (f"Lock-Token: {TOKEN}",)
    yield Call("inspect", "GET", target, "inspect", name=name, proper=proper)
    yield Call("inspect head", "HEAD", target, "inspect", name=name, proper=proper)
    yield Call("extend", "PUT", target, "token", name=name, proper=proper, more=token)
    yield Call("release", "DELETE", target, "token", name=name, proper=proper, more=token)
    yield Call("force", "DELETE", target + "?force=true", "admin", name=name, proper=proper)


def body_calls(spelling):
    """An acquisition: of the bytes that the spelling means, of the same in \\u escapes, and of the spelling itself, which means itself in JSON."""
    name = decode(spelling)
    if name is not None:
        raw = name.replace(b"\\", b"\\\\")
        yield Call("acquire", "POST", "/locks", "acquire", name=name, proper=is_resource(name), body=b'{"resource":"' + raw + b'"}')
    if name is not None and is_text(name):
        yield Call("acquire escaped", "POST", "/locks", "acquire", name=name, proper=is_resource(name), body=b'{"resource":"%s"}' % escape(name.decode()))
    itself = spelling.encode()
    yield Call("acquire literal", "POST", "/locks", "acquire", name=itself, proper=is_resource(itself), body=json.dumps({"resource": spelling}).encode())


def escape(text):
    return "".join(f"\\u{ord(char):04x}" for char in text).encode()


def elsewhere_calls(spelling):
    """What path_calls() asks for, with the resource in the body or in the query."""
    name, token = decode(spelling), {"token": TOKEN}
    if name is not None and is_text(name):
        proper = is_resource(name)
        for label, method, target, need, more in (("extend in body", "PUT", "/locks", "token", token), ("release in body", "DELETE", "/locks", "token", token),
                                                  ("force in body", "DELETE", "/locks?force=true", "admin", {})):
            yield Call(label, method, target, need, name=name, proper=proper, body=json.dumps({"resource": name.decode(), **more}).encode())
    name = decode(spelling, plus=True)
    for label, method in (("inspect by query", "GET"), ("inspect by query head", "HEAD")):
        yield Call(label, method, "/locks?resource=" + spelling, "inspect", name=name, proper=is_resource(name))


def list_calls(spelling):
    name = decode(spelling, plus=True)
    proper = name is not None and is_text(name)
    yield Call("list", "GET", "/locks?prefix=" + spelling, "list", name=name, proper=proper)
    yield Call("list, limit", "GET", "/locks?limit=1&prefix=" + spelling, "list", name=name, proper=proper)


def plain_calls():
    for (method, path), need in NEEDS.items():
        if "{resource}" not in path and method == "GET":
            yield Call(path, "GET", path, need, name=b"")
            yield Call(path + " head", "HEAD", path, need, name=b"")
    yield Call("no member", "POST", "/locks", "acquire", name=b"", proper=False, body=b"{}")
    yield Call("two members", "POST", "/locks", "acquire", name=b"", proper=False, body=b'{"resource":"orders/1","resource":"billing/1"}')
    yield Call("list twice", "GET", "/locks?prefix=orders/&prefix=billing/", "list", name=b"", proper=False)
    yield Call("list, name encoded", "GET", "/locks?%70refix=orders/", "list", name=b"", proper=False)  # names of parameters stand for themselves
    yield Call("inspect, query", "GET", "/locks/billing/1?prefix=orders/", "inspect", name=b"billing/1", proper=False)
    yield Call("force is false", "DELETE", "/locks/orders/42?force=false", "admin", name=b"orders/42", proper=False)
    yield Call("list and one", "GET", "/locks?resource=orders/42&prefix=orders/", "inspect", name=b"orders/42", proper=False)
    yield Call("name in path and query", "GET", "/locks/orders/42?resource=billing/1", "inspect", name=b"orders/42", proper=False)
    yield Call("name in path and body", "PUT", "/locks/orders/42", "token", name=b"orders/42", proper=False, body=b'{"resource":"billing/1"}', more=(f"Lock-Token: {TOKEN}",))
    yield Call("force and token", "DELETE", "/locks/orders/42?force=true", "admin", name=b"orders/42", proper=False, more=(f"Lock-Token: {TOKEN}",))


def all_calls():
    yield from plain_calls()
    for spelling in SPELLINGS:
        yield from path_calls(spelling)
        yield from body_calls(spelling)
        yield from elsewhere_calls(spelling)
        yield from list_calls(spelling)


def strangers(one):
    """Headers that name no caller, and other headers that name the caller `one`."""
    secret, other = one.secret, new_secret()
    nobody = {
        "nobody": [], "wrong key": [f"Authorization: Bearer {other}"], "wrong key, other header": [f"X-Api-Key: {other}"],
        "cut": [f"Authorization: Bearer {secret[:-1]}"], "longer": [f"X-Api-Key: {secret}A"], "upper case": [f"X-Api-Key: {secret.upper()}"],
        "prefix left out": [f"X-Api-Key: {secret[4:]}"], "its hash": [f"X-Api-Key: {one.entry['sha256']}"], "its name": [f"X-Api-Key: {one.name}"],
        "empty": ["X-Api-Key:"], "no key": ["Authorization: Bearer"], "no key either": ["Authorization: Bearer "], "no scheme": [f"Authorization: {secret}"],
        "basic": [f"Authorization: Basic {secret}"], "token scheme": [f"Authorization: Token {secret}"], "quoted": [f'Authorization: Bearer "{secret}"'],
        "two in one": [f"Authorization: Bearer {secret} {secret}"], "list": [f"Authorization: Bearer {secret},{other}"],
        "tab": [f"Authorization: Bearer\t{secret}"], "inside": [f"X-Api-Key: {secret[:20]} {secret[20:]}"], "very long": [f"X-Api-Key: {secret}{'A' * 300}"],
        "not ASCII": [f"X-Api-Key: {secret}\u00e9"], "cookie": [f"Cookie: key={secret}"],
        "another header": [f"X-Api-Keys: {secret}", f"Api-Key: {secret}", f"Proxy-Authorization: Bearer {secret}"],
    }
    for label, headers in nobody.items():
        yield Caller(label, headers)
    somebody = {"other header": [f"X-Api-Key: {secret}"], "small letters": [f"authorization: bearer {secret}"], "capitals": [f"X-API-KEY:{secret}"],
                "beside another scheme": ["Authorization: Basic dTpw", f"X-Api-Key: {secret}"], "blanks": [f"Authorization:  Bearer   {secret}  "],
                "blanks behind": [f"X-Api-Key:{secret} \t "]}
    for label, headers in somebody.items():
        yield Caller(label, headers, one)
    both = {"both": [f"Authorization: Bearer {secret}", f"X-Api-Key: {secret}"], "twice": [f"X-Api-Key: {secret}", f"X-Api-Key: {secret}"],
            "Bearer twice": [f"Authorization: Bearer {secret}", f"Authorization: Bearer {secret}"]}
    for label, headers in both.items():
        yield Caller(label, headers, one, twice=True)


# ---- the matrix ----


class Wire:
    """Requests over one connection as long as it is kept. A connection that is closed has to say so before."""

    def __init__(self, address):
        self.address, self.plain = address, None

    def ask(self, call, caller):
        self.plain = self.plain or harness.connect_to(self.address)
        self.plain.sendall(call.text(caller))
        answer = read_response(self.plain, call.method)
        assert answer is not None, f"{call.text(caller)!r}: closed without an answer"
        if answer.headers.get("connection") == "close":
            self.close()
        return answer

    def close(self):
        if self.plain:
            self.plain.close()
        self.plain = None


def check_refusal(call, answer, secrets):
    code = {400: "invalid-request", 401: "unauthorized", 403: "forbidden"}[answer.status]
    assert (answer.headers.get("www-authenticate") == 'Bearer realm="redlockd"') == (answer.status == 401), answer
    if call.method != "HEAD":
        assert answer.code == code, answer
        if answer.status == 403 and call.need in RIGHTS:
            assert ("prefix" in answer.json["detail"]) != (f"the right {call.need}" in answer.json["detail"]), answer
    assert not any(secret.encode() in answer.body for secret in secrets), answer


class Matrix:
    """Runs them all, and counts."""

    def __init__(self, keyed):
        self.keyed, self.wire = keyed, Wire(keyed.redlockd.address)
        self.statuses, self.named, self.wrong = collections.Counter(), collections.Counter(), []

    def run(self, call, caller):
        answer, refusal = self.wire.ask(call, caller), expected(call.need, caller, call.name, call.proper)
        wanted = refusal or DONE[call.method]
        self.statuses[answer.status] += 1
        if caller.key is not None and call.need not in (None, "token"):
            self.named[caller.key.name] += 1
        if answer.status != wanted:
            self.wrong.append(f"{wanted} expected from {caller.label}: {call.text(caller)!r}: {answer}")
        elif refusal is not None:
            check_refusal(call, answer, self.keyed.all_secrets())
        elif call.method == "POST":
            lease = answer.json
            assert lease["resource"].encode() == call.name, answer
            self.give_back(lease)

    def give_back(self, lease):
        release = Call("give back", "DELETE", "/locks/" + harness.quote(lease["resource"]), "token", more=(f"Lock-Token: {lease['token']}",))
        answer = self.wire.ask(release, Caller("nobody", []))
        assert answer.status == 204, answer
        self.statuses[204] += 1


@pytest.fixture(scope="module", name="keyed")
def keyed_service():
    keys = [Key(f"{label}-{'-'.join(rights)}", prefixes, rights) for (label, prefixes), rights in itertools.product(PREFIXES.items(), SUBSETS)]
    with harness.Lab() as lab:
        issuer = Issuer(lab, "https://issuer.example", Signer("ec", "ES256"))
        world = Tokened(lab, [issuer.entry([rule({"sub": one.name}, "{sub}", one.entry["prefixes"], one.entry["rights"]) for one in keys])], keys=keys)
        world.issuer = issuer
        yield world


def run_matrix(keyed, callers, calls, record_property):
    matrix = Matrix(keyed)
    callers = callers[::max(1, round(1 / SCALE))]
    for caller, call in itertools.product(callers, calls):
        matrix.run(call, caller)
    matrix.wire.close()
    size = f"{len(callers)} callers × {len(calls)} requests = {len(callers) * len(calls)}; answers: {dict(sorted(matrix.statuses.items()))}"
    print(size)
    record_property("matrix", size)
    assert not matrix.wrong, f"{len(matrix.wrong)} are wrong:\n" + "\n".join(matrix.wrong[:20])
    assert {200, 201, 400, 403, 410} <= set(matrix.statuses)
    check_nothing_stays(keyed)
    return matrix


def check_nothing_stays(keyed):
    """No refused acquisition has reached a master. One worker sends its commands to a master in their order: once a last lease is there, all is there."""
    mark = f"orders/mark-{next(NUMBERS)}"
    assert keyed.call("operator", "POST", "/locks", body={"resource": mark, "ttl_ms": 60000}).status == 201
    for master in keyed.masters:
        wait_until(lambda one=master: one.cli("EXISTS", mark), what="the last lease")
        assert [name for name in master.cli("KEYS", "*") if not name.startswith("redlockd:")] == [mark]
    assert keyed.call("operator", "DELETE", f"/locks/{mark}?force=true").status == 204
    for master in keyed.masters:
        wait_until(lambda one=master: not one.cli("EXISTS", mark), what="its release")


def whole_log(keyed):
    """The log with the lines of all requests so far: a line is written a moment after its answer, but in order."""
    mark = f"mark-{next(NUMBERS)}"
    keyed.call(None, "GET", "/openapi.yaml", headers={"X-Request-Id": mark})
    wait_until(lambda: any(line.get("id") == mark for line in keyed.redlockd.log()), what="the last line")
    return keyed.redlockd.log()


def check_log(keyed, matrix, lines):
    """The log names the caller of each request where that is configured, and never a key."""
    for secret in keyed.all_secrets():
        assert secret not in keyed.redlockd.stderr()
    named = collections.Counter(line["caller"] for line in lines if line["event"] == "request" and "caller" in line)
    assert named == matrix.named
    for line in lines:
        if line.get("status") == "401":
            assert line["code"] == "unauthorized" and line["address"] == "127.0.0.1" and "caller" not in line, line
        if line.get("status") == "403":
            assert line["code"] == "forbidden" and line["address"] == "127.0.0.1" and "caller" in line, line


def test_the_routes_are_those_of_the_program():
    printed = {tuple(line.split()[:2]) for line in run_redlockd("--help=routes").stdout.splitlines() if not line.startswith("*")}
    assert printed == set(NEEDS)


@pytest.mark.slow
def test_every_right_on_every_resource(keyed, record_property):
    """Each key of the file, and no key, with each request."""
    callers = [Caller(one.name, [f"Authorization: Bearer {one.secret}"], one) for one in keyed.keys.values() if one is not keyed.operator]
    callers += [Caller("nobody", []), Caller("wrong key", [f"Authorization: Bearer {new_secret()}"])]
    before = len(whole_log(keyed))
    matrix = run_matrix(keyed, callers, list(all_calls()), record_property)
    for name in matrix.named:
        matrix.named[name] -= 6  # /metrics, /stats and /masters, GET and HEAD: logged at debug alone
    matrix.named["operator"] += 2  # of check_nothing_stays()
    check_log(keyed, matrix, whole_log(keyed)[before:])


def test_every_way_to_say_who_calls(keyed, record_property):
    """All spellings of a key, true and false ones, of a key that may everything and of one that may little."""
    callers = [*strangers(keyed.operator), *strangers(keyed.keys["orders-acquire"])]
    calls = [*plain_calls(), *(call for spelling in ("orders/42", "billing/1", "orders/%00") for make in (path_calls, body_calls, elsewhere_calls, list_calls)
                               for call in make(spelling))]
    run_matrix(keyed, callers, calls, record_property)


class Fresh(Caller):
    """A caller with another token for each request, so that none was seen before."""

    def __init__(self, issuer, one):
        super().__init__(f"fresh {one.name}", [], one)
        self.issuer = issuer

    def text_headers(self):
        return [f"Authorization: Bearer {self.issuer.token(sub=self.key.name, jti=next(NUMBERS))}"]

    headers = property(text_headers, lambda self, _: None)


def test_tokens_have_the_rights_of_their_rule(keyed, record_property):
    """A rule for each key, with its prefixes and rights: tokens seen for the first time and again, and bad ones, which name nobody."""
    keys = [one for one in keyed.keys.values() if one is not keyed.operator]
    callers = [Caller(one.name, [f"Authorization: Bearer {keyed.issuer.token(sub=one.name)}"], one) for one in keys]
    callers += [Fresh(keyed.issuer, one) for one in keys[::7]]
    callers += [Caller("expired", [f"Authorization: Bearer {keyed.issuer.token(sub=keys[0].name, seconds=-100)}"]),
                Caller("unsigned", [f"Authorization: Bearer {keyed.issuer.token(sub=keys[0].name)[:-8]}AAAAAAAA"])]
    calls = [*plain_calls(), *(call for spelling in ("orders/42", "%6frders%2f42", "billing/1", "orders/%00")
                               for make in (path_calls, body_calls, elsewhere_calls, list_calls) for call in make(spelling))]
    run_matrix(keyed, callers, calls, record_property)


def test_a_lease_that_is_held(keyed):
    """The same with a held lock: only callers with the right see it, only those with a key learn that it is held, and only the token or admin ends it."""
    lease = keyed.call("operator", "POST", "/locks", body={"resource": "orders/42", "ttl_ms": 60000}).json
    wire, wrong, count = Wire(keyed.redlockd.address), [], 0
    for one in [*keyed.keys.values(), None]:
        caller = Caller(one.name, [f"X-Api-Key: {one.secret}"], one) if one else Caller("nobody", [])
        for call in (call for spelling in ("orders/42", "%6frders%2f42") for make in (path_calls, elsewhere_calls) for call in make(spelling)):
            refusal = expected(call.need, caller, call.name, call.proper)
            if refusal is None and call.label.startswith("force"):
                continue  # that one may: below
            wanted = refusal or (200 if call.need == "inspect" else 409 if one else 410)
            answer = wire.ask(call, caller)
            count += 1
            if answer.status != wanted:
                wrong.append(f"{wanted} expected from {caller.label}: {call.text(caller)!r}: {answer}")
            assert lease["token"].encode() not in answer.body
    wire.close()
    print(f"{count} requests for a lock that is held")
    assert not wrong, "\n".join(wrong[:20])
    assert keyed.call("operator", "GET", "/locks/orders/42").json["held"]
    assert keyed.call(None, "PUT", "/locks/orders/42", body={"token": lease["token"]}).status == 200  # the token is the right
    assert keyed.call("all-admin", "DELETE", "/locks/%6frders%2f42?force=true").status == 204
    assert not keyed.call("operator", "GET", "/locks/orders/42").json["held"]
    check_nothing_stays(keyed)
