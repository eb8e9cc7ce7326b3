# SPDX-License-Identifier: MIT
"""The target dev of docker/Dockerfile: a lock service without any other service, which ends with all that it started."""

import json
import os
import pathlib
import re
import signal

import pytest

import harness
from harness import children_of, wait_until
from compose_world import number_inside

USER = 64801
SIZE_MAX = 40_000_000  # docs/how-to/docker.md: 34 MB
LOCALHOST = {"Host": "localhost:8080"}  # what a caller names that comes through a published port


def variables(settings):
    return dict(one.split("=", 1) for one in settings["Env"])


def start(world, dev_image, dev_settings, *options, access="rw", run=None, env=None):
    """As `docker run` does: with the variables of the image and a root that may be written, but for what file modes refuse."""
    command = world.contain(dev_image, dev_settings, *dev_settings["Entrypoint"], *options, access=access, run=run)
    return world.start("redlockd-1", command, {**variables(dev_settings), **(env or {})})


def acquire(world, resource):
    return world.curl("redlockd-1", "POST", "/locks", body={"resource": resource, "ttl_ms": 30000}, headers=LOCALHOST)


def wait_granted(world, resource):
    def granted():
        answer = acquire(world, resource)
        return answer if answer is not None and answer.status == 201 else None
    return wait_until(granted, 30, "a lease")


def test_settings_are_those_of_the_image_and_variables(settings, dev_settings):
    assert variables(dev_settings).items() >= {"REDLOCKD_DEV": "true", "REDLOCKD_LISTEN": "0.0.0.0:8080", "REDLOCKD_INSECURE": "true",
                                               "REDLOCKD_ALLOW_HOST": "localhost"}.items()
    same = ("User", "Entrypoint", "Cmd", "ExposedPorts", "StopSignal", "Healthcheck", "Volumes", "Labels")
    assert {name: dev_settings[name] for name in same} == {name: settings[name] for name in same}


def test_what_is_in_it(image, dev_image):
    """All that is in the image, a server, and a place for its sockets."""
    def files(root):
        return {str(path.relative_to(root)) for path in root.rglob("*")}
    more = files(dev_image) - files(image)
    assert not files(image) - files(dev_image)
    assert {"tmp", "usr/bin/valkey-server", "usr/bin/valkey-check-rdb", "usr/share/doc/valkey-tools/copyright", "var/lib/dpkg/status.d/valkey-tools"} <= more
    assert (dev_image / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert sorted(os.listdir(dev_image / "usr" / "bin")) == ["redlockctl", "redlockd", "valkey-check-rdb", "valkey-server"]
    sbom = json.loads((dev_image / "usr/share/redlockd/sbom.cdx.json").read_text())
    listed = {file["name"] for component in sbom["components"] for file in component.get("components", [])}
    assert {"/usr/bin/valkey-check-rdb", "/usr/share/doc/valkey-tools/copyright"} <= listed
    assert listed == {f"/{name}" for name in files(dev_image) if (dev_image / name).is_file() and not (dev_image / name).is_symlink()
                      and not name.startswith(("usr/share/redlockd/", "var/lib/dpkg/status.d/"))}
    size = sum(path.lstat().st_size for path in dev_image.rglob("*"))
    print(f"{size} bytes")
    assert size < SIZE_MAX


def test_it_works_alone_and_ends_whole(world, dev_image, dev_settings):
    service = start(world, dev_image, dev_settings)
    lease = wait_granted(world, "orders/42").json
    assert acquire(world, "orders/42").json["code"] == "locked"
    masters = world.wait_voting("redlockd-1", 3, headers=LOCALHOST)["masters"]
    assert [one["warnings"] for one in masters] == [[]] * 3
    check = world.contain(dev_image, dev_settings, *dev_settings["Healthcheck"]["Test"][1:])
    wait_until(lambda: world.run(*check).returncode == 0, 30, "healthy")

    redlockd = service.inner
    below = children_of(redlockd)
    assert number_inside(redlockd) == 1 and len(below) == 4, "one supervisor, three servers"
    for pid in [redlockd, *below]:
        assert f"\nUid:\t{USER}\t" in pathlib.Path(f"/proc/{pid}/status").read_text()
    assert "--insecure" in service.text() and lease["token"] not in service.text()

    service.signal(signal.SIGTERM)
    assert service.wait() == 0, service.text()
    wait_until(lambda: not [pid for pid in below if number_inside(pid) is not None], 20, "its servers have ended")
    assert world.curl("redlockd-1", "GET", "/healthz") is None


def test_options_override_the_variables(world, dev_image, dev_settings):
    start(world, dev_image, dev_settings, "--dev=1", "--min-ttl-ms=31000", "--default-ttl-ms=31000")
    assert len(world.wait_voting("redlockd-1", 1, headers=LOCALHOST)["masters"]) == 1
    assert acquire(world, "too-short").status == 400


def test_with_a_read_only_root_it_takes_another_folder(world, dev_image, dev_settings):
    """Where --tmpfs /tmp is: here /run, since that can be written."""
    run = world.folder / "run"
    run.mkdir()
    os.chown(run, USER, USER)
    refused = start(world, dev_image, dev_settings, access="ro")
    assert refused.wait() != 0 and "--dev cannot make a folder below /tmp" in refused.text(), refused.text()
    command = world.contain(dev_image, dev_settings, *dev_settings["Entrypoint"], run=run)
    world.start("redlockd-1", [part.replace("mount -o remount,bind,ro \"$root/$one\"", ":") for part in command], {**variables(dev_settings), "TMPDIR": "/run"})
    wait_granted(world, "read-only")


@pytest.mark.parametrize("host, status", [("localhost:8080", 200), ("127.0.0.1:8080", 200), ("192.0.2.7:8080", 200), ("evil.example", 403)])
def test_a_page_with_a_name_of_its_own_does_not_get_in(world, dev_image, dev_settings, host, status):
    start(world, dev_image, dev_settings, "--dev=1")
    wait_granted(world, "any")
    assert world.curl("redlockd-1", "GET", "/masters", headers={"Host": host}).status == status


def test_what_it_prints_can_be_pasted(world):
    """The program that was built, as the image starts it: nobody can call 0.0.0.0, and the page is open to those that name localhost."""
    command = [harness.BINARY, "--dev", "--listen=0.0.0.0:8080", "--insecure", "--allow-host=localhost"]
    service = world.start("redlockd-1", command, {"TMPDIR": str(world.folder)})
    world.wait_voting("redlockd-1", 3, headers=LOCALHOST)
    printed = wait_until(lambda: service.text() if "Ctrl-C" in service.text() else None, 20, "the first steps")
    commands = re.findall(r"^  curl -i (.*)$", printed, re.M)
    assert len(commands) == 3 and "The status page: http://localhost:8080/\n" in printed
    done = [world.run("sh", "-c", f"curl -sSi --noproxy '*' {one}") for one in commands]
    assert [one.stdout.split()[1] for one in done] == ["201", "200", "200"], done
    assert "--insecure: whoever reaches this address may take and break locks" in printed
