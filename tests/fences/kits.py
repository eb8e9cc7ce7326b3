# SPDX-License-Identifier: MIT
"""The kits of clients/fences behind one face: an item of a stock with an amount. enter() and write() are guarded, read() and write_plain() are not, and
work on an item that no kit guards. enter, write and delete raise LockLost, and NoFence where the fence is none or has not been shown."""

import os
import pathlib
import re
import sqlite3
import subprocess
import sys

import psycopg2
import pymysql

from harness import ROOT, Resp, RedisError

FENCES = ROOT / "clients" / "fences"
sys.path[:0] = [str(ROOT / "build" / "tools" / "fences"), str(FENCES / "s3")]


class LockLost(Exception):
    pass


class NoFence(Exception):
    pass


def statements(storage):
    """The statements of STORAGE_rows.sql by their names."""
    text = (FENCES / storage / f"{storage}_rows.sql").read_text("utf-8")
    return dict(re.findall(r"^-- (table|first|enter|write|delete)\b.*\n((?:.+\n)*?.+);$", text, re.M))


def postgresql(place):
    connection = psycopg2.connect(host=place, user="admin", dbname="postgres")
    connection.autocommit = True
    return connection


def mariadb(place, user="root", flag=pymysql.constants.CLIENT.FOUND_ROWS):
    return pymysql.connect(unix_socket=place, user=user, database="fences", autocommit=True, client_flag=flag)


def sqlite(place):
    return sqlite3.connect(place, isolation_level=None, check_same_thread=False)


class Sql:
    """One connection, each call a transaction. The values of a statement are written as :name."""

    def __init__(self, place, item):
        self.item, self.connection = item, self.open(place)

    def close(self):
        self.connection.close()

    def execute(self, statement, **values):
        """Returns the cursor."""
        cursor = self.connection.cursor()
        cursor.execute(re.sub(r":(\w+)", r"%(\1)s", statement), {"item": self.item, **values})
        return cursor

    def value(self, statement, **values):
        row = self.execute(statement, **values).fetchone()
        return row and row[0]

    def transaction(self, *steps):
        """Each step is a function; returns what the last one does."""
        self.execute(self.begin)
        try:
            for step in steps:
                result = step()
            self.execute("COMMIT")
            return result
        except self.errors as error:
            self.execute("ROLLBACK")
            raise judged(error) from error

    begin = "BEGIN"

    def read(self):
        return self.value("SELECT amount FROM plain WHERE item = :item")

    def write_plain(self, amount):
        self.execute(self.upsert.replace("stock", "plain"), amount=amount)


def judged(error):
    """An error of a database as what it means to the holder."""
    if "lock lost" in str(error):
        return LockLost(str(error))
    return error if re.search("serializ|[Dd]eadlock|locked", str(error)) else NoFence(str(error))


class Trigger(Sql):
    """By the trigger: a transaction enters, and writes as ever."""

    def enter(self, fence):
        return self.guarded(fence, lambda: self.value("SELECT amount FROM stock WHERE item = :item"))

    def write(self, fence, amount):
        self.guarded(fence, lambda: self.execute(self.upsert, amount=amount))

    def delete(self, fence):
        self.guarded(fence, lambda: self.execute("DELETE FROM stock WHERE item = :item"))

    def guarded(self, fence, step):
        return self.transaction(lambda: self.show(fence), step)

    def show(self, fence, item=None):
        self.execute(self.entering, resource=f"stock/{item or self.item}", fence=fence)


class Rows(Sql):
    """By the statements of …_rows.sql."""

    def guarded(self, name, **values):
        try:
            done = self.execute(statements(self.storage)[name], **values)
            if (done.fetchone() is None) if done.description else done.rowcount == 0:
                raise LockLost
        except self.errors as error:
            raise judged(error) from error

    def enter(self, fence):
        self.guarded("enter", fence=fence)
        return self.value("SELECT amount FROM stock_rows WHERE item = :item")

    def write(self, fence, amount):
        self.guarded("write", fence=fence, amount=amount)

    def delete(self, fence):
        self.guarded("delete", fence=fence)


class Postgresql:
    storage, open, errors = "postgresql", staticmethod(postgresql), psycopg2.Error
    entering = "SELECT fences.enter(:resource, :fence)"
    upsert = "INSERT INTO stock VALUES (:item, :amount) ON CONFLICT (item) DO UPDATE SET amount = excluded.amount"


class Mariadb:
    storage, open, errors = "mariadb", staticmethod(mariadb), pymysql.MySQLError
    entering = "CALL fence_enter(:resource, :fence)"
    upsert = "INSERT INTO stock VALUES (:item, :amount) ON DUPLICATE KEY UPDATE amount = VALUES(amount)"


class Sqlite:
    storage, open, errors = "sqlite", staticmethod(sqlite), sqlite3.Error
    begin = "BEGIN IMMEDIATE"
    entering = "INSERT INTO fence_enter VALUES (:resource, :fence)"
    upsert = Postgresql.upsert

    def execute(self, statement, **values):
        return self.connection.execute(statement, {"item": self.item, **values})


class PostgresqlTrigger(Postgresql, Trigger):
    title = "PostgreSQL, trigger"


class PostgresqlRows(Postgresql, Rows):
    title = "PostgreSQL, rows"


class MariadbTrigger(Mariadb, Trigger):
    title = "MariaDB, trigger"


class MariadbRows(Mariadb, Rows):
    title = "MariaDB, rows"

    def enter(self, fence):
        self.guarded("first", fence=fence)
        return super().enter(fence)


class SqliteTrigger(Sqlite, Trigger):
    title = "SQLite, trigger"

    def __init__(self, place, item):
        super().__init__(place, item)
        self.held = {}
        self.connection.create_function("fence_of", 1, lambda resource: self.held.get(resource))

    def guarded(self, fence, step):
        self.held[f"stock/{self.item}"] = fence
        return super().guarded(fence, step)


class SqliteRows(Sqlite, Rows):
    title = "SQLite, rows"


class RedisFunction:
    storage, title, verb = "redis", "Redis, function", ("FCALL", "fenced")

    def __init__(self, place, item):
        self.server, self.item = Resp(place, 30), item

    def close(self):
        self.server.close()

    def command(self, *words):
        self.server.send(*words)
        return self.server.receive()

    def guarded(self, fence, *words):
        key = f"{{stock/{self.item}}}"
        try:
            return self.command(*self.verb, 2, key, f"{key}:fence", fence, *words)
        except RedisError as error:
            kind = {"LOCKLOST": LockLost, "NOFENCE": NoFence}.get(str(error).split()[0], RedisError)
            raise kind(str(error)) from error

    def enter(self, fence):
        return number(self.guarded(fence, "GET"))

    def write(self, fence, amount):
        self.guarded(fence, "SET", amount)

    def delete(self, fence):
        self.guarded(fence, "DEL")

    def read(self):
        return number(self.command("GET", f"plain/{self.item}"))

    def write_plain(self, amount):
        self.command("SET", f"plain/{self.item}", amount)


class RedisScript(RedisFunction):
    title, verb = "Redis, script", ("EVAL", (FENCES / "redis/fenced.lua").read_text("utf-8"))


def number(text):
    return int(text) if text else None


class Files:
    storage, title = "files", "files"

    def __init__(self, place, item):
        self.item, self.path, self.plain = item, os.path.join(place, item), pathlib.Path(place, f"{item}.plain")

    def close(self):
        pass

    def guarded(self, verb, fence, content=""):
        done = subprocess.run([FENCES / "files/fenced_file.sh", verb, self.path, str(fence)], input=content, capture_output=True, text=True, check=False)
        if done.returncode:
            raise {79: LockLost, 64: NoFence}.get(done.returncode, OSError)(done.stderr)
        return done.stdout

    def enter(self, fence):
        return number(self.guarded("read", fence))

    def write(self, fence, amount):
        self.guarded("write", fence, f"{amount}\n")

    def delete(self, fence):
        self.guarded("remove", fence)

    def read(self):
        return number(self.plain.read_text("utf-8"))

    def write_plain(self, amount):
        new = self.plain.with_suffix(f".{os.getpid()}")
        new.write_text(f"{amount}\n", "utf-8")
        new.rename(self.plain)


class S3:
    storage, title = "s3", "S3"

    def __init__(self, place, item):
        import boto3
        import s3_fence
        self.kit, self.item, self.bucket = s3_fence, item, f"b-{item}"
        self.client = boto3.client("s3", endpoint_url=place, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
        self.client.create_bucket(Bucket=self.bucket)

    def close(self):
        self.client.close()

    def guarded(self, call, fence, *content):
        try:
            return call(self.client, self.bucket, "guarded", fence, *content)
        except self.kit.LockLost as error:
            raise LockLost(str(error)) from error
        except ValueError as error:
            raise NoFence(str(error)) from error

    def enter(self, fence):
        return number(self.guarded(self.kit.enter, fence))

    def write(self, fence, amount):
        self.guarded(self.kit.write, fence, str(amount).encode())

    def delete(self, fence):
        self.guarded(self.kit.write, fence, b"")

    def read(self):
        return number(self.client.get_object(Bucket=self.bucket, Key="plain")["Body"].read())

    def write_plain(self, amount):
        self.client.put_object(Bucket=self.bucket, Key="plain", Body=str(amount).encode())


KITS = [PostgresqlTrigger, PostgresqlRows, MariadbTrigger, MariadbRows, SqliteTrigger, SqliteRows, RedisFunction, RedisScript, Files, S3]
