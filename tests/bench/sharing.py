# SPDX-License-Identifier: MIT
"""A lock that many hold at once: shared leases beside many others, and slots that more clients want than there are, each beside the plain lock."""

import asyncio
import json
import statistics
import time

import bench_stacks as stacks
import load

OTHERS = (0, 9, 999)  # shared leases that stay meanwhile
CONNECTIONS = 16
SLOTS, CLIENTS, HOLD = 8, 100, 0.05  # seconds
ROOM = ("--max-shared", "10000", "--max-ttl-ms", "600000")


def scripts(stack):
    return sum(master.calls().get("evalsha", 0) for master in stack.masters.redis)


def pairs(stack, what, seconds, **environment):
    """Acquisitions and releases by wrk."""
    before = scripts(stack)
    figures = load.wrk(stack, "pair", CONNECTIONS, seconds, environment)
    figures.update(what=what, scripts=round((scripts(stack) - before) / len(stack.masters.redis) / figures["requests"], 2))
    return figures


class Client:
    """One that acquires, holds, releases, and asks again."""

    def __init__(self, address, members):
        self.address, self.body, self.grants, self.releases = address.rsplit(":", 1), {"resource": "bench/slots", "wait_ms": 60000, **members}, [], []
        self.slots = []

    async def call(self, method, path, body):
        text = json.dumps(body).encode()
        self.writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        head = await self.reader.readuntil(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return int(head.split()[1]), await self.reader.readexactly(int(lengths[0]) if lengths else 0)

    async def work(self, until):
        self.reader, self.writer = await asyncio.open_connection(*self.address)
        while time.monotonic() < until:
            status, body = await self.call("POST", "/locks", self.body)
            assert status == 201, body
            self.grants.append(time.monotonic())
            self.slots.append(json.loads(body).get("slot", 0))
            await asyncio.sleep(HOLD)
            self.releases.append(time.monotonic())
            status, _ = await self.call("DELETE", "/locks/bench/slots", {"token": json.loads(body)["token"]})
            assert status == 204
        self.writer.close()


def wanted(stack, what, seconds, slots, members):
    """Over two redlockd: how much of the time the slots are held while somebody waits, and how long after a release the next grant comes."""
    clients = [Client(stack.addresses[i % 2], members) for i in range(CLIENTS)]
    before, used = scripts(stack), {kind: load.cpu_seconds(pids) for kind, pids in stack.pids().items()}
    began = time.monotonic()

    async def all_of_them():
        await asyncio.gather(*(client.work(began + seconds) for client in clients))
    asyncio.run(all_of_them())
    grants, releases = (sorted(at for client in clients for at in getattr(client, name)) for name in ("grants", "releases"))
    first, last = grants[slots - 1], began + seconds  # all wait again until then
    held = sum(max(0.0, min(release, last) - max(grant, first)) for client in clients for grant, release in zip(client.grants, client.releases))
    after = [grant - release for release, grant in zip(releases, grants[slots:]) if first < release < last]
    check_alone(clients)
    figures = {"what": what, "requests": 2 * len(grants), "seconds": seconds, "held": round(held / slots / (last - first), 4),
               "next_ms": round(statistics.median(after) * 1000, 2), "scripts": round((scripts(stack) - before) / len(stack.masters.redis) / len(grants) / 2, 2)}
    for kind, pids in stack.pids().items():
        figures[f"cpu_us_{kind}"] = round((load.cpu_seconds(pids) - used[kind]) * 1e6 / figures["requests"], 1)
    return figures


def check_alone(clients):
    """No slot had two holders at once."""
    turns = sorted(turn for client in clients for turn in zip(client.slots, client.grants, client.releases))
    for (slot, _, released), (next_slot, granted, _) in zip(turns, turns[1:]):
        assert slot != next_slot or granted >= released, f"slot {slot} had two holders"


def measure(seconds):
    found = []
    stack = stacks.Redlockd(options=ROOM, replicas=2)
    try:
        found.append(pairs(stack, "plain", seconds))
        client, held = stack.daemon.client(), 0
        for others in OTHERS:
            for _ in range(held, others):
                assert client.call("POST", "/locks", {"resource": "bench/shared", "mode": "shared", "ttl_ms": 600000}).status == 201
            held = others
            found.append(pairs(stack, f"shared, beside {others} others", seconds, RESOURCE="bench/shared", MEMBERS=',"mode":"shared"'))
        client.close()
        found.append(wanted(stack, "plain, wanted by 100", seconds, 1, {}))
        found.append(wanted(stack, f"{SLOTS} slots, wanted by {CLIENTS}", seconds, SLOTS, {"slots": SLOTS}))
    finally:
        stack.stop()
    for one in found:
        print(f"  {one}", flush=True)
    return found
