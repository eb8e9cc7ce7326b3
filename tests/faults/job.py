# SPDX-License-Identifier: MIT
"""The command of a `redlockctl run` (jobs.py). It counts itself as the holder from its first line to its last.

It writes when it began, with the token and the fence from its environment, and every few milliseconds that it still lives. So the file proves how
long it ran, however it is ended. Arguments: the file, when redlockctl was started, seconds.
"""

import json
import os
import sys
import time


def main(path, asked, seconds):
    def now_us():
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    begin = now_us()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    head = {"job": os.getpid(), "resource": os.environ["REDLOCK_RESOURCE"], "token": os.environ["REDLOCK_TOKEN"],
            "fence": int(os.environ["REDLOCK_FENCE"]), "asked": int(asked), "begin": begin}
    os.write(file, (json.dumps(head) + "\n").encode())
    while (now := now_us()) < begin + float(seconds) * 1e6:
        os.write(file, f'{{"job":{os.getpid()},"lives":{now}}}\n'.encode())
        time.sleep(0.01)


main(*sys.argv[1:])
