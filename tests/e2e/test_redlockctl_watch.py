# SPDX-License-Identifier: MIT
"""redlockctl watch: a line for each change of a lock, or a command for each."""

import datetime
import json
import signal
import subprocess

import pytest

from ctl import BINARY, clean_environment, ctl, url
from fake_redlockd import fake  # noqa: F401
from harness import DIES_WITH_US, end_process, wait_until


class Watch:
    """`redlockctl watch` in the background; what it prints lies in a file."""

    def __init__(self, lab, *arguments, servers):
        self.path = f"{lab.folder}/watch{len(lab.started)}"
        with open(self.path, "wb") as out, open(self.path + ".err", "wb") as errors:
            self.process = subprocess.Popen([*DIES_WITH_US, BINARY, "watch", *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                                            env=clean_environment({"REDLOCKCTL_SERVER": ",".join(url(server) for server in servers)}))
        lab.keep(self)

    def lines(self):
        with open(self.path, encoding="utf-8") as out:
            return out.read().split("\n")[:-1]

    def wait_lines(self, count):
        return wait_until(lambda: len(self.lines()) >= count and self.lines(), what=f"{count} lines")

    def errors(self):
        with open(self.path + ".err", encoding="utf-8") as errors:
            return errors.read()

    def kill(self):
        end_process(self.process)


def test_each_change_is_a_line(lab):
    service = lab.service()
    watch = Watch(lab, "orders/é", servers=[service])
    assert "free" in watch.wait_lines(1)[0]
    lease = service.acquire("orders/é", owner="me", metadata={"n": 1})
    lines = watch.wait_lines(3)
    assert "held by me" in lines[1] and lines[2] == '  metadata  {"n":1}'
    service.curl("PUT", "/locks/orders/%C3%A9", body={"token": lease["token"]})
    service.curl("DELETE", "/locks/orders/%C3%A9", body={"token": lease["token"]})
    assert "free" in watch.wait_lines(4)[3], "an extension is no change"
    watch.process.send_signal(signal.SIGINT)
    assert watch.process.wait(20) == -signal.SIGINT and watch.errors() == ""


def test_states_as_json_over_two_servers(lab):
    masters = lab.redises(3)
    one, other = lab.redlockd(masters), lab.redlockd(masters)
    watch = Watch(lab, "r", "--json", servers=[one, other])
    watch.wait_lines(1)
    fences = []
    for number in range(5):
        lease = other.acquire("r", owner=str(number))
        fences.append(lease["fence"])
        watch.wait_lines(2 * number + 2)
        other.curl("DELETE", "/locks/r", body={"token": lease["token"]})
        watch.wait_lines(2 * number + 3)
        if number == 2:
            one.kill()
    states = [json.loads(line) for line in watch.lines()]
    assert [state["held"] for state in states] == [False, True] * 5 + [False]
    assert [state["fence"] for state in states if state["held"]] == fences


def test_a_command_for_each_change(lab):
    service = lab.service()
    script = 'echo "$REDLOCK_RESOURCE $REDLOCK_STATE ${REDLOCK_OWNER-none} ${REDLOCK_FENCE-none} ${REDLOCK_METADATA-none}"'
    watch = Watch(lab, "r", "--", "sh", "-c", script, servers=[service])
    assert watch.wait_lines(1)[0] == "r free none none none"
    lease = service.acquire("r", owner="me", metadata={"a": "b c"})
    assert watch.wait_lines(2)[1] == f'r held me {lease["fence"]} {{"a":"b c"}}'
    service.curl("DELETE", "/locks/r", body={"token": lease["token"]})
    assert watch.wait_lines(3)[2] == "r free none none none"


def test_no_server_is_reported_once_and_asked_again(lab):
    masters = lab.redises(3)
    service = lab.redlockd(masters)
    listen = service.address
    watch = Watch(lab, "r", servers=[service])
    watch.wait_lines(1)
    service.kill()
    wait_until(lambda: watch.errors().count("\n") == 1, what="a report")
    again = lab.redlockd(masters, "--listen", listen)
    lease = again.acquire("r", owner="me")
    assert "held by me" in watch.wait_lines(2)[1] and lease["fence"] and watch.errors().count("\n") == 1


def test_a_server_that_does_not_wait_is_asked_once_a_second(lab):
    service = lab.service(3, "--max-wait-ms", "0")
    watch = Watch(lab, "r", servers=[service])
    watch.wait_lines(1)
    lease = service.acquire("r", owner="me")
    assert "held by me" in watch.wait_lines(2)[1]
    assert service.release(lease).status == 204
    watch.wait_lines(3)
    asked = [datetime.datetime.fromisoformat(line["ts"].rstrip("Z")) for line in service.log("request") if line["route"] == "inspect"]
    assert len(asked) <= 5 + 2 * (asked[-1] - asked[0]).total_seconds(), asked


def test_a_proxy_that_removes_the_tag(fake):
    server = fake(state=lambda call: call.answer(200, {"resource": "r", "held": False, "waiters": 0, "votes": {}}))
    done = ctl("watch", "r", server=server)
    assert done.returncode == 76 and done.stdout == "" and len(server.of("state")) == 1, done


@pytest.mark.parametrize("arguments, status, words", [((), 64, "NAME"), (("redlockd:x",), 64, "NAME:"), (("r", "--", "/no/such"), 127, "/no/such: No such file"),
                                                      (("r", "--", "/"), 126, "/: Permission denied")])
def test_mistakes(service, arguments, status, words):
    done = ctl("watch", *arguments, server=service)
    assert done.returncode == status and words in done.stderr, done.stderr


@pytest.mark.parametrize("command", ["run", "watch"])
def test_a_name_may_begin_with_a_dash(service, tmp_path, command):
    """It is the first word behind the dashes, and never the command."""
    trap = tmp_path / "-name"
    trap.write_text("#!/bin/sh\necho trapped\n", encoding="utf-8")
    trap.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    script = "echo $REDLOCK_RESOURCE" + ("; kill $PPID" if command == "watch" else "")
    done = ctl(command, "--", "-name", "sh", "-c", script, server=service, env=path)
    assert done.stdout == "-name\n", (done.stdout, done.stderr)
    alone = ctl("run", "--", "-name", server=service, env=path)
    assert alone.returncode == 64 and "run needs a command" in alone.stderr
