# SPDX-License-Identifier: MIT
"""The adapter for ShedLock: ShedLock's own cases, what a job learns of its lock, and the example of the README as two instances."""

import pathlib
import re
import select
import signal
import subprocess
import time
import zipfile

import pytest

from harness import DIES_WITH_US, ROOT, SLOW, clean_environment, end_process, freeze, patience, wait_until

ADAPTER = ROOT / "clients" / "adapters" / "shedlock"
BUILT = ROOT / "build" / "shedlock"  # by build_adapter_shedlock of tests/dev/clients.sh
JAVA = [*DIES_WITH_US, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]
HOUR = 3600_000
TTL = 10_000  # of LockDriver.java
LEASE = round(8000 * SLOW)  # of the example
CASES = 15  # of ShedLock
ESTABLISHED = "01"  # in /proc/net/tcp
SHORT = round(4000 * SLOW)  # a lock is granted earlier, also on a busy machine


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

    def tell(self, *words):
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()

    def answer(self, words):
        assert select.select([self.process.stdout], [], [], patience(120))[0], f"no answer to {words}"
        return self.process.stdout.readline().decode().rstrip()

    def ask(self, *words):
        self.tell(*words)
        return self.answer(words)

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
    return service.curl("GET", f"/locks?resource={name}").json


def wait_free(service, name):
    wait_until(lambda: not state(service, f"jobs/{name}")["held"], what=f"{name} is free")


def lies_unread(service):
    """A request has reached redlockd's socket."""
    ends = f":{int(service.address.rpartition(':')[2]):04X}"
    return any(line.split()[1].endswith(ends) and line.split()[4].split(":")[1] != "00000000"
               for line in pathlib.Path("/proc/net/tcp").read_text("ascii").splitlines()[1:] if line.split()[3] == ESTABLISHED)


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
    assert one.check() == f"ok {state(service, 'jobs/lease')['fence']}"
    assert other.lock("lease") == "empty"
    assert other.check().startswith("error IllegalStateException - this thread holds no lock")
    assert one.unlock("lease") == "ok"
    assert one.check().startswith("error IllegalStateException - this thread holds no lock")
    assert (other.lock("lease"), other.unlock("lease")) == ("ok", "ok")


def test_nested_locks(service, one):
    assert (one.lock("outer"), one.lock("inner")) == ("ok", "ok")
    assert one.check() == f"ok {state(service, 'jobs/inner')['fence']}"
    assert one.unlock("inner") == "ok"
    assert one.check() == f"ok {state(service, 'jobs/outer')['fence']}"
    assert one.unlock("outer") == "ok"


def test_the_lease_is_as_short_as_the_ttl(service, one):
    """Or as lockAtMostFor, and as long as lockAtLeastFor: a crash frees the lock after it."""
    for name, at_most, least, most in (("long", HOUR, 0, TTL), ("short", 6000, 0, 6000), ("kept", HOUR, 50_000, 50_000)):
        assert one.lock(name, at_most, least) == "ok"
        left = state(service, f"jobs/{name}")["remaining_ms"]
        assert left <= most
        assert left > TTL or not least
        one.unlock(name)


def test_at_most(service, one, other):
    assert one.lock("most", at_most=SHORT) == "ok"
    wait_free(service, "most")
    assert one.check().startswith("error LockLost")
    assert other.lock("most") == "ok"
    assert one.unlock("most") == "ok", "as with other providers"
    assert state(service, "jobs/most")["held"], "it is the other's"
    assert other.unlock("most") == "ok"


def test_at_least(service, one, other):
    assert one.lock("least", at_least=40_000) == "ok"
    assert one.unlock("least") == "ok"
    assert state(service, "jobs/least")["kept"]
    assert other.lock("least") == "empty"


def test_at_least_longer_than_any_lease(lab, one):
    """Such as 14 minutes in the README of ShedLock: --max-ttl-ms must allow it."""
    service, minutes = lab.service(1, "--max-ttl-ms=14m"), 14 * 60_000
    allowed = lab.keep(Instance(service))
    assert (allowed.lock("long", minutes, minutes), allowed.unlock("long")) == ("ok", "ok")
    assert state(service, "jobs/long")["kept"]
    said = one.lock("too-long", at_least=61_000)
    assert re.match(r"error LockException InvalidRequest lock too-long: lockAtLeastFor is PT1M1S, .* --max-ttl-ms", said), said


def test_an_extension(service, one, other):
    assert (one.lock("extend"), one.extend("extend", at_least=9000)) == ("ok", "ok")
    assert one.check().startswith("ok ")
    said = one.extend("extend", at_least=TTL + 1)
    assert said.startswith("error IllegalArgumentException - lock extend: lockAtLeastFor of an extension"), said
    assert one.unlock("extend") == "ok"
    assert state(service, "jobs/extend")["kept"]
    assert other.lock("extend") == "empty"


def test_an_extension_moves_the_end(service, one):
    assert (one.lock("moved"), one.extend("moved", at_most=5000)) == ("ok", "ok")
    wait_free(service, "moved")
    assert one.extend("moved") == "empty"


def test_timers_that_are_late(service, lab):
    """The end of lockAtMostFor is told by the clock."""
    one = lab.keep(Instance(service))
    assert (one.ask("block-timers", "-"), one.lock("late-1", at_most=SHORT), one.lock("late-2")) == ("ok", "ok", "ok")
    assert (one.lock("late-3", at_most=SHORT), one.extend("late-2", at_most=SHORT)) == ("ok", "ok")
    asked = time.monotonic()
    wait_until(lambda: time.monotonic() > asked + SHORT / 1000)
    assert one.extend("late-2") == "empty"
    assert not state(service, "jobs/late-2")["held"]
    assert state(service, "jobs/late-3")["held"] and one.unlock("late-3") == "ok"
    assert not state(service, "jobs/late-3")["held"]
    assert one.ask("run-timers", "-") == "ok"
    wait_free(service, "late-1")


def test_a_grant_after_lock_at_most_for(lab):
    """A server that stands still answers when the time of the lock is over already: its job does not run. On a slow
    machine the lease is over, too."""
    service, at_most = lab.service(1), 1500
    one = lab.keep(Instance(service))
    assert (one.lock("first"), one.unlock("first")) == ("ok", "ok")
    freeze(service.process)
    one.tell("lock", "overdue", at_most, 0)
    wait_until(lambda: lies_unread(service), what="the request")  # the time of the lock has begun
    asked = time.monotonic()
    wait_until(lambda: time.monotonic() > asked + at_most / 1000)
    service.process.send_signal(signal.SIGCONT)
    said = one.answer("overdue")
    assert re.match(r"error LockException - lock overdue: .*lockAtMostFor|error LockException NoAnswer", said), said
    assert not state(service, "jobs/overdue")["held"]
    assert one.check().startswith("error IllegalStateException")


def test_a_lock_whose_lease_is_released(one):
    """By the job itself; at SIGTERM the library does so."""
    assert one.lock("released") == "ok"
    assert (one.ask("release", "released"), one.unlock("released")[:28]) == ("ok", "error LockException LockLost")


def test_a_lock_that_is_lost(service, one):
    """By force, which its next renewal tells."""
    for name in ("lost-1", "lost-2", "lost-3"):
        assert one.lock(name) == "ok"
    assert one.extend("lost-2") == "ok"
    for name in ("lost-1", "lost-2", "lost-3"):
        force(service, name)
    for name in ("lost-1", "lost-2", "lost-3"):
        wait_until(lambda: one.ask("lost", name) == "ok", what="the loss")
    assert one.check().startswith("error LockLost")
    for name in ("lost-1", "lost-2"):
        said = one.unlock(name)
        assert said.startswith(f"error LockException LockLost lock {name} was lost before its job ended: another instance may have run"), said
    assert one.extend("lost-3") == "empty"


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
    left = state(service, "jobs/killed")["remaining_ms"]
    wait_until(lambda: state(service, "jobs/killed")["remaining_ms"] > left, what="a renewal")
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
    """An instance of the example, whose job is due each second."""

    def __init__(self, lab, service, folder):
        self.log = pathlib.Path(lab.folder, f"application-{len(lab.started)}")
        command = [*JAVA, class_path("example"), "example.ReportApplication", f"--redlockd.servers=http://{service.address}", f"--redlockd.ttl={LEASE}ms",
                   "--report.cron=* * * * * *", "--report.at-least=0s", f"--report.folder={folder}"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def kill(self):
        end_process(self.process)
        print(self.log.read_text("utf-8", errors="replace"))


class Runs:
    """What the instances wrote."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "runs").touch()

    def lines(self):
        """(begin or end, number of the run, fence, pid) of each."""
        lines = [line.split() for line in (self.folder / "runs").read_text("utf-8").splitlines(keepends=True) if line.endswith("\n")]
        return [(what, *map(int, numbers)) for what, *numbers in lines]

    def wait(self, what, number):
        wait_until(lambda: any(line[:2] == (what, number) for line in self.lines()), 180, f"{what} {number}")
        return self.lines()[-1]

    def finish(self, number):
        (self.folder / f"go-{number}").touch()
        return self.wait("end", number)


def refusals(service):
    return sum(line.get("resource") == "reports/daily" and line["status"] == "409" for line in service.log("request"))


def test_two_instances_of_the_example(lab, tmp_path):
    service, runs = lab.service(3), Runs(tmp_path)
    applications = [lab.keep(Application(lab, service, tmp_path)) for _ in range(2)]
    for number in range(3):
        runs.wait("begin", number)
        before = refusals(service)
        wait_until(lambda: refusals(service) > before, 180, "the other instance, while this one is at work")
        if number == 1:
            service.masters[0].kill()
            left = state(service, "reports/daily")["remaining_ms"]
            wait_until(lambda: state(service, "reports/daily")["remaining_ms"] > left, what="a renewal")
        runs.finish(number)
    victim = runs.wait("begin", 3)
    process = next(one.process for one in applications if one.process.pid == victim[3])
    process.kill()  # with SIGKILL
    process.wait()
    assert state(service, "reports/daily").get("remaining_ms", 0) <= LEASE, "and not lockAtMostFor, which is four hours"
    assert runs.wait("begin", 4)[3] != victim[3]
    runs.finish(4)
    lines = runs.lines()
    assert [line[:2] for line in lines] == [(what, number) for number in range(5) for what in ("begin", "end") if (what, number) != ("end", 3)]
    assert all(len({line[2:] for line in lines if line[1] == number}) == 1 for number in range(5)), lines
    assert [line[2] for line in lines] == sorted(line[2] for line in lines), "the fences grow"


def test_the_package(tmp_path):
    """Its classes and its license, as ./dev package clients makes it; it names the library that it needs."""
    subprocess.run(["sh", "-euc", "mkdir -p build/package/clients; . tests/dev/clients.sh; package_client_shedlock"], cwd=ROOT, check=True, stdin=subprocess.DEVNULL)
    path, = (ROOT / "build/package/clients").glob("redlockd-shedlock-*.jar")
    with zipfile.ZipFile(path) as jar:
        jar.extractall(tmp_path)
    assert (tmp_path / "META-INF/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (tmp_path / "META-INF/maven/io.github.redlockd/redlockd-shedlock/pom.xml").read_bytes() == (ADAPTER / "pom.xml").read_bytes()
    sources = {source.stem for source in (ADAPTER / "src/main").rglob("*.java")}
    assert {made.stem for made in tmp_path.rglob("*.class")} == sources
    assert f"build/package/clients/{path.name}" in (ADAPTER / "README.md").read_text("utf-8")


def test_the_example_is_that_of_the_readme():
    code = (ADAPTER / "example/src/main/java/example/ReportApplication.java").read_text("utf-8")
    readme = (ADAPTER / "README.md").read_text("utf-8")
    assert code.partition("\n@SpringBootApplication")[2] in readme.replace("```\n", "")
    assert len(readme.splitlines()) <= 60
