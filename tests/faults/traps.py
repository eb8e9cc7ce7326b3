# SPDX-License-Identifier: MIT
"""Faults in several steps, which a nemesis (nemesis.py) would hardly ever draw one after the other: each aims at one part of the
restart guard.

Most leases lie on all five masters, and one that forgets them changes nothing. The traps first see to it that leases lie on a bare
majority. They need all masters in good shape, so they first wait for it: `self.trap`.
"""

import functools

import cluster as parts

SECOND = parts.SECOND
EVICTIONS = (("allkeys-random", "1mb"), ("allkeys-lru", "used"), ("volatile-ttl", "used"), ("volatile-lru", "1gb"), ("noeviction", "1mb"))


class Traps:
    """Of a nemesis: it has all that is used here and is not defined."""

    def all_is_well(self, trap):
        """Whether nothing but clients is hurt; else `trap` is the next to strike, as soon as that is so."""
        weak = any(until > parts.now_us() for until in self.weak_until.values())
        well = not weak and all(name.startswith("client") for name in self.busy)
        self.trap = None if well else trap
        return well

    def sever(self, kind, pairs, lasts_us, afterwards=lambda: None):
        """No connection between these redlockd and masters for a while; `afterwards` comes before they are connected again."""
        names = [f"pair {self.cluster.network.name(pair)}" for pair in pairs]

        def heal():
            afterwards()
            self.cluster.network.heal(pairs)
        self.cluster.network.command(pairs, cut=True, refuse=True)
        self.wound(kind, ", ".join(names), lasts_us, heal, busy=names)

    # ---- leases that are forgotten by one master ----

    def ambush(self):
        """One redlockd loses two masters, so that its leases have a bare majority; then one of those masters forgets them, while the other
        redlockd can reach all. Without epochs, quarantines or the comparison of clocks leases overlap."""
        if not self.all_is_well(self.ambush):
            return
        self.counts["ambush"] += 1
        daemon, (first, second, victim) = self.random.randrange(parts.DAEMONS), self.random.sample(self.cluster.masters, 3)
        lasts_us = self.seconds(0.3, 1)
        self.sever("ambush: cut", [(daemon, first.number), (daemon, second.number)], lasts_us + SECOND // 2)
        self.wound("ambush: wait", victim.name, lasts_us, functools.partial(self.spring, victim))

    def spring(self, victim):
        how = self.random.choice(("kill", "flush", "flush", "evict", "clock", "clock"))
        if how == "kill":
            self.kill_one_master(victim, empty=True, lasts_us=0)
        elif how == "flush":
            self.flush_one_master(victim)
        elif how == "evict":
            self.evict_one_master(victim, *EVICTIONS[0])
        else:
            self.counts["clock of a master moved forward"] += 1
            self.set_clock(victim, victim.clock.offset_ms + round(self.random.uniform(1, 5) * parts.TTL_MS[1]))

    # ---- fences that are forgotten by one master ----

    def forget_fences(self):
        """Two masters are away, and a redlockd with a clock that is far ahead drives up the fences on the other three, then it dies. One of
        the three forgets them; its quarantine ends, it is told by the two that know; then these go and the first two come back. The majority
        that is there now has only what the victim was told: without that its fences would begin again where the clocks are."""
        if not self.all_is_well(self.forget_fences):
            return
        self.counts["fences forgotten"] += 1
        first, second, victim, *knowing = self.random.sample(self.cluster.masters, parts.MASTERS)
        liar = self.random.choice(self.cluster.daemons)
        if liar.clock:
            self.set_clock(liar, 7_200_000)  # more than an hour: the others do not learn it
        away, others = self.pairs_of(first, second), self.pairs_of(*knowing)

        away_us = SECOND + round(parts.quarantine_ms() * 1000) + 2 * SECOND
        change_sides = functools.partial(self.sever, "fences: those that know are away", others, 3 * SECOND)
        self.sever("fences: others are away", away, away_us, change_sides)
        forget = functools.partial(self.forget, victim, liar, away_us)
        self.wound("fences: wait", victim.name, SECOND, forget, busy=[victim.name, liar.name])
        self.quiet_until = parts.now_us() + away_us + 3 * SECOND

    def forget(self, victim, liar, lasts_us):
        self.kill_one_master(victim, empty=True, lasts_us=0)
        self.kill_one_daemon(liar, lasts_us)
        if liar.clock:
            self.set_clock(liar, 0)

    @staticmethod
    def pairs_of(*masters):
        return [(daemon, master.number) for daemon in range(parts.DAEMONS) for master in masters]

    # ---- all at once ----

    def storm(self):
        """Several masters lose their memory at once, up to all of them; or all redlockd are killed; or both."""
        which = self.random.choice(("masters", "redlockd", "both"))
        self.counts[f"storm: {which}"] += 1
        self.note("storm", which, "begins")
        if which != "redlockd":
            for master in self.random.sample(self.cluster.masters, self.random.randint(3, parts.MASTERS)):
                if master.name not in self.busy:
                    self.kill_one_master(master, empty=self.random.random() < 0.7, lasts_us=self.seconds(0, 0.3))
        if which != "masters":
            for daemon in self.cluster.daemons:
                if daemon.name not in self.busy:
                    self.kill_one_daemon(daemon, self.seconds(0, 0.5))
