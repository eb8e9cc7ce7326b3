# SPDX-License-Identifier: MIT
"""Everything that metrics tell about, made to happen under the eyes of a real Prometheus.

Three masters (the clock of the second can be moved) and two redlockds over them: `secured` has HTTPS and keys, `plain` has neither and two workers.
Prometheus scrapes both each second, and a third address where nobody is. Stage.play() runs the scenes one after the other; Traffic goes on all the while.
A scene ends when Prometheus has the alert, or the value, that it is about. Leases are short, so that quarantines are.
"""

import contextlib
import copy
import http.client
import json
import signal
import threading
import time
import traceback

import yaml

import redis_clock
from certificates import Authority
from harness import Client, connect_to, quote, wait_until
from key_fixtures import Key, Keyed
from prometheus import Prometheus
from rediss_fixtures import TlsRedis
from seeing_files import PROMETHEUS

TTL_MS = 1500
LIMITS = ["--retry-min-ms", "1", "--retry-max-ms", "5", "--max-ttl-ms", str(TTL_MS), "--default-ttl-ms", str(TTL_MS), "--master-timeout-ms", "300"]
HASH = "redlockd:master"
SHORT_PAUSE = 0.02


class Traffic(threading.Thread):
    """One caller that takes, looks at, extends and releases locks, takes what another has, and waits, over and over; whatever it is answered."""

    def __init__(self, name, connect):
        super().__init__(daemon=True)
        self.name, self.connect, self.end, self.error, self.rounds = name, connect, threading.Event(), None, 0
        self.start()

    def run(self):
        client = None
        while not self.end.wait(SHORT_PAUSE):
            try:
                client = client or self.connect()
                self.turn(client)
                self.rounds += 1
            except (OSError, http.client.HTTPException):  # redlockd is being restarted
                client = None
            except Exception:  # shown by the test
                self.error = traceback.format_exc()
                return

    def turn(self, call):
        resource = f"traffic/{self.name}/{self.rounds % 5}"
        path = "/locks/" + quote(resource)
        answer = call("POST", "/locks", {"resource": resource})
        call("POST", "/locks", {"resource": resource})
        call("POST", "/locks", {"resource": resource, "wait_ms": 50})
        call("GET", path)
        if answer.status == 201:
            token = {"token": answer.json["token"]}
            call("PUT", path, token)
            call("DELETE", path, token)

    def kill(self):
        self.end.set()
        self.join(30)


class Stage:
    """See the top of this file; `lab` is a harness.Lab."""

    def __init__(self, lab):
        self.lab = lab
        clock = redis_clock.RedisClock(lab.folder, redis_clock.build(lab.folder))
        self.authority = Authority(lab.folder)
        server = self.authority.issue("server", "IP:127.0.0.1")
        self.masters = [lab.keep(TlsRedis(lab.folder, server, self.authority)), lab.redis(env=clock.environment()), lab.redis()]
        self.masters[1].clock = clock
        self.limits = [*LIMITS, "--masters-ca", self.authority.certificate, "--masters-cert", server.certificate, "--masters-key", server.key]
        self.keyed = Keyed(lab, [Key("slow", [""], ["acquire"], rate=1)], "--tls-cert", server.certificate, "--tls-key", server.key, *self.limits,
                           masters=self.masters, trust=self.authority.certificate)
        self.keyed.wait_ready()
        self.secured = self.keyed.redlockd
        self.plain = lab.redlockd(self.masters, "--workers", "2", *self.limits)
        self.began = time.time()
        self.prometheus = lab.keep(Prometheus(lab.folder, self.configuration()))
        self.alerts = {}  # seen so far: {name: states}
        self.wait_value("count(redlockd_build_info)", 2)

    def configuration(self):
        """docker/prometheus/prometheus.yml, each second, and with our addresses."""
        config = yaml.safe_load(PROMETHEUS.read_text(encoding="utf-8"))
        config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(PROMETHEUS.parent / name) for name in config["rule_files"]]
        [plain] = config["scrape_configs"]
        secured = copy.deepcopy(plain)
        plain["static_configs"][0]["targets"] = [self.plain.address, "127.0.0.1:1"]
        job = plain["job_name"]
        secured.update(job_name=f"{job} over HTTPS", scheme="https", tls_config={"ca_file": self.authority.certificate},
                       authorization={"credentials": self.keyed.keys["operator"].secret},
                       static_configs=[{"targets": [self.secured.address.removeprefix("https://")], "labels": {"job": job}}])
        config["scrape_configs"].append(secured)
        return config

    # ---- waiting for what Prometheus sees

    def look(self):
        for name, states in self.prometheus.alerts().items():
            self.alerts.setdefault(name, set()).update(states)

    def wait_alert(self, *names, meanwhile=lambda: None):
        def seen():
            meanwhile()
            self.look()
            return all(name in self.alerts for name in names)
        wait_until(seen, 60, f"the alerts {names}")

    def wait_value(self, query, value):
        def reached():
            self.look()
            return [float(one) for _, one in self.prometheus.now(query)] == [value]
        wait_until(reached, 60, f"{query} is {value}")

    def wait_all_vote(self):
        self.wait_value("min(redlockd_master_up)", 1)
        for daemon in (self.plain, self.secured):
            wait_until(lambda one=daemon: self.call(one, "GET", "/masters").json["quorum"]["voting"] == 3, 60, "all vote")

    # ---- calling

    def headers(self, daemon, name="operator"):
        return self.keyed.keys[name].header() if daemon is self.secured else {}

    def call(self, daemon, method, path, body=None, name="operator"):
        return daemon.curl(method, path, body=body, headers=self.headers(daemon, name))

    def connector(self, which):
        def connect():
            daemon = getattr(self, which)
            client = Client(daemon.address, daemon.tls)
            return lambda method, path, body=None: client.call(method, path, body, self.headers(daemon))
        return connect

    # ---- the scenes

    def play(self):
        traffic = [self.lab.keep(Traffic(which, self.connector(which))) for which in ("plain", "secured")]
        for scene in (self.callers_that_err, self.waiters, self.holders, self.bad_keys, self.a_split_vote, self.a_clock_that_jumps, self.fences_that_are_behind,
                      self.a_bad_setting, self.a_master_that_hangs, self.a_lease_that_lacks_a_vote,
                      self.a_master_that_restarts, self.no_quorum, self.restarts):
            scene()
        for one in traffic:
            assert one.error is None, one.error
            assert one.rounds > 10, one.rounds
        self.look()
        self.ended = time.time()

    def callers_that_err(self):
        assert self.plain.curl("POST", "/locks", body="{").status == 400
        assert self.plain.curl("GET", "/nowhere").status == 404
        assert self.secured.curl("POST", "/locks", body={"resource": "a"}).status == 401
        wait_until(lambda: self.call(self.secured, "POST", "/locks", {"resource": "b"}, "slow").status == 429, 10, "a limit")
        with contextlib.suppress(OSError):
            stranger = connect_to(self.secured.address.removeprefix("https://"))
            stranger.sendall(b"\x16\x03\x01\x00\x05nohow")
            stranger.recv(100)
        with contextlib.closing(stranger):
            self.wait_value("redlockd_tls_handshakes_failed_total > bool 0", 1)

    def waiters(self):
        """One gets it, one waits in vain, one leaves."""
        lease = self.plain.acquire("wanted", TTL_MS)
        body = json.dumps({"resource": "wanted", "wait_ms": 20000}).encode()
        waiting, leaving = self.plain.connect(), self.plain.connect()
        for one in (waiting, leaving):
            one.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        leaving.shutdown(2)
        leaving.close()
        assert self.call(self.plain, "POST", "/locks", {"resource": "wanted", "wait_ms": 20}).status in (409, 201)
        self.plain.release(lease)
        assert b" 201 " in waiting.recv(1000)
        waiting.close()
        self.wait_value('sum(redlockd_wait_seconds_count{result="timeout"}) > bool 0', 1)
        self.wait_value('sum(redlockd_wait_seconds_count{result="gone"}) > bool 0', 1)
        self.wait_value("sum(redlockd_handover_seconds_count) > bool 0", 1)

    def holders(self):
        """A held lease is taken away, and a lease is extended that is gone."""
        holder = self.plain.connect()
        body = json.dumps({"resource": "held", "hold": True}).encode()
        holder.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        wait_until(lambda: self.plain.curl("GET", "/locks/held").json["held"], 10, "held")
        self.wait_value("sum(redlockd_holds)", 1)
        assert self.plain.curl("DELETE", "/locks/held?force=true").status == 204
        self.wait_value("sum(redlockd_holds_lost_total)", 1)
        holder.close()
        lease = self.plain.acquire("late", TTL_MS)
        self.plain.release(lease)
        assert self.plain.curl("PUT", "/locks/late", body={"token": lease["token"]}).status == 410
        self.wait_alert("RedlockdLeasesLost")

    def bad_keys(self):
        good = list(self.keyed.keys.values())
        self.keyed.write_text("{")
        self.keyed.reload("keys-reload-failed")
        self.wait_alert("RedlockdReloadFailed", "RedlockdCertificateExpires", "RedlockdCertificateExpiresSoon", "RedlockdMastersCertificateExpires",
                        "RedlockdMastersCertificateExpiresSoon", "RedlockdTargetDown")
        self.keyed.write([key for key in good if key.name != "operator"])
        self.keyed.reload()
        self.wait_value("min(redlockd_config_reload_successful)", 1)

    def a_split_vote(self):
        """Others have a master each. Again and again, until it is one acquisition in a hundred."""
        for server, letter in zip(self.masters, "abc"):
            server.cli("SET", "split", letter * 40, "PX", "60000")

        def ask():
            assert self.plain.curl("POST", "/locks", body={"resource": "split"}).code == "split-vote"
        self.wait_alert("RedlockdSplitVotes", meanwhile=ask)

    def a_clock_that_jumps(self):
        self.masters[1].clock.set_offset_ms(60000)
        self.wait_alert("RedlockdMasterClockJump", "RedlockdQuorumAtRisk", "RedlockdMasterQuarantinedTooLong")
        self.wait_all_vote()

    def fences_that_are_behind(self):
        """Numbers far ahead of any clock: the guess is too low."""
        for server in self.masters:
            server.cli("HSET", HASH, "floor", int((time.time() + 30 * 86400) * 1e6))
        self.wait_value("sum(redlockd_fence_second_rounds_total) > bool 0", 1)

    def a_bad_setting(self):
        """Harmless at first, and then not."""
        self.masters[0].cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        self.wait_alert("RedlockdMasterWarning")
        self.masters[0].cli("CONFIG", "SET", "maxmemory", "100mb")
        self.wait_alert("RedlockdMasterRefused")
        self.masters[0].cli("CONFIG", "SET", "maxmemory", "0")
        self.masters[0].cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
        self.wait_all_vote()

    def a_master_that_hangs(self):
        """Commands lie in its socket, and are late when it goes on."""
        self.masters[2].stop()
        self.wait_value('sum(redlockd_master_errors_total{reason="timeout"}) > bool 0', 1)
        self.masters[2].cont()
        self.wait_all_vote()

    def a_lease_that_lacks_a_vote(self):
        """Another has one master, while all vote."""
        self.masters[2].cli("SET", "below", "a" * 40, "PX", "60000")
        lease = self.plain.acquire("below", TTL_MS)

        def extend():
            assert self.plain.curl("PUT", "/locks/below", body={"token": lease["token"]}).status == 200
        self.wait_alert("RedlockdLeasesBelowFull", meanwhile=extend)
        self.plain.release(lease)

    def a_master_that_restarts(self):
        self.masters[2].kill()
        self.wait_alert("RedlockdMasterDown")
        self.masters[2].start()
        self.wait_value('max(redlockd_master_quarantined{reason=~"no-epoch|restarted|bad-epoch"})', 1)
        self.wait_all_vote()

    def no_quorum(self):
        """Two come back empty, and the others know too little."""
        for server in self.masters[1:]:
            server.kill()
        self.wait_alert("RedlockdNoQuorum", "RedlockdNoQuorumAnswers")
        for server in self.masters[1:]:
            server.start()
        self.wait_alert("RedlockdFenceFloorClocked")
        self.wait_all_vote()

    def restarts(self):
        """On the same address, each time seen by Prometheus."""
        for _ in range(2):
            started = self.prometheus.now("max(redlockd_config_reload_timestamp_seconds)")
            self.plain.stop(signal.SIGINT)
            self.plain = self.lab.redlockd(self.masters, "--workers", "2", *self.limits, listen=(self.plain.address,))
            wait_until(lambda before=started: self.prometheus.now("max(redlockd_config_reload_timestamp_seconds)") > before, 60, "scraped anew")
        self.wait_alert("RedlockdCrashLoop")
        self.wait_all_vote()
