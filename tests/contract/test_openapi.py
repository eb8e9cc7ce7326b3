# SPDX-License-Identifier: MIT
"""openapi.yaml against the linters, against the route table of the program, and against what the program really answers:
everything described exists, and everything that exists is described."""

import copy
import html
import json
import pathlib
import re
import subprocess

import jsonschema
import pytest
import yaml

from description import DESCRIPTION, FILE, LINES, RESPONSES, Described, described, escape, resolve
from description_rules import broken_rules
from harness import ROOT, run_redlockd, table_of_options
from real_answers import gather_all

HERE = pathlib.Path(__file__).resolve().parent


# ------------------------------------------------------------------------------------------------------ (a) lint


def lint(file):
    return subprocess.run(["node", HERE / "lint.js", file], cwd=HERE, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@pytest.mark.node
def test_lint_finds_nothing():
    done = lint(FILE)
    assert done.returncode == 0 and done.stdout + done.stderr == "", done.stdout + done.stderr


@pytest.mark.node
def test_lint_would_find_something(tmp_path):
    """An example that its schema does not allow."""
    broken = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    broken["components"]["examples"]["Lease"]["value"]["token"] = "short"
    (tmp_path / "openapi.yaml").write_text(yaml.safe_dump(broken), encoding="utf-8")
    done = lint(tmp_path / "openapi.yaml")
    assert done.returncode != 0 and "token" in done.stdout + done.stderr, done.stdout + done.stderr


def test_no_rule_of_our_own_is_broken():
    assert list(broken_rules(DESCRIPTION)) == []


@pytest.mark.parametrize("rule, path, value", [
    ("version", "openapi", "3.1.x"), ("licence", "info/license/url", "https://example.org"),
    ("tags", "tags", [{"name": "leases"}, {"name": "leases"}]), ("markdown", "info/description", "<script>x</script>"),
    ("repeated", "components/schemas/Mode/enum", ["shared", "shared"]), ("repeated", "components/schemas/Lease/required", ["token", "token"]),
    ("items", "components/schemas/Mode/type", ["array", "null"]), ("default", "components/schemas/Mode/default", "x"),
    ("example", "components/headers/Retry-After/example", [4]), ("unbounded", "components/schemas/Owner", {"type": "string"}),
    ("unbounded", "components/parameters/IdempotencyKey/schema", {"type": "string"}),
    ("problem", "components/responses/Forbidden/content", {"application/json": {}}), ("headers", "components/responses/Forbidden/headers", {}),
])
def test_our_own_rules_would_find_something(rule, path, value):
    broken = copy.deepcopy(DESCRIPTION)
    node, *names = broken, *path.split("/")
    for name in names[:-1]:
        node = node[name]
    node[names[-1]] = value
    assert {found.split(":")[0] for found in broken_rules(broken)} == {rule}


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


@pytest.fixture(scope="module")
def answers():
    return gather_all()


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


def ms_of(time):
    """As options are given: 500ms, 60s, 24h."""
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h)", time).groups()
    return int(number) * {"ms": 1, "s": 1000, "m": 60000, "h": 3600000}[unit]


@pytest.mark.parametrize("schema, option", [("TtlMs", "max-ttl-ms"), ("WaitMs", "max-wait-ms")])
def test_bounds_are_those_of_the_options(schema, option):
    """The schema allows every value that can be configured, and a wait of any length, which the server may shorten. The defaults are described
    in words."""
    rows = [line for line in table_of_options().splitlines() if line.startswith(f"| `--{option}=")]
    default, allowed = [cell.strip(" `") for cell in rows[0].split("|")[2:4]]
    assert DESCRIPTION["components"]["schemas"][schema]["maximum"] == (
        2 ** 53 - 1 if schema == "WaitMs" else ms_of(allowed.split(" to ")[1]))
    assert f"`--{option}` ({ms_of(default)})" in DESCRIPTION["components"]["schemas"][schema]["description"]


def test_what_the_http_library_refuses_by_itself(service):
    """As the description says of it: the same status, and nothing more is promised."""
    assert service.curl("GET", "/healthz?" + "x" * 100000).status == 414
    assert service.curl("GET", "/healthz", headers={"X-Long": "x" * 100000}).status == 431


def test_every_error_names_its_section_of_the_served_page(service, answers):
    """`type` is a path of the server itself, and its fragment an id in what lies there."""
    page = service.curl("GET", "/docs/errors")
    assert page.status == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    ids = re.findall(r'<h2 id="([^"]*)">', page.body.decode())
    problems = [answer.json for _, _, answer in answers if answer.status >= 400]
    assert {problem["type"] for problem in problems} == {f"/docs/errors#{code}" for code in ids} and len(ids) == len(set(ids)) > 10
    assert [problem for problem in problems if problem["type"] != "/docs/errors#" + problem["code"]] == []


def test_details_say_what_was_wrong(answers):
    """Each is made of sentences, and names what the request got wrong."""
    for method, pattern, answer in answers:
        if answer.status < 400:
            continue
        problem, detail = answer.json, answer.json["detail"]
        assert len(detail.split()) >= 3 and detail[-1] == "." and (pattern == "/readyz" or len(detail) <= 300), problem
        if answer.status == 404:
            assert "/nothing" in detail and "/openapi.yaml" in detail
        if answer.status == 405:
            assert answer.headers["allow"] in detail and "PATCH" in detail
        if "errors" in problem and problem["errors"][0]["field"] != "request":
            assert [error for error in problem["errors"] if f"{error['field']}: {error['reason']}" not in detail] == []


@pytest.mark.parametrize("method, path, body, detail", [
    ("POST", "/locks", "{resource:x}", "body: not valid JSON (at byte 9); names and texts need double quotes, times are numbers of milliseconds."),
    ("POST", "/locks", {"resource": "a", "ttl_ms": 3600000}, "ttl_ms: must be from 100 to 60000; extend it for longer."),
    ("POST", "/locks", {"resource": "a", "ttl_ms": 1}, "ttl_ms: must be from 100 to 60000."),
    ("GET", "/locks/" + 257 * "a", None, "resource: must be at most 256 bytes."),
    ("POST", "/locks/orders/42", {}, "This path takes PUT, DELETE, GET, HEAD, not POST. To acquire, POST /locks with the resource in the body."),
])
def test_a_mistake_is_told_what_to_do(service, method, path, body, detail):
    assert service.curl(method, path, body=body).json["detail"] == detail


def test_an_unknown_member_is_told_the_known_ones(service):
    for method, path, known in (("POST", "/locks", "resource, resources, ttl_ms, owner, wait_ms, hold, metadata, mode, slots"), ("PUT", "/locks/a", "ttl_ms, token"), ("DELETE", "/locks/a", "token, keep_ms"),
                                ("PUT", "/locks", "resource, resources, ttl_ms, token"), ("DELETE", "/locks", "resource, resources, token, keep_ms")):
        answer = service.curl(method, path, body={"tttl_ms": 1})
        assert {"field": "tttl_ms", "reason": f"is not a member of this body; allowed are {known}"} in answer.json["errors"], answer


def test_the_page_of_errors_is_all_there(service):
    """What the document says, with no link that leads nowhere from the page, and no markdown."""
    page = service.curl("GET", "/docs/errors").body.decode()
    text = html.unescape(re.sub(r"<[^>]*>", "", page.partition("<body>")[2]))
    document = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    plain = re.sub(r"^```.*\n|^#+ |^- |[`*]", "", re.sub(r"\[([^]]*)\]\((\S+)\)", r"\1 \2", document), flags=re.M)
    assert [word for word in plain.split() if re.fullmatch(r"[\w{}:,.\"]+", word) and word not in text] == []
    assert not re.search(r"[`*]|\]\(", text)
    assert all(re.match(r"https://|#", target) for target in re.findall(r'href="([^"]*)"', page.partition("<body>")[2]))


def test_every_described_answer_was_given(answers):
    given = set()
    for method, pattern, answer in answers:
        code = answer.code if answer.status >= 400 else "-"
        given.add(Described("*" if pattern == "*" else method, pattern, answer.status, code))
    assert sorted(described() - given) == []


def examples_of(node, pointer=""):
    """Yields each example of a body that is JSON: the pointer to its schema, and the value."""
    if isinstance(node, list):
        for number, one in enumerate(node):
            yield from examples_of(one, f"{pointer}/{number}")
    elif isinstance(node, dict):
        for media, its in node.get("content", {}).items():
            values = [resolve(example)["value"] for example in its.get("examples", {}).values()] + ([its["example"]] if "example" in its else [])
            yield from ((f"{pointer}/content/{escape(media)}/schema", value) for value in values if media.endswith("json"))
        for name, one in node.items():
            yield from examples_of(one, f"{pointer}/{escape(name)}")


def test_examples_are_as_described():
    checks = list(examples_of(DESCRIPTION["paths"], "/paths")) + list(examples_of(DESCRIPTION["components"]["responses"], "/components/responses"))
    assert len(checks) > 40
    assert [f"{at}: {message}" for (at, _), message in zip(checks, validate(checks)) if message] == []


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
