# SPDX-License-Identifier: MIT
"""Real faults: five redis-servers, three redlockd, nginx and HAProxy, 32 clients and some jobs under `redlockctl run`; a seeded nemesis kills,
stops, restarts, cuts off, flushes and misleads whatever it can; then checkers over the whole history, over what lay on the
masters, and over what a guarded resource took. `./dev faults --seconds S [--seed X]`.

    faults.py      a run from its beginning to its end           report.py       figures and findings
    cluster.py     the processes                                 deployment.py   options of the replicas, ways to them, proxies
    network.py     proxies between redlockd and masters          guarded.py      the guarded resource
    client.py      who takes leases                              client_connection.py  and over which connections
    jobs.py        runs redlockctl, job.py: its command          witness.py      whose token lies on the masters
    nemesis.py     who does harm                                 traps.py        harm in several steps
    restarts.py    redlockd in turn; the loss of everything      observer.py     what redlockd says of itself
    waiting.py     the lines of those who wait                   excuses.py      what may explain an exception
    checkers.py    what must be true of a history                losses.py       leases that were lost early

test_checkers.py and test_losses.py try the checkers on histories made by hand. The same seed draws the same deployment, faults and clients.

The last line is "N passed, N failed", the exit status 1 if anything failed. A failed check prints what it found with the faults around
it, and the folder with all logs and histories stays. --mutation guard-off runs redlockd without its restart guard and wipes masters:
then the checkers must find overlaps, and the run fails if they do not. --rolling and --network are other runs: rolling.py, and partitions.py
with hosts.py and wires.py.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))

CLIENTS = (1,) * 8 + (6,) * 4  # threads in each client process
JOBS = 3                       # how many at once


def parse_arguments():
    parser = argparse.ArgumentParser(description="Real faults: see the top of tests/faults/faults.py.")
    parser.add_argument("--seconds", type=float, default=60, help="how long harm is done")
    parser.add_argument("--seed", type=int, default=None, help="of the faults and the clients")
    parser.add_argument("--redlockd", default=None, help="the program; default: REDLOCKD, or build/release/redlockd")
    parser.add_argument("--mutation", choices=["guard-off"], default=None, help="a mistake that must be found")
    parser.add_argument("--rolling", action="store_true", help="restart masters one after the other, under leases that are held all the time")
    parser.add_argument("--network", action="store_true", help="every process on a host of its own, faults in the wires between them")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    given = parser.parse_args()
    if given.redlockd:
        os.environ["REDLOCKD"] = os.path.abspath(given.redlockd)
    if given.seed is None:
        given.seed = random.SystemRandom().randrange(1, 1_000_000)
    return given


class Run:
    """One run: the processes, and after it the history."""

    def __init__(self, given, folder):
        import cluster  # harness.py reads REDLOCKD when it is loaded
        import nemesis
        import observer
        import report
        import waiting
        self.given, self.folder, self.parts, self.observing, self.waiting = given, folder, cluster, observer, waiting
        self.reporting = report
        self.mutated = given.mutation is not None
        options = ("--restart-guard", "off") if self.mutated else ()
        self.cluster = cluster.Cluster(folder, given.seed, options)
        kind = nemesis.WipingNemesis if self.mutated else nemesis.Nemesis
        self.nemesis = kind(self.cluster, given.seed)
        self.observer = observer.Observer(self.cluster.daemons, self.cluster.masters)
        self.stuck, self.left, self.deaf, self.ends = None, None, None, []

    def play(self):
        """Faults, then peace; then every lock must be free again, and waiters must get notifications."""
        self.cluster.start_daemons(*(() if self.mutated else ("--bootstrap",)))
        self.cluster.start_clients(CLIENTS, JOBS)
        self.observer.start()
        self.nemesis.run(self.given.seconds)
        self.cluster.end_clients()
        largest_jump_s = 5  # back; a lock that nobody releases lasts longer by as much
        patience_s = (self.parts.quarantine_ms(self.parts.LONG_TTL_MS) / 1000 + largest_jump_s + 5) * self.parts.harness.SLOW
        self.left = self.waiting.what_is_left(self.cluster)
        self.stuck = self.observing.can_all_be_taken(self.cluster, patience_s)
        self.deaf = self.waiting.who_is_not_called(self.cluster, patience_s)
        self.observer.end()
        with open(os.path.join(self.folder, "faults"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(fault) + "\n" for fault in self.nemesis.log)
        self.ends = [*self.nemesis.slow_ends, *(wrong for wrong in (daemon.end() for daemon in self.cluster.daemons) if wrong)]

    def history(self):
        paths = [client.history for client in self.cluster.clients] + [self.cluster.long_history]
        return [event for path in paths if os.path.exists(path) for event in self.parts.read_lines(path)]


def roll(given, folder):
    """Returns whether a check failed."""
    import cluster  # harness.py reads REDLOCKD when it is loaded
    import rolling
    made = cluster.Cluster(folder, given.seed, ())
    try:
        return rolling.Rolling(made, given.seed).run(given.seconds)
    finally:
        made.kill_all()


def harm_wires(given, folder):
    """Returns whether a check failed."""
    import hosts  # harness.py reads REDLOCKD when it is loaded
    import partitions
    try:
        made = partitions.Partitioned(folder, given.seed)
    except hosts.Unavailable as why:
        print(f"skipped: {why}\n0 passed, 0 failed, 1 skipped", flush=True)
        return False
    try:
        return made.run(given.seconds)
    finally:
        made.kill_all()


def main():
    given = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = tempfile.mkdtemp(prefix="rl-faults-")
    run, failed = None, True
    try:
        if given.rolling:
            failed = roll(given, folder)
        elif given.network:
            failed = harm_wires(given, folder)
        else:
            run = Run(given, folder)
            run.play()
            failed = run.reporting.Report(run).print_all()
    except Exception:  # pylint: disable=broad-except
        traceback.print_exc()
        print("the run itself failed\n0 passed, 1 failed", flush=True)
    finally:
        if run:
            run.cluster.kill_all()
        if failed or given.keep:
            print(f"all of it is in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
