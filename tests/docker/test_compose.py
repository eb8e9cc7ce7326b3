# SPDX-License-Identifier: MIT
"""docker/compose.yaml: read as `docker compose` reads it, and every command line, variable and health check in it tried on real programs."""

import pathlib
import re
import shutil
import signal
import urllib.parse

import pytest

import harness
from harness import wait_until
from compose_world import COMPOSE_FILE, VERSION_BUILT, read_compose

CTL = str(pathlib.Path(harness.BINARY).parent / "redlockctl")


def services(compose, prefix=""):
    return {name: service for name, service in compose["services"].items() if name.startswith(prefix)}


# ------------------------------------------------------------------------------------------------- the file


@pytest.mark.parametrize("old, new, said", [
    ("restart: unless-stopped", "restrat: unless-stopped", "restrat"), ("condition: service_healthy", "condition: healthy", "condition"),
    ("interval: 5s", "interval: soon", "interval"), ("networks: [masters]", "networks: [nowhere]", "nowhere"),
    ("master-1: {condition", "master-9: {condition", "master-9"), ('["master-1:/data"]', '["elsewhere:/data"]', "elsewhere"),
])
def test_mistakes_are_seen(tmp_path, old, new, said):
    """The reader does look: the schema, and what services refer to."""
    text = COMPOSE_FILE.read_text()
    assert old in text
    (tmp_path / "compose.yaml").write_text(text.replace(old, new))
    project = read_compose(tmp_path / "compose.yaml")
    assert isinstance(project, str) and said in project, project


def test_every_container_is_held_down(compose):
    assert len(compose["services"]) == 9
    for name, service in services(compose).items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"] and "cap_add" not in service and "privileged" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] == "unless-stopped" and service["mem_limit"] and service["pids_limit"], name
        assert service["healthcheck"]["test"][0] == "CMD", name  # redlockd's image has no shell
        assert "network_mode" not in service, name


def test_images_are_pinned(compose):
    for name, service in services(compose).items():
        assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+(-alpine)?", service["image"]), f"{name}: {service['image']}"
    assert {service["image"] for service in services(compose, "redlockd-").values()} == {f"redlockd:{VERSION_BUILT}"}
    assert len([1 for service in services(compose, "redlockd-").values() if "build" in service]) == 1


def test_who_can_reach_whom(compose):
    published = set()
    for name, service in services(compose).items():
        for port in service.get("ports", []):
            assert port["host_ip"] == "127.0.0.1", name
            published.add(port["published"])
        wanted = {"masters"} if name.startswith("master-") else {"masters", "callers"} if name.startswith("redlockd-") else {"callers"}
        assert set(service["networks"]) == wanted, name
        assert name.startswith("master-") == ("ports" not in service), name
    assert len(published) == 4
    assert compose["networks"]["masters"]["internal"] is True


def test_volumes(compose):
    """A volume for each master and no other for it; what is mounted from here is there, and read-only."""
    used = [volume for service in services(compose).values() for volume in service.get("volumes", [])]
    named = [volume["source"] for volume in used if volume["type"] == "volume"]
    assert sorted(named) == sorted(set(named)) == sorted(compose["volumes"])
    for name, service in services(compose, "master-").items():
        assert [(volume["source"], volume["target"]) for volume in service["volumes"]] == [(name, "/data")]
    for volume in used:
        if volume["type"] == "bind":
            assert volume["read_only"] is True and pathlib.Path(volume["source"]).exists(), volume
    assert not [name for name in services(compose, "redlockd-") if "volumes" in compose["services"][name] or "tmpfs" in compose["services"][name]]


def test_the_order_of_starting(compose):
    masters = list(services(compose, "master-"))
    assert len(masters) == 5
    for service in services(compose, "redlockd-").values():
        assert {name: one["condition"] for name, one in service["depends_on"].items()} == dict.fromkeys(masters, "service_healthy")
        assert sorted(service["environment"]["REDLOCKD_MASTERS"].replace("redis://", "").split(",")) == sorted(masters)
        assert service["stop_grace_period"] == "15s"  # more than --drain-ms
    assert set(compose["services"]["prometheus"]["depends_on"]) == set(services(compose, "redlockd-"))


def test_prometheus_finds_what_is_there(compose):
    """Its targets are services of the file, on the port that redlockd listens on."""
    text = (COMPOSE_FILE.parent / "prometheus" / "prometheus.yml").read_text()
    assert sorted(re.findall(r"\b(redlockd-\d+):8080", text)) == sorted(services(compose, "redlockd-"))
    for service in services(compose, "redlockd-").values():
        assert "--listen=0.0.0.0:8080" in service["command"] and service["ports"][0]["target"] == 8080


# --------------------------------------------------------------------------------------------- what it runs


def test_both_redlockd_over_the_five_masters(world):
    """One after the other, since they have one network here. The first start says that the masters are new."""
    world.start_masters()
    for name in world.names("master-"):
        assert world.healthy(name, shutil.which("valkey-cli") or shutil.which("redis-cli"), "-h", name) == 0
    for name in world.names("redlockd-"):
        assert world.healthy(name, CTL) != 0
        daemon = world.start_redlockd(name, {"REDLOCKD_BOOTSTRAP": "true"})
        masters = world.wait_voting(name, 5)["masters"]
        assert [master["warnings"] for master in masters] == [[]] * 5, masters
        assert world.curl(name, "GET", "/readyz").status == 200
        assert world.healthy(name, CTL) == 0
        assert world.curl(name, "POST", "/locks", body={"resource": name, "ttl_ms": 30000}).status == 201
        daemon.signal(signal.SIGINT)
        assert daemon.wait() == 0, daemon.text()
        assert not daemon.lines("insecure") or world.compose["services"][name]["command"][1] == "--insecure"


@pytest.mark.parametrize("host,status", [("evil.example", 403), ("evil.example:8080", 403), ("redlockd-2:8080", 200), ("localhost:8080", 200), ("192.0.2.1", 200)])
def test_a_page_with_a_name_of_its_own_does_not_get_in(world, host, status):
    """DNS rebinding: its name is made to point to a port that is published on this machine, where redlockd sees no loopback address."""
    world.start_redlockd("redlockd-1")
    assert wait_until(lambda: world.curl("redlockd-1", "GET", "/healthz")).status == 200
    assert world.curl("redlockd-1", "GET", "/masters", headers={"Host": host}).status == status


def test_redlockd_is_told_to_be_insecure(world):
    """Without it the command line would be refused: it listens beyond loopback."""
    command = world.compose["services"]["redlockd-1"]["command"]
    daemon = world.start("refused", [harness.BINARY, *[option for option in command if option != "--insecure"]], world.environment("redlockd-1"))
    assert daemon.wait() == 2 and "--insecure" in daemon.text(), daemon.text()


def test_nobody_has_said_that_the_masters_are_new(world):
    """Without REDLOCKD_BOOTSTRAP the first start waits out the longest lease; the health check is content meanwhile, so that `up --wait` ends."""
    world.start_masters()
    daemon = world.start_redlockd("redlockd-1")
    states = world.wait_quarantined("redlockd-1", "no-epoch")
    assert all(0 < one["quarantine_remaining_ms"] <= 63000 for one in states)
    assert world.curl("redlockd-1", "GET", "/readyz").status == 503
    assert world.healthy("redlockd-1", CTL) == 0
    daemon.signal(signal.SIGINT)
    assert daemon.wait() == 0


def acquired(world, resource):
    """A lease, or None where masters did not answer in time, as on a busy machine."""
    answer = world.curl("redlockd-1", "POST", "/locks", body={"resource": resource, "ttl_ms": 30000})
    assert answer.status in (201, 503), answer
    return answer.json if answer.status == 201 else None


def test_the_fences_outlast_all_masters(world):
    """The volumes keep the epochs. All masters are killed at once and come back: quarantined as restarted, not as new
    ones, and with the numbers that they had."""
    masters = world.start_masters()
    daemon = world.start_redlockd("redlockd-1", {"REDLOCKD_BOOTSTRAP": "true"})
    world.wait_voting("redlockd-1", 5)
    lease = wait_until(lambda: acquired(world, "kept"), 20, "a majority answers in time")
    before = {name: world.cli(name, "HGETALL", "redlockd:master") for name in world.names("master-")}
    assert sum(str(lease["fence"]) in numbers for numbers in before.values()) >= 3, before
    daemon.signal(signal.SIGINT)
    assert daemon.wait() == 0
    wait_until(lambda: all("aof_pending_bio_fsync:0" in world.cli(name, "INFO", "persistence") for name in before), 20, "what was written is with the disk")
    before = {name: world.cli(name, "HGETALL", "redlockd:master") for name in before}
    for master in masters:
        master.kill()
    world.start_masters()
    assert {name: world.cli(name, "HGETALL", "redlockd:master") for name in before} == before
    world.start_redlockd("redlockd-2")
    world.wait_quarantined("redlockd-2", "restarted")


def test_prometheus_takes_its_command_line(world):
    """With the configuration as it is mounted; its health check, and that it scrapes what the compose file calls redlockd-1."""
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus here")
    world.start_redlockd("redlockd-1")
    service = world.compose["services"]["prometheus"]
    targets = {volume["target"]: volume["source"] for volume in service["volumes"] if volume["type"] == "bind"}
    moved = [("/etc/prometheus", targets["/etc/prometheus"]), ("=/prometheus", f"={world.folder}/prometheus")]
    options = [option.replace(*moved[0]).replace(*moved[1]) for option in service["command"]]
    world.start("prometheus", ["prometheus", *options], cwd=world.folder)
    wait_until(lambda: world.healthy("prometheus", shutil.which("wget")) == 0, 30, "prometheus is healthy")

    def scraped():
        answer = world.curl("prometheus", "GET", "/api/v1/query?query=" + urllib.parse.quote('up{instance="redlockd-1:8080"}'), port=9090)
        return answer is not None and answer.status == 200 and [one["value"][1] for one in answer.json["data"]["result"]] == ["1"]
    wait_until(scraped, 60, "prometheus has scraped redlockd-1")
