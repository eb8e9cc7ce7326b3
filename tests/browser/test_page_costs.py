# SPDX-License-Identifier: MIT
"""What the status page does not do: it leaves rows alone that are not in the window."""

from page_fixtures import ready

# Rows of made-up locks, in place of a listing. All of them have the same end, far away.
FILL = """
    pollers.locks.may = () => false;
    const lock = i => ({ resource: `r/${String(i).padStart(4, "0")}`, owner: i % 2 ? "w" : undefined, held: true, fence: i, waiters: 0, held_ms: 1000,
                         remaining_ms: 50000, votes: { granted: 3, masters: 3 } });
    window.listed = () => ({ locks: Array.from({ length: 5000 }, (_, i) => lock(i)), more: false });
    listing.rows = 5000;
    showLocks(listed());"""

# The rows that change until those in the window have done so ten times; also with a listing that says the same again.
WATCH = """
    const done = arguments[0], changed = new Map(), body = document.getElementById("locks");
    let rounds = 0;
    const observer = new MutationObserver(records => {
        for (const { target } of records) {
            const row = (target.nodeType === 1 ? target : target.parentElement).closest("tr");
            changed.set(row, (changed.get(row) || 0) + 1);
        }
        rounds++;
        if (rounds === 5) showLocks(listed());
        if (rounds < 10) return;
        observer.disconnect();
        const inside = row => { const box = row.getBoundingClientRect(); return box.bottom >= 0 && box.top <= innerHeight; };
        done([body.children.length, [...changed.keys()].filter(inside).length, [...changed.keys()].filter(row => !inside(row)).length]);
    });
    observer.observe(body, { subtree: true, childList: true, characterData: true, attributes: true });"""


def test_only_rows_in_the_window_are_touched(page, three):
    ready(page, three)
    page.wait(lambda: page.run("return listing.known && !pollers.locks.running"))
    page.run(FILL)
    page.wait(lambda: page.run("return rows_seen.size > 0"))
    rows, inside, outside = page.driver.execute_async_script(WATCH)
    assert rows == 5000 and 5 < inside < 100 and outside == 0, (rows, inside, outside)
    page.run("document.querySelector('#locks > tr:nth-child(3000)').scrollIntoView({ block: 'start', behavior: 'instant' })")
    page.wait(lambda: page.run("return rows_seen.has(document.querySelector('#locks > tr:nth-child(3001)'))"), what="a row that comes into the window")
    rows, inside, outside = page.driver.execute_async_script(WATCH)
    assert rows == 5000 and 5 < inside < 100 and outside == 0, (rows, inside, outside)
