# SPDX-License-Identifier: MIT
"""docs/reference/log-events.md against the sources: every event that is logged is there, with its levels and members, and none that is not."""

import re

import pytest

from harness import ROOT

FILES = {path: path.read_text(encoding="utf-8") for folder in ("server", "api") for path in sorted((ROOT / folder).rglob("*.c"))}
SOURCE = "\n".join(FILES.values())
# Name, parameters and body of each function: .clang-format puts both braces of a body at the beginning of a line.
FUNCTIONS = [found.groups() for text in FILES.values() for found in re.finditer(r"^[a-z_][\w \t*(),]*?\b(\w+)\(([^;{}]*?)\)\n\{\n(.*?)^\}", text, re.M | re.S)]
KEY = re.compile(r'\blog_(?:text|str|num)\(\s*"(\w+)"')
EVENT = re.compile(r'"([a-z-]+)"')
EVENT_OF_PAGE = re.compile(r"`([a-z-]+)`")


def arguments(text, at):
    """Those of the call whose opening parenthesis is before `at`."""
    parts, depth, start = [], 1, at
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0 or (depth == 1 and text[i] == ","):
            parts.append(text[start:i].strip())
            start = i + 1
        if depth == 0:
            return parts
    raise AssertionError(f"no end: {text[at:at + 80]}")


def calls(name, text):
    return [(found.start(), arguments(text, found.end())) for found in re.finditer(rf"\b{name}\(", text)]


def events_of(argument, name, parameters, body):
    """The events that an argument of log_begin() may be: literals, those given to a variable, or by the callers to a parameter."""
    if '"' in argument:
        return set(EVENT.findall(argument))
    places = [i for i, one in enumerate(parameters.split(",")) if re.search(rf"\b{argument}$", one.strip())]
    if not places:
        return {event for given in re.findall(rf"\b{argument} = ([^;]*);", body) for event in EVENT.findall(given)}
    inside = [given[places[0]] for _, _, caller in FUNCTIONS for _, given in calls(name, caller)]
    return {event for given in inside for event in EVENT.findall(given)}


def members_of(line):
    """Of the statements of one line of the log, with those of the functions that add members."""
    found = set(KEY.findall(line))
    if "vote_members[i].name" in line:
        found |= set(re.findall(r"\bVOTE\((\w+)\)", SOURCE)) - {"member"}
    for name, _, body in FUNCTIONS:
        if name not in ("log_begin", "log_end", "log_text") and "log_begin(" not in body and KEY.search(body) and re.search(rf"\b{name}\(", line):
            found |= set(KEY.findall(body))
    return found


def logged():
    """(events, levels, members) of each call of log_begin(): a line that is one of several events may have a part of the levels and members in each."""
    found = []
    for name, parameters, body in FUNCTIONS:
        starts = [start for start, _ in calls("log_begin", body)]
        for start, (level, event) in calls("log_begin", body):
            if name != "log_begin":
                ends = [end for end in (*starts, body.find("log_end();", start)) if end > start]
                given = level if "LOG_" in level else re.search(rf"\b{level} = ([^;]*);", body)[1]
                found.append((events_of(event, name, parameters, body), {word.lower() for word in re.findall(r"LOG_(DEBUG|INFO|WARN|ERROR)", given)},
                              members_of(body[start:min(ends)])))
    return found


def documented():
    """{event: (levels, members)} of the page."""
    found = {}
    for row in (ROOT / "docs/reference/log-events.md").read_text(encoding="utf-8").splitlines():
        if row.startswith("| `"):
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            assert len(cells) == 4 and cells[3], row
            for event in EVENT_OF_PAGE.findall(cells[0]):
                assert event not in found, f"{event} twice"
                found[event] = (set(re.findall(r"debug|info|warn|error", cells[1])), set(re.findall(r"`(\w+)`", cells[2])))
    return found


def test_every_event_is_found_in_the_sources():
    """No call of log_begin() escapes the search."""
    assert len(logged()) == len(re.findall(r"^\t+log_begin\(", SOURCE, re.M)) > 20
    assert all(events and levels for events, levels, _ in logged())


def test_the_page_has_every_event_and_no_other():
    assert sorted(documented()) == sorted({event for events, _, _ in logged() for event in events})


@pytest.mark.parametrize("part", [0, 1], ids=["levels", "members"])
def test_the_page_has_the_levels_and_members_of_each(part):
    told, real = documented(), {}
    for events, *parts in logged():
        missing = parts[part].difference(*(told[event][part] for event in events))
        assert not missing, f"{sorted(events)}: {sorted(missing)} is not on the page"
        for event in events:
            real.setdefault(event, set()).update(parts[part])
    assert {event: sorted(told[event][part] - real[event]) for event in told if told[event][part] - real[event]} == {}, "what no line has"
