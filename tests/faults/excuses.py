# SPDX-License-Identifier: MIT
"""Overlaps and inversions that a fault beyond the stated bounds explains. They are counted apart, with the reason, and never passed over.

A lease promises that no other one is valid at the same time "while clocks keep to the stated bounds", and each hazard is "found at the
next operation or within a second". So an overlap is excused only where one of these can have been at work on the locks of the first
lease, between its request and the answer to the second:

  - a master's clock went forward by less than can be told from a round trip (UNSEEN_MS), and the overlap is no longer than that;
  - a master's clock went forward and came back before anybody had to look (a second);
  - a master's clock went forward while the redlockd of the second lease was down or just starting, so it had nothing to compare with,
    and no other one had a second to find it;
  - a master dropped keys of its own accord (maxmemory), less than a second before: it says so in INFO, which is asked once a second;
  - the first lease is a job under redlockctl, and the machine did not schedule a process for so long that redlockctl may have ended the job too
    late. It begins to do so about half a second before the lease is over.

Each of them is no more than what may have happened: a finding that is excused is printed with its leases, to be looked at.

Pauses of clients, of redlockd, of masters, and what a network does are no excuses: no bound of the promise is about them.

Fences are ordered always. The one excuse: between the two grants so many masters had lost their memory that a floor was taken from clocks
(/masters warns of it: "fences: …"), and clocks had been wrong by at least as much as the second fence is short of the first.
"""

import harness

SECOND = 1_000_000
UNSEEN_MS = 20 * harness.SLOW  # round trips through the proxies of a busy machine are some ms
STALLED_US = 2 * SECOND
FOUND_US = round(1.5 * SECOND * harness.SLOW)  # a second, and the machine is busy


def excuse_overlap(overlap, log):
    """A sentence that says why, or None."""
    first, second = overlap.first, overlap.second
    for index, fault in enumerate(log):
        if not first.sent <= fault["at"] <= second.received:
            continue
        if fault["kind"] == "clock" and fault["target"].startswith("master") and fault["to_ms"] > fault["from_ms"]:
            reason = _excuse_clock(overlap, fault, log[index + 1:])
        elif fault["kind"].startswith("master with maxmemory") and fault["what"] == "begins" and second.received - fault["at"] < FOUND_US:
            reason = f"{fault['target']} may have dropped keys"
        elif fault["kind"] == "stall" and first.client.startswith("job") and second.received - fault["at"] < STALLED_US:
            reason = f"the machine stalled for {fault['what']}"
        else:
            reason = None
        if reason:
            return f"{reason} {(second.received - fault['at']) / 1000:.0f} ms before the second lease"
    return None


def _excuse_clock(overlap, jump, later):
    by_ms = jump["to_ms"] - jump["from_ms"]
    if by_ms <= UNSEEN_MS and overlap.end - overlap.start <= by_ms * 1000:
        return f"the clock of {jump['target']} went forward by only {by_ms} ms"
    for fault in later:
        if fault["at"] > min(overlap.second.received, jump["at"] + FOUND_US):
            break
        if fault["kind"] == "clock" and fault["target"] == jump["target"] and fault["to_ms"] < fault["from_ms"]:
            return f"the clock of {jump['target']} went forward by {by_ms} ms and came back"
    daemon = f"redlockd {overlap.second.daemon}"
    started = any(fault["kind"] in ("redlockd killed", "redlockd restarted") and fault["target"] == daemon and fault["what"] == "over" and
                  fault["at"] <= overlap.second.received for fault in later)
    if started and overlap.second.received - jump["at"] < FOUND_US:
        return f"the clock of {jump['target']} went forward by {by_ms} ms while {daemon} was starting"
    return None


def excuse_inversion(inversion, log, floors):
    """None, or a sentence that says why, and when the floor was there. `floors`: when floors were taken from clocks, see observer.py."""
    first, second = inversion
    floor = min((floor for floor in floors if first.sent <= floor["before"] and floor["after"] <= second.received),
                key=lambda floor: floor["before"], default=None)
    clocks = [fault for fault in log if fault["kind"] == "clock" and fault["at"] <= second.received]
    ahead_ms = max((fault["to_ms"] for fault in clocks if fault["at"] <= first.received), default=0)
    behind_ms = min((fault["to_ms"] for fault in clocks), default=0)
    short_ms = (first.fence - second.fence) / 1000
    if not floor or short_ms > max(0, ahead_ms) - min(0, behind_ms):
        return None
    wrong = f"up to {max(0, ahead_ms)} ms ahead and {-min(0, behind_ms)} ms behind"
    return f"master {floor['master']} was given a floor by clocks, and clocks had been {wrong}", floor["before"]
