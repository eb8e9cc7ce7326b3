# SPDX-License-Identifier: MIT
"""docs/how-to/recipes/celery.md, with Celery and a Redis as its broker."""

import json
import os
import pathlib
import re
import signal
import sys

import pytest

from harness import ROOT, SLOW, wait_until
from recipes import Page, bench  # noqa: F401

PAGE = Page("celery")
REPORTS = """
import subprocess


def parts(customer):
    yield f"customer-{customer}"


def save(part, fence):
    subprocess.run(["build-report", part, str(fence)], check=True)
"""


@pytest.fixture
def broker(bench, lab, service):
    """A Redis that knows nothing of the lock, and the environment of the tasks."""
    broker = lab.redis()
    bench.work("build-report")
    library = str(ROOT / "clients" / "python" / "src")
    bench.environment |= {"PYTHONPATH": f"{bench.environment['PYTHONPATH']}:{library}",
                          "BROKER": f"redis+socket://{broker.path}", "REDLOCKD": f"http://{service.address}"}
    return broker


def machine(bench, name, *changes, more=""):
    """With the tasks of the page and shorter times."""
    folder = bench.machine(name)
    assert PAGE.save(folder) == ["tasks.py"]
    tasks = (folder / "tasks.py").read_text(encoding="utf-8")
    for old, new in changes:
        assert tasks.count(old) == 1, old
        tasks = tasks.replace(old, new)
    (folder / "tasks.py").write_text(tasks + more, encoding="utf-8")
    (folder / "reports.py").write_text(REPORTS, encoding="utf-8")
    return folder


def tasks_in(broker):
    return [json.loads(task) for task in broker.cli("LRANGE", "celery", 0, -1)]


def senders(broker):
    """Which processes have sent the tasks that are in the queue."""
    return [re.match(r"gen(\d+)@", task["headers"]["origin"])[1] for task in tasks_in(broker)]


OFTEN = """
app.conf.beat_schedule["often"] = {"task": "tasks.report", "schedule": 0.1, "args": [1]}
app.conf.beat_max_loop_interval = 0.1
"""


# Writes the file of a beat that ended the day before yesterday: the nightly task is overdue.
OLD_SCHEDULE = """
import datetime
import shelve

import celery
from celery.beat import ScheduleEntry

from tasks import app

with shelve.open("celerybeat-schedule") as store:
    last, schedule = app.now() - datetime.timedelta(days=2), app.conf.beat_schedule["nightly"]["schedule"]
    store["entries"] = {"nightly": ScheduleEntry("nightly", "tasks.report", last, schedule=schedule, args=[0], app=app)}
    store.update({"__version__": celery.__version__, "tz": app.conf.timezone, "utc_enabled": True})
"""


def test_one_beat_sends_until_it_is_killed(bench, broker):
    """The next one does not send what it finds overdue in its old file."""
    beats, machines = [], [machine(bench, name, more=OFTEN) for name in ("one", "two")]
    (machines[1] / "old.py").write_text(OLD_SCHEDULE, encoding="utf-8")
    assert bench.start(machines[1], f"{sys.executable} old.py && ls celerybeat-schedule*").wait() == 0
    for name, folder in zip(("one", "two"), machines):
        beats.append(bench.start(folder, PAGE.block("sh", "beat")))
        if name == "one":
            wait_until(lambda: senders(broker), 120, "beat sends")
    bench.until_waiting("celery/beat", holders=0)
    seen = len(senders(broker))
    wait_until(lambda: len(senders(broker)) > seen + 3, 120, "beat sends more")
    first, = beats[0].below("celery")
    assert set(senders(broker)) == {str(first)} and beats[1].below("celery") == []
    os.kill(first, signal.SIGKILL)
    assert beats[0].wait() == 128 + signal.SIGKILL
    broker.cli("DEL", "celery")
    wait_until(lambda: len(senders(broker)) > 3, 120, "the next beat sends")
    assert set(senders(broker)) == {str(beats[1].below("celery")[0])}
    assert {task["headers"]["argsrepr"] for task in tasks_in(broker)} == {"[1]"}


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def builds(bench, customer):
    """The reports of a customer that were begun: (pid, fence)."""
    return [(int(pid), int(fence)) for pid, _, part, fence in bench.lines("begin") if part == f"customer-{customer}"]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_report_is_built_once_at_a_time(bench, broker, pool):
    """By two workers, with two requests for one report. In one pool the process that builds it is killed in the middle,
    in the other one it loses its lease. Both times the report is built again."""
    times = [("ttl=10", f"ttl={6 * SLOW}"), ("default_retry_delay=5", "default_retry_delay=1")]
    command = PAGE.block("sh", "worker").partition("\n")[2].strip()
    options = f" --pool {pool} --concurrency 2 --without-mingle --without-gossip --hostname "
    workers = [bench.start(machine(bench, name, *times), command + options + name) for name in ("one", "two")]
    ask = "import tasks; [tasks.report.delay(customer) for customer in (7, 7, 8)]"
    client = bench.start(bench.folder / "one", f"{sys.executable} -c '{ask}'")
    assert client.wait() == 0, client.output()

    def until_said(words):
        wait_until(lambda: any(re.search(words, worker.output()) for worker in workers), 120, words)
    bench.begun(2)
    until_said("Retry in .*Locked")
    (first, _), = builds(bench, 7)
    (other, _), = builds(bench, 8)
    bench.proceed(other)
    if pool == "prefork":
        os.kill(parent_of(first), signal.SIGKILL)
        os.kill(first, signal.SIGKILL)
    else:
        assert bench.service.curl("DELETE", "/locks/reports/7?force=true").status == 204
    second, _ = wait_until(lambda: builds(bench, 7)[1:], 120, "the report is begun again")[0]
    if pool == "threads":
        bench.proceed(first)
        until_said("Retry in .*LockLost")
    bench.proceed(second)
    third, _ = wait_until(lambda: builds(bench, 7)[2:], 120, "the report is begun a third time")[0]
    bench.proceed(third)
    wait_until(lambda: [str(third)] in bench.lines("end"), 120, "both requests are done")
    fences = [fence for _, fence in builds(bench, 7)]
    assert len(fences) == 3 and fences == sorted(set(fences))
    log = [tuple(line.split()[:2]) for line in bench.log.read_text().splitlines()]
    assert log.index(("end", str(second))) < log.index(("begin", str(third)))
