# SPDX-License-Identifier: MIT
"""What the tests of the status page share: a redlockd that is ready, and how its page is read and used."""

import contextlib
import json
import re
import threading

import pytest

import harness
from harness import SLOW, quote

LONG = 600_000  # ms, of a lease that lasts as long as the test, also on a busy machine: a page takes its time there
ALLOW_LONG = ("--max-ttl-ms=10m", "--max-wait-ms=10m")


@pytest.fixture(scope="module")
def shared():
    """One redlockd over three masters."""
    with harness.Lab() as started:
        yield started.service(3, *ALLOW_LONG)


@pytest.fixture
def three(shared):
    """The same for all tests that leave the masters as they were; no lock is left to the next one, also where a test fails."""
    yield shared
    for lock in shared.curl("GET", "/locks?limit=1000").json["locks"]:
        shared.curl("DELETE", f"/locks/{quote(lock['resource'])}?force=true")


def ready(page, service, hash=""):
    page.open(service.address, hash)
    page.wait(lambda: page.text("#quorum-title") == "Quorum" and page.rows("masters"), what="the quorum is shown")
    return page


def lock_row(page, resource):
    return page.run("const r = [...document.querySelectorAll('#locks > tr')].find(r => r.dataset.key === arguments[0]);"
                    "return r ? [...r.children].map(c => c.textContent) : null", resource)


def names(page):
    """The locks that are shown, in their order."""
    return page.run("return [...document.querySelectorAll('#locks > tr')].map(r => r.dataset.key)")


def filter_by(page, prefix):
    """Types how names begin, and waits until the locks that are shown are those."""
    page.run("const e = document.getElementById('prefix'); e.value = arguments[0]; e.dispatchEvent(new Event('input'))", prefix)
    page.wait(lambda: page.run("return view.prefix === arguments[0] && pollers.locks.failures + (pollers.locks.answered !== null) > 0", prefix))


def filter_text(page, text):
    page.run("const e = document.getElementById('text'); e.value = arguments[0]; e.dispatchEvent(new Event('input'))", text)


def seconds_in(text):
    """4.2 s, 4 min 03 s."""
    minutes, seconds = re.fullmatch(r"(?:(\d+) min )?(\d+(?:\.\d)?) s", text).groups()
    return int(minutes or 0) * 60 + float(seconds)


def number_in(text):
    """0 for the dash that stands where there is no value yet."""
    return 0 if text in ("", "–") else float(text)


def open_dialog(page, resource):
    page.wait(lambda: lock_row(page, resource))
    page.run("[...document.querySelectorAll('#locks > tr')].find(r => r.dataset.key === arguments[0]).querySelector('button').click()", resource)
    page.wait(lambda: page.seen("#force"))


def judge(page, name, width=1280, dark=False, whole=True):
    """Takes its picture, and lets the checker and the edges of the window judge it."""
    page.look(width, 800, dark)
    page.screenshot(name, whole)
    found = page.axe()
    assert found == [], (name, found)
    found = page.overflow()
    assert found == [0, []], (name, found)


class Waiters:
    """Requests that wait: (resource, owner or None) of each."""

    def __init__(self, service, waits):
        self.sockets = [service.connect() for _ in waits]
        for one, (resource, owner) in zip(self.sockets, waits, strict=True):
            body = json.dumps({"resource": resource, **({"owner": owner} if owner else {}), "ttl_ms": 1000, "wait_ms": LONG})
            one.sendall(f"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    def close(self):
        for one in self.sockets:
            one.close()


@contextlib.contextmanager
def traffic(service, locks, ttl_ms, keep):
    """A client that takes some locks again and again, and releases all but each `keep`-th."""
    ended = threading.Event()

    def work():
        client, rounds = service.client(), 0
        while not ended.wait(0.01):
            rounds += 1
            taken = client.call("POST", "/locks", {"resource": f"jobs/{rounds % locks}", "ttl_ms": ttl_ms, "owner": "load"})
            if taken.status == 201 and rounds % keep:
                client.call("DELETE", "/locks/" + taken.json["resource"], {"token": taken.json["token"]})
        client.close()
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30 * SLOW)
