# SPDX-License-Identifier: MIT
"""The locks in the status page: what is shown is what the API says; filter, order, addresses."""

import re

from page_fixtures import LONG, Waiters, filter_by, filter_text, lock_row, names, open_dialog, ready, seconds_in
from selenium.webdriver.common.keys import Keys

from harness import SLOW, starved_seconds

HOSTILE = ["<img src=x onerror=document.title='owned'>", "'\"><script>document.title='owned'</script>", "a\u202egnp.exe", "\u200b", " ", "x" * 256, "ü" * 128,
           "a/..b", "%2e%2e", "?force=true", "#", "{{7*7}}", "\u2066a\u2069\u061c", "👩‍🚀", "</td></tr>"]
TAGS = re.compile("[\u200b\u200d\u202a-\u202e\u2060-\u2069\u061c\ufeff]")


def shown_name(name):
    """As the page writes a name: what cannot be seen, by its number."""
    return TAGS.sub(lambda match: f"U+{ord(match.group()):04X}", name)


def test_locks_are_those_of_the_api(page, three):
    ready(page, three)
    lease = three.acquire("page/one", ttl_ms=60000, owner="worker-7")
    bare = three.acquire("page/two", ttl_ms=60000)
    filter_by(page, "page/")
    rows = page.wait(lambda: len(page.rows("locks")) == 2 and page.rows("locks"))
    said = {one["resource"]: one for one in three.curl("GET", "/locks?prefix=page/").json["locks"]}
    for row, name, owner in zip(rows, ["page/one", "page/two"], ["worker-7", "–"], strict=True):
        assert row[0] == name and row[1] == owner and row[4] == "0" and row[5] == str(said[name]["fence"]) and row[6] == "3 of 3", row
    # Shown before and after it was read: a machine that is slow in between is no mistake.
    before, said, after = lock_row(page, "page/one"), three.curl("GET", "/locks/page/one").json, lock_row(page, "page/one")
    assert seconds_in(after[3]) - 1 * SLOW < said["remaining_ms"] / 1000 < seconds_in(before[3]) + 1 * SLOW, (before, said, after)
    assert seconds_in(before[2]) - 1 * SLOW < said["held_ms"] / 1000 < seconds_in(after[2]) + 1 * SLOW, (before, said, after)
    assert page.text("#locks-note") == "2 locks are held."
    three.release(lease), three.release(bare)
    page.wait(lambda: page.text("#locks-note") == "No lock that begins so is held.")
    assert not page.seen("#locks")


def test_a_lock_that_lacks_a_vote_is_marked(page, three):
    ready(page, three)
    lease = three.acquire("votes/one", ttl_ms=LONG)
    filter_by(page, "votes/")
    page.wait(lambda: lock_row(page, "votes/one")[6] == "3 of 3")
    assert page.run("return document.querySelector('#locks td.few')") is None
    three.masters[1].cli("DEL", "votes/one")
    page.wait(lambda: lock_row(page, "votes/one")[6] == "2 of 3")
    assert "extension gives it back" in page.run("return document.querySelector('#locks td.few').title")
    assert three.curl("PUT", "/locks/votes/one", body={"token": lease["token"], "ttl_ms": LONG}).status == 200
    page.wait(lambda: lock_row(page, "votes/one")[6] == "3 of 3")
    assert page.run("return document.querySelector('#locks td.votes').title") == ""
    three.release(lease)


def test_several_holders(page, three):
    ready(page, three)
    leases = [three.acquire("several/shared", ttl_ms=LONG, owner=owner, mode="shared") for owner in ("a", "b")]
    slot = three.acquire("several/slots", ttl_ms=LONG, owner="w", slots=1)
    filter_by(page, "several/")
    page.wait(lambda: lock_row(page, "several/shared")[1] == "2 holders: a, b")
    assert lock_row(page, "several/slots")[1] == "1 holder: w on slot 0"
    three.release(leases[0])
    page.wait(lambda: lock_row(page, "several/shared")[1] == "1 holder: b")
    three.release(leases[1]), three.release(slot)
    page.wait(lambda: page.text("#locks-note") == "No lock that begins so is held.")


def test_the_time_left_runs_between_two_answers(page, three):
    ready(page, three)
    lease = three.acquire("count/down", ttl_ms=60000)
    filter_by(page, "count/")
    page.wait(lambda: lock_row(page, "count/down"))
    starved = starved_seconds()
    texts = page.driver.execute_async_script("""
        const done = arguments[0], cell = document.querySelector("#locks td.remaining"), seen = [];
        new MutationObserver((_, self) => {
            seen.push(cell.textContent);
            if (seen.length === 15) { self.disconnect(); done(seen); }
        }).observe(cell, { childList: true });""")
    left = [seconds_in(text) for text in texts]
    starved_for = starved_seconds() - starved
    # An answer that came sooner than the one before lifts the number by the difference: less than a second.
    assert all(after - before < 1 + starved_for for before, after in zip(left, left[1:])) and left[-1] < left[0] and len(set(left)) >= 12, left
    assert left[0] - left[-1] < 5 * SLOW + starved_for
    page.look(1280, 900, calm=True)  # then once a second
    page.wait(lambda: page.run("return matchMedia('(prefers-reduced-motion: reduce)').matches"))
    assert not page.run("return document.getAnimations().length")
    three.release(lease)


def test_a_lease_at_its_end(page, three):
    """Read at once, so that no answer comes between: it may have been extended since the last one."""
    three.acquire("over/1", ttl_ms=LONG)
    ready(page, three)
    page.wait(lambda: lock_row(page, "over/1"))
    row = "const r = [...document.querySelectorAll('#locks > tr')].find(r => r.dataset.key === 'over/1');"
    over = page.run(row + "r.lock.ends = performance.now(); tickLock(r); return [r.className, r.querySelector('td.remaining').textContent]")
    assert over == ["lock over", "checking…"]
    assert page.run(row + "return r.querySelector('td.owner').title") == "", "no tooltip without an owner"


def column(page, name):
    page.run("document.querySelector(`#locks-box th[data-sort=${arguments[0]}] button`).click()", name)


def test_filter_order_and_address(page, three):
    """Text anywhere in a name or an owner, any column; the address has both, and opens the same again."""
    for name, owner in (("shop/1", "alpha"), ("shop/2", "Beta-workshop"), ("stock/3", "gamma"), ("stock/4", None)):
        three.acquire(name, ttl_ms=LONG, **({"owner": owner} if owner else {}))
    three.acquire("stock/5", ttl_ms=LONG // 2, owner="delta")
    ready(page, three)
    page.wait(lambda: names(page) == ["shop/1", "shop/2", "stock/3", "stock/4", "stock/5"])
    filter_text(page, "CK/")
    page.wait(lambda: names(page) == ["stock/3", "stock/4", "stock/5"])
    assert page.text("#locks-note") == "3 of 5 locks shown."
    filter_text(page, "SHOP")
    page.wait(lambda: names(page) == ["shop/1", "shop/2"])
    filter_text(page, "workshop")
    page.wait(lambda: names(page) == ["shop/2"])
    filter_text(page, "nothing like it")
    page.wait(lambda: page.text("#locks-note") == "No lock matches. 5 locks are held." and not page.seen("#locks"))
    filter_text(page, "")
    column(page, "owner")
    page.wait(lambda: names(page) == ["shop/2", "shop/1", "stock/5", "stock/3", "stock/4"], what="no owner comes last")
    column(page, "owner")
    page.wait(lambda: names(page) == ["stock/3", "stock/5", "shop/1", "shop/2", "stock/4"])
    assert page.run("return [...document.querySelectorAll('[aria-sort]')].map(e => [e.textContent, e.ariaSort])") == [["Owner", "descending"]]
    column(page, "held")
    page.wait(lambda: names(page) == ["shop/1", "shop/2", "stock/3", "stock/4", "stock/5"], what="the longest first")
    column(page, "remaining")
    column(page, "remaining")
    page.wait(lambda: names(page)[0] == "stock/5", what="the one that ends first")
    filter_text(page, "shop")
    page.wait(lambda: set(names(page)) == {"shop/1", "shop/2"})
    address = page.run("return location.hash")
    assert address == "#text=shop&sort=remaining"
    page.open(three.address, "#sort=-fence&prefix=stock%2F&text=A")
    page.driver.refresh()
    page.wait(lambda: names(page) == ["stock/5", "stock/3"], what="an address that was given")
    assert page.run("return [document.getElementById('text').value, document.getElementById('prefix').value]") == ["A", "stock/"]
    page.click("nav a")
    page.wait(lambda: page.focused().startswith("Locks") or page.focused() == "locks-title")
    assert page.run("return location.hash") == "#sort=-fence&prefix=stock%2F&text=A", "a link within the page leaves the address alone"


def test_more_locks_than_a_page_of_the_api(page, three):
    """All are found and sorted; the rows come in steps."""
    client = three.client()  # fast, so that none ends before the page has shown them all
    leases = [client.call("POST", "/locks", {"resource": f"many/{i:04}", "ttl_ms": LONG}).json for i in range(230)]
    page.open(three.address, "#prefix=many%2F&sort=-name")
    page.wait(lambda: len(names(page)) == 200 and page.seen("#more"), 30)
    assert names(page)[0] == "many/0229" and page.text("#locks-note") == "200 of 230 locks shown."
    found = """return loadLocks('/locks?prefix=many/&limit=' + arguments[0], arguments[1])
                      .then(all => [new Set(all.locks.map(lock => lock.resource)).size, all.more])"""
    assert page.run(found, 1000, 5000) == page.run(found, 10, 5000) == [230, False], "the pages are put together, however many"
    size, more = page.run(found, 10, 50)
    assert 50 <= size < 60 and more is True, "not more than so many locks"
    page.run("showLocks({ locks: listing.locks.slice(0, 220), more: true })")
    assert page.text("#locks-note") == "200 shown of the first 220 locks. There are more: say how the names begin."
    page.click("#more")
    page.wait(lambda: len(names(page)) == 230 and not page.seen("#more"))
    assert page.text("#locks-note") == "230 locks are held."
    for lease in leases:
        client.call("DELETE", "/locks/" + lease["resource"], {"token": lease["token"]})
    client.close()


def test_forty_locks_fit_in_lines(page, three):
    for i in range(40):
        three.acquire(f"a-rather-long-name-of-a-lock/{i:02}/of-some-service", ttl_ms=LONG, owner=f"worker-with-a-long-name-{i}.example.org")
    ready(page, three)
    page.wait(lambda: len(names(page)) == 40)
    for width in (1440, 390, 320):
        page.look(width, 900)
        heights = page.run("return [...document.querySelectorAll('#locks > tr')].map(r => r.getBoundingClientRect().height)")
        assert max(heights) <= 40, (width, max(heights))
        assert page.overflow() == [0, []]
        lines = page.run("return [...document.querySelectorAll('#locks > tr:first-child > *')].filter(c => c.getClientRects().length).map(c => c.className)")
        assert {"owner", "number remaining", "number waiters"} | ({"number held"} if width > 390 else set()) <= set(lines), (width, lines)
    assert page.run("return document.querySelector('#locks-title').getBoundingClientRect().top < document.querySelector('#masters-title').getBoundingClientRect().top")


TIMES = [9.94, 59.9, 10 * 60, 59 * 60 + 59, 23 * 3600 + 59 * 60, 364 * 86400 + 23 * 3600]
CUT = """
    const [table, seconds] = arguments, row = document.querySelector(`#${table} > tr`);
    if (table === "locks") {
        Object.assign(row.lock, { ends: performance.now() + seconds * 1000, began: performance.now() - seconds * 1000 });
        tickLock(row);
    } else {
        row.began = performance.now() - seconds * 1000;
        tickWaiting(row);
    }
    const cells = [...row.closest("table").querySelectorAll("th, td.number")].filter(cell => cell.getClientRects().length);
    return cells.filter(cell => cell.scrollWidth > cell.clientWidth && cell.className).map(cell => cell.textContent);"""


def test_no_time_is_cut(page, three):
    """At any width and in any order of the rows: its head has a sign."""
    lease = three.acquire("long/time", ttl_ms=LONG)
    waiters = Waiters(three, [("long/time", "w")])
    try:
        for sort in ("-held", "-remaining"):
            ready(page, three, f"#sort={sort}")
            page.wait(lambda: lock_row(page, "long/time") and page.row("waiting", "long/time"))
            for width in (1440, 1160, 1150, 900, 890, 710, 700, 390, 320):
                page.look(width, 900)
                assert not [cut for table in ("locks", "waiting") for seconds in TIMES for cut in page.run(CUT, table, seconds)], width
        row = "const r = document.querySelector('#locks > tr'); r.lock.ends = arguments[0]; tickLock(r); return r.querySelector('td.remaining').textContent;"
        assert [page.run(row, end) for end in (0, None)] == ["checking…", "no end"]
    finally:
        waiters.close()
        three.release(lease)


ENDS = """
    const cell = document.querySelectorAll(arguments[0])[arguments[1]], box = cell.getBoundingClientRect(), all = document.createRange();
    all.selectNodeContents(cell);
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), nodes = [];
    while (texts.nextNode()) nodes.push(texts.currentNode);
    const isSeen = (node, at) => {
        const one = document.createRange();
        one.setStart(node, at);
        one.setEnd(node, at + 1);
        const { left, right, width } = one.getBoundingClientRect();
        return width > 0 && left >= box.left - 0.5 && right <= box.right + 0.5;
    };
    getSelection().selectAllChildren(cell);
    return [isSeen(nodes[0], 0), isSeen(nodes.at(-1), nodes.at(-1).length - 1), getSelection().toString()];"""


def test_names_that_begin_alike_differ(page, three):
    """A narrow cell cuts the middle: the first and the last character are to be seen, and what is copied is the name."""
    alike = [f"deployments/region-eu-central-1/checkout-service/{end}" for end in ("0001", "0002", "ü\u0301\u0301")]
    leases = [three.acquire(name, ttl_ms=LONG, owner=name[12:]) for name in alike]
    for name in alike * 2:
        assert three.curl("POST", "/locks", body={"resource": name}).status == 409
    waiters = Waiters(three, [(name, name[12:]) for name in alike])
    try:
        ready(page, three, "#prefix=deployments%2F")
        page.wait(lambda: names(page) == sorted(alike) and page.row("hottest", alike[2]) and len(page.rows("waiting")) == 3)
        for width in (1440, 390, 320):
            page.look(width, 900)
            for i, name in enumerate(sorted(alike)):
                for cell, text in (("#locks .lock-link", name), ("#locks td.owner", name[12:])):
                    assert page.run(ENDS, cell, i) == [True, True, text], (width, cell)
            for body in ("waiting", "hottest"):
                assert {tuple(page.run(ENDS, f"#{body} .lock-link", i)) for i in range(3)} == {(True, True, name) for name in alike}, (width, body)
        assert {link.accessible_name for link in page.driver.find_elements("css selector", "#locks .lock-link")} == set(alike)
    finally:
        waiters.close()
        for lease in leases:
            three.release(lease)


def test_the_address_of_a_lock(page, three):
    lease = three.acquire("linked/a b", ttl_ms=LONG, owner="worker-7")
    ready(page, three)
    page.wait(lambda: lock_row(page, "linked/a b"))
    link = page.run("return document.querySelector('#locks a').href")
    page.click("#locks a")
    page.wait(lambda: page.text("#lock-state") == "held" and page.focused() == "lock-title")
    assert page.run("return location.href") == link == f"http://{three.address}/#lock=linked%2Fa+b"
    assert [page.text(f"#lock-{what}") for what in ("name", "owner", "fence", "waiters")] == ["linked/a b", "worker-7", str(lease["fence"]), "0"]
    before, said, after = page.text("#lock-held"), three.curl("GET", "/locks/linked%2Fa%20b").json["held_ms"] / 1000, page.text("#lock-held")
    assert seconds_in(before) - 1 * SLOW < said < seconds_in(after) + 1 * SLOW
    page.driver.back()
    page.wait(lambda: not page.seen("#lock"))
    page.driver.forward()
    page.wait(lambda: page.text("#lock-state") == "held")
    three.release(lease)
    page.wait(lambda: page.text("#lock-state") == "free" and not page.seen("#lock-release"), what="also while nobody holds it")
    page.click("#lock-close")
    page.wait(lambda: not page.seen("#lock") and page.run("return location.hash") == "")
    page.driver.get(link)
    page.driver.refresh()
    page.wait(lambda: page.text("#lock-state") == "free")


# ---- hostile names ----


def test_hostile_names(page, three):
    ready(page, three)
    leases = [three.acquire(name, ttl_ms=LONG, owner=name[:60] if len(name.encode()) < 64 else "long") for name in HOSTILE]
    try:
        page.wait(lambda: all(lock_row(page, name) for name in HOSTILE), 20)
        for name in HOSTILE:
            row = lock_row(page, name)
            assert row[0] == shown_name(name), name
        assert page.run("return document.querySelectorAll('#all img, #all script, #force img').length") == 0
        assert page.run("return document.title").startswith("✓")
        assert three.curl("POST", "/locks", body={"resource": HOSTILE[0]}).status == 409
        page.wait(lambda: page.row("hottest", HOSTILE[0]))
        page.look(320, 700)
        assert page.overflow() == [0, []]
        for name in (HOSTILE[0], "a\u202egnp.exe", "a/..b", "%2e%2e", "?force=true", "#", "👩‍🚀"):
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
