# SPDX-License-Identifier: MIT
"""docs/how-to/secure.md, "In five minutes": every line of it, as it stands there, but for the port."""

import json
import os
import pathlib
import re
import subprocess

import pytest

from harness import BINARY, DIES_WITH_US, ROOT, clean_environment, end_process, wait_until

TEXT = (ROOT / "docs/how-to/secure.md").read_text(encoding="utf-8").partition("## In five minutes\n")[2].partition("\n## ")[0]


@pytest.fixture
def shell(tmp_path):
    """Starts a line in an empty folder."""
    environment = {**clean_environment(), "PATH": f"{pathlib.Path(BINARY).resolve().parent}:{os.environ['PATH']}"}
    started = []

    def start(line, **options):
        started.append(subprocess.Popen([*DIES_WITH_US, "sh", "-c", "umask 022; " + line], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, text=True,
                                        **options))
        return started[-1]
    yield start
    for process in started:
        end_process(process)


def test_every_line(shell, tmp_path):
    server, caller = ([line for line in block.splitlines()] for block in re.findall(r"```sh\n(.*?)```", TEXT, re.S))
    work, lease = re.search(r"\n\n```\n(.*?)```", TEXT, re.S)[1].splitlines()
    assert len(server) == 3 and len(caller) == 2
    for line in server[:2]:
        assert shell(line, stderr=subprocess.DEVNULL).wait(60) == 0, line
    assert "0.0.0.0:8443" in server[2]
    log = tmp_path / "log"
    with open(log, "wb") as output:
        daemon = shell("exec " + server[2].replace(":8443", ":0"), stdout=output, stderr=output)
    # Its masters are asked through redlockctl's own patience; the port is a free one, which the log tells.
    found = wait_until(lambda: re.search(r"event=listening address=\S*?:(\d+)", log.read_text()), 30, "redlockd listens")
    run, request = (line.replace("localhost:8443", f"localhost:{found[1]}") for line in caller)
    for line in (run, re.sub(r"^redlockctl (run orders/42) (.*) -- ", r"redlockctl \2 \1 -- ", run)):
        done = shell(line, stdout=subprocess.PIPE)
        assert (done.communicate(timeout=60)[0], done.returncode) == (work + "\n", 0), line
    done = shell(request, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert json.loads(done.communicate(timeout=60)[0]).keys() == json.loads(lease).keys()
    daemon.terminate()
    assert daemon.wait(30) == 0
