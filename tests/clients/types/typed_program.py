# SPDX-License-Identifier: MIT
"""A program that uses the library for Python, for mypy --strict: what is wrong in it has to be found."""

import threading
from typing import Optional

import redlockd
import redlockd.aio

client = redlockd.Client("http://127.0.0.1:8080", key=None)


def blocks() -> Optional[int]:
    with client.lock("x", ttl=30, wait=60, metadata={"job": 7}, at_least=10, on_wanted=threading.Event().set) as lease:
        fence: int = lease.fence + lease.waiters
    with client.try_acquire(["x", "y"]) as tried:
        if tried:
            fence = tried.fence
    kept = client.try_acquire("x", slots=8)
    return kept.slot if kept else fence


def by_hand() -> str:
    lock = client.lock("x")
    if lock.acquire(blocking=False):
        assert lock.lease is not None
        lock.lease.check()
        lock.release()
    try:
        return str(client.acquire("x").release(keep=60))
    except redlockd.LockLost as lost:
        return lost.cause.upper()


async def tasks() -> float:
    aio = redlockd.aio.Client("http://127.0.0.1:8080")
    async with aio.lock("x") as lease:
        left: float = lease.remaining
    async with await aio.try_acquire("x") as tried:
        if tried:
            left = tried.remaining
    return left


def wrong() -> None:
    client.lock("x", ttl_ms=30)  # type: ignore[call-arg]
    client.lock("x", on_wanted=5)  # type: ignore[arg-type]
    client.lock("x", ttl="30")  # type: ignore[arg-type]
    with client.try_acquire("x") as tried:
        tried.check()  # type: ignore[union-attr]
    client.try_acquire("x").check()  # type: ignore[union-attr]
