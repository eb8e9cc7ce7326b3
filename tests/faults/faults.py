"""Real faults: five redis-servers, three redlockd and 32 clients, of which a seeded nemesis kills, stops, cuts off, flushes and
misleads whatever it can; then two checkers over the whole history, and one over what a guarded resource took.
`./dev faults --seconds S [--seed X]`.

    faults.py       this file: a run from its beginning to its end, and the report
    cluster.py      the processes       network.py   proxies between redlockd and masters      guarded.py   the guarded resource
    client.py       who takes leases    nemesis.py   who does harm                             observer.py  what redlockd says of itself
    traps.py        harm in several steps that aims at one part of the restart guard                 waiting.py   the lines of those who wait
    checkers.py     what must be true of a history (test_checkers.py: histories made by hand)  excuses.py   what may explain an exception

The last line is "N passed, N failed", the exit status 1 if anything failed. A failed check prints what it found with the faults around
it, and the folder with all logs and histories stays. --plant guard-off runs redlockd without its restart guard and wipes masters:
then the checkers must find overlaps, and the run fails if they do not.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))

CLIENTS = (1,) * 8 + (6,) * 4  # threads in each client process


def parse_arguments():
    parser = argparse.ArgumentParser(description="Real faults: see the top of tests/faults/faults.py.")
    parser.add_argument("--seconds", type=float, default=60, help="how long harm is done")
    parser.add_argument("--seed", type=int, default=None, help="of the faults and the clients")
    parser.add_argument("--redlockd", default=None, help="the program; default: REDLOCKD, or build/release/redlockd")
    parser.add_argument("--plant", choices=["guard-off"], default=None, help="a mistake that must be found")
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
        import waiting
        self.given, self.folder, self.parts, self.observing, self.waiting = given, folder, cluster, observer, waiting
        self.planted = given.plant is not None
        options = ("--restart-guard", "off") if self.planted else ()
        self.cluster = cluster.Cluster(folder, given.seed, options)
        kind = nemesis.WipingNemesis if self.planted else nemesis.Nemesis
        self.nemesis = kind(self.cluster, given.seed)
        self.observer = observer.Observer(self.cluster.daemons, self.cluster.masters)
        self.stuck, self.left, self.deaf, self.ends = None, None, None, []

    def play(self):
        """Faults, then peace; then everything must be free again, and whoever waits must be called."""
        self.cluster.start_daemons(*(() if self.planted else ("--bootstrap",)))
        self.cluster.start_clients(CLIENTS)
        self.observer.start()
        self.nemesis.run(self.given.seconds)
        self.cluster.end_clients()
        largest_jump_s = 5  # back; a lock that nobody releases lasts longer by as much
        patience_s = (self.parts.bar_ms() / 1000 + largest_jump_s + 5) * self.parts.harness.SLOW
        self.left = self.waiting.what_is_left(self.cluster)
        self.stuck = self.observing.can_all_be_taken(self.cluster, patience_s)
        self.deaf = self.waiting.who_is_not_called(self.cluster, patience_s)
        self.observer.end()
        self.ends = [wrong for wrong in (daemon.end() for daemon in self.cluster.daemons) if wrong]

    def history(self):
        return [event for client in self.cluster.clients for event in self.parts.read_lines(client.history)]


def main():
    given = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = tempfile.mkdtemp(prefix="rl-faults-")
    run, failed = None, True
    try:
        run = Run(given, folder)
        run.play()
        import report
        failed = report.Report(run).print_all()
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
