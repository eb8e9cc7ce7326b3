# SPDX-License-Identifier: MIT
"""docs/reference/configuration.md: the Redis user that it shows may run all commands of the guard. The commands of every day, and
a user without the right to the channel, are tested in tests/e2e/test_master_channel.py."""

import re
import shlex

from harness import ROOT, wait_until

PREFIX = "prod:"
SETUSER = re.search(r"^ACL SETUSER locks .*$", (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8"), re.M)[0]


class AsUser:
    """A server, by the address with which the user of the documentation logs in."""

    def __init__(self, server):
        self.url = f"unix://locks:secret@{server.path}"


def test_the_guard_with_the_documented_rights(lab):
    """The scripts that are rarely needed: another round of the fence, a quarantine, and a master that learns the fences again."""
    servers = lab.redises(3)
    for server in servers:
        server.cli(*shlex.split(SETUSER))
    service = lab.redlockd([AsUser(server) for server in servers], "--key-prefix", PREFIX, "--default-ttl-ms", "2000", "--max-ttl-ms", "2000")
    for server in servers:
        server.cli("HSET", f"{PREFIX}redlockd:master", "floor", 2**52)
    assert service.acquire("x", 2000)["fence"] > 2**52
    servers[0].cli("FLUSHALL")
    wait_until(lambda: service.log("master-quarantined"), what="quarantined")
    service.wait_voting(3)
    assert int(servers[0].cli("HGET", f"{PREFIX}redlockd:master", "floor")) > 2**52
    assert [server.cli("ACL", "LOG") for server in servers] == [[], [], []], "what was refused"
