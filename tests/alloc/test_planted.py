"""The sweep must notice mutations: harm done where an allocation fails, and answers that lack something."""

import copy
import re

import pytest

from kinds import by_name
from world import (CLOSED, MUTATION_CRASH, MUTATION_DESCRIPTOR, MUTATION_HANG, MUTATION_LEAK, SLACK, Answer, Broken, Kind, World, differences, sweep)


@pytest.fixture
def world():
    with World() as made:
        yield made


@pytest.mark.parametrize(("mutation", "told"), [(MUTATION_CRASH, "the process ended with -6"), (MUTATION_DESCRIPTOR, "descriptors are closed"),
                                               (MUTATION_HANG, "timed out")], ids=["crash", "descriptor", "hang"])
def test_harm_is_seen(world, mutation, told):
    (kind,) = by_name("healthz")
    world.control.fields.mutation = mutation
    result = sweep(world, kind, most=2)
    world.control.fields.mutation = 0
    world.restart()
    assert len(result.problems) == 2 and all(told in problem for problem in result.problems), result.problems


def test_a_leak_is_seen(world):
    (kind,) = by_name("version")
    world.control.fields.mutation = MUTATION_LEAK
    result = sweep(world, kind)
    world.control.fields.mutation = 0
    world.restart()  # without a look for leaks at its end
    assert result.grown >= result.count - SLACK > SLACK, result.grown
    with pytest.raises(AssertionError, match="blocks more"):
        result.check()


def test_a_lock_left_behind_is_seen(world):
    def request(inner, _):
        if inner.control.fields.fail_at == 2:
            inner.masters[1].cli("SET", "alloc/left", "x")
        return [inner.call("GET", "/healthz")]
    result = sweep(world, Kind("left", request), most=3)
    assert len(result.problems) == 1 and "allocation 2" in result.problems[0] and "alloc/left" in result.problems[0], result.problems


USUAL = Answer(201, [("content-type", "application/json"), ("location", "/locks/a")],
               b'{"resource":"a","token":"0","fence":1,"owner":"me","validity_ms":2,"votes":{"granted":2,"failed":0}}')


def changed(status=201, drop=None, body=None):
    answer = copy.deepcopy(USUAL)
    answer.status, answer.body = status, body or answer.body
    answer.headers = [header for header in answer.headers if header[0] != drop]
    return answer


@pytest.mark.parametrize("answer", [
    changed(drop="location"),
    changed(status=200),
    changed(status=500),
    changed(body=USUAL.body[:-1]),
    changed(body=USUAL.body.replace(b'"token":"0",', b"")),
    changed(body=USUAL.body.replace(b'"token":"0"', b'"token":null')),
    changed(body=USUAL.body.replace(b',"failed":0', b"")),
    changed(body=re.sub(rb'"me"', b'"m"', USUAL.body)),
    Answer(503, [("content-type", "application/problem+json")], b'{"code":"no-quorum"}'),
    Broken(),
], ids=repr)
def test_half_an_answer_is_seen(answer):
    assert differences(answer, USUAL)


@pytest.mark.parametrize("answer", [
    USUAL,
    CLOSED,
    changed(body=USUAL.body.replace(b'"granted":2,"failed":0', b'"granted":3,"failed":1').replace(b'"fence":1', b'"fence":7')),
    Answer(503, [("content-type", "application/problem+json"), ("x-request-id", "1"), ("cache-control", "no-store"), ("retry-after", "1")],
           b'{"type":"x","title":"x","status":503,"detail":"x","code":"draining"}'),
], ids=["same", "closed", "other-numbers", "503"])
def test_a_good_answer_is_good(answer):
    assert not differences(answer, USUAL)
