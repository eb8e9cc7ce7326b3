# SPDX-License-Identifier: MIT
"""Rules that every history must keep, under all faults: pure functions over lists of events.

Times are microseconds of CLOCK_BOOTTIME, which all processes of one machine share. An event of a client's history
(client.py) is a dictionary with `kind` (acquire, extend, release), `client`, `daemon`, `resource`, `token`, `sent`,
`received`, `status`, and for a lease `fence`, `ttl_ms`, `validity_ms`, `drift_ms`, `mode` if it is shared, `slot` if it is
on one; an acquisition has `wait_ms`, how
long it was ready to wait, and where that is not 0 `waited_ms`, how long it did. An entry of the journal of the guarded
resource (guarded.py) has `op` (enter, write), `at`, `resource`, `fence`, `token`, `taken`, `value`.

The interval in which a client may rely on its lease ---------------------------------------------------- It begins when
the answer was received: before, the client has nothing to rely on. (Earlier would be wrong: a lease is not in force
while its attempt is still asking masters, and may well do so while the one before it runs out.)

It ends when the client sent its release. Otherwise validity_ms after the answer was *written*, which is what the answer
promises. The client does not know when that was; README.md tells it to count from when it *sent* the request, which is
never too late. A checker that stopped there would let an overlap pass that is shorter than the request took. But
validity_ms is ttl − elapsed − drift, with `elapsed` from the beginning of the winning attempt, which began after the
request was sent. So the promise ends no earlier than at

    sent + elapsed + validity  =  sent + ttl − drift

and that is taken as the end, less 1 ms for the rounding of validity_ms. It is the latest end that can be proved from
what the client saw; counting validity_ms from `received` would claim time that was never promised (the answer may have
lain about).

After a wait in the queue that is far too early: the winning attempt began when the wait was over. The answer says how
long that was, by the clock of redlockd, from when it had the request: so the promise ends no earlier than at sent +
waited + validity. (A client elsewhere takes 0.99 of the wait, since its clock may run differently; here all have one
clock.)

An extension is a further interval of the same kind, from when its answer was received; the interval before it ends as
it would have without. An extension without an answer, or with a refusal, changes nothing: what was promised stays
promised.

So no pause of a client or of a redlockd excuses an overlap: a client that was stopped while it waited for its answer
has a shorter interval or none, and what a stopped client does after its interval is for the guarded resource to refuse.
"""

import collections


class Lease:
    """One grant, with the intervals in which its holder may rely on it."""

    def __init__(self, event):
        self.token, self.resource, self.fence = event["token"], event["resource"], event["fence"]
        self.client, self.daemon = event["client"], event["daemon"]
        self.mode, self.slot = event.get("mode"), event.get("slot")
        self.sent, self.received = event["sent"], event["received"]
        self.intervals = [interval_of(event)]
        self.asked = [event["sent"]]  # for each interval
        self.released = None      # when the first release was sent
        self.fences = {self.fence}  # also those that extensions told
        self.extensions = []

    def extend(self, event):
        self.intervals.append(interval_of(event))
        self.asked.append(event["sent"])
        self.fences.add(event["fence"])
        self.extensions.append(event)

    def release(self, event):
        self.released = event["sent"] if self.released is None else min(self.released, event["sent"])

    def relied_upon(self):
        """The intervals up to the release; empty ones are left out."""
        ends = [(start, end if self.released is None else min(end, self.released)) for start, end in self.intervals]
        return [(start, end) for start, end in ends if start < end]

    def end(self):
        """When the last interval ends."""
        return max(end for _, end in self.intervals) if self.released is None else self.released

    def tell(self, begin=0):
        """For people: times in ms since `begin`."""
        def ms(at):
            return f"{(at - begin) / 1000:.1f}"
        spans = ", ".join(f"{ms(start)} to {ms(end)}" for start, end in self.relied_upon()) or "never"
        released = "never" if self.released is None else ms(self.released)
        return (f"{self.resource} fence {self.fence} client {self.client} redlockd {self.daemon}: "
                f"sent {ms(self.sent)}, received {ms(self.received)}, relied upon {spans}, "
                f"extended {len(self.extensions)} times, released {released}, token {self.token}")


class Job(Lease):
    """The interval of a command under `redlockctl run` (job.py): it relied on the lock from its first line to its
    last."""

    def __init__(self, lines):
        head = lines[0]
        end = max([line["lives"] for line in lines[1:]], default=head["begin"])
        super().__init__({**head, "client": f"job {head['job']}", "daemon": None, "sent": head["asked"], "received": head["begin"],
                          "ttl_ms": 0, "validity_ms": 0, "drift_ms": 0})
        self.intervals = [(head["begin"], end)]


def interval_of(event):
    """From the answer until what was promised is over; see the top of the file."""
    promised_ms = max(event.get("waited_ms", 0) + event["validity_ms"], event["ttl_ms"] - event["drift_ms"] - 1)
    return event["received"], event["sent"] + promised_ms * 1000


def leases_of(events):
    """The leases of a history, by token. Raises ValueError where one token was given twice."""
    leases = {}
    for event in events:
        if event["kind"] == "acquire" and event["status"] == 201:
            if event["token"] in leases:
                raise ValueError(f"one token for two leases: {leases[event['token']].tell()} and {event}")
            leases[event["token"]] = Lease(event)
    for event in events:
        if event["kind"] == "extend" and event["status"] == 200:
            leases[event["token"]].extend(event)
        elif event["kind"] == "release":  # answered or not: the client stopped to rely on it
            leases[event["token"]].release(event)
    return leases


def by_resource(leases):
    found = collections.defaultdict(list)
    for lease in leases:
        found[lease.resource].append(lease)
    return found


# -------------------------------------------------------------------------------------------------- overlaps

Overlap = collections.namedtuple("Overlap", "first second start end")


def may_share(first, second):
    """Both may hold a resource at once: both are shared, or they are on different slots."""
    return first.mode == second.mode == "shared" or None not in (first.slot, second.slot) and first.slot != second.slot


def find_overlaps(leases, allowed=False):
    """All pairs of leases on one resource of which intervals overlap, each pair once: those that may not share it, or those
    that may. `first` had begun when `second` began."""
    found = {}
    for ours in by_resource(leases).values():
        spans = sorted(((start, end, lease) for lease in ours for start, end in lease.relied_upon()), key=lambda span: span[:2])
        active = []
        for start, end, lease in spans:
            active = [span for span in active if span[1] > start]
            for _, other_end, other in active:
                pair = frozenset((lease.token, other.token))
                if other is not lease and pair not in found and may_share(lease, other) == allowed:
                    found[pair] = Overlap(other, lease, start, min(end, other_end))
            active.append((start, end, lease))
    return sorted(found.values(), key=lambda overlap: overlap.start)


# ---------------------------------------------------------------------------------------------------- fences

Inversion = collections.namedtuple("Inversion", "first second")


def find_inversions(leases, excuse=lambda inversion: None):
    """Pairs in which `second` was asked for after `first` had been answered, and has not the larger fence; one for each `second`.

    excuse(inversion) is None, or (reason, since): then `second` is compared again, with leases only that were asked for later than
    `since`. Returns the pairs without an excuse, and (pair, reason) for the others."""
    found, excused = [], []
    for ours in by_resource(leases).values():
        for second in ours:
            earlier = [lease for lease in ours if lease.received < second.sent]
            while earlier:
                inversion = Inversion(max(earlier, key=lambda lease: lease.fence), second)
                if inversion.first.fence < second.fence:
                    break
                verdict = excuse(inversion)
                if not verdict:
                    found.append(inversion)
                    break
                excused.append((inversion, verdict[0]))
                earlier = [lease for lease in earlier if lease.sent > verdict[1]]
    return found, excused


def find_same_fences(leases):
    """Pairs of leases on one resource with one fence."""
    found = []
    for ours in by_resource(leases).values():
        seen = {}
        for lease in sorted(ours, key=lambda lease: lease.received):
            if lease.fence in seen:
                found.append(Inversion(seen[lease.fence], lease))
            seen.setdefault(lease.fence, lease)
    return found


def find_wrong_modes(events):
    """Grants in another mode than was asked for, or on a slot that there is not."""
    def is_right(event):
        return event.get("mode") == event["wanted"] and (event["slots"] == 0) == ("slot" not in event) and event.get("slot", 0) < max(event["slots"], 1)
    return [event for event in events if event["kind"] == "acquire" and event["status"] == 201 and "wanted" in event and not is_right(event)]


def find_changed_fences(leases):
    """Leases whose extensions told another fence."""
    return [lease for lease in leases if len(lease.fences) > 1]


# ----------------------------------------------------------------------------------------------------- waits


def pauses(log, targets):
    """When at least one of these processes was stopped, as (begin, end) without overlaps, from the faults that a nemesis wrote down."""
    open_since, found = {}, []
    for fault in log:
        if "stopped" not in fault["kind"] or fault["target"] not in targets:
            continue
        if fault["what"] == "begins":
            open_since.setdefault(fault["target"], fault["at"])
        elif fault["target"] in open_since:
            found.append((open_since.pop(fault["target"]), fault["at"]))
    found += [(since, float("inf")) for since in open_since.values()]
    merged = []
    for start, end in sorted(found):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def time_awake_us(event, log):
    """How long a request took, without the time in which its redlockd or its client were stopped."""
    targets = (f"redlockd {event['daemon']}", f"clients {event['client'].partition('.')[0]}")
    paused = sum(max(0, min(end, event["received"]) - max(start, event["sent"])) for start, end in pauses(log, targets))
    return event["received"] - event["sent"] - paused


def find_hanging(events, log, beyond_us):
    """Requests that were ready to wait and had no answer, or a late one, so long after their wait was over. The longest
    request at that time that does not wait is added: on an overloaded machine all of them are late."""
    def is_late(event, slack_us):
        bound_us = event["wait_ms"] * 1000 + slack_us
        return event["received"] - event["sent"] > bound_us and time_awake_us(event, log) > bound_us

    def slowest_us(event):
        return max((other["received"] - other["sent"] for other in events
                    if not other.get("wait_ms") and other["sent"] < event["received"] and other["received"] > event["sent"]), default=0)
    return [event for event in events if event.get("wait_ms") and is_late(event, beyond_us) and is_late(event, beyond_us + slowest_us(event))]


def find_impatient(events):
    """Requests that were answered "locked" before their wait was over."""
    return [event for event in events if event.get("code") == "locked" and event["received"] - event["sent"] < event.get("wait_ms", 0) * 1000]


# ---------------------------------------------------------------------------------------- the guarded resource


class Guarded:
    """Checks the journal of the guarded resource. The order of the grants, not the fences, tells whether a write is
    stale."""

    def __init__(self, journal, leases):
        self.taken = self.refused = 0  # writes
        self.stale_taken = []          # a holder that came later had been there already: must be empty
        self.stale_refused = 0
        self.late_taken = 0            # after the end of the lease, but nobody else had come
        self.lost = []                 # writes that do not build on the one before: must be empty
        newest, values = {}, collections.Counter()
        for entry in journal:
            lease, resource = leases[entry["token"]], entry["resource"]
            last = newest.get(resource)
            stale = last is not None and last.sent > lease.received
            if entry["taken"]:
                self._take(entry, lease, last if stale else None, values)
                if last is None or lease.sent > last.sent:
                    newest[resource] = lease
            elif entry["op"] == "write":
                self.refused += 1
                self.stale_refused += stale

    def _take(self, entry, lease, later, values):
        if later:
            self.stale_taken.append((entry, lease, later))
        if entry["op"] != "write":
            return
        self.taken += 1
        self.late_taken += entry["at"] > lease.end() and not later
        values[entry["resource"]] += 1
        if entry["value"] != values[entry["resource"]]:
            self.lost.append((entry, lease))
            values[entry["resource"]] = entry["value"]
