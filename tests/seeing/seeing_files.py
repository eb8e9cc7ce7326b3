# SPDX-License-Identifier: MIT
"""The files of the dashboard and of the alerts, as the tests read them, and queries as Grafana and Prometheus make them."""

import json
import pathlib
import re

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "docker" / "grafana" / "redlockd.json"
PROVISIONING = ROOT / "docker" / "grafana" / "provisioning"
PROMETHEUS = ROOT / "docker" / "prometheus" / "prometheus.yml"
RULES = ROOT / "docker" / "prometheus" / "redlockd.rules.yml"
RULES_TEST = ROOT / "docker" / "prometheus" / "redlockd.rules.test.yml"
RUNBOOK = ROOT / "docs/how-to/runbook.md"
RUNBOOK_URL = "https://redlockd.example/runbook.md"  # the placeholder in both files

# A metric of ours (or of the process, or Prometheus's own) with its labels. All that the rules and the dashboard ask for begins so.
SELECTOR = re.compile(r"\b((?:redlockd|process)_[a-z_]+|up|ALERTS)\b(\{[^}]*\})?")


def dashboard():
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))


def rules():
    """All alerting rules."""
    return [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def rows():
    """[(row, its panels)]. Grafana keeps the panels of a collapsed row in it, and those of an open row behind it."""
    found = []
    for panel in dashboard()["panels"]:
        if panel["type"] == "row":
            found.append((panel, list(panel["panels"])))
        else:
            found[-1][1].append(panel)
    return found


def panels():
    return [panel for _, of_row in rows() for panel in of_row]


def queries():
    """All of the dashboard's: (title of the panel, expression, whether it is asked for one moment)."""
    found = [(f"{panel['title']} {target['refId']}", target["expr"], target["instant"]) for panel in panels() for target in panel["targets"]]
    return found + [(f"annotation: {one['name']}", one["expr"], False) for one in dashboard()["annotations"]["list"] if "expr" in one]


def grafana_regex(values):
    """Chosen values of a variable that may have several, as Grafana writes them into a query of Prometheus, within quotes; All is each one that there is."""
    escaped = [re.sub(r"[$^*{}\[\]'+?.()|]", lambda c: "\\\\" + c.group(), value) for value in values]
    return escaped[0] if len(escaped) == 1 else "(" + "|".join(escaped) + ")"


def substituted(expression, variables):
    """An expression with its variables put in, $name or ${name}; none may be left."""
    done = re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: variables[found[1] or found[2]], expression)
    assert "$" not in done, done
    return done


def selectors(expression):
    """The metrics with labels that an expression is made of."""
    return [name + (labels or "") for name, labels in SELECTOR.findall(expression)]
