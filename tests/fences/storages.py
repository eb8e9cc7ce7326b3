# SPDX-License-Identifier: MIT
"""The storages of the kits, each started when the first test needs it: on Unix sockets below a temporary folder. PostgreSQL and
MariaDB refuse root, and run as another user then."""

import glob
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile

import psycopg2

from harness import DIES_WITH_US, ROOT, Redis, end_process, patience, wait_until
from kits import FENCES, mariadb, postgresql, statements

USER = ["--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
S3_PACKAGES = ROOT / "build" / "tools" / "fences"


class Storages:
    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="fences-")
        os.chmod(self.folder, 0o755)
        self.places, self.ends = {}, []
        return self

    def __exit__(self, *_):
        for end in reversed(self.ends):
            end()
        shutil.rmtree(self.folder)

    def place(self, name):
        if name not in self.places:
            folder = tempfile.mkdtemp(prefix=name, dir=self.folder)
            self.places[name] = getattr(self, name)(folder)
        return self.places[name]

    def start(self, folder, *command, user=(), end=signal.SIGTERM, env=None):
        """Starts a server, to be ended with the tests; returns what says that it still runs."""
        log = open(os.path.join(folder, "log"), "ab")
        process = subprocess.Popen([DIES_WITH_US[0], *user, *DIES_WITH_US[1:], *command], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        log.close()

        def stop():
            process.send_signal(end)
            try:
                process.wait(patience(30))
            except subprocess.TimeoutExpired:
                end_process(process)
        self.ends.append(stop)

        def runs():
            assert process.poll() is None, pathlib.Path(folder, "log").read_text(errors="replace")[-2000:]
            return True
        return runs

    def run(self, folder, *command):
        """Runs a command as the user of the servers."""
        if USER:
            shutil.chown(folder, "nobody", "nogroup")
        done = subprocess.run(["setpriv", *USER, "--", *command], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def postgresql(self, folder):
        programs, = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1:]
        data = os.path.join(folder, "data")
        self.run(folder, f"{programs}/initdb", "-D", data, "-U", "admin", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        runs = self.start(folder, f"{programs}/postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off", user=USER, end=signal.SIGINT)

        def answers():
            try:
                return runs() and postgresql(folder)
            except psycopg2.OperationalError:
                return None
        connection = wait_until(answers, what="PostgreSQL")
        with connection.cursor() as cursor:
            for name in ("fences", "stock"):
                cursor.execute((FENCES / f"postgresql/postgresql_{name}.sql").read_text("utf-8"))
            cursor.execute(statements("postgresql")["table"])
            cursor.execute("CREATE TABLE plain (item text PRIMARY KEY, amount integer NOT NULL)")
        connection.close()
        return folder

    def mariadb(self, folder):
        data, path = os.path.join(folder, "data"), os.path.join(folder, "s")
        places = ["--no-defaults", f"--datadir={data}", f"--tmpdir={folder}"]
        self.run(folder, "mariadb-install-db", *places, "--auth-root-authentication-method=normal", "--skip-test-db")
        runs = self.start(folder, "mariadbd", *places, f"--socket={path}", "--skip-networking", f"--pid-file={folder}/pid", "--innodb-flush-log-at-trx-commit=0",
                          "--innodb-buffer-pool-size=32M", user=USER)

        def client(text):
            return subprocess.run(["mariadb", "--no-defaults", f"--socket={path}", "--user=root"], input=text, capture_output=True, text=True, check=False)
        wait_until(lambda: runs() and client("SELECT 1").returncode == 0, what="MariaDB")
        text = "".join((FENCES / f"mariadb/mariadb_{name}.sql").read_text("utf-8") for name in ("fences", "stock"))
        text += statements("mariadb")["table"] + ";\nCREATE TABLE plain (item VARCHAR(190) PRIMARY KEY, amount INT NOT NULL) ENGINE = InnoDB;\n"
        done = client("CREATE DATABASE fences CHARACTER SET utf8mb4;\nUSE fences;\n" + text)
        assert done.returncode == 0, done.stderr
        mariadb(path).close()
        return path

    def sqlite(self, folder):
        path = os.path.join(folder, "stock.db")
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode = WAL")
        for name in ("fences", "stock"):
            connection.executescript((FENCES / f"sqlite/sqlite_{name}.sql").read_text("utf-8"))
        connection.executescript(statements("sqlite")["table"] + ";CREATE TABLE plain (item TEXT PRIMARY KEY, amount INTEGER NOT NULL);")
        connection.close()
        return path

    def redis(self, folder):
        server = Redis(folder)
        self.ends.append(server.kill)
        done = subprocess.run([FENCES / "redis/load_function.sh", "-s", server.path], capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("redlockd_fences\n", "")
        return server.path

    def files(self, folder):
        return folder

    def s3(self, folder):
        """moto picks the port, and says which in its log."""
        assert S3_PACKAGES.is_dir(), "the S3 server is not there: ./dev test fences fetches it"
        code = "import sys; from moto.server import main; main(sys.argv[1:])"
        environment = {**os.environ, "PYTHONPATH": str(S3_PACKAGES), "HOME": folder}
        runs = self.start(folder, "/usr/bin/python3", "-c", code, "-H", "127.0.0.1", "-p", "0", env=environment)
        log = pathlib.Path(folder, "log")
        return wait_until(lambda: runs() and re.search(r"http://127\.0\.0\.1:\d+", log.read_text()), 60, "the S3 server")[0]
