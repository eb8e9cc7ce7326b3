# SPDX-License-Identifier: MIT
"""redlockctl: the commands that ask and end, bad input, the man page. `run` is tested in test_redlockctl_*.py."""

import json
import os
import pathlib
import re
import subprocess

import pytest

import harness
from ctl import BINARY, LOST, ctl, is_free, url
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


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_lease_that_nobody_reads_is_released(service, resource, options):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*DIES_WITH_US, "env", "--default-signal", BINARY, "acquire", resource, *options], env=clean_environment({"REDLOCKCTL_SERVER": url(service)}),
                          stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=20 * SLOW, check=False)
    os.close(writing)
    assert done.returncode == 71 and done.stderr == "redlockctl: stdout: Broken pipe\n"
    assert is_free(service, resource)


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
