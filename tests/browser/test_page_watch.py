# SPDX-License-Identifier: MIT
"""The card of one lock follows the event stream of that lock."""

from page_fixtures import LONG, ready

from harness import quote


def card(page):
    return [page.text(f"#lock-{what}") for what in ("state", "owner")]


def streams(page):
    """Whether the card follows a stream."""
    return page.run("return pollers.lock.stream !== null")


def gets(service, route="inspect"):
    """The requests for one lock that the server has answered in full: a stream is one when it ends."""
    return sum(line["method"] == "GET" and line["route"] == route for line in service.log("request"))


def test_another_holder_is_shown_without_a_request(page, three):
    lease = three.acquire("followed/1", ttl_ms=LONG, owner="first")
    ready(page, three, "#lock=followed%2F1")
    page.wait(lambda: card(page) == ["held", "first"] and streams(page))
    asked, answered = page.asked("/locks?resource=followed"), gets(three)
    three.release(lease)
    page.wait(lambda: card(page) == ["free", "–"])
    lease = three.acquire("followed/1", ttl_ms=LONG, owner="second")
    page.wait(lambda: card(page) == ["held", "second"])
    assert page.text("#lock-fence") == str(lease["fence"])
    assert asked > 0 and page.asked("/locks?resource=followed") == asked and gets(three) == answered, "nothing was requested"


def test_the_stream_ends_with_the_card(page, three):
    three.acquire("followed/2", ttl_ms=LONG, owner="first")
    ready(page, three, "#lock=followed%2F2")
    page.wait(lambda: card(page) == ["held", "first"] and streams(page))
    before = gets(three)
    page.click("#lock-close")
    page.wait(lambda: not streams(page) and gets(three) == before + 1, what="the server sees the end")


def test_no_stream_while_the_page_is_hidden(page, three):
    three.acquire("followed/3", ttl_ms=LONG, owner="first")
    ready(page, three, "#lock=followed%2F3")
    page.wait(lambda: card(page) == ["held", "first"] and streams(page))
    page.run("Object.defineProperty(document, 'hidden', { configurable: true, get: () => true }); document.dispatchEvent(new Event('visibilitychange'))")
    page.wait(lambda: not streams(page))
    assert page.text("#lock-note") == ""
    page.run("window.sent = []; const f = fetch; window.fetch = (path, how) => { sent.push(how.headers['Last-Event-ID']); return f(path, how); };"
             "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait(lambda: streams(page) and page.run("return sent.some(id => id && id === pollers.lock.id)"), what="it goes on after the last event")


def test_a_lost_server_is_told_and_recovered(page, lab):
    service = lab.service(3)
    service.acquire("followed/4", ttl_ms=60000, owner="first")
    ready(page, service, "#lock=followed%2F4")
    page.wait(lambda: card(page) == ["held", "first"] and streams(page))
    page.refused.add(0)
    address = service.address
    service.kill()
    page.wait(lambda: page.text("#live-text").startswith("redlockd cannot be reached.") and not streams(page))
    again = lab.redlockd(service.masters, listen=(address,))
    page.wait(lambda: streams(page) and page.text("#lock-note") == "" and page.text("#lock-age") == "", 30)
    again.curl("DELETE", f"/locks/{quote('followed/4')}?force=true")
    page.wait(lambda: card(page) == ["free", "–"])


def test_requests_are_repeated_where_streams_are_refused(page, lab):
    service = lab.service(3, "--max-waiters=1")
    busy = service.connect()
    busy.sendall(b"GET /locks/other HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
    assert busy.recv(1000).startswith(b"HTTP/1.1 200")
    page.refused.add(429)
    lease = service.acquire("followed/5", ttl_ms=60000, owner="first")
    ready(page, service, "#lock=followed%2F5")
    page.wait(lambda: card(page) == ["held", "first"])
    service.release(lease)
    page.wait(lambda: card(page) == ["free", "–"] and not streams(page))
    busy.close()


def test_a_lease_on_several_resources(page, three):
    body = {"resources": ["followed/6", "followed/<b>7"], "ttl_ms": LONG, "owner": "both"}
    assert three.curl("POST", "/locks", body=body).status == 201
    ready(page, three, "#lock=followed%2F6")
    page.wait(lambda: page.run("return [...document.querySelectorAll('#lock-resources > *')].map(e => e.textContent)") == body["resources"])
    page.run("chooseLock('followed/none')")
    page.wait(lambda: card(page)[0] == "free" and not page.seen("#lock-resources-row"))
