# SPDX-License-Identifier: MIT
"""redlockctl drill: a job that loses its lock on purpose.

The jobs do not rely on time: each waits for the file `go`, which lies there while the job of the trial runs and once the first job of a round is
stopped; the check removes it. So no job of a round ends before it was stopped.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import xml.etree.ElementTree

import pytest

import harness
from ctl import BINARY, HELD, TTL_MS, UNREACHABLE, USAGE, ctl, is_free, until_dead, url
from harness import DIES_WITH_US, SANITIZER, children_of, clean_environment, process_state, wait_until
from key_fixtures import Key, Keyed

FORBIDDEN, NOT_FOUND = 77, 127
WAITS = "until [ -e go ]; do sleep 0.02; done; "
UNSAFE = "echo $REDLOCK_FENCE >>seen; " + WAITS + "echo $REDLOCK_FENCE >last"
# A storage that compares and writes in one step; one that is stopped meanwhile keeps nothing locked there. redis-cli is $STORAGE.
GUARDED = """if tonumber(ARGV[1]) < tonumber(redis.call('GET', 'last') or 0) then return 'refused' end redis.call('SET', 'last', ARGV[1]) return 'done'"""
ENTER = 'store() { [ "$($STORAGE EVAL "$GUARDED" 0 $REDLOCK_FENCE)" = done ] || exit 3; }; store; '
SAFE = ENTER + "echo $REDLOCK_FENCE >>seen; " + WAITS + "store; echo $REDLOCK_FENCE >last"
CHECK = 'rm -f go; largest=$(sort -n seen | tail -n 1); echo "largest $largest, last $(cat last)"; [ "$largest" = "$(cat last)" ]'


class Drill:
    """A drill in the background, in a folder of its own."""

    def __init__(self, lab, server, *options, job, name, check=CHECK, env=None):
        self.folder = pathlib.Path(lab.folder, f"drill{len(lab.started)}")
        self.folder.mkdir()
        (self.folder / "last").write_text("0\n")
        (self.folder / "go").touch()
        self.errors = self.folder / "stderr"
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen([*DIES_WITH_US, "env", "--default-signal", BINARY, "drill", name, "--ttl", f"{TTL_MS}ms", *options, "--check", check, "--", "sh", "-c", job],
                                            env=clean_environment({"REDLOCKCTL_SERVER": url(server), **(env or {})}), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        lab.keep(self)

    def kill(self):
        harness.end_process(self.process)
        self.process.stdout.close()
        assert not SANITIZER.search(self.errors.read_text()), self.errors.read_text()

    def job_said(self):
        """On stderr, without messages of a slow machine: an extension failed, and the next one did not."""
        return "".join(line for line in self.errors.read_text().splitlines(True) if not line.startswith("redlockctl: "))

    def until_frozen(self):
        """Waits until all that the drill has started is stopped: foreground process, supervisor and the job with its shell. Returns them."""
        def frozen():
            assert self.process.poll() is None, self.errors.read_text() + self.process.stdout.read().decode()
            below = children_of(self.process.pid)
            states = [process_state(pid) for pid in below]
            # D: a shell between vfork() and the end of its child's, which is stopped. None: one that has just ended, as of a check, which is never stopped.
            return below if len(below) >= 3 and states.count("T") >= 2 and set(states) <= {"T", "D", None} else None
        return wait_until(frozen, 30, "a job that is stopped")

    def go_on(self):
        """Lets the successor, and then the first one, end."""
        below = self.until_frozen()
        (self.folder / "go").touch()
        return below

    def end(self):
        """Waits for the end. Returns the exit status and what stands on stdout."""
        output = self.process.communicate(timeout=harness.patience(60))[0].decode()
        return self.process.returncode, output

    def rounds(self, count):
        for _ in range(count):
            self.go_on()
            wait_until(lambda: not (self.folder / "go").exists(), 30, "the check")


def test_an_unsafe_job_is_found(lab, service, resource):
    drill = Drill(lab, service, "--rounds", "2", "--json", "--junit", "report.xml", job=UNSAFE, name=resource)
    drill.rounds(2)
    status, output = drill.end()
    assert (status, drill.job_said()) == (1, "")
    report = json.loads(output)
    assert (report["resource"], report["safe"], report["held"], report["planned"]) == (resource, False, 0, 2) and report["seed"] > 0 and report["not_seen"]
    assert report["trial"]["run"]["status"] == report["trial"]["check"]["status"] == 0
    fences = [report["trial"]["run"]["fence"]]
    for a_round in report["rounds"]:
        first, successor = a_round["first"], a_round["successor"]
        assert (a_round["result"], a_round["check"]["status"], first["status"], successor["status"]) == ("unsafe", 1, 0, 0)
        assert not first["killed"] and not successor["killed"] and first["took_ms"] > a_round["stopped_after_ms"]
        assert a_round["check"]["said"] == f"largest {successor['fence']}, last {first['fence']}"
        fences += [first["fence"], successor["fence"]]
    assert fences == sorted(set(fences)) == sorted(int(fence) for fence in (drill.folder / "seen").read_text().split())
    suite = xml.etree.ElementTree.parse(drill.folder / "report.xml").getroot()
    assert dict(suite.attrib) == {"name": f"redlockctl drill {resource}", "tests": "3", "failures": "2", "errors": "0"}
    assert [(case.get("name"), case.find("failure") is not None) for case in suite.iter("testcase")] == [("trial", False), ("round 1", True), ("round 2", True)]
    assert report["rounds"][1]["check"]["said"] in suite.findall("testcase")[2].find("failure").get("message")
    assert is_free(service, resource)


def test_a_safe_job_passes(lab, service, resource):
    storage = {"STORAGE": f"redis-cli -s {lab.redis().path}", "GUARDED": GUARDED}
    drill = Drill(lab, service, "--rounds", "2", "--seed", "7", job=SAFE, name=resource, env=storage)
    drill.rounds(2)
    status, output = drill.end()
    assert (status, drill.job_said()) == (0, ""), output
    trial, *rounds, held, not_seen = output.splitlines()
    assert trial.startswith("trial: the job ended with 0 after ") and held == "2 of 2 rounds held, seed 7" and not_seen.startswith("not seen: ")
    assert [line.split(" stopped ")[0] for line in rounds] == ["round 1: held:", "round 2: held:"]
    assert all("first ended with 3, successor ended with 0; check passed: largest " in line for line in rounds)
    assert is_free(service, resource)


def test_a_job_that_ends_before_it_is_stopped(lab, service, resource):
    drill = Drill(lab, service, "--rounds", "2", "--at", "1h", "--json", "--junit", "report.xml", job="exit 0", check="true", name=resource)
    status, output = drill.end()
    report = json.loads(output)
    assert (status, report["safe"], report["held"], [a_round["result"] for a_round in report["rounds"]]) == (1, False, 0, ["early", "early"])
    suite = xml.etree.ElementTree.parse(drill.folder / "report.xml").getroot()
    assert suite.get("failures") == "2" and is_free(service, resource)


def test_a_check_or_a_job_that_fails_always(lab, service, resource):
    for job, check, says in (("true", "echo no; echo never; exit 3", "the job ended with 0 after "), ("exit 5", "echo fine", "the job ended with 5 after ")):
        drill = Drill(lab, service, "--rounds", "2", "--junit", "report.xml", job=job, check=check, name=resource)
        status, output = drill.end()
        assert status == 1 and says in output and "no round was run" in output
        assert ("check ended with 3: never" if job == "true" else "check passed: fine") in output
        suite = xml.etree.ElementTree.parse(drill.folder / "report.xml").getroot()
        assert (suite.get("tests"), suite.get("failures")) == ("1", "1")


def test_a_successor_that_fails(lab, service, resource):
    drill = Drill(lab, service, "--rounds", "1", "--json", job=WAITS + "[ ! -e fail ]", check="rm go", name=resource)
    drill.until_frozen()
    (drill.folder / "fail").touch()
    drill.go_on()
    status, output = drill.end()
    a_round, = json.loads(output)["rounds"]
    assert (status, a_round["result"], a_round["successor"]["status"], a_round["first"]["status"], a_round["check"]["status"]) == (1, "successor-failed", 1, 1, 0)


@pytest.mark.slow
def test_a_first_one_that_does_not_end(lab, service, resource):
    """It runs alone for ten seconds; then its supervisor is continued, which kills it."""
    job = WAITS + "[ ! -e frozen ] || { [ ! -e passed ] || while :; do sleep 0.02; done; touch passed; }"
    drill = Drill(lab, service, "--rounds", "1", "--json", job=job, check="rm go", name=resource)
    below = drill.until_frozen()
    (drill.folder / "frozen").touch()
    drill.go_on()
    status, output = drill.end()
    a_round, = json.loads(output)["rounds"]
    assert (status, a_round["result"], a_round["first"]["killed"], a_round["first"]["status"], a_round["successor"]["killed"]) == (0, "held", True, 137, False)
    assert not any(process_state(pid) for pid in below)


def test_the_job_runs_as_under_run(lab, service, resource):
    """Its environment, no input, and its output on stderr; the check has no lock."""
    job = WAITS + 'cat; env | grep ^REDLOCK_ | sort | sed "s/=[0-9a-f]\\{16,\\}$/=/"; echo; [ "$(cut -d " " -f 5 /proc/$$/stat)" = $$ ]'
    check = "rm -f go; [ -z $REDLOCK_FENCE ] && ! cat | grep ."
    drill = Drill(lab, service, "--rounds", "1", job=job, check=check, name=resource)
    drill.go_on()
    assert drill.end()[0] == 0
    said = f"REDLOCK_FENCE=\nREDLOCK_HELD={resource}\nREDLOCK_RESOURCE={resource}\nREDLOCK_TOKEN=\n\n"
    assert drill.job_said() == said * 3


def test_processes_that_left_the_group_are_stopped_too(lab, service, resource):
    job = "setsid sh -c 'echo $$ >daemon; until [ -e go ]; do sleep 0.02; done' & " + WAITS + "wait"
    drill = Drill(lab, service, "--rounds", "1", "--at", "1s", job=job, check="rm go daemon", name=resource)
    below = drill.until_frozen()
    daemon = drill.folder / "daemon"
    assert not daemon.exists() or int(daemon.read_text()) in below  # it does not exist where the job took a second for its first line
    drill.go_on()
    assert drill.end()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_no_process_behind(lab, service, resource, number):
    """With a first one that is stopped, and a successor that runs and does not obey SIGTERM."""
    drill = Drill(lab, service, "--rounds", "1", "--junit", "report.xml", job="trap '' TERM; (" + WAITS + ") & " + WAITS, check="rm -f go", name=resource)
    first = drill.until_frozen()
    wait_until(lambda: len(set(children_of(drill.process.pid)) - set(first)) >= 3, 30, "a successor")
    below = children_of(drill.process.pid)
    drill.process.send_signal(number)
    assert drill.end()[0] == -number
    for pid in below:
        if number == signal.SIGKILL:
            until_dead(pid)
        else:
            assert process_state(pid) is None
    wait_until(lambda: is_free(service, resource), what="a free lock")
    if number != signal.SIGKILL:
        suite = xml.etree.ElementTree.parse(drill.folder / "report.xml").getroot()
        assert (suite.get("errors"), suite.findall("testcase")[-1].find("error").get("message")) == ("1", f"the drill was cut short, with status {128 + number}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_while_the_check_runs(lab, service, resource, number):
    drill = Drill(lab, service, job="true", check="setsid sh -c 'trap \"\" TERM; echo $$ >checking; while :; do sleep 0.02; done'; true", name=resource)
    pid = wait_until(lambda: (drill.folder / "checking").exists() and (drill.folder / "checking").read_text().strip(), what="the check")
    drill.process.send_signal(number)
    assert drill.end()[0] == -number
    if number == signal.SIGKILL:
        until_dead(pid)
    assert process_state(pid) is None


def test_what_a_check_leaves_is_ended(lab, service, resource):
    drill = Drill(lab, service, "--rounds", "1", "--at", "1h", job="true", check="setsid sh -c 'echo $$ >left; while :; do sleep 0.02; done' & until [ -s left ]; do sleep 0.02; done", name=resource)
    assert drill.end()[0] == 1
    assert process_state((drill.folder / "left").read_text().strip()) is None


def test_processes_that_are_not_its_own_are_left_alone(service, resource, tmp_path):
    """A child that the drill found when it was started by exec."""
    script = 'sleep 1000 & echo $! >helper; exec "$@"'
    done = subprocess.run([*DIES_WITH_US, "sh", "-c", script, "sh", BINARY, "drill", resource, "--rounds", "1", "--at", "1h", "--check", "true", "--", "true"], cwd=tmp_path,
                          env=clean_environment({"REDLOCKCTL_SERVER": url(service)}), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    helper = int((tmp_path / "helper").read_text())
    assert done.returncode == 1 and process_state(helper) == "S"
    os.kill(helper, signal.SIGKILL)


def test_a_server_that_dies(lab, resource):
    masters = lab.service(3)
    drill = Drill(lab, masters, "--rounds", "1", "--junit", "report.xml", job=UNSAFE, name=resource)
    below = drill.until_frozen()
    masters.kill()
    assert drill.end()[0] == UNREACHABLE and re.search("cannot connect|Connection reset by peer|closed the connection", drill.errors.read_text())
    assert not any(process_state(pid) for pid in below)


def test_nothing_runs_without_the_lock(lab, service, resource, tmp_path):
    """A held lock, a server that is away, a key without the right, an enclosing run."""
    def drill(name, *options, **how):
        return ctl("drill", name, *options, "--check", "true", "--", "touch", str(tmp_path / "ran"), **how)
    service.acquire(resource, owner="worker-7")
    done = drill(resource, "--json", "--junit", str(tmp_path / "report.xml"), server=service)
    assert (done.returncode, json.loads(done.stdout)["code"]) == (HELD, "locked") and "held by worker-7" in done.stderr
    assert [case.get("name") for case in xml.etree.ElementTree.parse(tmp_path / "report.xml").iter("testcase")] == ["drill"]
    done = drill("a", server="unix:/nowhere")
    assert done.returncode == UNREACHABLE and "cannot connect" in done.stderr
    done = drill("inner", server=service, env={"REDLOCK_HELD": "outer\ninner"})
    assert done.returncode == HELD and "enclosing" in done.stderr
    keyed = Keyed(lab, [Key("reader", ["x"], ["inspect"]), Key("blind", ["x"], ["acquire"])]).wait_ready()
    key = tmp_path / "key"
    for name in ("reader", "blind"):
        key.write_text(keyed.keys[name].secret)
        key.chmod(0o600)
        done = drill("x1", "--key-file", str(key), server=keyed.redlockd)
        assert done.returncode == FORBIDDEN and done.stderr, name
    assert not (tmp_path / "ran").exists()


def test_a_job_that_does_not_exist_and_bad_options(service, resource, tmp_path):
    done = ctl("drill", resource, "--check", "true", "--", "/nowhere/job", server=service)
    assert done.returncode == NOT_FOUND and "/nowhere/job" in done.stderr
    for option, says in (("--junit=/nowhere/x", "--junit '/nowhere/x': "), ("--rounds=0", "--rounds=0: too low"), ("--wait=5s", "drill has no option --wait")):
        done = ctl("drill", resource, option, "--check", "true", "--", "touch", str(tmp_path / "ran"), server=service)
        assert done.returncode == USAGE and done.stderr.startswith(f"redlockctl: {says}")
    assert not list(tmp_path.iterdir())
