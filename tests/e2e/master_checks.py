# SPDX-License-Identifier: MIT
"""Shared checks of unusable masters: the entry in /masters, and whether the others serve without it."""

import re

from harness import SLOW, wait_until

TIMEOUT_MS = str(round(min(1000 * SLOW, 5000)))  # where a test waits for a master that has stopped
QUARANTINE_TTL_MS = round(4250 + 750 * SLOW)  # a few calls of curl on a busy machine take less


def short_quarantines():
    """Options with which a master that forgot is quarantined for a little more than QUARANTINE_TTL_MS + 2 s."""
    return ["--max-ttl-ms", str(QUARANTINE_TTL_MS), "--default-ttl-ms", str(QUARANTINE_TTL_MS), "--min-ttl-ms", "100"]


def master_of(service, server):
    """The entry of one server in /masters."""
    address = re.sub("//.*@", "//", server if isinstance(server, str) else server.url)
    found = [master for master in service.curl("GET", "/masters").json["masters"] if master["address"] == address]
    assert len(found) == 1, service.curl("GET", "/masters").body
    assert set(found[0]) == {"address", "state", "state_ms", "reason", "quarantine_remaining_ms", "rtt_us", "version", "run_id", "warnings"}
    return found[0]


def wait_for_reason(service, server, *words):
    """Until the master may not vote, for a reason in which one of the words appears; returns what /masters says."""
    def reached():
        master = master_of(service, server)
        return master if master["state"] != "voting" and any(word in (master["reason"] or "").lower() for word in words) else None
    try:
        return wait_until(reached, 10, f"a reason with one of {words}")
    except AssertionError as error:
        raise AssertionError(f"{error}; now {master_of(service, server)}") from None


def check_a_majority_serves(service, name):
    """With one of three masters ill, everything works, and the votes tell that one did not take part."""
    lease = service.curl("POST", "/locks", body={"resource": name, "owner": "me"})
    assert lease.status == 201, lease
    refused = service.curl("POST", "/locks", body={"resource": name})
    assert refused.status == 409 and refused.code == "locked", refused
    assert refused.json["holder"] == {"owner": "me", "fence": lease.json["fence"]}
    seen = service.curl("GET", f"/locks/{name}")
    assert seen.status == 200 and seen.json["held"] is True
    for votes in (refused.json["votes"], seen.json["votes"]):
        assert votes["needed"] == 2 and votes["masters"] == 3, votes
        assert votes["failed"] + votes["quarantined"] <= 1, votes
    for method, token, status in (("PUT", lease.json["token"], 200), ("PUT", "0" * 40, 409), ("DELETE", lease.json["token"], 204),
                                  ("DELETE", lease.json["token"], 410)):
        answer = service.curl(method, f"/locks/{name}", body={"token": token})
        assert answer.status == status, answer
    assert service.curl("GET", "/readyz").status == 200


def check_votes_without_one(service, name):
    """Once a master is known to be ill, it is counted as failed or quarantined."""
    votes = service.curl("GET", f"/locks/{name}").json["votes"]
    assert votes["failed"] + votes["quarantined"] == 1, votes


def check_no_quorum(service, name):
    """With two of three masters unusable: 503, not the answer of a held lock."""
    calls = [("POST", "/locks", {"resource": name}), ("PUT", f"/locks/{name}", {"token": "0" * 40}),
             ("DELETE", f"/locks/{name}", {"token": "0" * 40}), ("GET", f"/locks/{name}", None)]
    for method, path, body in calls:
        answer = service.curl(method, path, body=body)
        assert answer.status == 503 and answer.code == "no-quorum", (method, answer)
        assert int(answer.headers["retry-after"]) >= 1
        votes = answer.json["votes"]
        assert votes["needed"] == 2 and votes["masters"] == 3 and votes["failed"] + votes["quarantined"] == 2, votes
    ready = service.curl("GET", "/readyz")
    assert ready.status == 503 and ready.code == "no-quorum", ready
    assert ready.json["quorum"]["needed"] == 2 and ready.json["quorum"]["masters"] == 3 and ready.json["quorum"]["voting"] < 2
    assert service.curl("GET", "/healthz").status == 200
