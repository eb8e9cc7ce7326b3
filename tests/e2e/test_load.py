# SPDX-License-Identifier: MIT
"""Defects that only show under load: bursts, an end under load, stopped masters behind listings."""

import http.client
import itertools
import json
import signal
import threading
import time

from harness import SCALE, read_response, wait_until

BURST = max(300, round(1500 * SCALE))


def test_a_burst_is_not_blamed_on_the_masters(many_files, lab):
    """All requests lie there before the first is read: what takes long is our own work."""
    service = lab.service(3)
    sockets = [service.connect() for _ in range(BURST)]
    for i, plain in enumerate(sockets):
        body = json.dumps({"resource": f"burst/{i}"}).encode()
        plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    statuses = [read_response(plain).status for plain in sockets]
    for plain in sockets:
        plain.close()
    assert statuses == [201] * BURST
    service.stop()


def test_it_ends_well_while_requests_still_come(lab):
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        service = lab.service(3, "--drain-ms", "300")
        over = threading.Event()

        def ask():
            while not over.is_set():
                try:
                    client = service.client()
                    while True:
                        client.call("GET", "/locks/busy")
                except (OSError, AssertionError, ValueError, http.client.HTTPException):
                    continue

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        wait_until(lambda: service.metrics().get('redlockd_lease_requests_total{op="inspect",outcome="ok"}', 0) > 50, what="the load")
        try:
            service.stop(signal_number)
        finally:
            over.set()
            for thread in threads:
                thread.join()


def test_a_listing_passes_over_a_master_that_stopped(lab):
    servers = lab.redises(3)
    service = lab.redlockd(servers)
    service.acquire("there")
    servers[0].stop()
    page = service.curl("GET", "/locks")
    assert page.status == 200 and [lock["resource"] for lock in page.json["locks"]] == ["there"]
    servers[0].cont()
    service.stop()


def test_the_heartbeat_beats_once_a_second(lab):
    servers = lab.redises(1)
    service = lab.redlockd(servers)

    def beats():
        lines = servers[0].cli("INFO", "commandstats").splitlines()
        return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines if line.startswith("cmdstat_info:"))

    # Each look is itself an INFO: looks are counted and taken off.
    start, looks = time.monotonic(), itertools.count(1)
    first = beats()
    wait_until(lambda: beats() - first - next(looks) >= 4, what="four heartbeats")
    assert time.monotonic() - start > 2
    service.stop()
