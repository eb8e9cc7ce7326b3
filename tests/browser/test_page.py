# SPDX-License-Identifier: MIT
"""The status page in a real Chromium, over a real redlockd with real masters: masters, activity, and a service that goes.

Each test has a fresh tab. The fixture `page` fails it where the page broke its own policy, wrote an error into the console or asked anybody else.
"""

import json
import re
import signal
import statistics
import subprocess
import threading
import time

import pytest
from page_fixtures import LONG, filter_by, lock_row, number_in, ready, seconds_in
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from harness import SLOW, Client, freeze, starved_seconds, wait_until

TIMEOUT_MS = round(min(200 * SLOW, 2000))  # of masters that a test stops
RED_SECONDS = 2 if SLOW == 1 else 2 * SLOW


def test_masters_are_those_of_the_api(page, three):
    ready(page, three)
    masters = three.curl("GET", "/masters").json
    rows = page.rows("masters")
    assert [row[0] for row in rows] == [one["address"] + one["version"] for one in masters["masters"]]
    assert all(row[1].startswith("✓ voting for ") for row in rows) and [row[2] for row in rows] == [""] * 3
    assert page.text("#quorum-text") == "3 of 3 masters vote, 2 are needed: locks can be acquired."
    assert page.run("return document.title") == "✓ 3/3 · redlockd"
    api, shown = page.driver.execute_async_script("""
        const done = arguments[0];
        ask("/masters").then(body => { // shown at once, since it is measured anew each second
            showMasters(body);
            done([body.masters.map(one => one.rtt_us), [...document.querySelectorAll("#masters > tr")].map(row => row.children[3].textContent.trim())]);
        });""")
    assert shown == [f"{rtt_us / 1000:.2f} ms" for rtt_us in api]


def test_since_when_a_master_is_in_its_state(page, three):
    """Read at once, so that no later answer comes between; two hours more than the API says, so that the test need not take as long."""
    ready(page, three)
    shown = page.driver.execute_async_script("""
        const done = arguments[0];
        ask("/masters").then(body => {
            body.masters[1].state_ms += 2 * 3600 * 1000;
            showMasters(body);
            done([...document.querySelectorAll("#masters .since")].map(e => e.textContent));
        });""")
    assert shown[1].startswith("for 2 h ") and shown[0].endswith("s") and shown[2].endswith("s"), shown


def test_activity_waiters_and_hottest(page, three):
    ready(page, three)
    three.acquire("seldom/1", ttl_ms=LONG)
    lease = three.acquire("busy/1", ttl_ms=LONG, owner="slow one")
    for _ in range(7):
        assert three.curl("POST", "/locks", body={"resource": "busy/1"}).status == 409
    ended = []

    def queue_up_all():
        client = Client(three.address)
        ended.append(client.call("POST", "/locks", {"resource": "busy/1", "owner": "patient", "ttl_ms": 1000, "wait_ms": LONG}).status)
        client.close()
    waiters = [threading.Thread(target=queue_up_all) for _ in range(2)]
    for one in waiters:
        one.start()
    try:
        page.wait(lambda: (page.row("waiting", "busy/1") or ["", ""])[1] == "2")
        page.wait(lambda: page.text("#now-waiters") == "2")
        assert page.row("waiting", "busy/1")[3] == "patient ×2"
        hot = page.wait(lambda: page.row("hottest", "busy/1"))
        said = next(one for one in three.curl("GET", "/stats").json["hottest"] if one["resource"] == "busy/1")
        assert not page.row("hottest", "seldom/1"), "requested once"
        assert int(hot[1]) >= 8 and int(hot[2]) >= 7 and abs(int(hot[1]) - said["acquires"]) <= 3, (hot, said)
        filter_by(page, "busy/")
        page.wait(lambda: (lock_row(page, "busy/1") or [""] * 5)[4] == "2")
        first = seconds_in(page.row("waiting", "busy/1")[2])
        page.wait(lambda: seconds_in(page.row("waiting", "busy/1")[2]) > first + 0.3)
        # the plots: what they say in words is what the series hold
        page.wait(lambda: number_in(page.rows_of("#plot-answers tbody")[1][3]) > 0)

        def same_most():
            locked = three.curl("GET", "/stats").json
            most = max(locked["series"]["locked"]) * 1000 / locked["interval_ms"]
            return number_in(page.rows_of("#plot-answers tbody")[1][3]) == pytest.approx(most, rel=0.01)
        page.wait(same_most, what="the most in the plot is that of the API")
        assert page.run("return document.querySelectorAll('#plots svg.plot path.line[d*=L], #plots svg.plot path.line[d*=M]').length") >= 8
        assert "locked: at most" in page.text("#plot-answers-words")
        assert page.run("return document.querySelectorAll('#masters svg.spark path.one[d*=M]').length") == 3
        page.click("#waiting a")  # leads to the lock
        page.wait(lambda: page.focused() == "lock-title" and page.text("#lock-name") == "busy/1")
        page.wait(lambda: page.run("return [...document.querySelectorAll('#lock-first > li')].map(e => e.firstChild.textContent)") == ["patient"] * 2)
        assert page.text("#lock-waiters") == "2" and page.text("#lock-others") == ""
    finally:
        three.release(lease)
        for one in waiters:
            one.join(30 * SLOW)
    assert ended == [201, 201]
    page.wait(lambda: page.text("#waiting-note") == "No waiters at this redlockd.")


def test_nothing_yet(page, lab):
    service = lab.service(3)
    ready(page, service)
    page.wait(lambda: page.text("#locks-note") == "No lock is held." and page.seen("#empty"))
    page.wait(lambda: page.text("#waiting-note") == "No waiters at this redlockd." and page.text("#hottest-note") == "No lock was requested twice in the last minute.")
    assert [page.seen(f"#{body}") for body in ("locks", "waiting", "hottest")] == [False] * 3
    page.wait(lambda: page.rows_of("#plot-latency tbody")[0][1] == "–")  # no answer, no time to answer
    page.cdp("Browser.grantPermissions", origin=page.origin, permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.click("#copy")
    page.wait(lambda: page.text("#announce") in ("Copied.", "The line is selected."))
    line = page.text("#empty-line")
    assert page.run("return getSelection().toString()") == line
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["resource"] == "hello"
    page.wait(lambda: lock_row(page, "hello") and not page.seen("#empty"))


def point(plot, page):
    """What a plot says of the point that is looked at: [time, one text for each series]."""
    return page.run("return [...document.querySelectorAll(`#${arguments[0]} .plot-tip:not([hidden]) > span`)].map(e => e.textContent)", plot)


def test_the_values_in_the_plots(page, three):
    """Under the pointer, and by the keys: what the series hold at that point."""
    ready(page, three)
    for i in range(4):
        three.release(three.acquire(f"plotted/{i}", ttl_ms=LONG))
    page.wait(lambda: page.run("const l = pointed.plots[0].lists[0]; return l.length >= 4 && l.some(n => n > 0)"), 30, "points in the plots")
    axis = page.run("return [...document.querySelectorAll('#plot-answers .plot-y > span')].map(e => e.textContent)")
    assert float(axis[0]) == 2 * float(axis[1]) > 0 and axis[2] == "0"
    assert page.run("return [...document.querySelectorAll('#plot-answers .plot-axis > span')].map(e => e.textContent)")[1:] == ["30 s ago", "now"]
    page.run("pollers.stats.may = () => false")  # what is drawn stays
    page.wait(lambda: not page.run("return pollers.stats.running"))
    granted = page.run("return pointed.plots[0].lists[0].map(wordsForValue)")
    assert point("plot-answers", page) == []
    slider = page.one("#plot-answers .plot-slider")
    page.run("arguments[0].scrollIntoView({ block: 'center' })", slider)
    ActionChains(page.driver).move_to_element_with_offset(slider, slider.size["width"] // 2 - 2, 0).perform()
    page.wait(lambda: point("plot-answers", page)[1:2] == [f"granted {granted[-1]}"], what="the last point, at the right edge")
    assert len(point("plot-latency", page)) == 3, "the other plots show the same time"
    ActionChains(page.driver).move_to_element(page.one("#activity-title")).perform()
    page.wait(lambda: point("plot-answers", page) == [])
    page.run("document.querySelector('#plot-answers .plot-slider').focus()")
    for back in (1, 2):
        page.press(Keys.ARROW_LEFT)
        page.wait(lambda back=back: point("plot-answers", page)[1:2] == [f"granted {granted[-1 - back]}"], what=f"{back} points before the last one")
    assert f"granted {granted[-3]}, locked " in slider.get_attribute("aria-valuetext")
    page.run("document.activeElement.blur()")
    page.wait(lambda: point("plot-answers", page) == [])


# ---- masters that go, a service that goes ----


def test_a_stopped_master_is_red_within_two_seconds(page, lab):
    service = lab.service(3, f"--master-timeout-ms={TIMEOUT_MS}")
    ready(page, service)
    master = service.masters[1]
    waits = """
        const [wanted, done] = arguments, row = document.querySelectorAll("#masters > tr")[1], pill = row.querySelector(".pill");
        const look = () => [row.className, row.querySelector(".state").textContent, getComputedStyle(pill).backgroundColor];
        (function again() { if (look()[1] === wanted) done([Date.now(), ...look()]); else setTimeout(again, 10); })();"""
    stopped, starved = time.time(), starved_seconds()
    master.stop()
    try:
        at, row, state, colour = page.driver.execute_async_script(waits, "down")
        assert row == "master bad" and state == "down"
        red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
        assert red > 150 and green < 60 and blue < 60, colour
        print(f"red after {at / 1000 - stopped:.2f} s")
        assert at / 1000 - stopped < RED_SECONDS + starved_seconds() - starved
        down_ms = service.curl("GET", "/masters").json["masters"][1]["state_ms"]
        page.wait(lambda: seconds_in(page.text("#masters > tr:nth-child(2) .since").removeprefix("for ")) >= max(1, down_ms // 1000), what="since when it is down")
        page.wait(lambda: page.text("#quorum-text").startswith("2 of 3 masters vote, 2 are needed"))
        assert "may fail" in page.text("#quorum-text") and master.path in page.text("#announce") and "is down: timeout" in page.text("#announce")
        assert page.rows("masters")[1][2].startswith("timeout: no answer")
        service.masters[2].stop()
        page.wait(lambda: page.text("#quorum-title") == "No quorum")
        assert "quorum bad" in page.one("#quorum").get_attribute("class") and "NO QUORUM" in page.run("return document.title")
        page.refused.add(503)  # no listing without a quorum
        page.wait(lambda: page.text("#locks-note").startswith("Not listed: ") and "Retry-After" not in page.text("#locks-note"))
    finally:
        master.cont()
        service.masters[2].cont()
    page.wait(lambda: all(row[1].startswith("✓ voting") for row in page.rows("masters")), 30)
    page.wait(lambda: page.text("#announce").endswith("3 of 3 masters vote, 2 are needed: locks can be acquired."))
    assert page.run("return document.querySelectorAll('#masters > tr')[1].className") == "master good"


def test_a_quarantined_master_says_how_long(page, lab):
    service = lab.service(3, "--restart-guard=whole", "--bootstrap")  # long enough to be looked at
    ready(page, service)
    service.masters[0].restart()
    row = page.wait(lambda: page.rows("masters")[0] if page.rows("masters")[0][1].startswith("! quarantined for ") else None, 30)
    said = service.curl("GET", "/masters").json["masters"][0]
    assert said["reason"] in row[2], (row, said)
    page.wait(lambda: page.text("#masters .quarantine-left"))

    def shown():
        return seconds_in(page.text("#masters .quarantine-left").removesuffix(" left"))
    left, api, later = shown(), service.curl("GET", "/masters").json["masters"][0]["quarantine_remaining_ms"] / 1000, shown()
    assert later - 2 * SLOW < api < left + 2 * SLOW, (left, api, later)
    page.wait(lambda: shown() < left - 1)


def test_when_there_will_be_a_quorum(page, three):
    """As soon as the last of the masters that are missing may vote; not known where time alone does not end that."""
    ready(page, three)
    said = "return quorumWords({ quorum: { voting: 1, needed: 3, masters: 5 }, masters: arguments[0].map(ms => ({ quarantine_remaining_ms: ms })) })"
    for left_ms, end in (([None, 90001, 1000, 62000, None], "no lock can be acquired. In 1 min 02 s enough will vote."),
                         ([None, 1000, None, None, None], "no lock can be acquired.")):
        assert page.run(said, left_ms) == f"1 of 5 masters votes, 3 are needed: {end}"


def test_announcements_do_not_chatter(page, three):
    ready(page, three)
    page.run("""
        const region = document.getElementById("announce");
        window.said = [];
        new MutationObserver(() => window.said.push(region.textContent)).observe(region, { childList: true });""")
    asked = page.asked("/masters")
    wait_until(lambda: page.asked("/masters") > asked + 5, 20, "polls")
    assert page.run("return window.said") == []
    assert page.run("return [...document.querySelectorAll('[aria-live], [role=status], [role=alert]')].map(e => e.id)") == ["announce", "force-result"]


def test_a_service_that_is_away_looks_it(page, lab):
    service = lab.service(3)
    lease = service.acquire("kept/1", ttl_ms=60000)
    ready(page, service)
    page.wait(lambda: lock_row(page, "kept/1"))
    freeze(service.process)
    try:
        page.wait(lambda: page.text("#quorum-title").startswith("Unknown: no answer for"))
        assert "stale" in page.one("#quorum").get_attribute("class") and re.fullmatch(r"as of \d+ s ago", page.text("#masters-age"))
        assert "grayscale" in page.run("return getComputedStyle(document.querySelector('#masters').parentElement).filter")
        assert page.run("return document.title") == "? no answer · redlockd"
        page.wait(lambda: page.text("#live-text").startswith("No answer for 5 s."), 20)
        page.wait(lambda: "The data shown is out of date." in page.text("#announce"))
        assert lock_row(page, "kept/1") and page.seen("#retry")
        before = page.run("return performance.now()"), page.asked("/masters"), page.asked("/locks")
        page.wait(lambda: page.run("return pollers.masters.failures") >= 2, 30)
        asked = page.asked("/masters") - before[1], page.asked("/locks") - before[2]
        seconds = (page.run("return performance.now()") - before[0]) / 1000
        assert asked[0] <= seconds / 1 + 1 and asked[1] <= 1, "it slows down"
    finally:
        service.process.send_signal(signal.SIGCONT)
    page.wait(lambda: page.text("#live-text") == "Live" and page.text("#quorum-title") == "Quorum", 30)
    assert page.text("#masters-age") == ""
    service.release(lease)
    service.stop()  # now the connection is refused at once
    page.refused.add(0)
    page.wait(lambda: page.text("#live-text").startswith("redlockd cannot be reached."))


def test_asks_in_time_and_one_at_a_time(page, three):
    ready(page, three)
    starved = starved_seconds()
    kinds = page.driver.execute_async_script("""
        const done = arguments[0];
        kickAll();
        kickAll();
        kickAll();
        const spans = () => performance.getEntriesByType("resource").map(e => [new URL(e.name).pathname, e.startTime, e.responseEnd]);
        (function look() {
            const seen = spans(), enough = ["/masters", "/stats", "/locks"].every(path => seen.filter(span => span[0] === path).length >= 6);
            if (enough) done(seen); else setTimeout(look, 100);
        })();""")
    starved_for = starved_seconds() - starved
    for path, every_ms in (("/masters", 500), ("/stats", 1000), ("/locks", 2000)):
        spans = sorted(span[1:] for span in kinds if span[0] == path)
        gaps = [after - before for (before, _), (after, _) in zip(spans, spans[1:], strict=False)]
        wanted = [max(every_ms, 8 * (ended - began)) for began, ended in spans]  # what takes long is requested more rarely
        late = [gap - least for gap, least in zip(gaps, wanted, strict=False)][2:]  # the first come from being kicked
        assert -0.1 * every_ms < statistics.median(late) < 1.5 * every_ms * SLOW + 1000 * starved_for, (path, gaps, wanted)
        assert all(ended <= began for (_, ended), (began, _) in zip(spans, spans[1:], strict=False)), (path, spans)


def test_a_hidden_page_asks_nothing(page, three):
    ready(page, three)
    page.run("Object.defineProperty(document, 'hidden', { configurable: true, get: () => true }); document.dispatchEvent(new Event('visibilitychange'))")
    page.wait(lambda: not page.run("return Object.values(pollers).some(p => p.running)"))
    asked = page.asked("/masters") + page.asked("/stats") + page.asked("/locks")
    page.driver.execute_async_script("setTimeout(arguments[0], 2500)")
    assert page.asked("/masters") + page.asked("/stats") + page.asked("/locks") == asked
    page.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait(lambda: page.asked("/masters") > asked // 3 and page.text("#live-text") == "Live")
