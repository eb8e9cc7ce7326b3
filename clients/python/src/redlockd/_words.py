# SPDX-License-Identifier: MIT
"""Texts for people: the names of locks, and what a server says in the words and units of this library."""

import re
from typing import Any, Mapping, Sequence

_TIME = re.compile(r"\b(ttl|wait)_ms\b")


def _printable(text: str) -> str:
    """An owner or a name may have any characters."""
    return text if text.isprintable() else ascii(text)


def names_of(resources: Sequence[str]) -> str:
    return ", ".join(map(_printable, resources))


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.12g} s"


def _wrong_field(error: Mapping[str, Any]) -> str:
    field, reason = str(error.get("field")), str(error.get("reason"))
    if _TIME.fullmatch(field):  # its numbers are milliseconds
        reason = re.sub(r"(?<!\d)\d{1,15}(?!\d)", lambda found: _seconds(int(found[0])), reason)
    return f"{field}: {reason}"


def detail_of(problem: Mapping[str, Any], otherwise: str, ttl_name: str) -> str:
    """`detail` of an answer, with the names of the options, and seconds."""
    errors = problem.get("errors")
    detail = str(problem.get("detail", otherwise))
    if isinstance(errors, list) and errors and all(isinstance(error, dict) for error in errors):
        detail = "; ".join(map(_wrong_field, errors))
    return _TIME.sub(lambda found: ttl_name if found[1] == "ttl" else found[1], detail)


def held_by(problem: Mapping[str, Any], names: str) -> str:
    """The lock and its holder, of a 409 `locked`."""
    holder, resource, left = problem.get("holder"), problem.get("resource"), problem.get("retry_after_ms")
    name = _printable(resource) if isinstance(resource, str) else names
    owner, fence = (holder.get("owner"), holder.get("fence")) if isinstance(holder, dict) else (None, None)
    who = _printable(owner) if isinstance(owner, str) and owner else "somebody else"
    numbered = f" (fence {fence})" if type(fence) is int else ""
    until = f", lease ends in {_seconds(left)} unless it is extended" if type(left) is int and 0 < left < 1e15 else ""
    return f"{name}: held by {who}{numbered}{until}"
