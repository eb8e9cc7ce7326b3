# SPDX-License-Identifier: MIT
"""docker/compose.yaml without a container engine: its command lines and variables, its names and its ports, in a network of their own.

A World is a network namespace with no device but lo, and a mount namespace with an /etc/hosts of its own, in which each service of the compose file has
an address: one for documentation (RFC 5737), since redlockd is stricter with those of loopback. So every service can be started with the very command line
that stands in the compose file. All of them share that network: two that listen on 0.0.0.0 with the same port cannot run at once.

Masters are the redis-server (or valkey-server) of this machine. redlockd is the one that was built, or the one in the image: then as a container has it, with
the root of the image, read-only, as the image's user, without capabilities, as process 1 of a process namespace.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import pytest

import harness
from harness import DIES_WITH_US, SLOW, children_of, end_process, wait_until

BUILT = harness.ROOT / "build" / "docker"
COMPOSE_TOOL = harness.ROOT / "build" / "tools" / "compose"
VERSION_BUILT = re.search(r"^project\(redlockd VERSION (\S+)", (harness.ROOT / "CMakeLists.txt").read_text(), re.M).group(1)
COMPOSE_FILE = harness.ROOT / "docker" / "compose.yaml"

PREPARE = '''set -e; hosts=$1; shift
ip link set lo up
for one; do ip address add "$one" dev lo; done
mount --bind "$hosts" /etc/hosts
echo ready
exec sleep infinity'''
# A container: the root of the image under a layer in which mount points are made, as container runtimes do it. "$1": the root, "$2": an empty folder, "$3": a
# folder for /run, "$4": ro or rw, for the root; the command after them runs inside.
CONTAIN = '''set -e; image=$1 layer=$2 run=$3 access=$4; shift 4
mount -t tmpfs tmpfs "$layer"
mkdir "$layer/upper" "$layer/work" "$layer/root"
root=$layer/root
mount -t overlay overlay -o "lowerdir=$image,upperdir=$layer/upper,workdir=$layer/work" "$root"
touch "$root/etc/hosts" "$root/dev/null"
mount --bind /etc/hosts "$root/etc/hosts"
mount --bind /dev/null "$root/dev/null"
mount --bind "$run" "$root/run"
mount -t proc proc "$root/proc"
for one in etc/hosts run; do mount -o remount,bind,ro "$root/$one"; done
mount -o "remount,$access" "$root"
exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+sys_chroot,+setuid,+setgid chroot --userspec="$IMAGE_USER" --groups= "$root" "$@"'''


def read_compose(*files):
    """The whole project as `docker compose` understands the files, or what it says against them."""
    done = subprocess.run([COMPOSE_TOOL, *map(str, files)], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def number_inside(pid):
    """The number of a process in its own process namespace; None if it has ended."""
    try:
        return int(re.search(r"^NSpid:.*\t(\d+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


class Service:
    """One that was started, and how it can be asked. `inner`: the process itself, below those that put it into its namespaces."""

    def __init__(self, world, name, process, log):
        self.world, self.name, self.process, self.log = world, name, process, log

    @property
    def inner(self):
        below = children_of(self.process.pid)
        return ([pid for pid in below if number_inside(pid) == 1] or below or [self.process.pid])[-1]

    def text(self):
        return self.log.read_text(errors="replace")

    def lines(self, event=None):
        parsed = [json.loads(line) for line in self.text().splitlines() if line.startswith("{")]
        return [line for line in parsed if event is None or line["event"] == event]

    def signal(self, number):
        os.kill(self.inner, number)

    def wait(self, seconds=20):
        return self.process.wait(seconds * SLOW)

    def kill(self):
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.inner, signal.SIGKILL)
        end_process(self.process)


class World:
    def __init__(self, folder, compose):
        self.folder, self.compose, self.services = pathlib.Path(folder), compose, []
        self.addresses = {name: f"192.0.2.{number}" for number, name in enumerate(sorted(compose["services"]), 1)}
        hosts = self.folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in self.addresses.items()))
        mapped = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        command = ["unshare", *mapped, "--net", "--mount", "sh", "-c", PREPARE, "sh", str(hosts), *self.addresses.values()]
        self.process = subprocess.Popen([*DIES_WITH_US, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = self.process.stdout.readline()
        if said != "ready\n":
            end_process(self.process)
            self.process.stdout.close()
            pytest.skip(f"no network of our own here: {said.strip()}")
        user = ["--user", "--preserve-credentials"] if mapped else []
        self.enter = [*DIES_WITH_US, "nsenter", f"--target={self.process.pid}", "--net", "--mount", *user, "--"]

    def kill(self):
        for service in self.services:
            service.kill()
            said = [line for line in service.text().splitlines() if '"event":"request"' not in line]
            print(f"--- {service.name}", *said[-60:], sep="\n")
        end_process(self.process)
        self.process.stdout.close()

    # ---- running

    def run(self, *command, env=None):
        """Runs something to its end in there."""
        return subprocess.run([*self.enter, *command], env=harness.clean_environment(env), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60 * SLOW, check=False)

    def start(self, name, command, env=None, cwd=None):
        log = self.folder / f"{name}.{len(self.services)}.log"
        with open(log, "wb") as out:
            process = subprocess.Popen([*self.enter, *command], env=harness.clean_environment(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        service = Service(self, name, process, log)
        self.services.append(service)
        return service

    def curl(self, name, method, path, body=None, headers=None, port=8080):
        """One request to a service; None where it does not answer."""
        command = harness.curl_command(f"{name}:{port}", method, path, "--write-out", "\n%{http_code}", body=body, headers=headers)
        done = self.run(*command)
        if done.returncode != 0:
            return None
        content, _, status = done.stdout.rpartition("\n")
        return harness.Response(int(status), {}, content.encode(), 0)

    # ---- what stands in the compose file

    def names(self, prefix):
        return sorted(name for name in self.compose["services"] if name.startswith(prefix))

    def healthy(self, name, program, *more):
        """The exit status of the service's own health check, with this machine's program for what is called there. `more`: options before the others; a
        container is alone on its 127.0.0.1, and a master here is not."""
        kind, called, *rest = self.compose["services"][name]["healthcheck"]["test"]
        assert kind == "CMD" and program is not None, called
        return self.run(program, *more, *rest).returncode

    def start_master(self, name, *more):
        """With its command line and more, the address of the service, and the folder that is its volume."""
        program, *options = self.compose["services"][name]["command"]
        assert program == "valkey-server"
        program = shutil.which(program) or shutil.which("redis-server")
        volume = self.folder / f"volume-{name}"
        volume.mkdir(exist_ok=True)
        return self.start(name, [program, *options, *more, "--dir", str(volume), "--bind", self.addresses[name]])

    def start_masters(self):
        started = [self.start_master(name) for name in self.names("master-")]
        for service in started:
            wait_until(lambda one=service: self.cli(one.name, "PING") == "PONG", 20, f"{service.name} answers")
        return started

    def cli(self, name, *command):
        return self.run("redis-cli", "-h", name, *command).stdout.strip()

    def environment(self, name, more=None):
        """That of the service, and more; None takes one away."""
        both = {**self.compose["services"][name].get("environment", {}), **(more or {})}
        return {variable: value for variable, value in both.items() if value is not None}

    def start_redlockd(self, name, env=None):
        """The one that was built."""
        return self.start(name, [harness.BINARY, *self.compose["services"][name]["command"]], self.environment(name, env))

    def contain(self, image, settings, *command, run=None, access="ro"):
        """The command that runs another one as in a container of the image. `access`: rw where the root may be written."""
        if os.geteuid() != 0:
            pytest.skip("root is needed to run the image")
        layer = tempfile.mkdtemp(prefix="layer", dir=self.folder)
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "env", f"IMAGE_USER={settings['User']}", "sh", "-c", CONTAIN, "sh", str(image), layer,
                str(run or image / "run"), access, *command]

    def start_container(self, image, settings, name, env=None, options=None, run=None):
        """The one in the image. `options`: instead of the command in the compose file; `run`: what lies in /run there."""
        command = [*settings["Entrypoint"], *(self.compose["services"][name]["command"] if options is None else options)]
        return self.start(name, self.contain(image, settings, *command, run=run), self.environment(name, env))

    def wait_voting(self, name, count, headers=None):
        def voting():
            answer = self.curl(name, "GET", "/masters", headers=headers)
            return answer is not None and answer.status == 200 and answer.json["quorum"]["voting"] == count and answer.json
        return wait_until(voting, 30, f"{count} masters vote for {name}")

    def wait_quarantined(self, name, code):
        """Until all masters are quarantined for this reason."""
        def quarantined():
            answer = self.curl(name, "GET", "/masters")
            masters = answer.json["masters"] if answer is not None else []
            return masters if {(one["state"], one["reason"] and one["reason"].partition(":")[0]) for one in masters} == {("quarantined", code)} else None
        return wait_until(quarantined, 30, f"all masters quarantined for {name}: {code}")
