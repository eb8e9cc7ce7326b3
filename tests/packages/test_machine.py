# SPDX-License-Identifier: MIT
"""The Debian package on a Debian that runs: installed, configured, started, upgraded, removed and purged under its own systemd, with the sandbox of the unit.

The machine lives in namespaces (machine.sh) over a tree that is made once (tree.sh), and forgets all. The tests go on where the one before has stopped, so
they run in this order and in one process."""

import json
import pathlib
import re
import subprocess

import pytest

import installed
from harness import DIES_WITH_US, ROOT, children_of, end_process, wait_until

HERE = pathlib.Path(__file__).resolve().parent
TREE = ROOT / "build" / "machine"
# Beside what the package depends on, which is there before, so that it installs without a network: redis-server for masters, man, curl.
PACKAGES = "systemd systemd-sysv dbus redis-server man-db curl".split()
NAMESPACES = ["--mount", "--pid", "--fork", "--kill-child", "--cgroup", "--uts", "--ipc", "--net"]
PORTS = (7001, 7002, 7003)
APT = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "-q")


class Machine:
    def __init__(self, folder, files):
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            command = ["unshare", *NAMESPACES, HERE / "machine.sh", TREE, *files]
            self.process = subprocess.Popen([*DIES_WITH_US, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def enter(self, *command, **options):
        first = children_of(self.process.pid)[0]
        inside = ["nsenter", "--target", str(first), "--mount", "--pid", "--cgroup", "--uts", "--ipc", "--net", "--root", "--wd", "env", "-i", "HOME=/root",
                  "LC_ALL=C.UTF-8", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *command]
        return subprocess.run([*DIES_WITH_US, *inside], **{"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "check": False, **options})

    def run(self, *command, status=0):
        done = self.enter(*command)
        assert status is None or done.returncode == status, (command, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout.strip()

    def sh(self, script, status=0):
        return self.run("sh", "-c", script, status=status)

    def has_booted(self):
        if self.process.poll() is not None:
            return True
        return bool(children_of(self.process.pid)) and self.enter("systemctl", "is-active", "multi-user.target").stdout.strip() == "active"

    def show(self, *names):
        return [self.run("systemctl", "show", "--value", "-p", name, "redlockd") for name in names]

    def kill(self):
        end_process(self.process)


def dependencies(package):
    """The names of what it depends on, of alternatives the first."""
    depends = subprocess.run(["dpkg-deb", "-f", package, "Depends"], capture_output=True, text=True, check=True).stdout
    return sorted(re.match(r"[\w.+-]+", part.strip())[0] for part in depends.split(","))


def newer(package, folder):
    """The same package with a higher version."""
    subprocess.run(["dpkg-deb", "--raw-extract", package, folder / "newer"], check=True)
    control = folder / "newer" / "DEBIAN" / "control"
    control.write_text(re.sub(r"^(Version: .*)$", r"\1+newer", control.read_text(), flags=re.M))
    path = folder / "redlockd-newer.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", folder / "newer", path], check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def machine(package, tmp_path_factory):
    tree = subprocess.run([HERE / "tree.sh", TREE, *PACKAGES, *dependencies(package)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if tree.returncode == 77:
        pytest.skip("no Debian: " + tree.stdout.strip().splitlines()[-1])
    assert tree.returncode == 0, tree.stdout + tree.stderr
    folder = tmp_path_factory.mktemp("machine")
    copy = folder / "redlockd.deb"
    copy.write_bytes(package.read_bytes())
    started = Machine(folder, [copy, newer(package, folder)])
    try:
        wait_until(started.has_booted, 60, "it boots")
        if started.process.poll() == 77:
            pytest.skip("no machine: " + started.log.read_text().strip().splitlines()[-1])
        assert started.process.poll() is None, started.log.read_text()[-3000:]
        yield started
    finally:
        started.kill()


def answers(machine, path):
    return machine.enter("curl", "-s", f"http://127.0.0.1:8080{path}").stdout


def test_it_installs_and_does_not_start_yet(machine):
    machine.everything_before = set(machine.sh("find /etc /usr /var/lib/systemd /lib/systemd -xdev | sort").splitlines())
    machine.run(*APT, "install", "/root/redlockd.deb")
    assert re.fullmatch(r"redlockd:x:\d+:\d+:[^:]*:/:/usr/sbin/nologin", machine.run("getent", "passwd", "redlockd"))
    assert machine.run("systemctl", "is-enabled", "redlockd") == "enabled"
    assert machine.show("ActiveState", "ConditionResult") == ["inactive", "no"]
    assert machine.run("systemctl", "--failed", "--no-legend") == ""
    assert "masters was not met" in machine.run("systemctl", "status", "--no-pager", "redlockd", status=3)


def test_the_files_have_their_modes(machine):
    names = ["etc/redlockd/masters", *installed.of_package()]
    found = machine.run("stat", "-c", "%U:%G %a %n", *[f"/{name}" for name in sorted(names)]).splitlines()
    modes = {**installed.of_package(), "etc/redlockd/masters": 0o600}
    assert found == [f"root:root {modes[name]:o} /{name}" for name in sorted(names)]
    assert machine.run("dpkg", "--verify", "redlockd") == ""


def test_the_manual_pages_can_be_read(machine):
    assert "REDLOCKD(8)" in machine.sh("MANPAGER=cat man 8 redlockd | head -1")
    assert "--max-ttl-ms" in machine.sh("MANPAGER=cat man redlockd | col -b 2>/dev/null || MANPAGER=cat man redlockd")
    assert "REDLOCKCTL(1)" in machine.sh("MANPAGER=cat man redlockctl | head -1")


def test_systemd_finds_no_mistake(machine):
    done = machine.enter("systemd-analyze", "--no-pager", "verify", "redlockd.service")
    assert (done.returncode, [line for line in (done.stdout + done.stderr).splitlines() if "redlockd" in line]) == (0, [])


def test_one_edit_and_it_serves(machine):
    for port in PORTS:
        machine.sh(f"redis-server --port {port} --daemonize yes --save '' --dir /tmp")
    machine.sh("echo '%s' >/etc/redlockd/masters" % " ".join(f"redis://127.0.0.1:{port}" for port in PORTS))
    machine.run("systemctl", "start", "redlockd")
    assert machine.show("ActiveState", "User") == ["active", "redlockd"]
    assert machine.run("stat", "-c", "%U:%G %a", "/etc/redlockd/masters") == "root:root 600"

    def states():
        return [master["state"] for master in json.loads(answers(machine, "/masters"))["masters"]]
    wait_until(lambda: states() == ["quarantined"] * 3, 30, "it waits until old leases are over")


def test_other_options_are_a_file_and_a_restart(machine):
    machine.sh("""echo '{"listen": ["127.0.0.1:8080", "unix:/run/redlockd/http.sock"], "bootstrap": true}' >/etc/redlockd/redlockd.json""")
    machine.run("systemctl", "restart", "redlockd")
    wait_until(lambda: '"ready"' in answers(machine, "/readyz"), 30, "its masters vote")
    assert "3 of 3 masters voting" in machine.show("StatusText")[0]
    assert machine.run("redlockctl", "run", "nightly", "--", "printenv", "REDLOCK_RESOURCE") == "nightly"
    assert machine.run("redlockctl", "--version").split()[1:] == machine.run("redlockd", "--version").split()[1:]


def test_reload(machine):
    before = machine.show("MainPID")
    machine.sh("echo '{\"keys\": []}' >/etc/redlockd/keys.json; chgrp redlockd /etc/redlockd/keys.json; chmod 640 /etc/redlockd/keys.json")
    machine.run("systemctl", "reload", "redlockd")
    assert machine.show("MainPID", "ActiveState") == [*before, "active"]


def test_an_upgrade_restarts_it_and_keeps_the_configuration(machine):
    before = machine.show("MainPID")
    was = machine.sh("cat /etc/redlockd/masters /etc/redlockd/redlockd.json")
    machine.run("dpkg", "--install", "/root/redlockd-newer.deb")
    assert "+newer" in machine.run("dpkg-query", "-W", "-f", "${Version}", "redlockd")
    assert machine.show("ActiveState") == ["active"] and machine.show("MainPID") != before
    assert machine.sh("cat /etc/redlockd/masters /etc/redlockd/redlockd.json") == was
    wait_until(lambda: '"ready"' in answers(machine, "/readyz"), 30, "its masters vote")


def test_an_upgrade_leaves_it_disabled(machine):
    machine.run("systemctl", "disable", "--now", "redlockd")
    machine.run("dpkg", "--install", "/root/redlockd.deb")
    assert machine.run("systemctl", "is-enabled", "redlockd", status=1) == "disabled"
    assert machine.show("ActiveState") == ["inactive"]
    machine.run("systemctl", "enable", "--now", "redlockd")


def test_removed_it_is_stopped_and_the_configuration_stays(machine):
    machine.run(*APT, "remove", "redlockd")
    assert machine.show("ActiveState") == ["inactive"]
    assert machine.sh("ls /etc/redlockd").split() == ["keys.json", "masters", "redlockd.json"]
    machine.run(*APT, "install", "/root/redlockd.deb")
    assert machine.show("ActiveState") == ["active"]


def test_purged_it_leaves_what_is_not_its_own(machine):
    machine.run(*APT, "purge", "redlockd")
    assert machine.sh("ls /etc/redlockd").split() == ["keys.json"]
    assert machine.run("getent", "group", "redlockd"), "keys.json belongs to it"


def test_purged_it_leaves_nothing(machine):
    machine.run(*APT, "install", "/root/redlockd.deb")
    machine.run("rm", "/etc/redlockd/keys.json")
    machine.run(*APT, "purge", "redlockd")
    machine.run("getent", "passwd", "redlockd", status=2)
    machine.run("getent", "group", "redlockd", status=2)
    after = set(machine.sh("find /etc /usr /var/lib/systemd /lib/systemd -xdev | sort").splitlines())
    backups = {"/etc/passwd-", "/etc/shadow-", "/etc/group-", "/etc/gshadow-", "/etc/.pwd.lock"}
    assert after - machine.everything_before - backups == set()
    assert machine.run("systemctl", "--failed", "--no-legend") == ""
