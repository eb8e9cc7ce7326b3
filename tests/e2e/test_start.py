# SPDX-License-Identifier: MIT
"""What redlockd says when it starts: one line in the log, and with --dev commands to try."""

import pathlib
import re
import subprocess

import pytest

from harness import curl, run_redlockd, wait_until
from key_fixtures import Keyed


def test_one_line_says_what_runs(lab):
    service = lab.service(5, "--workers", "2", "--max-ttl-ms=90s", "--drift-factor=0.02", "--log-format=logfmt", "--key-prefix", "a b:", "--allow-host=one,two",
                          "--allow-replicas", "--drain-ms=10s", listen=("127.0.0.1:0", f"unix:{lab.folder}/http"))
    lines = [line for line in service.log() if line["event"] not in ("master", "request")]
    assert len(lines) == 1, lines
    version = service.curl("GET", "/version").json
    assert list(lines[0]) == ["ts", "level", "event", "address", "version", "commit", "pid", "quorum", "masters", "options"]
    assert lines[0] | {"ts": ""} == {
        "ts": "", "level": "info", "event": "listening", "address": f"{service.addresses[0]},unix:{lab.folder}/http", "version": version["version"],
        "commit": version["commit"], "pid": str(service.process.pid), "quorum": "3", "masters": ",".join(master.url for master in service.masters),
        "options": "--key-prefix=a b: --max-ttl-ms=90000 " + f"--master-timeout-ms={service.command[service.command.index('--master-timeout-ms') + 1]} "
                   "--drift-factor=0.02 --bootstrap=true --allow-replicas=true --workers=2 --allow-host=one,two --log-requests=all"}


def test_no_password_is_in_it(lab):
    server = lab.redis("--requirepass", "hush-hush", auth=("hush-hush",))
    service = lab.redlockd([], env={"REDLOCKD_MASTERS": f"unix://:hush-hush@{server.path}", "REDLOCKD_BOOTSTRAP": "true"}, wait=False)
    service.wait_voting(1)
    assert service.log("listening")[0]["masters"] == f"unix:{server.path}" and "hush" not in service.stderr()


def test_the_libraries_are_in_the_version(service):
    answer = service.curl("GET", "/version").json
    assert "libmicrohttpd" in answer["libraries"]
    old = [int(part) for part in answer["libraries"]["libmicrohttpd"].split(".")] < [1, 0, 5]
    assert len(answer["notes"]) == old and all("framing" in note for note in answer["notes"])


# ---- --dev ----


def first_steps(service):
    """The commands that it prints, and the address of the page."""
    text = wait_until(lambda: (lambda text: text if "Ctrl-C" in text else None)(pathlib.Path(service.folder, "stdout").read_text()), 20, "the first steps")
    return re.findall(r"^  (curl .*)$", text, re.M), re.search(r"\n\nThe status page: (\S+)\n\nCtrl-C ends it all.\n\n$", text)


def check_first_steps(service, *options):
    """They can be pasted."""
    commands, page = first_steps(service)
    answers = [subprocess.run([*command], capture_output=True, text=True, check=True).stdout
               for command in (["sh", "-c", command.replace("curl -i", "curl -sSi --noproxy '*'")] for command in commands)]
    assert [answer.split()[1] for answer in answers] == ["201", "200", "200"], answers
    if page:
        shown = subprocess.run(["curl", "-sS", "--noproxy", "*", *options, page[1]], capture_output=True, text=True, check=True).stdout
        assert shown.lstrip().lower().startswith("<!doctype html>")
    return page[1] if page else None


def test_the_first_steps_can_be_pasted(lab):
    service = lab.redlockd([], "--dev", wait=False)
    service.wait_voting(3)
    assert check_first_steps(service) == f"http://{service.address}/"


def test_the_first_steps_with_keys(lab):
    keyed = Keyed(lab, [], "--dev", masters=[])
    commands, _ = first_steps(keyed.redlockd)
    assert len(commands) == 3 and all('-H "Authorization: Bearer KEY" ' in command for command in commands), commands


def test_the_first_steps_on_a_unix_socket(lab):
    service = lab.redlockd([], "--dev", listen=(f"unix:{lab.folder}/http",), wait=False)
    service.wait_voting(3)
    assert check_first_steps(service) is None, "no browser shows a page of a Unix socket"


@pytest.mark.parametrize("names, host", [(["DNS:localhost"], "localhost"), (["IP:127.0.0.1"], "127.0.0.1"), (["DNS:localhost", "IP:127.0.0.1"], "127.0.0.1")])
def test_the_first_steps_name_a_host_of_the_certificate(lab, authority, names, host):
    server = authority.issue("server", *names)
    service = lab.redlockd([], "--dev", "--tls-cert", server.certificate, "--tls-key", server.key, trust=authority.certificate, wait=False,
                           listen=("127.0.0.1:0", f"unix:{lab.folder}/http"))
    wait_until(lambda: curl(service.addresses[1], "GET", "/readyz").status == 200, 30, "ready")
    assert check_first_steps(service, "--cacert", server.certificate) == f"https://{host}:{service.address.rpartition(':')[2]}/"


def test_a_second_one_says_how_to_start_it(lab):
    first = lab.redlockd([], "--dev=1", wait=False)
    done = run_redlockd("--dev=1", "--listen", first.address, env={"TMPDIR": lab.folder})
    port = int(first.address.rpartition(":")[2])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (f"redlockd: cannot listen on 127.0.0.1:{port}: Address already in use; end the other program, "
                           f"or start this one with --listen 127.0.0.1:{port + 1}\n")
