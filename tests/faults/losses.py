# SPDX-License-Identifier: MIT
"""Finds leases lost early: leases that were gone from a majority of the masters while their holders could rely on them.

When a grant or an extension is answered, a majority of the masters has the token. Until the interval is over in which the holder may rely on
the lease (checkers.py), only a release takes the token away, or a master that forgets: one that is killed and started empty, that is
flushed, that evicts keys, or of which the clock goes forward. So at no moment of the interval can more than N − Q of the N masters be
without the token, besides those that may have forgotten it. If more are without it, the lease was lost early. Masters that
lack it at different times do not add up: after an extension a master gets the token back (a repair). Pauses, delays and networks are no excuse.
An overlap is not needed: perhaps nobody else asked for the lock.

The evidence is what lies on the masters (witness.py), and what redlockd answers: `votes.refused` masters are without the token when
an extension, or the first release, is refused with 409 `not-owner` or 410 `lease-expired` and the answer arrives within the interval.
"""

import bisect
import collections

REFUSED = ("not-owner", "lease-expired")
DIRECT = ("unix", "tcp", "tls")  # ways without a proxy
SLACK_US = 500_000  # the nemesis writes a fault down shortly before or after it is done

Loss = collections.namedtuple("Loss", "lease at what")


class Memories:
    """When each master may have forgotten what it had, from the faults that the nemesis wrote down, in the order of time."""

    def __init__(self, log):
        self.harms = collections.defaultdict(list)  # master's number: [from, until]
        open_since = {}
        for fault in log:
            kind, target = fault["kind"], fault["target"]
            if not target.startswith("master "):
                continue
            harms, number = self.harms[int(target.split()[1])], target
            if kind == "clock" and fault["to_ms"] > fault["from_ms"]:
                harms.append([fault["at"] - SLACK_US, fault["at"] + SLACK_US])
            elif kind == "ended by itself":
                harms.append([fault["at"] - SLACK_US, float("inf")])
            elif kind in ("master flushed", "master killed, then empty") or kind.startswith("master with maxmemory"):
                if fault["what"] in ("begins", "before"):
                    open_since[kind, number] = [fault["at"] - SLACK_US, float("inf")]
                    harms.append(open_since[kind, number])
                elif (kind, number) in open_since:
                    open_since.pop((kind, number))[1] = fault["at"] + SLACK_US

    def may_have_forgotten(self, master, start, end):
        return any(harm[0] <= end and harm[1] >= start for harm in self.harms[master])


class Looks:
    """The records of witness.py, by master, in the order of time."""

    def __init__(self, looks):
        self.looks = collections.defaultdict(list)
        for look in sorted(looks, key=lambda look: look["asked"]):
            self.looks[look["master"]].append(look)
        self.asked = {master: [look["asked"] for look in ours] for master, ours in self.looks.items()}
        self.count = sum(map(len, self.looks.values()))

    def between(self, master, start, end):
        """Those that were begun and ended within this time."""
        looks = self.looks[master]
        for index in range(bisect.bisect_left(self.asked[master], start), len(looks)):
            if looks[index]["answered"] > end:
                return
            yield looks[index]


class Finder:
    """Looks for leases lost early. `masters`: how many there are."""

    def __init__(self, masters, log, looks):
        self.masters, self.majority = masters, masters // 2 + 1
        self.memories, self.looks = Memories(log), Looks(looks)

    def missing_on(self, lease, since, start, end):
        """The spans (from, until, master, look) in which a master was without the token although it kept what it had at `since`: each from one look
        to the next one of the same master, both without it."""
        for master in self.looks.looks:
            before = None
            for look in self.looks.between(master, start, end):
                gone = lease.token not in look["tokens"].get(lease.resource, "").split()
                if gone and before and not self.memories.may_have_forgotten(master, since, look["answered"]):
                    yield before["answered"], look["asked"], master, look
                before = look if gone else None

    def find_on_masters(self, lease):
        for since, (start, end) in zip(lease.asked, lease.intervals):
            end = end if lease.released is None else min(end, lease.released)
            active = []
            for span in sorted(self.missing_on(lease, since, start, end), key=lambda span: span[:3]):
                active = [other for other in active if other[1] > span[0]] + [span]
                if len(active) > self.masters - self.majority:
                    who = {master: look["tokens"].get(lease.resource, "nobody") for _, _, master, look in active}
                    return Loss(lease, span[0], f"missing on masters {sorted(who)}, where the holder was {sorted(set(who.values()))}")
        return None

    def find_in_answers(self, lease, refusals):
        """`refusals`: the extensions and releases of this lease that were refused."""
        for event in refusals:
            released = lease.released is not None and lease.released < event["sent"]
            for since, (start, end) in zip(lease.asked, lease.intervals):
                if released or not (start <= event["sent"] and event["received"] <= end):
                    continue
                forgot = sum(self.memories.may_have_forgotten(master, since, event["received"]) for master in range(self.masters))
                if event["votes"]["refused"] - forgot > self.masters - self.majority:
                    return Loss(lease, event["received"], f"{event['kind']} over redlockd {event['daemon']}: {event['status']} {event['code']}")
        return None

    def find(self, leases, events):
        """All leases lost early, each once, with its earliest evidence. A release through a proxy is no evidence: the proxy may send it twice."""
        refusals = collections.defaultdict(list)
        for event in events:
            if event.get("code") in REFUSED and (event["kind"] == "extend" or event["kind"] == "release" and event["way"] in DIRECT):
                refusals[event["token"]].append(event)
        found = []
        for lease in leases:
            seen = [loss for loss in (self.find_on_masters(lease), self.find_in_answers(lease, refusals[lease.token])) if loss]
            found += [min(seen, key=lambda loss: loss.at)] if seen else []
        return sorted(found, key=lambda loss: loss.at)
