"""The status page in a real Chromium, over a real redlockd with real masters: what it shows is what the API says.

Each test has a fresh tab. The fixture `page` fails it where the page broke its own policy, wrote an error into the console or asked anybody else.
"""

import contextlib
import itertools
import json
import re
import signal
import statistics
import threading
import time

import pytest
from selenium.webdriver.common.keys import Keys

import harness
from harness import SLOW, Client, quote, wait_until
from key_fixtures import Key, Keyed, new_secret

TIMEOUT_MS = round(min(200 * SLOW, 2000))
RED_SECONDS = 2 if SLOW == 1 else 2 * SLOW
HOSTILE = ["<img src=x onerror=document.title='owned'>", "'\"><script>document.title='owned'</script>", "a\u202egnp.exe", "\u200b", " ", "x" * 256, "ü" * 128,
           "a/../b", "%2e%2e", "?force=true", "#", "{{7*7}}", "\u2066a\u2069\u061c", "👩‍🚀", "</td></tr>"]
TAGS = re.compile("[\u200b\u200d\u202a-\u202e\u2060-\u2069\u061c\ufeff]")


@pytest.fixture(scope="module")
def shared():
    """One redlockd over three masters."""
    with harness.Lab() as started:
        yield started.service(3, f"--master-timeout-ms={TIMEOUT_MS}")


@pytest.fixture
def three(shared):
    """The same for all tests that leave the masters as they were; no lock is left to the next one, also where a test fails."""
    yield shared
    for lock in shared.curl("GET", "/locks?limit=1000").json["locks"]:
        shared.curl("DELETE", f"/locks/{quote(lock['resource'])}?force=true")


def ready(page, service):
    page.open(service.address)
    page.wait(lambda: page.text("#quorum-title") == "Quorum" and page.rows("masters"), what="the quorum is shown")
    return page


def shown_name(name):
    """As the page writes a name: what cannot be seen, by its number."""
    return TAGS.sub(lambda match: f"U+{ord(match.group()):04X}", name)


def lock_row(page, resource):
    return page.run("const r = [...document.querySelectorAll('#locks > tr')].find(r => r.dataset.key === arguments[0]);"
                    "return r ? [...r.children].map(c => c.textContent) : null", resource)


def filter_by(page, prefix):
    """Types it, and waits until the locks that are shown are those."""
    page.run("const e = document.getElementById('prefix'); e.value = arguments[0]; e.dispatchEvent(new Event('input'))", prefix)
    page.wait(lambda: page.run("return view.prefix === arguments[0] && pollers.locks.failures + (pollers.locks.answered !== null) > 0", prefix))


def seconds_left(text):
    minutes, seconds = re.fullmatch(r"(?:(\d+) min )?(\d+(?:\.\d)?) s", text).groups()
    return int(minutes or 0) * 60 + float(seconds)


# ---- what is shown is what the API says ----


def test_masters_are_those_of_the_api(page, three):
    ready(page, three)
    masters = three.curl("GET", "/masters").json
    rows = page.rows("masters")
    assert [row[0] for row in rows] == [one["address"] + one["version"] for one in masters["masters"]]
    assert [row[1] for row in rows] == ["✓ voting"] * 3 and [row[2] for row in rows] == [""] * 3
    assert page.text("#quorum-text") == "3 of 3 masters vote, 2 are needed: locks can be acquired."
    assert page.run("return document.title") == "✓ 3/3 · redlockd"

    def round_trips():
        api = [f"{one['rtt_us'] / 1000:.2f} ms" for one in three.curl("GET", "/masters").json["masters"]]
        return page.wait(lambda: [row[3] for row in page.rows("masters")] == api, 3)
    for tries_left in (4, 3, 2, 1, 0):  # it is measured anew each second
        try:
            assert round_trips()
            break
        except AssertionError:
            assert tries_left


def test_locks_are_those_of_the_api(page, three):
    ready(page, three)
    lease = three.acquire("page/one", ttl_ms=60000, owner="worker-7")
    bare = three.acquire("page/two", ttl_ms=60000)
    filter_by(page, "page/")
    rows = page.wait(lambda: len(page.rows("locks")) == 2 and page.rows("locks"))
    said = {one["resource"]: one for one in three.curl("GET", "/locks?prefix=page/").json["locks"]}
    for row, name, owner in zip(rows, ["page/one", "page/two"], ["worker-7", "–"], strict=True):
        assert row[0] == name and row[1] == owner and row[2] == str(said[name]["fence"]) and row[4] == "0" and row[5] == "3 of 3", row
    left = seconds_left(lock_row(page, "page/one")[3]), three.curl("GET", "/locks/page/one").json["remaining_ms"] / 1000
    assert abs(left[0] - left[1]) < 1 * SLOW, left
    assert page.text("#locks-note") == "2 locks are held."
    three.release(lease), three.release(bare)
    page.wait(lambda: page.text("#locks-note") == "No lock with this prefix is held.")
    assert not page.seen("#locks")


def test_the_time_left_runs_between_two_answers(page, three):
    ready(page, three)
    lease = three.acquire("count/down", ttl_ms=60000)
    filter_by(page, "count/")
    page.wait(lambda: lock_row(page, "count/down"))
    texts = page.driver.execute_async_script("""
        const done = arguments[0], cell = document.querySelector("#locks td.remaining"), seen = [];
        new MutationObserver((_, self) => {
            seen.push(cell.textContent);
            if (seen.length === 15) { self.disconnect(); done(seen); }
        }).observe(cell, { childList: true });""")
    left = [seconds_left(text) for text in texts]
    # An answer that came sooner than the one before lifts the number by the difference: less than a second.
    assert all(after - before < 1 for before, after in zip(left, left[1:])) and left[-1] < left[0] and len(set(left)) >= 12, left
    assert left[0] - left[-1] < 5 * SLOW
    page.look(1280, 900, calm=True)  # then once a second
    page.wait(lambda: page.run("return matchMedia('(prefers-reduced-motion: reduce)').matches"))
    assert not page.run("return document.getAnimations().length")
    three.release(lease)


def test_the_prefix_and_the_pages(page, three):
    ready(page, three)
    leases = [three.acquire(f"many/{i:03}", ttl_ms=60000) for i in range(105)]
    other = three.acquire("other", ttl_ms=60000)
    filter_by(page, "many/")
    page.wait(lambda: page.seen("#next") and not page.seen("#first"))
    assert all(row[0].startswith("many/") for row in page.rows("locks")) and "more" in page.text("#locks-note")
    seen = {row[0] for row in page.rows("locks")}
    while page.seen("#next"):
        before = page.run("return view.cursor")
        page.click("#next")
        page.wait(lambda before=before: page.run("return view.cursor !== arguments[0] && pollers.locks.answered !== null", before))
        seen |= {row[0] for row in page.rows("locks")}
    assert seen == {f"many/{i:03}" for i in range(105)}
    page.click("#first")
    page.wait(lambda: page.seen("#next"))
    filter_by(page, "other")
    page.wait(lambda: [row[0] for row in page.rows("locks")] == ["other"] and not page.seen("#next"))
    for lease in [*leases, other]:
        three.release(lease)


def test_activity_waiters_and_hottest(page, three):
    ready(page, three)
    lease = three.acquire("busy/1", ttl_ms=60000, owner="slow one")
    for _ in range(7):
        assert three.curl("POST", "/locks", body={"resource": "busy/1"}).status == 409
    ended = []

    def queue_up_all():
        client = Client(three.address)
        ended.append(client.call("POST", "/locks", {"resource": "busy/1", "ttl_ms": 1000, "wait_ms": 60000}).status)
        client.close()
    waiters = [threading.Thread(target=queue_up_all) for _ in range(2)]
    for one in waiters:
        one.start()
    try:
        page.wait(lambda: (page.row("waiting", "busy/1") or ["", ""])[1] == "2")
        page.wait(lambda: page.text("#now-waiters") == "2")
        hot = page.wait(lambda: page.row("hottest", "busy/1"))
        said = next(one for one in three.curl("GET", "/stats").json["hottest"] if one["resource"] == "busy/1")
        assert int(hot[1]) >= 8 and int(hot[2]) >= 7 and abs(int(hot[1]) - said["acquires"]) <= 3, (hot, said)
        filter_by(page, "busy/")
        page.wait(lambda: (lock_row(page, "busy/1") or [""] * 5)[4] == "2")
        first = seconds_left(page.row("waiting", "busy/1")[2])
        page.wait(lambda: seconds_left(page.row("waiting", "busy/1")[2]) > first + 0.3)
        # the plots: what they say in words is what the series hold
        page.wait(lambda: float(page.rows_of("#plot-answers tbody")[1][3] or 0) > 0)
        locked = three.curl("GET", "/stats").json
        assert float(page.rows_of("#plot-answers tbody")[1][3]) == pytest.approx(max(locked["series"]["locked"]) * 1000 / locked["interval_ms"], rel=0.01)
        assert page.run("return document.querySelectorAll('#plots svg.plot path.line[d*=L], #plots svg.plot path.line[d*=M]').length") >= 8
        assert "locked: at most" in page.text("#plot-answers-words")
        assert page.run("return document.querySelectorAll('#masters svg.spark path.one[d*=M]').length") == 3
        page.click("#waiting button")  # leads to the lock
        page.wait(lambda: page.focused().startswith("Locks") or page.focused() == "locks-title")
        assert page.run("return document.getElementById('prefix').value") == "busy/1"
    finally:
        three.release(lease)
        for one in waiters:
            one.join(30 * SLOW)
    assert ended == [201, 201]
    page.wait(lambda: page.text("#waiting-note") == "No waiters.")


def test_nothing_yet(page, lab):
    service = lab.service(3)
    ready(page, service)
    page.wait(lambda: page.text("#locks-note") == "No lock is held.")
    page.wait(lambda: page.text("#waiting-note") == "No waiters." and page.text("#hottest-note") == "No acquisitions in the last minute.")
    assert [page.seen(f"#{body}") for body in ("locks", "waiting", "hottest")] == [False] * 3
    page.wait(lambda: page.rows_of("#plot-latency tbody")[0][1] == "–")  # no answer, no time to answer


# ---- masters that go, a service that goes ----


def test_a_stopped_master_is_red_within_two_seconds(page, lab):
    service = lab.service(3, f"--master-timeout-ms={TIMEOUT_MS}")
    ready(page, service)
    master = service.masters[1]
    waits = """
        const [wanted, done] = arguments, row = document.querySelectorAll("#masters > tr")[1], pill = row.querySelector(".pill");
        const look = () => [row.className, row.querySelector(".state").textContent, getComputedStyle(pill).backgroundColor];
        (function again() { if (look()[1] === wanted) done([Date.now(), ...look()]); else setTimeout(again, 10); })();"""
    stopped = time.time()
    master.stop()
    try:
        at, row, state, colour = page.driver.execute_async_script(waits, "down")
        assert row == "master bad" and state == "down"
        red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
        assert red > 150 and green < 60 and blue < 60, colour
        print(f"red after {at / 1000 - stopped:.2f} s")
        assert at / 1000 - stopped < RED_SECONDS
        page.wait(lambda: page.text("#quorum-text").startswith("2 of 3 masters vote, 2 are needed"))
        assert "may fail" in page.text("#quorum-text") and master.path in page.text("#announce") and "is down: timeout" in page.text("#announce")
        assert page.rows("masters")[1][2].startswith("timeout: no answer")
        service.masters[2].stop()
        page.wait(lambda: page.text("#quorum-title") == "No quorum")
        assert "quorum bad" in page.one("#quorum").get_attribute("class") and "NO QUORUM" in page.run("return document.title")
        page.refused.add(503)  # no listing without a quorum
    finally:
        master.cont()
        service.masters[2].cont()
    page.wait(lambda: [row[1] for row in page.rows("masters")] == ["✓ voting"] * 3, 30)
    page.wait(lambda: page.text("#announce").endswith("3 of 3 masters vote, 2 are needed: locks can be acquired."))
    assert page.run("return document.querySelectorAll('#masters > tr')[1].className") == "master good"


def test_a_quarantined_master_says_how_long(page, lab):
    service = lab.service(3, f"--master-timeout-ms={TIMEOUT_MS}")
    ready(page, service)
    service.masters[0].restart()
    row = page.wait(lambda: page.rows("masters")[0] if page.rows("masters")[0][1] == "! quarantined" else None, 30)
    said = service.curl("GET", "/masters").json["masters"][0]
    assert said["reason"] in row[2], (row, said)
    page.wait(lambda: page.text("#masters .quarantine-left"))
    left = page.text("#masters .quarantine-left")
    assert abs(seconds_left(left.removesuffix(" left")) - service.curl("GET", "/masters").json["masters"][0]["quarantine_remaining_ms"] / 1000) < 2 * SLOW
    page.wait(lambda: seconds_left(page.text("#masters .quarantine-left").removesuffix(" left")) < seconds_left(left.removesuffix(" left")) - 1)


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
    service.process.send_signal(signal.SIGSTOP)
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
        seconds = (page.run("return performance.now()") - before[0]) / 1000
        assert page.asked("/masters") - before[1] <= seconds / 1 + 1 and page.asked("/locks") - before[2] <= 1, "it slows down"
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
    kinds = page.driver.execute_async_script("""
        const done = arguments[0];
        kickAll();
        kickAll();
        kickAll();
        const spans = () => performance.getEntriesByType("resource").map(e => [new URL(e.name).pathname, e.startTime, e.responseEnd]);
        setTimeout(() => done(spans()), 7000);""")
    for path, every_ms in (("/masters", 500), ("/stats", 1000), ("/locks", 2000)):
        spans = sorted(span[1:] for span in kinds if span[0] == path)
        gaps = [after - before for (before, _), (after, _) in zip(spans, spans[1:], strict=False)]
        calm = gaps[2:]  # the first come from being kicked
        assert calm and 0.9 * every_ms < statistics.median(calm) < 2.5 * every_ms * SLOW, (path, gaps)
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


# ---- taking a lock away ----


def open_dialog(page, resource):
    page.wait(lambda: lock_row(page, resource))
    page.run("[...document.querySelectorAll('#locks > tr')].find(r => r.dataset.key === arguments[0]).querySelector('button').click()", resource)
    page.wait(lambda: page.seen("#force"))


def test_force_asks_first(page, three):
    ready(page, three)
    lease = three.acquire("forced/1", ttl_ms=60000, owner="worker-9")
    filter_by(page, "forced/")
    open_dialog(page, "forced/1")
    assert [page.text(f"#force-{what}") for what in ("resource", "owner", "fence")] == ["forced/1", "worker-9", str(lease["fence"])]
    assert page.focused() == "force-cancel", "what does no harm has the focus"
    assert page.run("return document.querySelector('#force').matches(':modal')")
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.seen("#force"))
    page.wait(lambda: "forced/1" in page.focused(), what="the focus is where it was")
    assert three.curl("GET", "/locks/forced/1").json["held"] is True
    open_dialog(page, "forced/1")
    page.click("#force-do")
    page.wait(lambda: page.text("#force-result").startswith("Released."))
    assert three.curl("GET", "/locks/forced/1").json["held"] is False and not page.seen("#force-do") and page.focused() == "force-cancel"
    page.wait(lambda: lock_row(page, "forced/1") is None)
    page.press(Keys.ENTER)
    page.wait(lambda: not page.seen("#force"))
    page.wait(lambda: page.focused() in ("prefix", "locks-title"), what="the focus is not lost")
    assert three.release(lease).status == 410


def test_force_spares_another_holder(page, three):
    ready(page, three)
    first = three.acquire("spared/1", ttl_ms=60000, owner="one")
    filter_by(page, "spared/")
    open_dialog(page, "spared/1")
    page.run("pollers.locks.may = () => false")  # the page does not hear of it by itself
    three.release(first)
    second = three.acquire("spared/1", ttl_ms=60000, owner="two")
    page.click("#force-do")
    page.wait(lambda: page.text("#force-result").startswith("Another holder has the lock now"))
    assert [page.text("#force-owner"), page.text("#force-fence")] == ["two", str(second["fence"])]
    assert three.curl("GET", "/locks/spared/1").json["owner"] == "two"
    three.release(second)
    page.click("#force-do")
    page.wait(lambda: page.text("#force-result").startswith("The lock is no longer held"))
    page.press(Keys.ESCAPE)


def test_force_of_a_key_of_others(page, three):
    """409: redlockd deletes only what it wrote."""
    ready(page, three)
    for master in three.masters:
        master.cli("SET", "strange/1", "not ours", "PX", 60000)
    filter_by(page, "strange/")
    page.refused.add(409)
    open_dialog(page, "strange/1")
    page.click("#force-do")
    page.wait(lambda: page.text("#force-result").startswith("Not released. The lock is held by a key that redlockd did not write"))
    page.press(Keys.ESCAPE)
    for master in three.masters:
        master.cli("DEL", "strange/1")


@pytest.mark.parametrize("status, words", [(0, "redlockd cannot be reached. The lock may have"), (401, "Not released. The key"),
                                           (403, "Not released. Refused: d"), (409, "Not released. d"),
                                           (410, "The lock is no longer held"), (503, "d The lock may have")])
def test_words_for_what_came_of_force(page, three, status, words):
    ready(page, three)
    said = page.run("return wordsForForced(new Problem(arguments[0], '', arguments[0] ? 'd' : 'redlockd cannot be reached.'))", status)
    assert said.startswith(words), said


# ---- keys ----


def type_key(page, secret):
    page.wait(lambda: page.seen("#key-input"))
    page.one("#key-input").send_keys(secret, Keys.ENTER)


def test_keys(page, lab):
    keyed = Keyed(lab, [Key("looker", ["mine/"], ["inspect", "list"]), Key("worker", [""], ["acquire"])]).wait_ready()
    service = keyed.redlockd
    lease = keyed.call("worker", "POST", "/locks", body={"resource": "mine/1", "ttl_ms": 60000, "owner": "w"}).json
    keyed.call("worker", "POST", "/locks", body={"resource": "secret/1", "ttl_ms": 60000})
    page.refused |= {401, 403}
    page.open(service.address)
    page.wait(lambda: page.seen("#key") and page.focused() == "key-input")
    assert page.text("#key-title") == "Authentication required" and "A key is needed" in page.text("#key-why") and not page.seen("#all") and not page.seen("#forget")
    asked = page.asked("/masters")

    type_key(page, new_secret())
    page.wait(lambda: page.text("#key-title") == "Key rejected")
    assert page.one("#key-input").get_attribute("aria-invalid") == "true" and page.one("#key-input").get_attribute("value") == ""
    assert page.asked("/masters") <= asked + 2 and page.focused() == "key-input"
    type_key(page, "no key")
    page.wait(lambda: page.text("#key-title") == "Invalid key")

    type_key(page, keyed.keys["worker"].secret)  # may not list
    page.wait(lambda: page.text("#quorum-title") == "Quorum" and page.rows("masters"))
    page.wait(lambda: page.text("#locks-note") == "Refused: The caller does not have the right list. GET /whoami shows what it may do.")
    assert page.seen("#forget") and not page.seen("#key") and page.text("#hottest-note") != ""

    left = page.run("document.getElementById('forget').click(); return document.querySelectorAll('#masters > tr, #hottest > tr').length")
    assert left == 0, "at once, whether the service answers or not"
    page.wait(lambda: page.seen("#key-input"))
    assert page.run("return sessionStorage.length + localStorage.length + document.cookie.length") == 0
    type_key(page, keyed.keys["looker"].secret)
    page.wait(lambda: "prefix" in page.text("#locks-note") and page.text("#locks-note").startswith("Refused: "))
    filter_by(page, "mine/")
    page.wait(lambda: [row[0] for row in page.rows("locks")] == ["mine/1"])
    assert "secret/1" not in page.run("return document.body.textContent")
    open_dialog(page, "mine/1")
    page.click("#force-do")
    page.wait(lambda: page.text("#force-result") == "Not released. Refused: The caller does not have the right admin. GET /whoami shows what it may do.")
    page.press(Keys.ESCAPE)

    page.driver.refresh()  # the tab remembers
    page.wait(lambda: page.text("#quorum-title") == "Quorum")
    page.click("#forget")
    type_key(page, keyed.operator.secret)
    filter_by(page, "mine/")
    open_dialog(page, "mine/1")
    page.click("#force-do")
    page.wait(lambda: page.text("#force-result").startswith("Released."))
    page.press(Keys.ESCAPE)
    assert service.release(lease).status == 410
    page.collect()
    assert not [url for url in page.requests if "rlk_" in url] and "rlk_" not in page.run("return document.documentElement.outerHTML")
    keyed.write([])  # a key that is taken away while the page is open
    keyed.operator.entry["sha256"] = "0" * 64
    keyed.write([])
    keyed.reload()
    page.wait(lambda: page.text("#key-title") == "Key rejected")
    assert not [body for body in ("masters", "locks", "hottest") if page.rows(body)], "what was shown to another caller is gone"


# ---- hostile names ----


def test_hostile_names(page, three):
    ready(page, three)
    leases = [three.acquire(name, ttl_ms=60000, owner=name[:60] if len(name.encode()) < 64 else "long") for name in HOSTILE]
    try:
        page.wait(lambda: all(lock_row(page, name) for name in HOSTILE), 20)
        for name in HOSTILE:
            row = lock_row(page, name)
            assert row[0] == shown_name(name), name
        assert page.run("return document.querySelectorAll('#all img, #all script, #force img').length") == 0
        assert page.run("return document.title").startswith("✓")
        page.wait(lambda: page.row("hottest", HOSTILE[0]))
        page.look(320, 700)
        assert page.overflow() == [0, []]
        for name in (HOSTILE[0], "a\u202egnp.exe", "a/../b", "%2e%2e", "?force=true", "#", "👩‍🚀"):
            open_dialog(page, name)
            assert page.text("#force-resource") == shown_name(name)
            page.click("#force-do")
            page.wait(lambda: page.text("#force-result").startswith("Released."))
            page.press(Keys.ESCAPE)
            page.wait(lambda: not page.seen("#force"))
    finally:
        for lease in leases:
            three.release(lease)


def test_the_policy_stops_what_names_might_try(page, three):
    """The page's own policy, tried: text that should become HTML, a script and a picture put in, a request to elsewhere."""
    ready(page, three)
    tried = page.driver.execute_async_script("""
        const done = arguments[0], ends = [];
        try { document.body.innerHTML += "<b>x</b>"; ends.push("html"); } catch (error) { ends.push(error.name); }
        const script = document.createElement("script");
        try { script.text = "window.owned = 1"; document.body.append(script); ends.push("script"); } catch (error) { ends.push(error.name); }
        fetch("http://127.0.0.2:1/").then(() => ends.push("fetched"), error => ends.push(error.name)).then(() => done([ends, window.owned]));""")
    assert tried == [["TypeError", "TypeError", "TypeError"], None]
    headers = three.curl("GET", "/").headers
    assert headers["content-security-policy"].startswith("default-src 'none'; ") and "unsafe" not in headers["content-security-policy"]
    page.collect()
    assert [entry for entry in page.console if "Content Security Policy" in entry["message"]], "it is noted where the policy is broken"
    page.console, page.requests = [], [page.origin + "/"]


# ---- accessibility ----


def test_by_keyboard_alone(page, three):
    ready(page, three)
    lease = three.acquire("keys/1", ttl_ms=60000)
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
    names = ("Skip to content", "Masters", "Locks", "prefix", "Release")
    order = [next((at for at, one in enumerate(walked) if one.startswith(name)), None) for name in names]
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
    page.wait(lambda: page.focused() in ("prefix", "locks-title"), what="the focus is not lost")
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


@contextlib.contextmanager
def load(service):
    """A client that takes locks and releases most of them."""
    ended = threading.Event()

    def work():
        client = service.client()
        for i in itertools.count():
            if ended.wait(0.02):
                break
            answer = client.call("POST", "/locks", {"resource": f"jobs/{i % 7 % 4}", "ttl_ms": 800, "owner": "load"})
            if answer.status == 201 and i % 3:
                client.call("DELETE", "/locks/" + answer.json["resource"], {"token": answer.json["token"]})
        client.close()
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30 * SLOW)


def busy(lab):
    """A service worth a look: five masters, locks, hostile names."""
    service = lab.service(5, f"--master-timeout-ms={TIMEOUT_MS}")
    for i in range(6):
        service.acquire(f"orders/{40 + i}", ttl_ms=60000, owner=f"worker-{i}")
    service.acquire("<img src=x>/\u202egnp.exe", ttl_ms=60000, owner="\u202eevil")
    service.acquire("a-long-name/" + "x" * 244, ttl_ms=60000)
    return service


class Queue:
    """Requests that wait, two for one lock and one for another."""

    def __init__(self, service, resources):
        self.sockets = [service.connect() for _ in resources]
        for one, resource in zip(self.sockets, resources, strict=True):
            body = json.dumps({"resource": resource, "ttl_ms": 1000, "wait_ms": 60000})
            one.sendall(f"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    def close(self):
        for one in self.sockets:
            one.close()


def judge(page, name, width=1280, dark=False, whole=True):
    """Takes its picture, and lets the checker and the edges of the window judge it."""
    page.look(width, 800, dark)
    page.screenshot(name, whole)
    assert page.axe() == [], name
    assert page.overflow() == [0, []], name


def test_accessibility_and_screenshots(page, lab):
    service = busy(lab)
    queue = Queue(service, ["orders/40", "orders/41", "orders/40"])
    try:
        with load(service):
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
        open_dialog(page, "a-long-name/" + "x" * 244)
        judge(page, "narrow-force", 320, whole=False)
        judge(page, "dark-force", dark=True, whole=False)
        page.press(Keys.ESCAPE)
        page.refused.add(503)
        service.masters[0].stop()
        page.wait(lambda: page.text("#quorum-title") == "No quorum")
        judge(page, "no-quorum")
        judge(page, "no-quorum-dark", dark=True)
        service.process.send_signal(signal.SIGSTOP)
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
