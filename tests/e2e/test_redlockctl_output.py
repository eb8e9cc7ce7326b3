# SPDX-License-Identifier: MIT
"""redlockctl: what its commands print for people, with colours on a terminal only, and the help of each command."""

import json
import os
import re

import pytest

from ctl import BINARY, HELD, Shell, ctl
from fake_redlockd import fake  # noqa: F401
from fixtures import needs_pts

COMMANDS = ["run", "drill", "acquire", "extend", "release", "status", "explain", "list", "masters", "health", "key new", "key hash"]


def test_list_is_a_table_by_name(service, resource):
    assert ctl("list", "--prefix", resource, server=service).stdout == "0 locks\n"
    fences = {name: service.acquire(f"{resource}/{name}", owner=owner)["fence"] for name, owner in (("b", "müller"), ("ä", "x"), ("a", "worker-7"))}
    header, *rows, total = ctl("list", "--prefix", resource, server=service).stdout.splitlines()
    assert header.split() == ["RESOURCE", "OWNER", "FENCE", "HELD", "LEFT", "WAITING"] and total == "3 locks"
    assert [row.split()[:3] for row in rows] == [[f"{resource}/{name}", owner, str(fences[name])] for name, owner in (("a", "worker-7"), ("b", "müller"), ("ä", "x"))]
    assert all(re.fullmatch(r".*  ([\d.]+ m?s|-) +\d+\.\d s +0", row) for row in rows)
    assert {row.index(row.split()[2]) for row in rows} == {header.index("FENCE")}, rows  # also below letters of two bytes
    listed = json.loads(ctl("list", "--prefix", resource, "--json", server=service).stdout)
    assert [lock["resource"] for lock in listed["locks"]] == [f"{resource}/{name}" for name in "abä"] and listed["more"] is False
    listed = ctl("list", "--prefix", resource, "--limit", "1", server=service).stdout.splitlines()
    assert len(listed) == 3 and listed[-1] == "1 lock, and there are more"
    listed = ctl("list", "--prefix", resource, "--owner", "müller", server=service).stdout.splitlines()
    assert [row.split()[0] for row in listed[1:-1]] == [f"{resource}/b"] and listed[-1] == "1 lock"


def test_masters_in_columns_and_milliseconds(fake):  # noqa: F811
    """A quarantined master, the longest word for a state, does not shift what follows."""
    rows = [("voting", 500, 1234, None, []), ("quarantined", 65000, 49, "it has restarted", ["maxmemory-policy"]), ("down", 4200000, None, "timeout", [])]
    masters = [{"address": f"redis://m{i}:6379", "state": state, "state_ms": state_ms, "version": "9.8.7", "rtt_us": rtt_us, "reason": reason, "warnings": warnings}
               for i, (state, state_ms, rtt_us, reason, warnings) in enumerate(rows)]
    server = fake(state=lambda call: call.answer(200, {"masters": masters, "quorum": {"masters": 3, "needed": 2, "voting": 1}}))
    assert ctl("masters", server=server).stdout == """\
ADDRESS          STATE        FOR         VERSION  ROUND TRIP  REASON
redis://m0:6379  voting       500 ms      9.8.7    1.2 ms      -
redis://m1:6379  quarantined  1 min 5 s   9.8.7    0.0 ms      it has restarted
    warning: maxmemory-policy
redis://m2:6379  down         1 h 10 min  9.8.7    -           timeout
1 of 3 may vote, 2 are needed
"""


def test_status_as_exit_code(service, resource):
    assert ctl("status", resource, "--exit-code", server=service).returncode == 1
    assert ctl("status", resource, server=service).returncode == 0
    service.acquire(resource)
    assert ctl("status", resource, "--exit-code", server=service).returncode == 0
    assert ctl("status", resource, "--exit-code", server="unix:/nowhere").returncode == 69


def test_acquire_has_an_owner(service, resource):
    lease = json.loads(ctl("acquire", resource, "--json", server=service).stdout)
    assert re.fullmatch(re.escape(os.uname().nodename) + r":\d+", lease["owner"])
    assert ctl("status", resource, server=service).stdout.startswith(f"{resource}: held by {lease['owner']} for ")
    assert ctl("acquire", resource, server=service).returncode == HELD


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command):
    """Its own options, in both forms, and two examples that are valid up to the server."""
    done = ctl("help", *command.split())
    assert (done.returncode, done.stderr) == (0, "") and ctl(*command.split(), "--help").stdout == done.stdout
    assert done.stdout.startswith(f"Usage: redlockctl {command} ")
    everything = dict(re.findall(r"^  --([a-z-]+)(=?)", ctl("--help").stdout, re.M))
    shown = dict(re.findall(r"^  --([a-z-]+)(=?)", done.stdout, re.M))
    for option in sorted(set(everything) - {"help", "version"}):
        given = f"--{option}" + ("=/nowhere/x" if everything[option] else "")
        refused = f"{command} has no option --{option}" in ctl(*command.split(), given, server="unix:/nowhere").stderr
        assert refused == (option not in shown), option
    examples = re.search(r"^Examples:\n((?:  .*\n){2})\n", done.stdout, re.M)[1].splitlines()
    assert all(f"redlockctl {command} " in example + " " for example in examples)


@needs_pts
@pytest.mark.parametrize("environment, colored", [("TERM=xterm", True), ("TERM=xterm NO_COLOR=", True), ("TERM=xterm NO_COLOR=1", False), ("TERM=dumb", False)])
def test_colours_on_a_terminal(lab, service, resource, environment, colored):
    service.acquire(resource, owner="me")
    shell = Shell(lab, service)
    shell.sees("$ ")
    for command in (f"status {resource}", f"list --prefix {resource}", "masters"):
        shell.type(f"{environment} {BINARY} {command}; echo status-$?\n")
        shell.sees("\n")  # what was typed
        shell.sees("status-0")
        assert ("\x1b[" in shell.before) == colored, command
    assert "\x1b" not in ctl("masters", server=service, env={"TERM": "xterm"}).stdout
