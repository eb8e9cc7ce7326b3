# SPDX-License-Identifier: MIT
"""Answers that a client must not believe, and some odd ones that it must take: one table for the suite and for
hostile_server.py.

The name of the lock chooses the case: a server of this file that is asked for the lock "CASE", or for one whose name
begins with "CASE/", answers the call of that case as the table says, once for each name, and everything else usefully.
It does so each time for a lock named "CASE/always", and in the cases of servers that answer at once for ever. A wrong
lease has the fence 666, a right one 7.
"""

import json
import time

from fake_server import ANSWERS, TOKEN

WRONG, RIGHT = 666, 7
OTHER_TOKEN = TOKEN[::-1]

# How a client shows that it keeps the rule, by what the servers see.
MUST = {
    "again": "asks again with the same Idempotency-Key",
    "next": "asks the next server at once",
    "taken": "takes it",
    "told": "tells the caller",
    "slowly": "asks at most twice a second",
}


class Case:
    """`call`: the kind of request that is answered so; `answer(call)`; `must`: of MUST; `asks`: options of the
    acquisition that the case needs; `says`: the member that the error must name if nothing else comes; `code`: of the
    error that the caller is told."""

    def __init__(self, name, call, answer, must, asks=None, says=None, code=None):
        self.name, self.call, self.answer, self.must = name, call, answer, must
        self.asks, self.says, self.code = asks or {}, says, code

    @property
    def several(self):
        """Whether the lock is one of several names."""
        return self.name.split("-")[1] == "set"

    def kept(self, first, second, name):
        """Whether the client kept the rule for the lock `name`, as this server and the next one of the list saw it."""
        asked, next_asked = (server.of(self.call, name=name) for server in (first, second))
        if self.must == "next":  # before the first one again, which it may ask later where the next one is slow
            return len(next_asked) >= 1 and sum(call.came < next_asked[0].came for call in asked) == 1
        if self.must == "slowly":
            return len(asked) <= 3 + 2 * (asked[-1].came - asked[0].came)
        keys = {call.headers.get("idempotency-key") for call in asked + next_asked}
        if self.must == "again":  # at the next server, if the client knows one
            return len(asked) + len(next_asked) == 2 and len(keys) == 1 and None not in keys
        if self.must == "told":  # a 503 may be asked again, to take back what it may have granted
            return len(keys) == 1
        return len(asked) == 1 and not next_asked


def lease_text(call, **members):
    """A lease as JSON with texts of JSON in the place of members; None leaves one out."""
    right = {name: json.dumps(value) for name, value in call.granted(fence=WRONG).items()}
    return "{" + ",".join(f'"{name}":{text}' for name, text in {**right, **members}.items() if text is not None) + "}"


def wrong(status=None, **members):
    def answer(call):
        texts = {name: text(call) if callable(text) else text for name, text in members.items()}
        call.answer(status or (200 if call.kind == "extend" else 201), lease_text(call, **texts).encode())
    return answer


def body(make, status=None):
    """`make(call)`: the bytes of a body."""
    return lambda call: call.answer(status or (200 if call.kind == "extend" else 201), make(call))


def cut(call):
    """The body is shorter than the answer says."""
    content = lease_text(call).encode()
    call.send(b"HTTP/1.1 201 X\r\nContent-Length: %d\r\n\r\n" % (len(content) + 5) + content)


def in_capitals(call):
    return json.dumps({name.upper(): value for name, value in call.granted(fence=WRONG).items()}).encode()


def long_head(call):
    content = lease_text(call).encode()
    call.send(b"HTTP/1.1 201 X\r\nX-Long: %s\r\nContent-Length: %d\r\n\r\n" % (b"x" * 20000, len(content)) + content)


NOT_INTEGERS = {
    "a-fraction": "7.5",
    "a-whole-fraction": "7.0",
    "an-exponent": "7e0",
    "a-text": '"7"',
    "true": "true",
    "null": "null",
    "a-list": "[7]",
    "huge": "1e400",
    "of-18-digits": "999999999999999999",
    "of-20-digits": "99999999999999999999",
    "missing": None,
}
TOO_LONG = {"above-the-ttl": lambda call: str(call.granted()["ttl_ms"] + 1), "of-a-year": str(31 * 10**9)}

# Wrong members of a lease, after each call that gets one: member → kind → its text, or a function of the call.
MEMBERS = {
    "resource": {
        "other": '"other"',
        "missing": None,
        "null": "null",
        "a-number": "7",
        "in-a-list": lambda call: json.dumps([call.name]),
        "longer": lambda call: json.dumps(call.name + " "),
        "in-capitals": lambda call: json.dumps(call.name.upper()),
    },
    "token": {
        "short": json.dumps(TOKEN[1:]),
        "long": json.dumps(TOKEN + "0"),
        "in-capitals": json.dumps(TOKEN.upper()),
        "missing": None,
        "null": "null",
        "a-number": "7",
        "empty": '""',
        "with-a-newline": json.dumps(TOKEN + "\n"),
        "not-hex": json.dumps("g" + TOKEN[1:]),
        "in-wide-digits": json.dumps("\uff11" + TOKEN[1:]),
    },
    "fence": {**NOT_INTEGERS, "zero": "0", "negative": "-1", "of-2-to-the-53": str(2**53)},
    "ttl_ms": {
        **NOT_INTEGERS,
        "zero": "0",
        "negative": "-1",
        "above-the-asked": lambda call: str(call.body["ttl_ms"] + 1),
    },
    "validity_ms": {**NOT_INTEGERS, **TOO_LONG, "zero": "0", "negative": "-5"},
}
SETS = {
    "other": lambda call: ["other", *call.names["resources"][1:]],
    "smaller": lambda call: call.names["resources"][1:],
    "larger": lambda call: [*call.names["resources"], "other"],
    "doubled": lambda call: call.names["resources"][:1] * len(call.names["resources"]),
}

# Whole answers that give no lease, to POST and to PUT.
BODIES = {
    "in-a-list": lambda call: f"[{lease_text(call)}]".encode(),
    "twice": lambda call: 2 * lease_text(call).encode(),
    "with-text-behind": lambda call: lease_text(call).encode() + b" x",
    "in-an-object": lambda call: f'{{"lease":{lease_text(call)}}}'.encode(),
    "in-capitals": in_capitals,
    "empty": lambda call: b"",
    "a-page": lambda call: b"<html>Welcome</html>",
    "null": lambda call: b"null",
    "not-utf-8": lambda call: lease_text(call, owner='"?"').encode().replace(b"?", b"\xff"),
    "deep": lambda call: b"[" * 100000,
    "above-1-mib": lambda call: lease_text(call, padding=json.dumps("x" * (1 << 20))).encode(),
}


def member_cases(call, prefix, must):
    found = [Case(f"{prefix}-{member}-{kind}".replace("_ms", ""), call, wrong(**{member: text}), must, says=member)
             for member, kinds in MEMBERS.items() for kind, text in kinds.items()]
    for kind, names in SETS.items():
        found.append(
            Case(
                f"{prefix}-set-{kind}",
                call,
                wrong(resources=lambda call, names=names: json.dumps(names(call))),
                must,
                says="resources",
            )
        )
    found.append(
        Case(
            f"{prefix}-set-as-one-name",
            call,
            wrong(resources=None, resource=lambda call: json.dumps(call.name)),
            must,
            says="resource",
        )
    )
    return found + [Case(f"{prefix}-body-{kind}", call, body(make), must) for kind, make in BODIES.items()]


def post_cases():
    found = member_cases("acquire", "post", "again")
    found += [
        Case(f"post-waited-{kind}", "acquire", wrong(waited_ms=text), "again", says="waited_ms")
        for kind, text in {**NOT_INTEGERS, "negative": "-1", "an-hour": "3600000"}.items()
        if kind not in ("missing", "null")
    ]
    found += [Case(f"post-slot-{kind}", "acquire", wrong(slot=text), "again", asks={"slots": 3}, says="slot")
              for kind, text in {**NOT_INTEGERS, "negative": "-1", "too-large": "3"}.items()]
    found.append(
        Case(
            "post-validity-above-a-cut-ttl",
            "acquire",
            wrong(ttl_ms="10000", validity_ms="15000"),
            "again",
            says="validity_ms",
        )
    )
    found += [
        Case("post-body-cut", "acquire", cut, "again"),
        Case("post-head-above-16-kib", "acquire", long_head, "again"),
        Case("post-only-validity", "acquire", body(lambda call: b'{"validity_ms":9}'), "again"),
        Case("post-no-content", "acquire", lambda call: call.answer(204), "again"),
    ]
    # A lease without a `code` is no error answer, whatever its status; nor is one with a code of another type.
    found += [Case(f"post-status-{status}", "acquire", wrong(status), "again") for status in
              (202, 203, 206, 300, 302, 400, 401, 403, 404, 409, 410, 429, 500, 502, 503, 599)]
    found.append(Case("post-status-409-with-a-number-as-code", "acquire", wrong(409, code="7"), "again"))
    return found + [
        Case(f"post-status-{status}-{code}", "acquire", wrong(status, code=json.dumps(code)), "told", code=code)
        for status, code in (
            (400, "invalid-request"),
            (401, "unauthorized"),
            (403, "forbidden"),
            (409, "locked"),
            (503, "draining"),
        )
    ]


def waited(call):
    """Twenty milliseconds that have passed, and are said."""
    time.sleep(0.02)
    call.lease(waited_ms=20)


TAKEN = {
    "the-largest-fence": lambda call: call.lease(fence=2**53 - 1),
    "validity-as-the-ttl": lambda call: call.lease(validity_ms=call.body["ttl_ms"]),
    "a-cut-ttl": lambda call: call.lease(ttl_ms=10000),
    "more-members": lambda call: call.lease(new=[{"a": [1e300, None]}], code=7, Fence=WRONG),
    "blanks": lambda call: call.answer(201, json.dumps(call.granted(), indent=2).encode() + b"\r\n"),
    "as-200": lambda call: call.lease(200),
    "waited": waited,
    "set-in-another-order": lambda call: call.lease(resources=call.names["resources"][::-1]),
}


def renewal_cases():
    found = member_cases("extend", "put", "next")
    found.append(Case("put-token-other", "extend", wrong(token=json.dumps(OTHER_TOKEN)), "next", says="token"))
    found.append(Case("put-only-validity", "extend", body(lambda call: b'{"validity_ms":1000}'), "next"))
    found.append(Case("put-body-cut", "extend", cut, "next"))
    found += [
        Case(f"put-status-{status}", "extend", wrong(status), "next")
        for status in (201, 202, 206, 302, 400, 401, 409, 410, 500, 503)
    ]
    found += [
        Case("put-no-content", "extend", lambda call: call.answer(204), "next"),
        Case("put-304", "extend", lambda call: call.answer(304), "next"),
    ]
    found.append(Case("put-hung", "extend", lambda call: call.until_hung_up(), "next"))
    return found + refusal_cases("extend", "put")


def refusal_cases(call, prefix):
    """Refusals that are not final: another server may say otherwise."""
    codes = (
        (400, "invalid-request"),
        (401, "unauthorized"),
        (403, "forbidden"),
        (404, "not-found"),
        (429, "too-many-requests"),
        (500, "internal-error"),
        (503, "no-quorum"),
        (409, "locked"),
        (409, "lease-expired"),
        (410, "not-owner"),
        (418, "new-error"),
    )
    return [
        Case(
            f"{prefix}-refused-{status}-{code}",
            call,
            lambda call, status=status, code=code: call.problem(status, code),
            "next",
        )
        for status, code in codes
    ]


def release_cases():
    found = refusal_cases("release", "delete")
    found += [Case(f"delete-status-{status}", "release", lambda call, status=status: call.answer(status, {}), "next")
              for status in (200, 201, 202, 302, 400, 401, 404, 409, 410, 500, 502, 503)]
    return [
        *found,
        Case("delete-304", "release", lambda call: call.answer(304), "next"),
        Case("delete-cut", "release", lambda call: call.send(b"HTTP/1.1 20"), "next"),
    ]


def interim(*statuses):
    """Answers that are none yet, each in a segment of its own; a field is in the last."""
    def answer(call):
        for status in statuses:
            call.connection.sendall(
                f"HTTP/1.1 {status} X\r\n\r\n".encode()
                if status != 103
                else b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n"
            )
            time.sleep(0.02)
        ANSWERS[call.kind](call)
    return answer


INTERIM = {"100": (100,), "102": (102,), "103": (103,), "several": (100, 103, 102, 102, 103)}


def odd_cases():
    found = [Case(f"taken-{kind}", "acquire", answer, "taken") for kind, answer in TAKEN.items()]
    return found + [
        Case(f"{verb}-interim-{kind}", call, interim(*statuses), "taken")
        for verb, call in (("post", "acquire"), ("put", "extend"), ("delete", "release"))
        for kind, statuses in INTERIM.items()
    ]


def not_modified(call):
    if call.headers.get("if-none-match") == '"7"':
        call.answer(304, ETag='"7"')
    else:
        call.answer(200, {**call.names, "held": False}, ETag='"7"')


AT_ONCE = {
    "409-with-a-place": ("acquire", lambda call: call.problem(409, "locked", place_kept_ms=2000)),
    "304": ("state", not_modified),
    "same-state": ("state", lambda call: call.answer(200, {**call.names, "held": False}, ETag='"7"')),
    "state-without-a-tag": ("state", lambda call: call.state()),
}


def storm_cases():
    return [Case(f"at-once-{kind}", call, answer, "slowly") for kind, (call, answer) in AT_ONCE.items()]


CASES = {case.name: case for case in post_cases() + renewal_cases() + release_cases() + odd_cases() + storm_cases()}


def behave(call, only=None):
    """Of a server: answers as the case says whose name the lock has, or always as `only` does."""
    case = only or CASES.get(call.name.split("/")[0])
    if case and case.call == call.kind:
        always = case.must == "slowly" or call.name.endswith("/always")
        if always or call.server.of(call.kind, name=call.name)[0] is call:
            return case.answer(call)
    return ANSWERS[call.kind](call)
