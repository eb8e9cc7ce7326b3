# SPDX-License-Identifier: MIT
"""PHPUnit and programs of PHP as processes, with what Debian packages alone."""

import re
import subprocess
import xml.etree.ElementTree

from harness import DIES_WITH_US, ROOT, clean_environment, end_process, patience

PHP = ROOT / "tests" / "adapters" / "php"


def environment(daemon):
    """What a program of PHP needs to reach it."""
    url = daemon.address if ":/" in daemon.address else f"http://{daemon.address}"
    return clean_environment({"REDLOCKD_URL": url, "PATIENCE": str(patience(30))})


class Program:
    """A program of PHP that says lines and waits for some."""

    def __init__(self, daemon, path, *arguments):
        command = [*DIES_WITH_US, "php", "-d", "display_errors=stderr", str(path), *arguments]
        self.process = subprocess.Popen(command, env=environment(daemon), text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def hear(self):
        return self.process.stdout.readline().rstrip("\n")

    def say(self, line=""):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def wait(self):
        """Its status."""
        return self.process.wait(patience(20))

    def kill(self):
        end_process(self.process)
        self.process.stdin.close()
        self.process.stdout.close()


def phpunit(lab, daemon, file, after_the_first=lambda: None):
    """Runs the tests of a file, and returns how many there were before and after `after_the_first()`, which is called
    when the first test is done. Fails if one fails or is skipped."""
    log = f"{lab.folder}/phpunit.xml"
    command = ["phpunit", "--no-configuration", "--do-not-cache-result", "--bootstrap", str(PHP / "load.php"),
               "--teamcity", "--log-junit", log]
    with subprocess.Popen([*DIES_WITH_US, *command, str(PHP / file)], env=environment(daemon), text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        said, before, after = "", 0, 0
        try:
            for line in process.stdout:
                said += line
                if re.match("##teamcity\\[testFinished ", line):
                    if before == 0:
                        after_the_first()
                        before = 1
                    else:
                        after += 1
            process.wait(patience(20))
        finally:
            end_process(process)
    assert process.returncode == 0, said
    suite = xml.etree.ElementTree.parse(log).getroot().find("testsuite")
    assert (int(suite.get("tests")), int(suite.get("skipped"))) == (before + after, 0), said
    return before, after
