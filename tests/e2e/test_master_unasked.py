# SPDX-License-Identifier: MIT
"""A master that answers what nobody asked, or not as Redis would: it loses its connection, with the reason, and votes again when it is honest. Leases,
redlockd and the connections of its clients go on."""

import pytest

from harness import wait_until
from master_checks import master_of
from proxy import Proxy

TTL_MS = 60000


class Liar(Proxy):
    """Changes the answer to SUBSCRIBE, or adds something to every other answer."""

    lie = None

    def changed(self, data):
        if self.lie is None:
            return data
        at, said = self.lie
        if at == "subscribe":
            return said if b"subscribe" in data else data
        return data + said


@pytest.mark.parametrize("lie, reason", [
    (("subscribe", b"-\r\n"), "without words"),
    (("subscribe", b"-ERR no\r\n"), "ERR no"),
    (("subscribe", b"+OK\r\n"), "an answer to no command"),
    # The answer to an earlier question is taken for that of the next one: what is said of it differs.
    (("answer", b"+OK\r\n"), ""),
    (("answer", b"$-1\r\n"), ""),
    (("answer", b"*3\r\n:1\r\n:2\r\n:3\r\n"), ""),
    (("answer", b"-ERR unasked\r\n"), ""),
    (("answer", b"HTTP/1.1 400\r\n"), "HTTP"),
])
def test_it_loses_its_connection_and_no_more(lab, lie, reason):
    servers = lab.redises(3)
    liar = lab.keep(Liar(lab.folder, servers[0]))
    service = lab.redlockd([liar.url, *(server.url for server in servers[1:])], "--restart-guard", "off")
    client = service.client()  # one connection, kept alive
    lease = client.call("POST", "/locks", {"resource": "kept", "ttl_ms": TTL_MS}).json
    liar.lie = lie
    liar.cut()
    liar.is_cut = False

    def told():
        master = master_of(service, liar.url)
        return master["state"] == "down" and reason in (master["reason"] or "")
    wait_until(told, what=f"the reason: {reason}")
    assert client.call("PUT", "/locks/kept", {"token": lease["token"], "ttl_ms": TTL_MS}).json["fence"] == lease["fence"]
    assert service.curl("POST", "/locks", body={"resource": "other"}).status == 201
    liar.lie = None
    wait_until(lambda: master_of(service, liar.url)["state"] == "voting", what="its vote")
    assert client.call("DELETE", "/locks/kept", {"token": lease["token"]}).status == 204
    service.stop()
