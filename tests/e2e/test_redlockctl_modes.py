# SPDX-License-Identifier: MIT
"""redlockctl with --shared and --slots."""

import json
import re

from ctl import BINARY, HELD, Run, ctl
from harness import wait_until


def state(service, name):
    return service.curl("GET", f"/locks/{name}").json


def test_shared_leases(service, resource):
    first = json.loads(ctl("acquire", resource, "--shared", "--owner", "a", "--json", server=service).stdout)
    assert first["mode"] == "shared" and "slot" not in first
    assert ctl("acquire", resource, "--shared", "--owner", "b", server=service).returncode == 0
    refused = ctl("acquire", resource, server=service)
    assert refused.returncode == HELD and "held by" in refused.stderr, refused
    status = ctl("status", resource, server=service).stdout
    assert re.search(r"held by 2 holders, [\d.]+ s left\n  shared by a, fence \d+, [\d.]+ s left\n  shared by b,", status), status
    assert re.search(rf"{resource} +2 holders", ctl("list", "--prefix", resource, server=service).stdout)
    assert ctl("extend", resource, server=service, env={"REDLOCK_TOKEN": first["token"]}).returncode == 0
    assert ctl("release", resource, server=service, env={"REDLOCK_TOKEN": first["token"]}).returncode == 0
    assert "held by 1 holder," in ctl("status", resource, server=service).stdout
    assert ctl("release", resource, "--force", server=service).returncode == 0
    assert state(service, resource)["held"] is False


def test_a_shared_set(service, resource):
    names = [f"{resource}-{name}" for name in "ab"]
    one = json.loads(ctl("acquire", names[1], "--shared", "--json", server=service).stdout)
    done = ctl("run", *names, "--shared", "--", BINARY, "status", names[1], server=service)
    assert "held by 2 holders" in done.stdout and f"    lease on  {', '.join(names)}\n" in done.stdout, done
    assert not state(service, names[0])["held"] and state(service, names[1])["holder_count"] == 1
    assert ctl("release", names[1], server=service, env={"REDLOCK_TOKEN": one["token"]}).returncode == 0


def test_a_command_on_a_slot(service, resource):
    leases = [json.loads(ctl("acquire", resource, "--slots", "3", "--json", server=service).stdout) for _ in range(2)]
    free = ({0, 1, 2} - {lease["slot"] for lease in leases}).pop()
    done = ctl("run", resource, "--slots", "3", "--", "sh", "-c", f'echo $REDLOCK_SLOT; {BINARY} acquire "$REDLOCK_RESOURCE" --slots 3; echo $?', server=service)
    assert done.stdout == f"{free}\n{HELD}\n", done
    shown = ctl("acquire", resource, "--slots", "3", server=service).stdout
    assert re.search(rf"^slot      {free}$", shown, re.M), shown
    assert ctl("run", resource, "--shared", "--no-wait", "true", server=service).returncode == HELD
    plain = ctl("run", f"{resource}/plain", "--", "sh", "-c", 'echo "${REDLOCK_SLOT-none}"', server=service, env={"REDLOCK_SLOT": "7"})
    assert plain.stdout == "none\n", plain


def test_a_writer_waits_for_a_reader(lab, service, resource):
    reader = Run(lab, resource, "--shared", command="while [ ! -e over ]; do :; done", servers=[service])
    wait_until(lambda: state(service, resource)["held"])
    writer = Run(lab, resource, command="true", servers=[service])
    wait_until(lambda: state(service, resource)["waiters"] == 1)
    (reader.folder / "over").touch()
    assert writer.process.wait(20) == 0 and reader.process.wait(20) == 0
