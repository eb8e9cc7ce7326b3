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
