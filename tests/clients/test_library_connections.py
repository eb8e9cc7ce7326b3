# SPDX-License-Identifier: MIT
"""Connections of the client libraries of all languages: kept, closed, cut and slow ones, servers that hang,
and servers that answer at once for ever."""

import fcntl
import os
import struct
import termios
import threading
import time

import pytest

import hostile_cases
from driver import Refused, driver, drivers, language  # noqa: F401
from fake_redlockd import TOKEN, fake  # noqa: F401
from harness import SLOW, starved_seconds, wait_until
from test_library_answers import outcome

TICKS = os.sysconf("SC_CLK_TCK")


def connections(*servers):
    """How many had a request."""
    return len({id(call.connection) for server in servers for call in server.calls})


def pairs(driver, count, resource="x", **options):
    for number in range(count):
        lease = driver.acquire(f"{resource}/{number}", ttl=20, **{"try": True}, **options)
        assert lease.fence == hostile_cases.RIGHT and lease.release()


# ---- kept connections ----


def test_pairs_share_a_connection(fake, driver):
    server = fake(port=True)
    driver.client(server.address)
    pairs(driver, 20)
    assert len(server.calls) == 40 and connections(server) == 1


def test_at_most_16_connections_for_what_does_not_wait(fake, driver):
    """The others queue for one."""
    busy, most, count = set(), [0], 100

    def slow(call):
        busy.add(id(call.connection))
        most[0] = max(most[0], len(busy))
        time.sleep(0.02)
        busy.discard(id(call.connection))
        call.lease()
    server = fake(acquire=slow)
    driver.client(server.address, timeout=20 * SLOW)
    asked = [driver.start("acquire", lease=f"l{n}", resource=f"x/{n}", ttl=60, **{"try": True}) for n in range(count)]
    assert {answers.get()["fence"] for answers in asked} == {7}
    for first in range(0, count, 20):  # a release has two seconds
        released = [driver.start("release", lease=f"l{n}") for n in range(first, first + 20)]
        assert all(answers.get()["released"] for answers in released)
    assert 1 < most[0] <= 16 and connections(server) <= 16, (most, connections(server))


def test_waits_and_watches_keep_no_other_request_from_a_connection(fake, driver):
    count = 20
    server = fake(acquire=lambda call: call.until_hung_up() if call.name.startswith("held") else call.lease(),
                  state=lambda call: call.until_hung_up())
    driver.client(server.address)
    for n in range(count):
        driver.start("acquire", lease=f"l{n}", resource=f"held/{n}", wait=60)
        driver.start("watch", resource=f"w{n}", count=1)
    wait_until(lambda: len(server.of("acquire")) == len(server.of("state")) == count, what="all wait")
    pairs(driver, 3)
    assert len({id(call.connection) for call in server.of("acquire") if call.name.startswith("held")}) == count


def test_time_in_the_queue_is_no_failure_of_the_server(fake, driver):
    """A renewal that gets none of the 16 connections in time goes to the next server. Other requests stay with the first one."""
    answers = threading.Event()

    def busy(call):
        assert not call.name.startswith("busy") or answers.wait(20 * SLOW)
        call.lease()
    first, second = fake(acquire=busy), fake()
    driver.client(first.address, second.address, timeout=20 * SLOW)
    lease = driver.acquire("x", ttl=9 * SLOW)
    asked = [driver.start("acquire", lease=f"l{n}", resource=f"busy/{n}", ttl=60, **{"try": True}) for n in range(16)]
    second.call("extend")
    answers.set()
    assert {each.get()["fence"] for each in asked} == {7} and not first.of("extend")
    pairs(driver, 1)
    assert first.of("acquire", name="x/0") and lease.release()


def closing_after(answer):
    """Closes the connection without a word in the answer."""
    def behave(call):
        answer(call)
        call.closes = True
    return behave


def test_a_kept_connection_that_the_server_closes(fake, driver):
    """Between two requests: the next one goes to the same server on a new connection."""
    first, second = (
        fake(
            port=True,
            acquire=closing_after(lambda call: call.lease()),
            release=closing_after(lambda call: call.answer(204)),
        ),
        fake(),
    )
    driver.client(first.address, second.address)
    pairs(driver, 20)
    assert not second.calls and len(first.of("acquire")) == len(first.of("release")) == 20


@pytest.mark.parametrize("kind, answer", [("acquire", lambda call: call.lease()), ("extend", lambda call: call.lease()),
                                          ("release", lambda call: call.answer(204))])
def test_a_request_that_meets_a_closed_connection_is_sent_again_at_once(fake, driver, kind, answer):
    """The server reads it and closes: it is no failure of the server, unless a new connection is closed so, too."""
    def on_a_new_one(call):
        known = [other for other in call.server.calls if other.connection is call.connection and other is not call]
        if not known:
            return answer(call)
        return None  # closes
    kept = {"Keep-Alive": "timeout=600"}  # until a third of the ttl is over, on a busy machine as well
    behaviour = {"acquire": lambda call: call.lease(headers=kept), kind: on_a_new_one}
    first, second = fake(**behaviour), fake()
    driver.client(first.address, second.address, timeout=20 * SLOW)
    assert driver.acquire("before", ttl=60 * SLOW).fence == 7  # on a connection that is kept
    lease = driver.acquire("x", ttl=9 * SLOW)
    if kind == "extend":
        first.call("extend", 1, name="x")
        lease.check()
    assert lease.release()
    asked = first.of(kind, name="x")
    assert len(asked) == 2 or kind == "extend" and asked[2].came - asked[1].came > 1.5 * SLOW  # the next
    assert asked[0].connection is not asked[1].connection and asked[0].body == asked[1].body
    assert asked[0].headers.get("idempotency-key") == asked[1].headers.get("idempotency-key") and not second.calls


def test_connection_close_is_obeyed(fake, driver):
    close = {"Connection": "close"}
    server = fake(
        port=True, acquire=lambda call: call.lease(headers=close), release=lambda call: call.answer(204, **close)
    )
    driver.client(server.address)
    pairs(driver, 5)
    assert connections(server) == len(server.calls) == 10


@pytest.mark.parametrize(
    "header, idle",
    [({"Keep-Alive": "timeout=1"}, 0.3), ({"Keep-Alive": "timeout=3"}, 2.2), ({}, 5.2)],
    ids=["1 s", "3 s", "not said"],
)
def test_an_idle_connection_is_not_used_when_the_server_may_close_it(fake, driver, header, idle):
    """A second before the time that the server names, and after five seconds where it names none."""
    server = fake(
        port=True, acquire=lambda call: call.lease(headers=header), release=lambda call: call.answer(204, **header)
    )
    driver.client(server.address)
    pairs(driver, 1)
    answered = time.monotonic()
    wait_until(lambda: time.monotonic() > answered + idle, what="the connection is idle")
    asked = len(server.calls)
    pairs(driver, 1)
    old, new = server.calls[:asked], server.calls[asked:]
    assert not {id(call.connection) for call in old} & {id(call.connection) for call in new}


def test_answers_on_a_kept_connection_that_are_cut(fake, driver):
    """At each of these bytes. Before the first one the request is sent again; afterwards it is as any lost answer."""
    cuts = (0, 1, 5, 9, 12, 13, 15, 17, 20, 40, -60, -40, -20, -2, -1)

    def cut(call):
        where, asked = int(call.name.rpartition("/")[2]), call.server.of("acquire", name=call.name)
        if call.name.startswith("cut/") and len(asked) == 1:
            content = hostile_cases.lease_text(call).encode()
            whole = (
                b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content)
                + content
            )
            call.send(whole[:where])
        else:
            call.lease()
    server = fake(acquire=cut)
    driver.client(server.address)
    for where in cuts:
        pairs(driver, 1)  # a connection is kept
        lease = driver.acquire(f"cut/{where}", ttl=20, **{"try": True})
        asked = server.of("acquire", name=f"cut/{where}")
        assert lease.fence == hostile_cases.RIGHT and lease.release() and len(asked) == 2, where
        assert len({call.headers["idempotency-key"] for call in asked}) == 1, where


def test_a_request_that_is_given_up_takes_its_connection_along(fake, driver):
    """Its answer must not become the one of the next request."""
    server = fake(
        acquire=lambda call: call.until_hung_up() if call.name == "held" and call.body.get("wait_ms") else call.lease()
    )
    driver.client(server.address)
    pairs(driver, 1)
    waits = driver.start("acquire", lease="it", resource="held", wait=50, interruptible=True)
    held = server.call("acquire", name="held")
    driver.start("interrupt")
    with pytest.raises(Refused, match="interrupted"):
        waits.get()
    pairs(driver, 1)
    later = server.calls[server.calls.index(held) + 1:]
    assert later and all(call.connection is not held.connection for call in later)


# ---- slow answers ----


def cpu_seconds(process):
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def until_read(connection):
    """Until the other end of a Unix socket has read all."""
    while struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]:
        time.sleep(0)


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_an_answer_in_small_pieces_costs_linear_time(fake, driver):
    """Chunks of a byte come one by one, 500 behind a few bytes or 3000 behind 1000 KiB: about six times the cost."""
    def state(call):
        pieces, padding = (3000, 1000 << 10) if call.name == "large" else (500, 10)
        start = b'{"resource":"%s","held":false,"padding":"%s","end":"' % (call.name.encode(), b"x" * padding)
        call.send(b"HTTP/1.1 200 OK\r\nETag: \"free\"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(start))
        for _ in range(pieces):
            call.send(chunk(b"y"))
            until_read(call.connection)
        call.send(chunk(b'"}') + chunk(b""), 200)
    server = fake(state=state)
    driver.client(server.address)
    costs = {}
    for name in ("warm", "small", "large"):
        before = cpu_seconds(driver.process)
        assert driver.ask("watch", resource=name, count=1)["state"]["held"] is False
        costs[name] = cpu_seconds(driver.process) - before
    assert costs["large"] < 9 * costs["small"] + 0.4, costs


@pytest.mark.parametrize("status, members", [(304, None), (200, {"held": False}), (200, {"resource": "x"}), (200, {"resource": "y", "held": False}),
                                             (503, {"code": "draining"})])
def test_the_state_is_that_of_the_server_that_answers(fake, driver, status, members):
    servers = [fake(state=lambda call: call.answer(status, members)), fake()]
    shown = driver.client(*(server.address for server in servers)).ask("state", resource="x")["state"]
    assert (shown["resource"], shown["held"], [len(server.of("state")) for server in servers]) == ("x", True, [1, 1])


# ---- servers that hang ----


def test_three_of_four_servers_hang(fake, driver):
    """The time that is left of the lease is divided among the servers that are to be asked."""
    ttl = 12 * SLOW
    servers = [fake(extend=lambda call: call.until_hung_up()) for _ in range(3)] + [fake()]
    lease = driver.client(*(server.address for server in servers)).acquire("x", ttl=ttl, margin=ttl / 100)
    wait_until(lambda: servers[-1].of("extend") or time.monotonic() > lease.sent + ttl)
    assert [len(server.of("extend")) for server in servers] == [1] * 4
    lease.until_renewed()
    lease.check()
    assert lease.release()


# ---- no storm ----


@pytest.mark.parametrize(
    "case", [case for case in hostile_cases.CASES.values() if case.must == "slowly"], ids=lambda case: case.name
)
def test_no_storm(fake, driver, case):
    """Answers that come at once and bring nothing new: the client goes on, at most twice a second."""
    server, starved = fake(**{case.call: case.answer}), starved_seconds()
    driver.client(server.address)
    if case.call == "acquire":
        driver.start("acquire", lease="it", resource=case.name, wait=60)
    else:
        driver.start("watch", resource=case.name, count=1000)
    took = server.call(case.call, 7).came - server.call(case.call, 1).came
    assert took > 2.4 - (starved_seconds() - starved), "three seconds, but for a request that the server saw late"


def test_a_watch_that_waited_goes_on_at_once(fake, driver):
    """A 304 after a real wait is no reason for a pause."""
    waited, count = 0.7, 8

    def state(call):
        if call.headers.get("if-none-match") != '"7"':
            return call.answer(200, {**call.names, "held": False}, ETag='"7"')
        time.sleep(waited)
        return call.answer(304, ETag='"7"')
    server = fake(state=state)
    driver.client(server.address).start("watch", resource="x", count=2)
    came = [server.call("state", number).came for number in range(1, count)]
    assert min(later - earlier for earlier, later in zip(came, came[1:])) < waited + 0.4


@pytest.mark.parametrize("kind", hostile_cases.INTERIM)
def test_interim_answers_to_a_watch_are_skipped(fake, driver, kind):
    server = fake(state=hostile_cases.interim(*hostile_cases.INTERIM[kind]))
    assert driver.client(server.address).ask("watch", resource="x", count=1)["state"]["held"] is True
    assert len(server.of("state")) == 1


def test_interim_answers_keep_the_connection(fake, driver):
    server = fake(port=True, acquire=hostile_cases.interim(103, 100))
    driver.client(server.address)
    pairs(driver, 3)
    assert connections(server) == 1


def test_an_hour_that_has_not_passed(fake, driver):
    """A wrong answer whose caller waits, with several servers: the next one gives the lease, under the same key."""
    first = fake(acquire=lambda call: call.lease(waited_ms=3600000))
    second = fake()
    driver.client(first.address, second.address)
    answers = driver.start("acquire", lease="it", resource="x", ttl=20, wait=60)
    assert outcome(answers) == 7 and driver.ask("remaining", lease="it")["remaining"] <= 20
    keys = {call.headers["idempotency-key"] for call in first.of("acquire") + second.of("acquire")}
    assert (
        len(keys) == len(first.of("acquire")) == len(second.of("acquire")) == 1
        and second.of("acquire")[0].body["resource"] == "x"
    )
    assert driver.ask("release", lease="it")["released"] and TOKEN == second.of("release")[0].body["token"]


# ---- headers of the program ----


def test_headers_of_the_program(fake, driver):
    """Those of a tracing library go with each request; none replaces one of the library or breaks the request."""
    server, trace = fake(port=True), f"00-{'4b' * 16}-{'f0' * 8}-01"
    own = {"Authorization": "mine", "lock-token": "mine", "IDEMPOTENCY-KEY": "mine", "Content-Length": "1", "Host": "mine", "User-Agent": "mine"}
    driver.client(server.address, key="KEY", headers={"traceparent": trace, **own, "bad name": "x", "X-Bad": "a\r\nX-Worse: b", "X-Good": "a b"})
    pairs(driver, 1)
    asked, released = server.calls
    for call in server.calls:
        assert (call.headers["traceparent"], call.headers["x-good"], call.headers["authorization"]) == (trace, "a b", "Bearer KEY")
        assert "x-bad" not in call.headers and "x-worse" not in call.headers and "mine" not in call.headers.values()
    assert asked.headers["idempotency-key"] and released.headers["lock-token"] == TOKEN


def test_a_token_that_is_replaced(fake, driver, tmp_path):
    """Each request has the one of now, and the last one where the file cannot be read."""
    server, path = fake(), tmp_path / "token"
    path.write_text("first.token\n")
    driver.client(server.address, token_file=str(path))
    for token in ("second.token", "two words", None):
        lease = driver.acquire(f"x/{token}", ttl=60)
        if token:
            (tmp_path / "new").write_text(f"{token}\n")
            (tmp_path / "new").replace(path)
        else:
            path.unlink()
        assert lease.release()
    sent = [call.headers["authorization"] for call in server.calls]
    assert sent == ["Bearer first.token"] + 5 * ["Bearer second.token"]
    with pytest.raises(Refused):
        driver.client(server.address, token_file=str(path))
    path.write_text("token")
    with pytest.raises(Refused, match="(?i)one of them only"):
        driver.client(server.address, token_file=str(path), key="KEY")
