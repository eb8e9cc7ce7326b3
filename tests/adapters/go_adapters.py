# SPDX-License-Identifier: MIT
"""The adapters for Go: their test programs, which are also the machines of a test, and the form of their sources."""

import contextlib
import fcntl
import os
import queue
import re
import subprocess
import threading

import harness
from harness import DIES_WITH_US, ROOT, SLOW, clean_environment, patience

FOLDER = ROOT / "clients" / "adapters"
BUILD = ROOT / "build" / "adapters"


def run(*command, cwd, environment=None, seconds=600):
    """Runs a command to its end and returns its output."""
    environment = {**clean_environment(), "HOME": os.environ.get("HOME", "/"), "GOTOOLCHAIN": "local", **(environment or {})}
    done = subprocess.run([*DIES_WITH_US, *map(str, command)], cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=seconds * SLOW, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-5000:]}"
    return done.stdout


@contextlib.contextmanager
def one_at_a_time():
    """Only one worker of pytest compiles. The others then find what it compiled in the cache of Go."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(adapter):
    """Builds the test program of an adapter and returns its path."""
    program = BUILD / f"{adapter}.test"
    with one_at_a_time():
        run("go", "test", "-c", "-ldflags=-s -w", "-o", program, ".", cwd=FOLDER / adapter)
    return program


def check_sources(adapter):
    """They are as gofmt leaves them, vet finds nothing, no line is too long, and the README has an example that a test runs."""
    folder = FOLDER / adapter
    assert run("gofmt", "-l", ".", cwd=folder) == ""
    with one_at_a_time():
        run("go", "vet", "./...", cwd=folder)
    sources = {path.name: path.read_text("utf-8") for path in folder.glob("*.go")}
    wrong = [f"{name}:{number}" for name, text in sources.items() for number, line in enumerate(text.split("\n"), 1) if len(line.expandtabs()) > 120]
    assert len(sources) > 2 and wrong == []
    check_readme((folder / "README.md").read_text("utf-8"), next(text for name, text in sources.items() if name.endswith("_example_test.go")))


def check_readme(readme, example_file):
    """It is short, and its example is the function that a test runs."""
    assert readme.count("\n") <= 60
    example, = re.findall(r"^```go\n(.*?)^```$", readme, re.M | re.S)
    imports, _, function = example.partition("\n\n")
    assert function.count("\n") > 10 and function in example_file
    imported = re.findall(r'^\t.*"(?:github.com|k8s.io)/.*"$', imports, re.M)
    assert len(imported) == 3 and all(line in example_file for line in imported)


def own_tests(program, servers):
    """Runs the tests of the adapter itself. None is skipped."""
    said = run(program, "-test.v", f"-test.timeout={240 * SLOW:.0f}s", cwd=BUILD, environment={"REDLOCKD_SERVERS": servers})
    assert said.endswith("PASS\n") and "--- SKIP" not in said, said
    return re.findall(r"^--- PASS: (\w+)", said, re.M)


class Machine:
    """A process that runs an adapter, and says in lines what happens."""

    def __init__(self, lab, program, environment):
        self.errors_path = f"{lab.folder}/machine{len(lab.started)}"
        with open(self.errors_path, "wb") as errors:
            self.process = subprocess.Popen([*DIES_WITH_US, program], env=clean_environment(environment), cwd=lab.folder, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1)
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        lab.keep(self)

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def line(self, seconds=60):
        """The next line that it says; None if it has ended."""
        try:
            return self.lines.get(timeout=patience(seconds))
        except queue.Empty:
            raise AssertionError(f"it says nothing: {self.errors()}") from None

    def expect(self, start):
        """Returns the rest of the next line, which begins so."""
        line = self.line()
        assert line is not None and line.startswith(start), f"{line!r} instead of {start!r}: {self.errors()}"
        return line[len(start):].strip()

    def tell(self, line):
        self.process.stdin.write(line + "\n")

    def errors(self):
        with open(self.errors_path, encoding="utf-8") as errors:
            return errors.read()[-3000:]

    def wait(self):
        """Waits for its end, and returns its status."""
        return self.process.wait(patience(60))

    def stand_still(self):
        harness.freeze(self.process)

    def kill(self):
        harness.end_process(self.process)
        self.reader.join(patience(10))
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def url_of(daemon):
    return f"http://{daemon.address}"
