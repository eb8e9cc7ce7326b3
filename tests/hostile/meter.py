# SPDX-License-Identifier: MIT
"""The measurements of redlockd and of the well-behaved client: rate, memory, descriptors, processor."""

import os
import statistics
import time

WINDOW_SECONDS = 0.5
LOOK_SECONDS = 0.1
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
TICKS = os.sysconf("SC_CLK_TCK")


def resident_mib(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE_BYTES / 2**20


def kernel_mib():
    """The memory of the kernel for all TCP sockets of this machine."""
    with open("/proc/net/sockstat", encoding="ascii") as file:
        words = next(line for line in file if line.startswith("TCP:")).split()
    return int(words[words.index("mem") + 1]) * PAGE_BYTES / 2**20


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Span:
    """A stretch of time: windows of the good client's rate, and the most memory. look() is to be called often; it does nothing most of the time."""

    def __init__(self, pid, good):
        self.pid, self.good = pid, good
        self.began = self.window_began = self.looked = time.monotonic()
        self.first_count, self.first_mistakes = self.window_count, _ = good.look()
        self.first_processor = processor_seconds(pid)
        self.rates, self.peak_mib, self.peak_kernel_mib = [], resident_mib(pid), kernel_mib()
        good.longest()

    def look(self):
        now = time.monotonic()
        if now - self.looked >= LOOK_SECONDS:
            self.looked = now
            self.peak_mib = max(self.peak_mib, resident_mib(self.pid))
            self.peak_kernel_mib = max(self.peak_kernel_mib, kernel_mib())
        if now - self.window_began >= WINDOW_SECONDS:
            count, _ = self.good.look()
            self.rates.append((count - self.window_count) / (now - self.window_began))
            self.window_began, self.window_count = now, count

    def end(self):
        self.seconds = time.monotonic() - self.began
        count, mistakes = self.good.look()
        self.count, self.mistakes = count - self.first_count, mistakes - self.first_mistakes
        self.longest_ms = self.good.longest() * 1000
        self.processor = (processor_seconds(self.pid) - self.first_processor) / self.seconds
        self.rate = statistics.median(self.rates) if self.rates else self.count / self.seconds
        self.peak_mib = max(self.peak_mib, resident_mib(self.pid))
        return self
