# SPDX-License-Identifier: MIT
"""The recipes of docs/how-to/recipes: the text of a page, its commands as jobs, and the work that they protect."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import textwrap

import pytest

import ctl
from harness import DIES_WITH_US, ROOT, children_of, clean_environment, end_process, patience, process_state, wait_until

FOLDER = ROOT / "docs" / "how-to" / "recipes"
TOOLS = ROOT / "build" / "tools" / "adapters"  # install_recipes of tests/dev/packages.sh
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.M | re.S)
SAVED = re.compile(r"[Ss]ave (?:this|it) as `([\w./-]+)`[^\n]*:\n\n```\w+\n(.*?)^```\n", re.M | re.S)


class Page:
    def __init__(self, name):
        self.text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")

    def block(self, language, words=""):
        """The one block in this language that contains these words."""
        found = [text for its, text in BLOCK.findall(self.text) if its == language and words in text]
        assert len(found) == 1, (language, words, found)
        return found[0]

    def save(self, folder):
        """Writes the files that the page tells to save."""
        saved = SAVED.findall(self.text)
        for name, text in saved:
            (folder / name).write_text(text, encoding="utf-8")
            (folder / name).chmod(0o755)
        return [name for name, _ in saved]


class Job:
    """A command of a page, run by sh in a folder of its own as on a machine of its own."""

    def __init__(self, bench, folder, command, env=None):
        self.folder = folder
        self.output_path = bench.folder / f"output{len(bench.lab.started)}"
        with open(self.output_path, "wb") as output:
            self.process = subprocess.Popen([*DIES_WITH_US, "sh", "-c", command], cwd=folder, stdin=subprocess.DEVNULL,
                                            env={**bench.environment, **(env or {})}, stdout=output, stderr=output)
        bench.lab.keep(self)

    def kill(self):
        for pid in children_of(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end_process(self.process)
        print(f"--- {self.process.args[-1]}\n{self.output()}")

    def output(self):
        return self.output_path.read_text(errors="replace")

    def wait(self):
        return self.process.wait(patience(180))

    def below(self, name):
        """The pids of the processes of this program that the job consists of, parents first."""
        return [pid for pid in [self.process.pid, *children_of(self.process.pid)] if program_of(pid) == name]


def program_of(pid):
    """The file name of the program or script that a process runs; None if it has ended."""
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return None
    scripted = len(words) > 2 and re.match(r"(python|sh$|bash$)", pathlib.Path(words[0]).name)
    return pathlib.Path(words[1] if scripted else words[0]).name


class Bench:
    """A folder for the jobs of one test, their environment, and the work that a recipe protects: a program that writes
    into a log when it begins, waits until proceed(), and writes that it ends."""

    def __init__(self, lab, service):
        self.lab, self.service = lab, service
        self.folder = pathlib.Path(lab.folder)
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        self.log = self.folder / "log"
        self.log.touch()
        path = [str(self.programs), str(pathlib.Path(ctl.BINARY).parent), str(TOOLS / "bin"), os.environ["PATH"]]
        self.environment = clean_environment({
            "PATH": ":".join(path), "PYTHONPATH": str(TOOLS), "PYTHONDONTWRITEBYTECODE": "1", "HOME": lab.folder,
            "LC_ALL": "C.UTF-8", "TMPDIR": lab.folder, "REDLOCKCTL_SERVER": ctl.url(service),
            "ANSIBLE_HOME": f"{lab.folder}/.ansible", "ANSIBLE_REMOTE_TEMP": f"{lab.folder}/.ansible/tmp"})

    def work(self, path):
        """Puts the work where the page has it: a name is a program in PATH."""
        path = self.programs / path
        path.write_text(textwrap.dedent(f"""\
            #!/bin/sh
            mkfifo {self.folder}/go.$$
            echo "begin $$ ${{REDLOCK_FENCE:-0}} $*" >>{self.log}
            read -r go <{self.folder}/go.$$
            echo "end $$" >>{self.log}
            """), encoding="utf-8")
        path.chmod(0o755)

    def machine(self, name):
        """A folder that stands for a machine."""
        folder = self.folder / name
        folder.mkdir()
        return folder

    def start(self, folder, command, env=None):
        return Job(self, folder, command, env)

    def lines(self, first):
        """The lines of the log that begin with this word, as lists of their other words."""
        found = [line.split() for line in self.log.read_text().split("\n")[:-1]]
        return [line[1:] for line in found if line[0] == first]

    def begun(self, count=1):
        """Waits until the work has begun at least this many times, and returns the pids of the first ones."""
        wait_until(lambda: len(self.lines("begin")) >= count, 120, f"{count} beginnings of the work")
        return [int(line[0]) for line in self.lines("begin")[:count]]

    def proceed(self, pid):
        def wrote():
            try:
                pipe = os.open(self.folder / f"go.{pid}", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # nobody reads yet
                return False
            try:
                return os.write(pipe, b"go\n")
            finally:
                os.close(pipe)
        wait_until(wrote, 120, f"{pid} waits to go on")

    def most_at_once(self, killed):
        """How many did the work at once, but for the one that was killed, whose end is not in the log."""
        running, most = set(), 0
        for line in self.log.read_text().splitlines():
            word, pid = line.split()[:2]
            (running.add if word == "begin" and int(pid) != killed else running.discard)(pid)
            most = max(most, len(running))
        return most

    def state(self, resource):
        return self.service.curl("GET", f"/locks/{resource}").json

    def until_waiting(self, resource, count=1, holders=1):
        """Waits until others wait for the lock: the work of its holders alone has begun."""
        wait_until(lambda: self.state(resource).get("waiters") == count, 120, f"{count} wait for {resource}")
        assert len(self.running()) == holders, self.log.read_text()

    def running(self):
        """The pids of the work that has begun, and is neither at its end nor killed."""
        ended = {int(pid) for pid, in self.lines("end")}
        begun = {int(line[0]) for line in self.lines("begin")}
        return {pid for pid in begun - ended if process_state(pid)}


@pytest.fixture
def bench(lab, service):
    return Bench(lab, service)
