"""openapi.yaml against the linters, against the route table of the program, and against what the program really answers:
everything described exists, and everything that exists is described."""

import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

import jsonschema
import pytest
import yaml

from harness import ROOT, Lab, connect_to, read_response, run_redlockd, table_of_options, wait_until

HERE = pathlib.Path(__file__).resolve().parent
FILE = ROOT / "openapi.yaml"
DESCRIPTION = yaml.safe_load(FILE.read_text(encoding="utf-8"))
LINES = "application/x-ndjson"
METHODS = {"get", "put", "post", "delete", "patch", "options", "head", "trace"}
QUIET = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true", "NO_COLOR": "1"}

# An answer that is described: which operation, which status, which code ("-" where there is none).
Described = collections.namedtuple("Described", "method pattern status code")


def resolve(node):
    """The node itself, or what its $ref names."""
    while "$ref" in node:
        target = DESCRIPTION
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part.replace("~1", "/").replace("~0", "~")]
        node = target
    return node


def codes_of(schema):
    """The problem codes that a schema allows."""
    schema = resolve(schema)
    code = schema.get("properties", {}).get("code", {})
    found = {code["const"]} if "const" in code else set(code.get("enum", ()))
    for part in schema.get("allOf", []) + schema.get("oneOf", []):
        found |= codes_of(part)
    return found


def described_responses():
    """{Described without its code: (pointer to the response, the response)} of all operations."""
    found = {}
    for pattern, item in DESCRIPTION["paths"].items():
        for method in METHODS & set(item):
            for status, response in item[method]["responses"].items():
                pointer = response.get("$ref", f"#/paths/{escape(pattern)}/{method}/responses/{status}")
                found[method.upper(), pattern, int(status)] = pointer.removeprefix("#"), resolve(response)
    for name, status in (("preflight", 204), ("unknown-path", 404), ("unknown-method", 405), ("too-large-a-body", 413)):
        response = DESCRIPTION["x-other-requests"][name]
        found["*", "*", status] = response["$ref"].removeprefix("#"), resolve(response)
    return found


def escape(part):
    return part.replace("~", "~0").replace("/", "~1")


RESPONSES = described_responses()


def described():
    """All answers that are described."""
    found = set()
    for (method, pattern, status), (_, response) in RESPONSES.items():
        codes = set()
        for name, media in response.get("content", {}).items():
            if name != LINES:  # the code in a line is none of the answer's
                codes |= codes_of(media["schema"])
        assert bool(codes) == (status >= 400), f"{method} {pattern} {status}: an error has a code, and nothing else has"
        found |= {Described(method, pattern, status, code) for code in codes or {"-"}}
    return found


# ------------------------------------------------------------------------------------------------------ (a) lint


def lint(*command):
    return subprocess.run([HERE / "node_modules" / ".bin" / command[0], *command[1:]], cwd=HERE, env={**os.environ, **QUIET},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)


LINTERS = {"redocly": ("redocly", "lint", "--config", "redocly.yaml"),
           "spectral": ("spectral", "lint", "--fail-severity=hint", "--ruleset", ".spectral.yaml")}


@pytest.mark.node
@pytest.mark.parametrize("linter", LINTERS)
def test_lint_finds_nothing(linter):
    done = lint(*LINTERS[linter], os.path.relpath(FILE, HERE))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower(), done.stdout + done.stderr


@pytest.mark.node
@pytest.mark.parametrize("linter", LINTERS)
def test_lint_would_find_something(linter, tmp_path):
    """An example that its schema does not allow."""
    broken = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    broken["components"]["examples"]["Lease"]["value"]["token"] = "short"
    (tmp_path / "openapi.yaml").write_text(yaml.safe_dump(broken), encoding="utf-8")
    done = lint(*LINTERS[linter], str(tmp_path / "openapi.yaml"))
    assert done.returncode != 0 and "token" in done.stdout + done.stderr, done.stdout + done.stderr


# ---------------------------------------------------------------------------------------------- (b) the route table


def test_description_and_route_table_are_the_same():
    done = run_redlockd("--help=routes")
    assert done.returncode == 0, done.stderr
    table = set()
    for line in done.stdout.splitlines():
        method, pattern, status, code = line.split()
        row = Described(method, pattern, int(status), code)
        assert row not in table, f"twice: {line}"
        table.add(row)
    assert sorted(table - described()) == [], "the program has these, the description has not"
    assert sorted(described() - table) == [], "the description has these, the program has not"


# ------------------------------------------------------------------------------------------------- (c) serves itself


def test_serves_this_very_file(service):
    answer = service.curl("GET", "/openapi.yaml")
    assert answer.status == 200 and answer.body == FILE.read_bytes()


# ----------------------------------------------------------------------------------------------- (d) real answers


class Answers:
    """Real answers, each with the operation that it belongs to."""

    def __init__(self):
        self.rows = []

    def add(self, method, pattern, response):
        self.rows.append((method, pattern, response))

    def ask(self, service, method, path, pattern, status, **how):
        """Makes a request and keeps the answer; fails at once where the status is not the expected one."""
        answer = service.curl(method, path, **how)
        assert answer.status == status, f"{method} {path}: {status} expected, got {answer}"
        self.add(method, pattern, answer)
        return answer


NEW, ONE = "/locks", "/locks/{resource}"
TOKEN = "0123456789abcdef0123456789abcdef01234567"
PATHS = {ONE: "/locks/a", **{pattern: pattern for pattern in DESCRIPTION["paths"] if pattern != ONE}}
OPERATIONS = sorted((method.upper(), pattern) for pattern, item in DESCRIPTION["paths"].items() for method in METHODS & set(item))


def gather_leases(lab, answers):
    service = lab.service(3)
    lease = answers.ask(service, "POST", "/locks", NEW, 201, body={"resource": "a/b", "owner": "worker-7"}).json
    answers.ask(service, "POST", "/locks", NEW, 201, body={"resource": "no owner"})
    answers.ask(service, "POST", "/locks", NEW, 409, body={"resource": "a/b"})
    answers.ask(service, "POST", "/locks", NEW, 409, body={"resource": "no owner"})
    answers.ask(service, "PUT", "/locks/a/b", ONE, 200, body={"token": lease["token"], "ttl_ms": 20000})
    answers.ask(service, "PUT", "/locks/a%2Fb", ONE, 200, headers={"Lock-Token": lease["token"]})
    answers.ask(service, "PUT", "/locks/a/b", ONE, 409, body={"token": TOKEN})
    answers.ask(service, "DELETE", "/locks/a/b", ONE, 409, body={"token": TOKEN})
    answers.ask(service, "GET", "/locks/a/b", ONE, 200)
    answers.ask(service, "GET", "/locks/no%20owner", ONE, 200)
    answers.ask(service, "GET", "/locks/free", ONE, 200)
    first = answers.ask(service, "GET", "/locks?limit=1", NEW, 200).json
    if first["cursor"] is not None:
        answers.ask(service, "GET", f"/locks?limit=1&cursor={first['cursor']}", NEW, 200)
    answers.ask(service, "GET", "/locks?prefix=a/", NEW, 200)
    answers.ask(service, "GET", "/locks?prefix=nothing", NEW, 200)
    answers.ask(service, "DELETE", "/locks/a/b", ONE, 204, body={"token": lease["token"]})
    answers.ask(service, "DELETE", "/locks/a/b", ONE, 410, body={"token": lease["token"]})
    answers.ask(service, "PUT", "/locks/a/b", ONE, 410, body={"token": lease["token"]})
    for master in service.masters:
        master.cli("SET", "stranger", "x", "PX", 20000)
        master.cli("SET", "for ever", "x")
        master.cli("RPUSH", "list", "x")
    for resource in ("stranger", "for ever", "list"):
        answers.ask(service, "POST", "/locks", NEW, 409, body={"resource": resource})
        answers.ask(service, "GET", "/locks/" + resource.replace(" ", "%20"), ONE, 200)
    answers.ask(service, "GET", "/locks", NEW, 200)


def gather_waiting(lab, answers):
    """One waits in a queue for one: it is seen in the state, the next one is too many. The first wait runs out; another
    is granted."""
    service = lab.service(3, "--max-waiters-per-resource", "1")
    body = {"resource": "line", "owner": "worker-7", "ttl_ms": 60000}
    lease = answers.ask(service, "POST", "/locks", NEW, 201, body={**body, "wait_ms": 60000}).json
    assert lease["waited_ms"] < 20000, "it is free"
    assert "waited_ms" not in service.acquire("no wait")

    def waits(count):
        return service.curl("GET", "/locks/line").json["waiters"] == count

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(service.curl, "POST", "/locks", body={**body, "wait_ms": 1500})
        wait_until(lambda: waits(1), what="one in the queue")
        answers.ask(service, "GET", "/locks/line", ONE, 200)
        assert answers.ask(service, "GET", "/locks?prefix=line", NEW, 200).json["locks"][0]["waiters"] == 1
        answers.ask(service, "POST", "/locks", NEW, 429, body={**body, "wait_ms": 1000})
        answers.add("POST", NEW, waiter.result())
        assert waiter.result().status == 409 and waiter.result().json["waited_ms"] >= 1500, waiter.result()
        wait_until(lambda: waits(0), what="nobody in the queue")
        waiter = pool.submit(service.curl, "POST", "/locks", body={**body, "wait_ms": 60000})
        wait_until(lambda: waits(1), what="one in the queue")

        def has_figures():
            stats = service.curl("GET", "/stats").json
            return sum(stats["series"]["granted"]) and stats["hottest"] and stats["waiting"]
        wait_until(has_figures, what="figures of all kinds")
        answers.ask(service, "GET", "/stats", "/stats", 200)
        seen = time.monotonic()
        answers.ask(service, "GET", "/locks/line", ONE, 200)
        least = (time.monotonic() - seen) * 1000
        answers.ask(service, "DELETE", "/locks/line", ONE, 204, body={"token": lease["token"]})
        answers.add("POST", NEW, waiter.result())
        assert waiter.result().status == 201 and waiter.result().json["fence"] > lease["fence"], waiter.result()
        assert least * 0.99 - 1 <= waiter.result().json["waited_ms"] <= waiter.result().seconds * 1000 + 1, waiter.result()


def gather_holding(lab, answers):
    """Streams of a lock that is held by its connection, each to its end."""
    service = lab.service(3)

    def ended(resource, end):
        plain = service.connect()
        body = json.dumps({"resource": resource, "owner": "worker-7", "ttl_ms": 300, "hold": True}).encode()
        plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: b'"renewed"' in plain.recv(65536, socket.MSG_PEEK), what="a renewal")
        end()
        answer = read_response(plain)
        plain.close()
        answers.add("POST", NEW, answer)
        return json.loads(answer.body.splitlines()[-1])

    assert ended("key deleted", lambda: [master.cli("DEL", "key deleted") for master in service.masters]) == {"event": "lost", "code": "lease-expired"}
    assert ended("taken", lambda: [master.cli("SET", "taken", "somebody's") for master in service.masters]) == {"event": "lost", "code": "not-owner"}
    assert ended("drained", lambda: service.process.send_signal(signal.SIGTERM))["event"] == "draining"


def gather_operation(lab, answers):
    service = lab.service(3)
    for path in ("/healthz", "/readyz", "/metrics", "/masters", "/stats", "/whoami", "/openapi.yaml", "/version", "/"):
        answers.ask(service, "GET", path, path, 200)
        head = service.curl("HEAD", path)
        assert head.status == 200 and head.body == b""


def gather_mistakes(lab, answers):
    service = lab.service(1)
    for method, pattern in OPERATIONS:
        path = PATHS[pattern]
        answers.ask(service, method, path + "?surprise=1", pattern, 400, headers={"Lock-Token": TOKEN})
        if (method, pattern, 413) in RESPONSES:
            answers.ask(service, method, path, pattern, 413, body="x" * 20000)
            answers.ask(service, method, path, pattern, 415, body="x", headers={"Content-Encoding": "gzip"})
        else:
            answers.ask(service, method, path, pattern, 400, body="x")
        for size in (3000, 12000):
            answers.ask(service, method, path + "?" + "x" * size, pattern, 414)
        for size in (9000, 12000):
            answers.ask(service, method, path, pattern, 431, headers={"X-Long": "x" * size})
    for body in ("", "{", "[]", '{"resource":"a","resource":"b"}', '{"resource":1}', '{"resource":"a","wait_ms":-1}', '{"resource":"a","wait_ms":60001}',
                 '{"resource":"a","ttl_ms":0}'):
        answers.ask(service, "POST", "/locks", NEW, 400, body=body)
    answers.ask(service, "DELETE", "/locks/a", ONE, 400)
    answers.ask(service, "GET", "/locks?limit=0", NEW, 400)
    answers.ask(service, "GET", "/nothing", "*", 404)
    answers.ask(service, "POST", "/nothing", "*", 413, body="x" * 20000)
    for pattern, path in PATHS.items():
        answers.ask(service, "PATCH", path, "*", 405)
        assert "GET" in answers.rows[-1][2].headers["allow"].split(", "), pattern


# The keys of tests/contract: what their SHA-256 stands for is `a-test-key-of-NAME`.
def write_keys(folder):
    def entry(name, rights):
        digest = hashlib.sha256(f"a-test-key-of-{name}".encode()).hexdigest()
        return {"name": name, "sha256": digest, "prefixes": ["mine/"], "rights": rights}
    path = pathlib.Path(folder) / "keys.json"
    path.write_text(json.dumps({"keys": [entry("all", ["acquire", "inspect", "list", "admin"]), entry("least", ["acquire"])]}), encoding="utf-8")
    return path


def with_key(name):
    return {"Authorization": f"Bearer a-test-key-of-{name}"}


def gather_access(lab, answers):
    """No caller, an unknown one, and one without the right; a page that may call, and one that may not."""
    service = lab.service(3, "--keys", str(write_keys(lab.folder)), "--allow-origin", "https://ops.example", wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    for method, pattern in OPERATIONS:
        if (method, pattern, 401) not in RESPONSES:
            continue
        path = PATHS[pattern] + ("?force=true" if method == "DELETE" else "")
        body = {"resource": "mine/a"} if method == "POST" else None
        answers.ask(service, method, path, pattern, 401, body=body)
        answers.ask(service, method, path, pattern, 401, body=body, headers=with_key("nobody"))
        if pattern in (NEW, ONE):
            answers.ask(service, method, path, pattern, 403, body={"resource": "a"} if body else None, headers=with_key("least"))
    for method, pattern in OPERATIONS:
        answers.ask(service, method, PATHS[pattern], pattern, 403, headers={"Origin": "https://evil.example"})
    lease = answers.ask(service, "POST", "/locks", NEW, 201, body={"resource": "mine/a"}, headers=with_key("least")).json
    answers.ask(service, "GET", "/locks/mine/a", ONE, 200, headers=with_key("all"))
    answers.ask(service, "GET", "/locks?prefix=mine/", NEW, 200, headers={"X-Api-Key": "a-test-key-of-all"})
    answers.ask(service, "PUT", "/locks/mine/a", ONE, 200, body={"token": lease["token"]})
    answers.ask(service, "DELETE", "/locks/mine/a?force=true", ONE, 204, headers=with_key("all"))
    answers.ask(service, "DELETE", "/locks/mine/a?force=true", ONE, 410, headers=with_key("all"))
    page = {"Origin": "https://ops.example"}
    answers.ask(service, "OPTIONS", "/locks", "*", 204, headers={**page, "Access-Control-Request-Method": "POST"})
    assert answers.rows[-1][2].headers["access-control-allow-origin"] == "https://ops.example"


def gather_too_many(lab, answers):
    service = lab.service(1, "--max-connections", "4", wait=False)
    wait_until(lambda: service.curl("GET", "/masters").json["quorum"]["voting"] == 1, what="one master voting")
    taken = []

    def full():
        """Takes connections until one more is refused: those of the requests before may still be about to go."""
        taken.append(connect_to(service.address))
        taken[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return read_response(taken[-1]).status == 429

    wait_until(full, what="--max-connections connections")
    assert len(taken) <= 5 + 1
    for method, pattern in OPERATIONS:
        answers.ask(service, method, PATHS[pattern], pattern, 429)
    for connection in taken:
        connection.close()


def gather_down(lab, answers):
    service = lab.service(3)
    lease = service.acquire("held")
    for master in service.masters[1:]:
        master.kill()
    wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="not ready")
    answers.ask(service, "GET", "/readyz", "/readyz", 503)
    answers.ask(service, "GET", "/masters", "/masters", 200)
    answers.ask(service, "POST", "/locks", NEW, 503, body={"resource": "a"})
    answers.ask(service, "GET", "/locks", NEW, 503)
    answers.ask(service, "GET", "/locks/a", ONE, 503)
    answers.ask(service, "PUT", "/locks/held", ONE, 503, body={"token": lease["token"]})
    answers.ask(service, "DELETE", "/locks/held", ONE, 503, body={"token": lease["token"]})


def gather_quarantined(lab, answers):
    """Two of three have lost their memory, and time alone will mend it."""
    service = lab.service(3)
    for master in service.masters[1:]:
        master.cli("FLUSHALL")
    wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="not ready")

    def is_measured():
        answer = service.curl("GET", "/readyz")
        return answer if "retry_after_ms" in answer.json else None
    ready = wait_until(is_measured, what="how long it will take")
    answers.add("GET", "/readyz", ready)
    assert int(ready.headers["retry-after"]) == -(-ready.json["retry_after_ms"] // 1000) > 50, ready
    masters = answers.ask(service, "GET", "/masters", "/masters", 200).json["masters"]
    assert [master["quarantine_remaining_ms"] is None for master in masters] == [True, False, False], masters
    for method, path, pattern in (("POST", "/locks", NEW), ("GET", "/locks", NEW), ("GET", "/locks/a", ONE)):
        answers.ask(service, method, path, pattern, 503, body={"resource": "a"} if method == "POST" else None)


def gather_split(lab, answers):
    service = lab.service(3, "--retry-count", "1")
    for i, master in enumerate(service.masters[:2]):
        master.cli("SET", "split", f"somebody-{i}", "PX", 60000)
    answers.ask(service, "POST", "/locks", NEW, 503, body={"resource": "split"})


def gather_draining(lab, answers):
    """Those that wait are sent away, too."""
    service = lab.service(1)
    service.acquire("held")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(service.curl, "POST", "/locks", body={"resource": "held", "wait_ms": 60000})
        wait_until(lambda: service.curl("GET", "/locks/held").json["waiters"] == 1, what="one in the queue")
        service.process.send_signal(signal.SIGTERM)
        answers.add("POST", NEW, waiter.result())
    assert waiter.result().code == "draining", waiter.result()
    wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="draining")
    answers.ask(service, "GET", "/readyz", "/readyz", 503)
    answers.ask(service, "POST", "/locks", NEW, 503, body={"resource": "a"})


def gather_drained(lab, answers):
    """Calls that are still under way when the time to drain is up: the masters are stopped."""
    service = lab.service(3, "--master-timeout-ms", "5000", "--drain-ms", "200")
    lease = service.acquire("held")
    for master in service.masters:
        master.stop()
    calls = [("PUT", "/locks/held", ONE), ("DELETE", "/locks/held", ONE), ("GET", "/locks/held", ONE), ("GET", "/locks", NEW)]
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        token = {"Lock-Token": lease["token"]}
        under_way = [pool.submit(service.curl, method, path, headers=token) for method, path, _ in calls]
        wait_until(lambda: service.metrics()["redlockd_http_connections"] == len(calls) + 1, what="all calls under way")
        service.process.send_signal(signal.SIGTERM)
        for (method, _, pattern), answer in zip(calls, under_way):
            assert answer.result().code == "draining", answer.result()
            answers.add(method, pattern, answer.result())


@pytest.fixture(scope="module")
def answers():
    found = Answers()
    for gather in (gather_leases, gather_waiting, gather_holding, gather_operation, gather_mistakes, gather_access, gather_too_many, gather_down, gather_quarantined, gather_split,
                   gather_draining, gather_drained):
        with Lab() as lab:
            gather(lab, found)
    return found.rows


def close(schema, is_part=False):
    """A copy in which no object may have members that are not described. (The description lets answers gain members; a test wants to know of each.)"""
    if isinstance(schema, list):
        return [close(one, is_part) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: {name: close(member) for name, member in value.items()} if key == "properties" else close(value, key == "allOf")
              for key, value in schema.items()}
    if not is_part and ("allOf" in schema or "properties" in schema and "additionalProperties" not in schema):
        closed["unevaluatedProperties"] = False
    return closed


SCHEMAS = {name: close(schema, name == "Problem") for name, schema in DESCRIPTION["components"]["schemas"].items()}
CLOSED = {**DESCRIPTION, "components": {**DESCRIPTION["components"], "schemas": SCHEMAS}}


def validate(checks):
    """Validates values against schemas: [(pointer, value)] gives [message, "" where it is valid]."""
    def message(pointer, value):
        validator = jsonschema.Draft202012Validator({**CLOSED, "$ref": "#" + pointer}, format_checker=jsonschema.FormatChecker())
        return "; ".join(f"{error.json_path}: {error.message}" for error in validator.iter_errors(value))
    return [message(pointer, value) for pointer, value in checks]


# Headers that HTTP itself adds, and those that a description has elsewhere, such as the media type.
OF_HTTP = {"date", "connection", "content-length", "content-type", "keep-alive", "transfer-encoding",
           "access-control-allow-origin", "access-control-allow-methods", "access-control-allow-headers", "access-control-max-age", "vary"}


def check_headers(name, pointer, response, answer):
    """Yields the checks of an answer's headers; fails where one is missing or not described."""
    headers = {header.lower(): header for header in response.get("headers", {})}
    assert not set(answer.headers) - set(headers) - OF_HTTP, f"{name}: not described: {answer}"
    for low, header in headers.items():
        described_header = resolve(response["headers"][header])
        if low not in answer.headers:
            assert not described_header.get("required"), f"{name}: no {header}: {answer}"
            continue
        value = answer.headers[low]
        at = response["headers"][header].get("$ref", f"{pointer}/headers/{escape(header)}").removeprefix("#")
        yield at + "/schema", int(value) if described_header["schema"]["type"] == "integer" else value


def check_body(name, pointer, response, answer):
    """Yields the check of an answer's body, or of each of its lines; fails where its media type is not described."""
    if "content" not in response:
        assert answer.body == b"" and "content-type" not in answer.headers, f"{name}: {answer}"
        return
    media = answer.headers["content-type"].partition(";")[0]
    assert media in response["content"], f"{name}: {answer}"
    if media == LINES:
        assert answer.body.endswith(b"}\n"), f"{name}: {answer}"
        yield from ((f"{pointer}/content/{escape(media)}/schema", json.loads(line)) for line in answer.body.splitlines())
    else:
        yield f"{pointer}/content/{escape(media)}/schema", json.loads(answer.body) if media.endswith("json") else answer.body.decode()


def test_real_answers_are_as_described(answers):
    names, checks = [], []
    for method, pattern, answer in answers:
        key = ("*", "*", answer.status) if pattern == "*" else (method, pattern, answer.status)
        name = " ".join(map(str, key))
        assert key in RESPONSES, f"{name} is not described"
        for check in [*check_headers(name, *RESPONSES[key], answer), *check_body(name, *RESPONSES[key], answer)]:
            names.append(name)
            checks.append(check)
    assert len(checks) > len(answers)
    wrong = [f"{name}: {message}: {check[1]}" for name, check, message in zip(names, checks, validate(checks)) if message]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("schema, option", [("TtlMs", "max-ttl-ms"), ("WaitMs", "max-wait-ms")])
def test_bounds_are_those_of_the_options(schema, option):
    """The schema allows every value that can be configured; the defaults are described in words."""
    rows = [line for line in table_of_options().splitlines() if line.startswith(f"| `--{option}=")]
    default, allowed = [cell.strip(" `") for cell in rows[0].split("|")[2:4]]
    assert DESCRIPTION["components"]["schemas"][schema]["maximum"] == int(allowed.removesuffix(" ms").split(" to ")[1])
    assert f"`--{option}` ({default})" in DESCRIPTION["components"]["schemas"][schema]["description"]


def test_what_the_http_library_refuses_by_itself(service):
    """As the description says of it: the same status, and nothing more is promised."""
    assert service.curl("GET", "/healthz?" + "x" * 100000).status == 414
    assert service.curl("GET", "/healthz", headers={"X-Long": "x" * 100000}).status == 431


def test_every_described_answer_was_given(answers):
    given = set()
    for method, pattern, answer in answers:
        code = answer.code if answer.status >= 400 else "-"
        given.add(Described("*" if pattern == "*" else method, pattern, answer.status, code))
    assert sorted(described() - given) == []


def test_validation_would_find_something():
    """A member too many, one too few, and a wrong value."""
    lease = DESCRIPTION["components"]["examples"]["Lease"]["value"]
    problem = DESCRIPTION["components"]["examples"]["NotOwner"]["value"]
    lease_at = "/paths/~1locks/post/responses/201/content/application~1json/schema"
    problem_at = "/components/responses/NotOwner/content/application~1problem+json/schema"
    less = {name: value for name, value in lease.items() if name != "token"}
    good = [(lease_at, lease), (problem_at, problem)]
    bad = [(lease_at, {**lease, "more": 1}), (lease_at, less), (lease_at, {**lease, "fence": 0}),
           (lease_at, {**lease, "fence": 2**53}), (lease_at, {**lease, "fence": "7"}), (lease_at, {**lease, "validity_ms": 0}),
           (problem_at, {**problem, "more": 1}), (problem_at, {**problem, "code": "locked"}), (problem_at, {**problem, "votes": {}})]
    messages = validate(good + bad)
    assert messages[:2] == ["", ""] and all(messages[2:]), messages
