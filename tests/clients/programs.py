"""The example programs of docs/how-to/clients, as processes, and the store that they write to.

    run = programs.start("go", url, "orders/42", store, steps=3)
    run.wait_for("wrote 1")
    assert run.end() == 0
"""

import contextlib
import os
import pathlib
import signal
import sqlite3
import subprocess

import pytest

from harness import DIES_WITH_US, ROOT, SLOW, clean_environment, end_process, wait_until

FOLDER = ROOT / "docs/how-to/clients"
FILES = {"shell": "lock.sh", "go": "lock.go", "node": "lock.mjs", "java": "Lock.java"}

# The table of lock.sql in docs/how-to/clients.md, and a list of all writes with the time of each.
LOG = """
CREATE TABLE log (at REAL, amount INTEGER, fence INTEGER);
CREATE TRIGGER logged AFTER UPDATE ON stock WHEN new.amount <> old.amount
BEGIN INSERT INTO log VALUES ((julianday('now') - 2440587.5) * 86400, new.amount, new.fence); END;
"""


class Store:
    """The guarded resource: a table in a file of SQLite."""

    def __init__(self, folder, schema):
        self.path = os.path.join(folder, "stock.db")
        self.execute(schema + LOG)

    def execute(self, script):
        with contextlib.closing(sqlite3.connect(self.path, timeout=20 * SLOW)) as connection:
            connection.executescript(script)

    def rows(self, query):
        with contextlib.closing(sqlite3.connect(self.path, timeout=20 * SLOW)) as connection:
            return connection.execute(query).fetchall()

    @property
    def amount(self):
        return self.rows("SELECT amount FROM stock WHERE item = 'apples'")[0][0]

    def writes(self):
        """[(time of day, amount, fence)]"""
        return self.rows("SELECT * FROM log ORDER BY rowid")


class Run:
    """One program that runs, in a session of its own: whatever it starts is known."""

    def __init__(self, folder, command, env):
        self.out, self.err = (os.path.join(folder, f"{os.urandom(4).hex()}.{name}") for name in ("out", "err"))
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen([*DIES_WITH_US, *command], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)

    def members(self):
        """The pids of all processes of its session that have not ended."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    state, _, _, session = pathlib.Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:4]
                    if session == str(self.process.pid) and state not in "ZX":
                        found.append(int(entry))
        return found

    def signal(self, number):
        """To all of its processes."""
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def lines(self):
        return pathlib.Path(self.out).read_text().splitlines()

    def error(self):
        return pathlib.Path(self.err).read_text()

    def wait_for(self, start, count=1, seconds=30):
        """Until it has said a line that begins so, `count` times; returns the lines."""
        def said():
            found = [line for line in self.lines() if line.startswith(start)]
            assert len(found) >= count or self.process.poll() is None, f"ended with {self.process.returncode}: {self.lines()} {self.error()}"
            return found if len(found) >= count else None
        return wait_until(said, seconds, f"{start!r} × {count}")

    @property
    def fence(self):
        return int(self.wait_for("acquired fence=")[0].partition("=")[2])

    def end(self, seconds=40):
        """Waits for its end and returns its exit status; nothing that it started may be left."""
        try:
            status = self.process.wait(seconds * SLOW)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.lines()} {self.error()}") from None
        wait_until(lambda: not self.members(), what="its processes have ended")
        print(self.lines(), self.error())
        return status

    def kill(self):
        self.signal(signal.SIGKILL)
        end_process(self.process)


class Programs:
    """Starts them; they were built before."""

    def __init__(self, folder):
        self.folder = str(folder)
        subprocess.run(["go", "build", "-o", f"{folder}/lock", str(FOLDER / FILES["go"])], check=True)
        subprocess.run(["javac", "-Xlint:all", "-Werror", "-d", f"{folder}/java", str(FOLDER / FILES["java"])], check=True)
        self.commands = {"shell": ["bash", str(FOLDER / FILES["shell"])], "go": [f"{folder}/lock"], "node": ["node", str(FOLDER / FILES["node"])],
                         "java": ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}/java", "Lock"]}

    def start(self, language, url, resource, store, *, steps=3, step_ms=100, ttl_ms=10000, wait_ms=20000, env=None, options=()):
        """`options`: for what runs the program."""
        numbers = [str(number) for number in (steps, step_ms, ttl_ms, wait_ms)]
        runner, *rest = self.commands[language]
        return Run(os.path.dirname(store.path), [runner, *options, *rest, resource, store.path, *numbers],
                   clean_environment({"REDLOCKD_URL": url, "LC_ALL": "C.UTF-8", **(env or {})}))


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    return Programs(tmp_path_factory.mktemp("programs"))
