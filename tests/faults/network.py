# SPDX-License-Identifier: MIT
"""The network between redlockds and masters: a proxy for each pair of them, all in one process, told over standard
input what to do.

Started with a JSON list of [name, path to listen at, path of the redis-server] in a file. Each line of standard input
is a command, answered by one line when it is done:

    {"names": […], "set": {…}}     refuse: new connections are closed at once
                                   hold_up: what redlockd sends stays here       hold_down: what the master sends stays here
                                   delay_ms: what is sent either way takes so long
    {"names": […], "cut": true}    closes all connections; what is still here is lost

Data held back is not lost while its connection lives, as in a network that comes back: TCP has kept it. It is handed on
when the hold ends, however late, also if redlockd has closed the connection meanwhile: its last commands then arrive
beside those of a newer connection. The order within a connection is kept. To lose it, use cut. Each new connection is a
line in the file of connections.
"""

import asyncio
import collections
import functools
import json
import sys
import time


class Direction:
    """One way of one connection: what came in, and when it is due at the other side."""

    def __init__(self, pair, hold_name):
        self.pair, self.hold_name = pair, hold_name
        self.queue = collections.deque()  # (due, bytes; None: the sender closed)
        self.target = None                # transport of the other side
        self.timer = None

    def put(self, data):
        due = asyncio.get_running_loop().time() + self.pair.state["delay_ms"] / 1000
        self.queue.append((due, data))
        self.flush()

    def flush(self):
        """Hands on what is due, unless it is held back."""
        loop = asyncio.get_running_loop()
        if self.timer:
            self.timer.cancel()
            self.timer = None
        while self.queue and not self.pair.state[self.hold_name] and self.target:
            due, data = self.queue[0]
            if due > loop.time():
                self.timer = loop.call_at(due, self.flush)
                return
            self.queue.popleft()
            if data is None:
                self.target.close()
            elif not self.target.is_closing():
                self.target.write(data)

    def drop(self):
        self.queue.clear()
        if self.target:
            self.target.abort()


class Side(asyncio.Protocol):
    """One end of a connection: what it receives goes into its direction."""

    def __init__(self, out):
        self.out = out
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.out.put(data)

    def connection_lost(self, error):
        self.out.put(None)


class Front(Side):
    """The end towards redlockd; opens the other one."""

    def __init__(self, pair):
        self.pair = pair
        self.up, self.down = Direction(pair, "hold_up"), Direction(pair, "hold_down")
        super().__init__(self.up)

    def connection_made(self, transport):
        super().connection_made(transport)
        if self.pair.state["refuse"]:
            transport.abort()
            return
        self.down.target = transport
        self.pair.fronts.add(self)
        self.pair.connecting = asyncio.ensure_future(self.connect())

    async def connect(self):
        try:
            back, _ = await asyncio.get_running_loop().create_unix_connection(lambda: Side(self.down), self.pair.target)
        except OSError:
            self.transport.abort()
            return
        self.pair.tell_connected()
        self.up.target = back
        self.up.flush()

    def cut(self):
        self.up.drop()
        self.down.drop()
        self.transport.abort()


class Pair:
    """The way between one redlockd and one master."""

    def __init__(self, name, target, connections):
        self.name, self.target, self.connections = name, target, connections
        self.state = {"refuse": False, "hold_up": False, "hold_down": False, "delay_ms": 0}
        self.fronts = set()
        self.connecting = None

    def tell_connected(self):
        self.connections.write(json.dumps({"at": time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000, "name": self.name}) + "\n")

    def carry_out(self, command):
        self.state.update(command.get("set", {}))
        for front in list(self.fronts):
            if command.get("cut"):
                front.cut()
            front.up.flush()
            front.down.flush()
        self.fronts = {front for front in self.fronts if not front.transport.is_closing() or front.up.queue}


async def main(pairs_path, connections_path):
    loop = asyncio.get_running_loop()
    with open(connections_path, "w", encoding="utf-8") as connections, open(pairs_path, encoding="utf-8") as pairs_file:
        pairs, servers = {}, []
        for name, path, target in json.load(pairs_file):
            pair = pairs[name] = Pair(name, target, connections)
            servers.append(await loop.create_unix_server(functools.partial(Front, pair), path))
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            command = json.loads(line)
            for name in command["names"]:
                pairs[name].carry_out(command)
            print("done", flush=True)
        for server in servers:
            server.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
