"""The example programs of docs/how-to/clients.md, each against a real redlockd over real Redis masters: one table of behaviours, the same in all languages."""

import http.server
import re
import signal
import subprocess
import threading
import time

import pytest

from certificates import Authority
from harness import ROOT, curl, process_state, quote, wait_until
from key_fixtures import Key, Keyed
from programs import FILES, Store
from test_redlockctl_again import Cutter

TTL_MS = 6000  # long enough for a machine that is slow and builds beside them; programs renew it after two seconds


@pytest.fixture(params=sorted(FILES))
def language(request):
    return request.param


@pytest.fixture
def store(tmp_path):
    """As the guide says to make it."""
    schema = re.findall(r"^```sql\n(.*?)^```\n", (ROOT / "docs/how-to/clients.md").read_text(encoding="utf-8"), re.M | re.S)
    assert len(schema) == 1
    return Store(str(tmp_path), schema[0])


@pytest.fixture
def start(programs, language, store):
    """Starts a program on the store of this test, in the language of this test or another one; all are ended with the test."""
    runs = []

    def one(url, resource, in_language=language, **how):
        runs.append(programs.start(in_language, url, resource, store, **how))
        return runs[-1]
    yield one
    for run in runs:
        run.kill()


def url_of(daemon):
    return daemon.address if daemon.address.startswith("https://") else f"http://{daemon.address}"


def state(daemon, resource):
    return daemon.curl("GET", "/locks/" + quote(resource)).json


def enter(store, fence):
    """A later holder: it brings its fence."""
    store.execute(f"UPDATE stock SET fence = {fence} WHERE item = 'apples' AND fence <= {fence}")


def test_it_renews_past_the_first_ttl_and_releases(service, resource, start, store):
    """Under a name that must be escaped both in JSON and in a path."""
    name = resource + ' "é" + 100%/?#'
    run = start(url_of(service), name, steps=8, step_ms=1000, ttl_ms=TTL_MS)
    run.wait_for("wrote 1")
    assert state(service, name)["fence"] == run.fence
    assert run.end() == 0 and run.error() == ""
    assert run.lines()[-1] == "released" and run.lines().count("renewed") >= 2
    assert [(amount, fence) for _, amount, fence in store.writes()] == [(n, run.fence) for n in range(1, 9)]
    assert not state(service, name)["held"]


def test_two_exclude_each_other(service, resource, start, store):
    runs = [start(url_of(service), resource, steps=5, wait_ms=60000) for _ in range(2)]
    assert [run.end(90) for run in runs] == [0, 0]
    assert store.amount == 10
    assert [fence for _, _, fence in store.writes()] == sorted([runs[0].fence, runs[1].fence] * 5)


def test_it_waits_in_the_queue(service, resource, start, store):
    lease = service.acquire(resource, 60000)
    run = start(url_of(service), resource, wait_ms=60000)
    wait_until(lambda: state(service, resource)["waiters"] == 1, 30, "it waits")
    assert run.lines() == []
    service.release(lease)
    assert run.end() == 0 and store.amount == 3 and run.fence > lease["fence"]


def test_it_waits_for_a_holder_that_died(service, resource, start, store):
    """For about as long as its own lease lasts: the lease counts from the grant, not from the request."""
    dead = service.acquire(resource, TTL_MS)
    run = start(url_of(service), resource, ttl_ms=TTL_MS)

    def waits():
        """The holder lives until then."""
        assert service.curl("PUT", "/locks/" + quote(resource), body={"token": dead["token"], "ttl_ms": TTL_MS}).status == 200
        return state(service, resource)["waiters"] == 1
    wait_until(waits, 30, "it waits")
    assert run.end() == 0 and store.amount == 3 and run.fence > dead["fence"]


def test_a_lost_answer_costs_no_lock(lab, start, store):
    """The next request finds the lease that was granted, instead of waiting until it is over."""
    service = lab.service()
    run = start(lab.keep(Cutter(service, 0)).url(), "cut", ttl_ms=60000, steps=1)
    assert run.end() == 0, run.error()
    granted = [line["status"] for line in service.log("request") if line["method"] == "POST"]
    assert granted == ["201", "200"], run.error()


def test_it_gives_up_waiting(service, resource, start, store):
    lease = service.acquire(resource, 60000)
    run = start(url_of(service), resource, wait_ms=500)
    assert run.end() == 75 and run.error() == "lock: The lock could not be granted within wait_ms. Try again, or wait longer.\n"
    assert run.lines() == [] and store.amount == 0
    service.release(lease)


def take_by_force(daemon, resource):
    assert daemon.curl("DELETE", f"/locks/{quote(resource)}?force=true").status == 204


def take_and_give_to_another(daemon, resource):
    take_by_force(daemon, resource)
    daemon.acquire(resource)


def flush(daemon, _resource):
    for master in daemon.masters:
        master.cli("FLUSHALL")


@pytest.mark.parametrize("lose", [take_by_force, take_and_give_to_another, flush])
def test_a_lost_lease_ends_the_work(lab, start, store, lose):
    """At the latest when it would have ended: nothing is written later."""
    daemon = lab.service(3)
    run = start(url_of(daemon), "a/b", steps=1000, ttl_ms=TTL_MS)
    run.wait_for("wrote 2")
    lose(daemon, "a/b")
    lost = time.time()
    assert run.end() == 79
    assert "lock: lease lost: " in run.error() and not any(line == "released" for line in run.lines())
    last = store.writes()[-1]
    assert last[0] < lost + TTL_MS / 1000 and last[2] == run.fence
    assert lose is flush or "in time" not in run.error()  # it heard of it by a renewal


# As in Node 18 once garbage was collected: fetch() has lost its signal, and a signal with a timeout its timer.
NODE_18 = """const { fetch } = globalThis;
globalThis.fetch = (url, { signal, ...options } = {}) => fetch(url, options);
AbortSignal.timeout = () => new AbortController().signal;
"""


def test_it_stops_before_its_lease_is_over_when_the_server_is_silent(lab, language, start, store, tmp_path):
    daemon = lab.service(3)
    (tmp_path / "node18.js").write_text(NODE_18)
    options = ("--require", tmp_path / "node18.js") if language == "node" else ()
    run = start(url_of(daemon), "a/b", steps=1000, ttl_ms=TTL_MS, options=options)
    run.wait_for("renewed")
    daemon.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: process_state(daemon.process.pid) == "T", what="SIGSTOP")
    stopped = time.time()
    assert run.end() == 79 and "lock: lease lost: it could not be renewed in time\n" in run.error()
    daemon.process.send_signal(signal.SIGCONT)
    last = store.writes()[-1][0]
    assert last < stopped + TTL_MS / 1000
    assert last > stopped + TTL_MS / 5000, "it stops long before it must"


LATE_TTL_MS = 6000


class Late(http.server.BaseHTTPRequestHandler):
    """Between program and redlockd: the answer to a POST is long on its way, a renewal gets none."""

    def do_POST(self):
        self.server.asked.append(time.time())
        answer = curl(self.server.behind, self.command, self.path, body=self.rfile.read(int(self.headers["Content-Length"])).decode())
        time.sleep(0.4 * LATE_TTL_MS / 1000)
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def do_PUT(self):
        self.close_connection = True

    do_DELETE = do_PUT

    def log_message(self, *_):
        pass


def test_its_lease_counts_from_the_request_not_from_the_answer(service, resource, start, store):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Late) as late:
        late.behind, late.asked = service.address, []
        threading.Thread(target=late.serve_forever).start()
        try:
            run = start(f"http://127.0.0.1:{late.server_port}", resource, steps=1000, ttl_ms=LATE_TTL_MS)
            assert run.end() == 79 and "lock: lease lost: it could not be renewed in time\n" in run.error()
        finally:
            late.shutdown()
    assert len(late.asked) == 1 and store.amount > 0
    assert store.writes()[-1][0] < late.asked[0] + LATE_TTL_MS / 1000
    wait_until(lambda: not state(service, resource)["held"], what="its lease is over")


def test_it_goes_on_with_a_server_that_comes_back_and_ends_well_on_sigterm(lab, start, store):
    daemon = lab.service(3)
    run = start(url_of(daemon), "a/b", steps=1000, ttl_ms=10000)
    run.wait_for("wrote 1")
    daemon.kill()
    again = lab.redlockd(daemon.masters, listen=(daemon.address,))
    run.wait_for("renewed")
    assert state(again, "a/b")["fence"] == run.fence
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 143 and run.lines()[-1] == "released"
    assert not state(again, "a/b")["held"]
    assert {fence for _, _, fence in store.writes()} == {run.fence}


def test_who_was_paused_past_the_lease_writes_nothing(service, resource, start, store):
    """Neither lease nor renewal can stop it; its own clock does, or the fence."""
    run = start(url_of(service), resource, steps=1000, ttl_ms=TTL_MS)
    run.wait_for("wrote 1")
    run.signal(signal.SIGSTOP)
    other = service.acquire(resource, 60000, wait_ms=30000)
    enter(store, other["fence"])
    written = len(store.writes())
    run.signal(signal.SIGCONT)
    assert run.end() == 79 and re.search("lock: (lease lost|fence refused): ", run.error())
    assert len(store.writes()) == written and other["fence"] > run.fence
    assert service.release(other).status == 204


def test_a_smaller_fence_is_refused_by_the_resource(service, resource, start, store):
    enter(store, 2**53 - 1)
    run = start(url_of(service), resource)
    assert run.end() == 79 and run.error() == "lock: fence refused: somebody else has had the lock since\n"
    assert store.amount == 0 and run.lines()[-1] == "released" and not state(service, resource)["held"]


def test_a_request_that_is_refused(service, start, store):
    run = start(url_of(service), "redlockd:reserved")
    assert run.end() == 64 and run.error().startswith("lock: resource: must not contain") and store.amount == 0


def test_the_server_is_gone(lab, start, store):
    daemon = lab.service(1)
    daemon.stop()
    run = start(url_of(daemon), "a/b", wait_ms=300)
    assert run.end() == 69 and run.error().startswith(f"lock: no answer from {url_of(daemon)}: ") and run.error().count("\n") == 1
    assert store.amount == 0


def test_too_few_masters_answer(lab, start, store):
    daemon = lab.service(3)
    for master in daemon.masters[1:]:
        master.kill()
    run = start(url_of(daemon), "a/b", wait_ms=300)
    assert run.end() == 69 and run.error().startswith("lock: ") and "no answer from" not in run.error()
    assert store.amount == 0


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    """With keys and HTTPS, and for each language how to trust an authority of one's own, as the guide's table says it."""
    import harness
    with harness.Lab() as lab:
        authority = Authority(lab.folder)
        server = authority.issue("server", "IP:127.0.0.1", usage="serverAuth")
        trusted = f"{lab.folder}/trusted.p12"
        subprocess.run(["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", authority.certificate, "-keystore", trusted, "-storetype", "PKCS12",
                        "-storepass", "changeit"], check=True, capture_output=True)
        keyed = Keyed(lab, [Key("worker", ["orders/"], ["acquire"])], "--tls-cert", server.certificate, "--tls-key", server.key,
                      trust=authority.certificate).wait_ready()
        keyed.trust = {"shell": {"CURL_CA_BUNDLE": authority.certificate}, "go": {"SSL_CERT_FILE": authority.certificate}, "node": {"NODE_EXTRA_CA_CERTS": authority.certificate}, "java": {}}
        keyed.java = [f"-Djavax.net.ssl.trustStore={trusted}", "-Djavax.net.ssl.trustStorePassword=changeit"]
        yield keyed


@pytest.mark.parametrize("key, resource_name, status",
                         [("right", "orders/1", 0), ("right", "invoices/1", 77), ("wrong", "orders/2", 77), (None, "orders/3", 77)])
def test_keys_over_https(keyed, language, start, store, key, resource_name, status):
    name = f"{resource_name}/{language}"
    secrets = {"right": keyed.keys["worker"].secret, "wrong": "rlk_" + "A" * 43}
    env = {**keyed.trust[language], **({"REDLOCKD_KEY": secrets[key]} if key else {})}
    run = start(url_of(keyed.redlockd), name, steps=1, ttl_ms=60000, env=env, options=keyed.java if language == "java" else ())
    assert run.end() == status
    assert store.amount == (status == 0)
    assert run.error().startswith("lock: " if status else "") and "no answer" not in run.error()
    assert (run.lines()[-1:] == ["released"]) == (status == 0)


def test_a_certificate_that_is_not_trusted(keyed, start, store):
    run = start(url_of(keyed.redlockd), "orders/4", wait_ms=300, env={"REDLOCKD_KEY": keyed.keys["worker"].secret})
    assert run.end() == 69 and re.search("certificate|PKIX|unknown authority", run.error()) and store.amount == 0
