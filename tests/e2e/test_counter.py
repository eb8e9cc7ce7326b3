# SPDX-License-Identifier: MIT
"""Twenty processes add 1 to a number in a file, under the lock, and one of the three masters is killed half-way."""

import os
import pathlib
import subprocess

import pytest

from harness import DIES_WITH_US, SCALE, end_process, wait_until

pytestmark = pytest.mark.slow  # thousands of leases

SCRIPT = os.path.join(os.path.dirname(__file__), "counter.sh")
PROCESSES = 20
TIMES = max(5, round(100 * SCALE))


def test_two_thousand_increments_by_twenty_processes(lab):
    service = lab.service(3)
    file = pathlib.Path(lab.folder, "number")
    file.write_text("0\n")
    command = [*DIES_WITH_US, "sh", SCRIPT, f"http://{service.address}", str(TIMES), str(file)]
    with open(os.path.join(lab.folder, "errors"), "w+") as errors:
        processes = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=errors) for _ in range(PROCESSES)]
        try:
            def number():
                text = file.read_text()
                return int(text) if text.endswith("\n") else 0

            def wait_for(reached, what):
                """The time does not matter as long as some client goes on."""
                while not reached():
                    before = number()
                    wait_until(lambda: reached() or number() != before, 60, what)
            wait_for(lambda: number() >= PROCESSES * TIMES // 2, "half of the work")
            service.masters[1].kill()
            for process in processes:
                wait_for(lambda one=process: one.poll() is not None, "the end of the work")
                assert process.returncode == 0, pathlib.Path(errors.name).read_text()
        finally:
            for process in processes:
                end_process(process)
        assert pathlib.Path(errors.name).read_text() == ""
    assert file.read_text() == f"{PROCESSES * TIMES}\n"
    assert [server.cli("EXISTS", "counter") for server in (service.masters[0], service.masters[2])] == [0, 0]
