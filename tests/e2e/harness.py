# SPDX-License-Identifier: MIT
"""Real processes for the end-to-end tests: redis-servers, redlockd, curl.

Every process that is started here is known by its pid, is ended by its starter (see Lab), and is killed by the kernel
if the test run itself dies. All files lie in a folder of their own below the temporary folder, so that any number of
tests can run side by side. Nothing sleeps to wait for something: wait_until() watches for it.

Environment:
    REDLOCKD             the binary (default: build/release/redlockd below the root of the repository)
    REDLOCKD_TEST_SLOW   factor for all time limits, for builds that are slower than a release (default: 1, and up to 4 on a busy machine)
    REDLOCKD_TEST_SCALE  factor for the amount of work in test_counter.py (default 1)
    REDLOCKD_TEST_ROUNDS  rounds of test_mixed_load.py (default 2)
"""

import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("REDLOCKD", str(ROOT / "build" / "release" / "redlockd"))
# From the environment, so that all processes of one run have the same.
SLOW = float(os.environ.setdefault("REDLOCKD_TEST_SLOW", f"{min(max(os.getloadavg()[0] / os.cpu_count(), 1), 4):.1f}"))
SCALE = float(os.environ.get("REDLOCKD_TEST_SCALE", "1"))

# --master-timeout-ms unless a test chooses it: a master of a busy machine that has no processor for a second or two must
# not count as down, nor refuse a command as late. Where no test stops a master, conftest.py makes it longer.
MASTER_TIMEOUT_MS = round(min(2500 * SLOW, 5000))

# The output of a sanitizer that has found something.
SANITIZER = re.compile(r"ERROR: AddressSanitizer|WARNING: ThreadSanitizer|LeakSanitizer|runtime error:|UndefinedBehaviorSanitizer")

# redlockd refuses keys that a group may write to. The default umask of a user is 002 on Debian 13.
os.umask(0o022)

# The kernel kills these processes if the one that started them dies: a test run that is killed leaves nothing.
DIES_WITH_US = [shutil.which("setpriv"), "--pdeathsig", "KILL", "--"]


def patience(seconds):
    """How long to wait for an expected event: `seconds` or a minute, whichever is longer. Only a failure takes that long."""
    return max(seconds, 60) * SLOW


def wait_until(condition, seconds=10.0, what="the condition"):
    """Waits until condition() is true and returns its value; fails after patience(seconds). A test that needs a shorter
    time measures it itself."""
    deadline = time.monotonic() + patience(seconds)
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what}: not within {patience(seconds):g} s"
        time.sleep(0.005)


def starved_seconds():
    """For how long since the boot some process of this machine has waited for a processor, or this machine for its host; 0 where the kernel does not count
    it. An upper limit on the time that something takes allows for what this grew by: a busy machine is no defect."""
    stolen = int(pathlib.Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")
    try:
        return stolen + int(re.search(r"^some .*total=(\d+)", pathlib.Path("/proc/pressure/cpu").read_text(), re.M)[1]) / 1e6
    except OSError:
        return stolen


def process_state(pid):
    """The state letter of a process, or None if there is none (a zombie counts as none)."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else state


def freeze(process):
    """Stops it: from then on none of its threads does anything before SIGCONT."""
    process.send_signal(signal.SIGSTOP)
    threads = f"{process.pid}/task"
    wait_until(lambda: all(process_state(f"{threads}/{thread}") == "T" for thread in os.listdir(f"/proc/{threads}")), what="SIGSTOP")


def children_of(pid):
    """The pids of all processes below `pid`."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                parents[int(entry)] = int(pathlib.Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        below = [child for child, its in parents.items() if its == parent]
        found += below
        todo += below
    return found


def end_process(process, seconds=10):
    """Kills a process, also a stopped one, and reaps it."""
    if process.poll() is None:
        process.kill()
    process.wait(patience(seconds))


# ---------------------------------------------------------------------------------------------------- Redis


def free_port():
    """Not one that the kernel gives to connections, until somebody listens there."""
    for port in random.sample(range(15000, 32000), 20):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no free port")


class RedisError(Exception):
    """An error that a Redis server answered."""


class Resp:
    """One connection to a Redis server, with the part of the protocol that the tests need."""

    def __init__(self, path, timeout):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, *args):
        words = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))

    def receive(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("connection closed by Redis")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RedisError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2].decode("utf-8", "surrogateescape")
        if kind == b"*":
            return None if rest == b"-1" else [self.receive() for _ in range(int(rest))]
        return rest.decode()


class Redis:
    """A real redis-server on a Unix socket, and on a TCP port too if `tcp` is true. `env`: additions to its environment."""

    def __init__(self, folder, *options, tcp=False, auth=(), wait=True, env=None):
        self.folder = tempfile.mkdtemp(prefix="r", dir=folder)
        self.path = os.path.join(self.folder, "s")
        self.options, self.tcp, self.auth, self.env, self.port = options, tcp, auth, env or {}, 0
        self.process = None
        self.start(wait)

    @property
    def url(self):
        """The address as in --masters."""
        return f"redis://127.0.0.1:{self.port}" if self.tcp else f"unix:{self.path}"

    def listens(self, port):
        """Its options for a TCP port; another kind of server may have others."""
        return ["--port", str(port)]

    def start(self, wait=True, options=()):
        """Starts the server; again on the port that it had. `wait`: until it answers."""
        ports = [self.port] if self.port or not self.tcp else random.sample(range(15000, 32000), 20)
        for port in ports:
            self.port = port
            with open(os.path.join(self.folder, "log"), "ab") as log:
                command = ["redis-server", *self.listens(port), "--bind", "127.0.0.1", "--unixsocket", self.path, "--dir", self.folder]
                command += ["--save", "", "--appendonly", "no", "--enable-debug-command", "yes", *self.options, *options]
                self.process = subprocess.Popen([*DIES_WITH_US, *command], env={**os.environ, **self.env}, stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=log)
            if not wait or wait_until(self._answers_or_ended, what="redis-server") == "answers":
                return
        raise AssertionError("redis-server does not start: " + pathlib.Path(self.folder, "log").read_text()[-500:])

    def _answers_or_ended(self):
        if self.process.poll() is not None:
            return "ended"
        try:
            return "answers" if self.cli("PING") == "PONG" else None
        except (OSError, RedisError):
            return None

    def cli(self, *args, timeout=5):
        """Sends one command and returns the answer; raises RedisError if it is an error."""
        connection = Resp(self.path, timeout * SLOW)
        try:
            if self.auth:
                connection.send("AUTH", *self.auth)
                connection.receive()
            connection.send(*args)
            return connection.receive()
        finally:
            connection.close()

    def pipeline(self, commands):
        """Sends many commands at once and returns the answers, errors as RedisError objects."""
        connection, answers = Resp(self.path, 30 * SLOW), []
        try:
            for command in commands:
                connection.send(*command)
            for _ in commands:
                try:
                    answers.append(connection.receive())
                except RedisError as error:
                    answers.append(error)
        finally:
            connection.close()
        return answers

    def calls(self):
        """How often each command was called: {name: calls}."""
        stats = re.findall(r"^cmdstat_(\S+?):calls=(\d+)", self.cli("INFO", "commandstats"), re.M)
        return {name: int(count) for name, count in stats}

    def kill(self):
        end_process(self.process)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def stop(self):
        freeze(self.process)

    def cont(self):
        self.process.send_signal(signal.SIGCONT)

    def restart(self, *options):
        self.kill()
        self.start(options=options)


# ---------------------------------------------------------------------------------------------------- HTTP


class Response:
    """An answer: status, headers (names in lower case), body, and how long the request took."""

    def __init__(self, status, headers, body, seconds):
        self.status, self.headers, self.body, self.seconds = status, headers, body, seconds

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """The code of a problem; checks that the problem is valid."""
        assert self.headers["content-type"].startswith("application/problem+json"), self
        problem = self.json
        assert {"type", "title", "status", "detail", "code"} <= set(problem), problem
        assert problem["status"] == self.status, problem
        assert problem["type"] == "/docs/errors#" + problem["code"], problem
        return problem["code"]

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:2000]!r}>"


def curl_command(address, method, path, *extra, body=None, headers=None):
    """The curl command for one request to a listener of redlockd ("host:port", "https://host:port" or "unix:/path")."""
    command = ["curl", "-sS", "--path-as-is", "--globoff", "--noproxy", "*", "--max-time", str(20 * SLOW)]
    if address.startswith("unix:"):
        command += ["--unix-socket", address[5:]]
        address = "localhost"
    command += ["--head"] if method == "HEAD" else ["-X", method]
    if body is not None:
        command += ["-d", body if isinstance(body, str) else json.dumps(body)]
    for name, value in (headers or {}).items():
        command += ["-H", f"{name}: {value}"]
    return [*command, *extra, address + path if address.startswith("https://") else f"http://{address}{path}"]


def curl(address, method, path, *extra, body=None, headers=None):
    """Makes one request with the real curl."""
    command = curl_command(address, method, path, "--include", *extra, body=body, headers=headers)
    start = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    seconds = time.monotonic() - start
    assert done.returncode == 0, f"curl ended with {done.returncode}: {done.stderr.decode()} {command}"
    head, _, rest = done.stdout.partition(b"\r\n\r\n")
    while head.split()[1].startswith(b"1"):
        head, _, rest = rest.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    fields = (line.partition(":") for line in lines)
    return Response(int(status_line.split()[1]), {name.lower(): value.strip() for name, _, value in fields}, rest, seconds)


def connect_to(address, timeout=20.0, tls=None):
    """A socket to a listener of redlockd; `tls`: the context of Python's ssl if that is https://; None: a plain socket in any case."""
    if address.startswith("unix:"):
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(timeout * SLOW)
        plain.connect(address[5:])
        return plain
    host, _, port = address.removeprefix("https://").rpartition(":")
    plain = socket.create_connection((host.strip("[]"), int(port)), timeout * SLOW)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tls.wrap_socket(plain, server_hostname=host.strip("[]")) if tls else plain


class Client:
    """One keep-alive connection, for tests that make many requests."""

    def __init__(self, address, tls=None):
        self.connection = http.client.HTTPConnection("localhost")
        self.connection.sock = connect_to(address, tls=tls)
        self.connection.auto_open = 0

    def call(self, method, path, body=None, headers=None):
        start = time.monotonic()
        self.connection.request(method, path, None if body is None else json.dumps(body), headers or {})
        answer = self.connection.getresponse()
        content = answer.read()
        return Response(answer.status, {k.lower(): v for k, v in answer.getheaders()}, content, time.monotonic() - start)

    def close(self):
        self.connection.close()


def read_response(plain, method="GET"):
    """Reads one answer from a plain socket; None if the other side closed without one."""
    start = time.monotonic()
    answer = http.client.HTTPResponse(plain, method=method)
    try:
        answer.begin()
        content = answer.read()
    except (http.client.RemoteDisconnected, ConnectionError):
        return None
    finally:
        answer.close()
    return Response(answer.status, {k.lower(): v for k, v in answer.getheaders()}, content, time.monotonic() - start)


# ------------------------------------------------------------------------------------------------- redlockd

LOGFMT = re.compile(r'([a-zA-Z_][a-zA-Z0-9_.]*)=("(?:[^"\\]|\\.)*"|[^\s"=]*)(?: |$)')


def parse_logfmt(line):
    """One line of the log as a dictionary; fails if it is not valid logfmt."""
    fields, at = {}, 0
    while at < len(line):
        match = LOGFMT.match(line, at)
        assert match, f"not logfmt at column {at}: {line!r}"
        name, value = match.groups()
        assert name not in fields, f"{name} twice: {line!r}"
        fields[name] = json.loads(value) if value.startswith('"') else value
        at = match.end()
    return fields


def sanitizer_environment():
    return {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}


def clean_environment(more=None):
    """The part of our environment that a program needs, since redlockd refuses unknown REDLOCKD_ variables."""
    return {"PATH": os.environ["PATH"], **sanitizer_environment(), **(more or {})}


def table_of_options():
    """The options of redlockd as a table in Markdown: tests/unit/test_options_help.c compares it with that of the program."""
    text = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    return text.partition("<!-- options:begin -->\n")[2].partition("<!-- options:end -->")[0]


def run_redlockd(*args, env=None, timeout=20):
    """Runs the program to its end and returns the result."""
    return subprocess.run([*DIES_WITH_US, BINARY, *args], env=clean_environment(env), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=timeout * SLOW, check=False)


@contextlib.contextmanager
def bare_redlockd(*args, listens_at):
    """Starts the program directly, without reading its log, on a Unix socket; its stderr is a pipe. Yields the process when it is ready."""
    process = subprocess.Popen([*DIES_WITH_US, BINARY, *args], env=clean_environment(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def listens():
        assert process.poll() is None, process.stderr.read()
        return os.path.exists(listens_at)
    try:
        wait_until(listens, 20, "redlockd listens")
        wait_until(lambda: curl(f"unix:{listens_at}", "GET", "/readyz").status == 200, 20, "ready")
        yield process
    finally:
        end_process(process)
        process.stderr.close()


class Redlockd:
    """A real redlockd. `masters`: Redis or Proxy objects, or addresses. Waits until it listens, and is ready unless `wait` is false. `trust`: the file of
    the authority that its https:// is checked against. `prefix`: a command that becomes redlockd. `log_requests`: all, since tests look for the line of
    a request; None leaves the default."""

    def __init__(self, folder, masters, *options, listen=("127.0.0.1:0",), env=None, wait=True, json_log=False, trust=None, prefix=(), log_requests="all"):
        self.tls = ssl.create_default_context(cafile=trust) if trust else None
        self.curl_options = ("--cacert", trust) if trust else ()
        self.folder = tempfile.mkdtemp(prefix="d", dir=folder)
        self.stderr_path = os.path.join(self.folder, "stderr")
        self.json_log = json_log
        self.masters = masters
        command = [*prefix, BINARY]
        for address in listen:
            command += ["--listen", address]
        addresses = ",".join(master if isinstance(master, str) else master.url for master in masters)
        if "@" in addresses:  # a password, which the command line must not have
            env = {"REDLOCKD_MASTERS": addresses, **(env or {})}
        elif masters:
            command += ["--masters", addresses]
        if not any(option.startswith("--master-timeout-ms") for option in options):
            command += ["--master-timeout-ms", str(MASTER_TIMEOUT_MS)]
        if log_requests and not any(option.startswith("--log-requests") for option in options):
            command += ["--log-requests", log_requests]
        if masters and not any(option.startswith(("--bootstrap", "--restart-guard", "--config")) for option in options):
            command += ["--bootstrap"]  # the servers are new
        if json_log:
            command += ["--log-format", "json"]
        self.command = [*command, *options]
        environment = clean_environment({"TMPDIR": self.folder, **(env or {})})
        with open(self.stderr_path, "wb") as stderr, open(os.path.join(self.folder, "stdout"), "wb") as stdout:
            self.process = subprocess.Popen([*DIES_WITH_US, *self.command], env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        try:
            wait_until(lambda: self._listening(len(listen)), 20, "redlockd listens")
            if wait:
                self.wait_ready()
        except BaseException:
            end_process(self.process)
            print(self.stderr())
            raise

    def _listening(self, count):
        assert self.process.poll() is None, f"redlockd ended with {self.process.returncode}: {self.stderr()}"
        lines = self.log("listening")
        if not lines:
            return False
        addresses = lines[0]["address"].split(",")
        assert len(addresses) >= count, lines
        self.addresses = addresses
        self.address = addresses[0]
        return True

    def stderr(self):
        return pathlib.Path(self.stderr_path).read_text(errors="replace")

    def log(self, event=None):
        """The complete lines of the log so far, parsed; only those of one event if it is given."""
        lines = self.stderr().split("\n")[:-1]
        parsed = [json.loads(line) if self.json_log else parse_logfmt(line) for line in lines]
        return [line for line in parsed if event is None or line["event"] == event]

    def wait_ready(self):
        """Waits until a majority may vote, and all masters that were given as running Redis objects."""
        running = [master for master in self.masters if isinstance(master, Redis) and process_state(master.process.pid) not in (None, "T")]
        wait_until(lambda: self.curl("GET", "/readyz").status == 200, 20, "ready")
        self.wait_voting(len(running) or len(self.masters) or 1, at_least=True)

    def wait_voting(self, count, at_least=False):
        """Waits until exactly (or at least) this many masters may vote, as the first worker sees it."""
        def reached():
            voting = self.curl("GET", "/masters").json["quorum"]["voting"]
            return voting >= count if at_least else voting == count
        wait_until(reached, 30, f"{count} masters voting")

    def curl(self, method, path, *extra, body=None, headers=None):
        return curl(self.address, method, path, *self.curl_options, *extra, body=body, headers=headers)

    def client(self):
        return Client(self.address, self.tls)

    def connect(self, timeout=20.0):
        return connect_to(self.address, timeout, self.tls)

    def acquire(self, resource, ttl_ms=30000, **members):
        """Acquires with curl and returns the lease; fails if it is refused."""
        answer = self.curl("POST", "/locks", body={"resource": resource, "ttl_ms": ttl_ms, **members})
        assert answer.status == 201, answer
        return answer.json

    def release(self, lease):
        return self.curl("DELETE", "/locks/" + quote(lease["resource"]), body={"token": lease["token"]})

    def metrics(self):
        """{'name{labels}': value}"""
        lines = self.curl("GET", "/metrics").body.decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line and line[0] != "#")}

    def check_stderr(self):
        found = SANITIZER.search(self.stderr())
        assert not found, self.stderr()

    def kill(self):
        end_process(self.process)

    def stop(self, signal_number=signal.SIGINT, seconds=10):
        """Ends it and checks that it ended well, and that no sanitizer found anything."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
            try:
                self.process.wait(patience(seconds))
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"redlockd does not end on signal {signal_number}: {self.stderr()}") from None
        self.check_stderr()
        assert self.process.returncode == 0, f"redlockd ended with {self.process.returncode}: {self.stderr()[-3000:]}"


def quote(resource):
    """A resource as part of a path; slashes stay."""
    return urllib.parse.quote(resource, safe="/")


# ------------------------------------------------------------------------------------------------------ Lab


class Lab:
    """Starts processes for a test, and ends all of them with the test, redlockd first."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="rl-")
        self.started = []
        return self

    def __exit__(self, kind, error, trace):
        failures = []
        for thing in sorted(self.started, key=lambda thing: not isinstance(thing, Redlockd)):
            try:
                if isinstance(thing, Redlockd) and thing.process.returncode != -signal.SIGKILL:
                    thing.process.send_signal(signal.SIGCONT)  # a failed test may have left it stopped
                    thing.stop()
                elif isinstance(thing, Redlockd):
                    thing.check_stderr()
                else:
                    thing.kill()
            except AssertionError as failure:
                failures.append(failure)
        for daemon in (thing for thing in self.started if isinstance(thing, Redlockd)):
            print(f"--- {' '.join(daemon.command)}\n{daemon.stderr()[-20000:]}")
        shutil.rmtree(self.folder, ignore_errors=True)
        if failures:
            raise failures[0]

    def keep(self, thing):
        """Registers an object with a kill(), to be ended with the test."""
        self.started.append(thing)
        return thing

    def redis(self, *options, **how):
        return self.keep(Redis(self.folder, *options, **how))

    def redises(self, count, *options, **how):
        """Starts several at once, before it waits for the first."""
        servers = [self.redis(*options, **how, wait=how.get("tcp", False)) for _ in range(count)]
        for server in servers:
            wait_until(lambda one=server: one._answers_or_ended() == "answers", what="redis-server")
        return servers

    def redlockd(self, masters, *options, **how):
        return self.keep(Redlockd(self.folder, masters, *options, **how))

    def service(self, count=3, *options, **how):
        """Starts `count` masters and a redlockd over them; the masters are in its member `masters`."""
        return self.redlockd(self.redises(count), *options, **how)
