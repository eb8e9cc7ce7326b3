# SPDX-License-Identifier: MIT
"""The rules that each kit keeps: an equal fence is the same holder, a smaller one and none are refused, and nothing makes the storage forget."""

import os
import pathlib
import shutil
import sqlite3
import subprocess

import pytest

from harness import ROOT, RedisError
from kits import (FENCES, KITS, S3, Files, LockLost, MariadbRows, MariadbTrigger, NoFence, PostgresqlTrigger, RedisFunction, SqliteTrigger, Trigger, mariadb,
                  sqlite)

LARGEST = 2**53 - 1
WRONG = [None, "", "abc", "34abc", 0, -1, "-1", "0x50", 2**53, "9" * 20]


def test_the_first_write_and_equal_fences(open_kit):
    kit = open_kit()
    assert kit.enter(33) is None
    for amount in (5, 4, 4, 3):
        kit.write(33, amount)
    assert kit.enter(33) == 3
    kit.write(LARGEST, 2)
    assert kit.enter(LARGEST) == 2


@pytest.mark.parametrize("verb", ["enter", "write", "delete"])
def test_a_former_holder_is_refused(open_kit, verb):
    """From the moment when a later one has entered, also if that one writes nothing."""
    former, later = open_kit(), open_kit()
    former.enter(33)
    former.write(33, 5)
    assert later.enter(34) == 5
    with pytest.raises(LockLost):
        getattr(former, verb)(33, *([4] if verb == "write" else []))
    assert later.enter(34) == 5
    later.write(34, 4)
    assert later.enter(34) == 4


def test_a_deletion_keeps_the_fence(open_kit):
    kit = open_kit()
    kit.enter(33)
    kit.write(33, 5)
    kit.delete(34)
    for refused in (kit.enter, kit.delete, lambda fence: kit.write(fence, 4)):
        with pytest.raises(LockLost):
            refused(33)
    assert kit.enter(34) is None
    kit.write(34, 3)
    assert kit.enter(35) == 3


@pytest.mark.parametrize("wrong", WRONG, ids=map(str, WRONG))
def test_no_fence_is_refused(open_kit, wrong):
    """Before there is one, and after: a later holder is not kept out by it."""
    kit = open_kit()
    with pytest.raises((NoFence, LockLost)):
        kit.enter(wrong)
    kit.enter(33)
    kit.write(33, 5)
    for refused in (kit.enter, kit.delete, lambda fence: kit.write(fence, 4)):
        with pytest.raises((NoFence, LockLost)):
            refused(wrong)
    assert kit.enter(33) == 5
    assert kit.enter(34) == 5


def test_a_text_is_compared_as_a_number(open_kit):
    """Or refused: "9" is not larger than 10."""
    kit = open_kit()
    kit.enter(10)
    kit.write(10, 5)
    for refused in (kit.enter, lambda fence: kit.write(fence, 4)):
        with pytest.raises((NoFence, LockLost)):
            refused("9")
    try:
        kit.write("11", 4)
    except NoFence:
        assert kit.enter(10) == 5
    else:
        assert kit.enter(11) == 4
        with pytest.raises(LockLost):
            kit.enter(10)


def only(wanted):
    """Of the kits of one class."""
    kits = [kit for kit in KITS if issubclass(kit, wanted)]
    return pytest.mark.parametrize("open_kit", kits, indirect=True, ids=[kit.__name__ for kit in kits])


@only(Trigger)
@pytest.mark.parametrize("statement", ["INSERT INTO stock VALUES ('new/' || :item, 1)", "UPDATE stock SET amount = 4 WHERE item = :item",
                                       "UPDATE stock SET item = 'new/' || :item WHERE item = :item", "DELETE FROM stock WHERE item = :item"])
@pytest.mark.parametrize("entered", [False, True], ids=["without a fence", "with another lock's"])
def test_the_trigger_refuses_who_has_not_entered(open_kit, statement, entered):
    kit, other = open_kit(), open_kit()
    kit.write(33, 5)
    if kit.storage == "mariadb":
        statement = statement.replace("'new/' || :item", "CONCAT('new/', :item)")
    other.held = {f"stock/{kit.item}-other": 50} if entered else {}  # SQLite
    shown = [lambda: other.show(50, f"{kit.item}-other")] if entered else []
    with pytest.raises(NoFence):
        other.transaction(*shown, lambda: other.execute(statement))
    assert kit.enter(33) == 5


@only(Trigger)
def test_a_row_moves_only_between_locks_that_are_held(open_kit):
    kit = open_kit()
    kit.write(33, 5)
    with pytest.raises(NoFence):
        kit.guarded(33, lambda: kit.execute("UPDATE stock SET item = :other WHERE item = :item", other=f"{kit.item}-other"))
    assert kit.enter(33) == 5


@only(PostgresqlTrigger)
def test_a_role_of_postgresql_needs_no_right_on_the_fences(open_kit):
    kit, admin = open_kit(), open_kit()
    admin.execute("CREATE ROLE clerk; GRANT SELECT, INSERT, UPDATE, DELETE ON stock TO clerk")
    kit.execute("SET ROLE clerk")
    kit.write(33, 5)
    assert kit.enter(33) == 5
    with pytest.raises(kit.errors, match="permission denied"):
        kit.execute("UPDATE fences.seen SET fence = 1")


@only(MariadbTrigger)
def test_a_user_of_mariadb_needs_no_right_on_the_fences(open_kit):
    kit, admin = open_kit(), open_kit()
    for statement in ("CREATE OR REPLACE USER clerk@localhost", "GRANT SELECT, INSERT, UPDATE, DELETE ON fences.stock TO clerk@localhost",
                      "GRANT EXECUTE ON PROCEDURE fences.fence_enter TO clerk@localhost"):
        admin.execute(statement)
    kit.connection.close()
    kit.connection = mariadb(open_kit.place, user="clerk")
    kit.write(33, 5)
    assert kit.enter(33) == 5
    with pytest.raises(kit.errors, match="denied"):
        kit.execute("UPDATE fences_seen SET fence = 1")


@only(MariadbTrigger)
@pytest.mark.parametrize("way", ["without a transaction", "in one that has read before"])
def test_a_session_of_mariadb_that_does_not_enter_again(open_kit, way):
    """What it entered is void as soon as another one enters, and a refused try to enter changes nothing."""
    former, later = open_kit(), open_kit()
    former.write(33, 5)
    if way != "without a transaction":
        former.execute("START TRANSACTION")
        assert former.value("SELECT COUNT(*) FROM fences_seen")
    later.enter(34)
    for _ in range(2):
        with pytest.raises(former.errors, match="not the last one"):
            former.execute(former.upsert, amount=4)
        with pytest.raises(former.errors, match="lock lost"):
            former.show(33)
    former.execute("COMMIT")
    assert later.enter(34) == 5


@only(Trigger)
def test_several_locks_in_one_transaction(open_kit):
    """Each by a fence of its own."""
    kit = open_kit()
    pear = f"{kit.item}-pear"
    kit.held = {f"stock/{kit.item}": 33, f"stock/{pear}": 90}  # SQLite

    def both(amount):
        kit.transaction(lambda: kit.show(33), lambda: kit.show(90, pear), lambda: kit.execute(kit.upsert, amount=amount),
                        lambda: kit.execute(kit.upsert, item=pear, amount=amount))
    both(5)
    kit.transaction(lambda: kit.show(91, pear))
    with pytest.raises(LockLost):
        both(4)
    assert kit.enter(33) == 5


def test_equal_rows_of_mariadb_without_found_rows(storages):
    """The trap that mariadb_rows.sql warns of."""
    kit = MariadbRows(storages.place("mariadb"), "trap")
    kit.enter(33)
    kit.write(33, 5)
    kit.write(33, 5)
    kit.close()
    kit.connection = mariadb(storages.place("mariadb"), flag=0)
    with pytest.raises(LockLost):
        kit.write(33, 5)
    kit.close()


@pytest.mark.parametrize("statement", ["INSERT OR IGNORE INTO stock VALUES (:item, 4)", "INSERT OR REPLACE INTO stock VALUES (:item, 4)",
                                       "UPDATE OR IGNORE stock SET amount = 4 WHERE item = :item"])
@pytest.mark.parametrize("fence", [None, "33", "abc", 33])
@only(SqliteTrigger)
def test_conflict_clauses_of_sqlite(open_kit, statement, fence):
    """They rule the statements of triggers, too."""
    kit = open_kit()
    kit.write(34, 5)
    kit.held = {f"stock/{kit.item}": fence}
    with pytest.raises(sqlite3.Error):
        kit.execute(statement)
    assert kit.enter(34) == 5


def test_sqlite_without_the_function(storages):
    plain = sqlite(storages.place("sqlite"))
    with pytest.raises(sqlite3.OperationalError, match="no such function: fence_of"):
        plain.execute("INSERT INTO stock VALUES ('x', 1)")
    plain.close()


@only(RedisFunction)
def test_the_command_of_redis_fails(open_kit):
    """The fence stays: it was right."""
    kit = open_kit()
    kit.write(33, 5)
    with pytest.raises(RedisError, match="WRONGTYPE"):
        kit.guarded(34, "HGET", "x")
    with pytest.raises(LockLost):
        kit.enter(33)
    assert kit.guarded(34) == "OK" and kit.enter(34) == 5


@only(Files)
def test_a_damaged_fence_of_a_file(open_kit):
    """Nobody writes until somebody has looked."""
    kit = open_kit()
    kit.write(33, 5)
    fence = pathlib.Path(f"{kit.path}.fence")
    for damaged in ("", "\n", "abc\n", "33"):
        fence.write_text(damaged, "utf-8")
        with pytest.raises(OSError, match="is damaged"):
            kit.write(34, 4)
    fence.write_text("33\n", "utf-8")
    assert kit.enter(33) == 5


@only(Files)
def test_a_file_keeps_its_mode_and_leaves_nothing(open_kit, tmp_path):
    kit = open_kit()
    kit.path = str(tmp_path / "-a name")
    kit.write(33, 5)
    assert os.stat(kit.path).st_mode & 0o777 == 0o644, "as the umask says"
    os.chmod(kit.path, 0o640)
    kit.write(34, 4)
    with pytest.raises(LockLost):
        kit.write(33, 3)
    assert os.stat(kit.path).st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["-a name", "-a name.fence", "-a name.lock"]


@pytest.mark.parametrize("words", [[], ["read", "x"], ["look", "x", "33"], ["write", "x", "33", "34"]])
def test_mistakes_at_the_helper_for_files(words, tmp_path):
    done = subprocess.run([FENCES / "files/fenced_file.sh", *words], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 64 and done.stderr.startswith("fenced_file: ") and not os.listdir(tmp_path)


def test_the_etag_of_s3_does_not_cover_metadata(storages):
    """So the fence is in the content: this is how the recipe with metadata fails."""
    kit = S3(storages.place("s3"), "etag")
    place = {"Bucket": kit.bucket, "Key": "x"}
    kit.client.put_object(**place, Body=b"5", Metadata={"fence": "33"})
    before = kit.client.head_object(**place)["ETag"]
    kit.client.put_object(**place, Body=b"5", Metadata={"fence": "34"})
    kit.client.put_object(**place, Body=b"4", Metadata={"fence": "33"}, IfMatch=before)
    assert kit.client.head_object(**place)["Metadata"] == {"fence": "33"}
    kit.close()


def test_lua_has_no_warnings():
    if not shutil.which("luacheck"):
        pytest.skip("luacheck is not installed (Debian: lua-check)")
    done = subprocess.run(["luacheck", "--no-color", "--no-cache", "--config", ROOT / ".luacheckrc", FENCES / "redis/fenced.lua"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout
