"""The pictures of the status page for the documents: docs/images. See README.md of this folder."""

import contextlib
import json
import threading

from page_fixtures import lock_row, ready

from harness import SLOW

TEAMS = ["checkout", "billing", "mailer", "search", "reports"]
HOLDERS = ["worker-7", "worker-3", "node-2", "cron@db1", "api-5f9c", "worker-12"]


class Waiters:
    """Requests that wait, each with an owner."""

    def __init__(self, service, waits):
        self.sockets = [service.connect() for _ in waits]
        for one, (resource, owner) in zip(self.sockets, waits, strict=True):
            body = json.dumps({"resource": resource, "owner": owner, "ttl_ms": 1000, "wait_ms": 60000})
            one.sendall(f"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    def close(self):
        for one in self.sockets:
            one.close()


@contextlib.contextmanager
def traffic(service):
    """Short leases and refusals until the end."""
    ended = threading.Event()

    def work():
        client, rounds = service.client(), 0
        while not ended.wait(0.01):
            rounds += 1
            taken = client.call("POST", "/locks", {"resource": f"jobs/{rounds % 6}", "ttl_ms": 6000, "owner": "load"})
            if taken.status == 201 and rounds % 83:
                client.call("DELETE", "/locks/" + taken.json["resource"], {"token": taken.json["token"]})
        client.close()
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30 * SLOW)


def test_images_for_the_documents(page, lab):
    service = lab.redlockd(lab.redises(3, tcp=True), f"--master-timeout-ms={round(min(200 * SLOW, 2000))}")
    for i in range(8):
        service.acquire(f"{TEAMS[i % 5]}/{40 + 7 * i}", ttl_ms=60000 - 2500 * i, owner=HOLDERS[i % 6])
    waiters = Waiters(service, [("billing/47", "worker-3"), ("billing/47", "worker-9"), ("billing/47", "worker-9"), ("search/61", "indexer-2")])
    try:
        with traffic(service):
            ready(page, service)
            page.wait(lambda: page.run("return pointed.plots[0].lists[0].length") >= 15, 60, "some points in the plots")
            page.wait(lambda: (lock_row(page, "billing/47") or [""] * 5)[4] == "3" and len(page.rows("waiting")) == 2)
            page.cdp("Emulation.setScrollbarsHidden", hidden=True)
            page.look(1440, 900)
            plots_end = page.run("return Math.ceil(document.getElementById('plots').getBoundingClientRect().bottom)")
            for name, width, height, dark in (("page", 1440, plots_end + 20, False), ("page-dark", 1440, plots_end + 20, True), ("page-390", 390, 1100, False)):
                page.look(width, height, dark)
                page.screenshot(f"docs-{name}", whole=False)
                assert page.overflow() == [0, []]
    finally:
        waiters.close()
