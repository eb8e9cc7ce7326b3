# SPDX-License-Identifier: MIT
"""Locks with several holders, and leases on several locks: each holder with its fence, its times and its metadata, and the way from one lock to another."""

import pytest

from page_fixtures import LONG, judge, lock_row, names, open_dialog, ready, seconds_in

from harness import SLOW, quote


def holders(page):
    """The holders in the card of a lock: the texts of each row."""
    return page.rows("lock-holders")


def state(service, resource):
    return service.curl("GET", "/locks/" + quote(resource)).json


def test_each_holder_of_a_shared_lock(page, three):
    leases = [three.acquire("crowd/1", ttl_ms=60000, owner=f"reader-{i}", mode="shared", metadata={"pod": f"<b>{i}"}) for i in range(4)]
    leases.append(three.acquire("crowd/1", ttl_ms=60000, mode="shared"))
    ready(page, three, "#lock=crowd%2F1")
    page.wait(lambda: len(holders(page)) == 5)
    assert page.text("#lock-count") == "5, shared"
    for row, lease, i in zip(holders(page), leases, range(5), strict=True):
        assert row[:2] == ["no owner given" if i == 4 else f"reader-{i}", str(lease["fence"])]
        assert row[4] == ("" if i == 4 else f'{{"pod":"<b>{i}"}}')
    before, said, after = holders(page), state(three, "crowd/1")["holders"], holders(page)
    for early, one, late in zip(before, said, after, strict=True):
        assert seconds_in(early[2]) - 1 * SLOW < one["held_ms"] / 1000 < seconds_in(late[2]) + 1 * SLOW, (early, one, late)
        assert seconds_in(late[3]) - 1 * SLOW < one["remaining_ms"] / 1000 < seconds_in(early[3]) + 1 * SLOW, (early, one, late)
    assert not [seen for seen in ("owner", "fence", "held", "metadata") if page.seen(f"#lock-{seen}")], "there is not one owner"
    for name, width, dark in (("holders", 1280, False), ("holders-narrow-dark", 390, True)):
        judge(page, name, width, dark)
    three.release(leases[1])
    page.wait(lambda: [row[0] for row in holders(page)] == ["reader-0", "reader-2", "reader-3", "no owner given"])
    page.run("chooseLock('crowd/none')")
    page.wait(lambda: page.text("#lock-state") == "free" and not holders(page) and page.seen("#lock-owner") and not page.seen("#lock-count"))


@pytest.mark.parametrize("count, without", [(3, "askOver = () => {}"), (4, "showLocks = () => {}")])
def test_the_times_of_holders_that_extend(page, three, count, without):
    """No event tells an extension. A listing names three of the holders; the lock is requested when the lease of another one seems to be over."""
    for i in range(count):
        three.acquire("crowd/2", ttl_ms=LONG, owner=f"reader-{i}", mode="shared")
    page.open(three.address, "#lock=crowd%2F2")
    page.wait(lambda: len(holders(page)) == count)
    ending = page.run(without + """; pollers.locks.shown = showLocks;
        for (const one of one_lock.state.holders) one.ends = performance.now() + 1000;
        tickOneLock();
        return [...document.querySelectorAll("#lock-holders > tr")].map(row => row.children[3].textContent);""")
    assert all(seconds_in(text) <= 1 for text in ending)
    page.wait(lambda: all(row[3] != "checking…" and seconds_in(row[3]) > 10 for row in holders(page)))


def test_slots(page, three):
    leases = [three.acquire("slots/1", ttl_ms=LONG, owner=f"worker-{i}", slots=3) for i in range(2)]
    ready(page, three, "#lock=slots%2F1")
    page.wait(lambda: len(holders(page)) == 2)
    assert page.text("#lock-count") == "2, on slots"
    assert [row[:2] for row in holders(page)] == [[f"worker-{i} on slot {lease['slot']}", str(lease["fence"])] for i, lease in enumerate(leases)]


def test_the_way_from_one_lock_of_a_set_to_another(page, three):
    whole = three.curl("POST", "/locks", body={"resources": ["set/a", "set/<b>"], "ttl_ms": LONG, "owner": "both", "metadata": {"job": 7}}).json
    ready(page, three, "#lock=set%2Fa")
    page.wait(lambda: page.text("#lock-resources") == "set/<b>set/a")
    assert [page.text(f"#lock-{what}") for what in ("fence", "owner", "metadata")] == [str(whole["fence"]), "both", '{"job":7}']
    page.click("#lock-resources a")
    page.wait(lambda: page.text("#lock-name") == "set/<b>" and page.text("#lock-state") == "held" and page.focused() == "lock-title")
    assert page.run("return [...document.querySelectorAll('#lock-resources a')].map(a => a.textContent)") == ["set/a"], "no link to itself"
    page.driver.back()
    page.wait(lambda: page.text("#lock-name") == "set/a")


def test_the_way_from_a_shared_set(page, three):
    for owner, other in (("r1", "b"), ("r2", "c")):
        body = {"resources": ["shelf/a", f"shelf/{other}"], "ttl_ms": LONG, "owner": owner, "mode": "shared"}
        assert three.curl("POST", "/locks", body=body).status == 201
    ready(page, three, "#lock=shelf%2Fa")
    page.wait(lambda: page.run("return [...document.querySelectorAll('#lock-holders a')].map(a => a.textContent)") == ["shelf/b", "shelf/c"])
    page.click("#lock-holders tr:nth-child(2) a")
    page.wait(lambda: page.text("#lock-name") == "shelf/c" and [row[0] for row in holders(page)] == ["r2"])
    page.click("#lock-holders a")
    page.wait(lambda: page.text("#lock-name") == "shelf/a" and len(holders(page)) == 2)


def test_many_holders_are_released_by_force(page, three):
    """A listing names three of them, the lock itself up to a hundred: they are the same all the same."""
    for i in range(5):
        three.acquire("crowd/3", ttl_ms=LONG, owner=f"reader-{i}", mode="shared")
    ready(page, three)
    page.wait(lambda: (lock_row(page, "crowd/3") or ["", ""])[1].endswith(", 2 more"))
    for lock in ("", "crowd/3"):
        page.run("changeView({ lock: arguments[0] || null })", lock)
        page.wait(lambda: not lock or len(holders(page)) == 5)
        page.run("openForce(arguments[0] ? one_lock.state : document.querySelector('#locks > tr').lock, document.getElementById('more'))", lock)
        listed = page.run("return pollers.locks.answered")
        page.wait(lambda: page.run("return pollers.locks.answered") > listed)
        assert page.text("#force-result") == "", "the listing tells of no other holder"
        page.run("document.getElementById('force').close()")
    open_dialog(page, "crowd/3")
    page.click("#force-do")
    page.wait(lambda: page.text("#force-result").startswith("Released."))
    page.wait(lambda: not state(three, "crowd/3")["held"] and "crowd/3" not in names(page))
