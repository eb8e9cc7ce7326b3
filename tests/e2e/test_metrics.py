# SPDX-License-Identifier: MIT
"""/metrics: each metric changes for its cause, the page passes the tools of Prometheus, and docs/reference/metrics.md names all metrics.

Most of the older metrics are looked at where what they count is tested: test_service.py, test_waiting.py, test_limits.py, guard_fixtures.py and others.
"""

import collections
import re
import signal
import subprocess
import time

import pytest
from prometheus_client import parser

from certificates import Authority
from harness import ROOT, SLOW, Client, connect_to, freeze, read_response, run_redlockd, wait_until
from key_fixtures import Keyed
from rediss_fixtures import tls  # noqa: F401
from waiting_fixtures import crowd  # noqa: F401

# The Accept header of Prometheus 3.
PROMETHEUS_3 = ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
                "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1")
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


def scrape(service, **headers):
    answer = service.curl("GET", "/metrics", headers=headers)
    assert answer.status == 200, answer
    return answer


def plain_families(answer):
    assert answer.headers["content-type"] == PLAIN
    return list(parser.text_string_to_metric_families(answer.body.decode()))


def samples(families):
    """{(name, labels): value}; none twice."""
    found = [((sample.name, tuple(sorted(sample.labels.items()))), sample.value) for family in families for sample in family.samples]
    assert len(dict(found)) == len(found)
    return dict(found)


def value(service, name):
    return service.metrics()["redlockd_" + name]


def of_master(service, name, server):
    return value(service, f'{name}{{master="{server.url}"}}')


def until(service, name, wanted, seconds=10.0):
    wait_until(lambda: value(service, name) == wanted, seconds, f"{name} is {wanted}")


# ---- the format ----


@pytest.mark.parametrize("accept", ["", "*/*", "text/html,application/xml;q=0.9,*/*;q=0.8", PROMETHEUS_3, "application/openmetrics-text", ";;,,;q=\"", "x" * 4000])
def test_the_format_is_one(service, accept):
    answer = service.curl("GET", "/metrics", headers={"Accept": accept})
    assert answer.status == 200 and b"# EOF" not in answer.body
    families = {family.name: family for family in plain_families(answer)}
    assert len(families) > 40 and families["redlockd_lease_requests"].type == "counter" and families["redlockd_quorum"].type == "gauge"
    head = service.curl("HEAD", "/metrics", headers={"Accept": accept})
    assert head.status == 200 and head.body == b"" and head.headers["content-type"] == PLAIN
    bounds = {dict(labels)["le"] for name, labels in samples(families.values()) if name.endswith("_bucket")}
    assert {"0.0001", "0.5", "1.0", "86400.0", "+Inf"} <= bounds and not any(bound.isdigit() for bound in bounds)


def test_promtool_has_no_complaint(lab, tls):  # noqa: F811
    """With all that can be switched on."""
    pair = tls.authority.issue("localhost", "DNS:localhost")
    service = lab.redlockd([tls.server(), *lab.redises(2)], *tls.options, "--masters-cert", pair.certificate, "--masters-key", pair.key,
                           "--tls-cert", pair.certificate, "--tls-key", pair.key, listen=[f"unix:{lab.folder}/s"])
    service.release(service.acquire("x"))
    for text, clean in ((scrape(service).body, True), (b"# TYPE redlockd_count counter\nredlockd_count 1\n", False)):
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
        assert (done.returncode == 0 and not done.stdout and not done.stderr) == clean, done


# ---- the document ----


def documented():
    """{name: (type, labels)} of the table in docs/reference/metrics.md."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|([^|]+)\|$", (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8"), re.M)
    assert len(rows) == len({row[0] for row in rows})
    for name, _, _, meaning in rows:
        assert meaning.strip(), f"{name}: what does it mean?"
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows}


def shown(answer):
    """The same of a page."""
    found = {}
    for family in plain_families(answer):
        assert family.documentation
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[family.name + ("_total" if family.type == "counter" else "")] = (family.type, labels)
    return found


def test_all_are_documented(lab, tls):  # noqa: F811
    pair = tls.authority.issue("localhost", "IP:127.0.0.1")
    keyed = Keyed(lab, [], "--tls-cert", pair.certificate, "--tls-key", pair.key, *tls.options, masters=[tls.server(), *lab.redises(2)],
                  listen=["https://127.0.0.1:0"], trust=tls.authority.certificate)
    keyed.wait_ready()
    there, said = shown(scrape(keyed.redlockd, **keyed.operator.header())), documented()
    there = {name: what for name, what in there.items() if not name.startswith("process_")}  # as Prometheus has them
    assert set(there) == set(said)
    assert {"redlockd_tls_handshakes_failed_total", "redlockd_http_requests_total", "redlockd_quorum"} <= set(there)
    for name, (kind, labels) in there.items():
        optional = {"redlockd_master_command_refused": {"master", "command"}}.get(name, set())
        assert (kind, labels - optional) == (said[name][0], said[name][1] - optional), name


def test_as_many_series_as_documented(lab):
    """Masters that are not there have their series too."""
    text = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    row = re.search(r"^\| without `redlockd_http_requests_total` \| (\d+) \| (\d+) \|$", text, re.M)
    for masters, wanted in ((3, row[1]), (15, row[2])):
        service = lab.redlockd([f"unix:{lab.folder}/nobody{i}" for i in range(masters)], wait=False)
        found = [name for name, _ in samples(plain_families(scrape(service))) if name != "redlockd_http_requests_total"]
        assert len(found) == int(wanted), (masters, collections.Counter(found))
        assert value(service, "masters") == masters and value(service, "masters_needed") == masters // 2 + 1 and value(service, "quorum") == 0
    statuses = collections.defaultdict(set)
    for line in run_redlockd("--help=routes").stdout.splitlines():
        method, pattern, status, _ = line.split()
        statuses[method, pattern].add(status)
    routes = sum((len(found) + 1) * (2 if method == "GET" else 1) for (method, _), found in statuses.items() if method != "*")  # `aborted`, and HEAD
    no_route = 6 * 18  # a request of no route: methods × statuses
    bound = int(re.search(r"^\| `redlockd_http_requests_total`, at most \| (\d+) \|", text, re.M)[1])
    assert bound * 0.8 < routes + no_route <= bound


# ---- masters ----


def test_quorum(lab):
    service = lab.service(3, "--workers", "2")
    assert [value(service, name) for name in ("quorum", "masters", "masters_needed", "masters_voting")] == [1, 3, 2, 3]
    service.masters[0].kill()
    until(service, "masters_voting", 2)
    assert value(service, "quorum") == 1
    service.masters[1].stop()
    until(service, "masters_voting", 1)
    assert value(service, "quorum") == 0
    service.masters[1].cont()
    until(service, "quorum", 1)
    assert value(service, "masters_voting") == 2


def test_commands_in_flight(lab):
    service = lab.service(3, "--master-timeout-ms", "20000")
    hung, others = service.masters[0], service.masters[1:]
    service.release(service.acquire("before"))
    wait_until(lambda: of_master(service, "master_commands_in_flight", hung) == 0, what="all is answered")
    hung.stop()
    for i in range(7):
        service.acquire(f"x/{i}")
    assert of_master(service, "master_commands_in_flight", hung) >= 7
    for server in others:
        wait_until(lambda one=server: of_master(service, "master_commands_in_flight", one) == 0, what="others have answered")
    hung.cont()
    wait_until(lambda: of_master(service, "master_commands_in_flight", hung) == 0, 20, "it has answered")
    hung.stop()
    service.acquire("y")
    assert of_master(service, "master_commands_in_flight", hung) >= 1
    hung.kill()  # commands under way are lost with its connection
    wait_until(lambda: of_master(service, "master_commands_in_flight", hung) == 0, 20, "nothing is under way to nobody")


# ---- leases ----


def test_operations_queued(lab):
    """Requests that are all there when redlockd looks: more than it asks masters for at a time. Those who ask for the metrics in between see it."""
    service = lab.service(1, "--master-timeout-ms", "30")  # then 64 at a time
    until(service, "operations_queued", 0)
    askers = [connect_to(service.address) for _ in range(200)]
    lookers = [Client(service.address) for _ in range(10)]
    for looker in lookers:
        assert looker.call("GET", "/healthz").status == 200
    for plain in askers:  # a connection with a first request is started after the others are served
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_response(plain).status == 200
    until(service, "http_connections", 211)
    service.wait_voting(1)
    freeze(service.process)
    try:
        for i, plain in enumerate(askers):
            body = b'{"resource":"burst/%d","ttl_ms":1000}' % i
            plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            if i % 20 == 19:
                lookers[i // 20].connection.sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    finally:
        service.process.send_signal(signal.SIGCONT)
    pages = [read_response(looker.connection.sock) for looker in lookers]
    queued = [int(re.search(rb"^redlockd_operations_queued (\d+)$", page.body, re.M)[1]) for page in pages]
    assert 0 < max(queued) <= 200 - 64, queued
    for plain in askers:
        assert read_response(plain) is not None
        plain.close()
    for looker in lookers:
        looker.close()
    until(service, "operations_queued", 0)


@pytest.mark.parametrize("wait_ms", [1, 300])
def test_a_wait_is_no_slow_answer(lab, crowd, wait_ms):  # noqa: F811
    """Also one that runs out without a call: it is in the figures of waits and not in those of answers."""
    service = lab.service(3)
    service.acquire("x", 60000)
    answers, waits = 'lease_duration_seconds_count{op="acquire"}', 'wait_seconds_count{result="timeout"}'
    assert (value(service, answers), value(service, waits)) == (1, 0)
    assert crowd.wait(service, "x", wait_ms=wait_ms).answer().status == 409
    assert (value(service, answers), value(service, waits)) == (1, 1)


def test_holds_that_are_lost(lab, crowd):  # noqa: F811
    service = lab.service(3)

    def lost(code):
        return value(service, f'holds_lost_total{{code="{code}"}}')
    for code, harm in (("lease-expired", lambda server: server.cli("DEL", "lease-expired")),
                       ("not-owner", lambda server: server.cli("SET", "not-owner", "somebody's")),
                       ("no-quorum", lambda server: server.kill())):
        stream = crowd.wait(service, code, wait_ms=None, ttl_ms=3000, hold=True)
        until(service, "holds", 1)
        wait_until(lambda name=code: all(server.cli("EXISTS", name) for server in service.masters), what="held on all masters")
        assert lost(code) == 0
        for server in service.masters:
            harm(server)
        wait_until(lambda name=code: lost(name) == 1, 20, f"lost: {code}")
        assert b'"lost"' in stream.answer().body
        until(service, "holds", 0)
    assert [lost(code) for code in ("lease-expired", "not-owner", "no-quorum")] == [1, 1, 1]


def test_a_hold_that_ends_well_is_not_lost(lab, crowd):  # noqa: F811
    service = lab.service(1)
    stream = crowd.wait(service, "x", wait_ms=None, ttl_ms=3000, hold=True)
    until(service, "holds", 1)
    stream.leave()
    until(service, "holds", 0)
    assert sum(number for name, number in service.metrics().items() if name.startswith("redlockd_holds_lost_total")) == 0


# ---- the service ----


def test_reloads(lab):
    began = time.time()
    keyed = Keyed(lab, []).wait_ready()

    def seen():
        metrics = {name: number for name, _, number in (line.partition(" ") for line in keyed.call("operator", "GET", "/metrics").body.decode().splitlines())}
        return tuple(float(metrics[f"redlockd_config_reload_{name}"]) for name in ("successful", "failures_total", "timestamp_seconds"))
    good, failures, first = seen()
    assert (good, failures) == (1, 0) and began - 1 <= first <= time.time() + 1
    keyed.write_text("{")
    keyed.redlockd.process.send_signal(signal.SIGHUP)
    wait_until(lambda: seen()[1] == 1, what="a failure")
    assert seen() == (0, 1, first)
    assert keyed.redlockd.log("keys-reload-failed")
    keyed.write([])
    keyed.redlockd.process.send_signal(signal.SIGHUP)
    wait_until(lambda: seen()[0] == 1, what="a success")
    good, failures, last = seen()
    assert (good, failures) == (1, 1) and last > first


def test_reloads_of_certificates(lab, tmp_path):
    """One of two files that is bad is a failure, whichever it is."""
    certificate = Authority(tmp_path).issue("localhost", "DNS:localhost")
    service = lab.service(1, "--tls-cert", certificate.certificate, "--tls-key", certificate.key, listen=[f"unix:{lab.folder}/s"])
    assert value(service, "config_reload_successful") == 1
    with open(certificate.certificate, "r+", encoding="ascii") as file:
        text = file.read()
        file.truncate(100)
    service.process.send_signal(signal.SIGHUP)
    until(service, "config_reload_failures_total", 1)
    assert value(service, "config_reload_successful") == 0
    with open(certificate.certificate, "w", encoding="ascii") as file:
        file.write(text)
    service.process.send_signal(signal.SIGHUP)
    until(service, "config_reload_successful", 1)
    assert value(service, "config_reload_failures_total") == 1


def test_draining(lab, crowd):  # noqa: F811
    """An operation whose masters hang keeps the service for as long as it takes to look."""
    service = lab.service(3, "--master-timeout-ms", "5000", "--drain-ms", "20000")
    assert value(service, "draining") == 0
    for server in service.masters[:2]:
        server.stop()
    crowd.wait(service, "x", wait_ms=None)
    until(service, "operations_in_flight", 1)
    service.process.send_signal(signal.SIGTERM)
    until(service, "draining", 1)
    for server in service.masters:
        server.cont()
    assert service.process.wait(30 * SLOW) == 0
