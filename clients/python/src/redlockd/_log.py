# SPDX-License-Identifier: MIT
"""Lines for the logger `redlockd`, which a thread of its own hands to the handlers: one that blocks or fails keeps no
lease from its renewal."""

import logging
import os
import queue
import threading
from typing import Any

LOG = logging.getLogger("redlockd")
MOST = 1000  # lines that have not been handed on; further ones are left out
_queues: "dict[int, queue.SimpleQueue[Any]]" = {}  # by process: a forked child has no thread of its parent


def _write(lines: "queue.SimpleQueue[Any]") -> None:
    while True:
        line = lines.get()
        try:
            line() if callable(line) else LOG.handle(line)
        except BaseException:  # noqa: B036: a handler must not end this thread, whatever it raises
            pass


def start() -> "queue.SimpleQueue[Any]":
    """The lines of this process. Raises RuntimeError where no thread can be started."""
    lines = _queues.get(os.getpid())
    if lines is None:
        lines = queue.SimpleQueue()
        threading.Thread(target=_write, args=(lines,), name="redlockd-log", daemon=True).start()
        lines = _queues.setdefault(os.getpid(), lines)
    return lines


def log(level: int, message: str, *arguments: object) -> None:
    """Never blocks, and never raises."""
    try:
        if LOG.isEnabledFor(level):
            lines = start()
            if lines.qsize() < MOST:
                lines.put(LOG.makeRecord(LOG.name, level, __file__, 0, message, arguments, None))
    except Exception:
        pass


def flush(seconds: float) -> None:
    """Waits until the lines so far are handed on."""
    lines = _queues.get(os.getpid())
    if lines is not None:
        done = threading.Lock()
        done.acquire()
        lines.put(done.release)
        done.acquire(timeout=seconds)
