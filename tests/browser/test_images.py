# SPDX-License-Identifier: MIT
"""The pictures of the status page for the documents: docs/images. See README.md of this folder."""

from page_fixtures import Waiters, lock_row, ready, traffic

TEAMS = ["checkout", "billing", "mailer", "search", "reports"]
HOLDERS = ["worker-7", "worker-3", "node-2", "cron@db1", "api-5f9c", "worker-12"]


def test_images_for_the_documents(page, lab):
    service = lab.redlockd(lab.redises(3, tcp=True))
    for i in range(8):
        service.acquire(f"{TEAMS[i % 5]}/{40 + 7 * i}", ttl_ms=60000 - 2500 * i, owner=HOLDERS[i % 6])
    waiters = Waiters(service, [("billing/47", "worker-3"), ("billing/47", "worker-9"), ("billing/47", "worker-9"), ("search/61", "indexer-2")])
    try:
        with traffic(service, 6, 6000, 83):
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
