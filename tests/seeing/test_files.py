# SPDX-License-Identifier: MIT
"""Rules, dashboard, runbook and provisioning as files: checked by their own tools, and against each other."""

import collections
import itertools
import re
import subprocess

import yaml

from seeing_files import PROMETHEUS, PROVISIONING, RULES, RULES_TEST, RUNBOOK, RUNBOOK_URL, dashboard, panels, queries, rows, rules, selectors

SEVERITIES = {"critical", "warning", "info"}
# Of Grafana's many units those that are meant here; another one is perhaps misspelled.
UNITS = {"none", "short", "s", "ops", "reqps", "percentunit", "bytes", "dateTimeFromNow"}
# Nothing in these panels is too much or too little by itself.
UNBOUNDED = {"Voting masters", "Instances of redlockd", "Alerts", "Commands in flight", "Acquisitions by outcome", "Other operations by outcome",
             "Split votes and second rounds", "Operations", "Abandoned grants", "Ended waits by result", "Time held", "Leases held by a connection",
             "Requests by route", "Requests by status", "Missed deadlines", "CPU", "Memory", "Versions", "Quarantined masters"}
# Words that are no longer used, in texts that people read.
OLD_WORDS = re.compile(r"\b(in line|calls?|gone|owed|due|barred|lapse|ghost|resync|nobody|somebody|under way)\b", re.I)


def promtool(*args):
    done = subprocess.run(["promtool", *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---------------------------------------------------------------------------------------------------- Prometheus


def test_the_rules_are_good():
    assert f"{len(rules())} rules found" in promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)


def test_the_configuration_is_good():
    promtool("check", "config", PROMETHEUS)
    config = yaml.safe_load(PROMETHEUS.read_text())
    assert config["rule_files"] == [RULES.name]
    [job] = config["scrape_configs"]
    assert [static["targets"] for static in job["static_configs"]] == [["redlockd-1:8080", "redlockd-2:8080"]]


def test_the_unit_tests_of_the_rules_pass():
    assert "SUCCESS" in promtool("test", "rules", RULES_TEST)


def test_each_alert_is_tried_both_ways():
    """One case in which it fires, and one in which it does not though its metrics are there."""
    tried = collections.defaultdict(set)
    by_name = {rule["alert"]: rule for rule in rules()}
    for group in yaml.safe_load(RULES_TEST.read_text())["tests"]:
        names = {re.match(r"\w+", series["series"]).group() for series in group["input_series"]}
        for case in group["alert_rule_test"]:
            needed = {re.match(r"\w+", selector).group() for selector in selectors(by_name[case["alertname"]]["expr"])}
            assert not case["exp_alerts"] or all(set(alert) == {"exp_labels", "exp_annotations"} for alert in case["exp_alerts"]), case
            if case["exp_alerts"] or needed <= names:
                tried[case["alertname"]].add(bool(case["exp_alerts"]))
    assert {name: tried[name] for name in by_name} == {name: {True, False} for name in by_name}


def test_each_alert_says_what_people_need():
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["alert"].startswith("Redlockd") and rule["labels"]["severity"] in SEVERITIES, rule
        notes = rule["annotations"]
        assert set(notes) == {"summary", "description", "runbook_url"}, rule
        assert len(notes["summary"].split()) >= 5 and len(notes["description"].split()) >= 4, rule
        # The text names the redlockd or master, and the value where it is more than yes or no.
        said = notes["summary"] + notes["description"]
        assert "absent" in rule["expr"] or "$labels.instance" in said, rule
        assert "redlockd_master_" not in rule["expr"] or "$labels.master" in said, rule
        assert re.search(r"== [01]\b|^up == 0|absent", rule["expr"]) or "$value" in notes["description"], rule


def test_each_alert_has_its_section_and_each_section_its_alert():
    text = RUNBOOK.read_text(encoding="utf-8")
    headings = re.findall(r"^### (Redlockd\w+)$", text, re.M)
    assert headings == [rule["alert"] for rule in rules()], "the sections, in the order of the rules"
    for rule in rules():
        assert rule["annotations"]["runbook_url"] == f"{RUNBOOK_URL}#{rule['alert'].lower()}", rule


def test_each_section_says_it_all():
    """Each alert has its meaning for locks, how to look and what to do; what not to do where that could cost a lock."""
    for section in re.split(r"^### (?=Redlockd)", RUNBOOK.read_text(encoding="utf-8"), flags=re.M)[1:]:
        section = re.split(r"^## ", section, flags=re.M)[0]
        name = section.split("\n")[0]
        parts = re.findall(r"^\*\*[A-Z][a-z ]+\.\*\*", section, re.M)
        assert parts[:3] == ["**Locks.**", "**Look.**", "**Do.**"] and parts[3:] in ([], ["**Do not.**"]), f"{name}: {parts}"


# ----------------------------------------------------------------------------------------------------- Grafana


def test_panels_are_whole():
    ids = [panel["id"] for row, of_row in rows() for panel in [row, *of_row]]
    assert len(set(ids)) == len(ids) > 40
    for panel in panels():
        assert panel["title"] and len(panel["description"].split()) >= 2, panel
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel
        assert panel["targets"], panel
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFGH"[:len(panel["targets"])]), panel
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"] and target["range"] is not target["instant"], panel


def test_each_panel_has_a_unit_and_thresholds():
    """A graph draws its threshold, or the limit that is a metric itself."""
    for panel in panels():
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"] in UNITS, panel["title"]
        assert defaults["thresholds"]["mode"] == "absolute", panel["title"]
        base, *steps = defaults["thresholds"]["steps"]
        assert base["value"] is None and steps == sorted(steps, key=lambda step: step["value"]), panel["title"]
        assert len({step["color"] for step in [base, *steps]}) == 1 + len(steps), panel["title"]
        limit = [target for target in panel["targets"] if target["legendFormat"] == "limit"]
        assert bool(steps or limit) is (panel["title"] not in UNBOUNDED), panel["title"]
        if panel["type"] == "timeseries" and steps:
            assert defaults["custom"]["thresholdsStyle"] == {"mode": "dashed"}, panel["title"]


def test_rows_are_collapsed_but_the_first():
    assert [row["title"] for row, _ in rows()] == ["Quorum", "Masters", "Leases", "Waiting", "Holding", "HTTP", "Process"]
    assert [row["collapsed"] for row, _ in rows()] == [False] + [True] * 6
    first, *others = rows()
    assert not first[0]["panels"] and all(row["panels"] == of_row for row, of_row in others)


def test_panels_lie_side_by_side():
    """The rows with what is open are one grid; each collapsed row is another, from the line below it on."""
    for grid in [[panel for panel in dashboard()["panels"]]] + [row["panels"] for row, _ in rows() if row["collapsed"]]:
        taken = {}
        for panel in grid:
            at = panel["gridPos"]
            assert 0 <= at["x"] and at["x"] + at["w"] <= 24 and at["w"] > 0 and at["h"] > 0, panel
            for place in itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])):
                assert place not in taken, f"{panel['title']} lies on {taken[place]}"
                taken[place] = panel["title"]
    for row, of_row in rows():
        assert min(panel["gridPos"]["y"] for panel in of_row) == row["gridPos"]["y"] + 1, row["title"]


def test_texts_are_plain():
    said = [(panel["title"], f"{panel['title']}. {panel['description']} " + " ".join(target["legendFormat"] for target in panel["targets"])) for panel in panels()]
    said += [(rule["alert"], " ".join(rule["annotations"].values())) for rule in rules()]
    for name, text in said:
        # What stands in backticks is the value of a label.
        assert not OLD_WORDS.search(re.sub(r"`.*?`", "", text)), f"{name}: {text}"


def test_links_lead_to_the_runbook():
    """By the variable alone, so that its address stands in one place; each alert is linked from a panel."""
    variable, = [one for one in dashboard()["templating"]["list"] if one["name"] == "runbook"]
    assert variable["type"] == "constant" and variable["hide"] == 2 and variable["skipUrlSync"] is True  # not from the address of a page
    assert variable["query"] == variable["current"]["value"] == RUNBOOK_URL
    assert [option["value"] for option in variable["options"]] == [RUNBOOK_URL]
    assert [link["url"] for link in dashboard()["links"]] == ["${runbook:raw}"]
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", RUNBOOK.read_text(encoding="utf-8"), re.M)}
    linked = set()
    for panel in panels():
        assert "runbook" not in panel["description"].lower(), panel["title"]
        for link in panel.get("links", []):
            address, _, anchor = link["url"].partition("#")
            assert address == "${runbook:raw}" and anchor in anchors and link["targetBlank"] is True, panel["title"]
            linked.add(anchor)
    assert linked >= {rule["alert"].lower() for rule in rules()}, {rule["alert"].lower() for rule in rules()} - linked


def test_queries_are_of_what_is_chosen():
    for title, expression, _ in queries():
        for selector in selectors(expression):
            assert selector.startswith("ALERTS{") or 'job=~"$job",instance=~"$instance"}' in selector, f"{title}: {selector}"
        # A window of fixed length is empty where scrapes are further apart.
        assert set(re.findall(r"\[(.*?)\]", expression)) <= {"$__rate_interval", "$__range"}, title


def test_variables_and_version():
    assert [one["name"] for one in dashboard()["templating"]["list"]] == ["datasource", "job", "instance", "runbook"]
    assert dashboard()["uid"] == "redlockd" and dashboard()["schemaVersion"] in range(38, 42)  # Grafana 10 and 11


def test_provisioning_is_as_grafana_reads_it():
    """Keys and values as its documentation names them; it passes over what it does not know."""
    [source] = PROVISIONING.glob("datasources/*.yml")
    [provider] = PROVISIONING.glob("dashboards/*.yml")
    sources, providers = (yaml.safe_load(path.read_text()) for path in (source, provider))
    assert sources["apiVersion"] == providers["apiVersion"] == 1
    [one] = sources["datasources"]
    assert one["type"] == "prometheus" and one["access"] == "proxy" and one["url"] == "http://prometheus:9090" and one["isDefault"] is True
    interval = yaml.safe_load(PROMETHEUS.read_text())["global"]["scrape_interval"]
    assert one["jsonData"]["timeInterval"] == interval, "$__rate_interval is made of it"
    [one] = providers["providers"]
    assert one["type"] == "file" and one["options"]["path"] == "/etc/grafana/dashboards"
