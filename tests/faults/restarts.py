# SPDX-License-Identifier: MIT
"""Restarts of redlockd by SIGTERM under load, one replica or all in turn; and, at the end of a run, the loss of all masters' memory while the
replicas have different --max-ttl-ms.
"""

import json
import time

import cluster as parts
import harness

SECOND = parts.SECOND
LONG = "long leases"  # their client in the history
# From the loss on: the quarantine, and some time in which the replicas grant locks again.
LOSS_S = 2.0 + parts.quarantine_ms(parts.LONG_TTL_MS) / 1000


class Restarts:
    """Of a nemesis: it has all that is used here and is not defined."""

    rolling = None  # the replicas that are still to be restarted; the first one is being so
    ending = None   # the state of that restart: "ends", "starts", or not begun
    patience_until = roll_at = 0
    kill_at = None  # some restarts are not waited for
    slow_ends: tuple[str, ...] = ()  # findings: replicas that did not end as they should

    # ---- restarts ----

    def roll(self):
        """Begins to restart each redlockd in turn, the next one when this one is ready again."""
        self.counts["rolling restart of redlockd"] += 1
        self.rolling, self.ending = self.random.sample(self.cluster.daemons, len(self.cluster.daemons)), None

    def restart_one(self):
        """Begins to restart one redlockd."""
        if self.rolling is None:
            self.rolling = self.random.sample(self.cluster.daemons, 1)
            self.ending = None

    def go_on_rolling(self):
        """One step; called about ten times a second."""
        now = parts.now_us()
        if now >= self.roll_at and self.rolling is None:
            self.roll()
            self.roll_at = now + self.seconds(8, 14)
        if self.rolling:
            self.restart_step()

    def restart_step(self):
        now, daemon = parts.now_us(), self.rolling[0]
        if not self.ending and daemon.process.poll() is not None and daemon.name not in self.busy:
            self.rolling = self.rolling[1:] or None  # it ended by itself: look_after() tells
        elif not self.ending:
            self.begin_restart(daemon)
        elif self.ending == "ends":
            self.look_whether_ended(daemon)
        elif daemon.process.poll() is not None or answers(daemon, "/readyz") or now > self.patience_until:
            # The wait for readiness is bounded: one quarantine of masters may follow the other.
            self.busy.discard(daemon.name)
            self.ending = None
            self.rolling = self.rolling[1:] or None

    def begin_restart(self, daemon):
        if daemon.name in self.busy or self.trap or parts.now_us() < self.quiet_until:
            return  # another fault comes first
        if not answers(daemon, "/healthz"):
            return  # until then SIGTERM may not be handled yet
        self.counts["redlockd restarted by SIGTERM"] += 1
        self.busy.add(daemon.name)
        self.note("redlockd restarted", daemon.name, "begins")
        daemon.begin_to_end()
        self.ending, self.patience_until = "ends", parts.now_us() + round(daemon.drain_s() * SECOND)
        self.kill_at = parts.now_us() + self.seconds(0, 1) if self.random.random() < 0.15 else None

    def look_whether_ended(self, daemon):
        if daemon.process.poll() is None:
            is_late = parts.now_us() >= self.patience_until
            if not is_late and not (self.kill_at and parts.now_us() >= self.kill_at):
                return
            self.counts["redlockd killed while it drains"] += 1
            if is_late:
                self.slow_ends = (*self.slow_ends, f"{daemon.name} does not end within {daemon.drain_s():g} s of SIGTERM")
            daemon.kill()
        elif daemon.process.returncode:
            self.slow_ends = (*self.slow_ends, f"{daemon.name} ended with {daemon.process.returncode} on SIGTERM")
        daemon.start()
        self.note("redlockd restarted", daemon.name, "over")
        self.ending, self.patience_until = "starts", parts.now_us() + 5 * SECOND

    def finish_restart(self):
        """Waits for the restart that is under way and leaves out the others."""
        while self.rolling and self.ending:
            self.rolling = self.rolling[:1]
            self.restart_step()
            time.sleep(0.01)
        self.rolling = None

    # ---- everything is forgotten ----

    def lose_everything(self):
        """One replica gets a larger --max-ttl-ms, as in a rolling change, and grants long leases. Then all masters come
        back empty. As soon as that replica has quarantined them all, the other replicas are killed and started: they
        know their own bound, and what the first one has left on the masters. Clients go on all the while. No client may
        get the locks before the long leases are over."""
        wide = self.random.choice([daemon for daemon in self.cluster.daemons if daemon.number != self.cluster.shape.narrow])
        wide.options["max-ttl-ms"] = parts.LONG_TTL_MS
        self.rolling, self.ending = [wide], None
        self.trap, self.quiet_until = None, 0
        while self.rolling:
            self.restart_step()
            time.sleep(0.01)
        taken = self.take_long_leases(wide)
        self.counts["all masters' memory lost, with different --max-ttl-ms"] += 1
        self.counts["long leases before"] += taken
        for master in self.cluster.masters:
            self.kill_one_master(master, empty=True, lasts_us=0)
        while self.wounds:
            self.heal(min(self.wounds, key=lambda one: one.due))
        end = parts.now_us() + round(LOSS_S * SECOND)
        self.wait_until_quarantined(wide, end)
        for daemon in self.cluster.daemons:
            if daemon is not wide:
                self.kill_one_daemon(daemon, 0)
        while parts.now_us() < end:
            self.look_after()
            self.heal_until(parts.now_us())
            time.sleep(0.02)

    def take_long_leases(self, daemon):
        """Returns their number. They are not released; they are in the history like all others."""
        todo, until = [f"r/{number}" for number in range(parts.RESOURCES)], parts.now_us() + round(15 * harness.SLOW) * SECOND
        with open(self.cluster.long_history, "w", encoding="utf-8") as history:
            while len(todo) > parts.RESOURCES // 2 and parts.now_us() < until:
                resource = todo.pop(0)
                event = self.take_long_lease(daemon, resource)
                if event:
                    history.write(json.dumps(event) + "\n")
                else:
                    todo.append(resource)
        return parts.RESOURCES - len(todo)

    @staticmethod
    def take_long_lease(daemon, resource):
        body = {"resource": resource, "ttl_ms": parts.LONG_TTL_MS, "wait_ms": 1000}
        event = {"kind": "acquire", "client": LONG, "daemon": daemon.number, "way": "unix", "after": "close", "sent": parts.now_us(), **body}
        answer = daemon.call("POST", "/locks", body)
        if answer is None or answer.status != 201:
            time.sleep(0.02)
            return None
        return {**event, **answer.json, "received": parts.now_us(), "status": 201}

    @staticmethod
    def wait_until_quarantined(daemon, end):
        while parts.now_us() < end:
            answer = daemon.call("GET", "/masters", timeout=0.5)
            states = [master["state"] for master in answer.json["masters"]] if answer is not None and answer.status == 200 else ["voting"]
            if set(states) <= {"quarantined"}:
                return
            time.sleep(0.02)


def answers(daemon, path):
    answer = daemon.call("GET", path, timeout=0.2)
    return answer is not None and answer.status == 200
