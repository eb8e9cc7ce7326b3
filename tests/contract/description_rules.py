# SPDX-License-Identifier: MIT
"""Rules of openapi.yaml that lint.js has not: those that its library lacks, and our own."""

import re

import jsonschema

from description import METHODS, resolve

HEADERS_OF_ALL = {"X-Request-Id", "Cache-Control", "X-Content-Type-Options"}
BOUNDS = {"maxLength", "enum", "pattern", "maximum", "maxItems", "maxProperties"}


def objects_of(node, at=""):
    """Yields each object of the description with its place, but for those of examples, which have the shape of answers."""
    if isinstance(node, dict):
        yield at, node
    for name, member in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if name not in ("example", "examples", "value"):
            yield from objects_of(member, f"{at}/{name}")


def is_valid(value, schema, description):
    return jsonschema.Draft202012Validator({**description, **schema}).is_valid(value)


def broken_by_object(at, node, description):
    for name in ("enum", "required"):
        if isinstance(node.get(name), list) and len(set(node[name])) < len(node[name]):
            yield f"repeated: {at}/{name}"
    if "array" in node.get("type", ()) and "items" not in node:
        yield f"items: {at} has none"
    if "default" in node and isinstance(node.get("type"), str) and not is_valid(node["default"], node, description):
        yield f"default: {at} does not allow its own"
    if "example" in node and "schema" in node and "content" not in node and not is_valid(node["example"], node["schema"], description):
        yield f"example: {at} does not allow its own"
    if re.search(r"<script|eval\(", str(node.get("description", ""))):
        yield f"markdown: {at} has a script"


def broken_by_operation(at, operation, parameters, description):
    """Every error is a problem and nothing else, every answer has some headers, and text that a caller sends has a bound."""
    for status, response in operation["responses"].items():
        response = resolve(response, description)
        if status >= "400" and "content" in response and set(response["content"]) != {"application/problem+json"}:
            yield f"problem: {at}: {status}"
        if HEADERS_OF_ALL - set(response.get("headers", ())):
            yield f"headers: {at}: {status}"
    schemas = [resolve(parameter, description)["schema"] for parameter in parameters]
    for media in resolve(operation.get("requestBody", {}), description).get("content", {}).values():
        schemas += resolve(media["schema"], description).get("properties", {}).values()
    for schema in schemas:
        schema = resolve(schema, description)
        if not BOUNDS & set(schema) and schema.get("type") != "boolean":
            yield f"unbounded: {at}: {schema}"


def broken_rules(description):
    """Yields a line for each place that breaks a rule: the rule, a colon, the place."""
    if not re.fullmatch(r"3\.1\.\d+", description["openapi"]):
        yield f"version: {description['openapi']}"
    if {"identifier", "url"} <= set(description["info"]["license"]):
        yield "licence: an SPDX identifier or a URL, not both"
    if len({tag["name"] for tag in description["tags"]}) < len(description["tags"]):
        yield "tags: a name has two"
    for at, node in objects_of(description):
        yield from broken_by_object(at, node, description)
    for path, item in description["paths"].items():
        for method in METHODS & set(item):
            parameters = item.get("parameters", []) + item[method].get("parameters", [])
            yield from broken_by_operation(f"{method} {path}", item[method], parameters, description)
