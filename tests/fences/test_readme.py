# SPDX-License-Identifier: MIT
"""The commands of clients/fences/README.md do what it says."""

import re
import sqlite3
import subprocess
import types

import pytest

from kits import FENCES, MariadbTrigger, PostgresqlTrigger, RedisFunction, SqliteTrigger

README = (FENCES / "README.md").read_text("utf-8")


def block(section):
    """The code of a section."""
    return re.search(rf"^## {section}\n.*?^```\w*\n(.*?)^```$", README, re.M | re.S)[1]


def test_it_is_short():
    assert len(README.split()) <= 650


def test_postgresql(storages):
    kit = PostgresqlTrigger(storages.place("postgresql"), "apples")
    kit.write(33, 5)
    kit.execute(block("PostgreSQL"))
    assert kit.enter(34) == 4
    kit.enter(35)
    with pytest.raises(kit.errors) as lost:
        kit.execute(block("PostgreSQL"))
    assert lost.value.pgcode == "RF001"
    kit.close()


def test_mariadb(storages):
    kit = MariadbTrigger(storages.place("mariadb"), "apples")
    kit.write(33, 5)

    def client():
        return subprocess.run(["mariadb", "--no-defaults", f"--socket={storages.place('mariadb')}", "--user=root", "fences"], input=block("MariaDB, MySQL"),
                              capture_output=True, text=True, check=False)
    assert client().returncode == 0
    assert kit.enter(34) == 4
    kit.enter(35)
    assert "(RF001)" in client().stderr
    kit.close()


def test_sqlite(storages):
    kit = SqliteTrigger(storages.place("sqlite"), "apples")
    names = {"db": kit.connection, "lease": types.SimpleNamespace(fence=34)}
    exec(block("SQLite"), names)
    kit.execute(kit.upsert, amount=4)
    kit.execute("COMMIT")
    names["lease"].fence = 33
    with pytest.raises(sqlite3.Error, match="lock lost"):
        exec(block("SQLite"), names)
    kit.execute("ROLLBACK")
    kit.close()


def test_redis(storages):
    kit = RedisFunction(storages.place("redis"), "apples")

    def shell():
        lines = block("Redis, Valkey").replace("redis-cli", f"redis-cli -s {storages.place('redis')}")
        return subprocess.run(["sh", "-c", lines], capture_output=True, text=True, check=False).stdout
    assert shell() == "\nOK\n"
    assert kit.enter(34) == 4
    kit.enter(35)
    assert shell().startswith("LOCKLOST ")
    kit.close()


def test_files(tmp_path):
    lines = block("Files").replace("ssh storage fenced_file.sh", str(FENCES / "files/fenced_file.sh")).replace("/srv", str(tmp_path))
    (tmp_path / "new").write_text("5\n", "utf-8")
    done = subprocess.run(["sh", "-ec", lines], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")
    assert (tmp_path / "apples").read_text("utf-8") == "5\n"
