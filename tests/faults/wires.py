# SPDX-License-Identifier: MIT
"""The wires between hosts, each a network namespace: carries IP packets from one to the other, and loses, delays and doubles them as it is told.

Started with a JSON list of {"name", "address", "pid"}, the pid of a process in the namespace of each host. Each host gets a TUN device with its address:
the kernel hands every packet for another host to this program, which hands it to that host's kernel. So TCP is that of Linux, with its own timers and
retries, and everything that the wire does to a packet is here, also one way alone. The kernel has such a device nearly everywhere; its own queueing
disciplines for loss and delay (netem) are often missing.

It prints "ready", then answers each line of standard input, a command, with a line when it is done:

    {"links": [[from, to], …], "set": {…}}   lose: the share of packets that are lost (1: all)    delay_ms: [least, most], for each packet by
                                             itself, so that they overtake each other          double: the share that comes twice
                                             largest: longer packets vanish without a word, as where an ICMP message is filtered (0: none do)
    {"reset": true}                          all wires are good

Ends when its standard input ends; the last line is a JSON object that counts what happened to packets.
"""

import collections
import ctypes
import fcntl
import heapq
import json
import os
import random
import selectors
import struct
import subprocess
import sys
import threading
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
GOOD = {"lose": 0.0, "delay_ms": [0, 0], "double": 0.0, "largest": 0}
DEVICE = "wire"


def open_device(host):
    """The TUN device of a host. setns() is for one thread, so this one ends afterwards."""
    found = []

    def enter():
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/proc/{host['pid']}/ns/net", encoding="ascii") as space:
            if libc.setns(space.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
        for words in (["address", "add", f"{host['address']}/24", "dev", DEVICE], ["link", "set", DEVICE, "up"], ["link", "set", "lo", "up"]):
            subprocess.run(["ip", *words], check=True)
        found.append(device)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return found[0]  # IndexError: the thread said why


class Wires:
    def __init__(self, hosts):
        self.names = {host["address"]: host["name"] for host in hosts}
        self.devices = {host["name"]: open_device(host) for host in hosts}
        self.rules, self.counts = {}, collections.Counter()
        self.late, self.sequence = [], 0  # a heap of (due, number, from, to, packet)
        self.newest = {}                  # (from, to): number of the newest packet that was carried
        self.selector = selectors.DefaultSelector()
        for name, device in self.devices.items():
            self.selector.register(device, selectors.EVENT_READ, name)
        self.selector.register(0, selectors.EVENT_READ, None)
        self.commands = b""

    def carry(self, sender, packet):
        if packet[0] >> 4 != 4:  # a kernel sends IPv6 for itself
            return
        receiver = self.names.get(".".join(map(str, packet[16:20])))
        if receiver is None:
            return
        rule = self.rules.get((sender, receiver), GOOD)
        if rule["largest"] and len(packet) > rule["largest"]:
            self.counts["too large"] += 1
        elif random.random() < rule["lose"]:
            self.counts["lost"] += 1
        else:
            copies = 1 + (random.random() < rule["double"])
            self.counts["doubled"] += copies - 1
            for _ in range(copies):
                self.sequence += 1
                least, most = rule["delay_ms"]
                if most:
                    self.counts["delayed"] += 1
                    due = time.monotonic() + random.uniform(least, most) / 1000
                    heapq.heappush(self.late, (due, self.sequence, sender, receiver, packet))
                else:
                    self.deliver(self.sequence, sender, receiver, packet)

    def deliver(self, number, sender, receiver, packet):
        link = sender, receiver
        self.counts["overtaken"] += number < self.newest.get(link, 0)
        self.newest[link] = max(number, self.newest.get(link, 0))
        try:
            os.write(self.devices[receiver], packet)
            self.counts["carried"] += 1
        except OSError:  # the device of this host is down
            self.counts["to a device that is down"] += 1

    def obey(self, line):
        command = json.loads(line)
        if command.get("reset"):
            self.rules.clear()
        for link in command.get("links", ()):
            self.rules[tuple(link)] = {**self.rules.get(tuple(link), GOOD), **command["set"]}
        print("done", flush=True)

    def read_commands(self):
        """Returns whether there may be more."""
        data = os.read(0, 65536)
        *lines, self.commands = (self.commands + data).split(b"\n")
        for line in lines:
            self.obey(line)
        return bool(data)

    def read_packets(self, name):
        for _ in range(64):  # others have their turn
            try:
                self.carry(name, os.read(self.devices[name], 65536))
            except BlockingIOError:
                return
            except OSError:  # it is down
                return

    def run(self):
        print("ready", flush=True)
        goes_on = True
        while goes_on:
            timeout = max(0.0, self.late[0][0] - time.monotonic()) if self.late else None
            for key, _ in self.selector.select(timeout):
                if key.data is None:
                    goes_on = self.read_commands()
                else:
                    self.read_packets(key.data)
            while self.late and self.late[0][0] <= time.monotonic():
                self.deliver(*heapq.heappop(self.late)[1:])
        print(json.dumps(self.counts), flush=True)


if __name__ == "__main__":
    Wires(json.loads(sys.argv[1])).run()
