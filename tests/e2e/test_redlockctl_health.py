# SPDX-License-Identifier: MIT
"""redlockctl health: what a container's health check asks. It says nothing where all is well, and needs no key."""

import json
import re
import signal
import socket

import pytest

from certificates import Authority
from ctl import UNREACHABLE, USAGE, ctl, url
from fake_redlockd import fake  # noqa: F401
from harness import freeze, wait_until
from key_fixtures import Keyed

STRANGE = 76


def outcome(done):
    return done.returncode, done.stdout, done.stderr


def test_all_is_well(lab, service):
    assert outcome(ctl("health", server=service)) == (0, "", "")
    assert outcome(ctl("health", "--ready", server=service)) == (0, "", "")
    assert json.loads(ctl("health", "--json", server=service).stdout) == {"status": "ok"}
    assert json.loads(ctl("health", "--ready", "--json", server=service).stdout)["quorum"]["voting"] == 3
    nobody = f"unix:{lab.folder}/nobody"
    assert outcome(ctl("health", "--server", nobody, "--server", url(service))) == (0, "", "")
    assert ctl("health", "--server", nobody).returncode == UNREACHABLE


def test_alive_and_not_ready(lab):
    servers = lab.redises(3)
    daemon = lab.redlockd(servers)
    for server in servers[:2]:
        server.kill()
    wait_until(lambda: daemon.curl("GET", "/readyz").status == 503, what="not ready")
    assert outcome(ctl("health", server=daemon)) == (0, "", "")
    done = ctl("health", "--ready", server=daemon)
    assert (done.returncode, done.stdout) == (UNREACHABLE, "") and "1 of 3 masters may vote" in done.stderr and done.stderr.count("\n") == 1
    done = ctl("health", "--ready", "--json", server=daemon)
    assert (done.returncode, json.loads(done.stdout)["code"]) == (UNREACHABLE, "no-quorum")


def test_nobody_there(lab):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        for options in ([], ["--ready"]):
            done = ctl("health", *options, server=f"http://127.0.0.1:{held.getsockname()[1]}")
            assert (done.returncode, done.stdout) == (UNREACHABLE, "") and "Connection refused" in done.stderr


def test_one_that_hangs(lab):
    """The limit is shorter than that of the other commands, and may be set."""
    daemon = lab.redlockd(lab.redises(1))
    freeze(daemon.process)
    try:
        done = ctl("health", server=daemon)
        assert done.returncode == UNREACHABLE and re.search(r"after [2-9]\d{3,} milliseconds", done.stderr), done.stderr
        done = ctl("health", "--ready", "--timeout", "50ms", server=daemon)
        assert done.returncode == UNREACHABLE and "milliseconds" in done.stderr, done.stderr
    finally:
        daemon.process.send_signal(signal.SIGCONT)


def test_without_a_key(lab):
    """None is needed, none is sent, and an unreadable one is no error."""
    keyed = Keyed(lab, []).wait_ready()
    for environment in ({}, {"REDLOCKCTL_KEY_FILE": "/nowhere"}, {"REDLOCKCTL_API_KEY": "rlk_" + "A" * 43}):
        assert outcome(ctl("health", server=keyed.redlockd, env=environment)) == (0, "", "")
        assert outcome(ctl("health", "--ready", server=keyed.redlockd, env=environment)) == (0, "", "")
    assert ctl("list", server=keyed.redlockd).returncode == 77  # it does ask for keys


def test_no_key_is_sent(fake):
    server = fake(health=lambda call: call.answer(200, {"status": "ok"}))
    assert ctl("health", server=server, env={"REDLOCKCTL_API_KEY": "rlk_" + "A" * 43}).returncode == 0
    assert ctl("list", server=server, env={"REDLOCKCTL_API_KEY": "rlk_" + "A" * 43}).returncode == 76
    assert ["authorization" in call.headers for call in server.calls] == [False, True]


def test_over_tls(lab):
    """Also where callers must show a certificate: these two paths want none."""
    authority = Authority(lab.folder)
    server = authority.issue("server", "IP:127.0.0.1", "DNS:localhost")
    options = ["--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca", authority.certificate]
    daemon = lab.service(1, *options, trust=authority.certificate, wait=False)
    wait_until(lambda: ctl("health", "--ready", "--cacert", authority.certificate, server=daemon).returncode == 0, what="ready")
    assert outcome(ctl("health", server=daemon, env={"REDLOCKCTL_CACERT": authority.certificate})) == (0, "", "")
    done = ctl("health", "--cacert", Authority(lab.folder, "another").certificate, server=daemon)
    assert done.returncode != 0 and "not trusted" in done.stderr
    assert ctl("health", "--cacert", "/nowhere", server=daemon).returncode == USAGE


@pytest.mark.parametrize("body", [None, {}, {"status": "ready"}, ["ok"], "ok"])
def test_an_answer_that_is_not_redlockds(fake, body):
    """A 200 of another program does not count."""
    done = ctl("health", server=fake(health=lambda call: call.answer(200, body)))
    assert done.returncode == STRANGE and "the answer is not" in done.stderr, done.stderr
