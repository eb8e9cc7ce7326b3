# SPDX-License-Identifier: MIT
"""A real Prometheus over two redlockds and real masters: every query of the dashboard and every metric of the rules has
data, and the alerts come that should.

The queries and their values are in build/results/dashboard_queries.txt afterwards.
"""

import math
import re

import pytest

import harness
from harness import ROOT, SLOW
from seeing_files import dashboard, grafana_regex, queries, rules, selectors, substituted
from stage import Stage

# Those whose condition cannot be had within a minute, or not without harm: thousands of tries refused, of connections, of waiters; files used up.
# redlockd.rules.test.yml tries them. RedlockdAbsent is tried here, at the end.
NOT_PLAYED = {"RedlockdRefusalsHigh", "RedlockdLatencyHigh", "RedlockdWaitersNearLimit", "RedlockdWaitTooLong", "RedlockdConnectionsNearLimit",
              "RedlockdDescriptorsNearLimit", "RedlockdLogDropped", "RedlockdAbsent"}


@pytest.fixture(scope="module")
def stage():
    with harness.Lab() as lab:
        played = Stage(lab)
        played.play()
        yield played


def variables(stage, jobs, instances):
    """As Grafana has them for a panel over the time of the play, with these values chosen: a second between points, scraped each second."""
    seconds = math.ceil(stage.ended - stage.began)
    return {"job": grafana_regex(jobs), "instance": grafana_regex(instances), "__rate_interval": f"{round(4 * SLOW)}s", "__range": f"{seconds}s"}


def numbers_of(stage, expression, instant):
    """[numbers of each series]; one without a number is left out."""
    if instant:
        found = [[value] for _, value in stage.prometheus.now(expression, stage.ended)]
    else:
        found = [values for _, values in stage.prometheus.range(expression, stage.began, stage.ended, 1)]
    numbers = [[float(value) for value in values if value != "NaN"] for values in found]
    return [values for values in numbers if values]


def shown(found):
    """Of the series that was largest, as there are many that tell nothing happened."""
    if not found:
        return "nothing"
    largest = max(found, key=max)
    return f"{largest[-1]:.6g}, at most {max(largest):.6g}; series: {len(found)}"


def addresses(stage):
    return sorted([stage.plain.address, stage.secured.address.removeprefix("https://")])


def test_every_query_of_the_dashboard_has_data(stage):
    chosen = variables(stage, ["redlockd"], addresses(stage))
    lines, empty = [], []
    for title, expression, instant in queries():
        asked = substituted(expression, chosen)
        found = numbers_of(stage, asked, instant)
        lines.append(f"{title}\n    {asked}\n    → {shown(found)}\n")
        if not found:
            empty.append(f"{title}: {asked}")
    results = ROOT / "build" / "results"
    results.mkdir(parents=True, exist_ok=True)
    (results / "dashboard_queries.txt").write_text("".join(lines), encoding="utf-8")
    assert len(lines) > 50
    assert not empty, "\n".join(empty)


def test_the_variables_offer_what_is_there_and_choosing_works(stage):
    """label_values(selector, label), as Grafana asks for it; and a query for some instances alone."""
    offered = {}
    for one in dashboard()["templating"]["list"]:
        if one["type"] != "query":
            continue
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", one["definition"]).groups()
        selector = substituted(selector, {"job": grafana_regex(offered.get("job", []) or [""])})
        offered[one["name"]] = stage.prometheus.get(f"label/{label}/values", **{"match[]": selector, "start": stage.began, "end": stage.ended})
    assert offered == {"job": ["redlockd"], "instance": addresses(stage)}
    expression = next(expression for _, expression, _ in queries() if expression.startswith("count(redlockd_build_info"))
    for some in (addresses(stage), addresses(stage)[:1]):
        asked = substituted(expression, variables(stage, ["redlockd"], some))
        assert numbers_of(stage, asked, True) == [[len(some)]], asked


def test_every_metric_of_the_rules_has_data(stage):
    seconds = math.ceil(stage.ended - stage.began)
    for rule in rules():
        found = selectors(rule["expr"])
        assert found, rule
        for selector in found:
            assert numbers_of(stage, f"count(count_over_time({selector}[{seconds}s]))", True), f"{rule['alert']}: {selector} has no series"


def test_prometheus_evaluates_the_rules_without_error(stage):
    groups = stage.prometheus.get("rules")["groups"]
    evaluated = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert set(evaluated) == {rule["alert"] for rule in rules()}
    assert all(rule["health"] == "ok" for rule in evaluated.values()), evaluated


def test_the_alerts_come(stage):
    """Pending at least; those that have no `for` fire."""
    names = {rule["alert"]: rule for rule in rules()}
    assert set(stage.alerts) | NOT_PLAYED == set(names), set(names) ^ (set(stage.alerts) | NOT_PLAYED)
    for name in set(stage.alerts) - NOT_PLAYED:
        assert "for" in names[name] or "firing" in stage.alerts[name], name


def test_the_absence_of_all_is_noticed(stage):
    """The last one, as it ends the play."""
    assert "RedlockdAbsent" not in stage.prometheus.alerts()
    stage.alerts.clear()
    for daemon in (stage.plain, stage.secured):
        daemon.stop()
    stage.wait_alert("RedlockdAbsent")
