"""docs/how-to/clients.md shows the programs that are tested, and names each test of them."""

import re

import test_mixed
import test_programs
from include import GUIDE, PLACE, included
from programs import FILES, FOLDER


def guide():
    return GUIDE.read_text(encoding="utf-8")


def test_the_guide_shows_the_files():
    assert included(guide()) == guide(), "run tests/clients/include.py"
    assert sorted(place[2] for place in PLACE.finditer(guide())) == sorted(f"clients/{name}" for name in FILES.values())
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(FILES.values())


def test_the_table_names_all_tests():
    named = re.findall(r"\| `(test_\w+)` \|$", guide(), re.M)
    assert sorted(named) == sorted(name for module in (test_programs, test_mixed) for name in vars(module) if name.startswith("test_"))


def test_the_table_of_statuses_names_all_that_redlockd_gives():
    """Statuses and codes of openapi.yaml, each in a row of the table."""
    import yaml
    openapi = yaml.safe_load((GUIDE.parents[2] / "openapi.yaml").read_text(encoding="utf-8"))
    rows = "".join(re.findall(r"^\| (?:\d|no ).*\n", guide(), re.M))
    statuses = {status for path in openapi["paths"].values() for call in path.values() if isinstance(call, dict) for status in call.get("responses", ())}
    assert statuses <= set(re.findall(r"\b[2-5]\d\d\b", rows)) and len(statuses) > 8
    members = [schema["properties"]["code"] for name, schema in openapi["components"]["schemas"].items() if name.endswith("Problem")]
    codes = {code for member in members for code in member.get("enum", [member.get("const")])}
    assert codes <= set(re.findall(r"`([a-z-]+)`", rows)) and len(codes) > 8
