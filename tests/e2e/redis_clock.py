# SPDX-License-Identifier: MIT
"""Moves the time of day of a running redis-server, by a library of our own (redis_clock.c) that is loaded into it.

    library = redis_clock.build(folder)
    clock = redis_clock.RedisClock(folder, library)
    subprocess.Popen(["redis-server", …], env={**os.environ, **clock.environment()})
    clock.set_offset_ms(60000)      # from now on its clock is a minute ahead
    clock.set_offset_ms(0)          # and now it jumps back

The offset stays over restarts of the server. A clock of its own for each server; any number side by side. Drivers of the clients
(tests/clients) have such a clock, too.
"""

import mmap
import os
import pathlib
import struct
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).with_name("redis_clock.c")


def environment_of_redlockd(clock):
    """A sanitizer wants to be the first library that is loaded."""
    return {**clock.environment(), "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}


def build(folder):
    """Compiles the library into `folder` and returns its path."""
    library = os.path.join(folder, "redis_clock.so")
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", library, str(SOURCE)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return library


class RedisClock:
    """The clock of one redis-server. `folder`: where its file is made; `library`: what build() returned."""

    def __init__(self, folder, library):
        self.library = library
        descriptor, self.path = tempfile.mkstemp(prefix="clock", dir=folder)
        os.ftruncate(descriptor, 8)
        self.offset = mmap.mmap(descriptor, 8)
        os.close(descriptor)
        self.offset_ms = 0

    def environment(self):
        """The environment variables that the server needs."""
        return {"LD_PRELOAD": self.library, "REDIS_CLOCK_FILE": self.path}

    def set_offset_ms(self, offset_ms):
        """From now on the server's time of day is so far ahead of the machine's (behind it where negative)."""
        self.offset[:] = struct.pack("=q", round(offset_ms * 1000))
        self.offset_ms = offset_ms
