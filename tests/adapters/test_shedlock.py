# SPDX-License-Identifier: MIT
"""The adapter for ShedLock: ShedLock's own cases, what a job learns of its lock, and the example of the README as two instances."""

import os
import re
import select
import signal
import subprocess

import pytest

from harness import DIES_WITH_US, ROOT, clean_environment, end_process, patience, wait_until

ADAPTER = ROOT / "clients" / "adapters" / "shedlock"
BUILT = ROOT / "build" / "shedlock"  # by build_adapter_shedlock of tests/dev/clients.sh
JAVA = [*DIES_WITH_US, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]
HOUR = 3600_000
TTL = 10_000  # of LockDriver.java
CASES = 15  # of ShedLock


def class_path(part, *more):
    folders = [BUILT / part / name for name in ("classes", *more)]
    return ":".join([*map(str, folders), (BUILT / part / "class-path").read_text("utf-8")])


def test_the_cases_of_shedlock(service):
    done = subprocess.run([*JAVA, class_path("adapter", "test-classes"), "org.junit.platform.console.ConsoleLauncher", "execute",
                           "--disable-banner", "--disable-ansi-colors", "--details=tree", "--select-class=io.github.redlockd.shedlock.ProviderCasesTest"],
                          env=clean_environment({"REDLOCKD_ADDRESS": service.address}), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=patience(120), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\[ *(\d+) tests successful", done.stdout)[1] == str(CASES), done.stdout


class Instance:
    """A program with the provider and one thread, that does what each line says."""

    def __init__(self, *services):
        self.process = subprocess.Popen([*JAVA, class_path("adapter", "test-classes"), "io.github.redlockd.shedlock.LockDriver",
                                         *(f"http://{service.address}" for service in services)],
                                        env=clean_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, *words):
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()
        assert select.select([self.process.stdout], [], [], patience(60))[0], f"no answer to {words}"
        return self.process.stdout.readline().decode().rstrip()

    def lock(self, name, at_most=HOUR, at_least=0):
        return self.ask("lock", name, at_most, at_least)

    def extend(self, name, at_most=HOUR, at_least=0):
        return self.ask("extend", name, at_most, at_least)

    def unlock(self, name):
        return self.ask("unlock", name)

    def check(self):
        return self.ask("check", "-")

    def kill(self):
        end_process(self.process)
        self.process.stdout.close()
        self.process.stdin.close()


def state(service, name):
    return service.curl("GET", f"/locks?resource=jobs/{name}").json


def wait_free(service, name):
    wait_until(lambda: not state(service, name)["held"], what=f"{name} is free")


def force(service, name):
    assert service.curl("DELETE", f"/locks/jobs/{name}?force=true").status == 204


@pytest.fixture(scope="session")
def instances(service):
    started = [Instance(service), Instance(service)]
    yield started
    for instance in started:
        instance.kill()


@pytest.fixture
def one(instances):
    return instances[0]


@pytest.fixture
def other(instances):
    return instances[1]


def test_a_job_has_the_lease_of_its_lock(service, one, other):
    assert one.lock("lease") == "ok"
    assert one.check() == f"ok {state(service, 'lease')['fence']}"
    assert other.lock("lease") == "empty"
    assert other.check().startswith("error IllegalStateException - this thread holds no lock")
    assert one.unlock("lease") == "ok"
    assert one.check().startswith("error IllegalStateException - this thread holds no lock")
    assert (other.lock("lease"), other.unlock("lease")) == ("ok", "ok")


def test_nested_locks(service, one):
    assert (one.lock("outer"), one.lock("inner")) == ("ok", "ok")
    assert one.check() == f"ok {state(service, 'inner')['fence']}"
    assert one.unlock("inner") == "ok"
    assert one.check() == f"ok {state(service, 'outer')['fence']}"
    assert one.unlock("outer") == "ok"


def test_the_lease_is_as_short_as_the_ttl(service, one):
    """Or as lockAtMostFor, and as long as lockAtLeastFor: a crash frees the lock after it."""
    for name, at_most, at_least, ttl in (("long", HOUR, 0, TTL), ("short", 5000, 0, 5000), ("kept", HOUR, 50_000, 50_000)):
        assert one.lock(name, at_most, at_least) == "ok"
        assert ttl - 4000 < state(service, name)["remaining_ms"] <= ttl
        one.unlock(name)


def test_at_most(service, one, other):
    assert one.lock("most", at_most=300) == "ok"
    wait_free(service, "most")
    assert one.check().startswith("error LockLost")
    assert other.lock("most") == "ok"
    assert one.unlock("most") == "ok", "as with other providers"
    assert state(service, "most")["held"], "it is the other's"
    assert other.unlock("most") == "ok"


def test_at_least(service, one, other):
    assert one.lock("least", at_least=9000) == "ok"
    assert one.unlock("least") == "ok"
    assert state(service, "least")["kept"]
    assert other.lock("least") == "empty"


def test_at_least_longer_than_any_lease(one):
    said = one.lock("too-long", at_least=61_000)
    assert re.match(r"error LockException InvalidRequest lock too-long: lockAtLeastFor is PT1M1S, .* --max-ttl-ms", said), said


def test_an_extension(service, one, other):
    assert (one.lock("extend"), one.extend("extend", at_least=9000)) == ("ok", "ok")
    assert one.check().startswith("ok ")
    said = one.extend("extend", at_least=TTL + 1)
    assert said.startswith("error IllegalArgumentException - lock extend: lockAtLeastFor of an extension"), said
    assert one.unlock("extend") == "ok"
    assert state(service, "extend")["kept"]
    assert other.lock("extend") == "empty"


def test_an_extension_moves_the_end(service, one):
    assert (one.lock("moved"), one.extend("moved", at_most=300)) == ("ok", "ok")
    wait_free(service, "moved")
    assert one.extend("moved") == "empty"


def test_a_lock_that_is_lost(service, one):
    """By force, which its next renewal tells."""
    assert one.lock("lost") == "ok"
    force(service, "lost")
    wait_until(lambda: one.check().startswith("error LockLost"), what="the loss")
    said = one.unlock("lost")
    assert said.startswith("error LockException LockLost lock lost was lost before its job ended: another instance may have run"), said
    assert one.lock("lost") == "ok"
    force(service, "lost")
    wait_until(lambda: one.check().startswith("error LockLost"), what="the loss")
    assert one.extend("lost") == "empty"


def test_a_name_that_redlockd_refuses(one):
    said = one.lock("..")
    assert said.startswith("error LockException InvalidRequest lock ..: "), said


def test_masters_that_are_killed(lab):
    """One: the lock is renewed. Two: nobody knows whether a lock is free, so no job runs."""
    service = lab.service(3)
    one, other = (lab.keep(Instance(service)) for _ in range(2))
    assert one.lock("killed") == "ok"
    service.masters[0].kill()
    service.wait_voting(2)
    left = state(service, "killed")["remaining_ms"]
    wait_until(lambda: state(service, "killed")["remaining_ms"] > left, what="a renewal")
    assert one.check().startswith("ok ")
    assert other.lock("killed") == "empty"
    assert (one.unlock("killed"), other.lock("killed"), other.unlock("killed")) == ("ok", "ok", "ok")
    service.masters[1].kill()
    service.wait_voting(1)
    said = one.lock("killed")
    assert said.startswith("error LockException NoQuorum lock killed: "), said


def test_no_redlockd(lab):
    service = lab.service(1)
    one = lab.keep(Instance(service))
    service.stop()
    said = one.lock("away")
    assert said.startswith("error LockException NoAnswer lock away: "), said


# ------------------------------------------------------------------------------------------------- the example


class Application:
    """An instance of the example."""

    def __init__(self, lab, service, folder):
        self.log = open(os.path.join(lab.folder, f"application-{len(lab.started)}"), "w+b")
        self.process = subprocess.Popen([*JAVA, class_path("example"), "example.ReportApplication", f"--report.folder={folder}", "--report.pause=50ms",
                                         f"--redlockd.servers=http://{service.address}", "--redlockd.ttl=4s"],
                                        env=clean_environment(), stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)

    def kill(self):
        end_process(self.process)
        self.log.seek(0)
        print(self.log.read().decode())
        self.log.close()


def runs(folder):
    """What the instances wrote: (begin or end, number of the run, fence, pid)."""
    lines = [line.split() for line in (folder / "runs").read_text("utf-8").splitlines()]
    return [(what, *map(int, numbers)) for what, *numbers in lines]


def refused(service, pid):
    """How often this instance found the lock held."""
    return 0


def test_two_instances_of_the_example(lab, tmp_path):
    service = lab.service(3)
    (tmp_path / "runs").touch()
    applications = [lab.keep(Application(lab, service, tmp_path)) for _ in range(2)]
    seen = set()
    for run in range(6):
        wait_until(lambda: len(runs(tmp_path)) == 2 * run + 1, 60, f"run {run} begins")
        seen.add(runs(tmp_path)[-1][3])
        (tmp_path / f"go-{run}").touch()
    wait_until(lambda: len(runs(tmp_path)) >= 13, 60, "run 6 begins")
    holder = runs(tmp_path)[-1][3]
    killed = next(one for one in applications if one.process.pid == holder)
    service.masters[0].kill()
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait()
    assert state(service, "daily") is not None
    wait_until(lambda: len(runs(tmp_path)) == 14, 60, "the other instance takes over")
