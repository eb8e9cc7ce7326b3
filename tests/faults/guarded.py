# SPDX-License-Identifier: MIT
"""The guarded resource: what a lock is there to protect, and what a fence is for. A process of its own, on a Unix
socket.

It does what README.md asks of a storage: it keeps the largest fence that it has seen, next to the data, and refuses
writes with a smaller one; compares and changes in one step (there is one thread); and a holder comes here (`enter`)
before it reads. The data is a counter for each resource: each holder reads it and writes one more, so a write that did
not see the one before it shows.

Requests and answers are lines of JSON: {"op":"enter"|"write","resource","fence","token","value"} ->
{"taken":bool,"value":n}. Each request goes into the journal, in the order in which they were carried out. Ends when its
standard input ends.
"""

import asyncio
import json
import sys
import time


class Guarded:
    def __init__(self, journal):
        self.journal = journal
        self.largest, self.values = {}, {}

    def carry_out(self, request):
        resource, fence = request["resource"], request["fence"]
        taken = fence >= self.largest.get(resource, 0)
        if taken:
            self.largest[resource] = fence
            if request["op"] == "write":
                self.values[resource] = request["value"]
        entry = {**request, "taken": taken, "value": self.values.get(resource, 0), "at": time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000}
        self.journal.write(json.dumps(entry) + "\n")
        return {"taken": taken, "value": entry["value"]}

    async def serve(self, reader, writer):
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self.carry_out(json.loads(line))).encode() + b"\n")
        except ConnectionError:
            pass  # a client was ended
        writer.close()


async def main(path, journal_path):
    with open(journal_path, "w", encoding="utf-8") as journal:
        server = await asyncio.start_unix_server(Guarded(journal).serve, path)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
        server.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
