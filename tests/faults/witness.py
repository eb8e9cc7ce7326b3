# SPDX-License-Identifier: MIT
"""Reads the masters directly, past redlockd and the network: which token lies there for each resource, about twenty times a second.

Started with two arguments: a JSON list of the masters' sockets, and the file to write to. Ends when its standard input ends. Each line of the
file is one look at one master: {"master", "asked", "answered", "tokens": {resource: tokens with blanks between}}. A master that does not answer leaves no line,
since nothing is known of it then. losses.py draws the conclusions.
"""

import json
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))

import harness  # noqa: E402
from client_connection import History, now_us  # noqa: E402

EVERY_S = 0.05
TIMEOUT_S = 1.0
TOKENS = """
local found = {}
for _, key in ipairs(redis.call('KEYS', 'r/*')) do
	local value = redis.pcall('GET', key)
	if type(value) == 'table' then -- leases that hold it together
		value = table.concat(redis.pcall('ZRANGE', key, 0, -1), ' ')
	elseif value then
		value = string.sub(value, 1, 40)
	end
	if value then
		found[#found + 1] = key
		found[#found + 1] = value
	end
end
return found
"""


class Witness(threading.Thread):
    """Of one master."""

    def __init__(self, number, path, looks, ending):
        super().__init__(daemon=True)
        self.number, self.path, self.looks, self.ending = number, path, looks, ending
        self.connection = None

    def run(self):
        while not self.ending.wait(EVERY_S):
            try:
                self.look()
            except (OSError, harness.RedisError, ValueError):
                if self.connection:
                    self.connection.close()
                self.connection = None

    def look(self):
        if not self.connection:
            self.connection = harness.Resp(self.path, TIMEOUT_S)
        asked = now_us()
        self.connection.send("EVAL", TOKENS, "0")
        answer = self.connection.receive()
        found = dict(zip(answer[::2], answer[1::2]))
        self.looks.write({"master": self.number, "asked": asked, "answered": now_us(), "tokens": found})


def main():
    ending, looks = threading.Event(), History(sys.argv[2], threading.Lock())
    for number, path in enumerate(json.loads(sys.argv[1])):
        Witness(number, path, looks, ending).start()
    sys.stdin.read()
    ending.set()


if __name__ == "__main__":
    main()
