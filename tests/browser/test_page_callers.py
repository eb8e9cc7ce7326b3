# SPDX-License-Identifier: MIT
"""Callers of the status page: forced releases, rights and keys."""

import pytest
from page_fixtures import ALLOW_LONG, LONG, filter_by, lock_row, names, open_dialog, ready
from selenium.webdriver.common.keys import Keys

from key_fixtures import Key, Keyed, new_secret


# ---- taking a lock away ----


def test_force_asks_first(page, three):
    ready(page, three)
    lease = three.acquire("forced/1", ttl_ms=LONG, owner="worker-9")
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
    page.wait(lambda: page.focused() in ("text", "locks-title"), what="the focus is not lost")
    assert three.release(lease).status == 410
    assert page.asked("/locks?resource=forced") > 0 and page.asked("/locks/") == 0, "a proxy may refuse or rewrite a path with a name"


def test_force_spares_another_holder(page, three):
    ready(page, three)
    first = three.acquire("spared/1", ttl_ms=LONG, owner="one")
    filter_by(page, "spared/")
    open_dialog(page, "spared/1")
    page.run("pollers.locks.may = () => false")  # the page does not hear of it by itself
    three.release(first)
    second = three.acquire("spared/1", ttl_ms=LONG, owner="two")
    page.click("#force-do")
    page.wait(lambda: page.text("#force-result").startswith("Another holder has the lock now"))
    assert [page.text("#force-owner"), page.text("#force-fence")] == ["two", str(second["fence"])]
    assert three.curl("GET", "/locks/spared/1").json["owner"] == "two"
    three.release(second)
    page.click("#force-do")
    page.wait(lambda: page.text("#force-result").startswith("The lock is no longer held"))
    page.press(Keys.ESCAPE)


def test_force_spares_a_holder_that_comes_after_the_look(page, three):
    """The page has looked, and DELETE is on its way: it names the fence that was shown."""
    ready(page, three)
    first = three.acquire("late/1", ttl_ms=LONG, owner="one")
    filter_by(page, "late/")
    open_dialog(page, "late/1")
    page.run("pollers.locks.may = () => false; const look = isSameHolder; let looks = 0; isSameHolder = async (lock, turn) => looks++ === 0 || look(lock, turn)")
    three.release(first)
    second = three.acquire("late/1", ttl_ms=LONG, owner="two")
    page.refused.add(409)
    page.click("#force-do")
    page.wait(lambda: page.text("#force-result").startswith("Another holder has the lock now"))
    assert [page.text("#force-owner"), page.text("#force-fence")] == ["two", str(second["fence"])]
    assert three.curl("GET", "/locks/late/1").json["owner"] == "two"
    assert three.release(second).status == 204
    page.press(Keys.ESCAPE)


def test_what_is_cancelled_is_not_released(page, three):
    """The page was still looking when the dialog was closed; what comes of that is not shown for the next lock."""
    ready(page, three)
    for name in ("cancelled/1", "cancelled/2"):
        three.acquire(name, ttl_ms=LONG, owner=name)
    filter_by(page, "cancelled/")
    page.run("const real = ask; window.looked = 0; window.gate = new Promise(open => window.openGate = open);"
             "ask = async (...how) => { if (!how[0].includes('cancelled%2F1') && (how[2] || {}).resource !== 'cancelled/1') return real(...how);"
             " await gate; const answer = await real(...how); window.looked++; return answer }")
    open_dialog(page, "cancelled/1")
    page.click("#force-do")
    page.wait(lambda: page.text("#force-result") == "Releasing…")
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.seen("#force"))
    open_dialog(page, "cancelled/2")
    page.run("openGate()")
    page.wait(lambda: page.run("return looked") > 0)
    assert page.text("#force-resource") == "cancelled/2" and page.text("#force-result") == "" and page.seen("#force-do")
    page.click("#force-do")
    page.wait(lambda: page.text("#force-result").startswith("Released."))
    assert page.run("return looked") == 1, "no DELETE followed"
    assert three.curl("GET", "/locks/cancelled/1").json["held"] is True
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


def test_release_is_offered_to_those_who_may(page, three):
    """Each answer of /whoami that there is; null: it does not tell."""
    for name in ("mine/1", "other/1"):
        three.acquire(name, ttl_ms=LONG)
    ready(page, three)
    page.wait(lambda: names(page) == ["mine/1", "other/1"])
    page.wait(lambda: page.run("return pollers.rights.answered !== null || pollers.rights.failures > 0"))
    page.run("pollers.rights.may = () => false")
    everything = ["acquire", "inspect", "list", "admin"]
    for caller, offered in ((None, [True, True]), ({"caller": "a", "rights": everything, "prefixes": [""]}, [True, True]),
                            ({"caller": "b", "rights": everything, "prefixes": ["x/", "mine/"]}, [True, False]),
                            ({"caller": "c", "rights": ["list", "inspect"], "prefixes": [""]}, [False, False])):
        page.run("showRights(arguments[0])", caller)
        assert page.run("return [...document.querySelectorAll('#locks button')].map(b => b.getClientRects().length > 0)") == offered, caller
        assert page.text("#caller") == (caller or {"caller": ""})["caller"]


def test_force_on_a_phone(page, three):
    """Where a row has no room for it, the lock itself has the button."""
    lease = three.acquire("small/1", ttl_ms=LONG, owner="worker-9")
    page.look(390, 800)
    ready(page, three, "#lock=small%2F1")
    page.wait(lambda: page.seen("#lock-release") and lock_row(page, "small/1"))
    assert not page.seen("#locks button")
    page.click("#lock-release")
    page.wait(lambda: page.text("#force-owner") == "worker-9")
    page.click("#force-do")
    page.wait(lambda: page.text("#force-result").startswith("Released.") and page.text("#lock-state") == "free")
    page.press(Keys.ESCAPE)
    page.wait(lambda: page.focused() in ("text", "lock-release"), what="the focus is not lost")
    assert three.release(lease).status == 410


# ---- keys ----


def type_key(page, secret):
    page.wait(lambda: page.seen("#key-input"))
    page.one("#key-input").send_keys(secret, Keys.ENTER)


def test_keys(page, lab):
    keyed = Keyed(lab, [Key("looker", ["mine/"], ["inspect", "list"]), Key("worker", [""], ["acquire"])], *ALLOW_LONG).wait_ready()
    service = keyed.redlockd
    lease = keyed.call("worker", "POST", "/locks", body={"resource": "mine/1", "ttl_ms": LONG, "owner": "w"}).json
    keyed.call("worker", "POST", "/locks", body={"resource": "secret/1", "ttl_ms": LONG})
    page.refused |= {401, 403}
    page.open(service.address)
    page.wait(lambda: page.seen("#key") and page.focused() == "key-input")
    assert page.text("#key-title") == "Authentication required" and page.text("#key-why") == "Enter your API key." and not page.seen("#all") and not page.seen("#forget")
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
    if service.curl("GET", "/whoami").status == 404:  # it does not tell: the service refuses
        open_dialog(page, "mine/1")
        page.click("#force-do")
        page.wait(lambda: page.text("#force-result") == "Not released. Refused: The caller does not have the right admin. GET /whoami shows what it may do.")
        page.press(Keys.ESCAPE)
    else:
        page.wait(lambda: page.text("#caller") == "looker" and not page.seen("#locks button"), what="no release without the right")

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
