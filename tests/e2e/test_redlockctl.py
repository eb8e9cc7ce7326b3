"""redlockctl: the commands that ask and end, bad input, the man page. `run` is tested in test_redlockctl_*.py."""

import json
import os
import pathlib
import re
import socket
import subprocess

import pytest

import harness
from ctl import BINARY, LOST, USAGE, ctl, is_free, url
from harness import DIES_WITH_US, SLOW, clean_environment


def test_acquire_extend_release(lab, service, resource):
    path = os.path.join(lab.folder, "token")
    lease = json.loads(ctl("acquire", resource, "--owner", "me", "--json", server=service).stdout)
    assert lease["resource"] == resource and 0 < lease["validity_ms"] < 30000 and lease["owner"] == "me"
    again = ctl("extend", resource, "--ttl", "20s", "--json", server=service, env={"REDLOCK_TOKEN": lease["token"]})
    assert json.loads(again.stdout)["fence"] == lease["fence"] and lease["token"] not in again.stdout + again.stderr
    assert ctl("release", resource, "--token-file", "-", server=service, stdin=lease["token"] + "\n").returncode == 0
    again = ctl("release", resource, "--json", server=service, env={"REDLOCK_TOKEN": lease["token"]})
    assert (again.returncode, json.loads(again.stdout)["code"]) == (LOST, "lease-expired")
    done = ctl("acquire", resource, "--token-file", path, server=service)
    assert done.returncode == 0 and pathlib.Path(path).read_text().strip() not in done.stdout
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert ctl("release", resource, "--token", pathlib.Path(path).read_text().strip(), server=service).returncode == 0
    assert is_free(service, resource)


def test_status_list_masters(service, resource):
    assert ctl("status", resource, server=service).stdout == f"{resource}: free\n"
    service.acquire(resource, owner="me")
    assert ctl("status", resource, server=service).stdout.startswith(f"{resource}: held by me for ")
    assert json.loads(ctl("status", resource, "--json", server=service).stdout)["held"] is True
    listed = json.loads(ctl("list", "--prefix", resource, "--json", server=service).stdout)
    assert [lock["resource"] for lock in listed["locks"]] == [resource]
    assert resource in ctl("list", server=service).stdout
    assert json.loads(ctl("masters", "--json", server=service).stdout)["quorum"]["voting"] == 3
    assert "3 of 3 may vote" in ctl("masters", server=service).stdout


def test_strange_names(service):
    for name in ("a/..b", "...", "a//b", "a b%20?x=1#y", "ü/é", "-n"):
        lease = json.loads(ctl("acquire", "--json", "--", name, server=service).stdout)
        assert lease["resource"] == name
        assert ctl("release", "--", name, server=service, env={"REDLOCK_TOKEN": lease["token"]}).returncode == 0


def test_server_refuses_the_ttl(service, resource):
    done = ctl("acquire", resource, "--ttl", "2h", server=service)
    assert done.returncode == USAGE and "--ttl 2h is over the longest lease" in done.stderr


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_lease_that_nobody_reads_is_released(service, resource, options):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*DIES_WITH_US, "env", "--default-signal", BINARY, "acquire", resource, *options], env=clean_environment({"REDLOCKCTL_SERVER": url(service)}),
                          stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=20 * SLOW, check=False)
    os.close(writing)
    assert done.returncode == 71 and done.stderr == "redlockctl: stdout: Broken pipe\n"
    assert is_free(service, resource)


@pytest.mark.parametrize("args, named", [
    ([], "command"), (["fly"], "fly"), (["status"], "NAME"), (["status", "a", "b"], "one NAME"), (["status", "redlockd:a"], "NAME"), (["status", ""], "NAME"),
    (["list", "a"], "NAME"), (["acquire", "a", "--ttl", "5x"], "--ttl=5x"), (["acquire", "a", "--ttl=1d"], "--ttl"), (["acquire", "a", "--ttl"], "--ttl"),
    (["acquire", "a", "--wait", "1s", "--no-wait"], "--no-wait"), (["acquire", "a", "--json=1"], "--json"), (["acquire", "a", "--owner", "x\n"], "--owner"),
    (["acquire", "a", "-E", "256"], "--conflict-exit-code"), (["acquire", "a", "--nope"], "--nope"), (["acquire", "a", "--server", "ftp://x:1"], "--server"),
    (["acquire", "a", "--server", "http://x"], "port"), (["status", "a", "--ttl", "1s"], "--ttl"), (["release", "a"], "REDLOCK_TOKEN"), (["status", "a", "--key", "x"], "--cert"),
    (["status", "a", "--key-file", "/nowhere"], "/nowhere"), (["status", "a", "--cacert", "/nowhere"], "/nowhere"), (["key"], "new or hash"), (["key", "old"], "new or hash"),
    (["key", "new", "--right", "root"], "--right=root"), (["key", "new", "-s", "http://x:1"], "--server"), (["status", "a", "--server", "https://x"], "port"),
    (["health", "a"], "NAME"), (["masters", "--ready"], "--ready"), (["health", "--key", "x"], "--cert"),
    (["release", "a", "--token", "deadbeef"], "--token"), (["release", "a", "--token-file", "/nowhere"], "--token-file"), (["run", "a"], "command"),
    (["run", "a", "--"], "command"), (["run", "a", "--ttl", "10ms", "--", "true"], "--ttl"),
    (["run", "a", "--ttl", "30s", "--kill-after", "20s", "--", "true"], "--kill-after"), (["run", "a", "--token", "x", "--", "true"], "--token"),
])
def test_bad_input(args, named):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        done = ctl(*args, server=f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert (done.returncode, done.stdout) == (USAGE, "")
        assert named in done.stderr and done.stderr.count("\n") == 1 and "deadbeef" not in done.stderr
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_man_page():
    page = pathlib.Path(harness.ROOT, "man", "redlockctl.1")
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    text = page.read_text()
    options = set(re.findall(r"--([a-z][a-z-]+)", ctl("--help").stdout))
    assert len(options) >= 15
    for named in re.finditer(r"^  --([a-z-]+)=[A-Z]+.*\n((?: {8}.*\n)+)", ctl("--help").stdout, re.M):
        item = re.search(rf"^\.It .*Fl -{named[1]} .*\n((?!\.It )(?!\.El).*\n)+", text, re.M)
        default, variable = (re.search(rf"{what}: (\S+)\.\n", named[2]) for what in ("Default", "Variable"))
        assert item and (not default or default[1] in item[0] or default[1] in text.partition("ENVIRONMENT")[2]), named[0]
        assert not variable or re.search(rf"^\.It Ev .*\b{variable[1]}\b", text, re.M), named[0]
    for option in options:
        assert re.search(rf"Fl -{option}(?![a-z-])", text), f"the man page lacks --{option}"
        completion = pathlib.Path(harness.ROOT, "cli", "completion", "_redlockctl").read_text()
        assert re.search(rf"--{option}(?![a-z-])", completion), f"the completion of zsh lacks --{option}"
