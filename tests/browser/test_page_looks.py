# SPDX-License-Identifier: MIT
"""The status page for everybody: by keyboard, by screen reader, at any width, light and dark."""

import re
import signal

from page_fixtures import ALLOW_LONG, LONG, Waiters, judge, lock_row, open_dialog, ready, traffic
from selenium.webdriver.common.keys import Keys

from harness import freeze
from key_fixtures import Keyed, new_secret
from test_page_callers import type_key


# ---- accessibility ----


def test_by_keyboard_alone(page, three):
    ready(page, three)
    lease = three.acquire("keys/1", ttl_ms=LONG)
    walked = []
    page.wait(lambda: lock_row(page, "keys/1"))
    page.run("document.activeElement.blur()")
    for _ in range(120):
        page.press(Keys.TAB)
        what = page.focused()
        if not what:
            continue  # it had been on something that went away, a lock of before that ran out
        walked.append(what)
        ring = page.run("const s = getComputedStyle(document.activeElement); return [s.outlineStyle, parseFloat(s.outlineWidth)]")
        assert ring[0] != "none" and ring[1] >= 2, (what, ring)
        if "keys/1" in what and what.startswith("Release"):
            break
    stops = ("Skip to content", "Locks", "text", "prefix", "Owner", "keys/1", "Release")
    order = [next((at for at, one in enumerate(walked) if one.startswith(name)), None) for name in stops]
    assert None not in order and order == sorted(order), walked
    page.press(Keys.ENTER)
    page.wait(lambda: page.focused() == "force-cancel")
    page.press(Keys.ENTER)
    page.wait(lambda: "keys/1" in page.focused())
    # the focus stays where it is while answers come
    answered = page.run("return pollers.locks.answered")
    page.wait(lambda: page.run("return pollers.locks.answered") > answered)
    assert "keys/1" in page.focused()
    page.press(Keys.ENTER)
    page.wait(lambda: page.focused() == "force-cancel")
    page.press(Keys.TAB, Keys.ENTER)
    page.wait(lambda: page.text("#force-result").startswith("Released."))
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.seen("#force") and lock_row(page, "keys/1") is None)
    page.wait(lambda: page.focused() in ("text", "locks-title"), what="the focus is not lost")
    page.run("document.activeElement.blur(); document.querySelector('.skip').focus()")
    page.press(Keys.ENTER, Keys.TAB)
    assert page.run("return Boolean(document.activeElement.closest('main'))")
    assert three.release(lease).status == 410


def test_structure(page, three):
    ready(page, three)
    assert page.run("return ['header', 'nav', 'main', 'footer', 'h1'].map(n => document.querySelectorAll(n).length)") == [1] * 5
    levels = page.run("return [...document.querySelectorAll('h1, h2, h3')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1 and all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    assert page.run("return [...document.querySelectorAll('th')].every(th => th.scope)")
    assert page.run("return [...document.querySelectorAll('svg')].every(s => s.getAttribute('aria-hidden') === 'true' || s.getAttribute('role') === 'img')")
    assert page.run("return document.querySelectorAll('[style], [onclick], style:not([nonce]), script[src], link[rel=stylesheet]').length") == 0


def busy(lab):
    """A service worth a look: five masters, locks, hostile names."""
    service = lab.service(5, "--master-timeout-ms=2000", *ALLOW_LONG)
    for i in range(6):
        service.acquire(f"orders/{40 + i}", ttl_ms=LONG, owner=f"worker-{i}")
    service.acquire("<img src=x>/\u202egnp.exe", ttl_ms=LONG, owner="\u202eevil")
    service.acquire("a-long-name/" + "x" * 244, ttl_ms=LONG)
    return service


def test_accessibility_and_screenshots(page, lab):
    service = busy(lab)
    queue = Waiters(service, [("orders/40", None), ("orders/41", None), ("orders/40", None)])
    try:
        with traffic(service, 4, 800, 3):
            ready(page, service)
            page.wait(lambda: len(page.rows("waiting")) == 2)
            service.masters[2].restart()
            page.wait(lambda: "quarantined" in page.rows("masters")[2][1], 30)
            service.masters[4].stop()
            page.wait(lambda: "down" in page.rows("masters")[4][1])
            page.wait(lambda: len(plotted(page)) >= 4, 30, "some points in the plot")
            for name, width, dark in (("light", 1280, False), ("dark", 1280, True), ("narrow", 320, False), ("narrow-dark", 320, True), ("medium", 900, False),
                                      ("cards", 890, False)):
                judge(page, name, width, dark)
        page.run("chooseLock('orders/40')")
        page.wait(lambda: page.text("#lock-state") == "held" and len(page.run("return [...document.querySelectorAll('#lock-first > li')]")) == 2)
        page.run("pointAt(1)")
        judge(page, "lock")
        judge(page, "lock-narrow-dark", 390, dark=True)
        page.run("pointAt(null); closeLock()")
        open_dialog(page, "a-long-name/" + "x" * 244)
        judge(page, "narrow-force", 320, whole=False)
        judge(page, "dark-force", dark=True, whole=False)
        page.press(Keys.ESCAPE)
        page.refused.add(503)
        service.masters[0].stop()
        page.wait(lambda: page.text("#quorum-title") == "No quorum")
        judge(page, "no-quorum")
        judge(page, "no-quorum-dark", dark=True)
        freeze(service.process)
        page.wait(lambda: page.text("#live-text").startswith("No answer for 5 s."), 20)
        judge(page, "away")
        judge(page, "away-dark", dark=True)
    finally:
        service.process.send_signal(signal.SIGCONT)
        queue.close()
        service.masters[4].cont()
        service.masters[0].cont()


def plotted(page):
    """The points of the first line of the first plot."""
    return re.findall("[ML]", page.run("return document.querySelector('#plot-answers path.one').getAttribute('d') || ''"))


def test_accessibility_of_the_key_form(page, lab):
    keyed = Keyed(lab, []).wait_ready()
    page.refused |= {401}
    page.open(keyed.redlockd.address)
    type_key(page, new_secret())
    page.wait(lambda: page.text("#key-title") == "Key rejected")
    page.wait(lambda: page.text("#live-text") == "Key required")
    judge(page, "key", whole=False)
    judge(page, "key-narrow-dark", 320, dark=True, whole=False)
