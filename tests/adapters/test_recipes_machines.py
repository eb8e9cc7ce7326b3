# SPDX-License-Identifier: MIT
"""docs/how-to/recipes/ansible.md with ansible-core; systemd-timers.md: its units, and the command of the service."""

import os
import re
import signal
import subprocess

import ctl
from harness import children_of, wait_until
from recipes import Page, bench  # noqa: F401

ANSIBLE = Page("ansible")
TIMERS = Page("systemd-timers")
INVENTORY = """
[web]
host-[1:3] ansible_connection=local ansible_python_interpreter=/usr/bin/python3
"""


def test_one_playbook_at_a_time_and_two_hosts_at_once(bench):
    """The first playbook is killed in the middle: its hosts are given up, and the next one does them all."""
    bench.work("restart-web")
    jobs = []
    for name in ("person", "pipeline"):
        control = bench.machine(name)
        (control / "hosts.ini").write_text(INVENTORY, encoding="utf-8")
        assert ANSIBLE.save(control) == ["web.yml"]
        jobs.append(bench.start(control, ANSIBLE.block("sh", "ansible-playbook")))
        if name == "person":
            bench.begun(2)
            bench.until_waiting("web/restart", holders=2)
    bench.until_waiting("ansible/web", holders=2)
    os.kill(jobs[0].below("ansible-playbook")[0], signal.SIGKILL)
    assert jobs[0].wait() == 128 + signal.SIGKILL

    def working():
        return bench.running() & set(children_of(jobs[1].process.pid))
    wait_until(lambda: len(working()) == 2, 120, "the next playbook is at two hosts")
    bench.until_waiting("web/restart", holders=2)
    done = set()
    for _ in range(3):
        host = wait_until(lambda: working() - done, 120, "the next host").pop()
        done.add(host)
        bench.proceed(host)
    assert jobs[1].wait() == 0
    recap = re.findall(r"^host-\d +: ok=1 +changed=1 +unreachable=0 +failed=0 ", jobs[1].output(), re.M)
    assert len(recap) == 3, jobs[1].output()


def unit(section):
    return TIMERS.block("ini", f"[{section}]")


def test_systemd_finds_no_mistake_in_the_units(bench):
    """With redlockctl and a job where they are here."""
    bench.work("nightly-report")
    service = unit("Service").replace("/usr/bin/redlockctl", ctl.BINARY)
    service = service.replace("/usr/local/bin/nightly-report", str(bench.programs / "nightly-report"))
    files = {"nightly-report.service": service, "nightly-report.timer": unit("Timer")}

    def verify():
        for name, text in files.items():
            (bench.folder / name).write_text(text, encoding="utf-8")
        command = ["systemd-analyze", "--no-pager", "--man=no", "verify", *(bench.folder / name for name in files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
    assert verify() == (0, "")
    files["nightly-report.timer"] = unit("Timer").replace("AccuracySec", "Accuracy")
    assert "Accuracy" in verify()[1]
    assert re.search(r"^OnCalendar=(.*)", unit("Timer"), re.M)[1] == "*-*-* 03:00:00"


def test_the_job_of_a_timer_runs_on_one_machine(bench):
    """Another machine that has the same time, and one that is late, end as SuccessExitStatus says."""
    bench.work("nightly-report")
    line = re.search(r"^ExecStart=(.*)", unit("Service"), re.M)[1]
    line = line.replace("/usr/bin/", "").replace("/usr/local/bin/", "").replace("%H", "$HOST")
    succeeds = int(re.search(r"^SuccessExitStatus=(\d+)", unit("Service"), re.M)[1])

    def start(name):
        return bench.start(bench.machine(name), line, {"HOST": name})
    first = start("one")
    job, = bench.begun()
    assert bench.state("nightly-report")["owner"] == "one"
    assert start("two").wait() == succeeds
    bench.proceed(job)
    assert first.wait() == 0
    assert start("three").wait() == succeeds
    assert len(bench.lines("begin")) == 1
    assert bench.service.curl("DELETE", "/locks/nightly-report?force=true").status == 204  # it is kept for the minute
