# SPDX-License-Identifier: MIT
"""The commands in docs/how-to/docker.md. There is no Docker here: `docker run` is carried out on the image that was built, `docker build` and `docker compose` are
held against the Dockerfile and the compose files, and all other commands are run as they stand."""

import itertools
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

import harness
from certificates import Authority
from harness import wait_until
from test_dev_image import LOCALHOST, variables, wait_granted
from compose_world import COMPOSE_FILE, VERSION_BUILT, World, read_compose

ROOT = harness.ROOT
USER = 64801
TEXT = (ROOT / "docs/how-to/docker.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```\n", TEXT, re.M | re.S)
CLOSED = re.search(r"reads this -->\n```yaml\n(.*?)```", TEXT, re.S)[1]
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")
UP = {"-d", "--build", "--wait"}
RUN_FLAGS = {"-d", "--rm", "--read-only"}


def block(beginning):
    found, = [one for one in BLOCKS if one.startswith(beginning)]
    return found


def commands(*beginning):
    """Those of all blocks that begin with these words, as lists of words, behind the variables that are set for them."""
    found = []
    for line in "".join(BLOCKS).replace("\\\n", " ").splitlines():
        words = shlex.split(line)
        variables_set = list(itertools.takewhile(lambda word: re.match(r"[A-Z_]+=", word), words))
        rest = words[len(variables_set):]
        if rest[:len(beginning)] == list(beginning):
            found.append((variables_set, rest[len(beginning):]))
    return found


def test_each_command_is_looked_at():
    """So that a new one is not forgotten here."""
    looked_at = [commands("docker", "build"), commands("docker", "run"), commands("docker", "compose")]
    others = [one for one in BLOCKS if not one.startswith("docker") and "docker compose" not in one]
    assert [len(one) for one in looked_at] == [2, 2, 3] and others == [block("curl"), block("mkdir secrets")]


def test_docker_build():
    stages = re.findall(r"^FROM \S+ AS (\w[\w-]*)$", DOCKERFILE, re.M)
    tags = set()
    for _, words in commands("docker", "build"):
        options, context = dict(zip(words[:-1:2], words[1:-1:2])), words[-1]
        assert context == "." and (ROOT / options.pop("-f")).samefile(ROOT / "docker/Dockerfile")
        assert options.pop("--target", stages[0]) in stages
        assert options.pop("--build-arg", "REVISION=").startswith("REVISION=") and "ARG REVISION" in DOCKERFILE
        tags.add(options.pop("-t"))
        assert not options
    assert tags == {"redlockd:dev", f"redlockd:{VERSION_BUILT}"}


def test_docker_compose(tmp_path):
    """`up` with files that are there and variables that they read."""
    for variables_set, words in commands("docker", "compose"):
        if words[0] == "-f":
            assert (ROOT / words[1]).samefile(COMPOSE_FILE)
            words = words[2:]
        assert words[0] == "up" and set(words[1:]) <= UP, words
        for one in variables_set:
            assert "${%s" % one.split("=")[0] in COMPOSE_FILE.read_text()
    files, = re.findall(r"^export COMPOSE_FILE=(\S+)$", "".join(BLOCKS), re.M)
    assert files == "docker/compose.yaml:docker/closed.yaml" and "`docker/closed.yaml`" in TEXT
    (tmp_path / "closed.yaml").write_text(CLOSED)
    assert isinstance(read_compose(COMPOSE_FILE, tmp_path / "closed.yaml"), dict)


def docker_run(image_name):
    """[variables], [options of redlockd], whether the root is read-only."""
    (_, words), = [one for one in commands("docker", "run") if image_name in one[1]]
    at = words.index(image_name)
    options, environment, i = words[:at], {}, 0
    while i < len(options):
        if options[i] in RUN_FLAGS:
            i += 1
            continue
        if options[i] == "-e":
            environment.update([options[i + 1].split("=", 1)])
        else:
            assert options[i] in {"-p", "--name", "--cap-drop", "--security-opt", "--restart", "--stop-timeout"}, options[i]
        i += 2
    assert [port for port in words if port.endswith("8080:8080")]
    return environment, words[at + 1:], "--read-only" in options


def test_try_it(world, dev_image, dev_settings):
    """The first commands of the page: the container, then the requests as they stand."""
    environment, options, read_only = docker_run("redlockd:dev")
    assert not read_only
    command = world.contain(dev_image, dev_settings, *dev_settings["Entrypoint"], *options, access="rw")
    world.start("redlockd-1", command, {**variables(dev_settings), **environment})
    wait_granted(world, "ready")
    done = world.run("bash", "-ec", block("curl"))
    assert done.returncode == 0 and '"token":"' in done.stdout and '"held":true' in done.stdout, done


def test_run_with_your_masters(world, image, settings):
    environment, options, read_only = docker_run(f"redlockd:{VERSION_BUILT}")
    assert read_only and "redis://10.0.0.1," in environment["REDLOCKD_MASTERS"]
    world.start_masters()
    environment["REDLOCKD_MASTERS"] = ",".join(f"redis://{name}" for name in world.names("master-")[:3])
    command = world.contain(image, settings, *settings["Entrypoint"], *options)
    world.start("redlockd-1", command, {**environment, "REDLOCKD_BOOTSTRAP": "true"})
    world.wait_voting("redlockd-1", 3, headers=LOCALHOST)
    wait_granted(world, "with-masters")


def make_secrets(folder, authority):
    """By the commands of the page, beside a certificate; the owner is set here where sudo is not there."""
    certificate = authority.issue("locks.example", "DNS:redlockd-1")
    shutil.copy(certificate.certificate, folder / "server.pem")
    shutil.copy(certificate.key, folder / "server-key.pem")
    programs = f"{pathlib.Path(harness.BINARY).parent}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-ec", 'sudo() { "$@"; }\n' + block("mkdir secrets")], cwd=folder, env={"PATH": programs}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return (folder / "billing.key").read_text().strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed for the owner of the secrets")
def test_let_others_in(lab, image, settings, tmp_path):
    """The secrets and the override of the page, run from the image: TLS and keys outside, the health check on the loopback inside."""
    (tmp_path / "closed.yaml").write_text(CLOSED)
    project = read_compose(COMPOSE_FILE, tmp_path / "closed.yaml")
    assert isinstance(project, dict), project
    for name in ("redlockd-1", "redlockd-2"):
        service = project["services"][name]
        assert not [option for option in service["command"] if "insecure" in option] and "REDLOCKD_MASTERS" not in service["environment"]
        assert [(one["target"], one["read_only"]) for one in service["volumes"]] == [("/run/secrets", True)] and service["read_only"]
    world = lab.keep(World(lab.folder, project))
    run = world.folder / "run"
    run.mkdir()
    run.chmod(0o755)
    authority = Authority(lab.folder)
    secret = make_secrets(run, authority)
    (run / "secrets").chmod(0o755)
    for name in world.names("master-"):
        world.start_master(name)
    service = world.start_container(image, settings, "redlockd-1", env={"REDLOCKD_BOOTSTRAP": "true"}, run=run)
    seen = {"REDLOCKCTL_SERVER": world.environment("redlockd-1")["REDLOCKCTL_SERVER"]}
    check = settings["Healthcheck"]["Test"][1:]

    def health(*options, env=None):
        return world.run(*world.contain(image, settings, *check, *options), env=env).returncode
    wait_until(lambda: health("--ready", env=seen) == 0, 30, "ready")
    command = harness.curl_command("https://redlockd-1:8080", "POST", "/locks", "--cacert", authority.certificate, "--write-out", "%{http_code}",
                                   body={"resource": "billing/1", "ttl_ms": 1000}, headers={"Authorization": f"Bearer {secret}"})
    done = world.run(*command)
    assert done.stdout.endswith("201"), done
    assert health() != 0  # not where HTTPS is
    assert secret not in service.text()
