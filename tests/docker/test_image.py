# SPDX-License-Identifier: MIT
"""The image of docker/Dockerfile: what is in it, and that it runs as containers are run: read-only, as its own user, without capabilities, as process 1."""

import os
import pathlib
import re
import signal
import stat
import subprocess

import pytest

import harness
from harness import wait_until
from compose_world import VERSION_BUILT

USER = 64801
SIZE_MAX = 32_000_000  # docs/how-to/docker.md: 25 MB
UNREACHABLE = 69


# -------------------------------------------------------------------------------------------- what is in it


def test_settings(settings):
    assert settings["User"] == f"{USER}:{USER}"  # by number, for runAsNonRoot
    assert settings["Entrypoint"] == ["/usr/bin/redlockd"] and not settings["Cmd"]
    assert list(settings["ExposedPorts"]) == ["8080/tcp"]
    assert settings["StopSignal"] == "SIGTERM"
    assert settings["Healthcheck"]["Test"] == ["CMD", "/usr/bin/redlockctl", "health"]
    assert settings["Healthcheck"]["Timeout"] == 3_000_000_000  # above the 2 s that redlockctl health takes at most
    assert not settings["Volumes"]
    assert [one.partition("=")[0] for one in settings["Env"]] == ["PATH"]


def test_labels(settings):
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in settings["Labels"].items()}
    assert labels["version"] == VERSION_BUILT and labels["revision"] == "0123456789ab" and labels["licenses"] == "MIT" and labels["title"] == "redlockd"
    assert {"source", "description"} <= set(labels)


def test_size(image):
    size = sum(path.lstat().st_size for path in image.rglob("*"))
    print(f"{size} bytes")
    assert 10_000_000 < size < SIZE_MAX


def test_no_shell_and_nothing_to_run_but_ours(image):
    """The two programs are all that can be run, besides the loader."""
    programs = [path.relative_to(image) for path in image.rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o111]
    others = {str(path) for path in programs} - {"usr/bin/redlockd", "usr/bin/redlockctl"}
    assert all(re.search(r"/(ld-linux-[\w-]+|lib\w+)\.so(\.\d+)*$", path) for path in others), others
    assert sorted(os.listdir(image / "usr" / "bin")) == ["redlockctl", "redlockd"]


def test_nothing_is_setuid_or_writable(image):
    for path in image.rglob("*"):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            continue
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode), path
        assert not mode & (stat.S_ISUID | stat.S_ISGID), path
        assert not mode & 0o022, f"{path} can be written"
        assert path.lstat().st_uid == 0 and path.lstat().st_gid == 0, path
        assert "security.capability" not in os.listxattr(path), path


def test_no_links_to_nowhere(image):
    for path in image.rglob("*"):
        if path.is_symlink():
            target = os.readlink(path)
            lands = image / target[1:] if target.startswith("/") else path.parent / target
            assert lands.exists(), f"{path} -> {target}"


def test_no_secrets_and_no_sources(image):
    """Neither keys nor what the programs were built from."""
    for path in image.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert path.suffix not in {".key", ".c", ".h", ".lua", ".a", ".debug"} and path.name != ".git", path
            content = path.read_bytes()
            assert content[:4] == b"\x7fELF" or b"PRIVATE KEY-----" not in content, path


def test_what_goes_to_the_builder():
    """A file that is not on the list does not get into the image."""
    rules = [line for line in (harness.ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert rules[0] == "*" and all(rule.startswith("!") and "*" not in rule for rule in rules[1:])
    assert not {"!build", "!tests", "!.git", "!docs", "!."} & set(rules)


def test_users(image):
    accounts = {line.split(":")[0]: line.split(":") for line in (image / "etc" / "passwd").read_text().splitlines()}
    assert set(accounts) == {"root", "redlockd"} and accounts["redlockd"][2:4] == [str(USER), str(USER)]
    assert f"redlockd:x:{USER}:" in (image / "etc" / "group").read_text()


def test_programs_are_stripped_and_whole(image):
    for name in ("redlockd", "redlockctl"):
        sections = subprocess.run(["readelf", "--sections", "--wide", image / "usr" / "bin" / name], capture_output=True, text=True, check=True).stdout
        assert ".debug_info" not in sections and ".symtab" not in sections and ".dynsym" in sections


def run_inside(world, image, settings, *command, env=None):
    return world.run(*world.contain(image, settings, *command), env=env)


def test_versions(world, image, settings):
    for program in ("redlockd", "redlockctl"):
        done = run_inside(world, image, settings, f"/usr/bin/{program}", "--version")
        assert (done.returncode, done.stdout.strip()) == (0, f"{program} {VERSION_BUILT} (0123456789ab)"), done


def test_tls_trusts_the_authorities_in_it(world, image, settings):
    """OpenSSL (rediss://) and libcurl look where they are: a name that nobody answers to is another error than authorities that cannot be read."""
    done = run_inside(world, image, settings, "/usr/bin/redlockctl", "health", "--server", "https://127.0.0.1:1")
    assert done.returncode == UNREACHABLE and "refused" in done.stderr, done
    assert (image / "usr/lib/ssl/cert.pem").is_symlink()
    assert (image / "etc/ssl/certs/ca-certificates.crt").read_text().count("BEGIN CERTIFICATE") > 100


# -------------------------------------------------------------------------------------------------- it runs


def status_of(pid):
    return dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def health(world, image, settings, *options):
    """The health check as it stands in the image."""
    return run_inside(world, image, settings, *settings["Healthcheck"]["Test"][1:], *options).returncode


def test_it_needs_to_be_told_where_its_masters_are(world, image, settings):
    service = world.start_container(image, settings, "redlockd-1", options=[], env={"REDLOCKD_MASTERS": None})
    assert service.wait() == 2 and "--masters" in service.text()


def test_without_a_word_it_listens_on_loopback_alone(world, image, settings):
    """The default of the image: it serves only loopback until callers are configured."""
    service = world.start_container(image, settings, "redlockd-1", options=["--log-format=json"])
    wait_until(lambda: service.lines("listening"), 20, "it listens")
    assert [line["address"] for line in service.lines("listening")] == ["127.0.0.1:8080"]
    assert world.curl("redlockd-1", "GET", "/healthz") is None
    assert health(world, image, settings) == 0
    refused = world.start_container(image, settings, "redlockd-2", options=["--listen=0.0.0.0:8080"])
    assert refused.wait() == 2 and "--insecure" in refused.text()


def test_as_compose_runs_it(world, image, settings):
    """A lease taken, extended and released over five real masters; healthy; drained by SIGTERM, and unhealthy after that."""
    world.start_masters()
    assert health(world, image, settings) == UNREACHABLE
    service = world.start_container(image, settings, "redlockd-1", env={"REDLOCKD_BOOTSTRAP": "true"})
    masters = world.wait_voting("redlockd-1", 5)["masters"]
    assert [master["warnings"] for master in masters] == [[]] * 5
    assert (health(world, image, settings), health(world, image, settings, "--ready")) == (0, 0)

    told = status_of(service.inner)
    assert told["Uid"].split() == told["Gid"].split() == [str(USER)] * 4 and not told["Groups"].split()
    assert int(told["CapEff"], 16) == int(told["CapPrm"], 16) == int(told["CapAmb"], 16) == 0 and told["NoNewPrivs"] == "1"
    assert told["NSpid"].split()[-1] == "1"
    mounts = [line.split() for line in pathlib.Path(f"/proc/{service.inner}/mounts").read_text().splitlines()]
    root = [fields for fields in mounts if fields[1] == "/"][-1]
    assert "ro" in root[3].split(","), root
    opened = {os.readlink(file) for file in pathlib.Path(f"/proc/{service.inner}/fd").iterdir()}
    assert {name for name in opened if name.startswith("/")} == {"/dev/null", str(service.log)}, opened

    first = world.curl("redlockd-1", "POST", "/locks", body={"resource": "orders/42", "ttl_ms": 30000})
    assert first.status == 201, first
    again = world.curl("redlockd-1", "PUT", "/locks/orders/42", body={"token": first.json["token"], "ttl_ms": 20000})
    assert again.status == 200 and again.json["fence"] == first.json["fence"]
    assert world.curl("redlockd-1", "POST", "/locks", body={"resource": "orders/42", "ttl_ms": 30000}).status == 409

    service.signal(signal.SIGTERM)
    wait_until(lambda: world.curl("redlockd-1", "GET", "/readyz").status == 503, what="draining")
    assert world.curl("redlockd-1", "POST", "/locks", body={"resource": "orders/43", "ttl_ms": 30000}).json["code"] == "draining"
    assert world.curl("redlockd-1", "DELETE", "/locks/orders/42", body={"token": first.json["token"]}).status == 204
    assert service.wait() == 0, service.text()
    assert health(world, image, settings) == UNREACHABLE


def test_one_that_hangs_is_unhealthy(world, image, settings):
    service = world.start_container(image, settings, "redlockd-1")
    wait_until(lambda: health(world, image, settings) == 0, 20, "healthy")
    assert health(world, image, settings, "--ready") == UNREACHABLE  # there are no masters
    service.signal(signal.SIGSTOP)
    assert health(world, image, settings) == UNREACHABLE


@pytest.mark.parametrize("mode, owner", [(0o444, (0, 0)), (0o440, (0, 0)), (0o600, (0, USER))])
def test_secrets_that_others_may_read_or_it_may_not(world, image, settings, mode, owner):
    """Such a start fails at once, and says why."""
    run = world.folder / "run"
    run.mkdir()
    run.chmod(0o755)
    (run / "masters").write_text("redis://:geheim@master-1\n")
    os.chown(run / "masters", *owner)
    (run / "masters").chmod(mode)
    service = world.start_container(image, settings, "redlockd-1", options=["--masters-file=/run/masters"], env={"REDLOCKD_MASTERS": None}, run=run)
    assert service.wait() == 2 and "/run/masters" in service.text() and "geheim" not in service.text(), service.text()
