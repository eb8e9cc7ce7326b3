# SPDX-License-Identifier: MIT
"""All that the documents name exists: tests, files, metrics, options, headings."""

import pathlib
import re
import subprocess

import pytest

from harness import BINARY, ROOT, table_of_options
from rediss_fixtures import tls  # noqa: F401

DOCUMENTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in [ROOT / "README.md", ROOT / "clients/fences/README.md", *sorted((ROOT / "docs").rglob("*.md"))]}
TESTS = ROOT / "tests"


def cells_with_tests():
    """The last cells of the tables of docs/explanation/hazards.md."""
    rows = [line for line in DOCUMENTS["docs/explanation/hazards.md"].splitlines() if line.startswith("|") and "`test_" in line]
    return [row.rstrip("|").rpartition("|")[2] for row in rows if row.count("|") == 4]


def named_tests():
    """(file, test) of each test that docs/explanation names for a hazard; a test belongs to the files named right before it."""
    found = set()
    for cell in cells_with_tests():
        files, fresh = [], True
        for name in re.findall(r"`([^`]+)`", cell):
            if re.fullmatch(r"(e2e|unit|faults|contract|sim)/\w+\.(py|c)", name):
                files, fresh = [*(files if fresh else []), name], True
                continue
            fresh = False
            if re.fullmatch(r"\w+_\w+", name):
                found |= {(file, name) for file in files}
    return sorted(found)


def test_tests_of_hazards_exist():
    tests = named_tests()
    assert len(tests) > 35
    missing = [f"{file}: {name}" for file, name in tests if not re.search(rf"\b{name}\b", (TESTS / file).read_text(encoding="utf-8"))]
    assert not missing, missing


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_exist(document):
    """Those that are named with their folder, and the targets of links."""
    text = DOCUMENTS[document]
    named = set(re.findall(r"`((?:server|api|cli|tests|docs|cmake)/[\w./]+\.\w+)`", text)) | {f"tests/{name}" for name in re.findall(
        r"`((?:e2e|unit|faults|contract|sim)/\w+\.(?:py|c))`", text)}
    assert not sorted(name for name in named if not (ROOT / name).exists())


def anchor(heading):
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", DOCUMENTS[document]):
        path, _, fragment = target.partition("#")
        if "://" in target:
            continue
        file = ((ROOT / document).parent / path).resolve() if path else ROOT / document
        if not file.exists():
            broken.append(target)
        elif fragment and fragment not in {anchor(heading) for heading in re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.M)}:
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("library", ["python", "go", "node", "java", "php", "adapters/symfony-lock"])
def test_links_of_a_library_lead_out_of_its_package(library):
    """Nothing of the repository is beside its README: links are whole addresses, of documents that are there."""
    text = (ROOT / "clients" / library / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 3 and all(target.startswith("https://") for target in targets)
    ours = [re.fullmatch(r"https://github\.com/OWNER/redlockd/blob/main/([^#]+)#?(.*)", target) for target in targets]
    for found in filter(None, ours):
        headings = re.findall(r"^#+ (.*)$", DOCUMENTS[found[1]], re.M)
        assert not found[2] or found[2] in {anchor(heading) for heading in headings}, found[0]


def test_the_readme_is_short():
    text = DOCUMENTS["README.md"]
    assert (len(text.splitlines()) <= 140, len(text.split()) <= 1100) == (True, True)


def test_the_readme_leads_to_every_document():
    """In at most three steps, from page to page."""
    def links(name):
        folder = (ROOT / name).parent
        return {(folder / target).resolve().relative_to(ROOT).as_posix() for target in re.findall(r"\]\(([\w./-]+\.md)", DOCUMENTS[name])}
    found = {"README.md"}
    for _ in range(3):
        found |= set().union(*(links(name) for name in found & set(DOCUMENTS)))
    assert sorted(set(DOCUMENTS) - found) == []


def test_metrics_exist(lab, tls):  # noqa: F811
    """With all that can be switched on."""
    pair = tls.authority.issue("localhost", "DNS:localhost")
    service = lab.redlockd([tls.server(), *lab.redises(2)], *tls.options, "--masters-cert", pair.certificate, "--masters-key", pair.key,
                           "--tls-cert", pair.certificate, "--tls-key", pair.key, listen=[f"unix:{lab.folder}/metrics"])
    there = {line.split()[2] for line in service.curl("GET", "/metrics").body.decode().splitlines() if line.startswith("# TYPE ")}
    named = {name for text in DOCUMENTS.values() for name in re.findall(r"`(redlockd_[a-z_]+)\b", text)}
    assert len(named) > 10
    assert sorted(named - there) == []


def test_each_reason_of_a_master_is_described():
    """What costs a vote, by the names that the program has for it."""
    names = re.search(r"names\[\] = \{(.*?)\};", (ROOT / "server/redlock/guard/guard.c").read_text(encoding="utf-8"), re.S)[1]
    names += re.search(r'"fence-recovery".*?"replicas-attached"', (ROOT / "server/metrics/metrics.c").read_text(encoding="utf-8"), re.S)[0]
    reasons = set(re.findall(r'"([a-z-]+)"', names))
    assert {"no-epoch", "rolled-back", "cluster", "fence-recovery", "duplicate"} <= reasons
    described = {name for row in re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", DOCUMENTS["docs/reference/masters.md"], re.M) for name in re.findall(r"[a-z-]+", row)}
    assert sorted(reasons - described) == []


def test_each_error_has_a_section():
    """With the statuses of openapi.yaml, under an anchor that is its code."""
    text = DOCUMENTS["docs/reference/errors.md"]
    described = {code: {int(status) for status in re.findall(r"\b[45]\d\d\b", body)}
                 for code, body in re.findall(r"^## `([a-z-]+)`\n(.*?)(?=^## |\Z)", text, re.M | re.S)}
    there = {}
    for status, code in re.findall(r'\{(\d{3}), "([a-z-]+)", "', (ROOT / "api/calls/problem.c").read_text(encoding="utf-8")):
        there.setdefault(code, set()).add(int(status))
    assert len(there) > 10
    assert set(described) == set(there)
    assert [code for code in there if not there[code] <= described[code]] == []


OF_OTHERS = {"--set", "--requirepass", "--stop-timeout", "--tmpfs", "--sbom"}  # of helm, redis-server, docker


def test_options_exist():
    there = set(re.findall(r"`(--[a-z-]+)", table_of_options()))
    others = set(re.findall(r"(--[a-z-]+)", subprocess.run([pathlib.Path(BINARY).with_name("redlockctl"), "--help"], capture_output=True, text=True, check=True).stdout))
    named = {name for text in DOCUMENTS.values() for name in re.findall(r"`(--[a-z][a-z-]+)", text)}
    ours = {name for name in named if not re.match(r"--(seeds|seconds|include|mutation|network|rolling)", name)}
    assert sorted(ours - there - others - OF_OTHERS) == []
