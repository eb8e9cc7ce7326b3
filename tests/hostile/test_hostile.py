# SPDX-License-Identifier: MIT
"""The hostile loads as tests, with short deadlines. How the connections end and when, memory, descriptors and that the good client sees no mistake are
checked each time; its rate is compared with its own of just before, up to three times, since machines are busy with other things as well."""

import pytest

from hostile import SHARE, Lab, Service, before_others, run_load
from loads import LOADS, RUBBISH

REQUEST_SECONDS, IDLE_SECONDS, SECONDS, TRIES = 4, 3, 2, 3


@pytest.fixture(scope="module")
def services():
    """Made when they are needed: {"plain": …, "guarded": …}."""
    made = {}
    with before_others(), Lab() as lab:
        def service(kind):
            if kind not in made:
                made[kind] = Service(lab, kind == "guarded", REQUEST_SECONDS, IDLE_SECONDS)
            return made[kind]
        yield service


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_load(services, load):
    shares = []
    for _ in range(TRIES):
        result = run_load(services(load.service), load, SECONDS, REQUEST_SECONDS, IDLE_SECONDS)
        print(result.row())
        assert not result.wrong
        shares.append(result.share)
        if result.share >= SHARE:
            return
    pytest.fail(f"the good client kept {', '.join(f'{share:.2f}' for share in shares)} of its rate")


def test_the_loads_are_those_that_were_promised():
    """Otherwise one could be lost without a test that fails."""
    assert {load.name for load in LOADS} >= {"silent", "drip", "idle", "half_body", "too_many", "never_reads", "pipelined", "come_and_go", "rubbish",
                                            "wrong_keys", "tls_silent", "tls_half_hello", "tls_plain", "tls_absurd"}
    assert {"two Content-Lengths", "Content-Length with Transfer-Encoding", "%00 in the path", "overlong UTF-8 in the path", "deep JSON", "1 MB of headers",
            "HTTP/2", "TLS to the plain port", "NUL in a header's name"} <= set(RUBBISH)
