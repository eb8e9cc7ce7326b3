# SPDX-License-Identifier: MIT
"""Finds runs that prove nothing: a check over something that never happened cannot fail. Also answers and exits that no fault explains."""

import collections

import deployment

JOB_ENDS = {0, 69, 75, 79}  # of redlockctl: the command's own, no server answers, somebody else holds the lock, the lock is lost
LEASES_ENOUGH = 1000
INVALID = {400, 401, 403, 404, 405, 411, 413, 414, 415, 421, 431}


def count(events, jobs, faults):
    """(name, how often) of all that a run must have; `faults`: the counts of the nemesis."""
    answered = collections.Counter(event["way"] for event in events if event["status"] and event.get("code") != "proxy")
    after = collections.Counter(event["after"] for event in events if event["kind"] == "acquire" and event["status"] == 201)
    idle = [event for event in events if event["kind"] == "idle"]
    return [
        ("redlockd restarted by SIGTERM", faults["redlockd restarted by SIGTERM"]),
        ("rolling restarts of redlockd", faults["rolling restart of redlockd"]),
        ("redlockd killed", faults["redlockd killed"]),
        ("connections reset after a grant", after["reset"]),
        ("connections closed after a grant", after["close"]),
        ("connections left idle after a grant", len(idle)),
        ("such that the server closed meanwhile", sum(event["ended"] for event in idle)),
        ("connections closed unread", sum(event.get("code") == "Unread" for event in events)),
        ("answers on the last request of a connection", sum(bool(event.get("last")) for event in events)),
        *((f"answers over {way}", answered[way]) for way in deployment.Ways.NAMES),
        ("jobs under redlockctl run", len(jobs)),
        ("long leases before everything was forgotten", faults["long leases before"]),
        ("clients stopped in their work", faults["client stopped in its work"] + faults["client process stopped"]),
    ]


def find_missing(rows, looks, leases):
    """The events that never happened. A run with few leases, which is a short one or one on a slow machine, may lack some."""
    missing = [name for name, number in rows if not number] if leases >= LEASES_ENOUGH else []
    return [f"{name}: never" for name in missing] + ([] if looks else ["nobody looked at the masters"])


def find_odd_ends(ends):
    """A proxy answers by itself where it does not reach redlockd: redlockctl says that that is not redlockd's answer (76)."""
    return [str(end) for end in ends if end["status"] not in JOB_ENDS and not (end["status"] == 76 and end["way"] in deployment.PROXIED)]


def find_invalid(events):
    """All requests are valid. If one is refused as invalid, a proxy or this harness has spoilt it."""
    return [str(event) for event in events if event["status"] in INVALID]
