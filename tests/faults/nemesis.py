# SPDX-License-Identifier: MIT
"""Does harm to a cluster: one fault or several at a time, drawn from a seed, each healed after a while.

The same seed draws the same faults in the same order, as far as the machine lets it: what can be hurt depends on what
is up. Each fault is written down when it begins and when it ends (`log`, on the clock of the histories), for the
checkers and for a reader of a failure.

A master that lost its memory, or of which the clock jumped, is quarantined for a while. So that leases are given nearly
all of the time, mostly no more than two masters are in a bad way at once; every now and then it is more, up to all of
them. Faults that need others before them are in traps.py.

Clocks of masters are not moved back by more than a few seconds: a lock that nobody releases lasts longer there by as
much, and the run must see that all locks can be taken again. A clock that went far ahead stays there until the server
is restarted empty.

Beside all that redlockd are restarted in turn again and again, and in the end everything is forgotten at once:
restarts.py.
"""

import collections
import functools
import random
import time

import cluster as parts
import restarts
import traps

Wound = collections.namedtuple("Wound", "due kind target heal")

SECOND = parts.SECOND


class Nemesis(traps.Traps, restarts.Restarts):
    def __init__(self, cluster, seed):
        self.cluster, self.random = cluster, random.Random(f"nemesis {seed}")
        self.log, self.counts = [], collections.Counter()
        self.wounds = []                        # faults to heal, and when
        self.busy = set()                       # names of processes and pairs with a fault at this moment
        self.weak_until = collections.Counter()  # master number: until when it is quarantined, as far as can be told from here
        self.crashes = []                       # processes that ended by themselves
        self.limit = 2
        self.trap = None                        # a trap that waits until all is well: nothing else strikes
        self.quiet_until = 0                    # nothing else strikes
        self.is_deployed = True                 # redlockd are restarted
        self.kinds = {self.kill_master: 14, self.stop_master: 8, self.flush: 6, self.evict: 7, self.move_clock: 12, self.hurt_network: 22,
                      self.kill_daemon: 7, self.stop_daemon: 6, self.restart_one: 4, self.move_daemon_clock: 3 if cluster.daemons[0].clock else 0,
                      self.stop_client: 10, self.deafen: 4, self.forget_waiters: 4, self.storm: 2, self.ambush: 9, self.forget_fences: 2}

    # ---- the course of a run ----

    def run(self, seconds):
        """Strikes and heals until the time is over; then heals everything."""
        begin = parts.now_us()
        end = begin + seconds * SECOND
        if self.is_deployed:
            end -= min(0.3 * seconds, restarts.LOSS_S + 6) * SECOND
        self.roll_at = begin + self.seconds(1, 3)
        strike_at = look_at = begin
        while parts.now_us() < end:
            now = parts.now_us()
            if now >= look_at:
                self.look_after()
                if self.is_deployed:
                    self.go_on_rolling()
                look_at = now + SECOND // 10
            self.heal_until(now)
            if now >= strike_at:
                self.strike()
                strike_at = now + self.seconds(0.1, 1.2)
            time.sleep(0.01)
        self.finish_restart()
        self.heal_all()
        if self.is_deployed:
            self.lose_everything()
            self.heal_all()

    def strike(self):
        """One fault; or none where nothing is there to be hurt: the next strike comes soon."""
        if parts.now_us() < self.quiet_until:
            return
        self.limit = self.random.choice((1, 2, 2, 2, 2, 3, 5))
        kind = self.trap or self.random.choices(list(self.kinds), list(self.kinds.values()))[0]
        kind()

    def heal_until(self, now):
        due = [wound for wound in self.wounds if wound.due <= now]
        for wound in sorted(due, key=lambda one: one.due):
            self.heal(wound)

    def heal(self, wound):
        self.wounds.remove(wound)
        wound.heal()
        self.note(wound.kind, wound.target, "over")

    def heal_all(self):
        while self.wounds:
            self.heal(min(self.wounds, key=lambda one: one.due))
        self.look_after()
        for client in self.cluster.clients:
            client.cont()

    def look_after(self):
        """Continues clients that stopped themselves; finds what ended by itself."""
        for client in self.cluster.clients:
            if client.name not in self.busy and client.state() == "T":
                self.counts["client stopped in its work"] += 1
                self.wound("client stopped in its work", client.name, self.seconds(0.05, 2.2 * parts.TTL_MS[1] / 1000), client.cont)
        cluster = self.cluster
        for thing in (*cluster.daemons, *cluster.masters, *cluster.clients, *cluster.proxies, cluster.jobs, cluster.network):
            name = getattr(thing, "name", "network")
            if name not in self.busy and thing.process.poll() is not None and name not in self.crashes:
                self.crashes.append(name)
                self.note("ended by itself", name, f"status {thing.process.returncode}")

    # ---- tools ----

    def note(self, kind, target, what):
        self.log.append({"at": parts.now_us(), "kind": kind, "target": target, "what": what})

    def seconds(self, least, most):
        return round(self.random.uniform(least, most) * SECOND)

    def wound(self, kind, target, lasts_us, heal, busy=None):
        """A fault that began just now and is to be healed."""
        names = set(busy or [target])
        self.busy |= names
        self.note(kind, target, "begins")

        def heal_it():
            self.busy.difference_update(names)  # first: what heals may begin the next fault
            heal()
        self.wounds.append(Wound(parts.now_us() + lasts_us, kind, target, heal_it))

    def weaken(self, master, after_us=0):
        self.weak_until[master.number] = parts.now_us() + after_us + round(parts.quarantine_ms() * 1000)

    def pick_master(self, where=lambda master: True):
        """A master that runs, or None; one of those that are in a bad way anyhow if these are enough."""
        now = parts.now_us()
        bad = [master for master in self.cluster.masters if master.name in self.busy or self.weak_until[master.number] > now]
        able = bad if len(bad) >= self.limit else self.cluster.masters
        able = [master for master in able if master.name not in self.busy and where(master)]
        return self.random.choice(able) if able else None

    def pick(self, things):
        able = [thing for thing in things if thing.name not in self.busy]
        return self.random.choice(able) if able else None

    # ---- masters ----

    def kill_master(self):
        master = self.pick_master()
        if master:
            self.kill_one_master(master, empty=self.random.random() < 0.5)

    def kill_one_master(self, master, empty, lasts_us=None):
        empty = empty or not master.has_aof
        kind = "master killed, then empty" if empty else "master killed, then with its file"
        lasts_us = self.random.choice((0, 0, self.seconds(0.05, 3))) if lasts_us is None else lasts_us
        self.counts[kind] += 1
        master.kill()

        def again():
            if empty and master.clock.offset_ms:
                self.set_clock(master, 0)
            master.start(empty)
        self.weaken(master, lasts_us)
        self.wound(kind, master.name, lasts_us, again)

    def stop_master(self):
        master = self.pick_master()
        if master:
            self.counts["master stopped"] += 1
            master.stop()
            self.wound("master stopped", master.name, self.seconds(0.02, self.random.choice((0.3, 1.5, 4))), master.cont)

    def flush(self):
        master = self.pick_master()
        if master:
            self.flush_one_master(master)

    def flush_one_master(self, master):
        self.counts["master flushed"] += 1
        self.weaken(master)
        self.note("master flushed", master.name, "before")
        master.cli("FLUSHALL")
        self.note("master flushed", master.name, "after")

    def evict(self):
        """Out of memory: evicts all it has or a few keys, or only says that it would, or refuses to write."""
        master = self.pick_master()
        if master:
            self.evict_one_master(master, *self.random.choice(traps.EVICTIONS))

    def evict_one_master(self, master, policy, memory):
        kind = f"master with maxmemory {memory}, {policy}"
        self.counts[kind] += 1
        self.weaken(master)
        if memory == "used":
            memory = master.used_memory() + self.random.choice((-1000, 2000, 20000))
        self.wound(kind, master.name, self.seconds(0.2, 3), functools.partial(self.give_memory, master))
        master.cli("CONFIG", "SET", "maxmemory-policy", policy)
        master.cli("CONFIG", "SET", "maxmemory", memory)

    @staticmethod
    def give_memory(master):
        master.cli("CONFIG", "SET", "maxmemory", "0")
        master.cli("CONFIG", "SET", "maxmemory-policy", "noeviction")

    # ---- those who wait ----

    def deafen(self):
        """Ends the connections of the notifications; the others stay."""
        master = self.pick_master()
        if master:
            self.counts["waiters: calls cut off"] += 1
            self.note("waiters: calls cut off", master.name, f"{master.cli('CLIENT', 'KILL', 'TYPE', 'pubsub')} connections")

    def forget_waiters(self):
        """A master forgets who waits, or who is alive, or some of both, and nothing else."""
        master = self.pick_master()
        if not master:
            return
        self.counts["waiters: forgotten"] += 1
        what = self.random.choice(("queue", "alive", "[qa]*"))
        keys = sorted(master.cli("KEYS", f"redlockd:{what}:*"))
        keys = [key for key in keys if not key.startswith("redlockd:master") and self.random.random() < 0.7]
        if keys:
            master.cli("DEL", *keys)
        self.note("waiters: forgotten", master.name, f"{len(keys)} keys of {what}")

    # ---- clocks ----

    def move_clock(self):
        """Forward or back, by what cannot be seen, by what can, by a lot; for good, or there and back again."""
        master = self.pick_master()
        if not master:
            return
        least, most = self.random.choice(((1, 40), (40, 500), (500, 5000), (500, 5000)))
        size = self.random.uniform(least, most)
        if self.random.random() < 0.15:
            size = self.random.uniform(60_000, 1_800_000)
        by_ms = round(size if size > 5000 or self.random.random() < 0.6 else -size)
        before = master.clock.offset_ms
        self.counts[f"clock of a master moved {'forward' if by_ms > 0 else 'back'}"] += 1
        self.set_clock(master, before + by_ms)
        if abs(by_ms) <= 5000 and self.random.random() < 0.6:
            lasts_us = self.seconds(0.02, 0.5) if self.random.random() < 0.1 else self.seconds(1.5, 5)
            put_back = functools.partial(self.put_clock_back, master, by_ms)
            self.wound("clock of a master moved", master.name, lasts_us, put_back, busy=[f"clock of {master.name}"])

    def put_clock_back(self, master, by_ms):
        if master.clock.offset_ms:  # else it was set anew at a restart
            self.set_clock(master, master.clock.offset_ms - by_ms)

    def set_clock(self, thing, offset_ms):
        """Writes down both ends first: the new time is seen only later than that."""
        self.log.append({"at": parts.now_us(), "kind": "clock", "target": thing.name, "from_ms": thing.clock.offset_ms, "to_ms": offset_ms,
                         "what": f"{thing.clock.offset_ms} ms to {offset_ms} ms off"})
        if offset_ms > thing.clock.offset_ms and thing in self.cluster.masters:
            self.weaken(thing)
        thing.clock.set_offset_ms(offset_ms)

    def move_daemon_clock(self):
        """The time of day of a redlockd: only guesses of fences come from it."""
        daemon = self.pick(self.cluster.daemons)
        if daemon:
            self.counts["clock of a redlockd moved"] += 1
            most = self.random.choice((5, 300, 60_000, 600_000, 7_200_000))
            self.set_clock(daemon, 0 if daemon.clock.offset_ms else round(most * self.random.uniform(-1, 1)))

    # ---- the network ----

    def hurt_network(self):
        """One pair, all of a master, or all of a redlockd; cut, deaf in one or both ways, or slow."""
        pairs = self.pick_pairs()
        delay_ms = round(self.random.choice((3, 30, 1.5 * parts.MASTER_TIMEOUT_MS)) * self.random.random())
        how, state = self.random.choice((("cut", {"refuse": True}), ("requests held", {"hold_up": True}),
                                         ("answers held", {"hold_down": True}), ("slow", {"delay_ms": delay_ms}),
                                         ("held both ways", {"hold_up": True, "hold_down": True})))
        names = [f"pair {self.cluster.network.name(pair)}" for pair in pairs]
        if not pairs or set(names) & self.busy:
            return
        self.counts[f"network: {how}"] += 1
        self.cluster.network.command(pairs, cut=how == "cut", **state)
        loses = how != "slow" and self.random.random() < 0.5  # data held back is lost, or arrives late
        lasts_us = self.seconds(0.05, self.random.choice((0.5, 2, 5)))
        for number in {pair[1] for pair in pairs} if len({pair[0] for pair in pairs}) == parts.DAEMONS else ():
            self.weak_until[number] = max(self.weak_until[number], parts.now_us() + lasts_us)
        self.wound(f"network: {how}", ", ".join(names), lasts_us, lambda: self.cluster.network.heal(pairs, cut=loses), busy=names)

    def pick_pairs(self):
        lot = self.random.random()
        daemon = self.random.randrange(parts.DAEMONS)
        if lot < 0.5:
            some = self.random.sample(range(parts.MASTERS), self.random.choice((1, 1, 2, 3)))
            return [(daemon, number) for number in some]
        if lot < 0.8:
            chosen = self.pick_master()
            return [(number, chosen.number) for number in range(parts.DAEMONS)] if chosen else []
        return [(daemon, number) for number in range(parts.MASTERS)]

    # ---- redlockd and clients ----

    def kill_daemon(self):
        daemon = self.pick(self.cluster.daemons)
        if daemon:
            self.kill_one_daemon(daemon, self.random.choice((0, 0, self.seconds(0.05, 3))))

    def kill_one_daemon(self, daemon, lasts_us):
        self.counts["redlockd killed"] += 1
        daemon.kill()
        self.wound("redlockd killed", daemon.name, lasts_us, daemon.start)

    def stop_daemon(self):
        daemon = self.pick(self.cluster.daemons)
        if daemon:
            self.counts["redlockd stopped"] += 1
            daemon.stop()
            self.wound("redlockd stopped", daemon.name, self.seconds(0.02, self.random.choice((0.2, 1, 4))), daemon.cont)

    def stop_client(self):
        client = self.pick(self.cluster.clients)
        if client:
            self.counts["client process stopped"] += 1
            client.stop()
            self.wound("client process stopped", client.name, self.seconds(0.05, 2.2 * parts.TTL_MS[1] / 1000), client.cont)


class WipingNemesis(Nemesis):
    """For --mutation guard-off: kills masters and starts them empty at once. Without a guard leases must overlap; and with one redlockd
    whose time of day is wrong, and nothing left of the numbers that it gave, fences must come out of order."""

    def __init__(self, cluster, seed):
        super().__init__(cluster, seed)
        self.kinds, self.is_deployed = {self.wipe: 1}, False
        if cluster.daemons[0].clock:
            self.set_clock(cluster.daemons[0], 7_200_000)

    def wipe(self):
        for master in self.cluster.masters:
            if master.name not in self.busy:
                self.kill_one_master(master, empty=True, lasts_us=0)
