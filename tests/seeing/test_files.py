"""Rules, dashboard, runbook and provisioning as files: checked by their own tools, and against each other."""

import collections
import itertools
import re
import subprocess

import yaml

from seeing_files import DASHBOARD, PROMETHEUS, PROVISIONING, ROOT, RULES, RULES_TEST, RUNBOOK, dashboard, queries, rules, selectors

SEVERITIES = {"critical", "warning", "info"}
# Of Grafana's many units those that are meant here; another one is perhaps misspelled.
UNITS = {"none", "s", "ops", "reqps", "percentunit", "bytes", "dateTimeFromNow"}


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
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.M)}
    for rule in rules():
        assert rule["annotations"]["runbook_url"] == f"docs/how-to/runbook.md#{rule['alert'].lower()}", rule
    for target in re.findall(r"docs/how-to/runbook\.md#([a-z]+)", DASHBOARD.read_text(encoding="utf-8")):
        assert target in anchors, target


def test_each_section_says_it_all():
    """Each alert has its meaning for locks, how to look, what to do, what not to do."""
    for section in re.split(r"^### (?=Redlockd)", RUNBOOK.read_text(encoding="utf-8"), flags=re.M)[1:]:
        section = re.split(r"^## ", section, flags=re.M)[0]
        name = section.split("\n")[0]
        for part in ("**Locks.**", "**Look.**", "**Do.**", "**Do not.**"):
            assert section.count(part) == 1, f"{name}: {part}"


# ----------------------------------------------------------------------------------------------------- Grafana


def panels():
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def test_panels_are_whole():
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids) > 40
    for panel in panels():
        assert panel["title"] and len(panel["description"].split()) >= 1, panel
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel
        assert panel["targets"], panel
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFGH"[:len(panel["targets"])]), panel
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"] and target["range"] is not target["instant"], panel


def test_panels_lie_side_by_side():
    taken = {}
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        assert 0 <= at["x"] and at["x"] + at["w"] <= 24 and at["w"] > 0 and at["h"] > 0, panel
        for place in itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])):
            assert place not in taken, f"{panel['title']} lies on {taken[place]}"
            taken[place] = panel["title"]
    rows = [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row"]
    assert rows == ["Is there a quorum?", "Masters", "Leases", "Waiting (wait_ms)", "Holding", "HTTP", "Process"]


def test_queries_are_of_what_is_chosen():
    for title, expression, _ in queries():
        for selector in selectors(expression):
            assert selector.startswith("ALERTS{") or 'job=~"$job",instance=~"$instance"}' in selector, f"{title}: {selector}"
        # A window of fixed length is empty where scrapes are further apart.
        assert set(re.findall(r"\[(.*?)\]", expression)) <= {"$__rate_interval", "$__range"}, title


def test_variables_and_version():
    assert [one["name"] for one in dashboard()["templating"]["list"]] == ["datasource", "job", "instance"]
    assert dashboard()["uid"] == "redlockd" and dashboard()["schemaVersion"] in range(38, 42)  # Grafana 10 and 11
    assert [link["url"] for link in dashboard()["links"]] == ["docs/how-to/runbook.md"]
    assert (ROOT / dashboard()["links"][0]["url"]).exists()


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
