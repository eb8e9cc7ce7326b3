# SPDX-License-Identifier: MIT
"""redlockctl counts an answer only if it is the answer to what was asked. Anything else is as if no answer had come."""

import json

import pytest

from ctl import ctl
from fake_redlockd import TOKEN, fake  # noqa: F401


def changed(status=201, **members):
    def answer(call):
        ttl_ms = call.body.get("ttl_ms", 30000)
        lease = {"resource": call.body.get("resource"), "token": TOKEN, "fence": 7, "ttl_ms": ttl_ms, "validity_ms": ttl_ms - 10}
        call.answer(status, {**lease, **members})
    return answer


def first(wrong, right=changed(200)):
    left = [wrong]

    def answer(call):
        (left.pop() if left else right)(call)
    return answer


def cut(call):
    """The connection ends inside the headers."""
    call.connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Ty")


WRONG = {
    "resource": (changed(resource="another"), "another resource"),
    "token": (changed(token="x" * 40), "no valid token"),
    "fence": (changed(fence=0), "no valid fence"),
    "ttl": (changed(ttl_ms=3600000), "ttl_ms of the answer"),
    "validity": (changed(validity_ms=30001), "validity_ms of the answer"),
    "waited": (changed(waited_ms=3600000), "waited_ms of the answer"),
    "cut": (cut, ""),
}


@pytest.mark.parametrize("command", [["acquire"], ["run", "--no-wait"], ["run"]], ids=" ".join)
@pytest.mark.parametrize("wrong", WRONG)
def test_an_unusable_answer_is_asked_for_again_with_the_same_key(fake, resource, wrong, command):
    server = fake(acquire=first(WRONG[wrong][0]))
    done = ctl(command[0], resource, "--ttl", "30s", *command[1:], *(["--", "true"] if command[0] == "run" else []), server=server)
    assert done.returncode == 0, done.stderr
    calls = server.of("acquire")
    assert len(calls) == 2 and len({call.headers["idempotency-key"] for call in calls}) == 1
    without_wait = [{name: value for name, value in call.body.items() if name != "wait_ms"} for call in calls]
    assert without_wait[0] == without_wait[1]


@pytest.mark.parametrize("wrong", [wrong for wrong in WRONG if wrong != "cut"])
def test_the_message_says_what_was_wrong(fake, resource, wrong):
    answer, words = WRONG[wrong]
    server = fake(acquire=answer)
    done = ctl("acquire", resource, "--ttl", "30s", server=server)
    assert done.returncode == 76 and words in done.stderr and done.stdout == "", done


@pytest.mark.parametrize("wrong", [changed(200, token="0" * 40), changed(200, validity_ms=90000), changed(200, resource="another")])
def test_an_extension_that_is_not_the_one_asked_for_moves_on(fake, resource, wrong):
    one, other = fake(extend=wrong), fake(extend=changed(200))
    done = ctl("extend", resource, "--token", TOKEN, "--json", server=f"{one.address},{other.address}")
    assert done.returncode == 0 and json.loads(done.stdout)["validity_ms"] <= 29990, done.stderr
    assert len(one.of("extend")) == len(other.of("extend")) == 1


def test_a_long_body_is_called_long(fake, resource):
    server = fake(state=lambda call: call.answer(200, {"x": "y" * (9 << 20)}))
    done = ctl("status", resource, server=server)
    assert done.returncode != 0 and "its answer is too long" in done.stderr, done.stderr


def test_an_extension_is_answered_200_alone(fake, resource):
    one, other = fake(extend=changed(201)), fake(extend=changed(200))
    done = ctl("extend", resource, "--token", TOKEN, server=f"{one.address},{other.address}")
    assert done.returncode == 0 and len(other.of("extend")) == 1, done.stderr


def test_a_release_is_answered_204_alone(fake, resource):
    """A proxy that answers every request with a page has released nothing."""
    one, other = fake(release=lambda call: call.answer(200, {})), fake()
    done = ctl("release", resource, "--token", TOKEN, server=f"{one.address},{other.address}")
    assert done.returncode == 0 and len(other.of("release")) == 1, done.stderr
    done = ctl("release", resource, "--token", TOKEN, server=one.address)
    assert done.returncode == 76 and "status" in done.stderr, done


@pytest.mark.parametrize("status, code", [(400, "invalid-request"), (401, "unauthorized"), (403, "forbidden"), (404, "not-found"), (500, "x")])
@pytest.mark.parametrize("command", ["extend", "release"])
def test_a_refusal_by_one_server_is_not_that_of_all(fake, resource, command, status, code):
    def refuse(call):
        call.problem(status, code)
    one, other = fake(**{command: refuse}), fake(extend=changed(200))
    done = ctl(command, resource, "--token", TOKEN, server=f"{one.address},{other.address}")
    assert done.returncode == 0 and len(one.of(command)) == len(other.of(command)) == 1, done.stderr
