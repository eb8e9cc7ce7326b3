# SPDX-License-Identifier: MIT
"""The card of a lock says what keeps a job from it, and what to do next."""

import pytest
from page_fixtures import LONG, judge, ready


def explained(page, resource):
    page.run("chooseLock(arguments[0])", resource)
    page.wait(lambda: page.text("#lock-name") == resource and page.seen("#lock-next"))
    return {what: page.text(f"#lock-{what}") if page.seen(f"#lock-{what}") else "" for what in ("state", "votes", "may", "next")}


def test_what_keeps_a_job_from_a_lock(page, three):
    three.acquire("why/held", ttl_ms=LONG, owner="worker-9")
    three.acquire("why/shared", ttl_ms=LONG, mode="shared")
    three.acquire("why/slots", ttl_ms=LONG, slots=2)
    kept = three.acquire("why/kept", ttl_ms=LONG)
    assert three.curl("DELETE", "/locks/why/kept?keep_ms=60000", "-H", f"Lock-Token: {kept['token']}").status == 204
    for master in three.masters:
        master.cli("SET", "why/strange", "not ours", "PX", 60000)
    ready(page, three)
    page.wait(lambda: page.run("return pollers.rights.answered !== null"))
    for name, state, begin in (("free", "free", "Nothing is in the way"), ("held", "held", "Wait for it:"), ("shared", "held", "A job that asks for a shared lock"),
                               ("slots", "held", "Each holder has a slot"), ("strange", "held", "Another program wrote"), ("kept", "kept", "Its last holder ended")):
        said = explained(page, f"why/{name}")
        assert said["state"] == state and said["next"].startswith(begin) and said["may"] == "yes", (name, said)
        assert said["votes"] in (("at least 2 of 3", "at least 3 of 3") if state != "free" else ("",)), (name, said)
    for picture, width, dark in (("explained", 1280, False), ("explained-narrow-dark", 390, True)):
        judge(page, picture, width, dark)
    for master in three.masters:
        master.cli("DEL", "why/strange")


def test_whether_the_caller_may_take_it(page, three):
    ready(page, three)
    page.wait(lambda: page.run("return pollers.rights.answered !== null"))
    page.run("pollers.rights.may = () => false")
    for rights, prefixes, may in ((["acquire"], ["why/"], "yes"), (["acquire"], ["other/"], "no"), (["inspect"], [""], "no")):
        page.run("showRights({ caller: 'c', rights: arguments[0], prefixes: arguments[1] })", rights, prefixes)
        page.wait(lambda: explained(page, "why/mine")["may"] == may)
        assert page.text("#lock-next").startswith("You may not take this lock") == (may == "no")
    page.run("showRights(null)")
    page.wait(lambda: not page.seen("#lock-may") and page.text("#lock-next").startswith("Nothing"), what="the service does not tell")


@pytest.mark.parametrize("quorum, state, begin", [(False, {"held": False, "waiters": 0}, "Too few masters may vote"), (True, {"held": False, "waiters": 2}, "It is free, and goes to the first"),
                                                  (True, {"held": True, "votes": {"granted": 1, "needed": 2}, "fence": 5}, "Too few masters have this holder")])
def test_rare_reasons(page, three, quorum, state, begin):
    ready(page, three, "#lock=why%2Frare")
    assert page.run("shown.quorum = arguments[0]; return nextWords(arguments[1])", quorum, state).startswith(begin)
