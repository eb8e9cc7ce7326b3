# SPDX-License-Identifier: MIT
"""The figures of a run, its checks, and what a failed check found."""

import collections

import checkers
import excuses
import harness
import idleness
import losses
import restarts

HANGING_US = round(2_000_000 * harness.SLOW)
SHOWN = 5            # findings of one check that are printed in full
AROUND_US = 5_000_000  # faults so long before a finding belong to its story


class Report:
    def __init__(self, run):
        jobs, self.job_ends, stalls = run.cluster.jobs.read()
        self.run, self.log = run, sorted([*run.nemesis.log, *stalls], key=lambda fault: fault["at"])
        self.events = run.history()
        self.begin = min((event["sent"] for event in self.events), default=0)
        self.leases = checkers.leases_of(self.events)
        self.jobs = [checkers.Job(lines) for lines in jobs]  # each is a lease like all others
        self.leases.update({job.token: job for job in self.jobs})
        leases = list(self.leases.values())
        self.overlaps, self.excused = self.sort_out(checkers.find_overlaps(leases), self.excuse_overlap)
        self.inversions, self.excused_inversions = checkers.find_inversions(leases, self.excuse_inversion)
        self.same, excused = self.sort_out(checkers.find_same_fences(leases), self.excuse_inversion)
        self.excused_inversions += [(pair, reason) for pair, (reason, _) in excused]
        self.changed = checkers.find_changed_fences(leases)
        self.together = checkers.find_overlaps(leases, allowed=True)
        finder = losses.Finder(run.parts.MASTERS, self.log, run.parts.read_lines(run.cluster.looks))
        self.looks, self.lost_early = finder.looks.count, finder.find(leases, self.events)
        self.guarded = checkers.Guarded(run.parts.read_lines(run.cluster.journal), self.leases)
        self.logs = run.observing.Logs(run.cluster.daemons, set(self.leases))
        self.passed = self.failed = 0

    # ---- sorting ----

    @staticmethod
    def sort_out(found, excuse):
        """Those without an excuse, and (finding, reason) for the others."""
        reasons = [(finding, excuse(finding)) for finding in found]
        return [finding for finding, reason in reasons if not reason], [(finding, reason) for finding, reason in reasons if reason]

    def excuse_overlap(self, overlap):
        return excuses.excuse_overlap(overlap, self.log)

    def excuse_inversion(self, inversion):
        return excuses.excuse_inversion(inversion, self.log, self.run.observer.floors)

    # ---- figures ----

    def print_all(self):
        """Prints everything; returns whether a check failed."""
        self.print_head()
        self.print_leases()
        self.print_faults()
        self.print_findings()
        self.print_table()
        self.check_all()
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        return self.failed > 0

    def print_head(self):
        given, parts = self.run.given, self.run.parts
        threads = sum(client.threads for client in self.run.cluster.clients)
        print(f"seed {given.seed}, {given.seconds:g} s, {parts.MASTERS} masters ({len(parts.AOF)} with a file), {parts.DAEMONS} redlockd, "
              f"{threads} clients in {len(self.run.cluster.clients)} processes, {parts.RESOURCES} resources, "
              f"leases of {parts.TTL_MS[0]} to {parts.TTL_MS[1]} ms" + (f", mutated: {given.mutation}" if given.mutation else ""))
        print(f"replicas: {self.run.cluster.shape.tell()}")

    def print_leases(self):
        done = collections.Counter((event["kind"], event["status"]) for event in self.events)
        ran_out = sum(lease.released is None for lease in self.leases.values())
        print(f"leases: {len(self.leases)} acquired, {done['extend', 200]} extended, {done['release', 204]} released, "
              f"{ran_out} left to run out")
        waits = [event for event in self.events if event.get("wait_ms")]
        ends = collections.Counter(str(event["status"] if event["status"] == 201 else event.get("code")) for event in waits)
        first_s = self.run.observer.heads.longest_us / 1e6
        print(f"waits: {len(waits)}, of which {self.list_counts(ends)}; nobody was seen first in a line for longer than {first_s:.1f} s")
        for kind in ("acquire", "extend", "release"):
            failed = [event for event in self.events if event["kind"] == kind and event["status"] not in (200, 201, 204)]
            codes = collections.Counter(str(event.get("code")) for event in failed)
            print(f"{kind} refused or not answered: {self.list_counts(codes)}")

    def print_faults(self):
        print(f"faults: {sum(self.run.nemesis.counts.values())}: {self.list_counts(self.run.nemesis.counts)}")
        print(f"quarantines by reason, as each redlockd saw them: {self.list_counts(self.logs.quarantines)}")
        print(f"floors that were taken from clocks: {len(self.run.observer.floors)}")
        observer = self.run.observer
        print(f"a majority might vote in {observer.voting_share():.0%} of the answers of /masters; {self.list_counts(observer.totals())}")

    def print_findings(self):
        print(f"overlaps: {len(self.overlaps)}; excused: {len(self.excused)}")
        self.print_excused(self.excused)
        print(f"fences: {len(self.inversions)} inversions, {len(self.same)} given twice, {len(self.changed)} changed by an extension; "
              f"excused by floors from clocks: {len(self.excused_inversions)} later leases")
        self.print_excused(self.excused_inversions)
        guarded = self.guarded
        print(f"guarded resource: {guarded.taken} writes taken, {guarded.refused} refused; stale writes refused: {guarded.stale_refused}, "
              f"taken: {len(guarded.stale_taken)}; after the end of the lease but before any other holder: {guarded.late_taken}; "
              f"lost updates: {len(guarded.lost)}")

    def print_table(self):
        rows = self.count()
        rows = [("leases", len(self.leases)), *rows, ("looks at masters", self.looks),
                ("stalls of the machine", sum(fault["kind"] == "stall" for fault in self.log)), ("overlaps", len(self.overlaps)),
                ("fences out of order", len(self.inversions) + len(self.same) + len(self.changed)), ("leases lost early", len(self.lost_early))]
        for name, number in rows:
            print(f"| {name:45} | {number:7} |")

    def print_excused(self, excused):
        """Each reason with how often it was one, and an example."""
        examples, counts = {}, collections.Counter(reason for _, reason in excused)
        for pair, reason in excused:
            examples.setdefault(reason, pair)
        for reason, pair in examples.items():
            lasted = f", {(pair.end - pair.start) / 1000:.1f} ms long" if hasattr(pair, "end") else ""
            print(f"  {counts[reason]} excused{lasted}: {reason}; such as\n{self.tell_leases(*pair[:2])}", end="")
            if lasted:
                print(self.tell_faults(pair.first.sent, pair.second.received), end="")

    @staticmethod
    def list_counts(counts):
        return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"

    # ---- checks ----

    def check_all(self):
        if self.run.mutated:
            self.check_mutated()
            return
        self.check("no two leases of a resource overlap that may not", [pair for pair in self.overlaps if pair.first.client != restarts.LONG], self.tell_pair)
        self.check("none overlaps one that all masters forgot while replicas had different --max-ttl-ms",
                   [pair for pair in self.overlaps if pair.first.client == restarts.LONG], self.tell_pair)
        self.check("fences of a resource grow with every holder", self.inversions, self.tell_pair)
        self.check("no fence is given twice, none changes", self.same + [(lease, lease) for lease in self.changed], self.tell_pair)
        self.check("each lease is in the mode that was asked for", checkers.find_wrong_modes(self.events), str)
        self.check("no lease was lost early", self.lost_early, self.tell_loss)
        self.check("the guarded resource took no stale write", self.guarded.stale_taken, self.tell_stale)
        self.check("no update at the guarded resource was lost", self.guarded.lost, self.tell_lost)
        self.check("once all is healed, each resource can be taken through each redlockd", [self.run.stuck] if self.run.stuck else [], str)
        self.check("nobody waits for longer than 2 s beyond the wait and a request that does not wait", checkers.find_hanging(self.events, self.log, HANGING_US), self.tell_wait)
        self.check("nobody who would wait is refused before the time is over", checkers.find_impatient(self.events), self.tell_wait)
        heads = list(self.run.observer.heads.findings.values())
        self.check("no place stays in front of others without its waiter, no line outlives its waits", heads, str)
        self.check("once nobody waits, nothing of it is left", [self.run.left] if self.run.left else [], str)
        self.check("once all is healed, whoever waits is called, through each redlockd", [self.run.deaf] if self.run.deaf else [], str)
        self.check("nothing ended by itself, no sanitizer complained", self.run.nemesis.crashes + self.logs.faults + self.run.ends, str)
        self.check("no log has a token in it", self.logs.tokens, str)
        self.check("redlockctl ends as it should", idleness.find_odd_ends(self.job_ends), str)
        self.check("no request was refused as invalid", idleness.find_invalid(self.events), str)
        self.check("there was something to check", self.find_idleness(), str)

    def check_mutated(self):
        """The mistake must be seen; and the guarded resource must be safe from it all the same."""
        self.check("without the restart guard leases overlap", [] if self.overlaps else ["no overlap found"], str)
        if self.run.cluster.daemons[0].clock:
            self.check("and with a wrong clock fences are out of order", [] if self.inversions else ["no inversion found"], str)
        self.check("nothing ended by itself, no sanitizer complained", self.run.nemesis.crashes + self.logs.faults + self.run.ends, str)

    def find_idleness(self):
        """A run in which hardly anything was granted proves nothing."""
        least = self.run.given.seconds * 2
        idle = [] if len(self.leases) >= least else [f"only {len(self.leases)} leases in {self.run.given.seconds:g} s"]
        unused = {daemon.number for daemon in self.run.cluster.daemons} - {lease.daemon for lease in self.leases.values()}
        idle += [f"redlockd {number} never gave a lease" for number in unused]
        return idle + idleness.find_missing(self.count(), self.looks, len(self.leases))

    def count(self):
        together = collections.Counter(pair.first.mode for pair in self.together)
        return [*idleness.count(self.events, self.jobs, self.run.nemesis.counts), ("pairs of leases that were shared at once", together["shared"]),
                ("pairs of leases on two slots at once", together[None])]

    def check(self, name, found, tell):
        self.passed += not found
        self.failed += bool(found)
        print(f"{'FAILED' if found else 'passed'}: {name}" + (f": {len(found)} times" if found else ""))
        for finding in found[:SHOWN]:
            print("    " + tell(finding))

    # ---- stories ----

    def tell_pair(self, pair):
        first, second = pair[0], pair[1]
        times = f"overlap of {(pair.end - pair.start) / 1000:.1f} ms" if hasattr(pair, "end") else "pair"
        story = self.tell_leases(first, second) + self.tell_faults(first.sent, second.received)
        return f"{times} (times in ms since the run began)\n{story}"

    def tell_loss(self, loss):
        """With what happened to the connection that it came over: what the client did, and the last of its redlockd."""
        lease, way = loss.lease, "redlockctl run"
        for event in self.events:
            if event["kind"] == "acquire" and event.get("token") == lease.token:
                way = f"{event['way']}, afterwards: {event['after']}"
        after_ms = (loss.at - lease.received) / 1000
        left_ms = (lease.end() - loss.at) / 1000
        return (f"{after_ms:.1f} ms after its answer, {left_ms:.1f} ms too early: {loss.what}; over {way}\n"
                + self.tell_leases(lease) + self.tell_faults(lease.sent, loss.at))

    def tell_stale(self, found):
        entry, lease, later = found
        story = self.tell_leases(lease, later) + self.tell_faults(lease.sent, entry["at"])
        return f"{entry} although a later holder had been there\n{story}"

    def tell_wait(self, event):
        took_ms = (event["received"] - event["sent"]) / 1000
        awake_ms = checkers.time_awake_us(event, self.log) / 1000
        sent_ms = (event["sent"] - self.begin) / 1000
        return (f"{event['resource']} client {event['client']} redlockd {event['daemon']}: sent {sent_ms:.1f}, would wait {event['wait_ms']} ms, "
                f"{event['status']} {event.get('code')} after {took_ms:.1f} ms, {awake_ms:.1f} of them without the stops\n"
                + self.tell_faults(event["sent"], event["received"]))

    def tell_lost(self, found):
        return f"{found[0]} does not build on the write before\n{self.tell_leases(found[1])}"

    def tell_leases(self, *leases):
        return "".join(f"      {lease.tell(self.begin)}\n" for lease in leases)

    def tell_faults(self, start, end):
        """The events at that time, and a while before."""
        around = [fault for fault in self.log if start - AROUND_US <= fault["at"] <= end]
        lines = (f"      {(fault['at'] - self.begin) / 1000:.1f} {fault['kind']}: {fault['target']}: {fault['what']}\n" for fault in around)
        return "".join(lines)
