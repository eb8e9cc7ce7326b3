# SPDX-License-Identifier: MIT
"""Mistakes at redlockctl, and the whole message and exit status that each gets.

{name} is a name that is free, {held} one that somebody else holds, {http} the address of a redlockd without its scheme, {closed} one at which
nobody listens, {redis} that of a Redis server, {keyed} that of a redlockd that asks for a key, {detail} what redlockd
answers there, {folder} a folder.
"""

import re

import pytest

from ctl import BINARY, ctl
from harness import quote
from key_fixtures import Keyed

TOKEN = "5f2b1c7d9e8a4f60b3d2c1e0f9a8b7c6d5e4f3a2"
LIST = "allowed are those that redlockctl --help lists"
RUNS = "is redlockd running there? --server or REDLOCKCTL_SERVER gives another address"
SERVERS = "allowed are 1 to 16 of host:port, http://host:port, https://host:port or unix:/path"

# what is typed after "redlockctl"; its exit status; its message. Before: variables of the environment. More of the arguments: tests/unit/cli_arguments.txt.
MISTAKES = [
    # words
    ("", 64, "a command is missing; redlockctl --help lists them"),
    # options
    ("acquire {name} --ttl 10m", 64, "{name}: --ttl 10m is over the longest lease of the server: use at most 60s, and extend the lease"),
    ("run {name} --ttl 10m true", 64, "{name}: not acquired: --ttl 10m is over the longest lease of the server: use at most 60s; run renews it anyway"),
    ("acquire {name} --ttl 50ms", 64, "{name}: --ttl 50ms is below the shortest lease of the server: use at least 100ms"),
    ("release {name} --token-file {folder}/none", 64, "--token-file '{folder}/none': No such file or directory"),
    # run
    ("run {name} {folder}/none", 127, "{name}: {folder}/none: No such file or directory"),
    ("run {name} no-such-command", 127, "{name}: command not found: no-such-command"),
    ("run {name} no-such-command|true", 127, "{name}: command not found: no-such-command|true; for shell syntax: sh -c '...'"),
    ("run {name} {folder}", 126, "{name}: {folder}: Permission denied"),
    (f"run {{name}} {BINARY} run {{name}} true", 75, "{name}: not acquired: already held by the enclosing run"),
    # servers
    ("masters -s http://{http}/locks", 64, f"--server, address 1: nothing may follow host and port; {SERVERS}"),
    ("masters -s {closed}", 69, f"{{closed}}: cannot connect: No such file or directory ({RUNS})"),
    ("masters -s {closed} -s {redis}", 69,
     "{closed}: cannot connect: No such file or directory; {redis}: it closed the connection without an answer: is this a port of Redis, or one for https://?"
     f" ({RUNS})"),
    ("masters -s https://{http}", 69, "https://{http}: it does not speak TLS: use http://, or its port with TLS"),
    ("masters -s {keyed}", 77, "{keyed}: {detail} (a key is given with --key-file or REDLOCKCTL_API_KEY, a certificate with --cert)"),
    ("masters --key-file {folder}/none", 64, "--key-file: {folder}/none: No such file or directory"),
    # the environment
    ("REDLOCKCTL_SERVRE=localhost:1 list", 64, f"REDLOCKCTL_SERVRE: unknown variable; did you mean REDLOCKCTL_SERVER?; {LIST}"),
    # locks
    ("run {held} --no-wait true", 75, "{held}: not acquired: held by worker-7 (fence {fence}), lease ends in {left} unless it is extended"),
    ("acquire {held}", 75, "{held}: held by worker-7 (fence {fence}), lease ends in {left} unless it is extended"),
    (f"release {{held}} --token {TOKEN}", 79, "{held}: {detail}"),
    (f"extend {{name}} --token {TOKEN}", 79, "{name}: {detail}"),
]


@pytest.fixture
def world(lab, service, resource):
    held = service.acquire(resource + "-held", owner="worker-7", ttl_ms=50000)
    yield {"name": resource, "held": resource + "-held", "fence": str(held["fence"]), "http": service.address, "closed": f"unix:{lab.folder}/closed", "folder": lab.folder}
    service.release(held)


def start(lab, service, typed, world):
    """The servers that this mistake is about, and what they answer."""
    if "{redis}" in typed:
        world["redis"] = f"127.0.0.1:{lab.redis(tcp=True).port}"
    if "{keyed}" in typed:
        keyed = Keyed(lab, []).redlockd
        world["keyed"] = f"http://{keyed.address}"
        world["detail"] = keyed.curl("GET", "/masters").json["detail"].removesuffix(".")
    if "--token " + TOKEN in typed:
        name, method = (world["held"], "DELETE") if "{held}" in typed else (world["name"], "PUT")
        world["detail"] = service.curl(method, "/locks/" + quote(name), headers={"Lock-Token": TOKEN}, body={"ttl_ms": 30000} if method == "PUT" else None).json["detail"].removesuffix(".")


@pytest.mark.parametrize("typed, status, message", MISTAKES)
def test_mistake(lab, service, world, typed, status, message):
    start(lab, service, typed, world)
    words = [word.format(**world) for word in typed.split()]
    variables = dict(words.pop(0).split("=", 1) for _ in words[:1] if words[0].startswith("REDLOCKCTL_"))
    done = ctl(*words, env={"REDLOCKCTL_SERVER": service.address, **variables})
    said = re.sub(r"\d+\.\d s unless", "{left} unless", done.stderr)
    assert (done.returncode, done.stdout, said) == (status, "", "redlockctl: " + message.replace("{left}", "<left>").format(**world).replace("<left>", "{left}") + "\n")
