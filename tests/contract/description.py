# SPDX-License-Identifier: MIT
"""openapi.yaml as data: its $refs, the answers that it describes, and their problem codes."""

import collections

import yaml

from harness import ROOT

FILE = ROOT / "openapi.yaml"
DESCRIPTION = yaml.safe_load(FILE.read_text(encoding="utf-8"))
LINES = "application/x-ndjson"
METHODS = {"get", "put", "post", "delete", "patch", "options", "head", "trace"}

# An answer that is described: which operation, which status, which code ("-" where there is none).
Described = collections.namedtuple("Described", "method pattern status code")


def resolve(node, description=DESCRIPTION):
    """The node itself, or what its $ref names."""
    while "$ref" in node:
        target = description
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
    for name, status in (("options", 204), ("unknown-path", 404), ("unknown-method", 405), ("too-large-a-body", 413)):
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
