# SPDX-License-Identifier: MIT
"""Commands of one script that come in the same moment go to a master as one: each is answered as if it had come alone."""

import itertools
import json
import pathlib
import random
import re
import signal
import time

import pytest

from harness import RedisError, Resp, freeze, read_response, wait_until
from test_fences import bucket_of

SCRIPTS = pathlib.Path(__file__).parents[2] / "server" / "scripts"
HASH = "redlockd:master"
DAY_US = 86400 * 10**6
NOW, LATER = 0, 3600 * 10**6  # from the time of the test
REPLICAS = ["a" * 16, "b" * 16]
TOKENS = ["1" * 40, "2" * 40]
ROUNDS, MOST = 60, 8


def script_text(name):
    """As it is built into redlockd: with the files of lib/ that it includes."""
    text = (SCRIPTS / name).read_text()
    return re.sub(r"^\t?--include (\S+)\n", lambda found: (SCRIPTS / "lib" / found[1]).read_text(), text, flags=re.M)


class Parts(Resp):
    """A connection on which an error is an answer, also within one."""

    def receive(self):
        try:
            return super().receive()
        except RedisError as error:
            return error

    def call(self, *command):
        self.send(*command)
        return self.receive()


@pytest.fixture
def pair(lab):
    """Two new servers: a connection to each."""
    connections = [Parts(server.path, 20) for server in lab.redises(2)]
    yield connections
    for connection in connections:
        connection.close()


def load(pair, script):
    """Its name on both servers."""
    names = [connection.call("SCRIPT", "LOAD", script_text(f"{script}.lua")) for connection in pair]
    assert names[0] == names[1]
    return names[0]


def draw_outside(draw, names):
    """Commands for both servers that make the state before the batch."""
    name, now_us = draw.choice(names), int(time.time() * 1e6)
    queue, place = f"redlockd:queue:{name}", f"{draw.choice(REPLICAS)}:{now_us + draw.randrange(1000):016d}"
    return draw.choice([
        [("DEL", name)], [("DEL", name)], [("DEL", name, queue)], [("DEL", name), ("HSET", name, "a", "b")],
        [("HSET", HASH, "epoch", draw.choice(["c" * 16, "d" * 16]))], [("HDEL", HASH, "epoch")],
        [("HSET", HASH, "floor", now_us + draw.randrange(-1000, 1000))], [("HSET", HASH, str(bucket_of(name)), now_us + draw.randrange(10**7))],
        [("HSET", HASH, "waited", now_us + LATER), ("DEL", queue), ("ZADD", queue, now_us, place)], [("HSET", HASH, "waited", now_us + LATER)],
        [("SET", f"redlockd:alive:{draw.choice(REPLICAS)}", "", "PX", "600000")], [("DEL", f"redlockd:alive:{draw.choice(REPLICAS)}")],
        [("HSET", HASH, "waited", now_us + LATER), ("DEL", queue), ("SET", queue, "no line")],
        [("DEL", HASH)], *([("SET", name, f"{token}:0:7:{key}:me", "PX", "900000")] for token in TOKENS for key in ("", "?" + "e" * 16)),
    ])


def draw_shared(draw, script):
    """The arguments that all requests of a batch share. What is carried out however late has no deadline."""
    is_urgent = script in ("acquire", "extend")
    deadline = int(time.time() * 1e6) + draw.choice([-LATER, LATER, LATER, LATER, 2 * LATER]) if is_urgent else 9999999999999999
    bounds = draw.choice(["", f"{int(time.time()) + draw.randrange(100)} 0"]) if is_urgent else ""
    return [draw.choice(["c" * 16, "c" * 16, "c" * 16, "-" * 16]), f"{deadline:016d}", "", bounds]


def draw_each(draw, script, name, number):
    """The arguments of one request. The largest of the fences are beyond what a master takes."""
    now_us, token = int(time.time() * 1e6), draw.choice([*TOKENS, ""])
    guess = now_us + draw.choice([-10**6, 0, number, number, number, 10**6, 2 * DAY_US])
    repair = f"!0 {draw.choice(['', now_us])}"
    place = draw.choice(["", "", f"{draw.choice(REPLICAS)}:{now_us + number:016d} {draw.choice([1, 60000])}"])
    return {"acquire": lambda: [f"{number:040x}", "600000", draw.choice([":me", "?" + "f" * 16 + ":"]), str(bucket_of(name)), str(guess), draw.choice([place, place, repair])],
            "extend": lambda: [token, draw.choice(["600000", "1200000"]), draw.choice(["", "7:" + "e" * 16]), str(bucket_of(name)), draw.choice(["", "1"])],
            "release": lambda: [token, draw.choice([place, place[:-5] + "0" if place.endswith(" 60000") else place]), draw.choice(["0", "0", "0", "600000"])],
            "inspect": lambda: [draw.choice(["0", "3600000"]), "100"]}[script]()


def without_times(answer, alone=False):
    """With a time that is left rounded to some minutes, and an error to its first words. One of a batch has a granted acquisition as a number."""
    if isinstance(answer, RedisError):
        return "error " + " ".join(str(answer).split()[:3])
    if isinstance(answer, int):
        return answer
    if isinstance(answer, str):
        answer = [1, 0, answer]
    if alone and answer[0] == 1:
        return answer[2]
    return [answer[0], *(round(part / 300000) * 300000 if isinstance(part, int) and part > 1000 else part for part in answer[2:])]


class Moment(int):
    """A time in microseconds. Two servers do the same some milliseconds apart."""

    def __eq__(self, other):
        return abs(int(self) - int(other)) < 5 * 10**6

    def __ne__(self, other):
        return not self == other

    __hash__ = None


def state_of(connection):
    """All that a server has."""
    state = {}
    for key in sorted(connection.call("KEYS", "*")):
        kind = connection.call("TYPE", key)
        read = {"string": ("GET", key), "hash": ("HGETALL", key), "zset": ("ZRANGE", key, "0", "-1", "WITHSCORES")}[kind]
        content = connection.call(*read)
        if kind == "hash":
            content = dict(zip(content[::2], content[1::2], strict=True))
            content["waited"] = Moment(content.get("waited", 0))
        state[key] = (kind, content, round(connection.call("PTTL", key) / 300000))
    return state


def check_alike(pair, script, draw):
    """The same requests as a batch on one server, and one by one on the other. Returns the kinds of answers."""
    together, alone = pair
    name = load(pair, script)
    numbers, names, seen = itertools.count(1), ["r1", "r2", "r3", "app:r 4"], set()
    for _ in range(ROUNDS):
        for command in itertools.chain.from_iterable(draw_outside(draw, names) for _ in range(draw.randrange(3))):
            assert together.call(*command) == alone.call(*command)
        keys = [draw.choice(names) for _ in range(draw.randrange(2, MOST + 1))]
        shared, each = draw_shared(draw, script), [draw_each(draw, script, key, next(numbers)) for key in keys]
        answer = together.call("EVALSHA", name, len(keys) + 1, *keys, HASH, *shared, *itertools.chain.from_iterable(each))
        parts = [answer] * len(keys) if answer[0] in (-2, -3) else answer[1:]
        assert abs((answer[1] if answer[0] in (-2, -3) else answer[0]) / 1e6 - time.time()) < 60
        expected = [alone.call("EVALSHA", name, 2, key, HASH, *shared, *words) for key, words in zip(keys, each, strict=True)]
        got = [without_times(part) for part in parts]
        assert got == [without_times(part, script == "acquire") for part in expected], (shared, keys, each)
        seen |= {part if isinstance(part, str) else "set" if isinstance(part, int) else part[0] for part in got}
        assert state_of(together) == state_of(alone), (shared, keys, each)
    return seen


# What is seen in each run: answers by their first number; "set", a granted acquisition.
SEEN = {"acquire": {"set", 0, -2, -3, -4}, "extend": {1, 0, -1, -2, -3}, "release": {1, 0, -1, -3}, "inspect": {0, -1, -3}}


@pytest.mark.parametrize("script", SEEN)
@pytest.mark.parametrize("seed", range(6))
def test_a_batch_does_what_its_parts_do_one_after_another(pair, seed, script):
    """Few names, so that they meet in a batch, also in one bucket."""
    seen = check_alike(pair, script, random.Random(f"{seed} {script}"))
    assert SEEN[script] <= seen, seen


def test_buckets_that_meet_in_a_batch_are_raised_one_after_another(pair):
    """The second of two resources of one bucket is told the number of the first, or the largest so far."""
    together, requests = pair[0], [("r1", 500), ("r2", 700), ("r3", 600)]
    arguments = [[f"{i:040x}", "60000", "", "77", str(guess), ""] for i, (_, guess) in enumerate(requests)]
    answer = together.call("EVALSHA", load(pair, "acquire"), 4, *(name for name, _ in requests), HASH, "-" * 16, "9" * 16, "", "",
                           *itertools.chain.from_iterable(arguments))
    assert answer[1:] == [0, 500, 700]
    assert together.call("HGET", HASH, "77") == "700"


# ---------------------------------------------------------------------------------------------------- through redlockd

def ask_at_once(service, requests):
    """Each request (method, path, body), all there before redlockd reads the first: the answers, in this order."""
    connections = [service.connect() for _ in requests]
    freeze(service.process)
    try:
        for plain, (method, path, members) in zip(connections, requests, strict=True):
            body = json.dumps(members).encode() if members else b""
            plain.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    finally:
        service.process.send_signal(signal.SIGCONT)
    answers = [read_response(plain) for plain in connections]
    for plain in connections:
        plain.close()
    return answers


def acquire_at_once(service, names):
    return ask_at_once(service, [("POST", "/locks", {"resource": name, "ttl_ms": 60000}) for name in names])


def test_requests_of_one_moment_share_their_commands(lab):
    """A hundred in a few commands, each with a lease of its own."""
    service = lab.service(3)
    before = [master.calls().get("evalsha", 0) for master in service.masters]
    answers = acquire_at_once(service, [f"shared/{i}" for i in range(100)])
    assert [answer.status for answer in answers] == [201] * 100
    leases = [answer.json for answer in answers]
    assert [lease["resource"] for lease in leases] == [f"shared/{i}" for i in range(100)]
    assert len({lease["fence"] for lease in leases}) == len({lease["token"] for lease in leases}) == 100
    for master, calls in zip(service.masters, before, strict=True):
        wait_until(lambda master=master: len(master.cli("KEYS", "shared/*")) == 100, what="all are set")
        for lease in leases:
            assert master.cli("GET", lease["resource"]).startswith(f"{lease['token']}:")
        assert master.calls()["evalsha"] - calls <= 30


def share(service, requests):
    """Their answers, and how many commands went to a master for them."""
    before = [master.calls().get("evalsha", 0) for master in service.masters]
    answers = ask_at_once(service, requests)
    return answers, max(master.calls()["evalsha"] - calls for master, calls in zip(service.masters, before, strict=True))


def test_extensions_inspections_and_releases_of_one_moment_share_their_commands(lab):
    service = lab.service(3)
    leases = [service.acquire(f"shared/{i}", 60000) for i in range(60)]
    extended, commands = share(service, [("PUT", f"/locks/{lease['resource']}", {"token": lease["token"], "ttl_ms": 50000}) for lease in leases])
    assert [(answer.status, answer.json["fence"]) for answer in extended] == [(200, lease["fence"]) for lease in leases] and commands <= 20
    seen, commands = share(service, [("GET", f"/locks/{lease['resource']}", None) for lease in leases])
    assert [(answer.status, answer.json["fence"]) for answer in seen] == [(200, lease["fence"]) for lease in leases] and commands <= 20
    released, commands = share(service, [("DELETE", f"/locks/{lease['resource']}", {"token": lease["token"]}) for lease in leases])
    assert [answer.status for answer in released] == [204] * 60 and commands <= 20
    for master in service.masters:
        wait_until(lambda master=master: master.cli("KEYS", "shared/*") == [], what="all are released")


def test_the_same_name_in_one_moment_has_one_holder(lab):
    service = lab.service(3)
    answers = acquire_at_once(service, ["one"] * 40)
    assert sorted(answer.status for answer in answers) == [201] + [409] * 39
    held = next(answer.json for answer in answers if answer.status == 201)
    assert {answer.json["fence"] for answer in answers if answer.status == 409 and "fence" in answer.json} <= {held["fence"]}


def test_what_is_wrong_with_one_is_nothing_to_the_others(lab):
    """A key of another type is in the place of the queue of a resource."""
    service = lab.service(3)
    for master in service.masters:
        master.cli("HSET", HASH, "waited", int(time.time() * 1e6) + LATER)
        master.cli("SET", "redlockd:queue:bad", "no line")
    answers = acquire_at_once(service, ["good/1", "bad", "good/2", "good/3"])
    assert [answer.status for answer in answers] == [201, 503, 201, 201]
    for master in service.masters:
        wait_until(lambda master=master: len(master.cli("KEYS", "good/*")) == 3, what="all are set")
        assert master.cli("KEYS", "bad") == []


def test_a_script_that_is_forgotten_is_sent_again_to_all(lab):
    service = lab.service(3)
    for master in service.masters:
        master.cli("SCRIPT", "FLUSH")
    answers = acquire_at_once(service, [f"again/{i}" for i in range(20)])
    assert [answer.status for answer in answers] == [201] * 20
