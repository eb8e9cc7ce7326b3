# SPDX-License-Identifier: MIT
"""clients/adapters/gocron: schedulers on several machines."""

import re
import zipfile

import pytest

from go_adapters import FOLDER, Machine, build, check_sources, one_at_a_time, own_tests, run, url_of
from harness import ROOT, SLOW, wait_until

TTL = f"{round(8000 * SLOW)}ms"


@pytest.fixture(scope="module")
def program():
    return build("gocron")


def scheduler(lab, program, kind, *daemons, ttl=TTL):
    machine = Machine(lab, program, {"REDLOCKD_SCHEDULER": kind, "REDLOCKD_SERVERS": ",".join(map(url_of, daemons)), "REDLOCKD_TTL": ttl})
    machine.expect("started")
    return machine


def ran(machines, job):
    """Tells all machines to run a job at once. Returns the fence of the only one that does so, and its place in the list."""
    for machine in machines:
        machine.tell(f"run {job}")
    said = [machine.line() for machine in machines]
    runs = [(int(line.split()[2]), place) for place, line in enumerate(said) if line.startswith(f"ran {job} ")]
    assert len(runs) == 1 and sum(line.startswith("skipped") for line in said) == len(machines) - 1, said
    return runs[0]


def taken_over(service, machines, fence):
    """Waits until another machine leads. Returns its fence, and its place in the list."""
    wait_until(lambda: service.curl("GET", "/locks/scheduler").json.get("fence", 0) > fence, 60, "another leader")
    while True:
        for machine in machines:
            machine.tell("run probe")  # the scheduler hears a moment later that it leads
        said = [machine.line() for machine in machines]
        if said != ["skipped"] * len(machines):
            return ran(machines, "job/later")


def test_sources():
    check_sources("gocron")


def test_the_packages_of_the_adapters(tmp_path):
    """A new program gets the adapter and the library from the folder of a proxy, as the README says, and the framework from that of this machine."""
    with one_at_a_time():
        run("sh", "-euc", ". tests/dev/clients.sh && package_client_go", cwd=ROOT)
    proxy = ROOT / "build/package/clients/go"
    for adapter in ("gocron", "client-go"):
        module = f"github.com/OWNER/redlockd/clients/adapters/{adapter}"
        version, = (proxy / module.replace("OWNER", "!o!w!n!e!r") / "@v").glob("*.zip")
        names = zipfile.ZipFile(version).namelist()
        assert set(names) == {f"{module}@{version.stem}/{path.name}" for path in (FOLDER / adapter).iterdir()}
        said = re.search(r"`GONOSUMDB=(\S+) GOPROXY=file://CLONE/(\S+),\$\(go env GOPROXY\) (go get \S+)`", (FOLDER / adapter / "README.md").read_text("utf-8"))
        assert said.groups() == ("github.com/OWNER/redlockd", "build/package/clients/go", f"go get {module}@{version.stem}")
    fetched, cache = run("go", "env", "GOMODCACHE", "GOCACHE", cwd=ROOT).split()
    environment = {"HOME": str(tmp_path), "GOPATH": str(tmp_path / "go"), "GOFLAGS": "-mod=mod -modcacherw", "GOSUMDB": "off", "GOCACHE": cache,
                   "GOPROXY": f"file://{proxy},file://{fetched}/cache/download"}
    (tmp_path / "main.go").write_text('package main\n\nimport lock "github.com/OWNER/redlockd/clients/adapters/gocron"\n\nfunc main() { println(lock.ErrNotLeader.Error()) }\n')
    run("go", "mod", "init", "program", cwd=tmp_path, environment=environment)
    run("go", "get", "github.com/OWNER/redlockd/clients/adapters/gocron@v0.1.0", cwd=tmp_path, environment=environment)
    assert run("go", "run", ".", cwd=tmp_path, environment=environment) == "redlockd: not the leader\n"


def test_its_own_tests(program, service):
    assert len(own_tests(program, url_of(service))) >= 6


def test_each_job_runs_once(lab, program):
    """On one of two machines, each with a redlockd of its own; a master is killed under way."""
    masters = lab.redises(3)
    daemons = [lab.redlockd(masters) for _ in range(2)]
    machines = [scheduler(lab, program, "locker", daemon, *daemons, ttl="60s") for daemon in daemons]
    for turn in range(12):
        if turn == 6:
            masters[0].kill()
        fence, _ = ran(machines, f"job/{turn}")
        assert fence > 0
    for machine in machines:
        machine.tell("end")
        assert (machine.wait(), machine.line()) == (0, None)


def test_a_machine_that_crashes(lab, program):
    """Nobody else runs its job before its lease is over, and then another one does."""
    service = lab.service(3)
    first, second = (scheduler(lab, program, "locker", service) for _ in range(2))
    first.tell("run hold/on")
    fence = int(first.expect("ran hold/on"))
    second.tell("run hold/on")
    second.expect("skipped")
    first.process.kill()
    wait_until(lambda: not service.curl("GET", "/locks/jobs/hold/on").json["held"], 60, "the end of the lease")
    second.tell("run hold/on")
    assert int(second.expect("ran hold/on")) > fence


def test_one_elector(lab, program):
    """Its scheduler runs all jobs. The next one takes over after a crash, and at once after a shutdown; a master is killed under way."""
    service = lab.service(3)
    machines = [scheduler(lab, program, "elector", service) for _ in range(3)]
    fences, leaders = [], []
    for turn in range(4):
        if turn == 2:
            service.masters[0].kill()
        fence, place = ran(machines, f"job/{turn}")
        fences, leaders = [*fences, fence], [*leaders, place]
    assert leaders == [0, 0, 0, 0] and len(set(fences)) == 1
    machines.pop(0).process.kill()
    later, place = taken_over(service, machines, fences[0])
    leader = machines.pop(place)
    leader.tell("end")
    assert leader.wait() == 0
    assert not service.curl("GET", "/locks/scheduler").json.get("kept")
    taken_over(service, machines, later)
