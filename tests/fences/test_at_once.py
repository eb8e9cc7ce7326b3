# SPDX-License-Identifier: MIT
"""Two holders at the same moment: check and write are one step. Real connections, whose steps the test puts in the worst order."""

import concurrent.futures
import fcntl
import re
import sqlite3
import subprocess
import threading

import pytest

from harness import wait_until
from kits import FENCES, KITS, Files, LockLost, Mariadb, Postgresql, Sqlite, Trigger

ROUNDS = 50
DATABASES = [kit for kit in KITS if issubclass(kit, (Postgresql, Mariadb))]
LEVELS = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
at_each_level = pytest.mark.parametrize("level", LEVELS)
in_databases = pytest.mark.parametrize("open_kit", DATABASES, indirect=True, ids=[kit.__name__ for kit in DATABASES])


# The S3 server of the tests compares and writes in two steps: that the store does it in one is the promise of the store.
@pytest.mark.parametrize("open_kit", [kit for kit in KITS if kit.storage != "s3"], indirect=True, ids=[kit.__name__ for kit in KITS if kit.storage != "s3"])
def test_the_larger_fence_wins(open_kit):
    """Whichever of the two comes first."""
    start = threading.Barrier(2)

    def write(kit, fence):
        start.wait()
        try:
            kit.write(fence, fence)
        except LockLost:
            return "lost"
        return "written"
    former, later = open_kit(), open_kit()
    former.enter(1)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for fence in range(2, 2 + 2 * ROUNDS, 2):
            writes = [pool.submit(write, *pair) for pair in ((former, fence), (later, fence + 1))]
            results = [done.result() for done in writes]
            assert results[1] == "written"
            assert later.enter(fence + 1) == fence + 1, results


def set_level(kit, level):
    """For all transactions of the connection."""
    session = {"postgresql": "SESSION CHARACTERISTICS AS", "mariadb": "SESSION"}[kit.storage]
    kit.execute(f"SET {session} TRANSACTION ISOLATION LEVEL {level}")


def blocked(watcher, kit):
    """Whether the connection waits for a lock of another one."""
    if kit.storage == "postgresql":
        return watcher.value(f"SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = {kit.connection.get_backend_pid()}")
    return watcher.value("SELECT variable_value > 0 FROM information_schema.global_status WHERE variable_name = 'Innodb_row_lock_current_waits'")


def begin(kit, fence, amount):
    """A transaction that has written and not yet committed."""
    kit.execute("BEGIN")
    if isinstance(kit, Trigger):
        kit.show(fence)
        kit.execute(kit.upsert, amount=amount)
    else:
        kit.write(fence, amount)


@at_each_level
@in_databases
def test_a_former_holder_while_the_later_one_writes(open_kit, level):
    """It waits for the later one's transaction, and is refused."""
    former, later, watcher = open_kit(), open_kit(), open_kit()
    former.enter(33)
    former.write(33, 5)
    set_level(former, level)
    set_level(later, level)
    begin(later, 34, 4)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        write = pool.submit(former.write, 33, 3)
        wait_until(lambda: write.done() or blocked(watcher, former), what="the former holder waits")
        assert not write.done()
        later.execute("COMMIT")
        with pytest.raises((LockLost, former.errors)):  # at some levels PostgreSQL ends the transaction
            write.result()
    with pytest.raises(LockLost):
        former.write(33, 3)
    assert watcher.enter(34) == 4


@at_each_level
@in_databases
def test_a_later_holder_while_the_former_one_writes(open_kit, level):
    """It waits for the former one's transaction, and reads what that one wrote."""
    former, later, watcher = open_kit(), open_kit(), open_kit()
    former.enter(33)
    former.write(33, 5)
    set_level(former, level)
    set_level(later, level)
    begin(former, 33, 4)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        enter = pool.submit(later.enter, 34)
        wait_until(lambda: enter.done() or blocked(watcher, later), what="the later holder waits")
        assert not enter.done()
        former.execute("COMMIT")
        try:
            assert enter.result() == 4
        except former.errors:  # as above; it tries again
            assert later.enter(34) == 4
    with pytest.raises(LockLost):
        former.write(33, 3)
    assert watcher.enter(34) == 4


SQLITE = [kit for kit in KITS if issubclass(kit, Sqlite)]


@pytest.mark.parametrize("open_kit", SQLITE, indirect=True, ids=[kit.__name__ for kit in SQLITE])
def test_sqlite_has_one_writer(open_kit):
    former, later = open_kit(), open_kit()
    former.enter(33)
    former.write(33, 5)
    former.execute("PRAGMA busy_timeout = 0")
    later.held = {f"stock/{later.item}": 34}
    later.execute("BEGIN IMMEDIATE")
    if isinstance(later, Trigger):
        later.execute(later.upsert, amount=4)
    else:
        later.write(34, 4)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        former.write(33, 3)
    later.execute("COMMIT")
    with pytest.raises(LockLost):
        former.write(33, 3)
    assert later.enter(34) == 4


@pytest.mark.parametrize("open_kit", [Files], indirect=True, ids=["Files"])
def test_helpers_for_files_wait_for_each_other(open_kit):
    """Neither compares before it has the lock."""
    kit = open_kit()
    kit.write(33, 5)

    def waits(process):
        below = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=False).stdout.split()
        assert process.poll() is None, process.stderr.read()
        return any(re.search(rf"-> FLOCK .* {pid} ", locks) for pid in below for locks in [open("/proc/locks", encoding="utf-8").read()])
    with open(f"{kit.path}.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        writers = []
        for fence, content in ((34, b"4\n"), (33, b"3\n")):
            writer = subprocess.Popen([FENCES / "files/fenced_file.sh", "write", kit.path, str(fence)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            writers.append(writer)
            writer.stdin.write(content)
            writer.stdin.close()
            wait_until(lambda: waits(writer), what="flock waits")
    later, former = (writer.wait(30) for writer in writers)
    for writer in writers:
        writer.stderr.close()
    assert later == 0 and former in (0, 79)
    assert kit.enter(34) == 4


@pytest.mark.parametrize("open_kit", [kit for kit in KITS if kit.storage == "s3"], indirect=True, ids=["S3"])
def test_s3_compares_again_after_a_race(open_kit, monkeypatch):
    """A later holder enters between the former one's look and its PUT."""
    former, later = open_kit(), open_kit()
    former.enter(33)
    former.write(33, 5)
    look, looks = former.kit._get, []

    def look_and_lose(*place):
        found = look(*place)
        looks.append(found[0])
        if len(looks) == 1:
            later.enter(34)
        return found
    monkeypatch.setattr(former.kit, "_get", look_and_lose)
    with pytest.raises(LockLost):
        former.write(33, 4)
    assert (looks[0], looks[-1]) == (33, 34)
    assert later.enter(34) == 5
