# SPDX-License-Identifier: MIT
"""The charts as text: Kubernetes accepts what helm renders, and wrong values are refused with a message that helps.

Looked at by the real helm, by kubeconform with the schemas of the oldest and the newest Kubernetes at hand (strictly:
nothing that is not known), by the decoder of Kubernetes itself and its Pod Security policy (podsecurity/). The verdicts
of the whole matrix are left in build/results/helm_matrix.txt.
"""

import concurrent.futures
import json
import re
import shutil
import tarfile

import pytest
import yaml

import matrix
from charts import CHARTS, NEWEST, OLDEST, ROOT, Refused, chart, containers, helm, kubeconform, one_of, parse, pod_of, pod_template, podsecurity, render, template
from harness import run_redlockd, table_of_options

INSECURE = {"access": {"insecure": True}}
BUNDLED = {"masters": {"bundled": {"enabled": True, "password": "0123456789abcdef"}}}
EXTERNAL = {"masters": {"external": {"secret": "their-masters"}}}
SIMPLE = matrix.merged([INSECURE, BUNDLED])


def ci_values():
    return sorted((CHARTS / "redlockd" / "ci").glob("*.yaml"))


# ---- what is rendered ----

def check_references(objects):
    """Checks beyond the schemas: names that must exist within the release."""
    wrong = []
    workloads = [(one, pod_of(one)) for one in objects if pod_of(one)]
    for one, pod in workloads:
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        mounts = [mount["name"] for container in containers(pod) for mount in container.get("volumeMounts", [])]
        claims = {claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])}
        if set(mounts) != volumes | claims:
            wrong.append(f"{one['metadata']['name']}: mounts {sorted(mounts)} of volumes {sorted(volumes | claims)}")
        if "selector" in one["spec"] and not matches(one["spec"]["selector"]["matchLabels"], one["spec"]["template"]["metadata"]["labels"]):
            wrong.append(f"{one['metadata']['name']}: its selector does not match its pods")
        if len(one["metadata"]["name"]) > 57:  # -NN and more come behind it
            wrong.append(f"{one['metadata']['name']}: a long name")
    labels = [(pod_template(one)["metadata"]["labels"], pod) for one, pod in workloads if one["kind"] != "Pod"]
    for one in objects:
        selector = {"Service": lambda o: o["spec"]["selector"], "PodDisruptionBudget": lambda o: o["spec"]["selector"]["matchLabels"]}.get(one["kind"])
        if selector and sum(matches(selector(one), those) for those, _ in labels) != 1:
            wrong.append(f"{one['kind']} {one['metadata']['name']}: does not select one kind of pods")
    wrong += [f"{one['metadata']['name']}: a replica is told to bootstrap" for one, pod in workloads
              if one["kind"] == "Deployment" and "--bootstrap" in json.dumps(pod)]
    return wrong + check_secrets(objects, workloads) + check_config_maps(objects, workloads) + check_accounts(objects, workloads)


def matches(selector, labels):
    return selector.items() <= labels.items()


THEIRS = {"their-keys", "their-ca", "their-tls", "their-masters", "their-password", "masters-ca", "masters-cert", "some-secret", "test-certificate"}


def check_secrets(objects, workloads):
    """Each Secret that a pod takes is one of the chart's with that member, or one that the values name."""
    made = {one["metadata"]["name"]: set(one["stringData"]) for one in objects if one["kind"] == "Secret"}
    used = {(volume["secret"]["secretName"], None) for _, pod in workloads for volume in pod.get("volumes", []) if "secret" in volume}
    used |= {(env["valueFrom"]["secretKeyRef"]["name"], env["valueFrom"]["secretKeyRef"]["key"])
             for _, pod in workloads for container in containers(pod) for env in container.get("env", []) if "valueFrom" in env}
    wrong = [f"Secret {name}: {key} is not there" for name, key in sorted(used, key=str)
             if name not in THEIRS and (name not in made or key and key not in made[name])]
    return wrong + [f"Secret {name}: made and not used" for name in sorted(made.keys() - {name for name, _ in used})]


def sources(pod):
    """Of its volumes, those of projected ones, too."""
    for volume in pod.get("volumes", []):
        yield from volume["projected"]["sources"] if "projected" in volume else [volume]


def check_config_maps(objects, workloads):
    """The same for the ConfigMaps of its volumes. Kubernetes makes kube-root-ca.crt, and the chart's Job the data of the one of the cluster's keys."""
    made = {one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"}
    used = {source["configMap"]["name"] for _, pod in workloads for source in sources(pod) if "configMap" in source}
    wrong = [f"ConfigMap {name} is not there" for name in sorted(used - made - {"their-jwks", "kube-root-ca.crt"})]
    unused = {name for name in made - used if not name.endswith("-dashboard")}
    return wrong + [f"ConfigMap {name}: made and not used" for name in sorted(unused)]


def check_accounts(objects, workloads):
    """Each pod has an account of the chart's or of the user's, and a role binding leads from one to the other."""
    names = {kind: {one["metadata"]["name"] for one in objects if one["kind"] == kind} for kind in ("ServiceAccount", "Role", "RoleBinding")}
    used = {pod["serviceAccountName"] for _, pod in workloads}
    wrong = [f"ServiceAccount {name} is not there" for name in sorted(used - names["ServiceAccount"] - {"theirs"})]
    wrong += [f"ServiceAccount {name}: made and not used" for name in sorted(names["ServiceAccount"] - used)]
    bindings = [one for one in objects if one["kind"] == "RoleBinding"]
    bound = {one["roleRef"]["name"] for one in bindings}, {subject["name"] for one in bindings for subject in one["subjects"]}
    return wrong + ([] if bound[0] == names["Role"] and bound[1] <= names["ServiceAccount"] else [f"roles: {bound} and {names}"])


def judged(name, values, version, folder):
    """Renders one case and says what is wrong but for kubeconform, which is asked for all at once: (file, lines of podsecurity, mistakes)."""
    text = render("redlockd", values, version=version)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    good, lines = podsecurity(text)
    return path, lines, ([] if good else [line for line in lines if line.startswith("bad")]) + check_references(parse(text))


def test_matrix(tmp_path):
    """Each pair of settings, on both versions: every object is valid, every pod restricted, every reference leads somewhere."""
    report, wrong = [], []
    cases = list(matrix.cases())
    for version in (OLDEST, NEWEST):
        folder = tmp_path / version
        folder.mkdir()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results = list(pool.map(lambda case: judged(*case, version, folder), cases))  # noqa: B023
        verdicts = {}
        for verdict in kubeconform(version, *(path for path, _, _ in results)):
            verdicts.setdefault(verdict["filename"], []).append(verdict)
        for (name, _), (path, lines, mistakes) in zip(cases, results):
            mistakes += [f"{verdict['kind']} {verdict['name']}: {verdict['status']} {verdict['msg']}" for verdict in verdicts[str(path)]
                         if verdict["status"] != "statusValid"]
            if len(verdicts[str(path)]) != len(lines):
                mistakes.append(f"{len(lines)} objects, of which kubeconform saw {len(verdicts[str(path)])}")
            pods = sum(line.endswith(" restricted") for line in lines)
            report.append(f"{version}  {'ok ' if not mistakes else 'BAD'}  {len(lines):2} objects valid, {pods} pods restricted  {name}")
            wrong += [f"{version} {name}: {mistake}" for mistake in mistakes]
    results = ROOT / "build" / "results"
    results.mkdir(parents=True, exist_ok=True)
    (results / "helm_matrix.txt").write_text("\n".join([*versions(), *report, *wrong]) + "\n")
    assert not wrong, "\n".join(wrong)
    assert len(cases) >= 20


def versions():
    """The name of the checker, for the file with the results."""
    modules = (ROOT / "tests" / "helm" / "podsecurity" / "go.mod").read_text()
    named = [f"{name} {re.search(rf'{name} (v[0-9.]+)', modules)[1]}"
             for name in ("helm.sh/helm/v3", "github.com/yannh/kubeconform", "k8s.io/api", "k8s.io/pod-security-admission")]
    return ["tools: " + ", ".join(named), f"schemas: Kubernetes {OLDEST} and {NEWEST}, strict"]


@pytest.mark.parametrize("path", ci_values(), ids=lambda path: path.stem)
def test_lint(path):
    assert "0 chart(s) failed" in helm("lint", "--strict", CHARTS / "redlockd", "-f", path)


@pytest.mark.parametrize("name", ["redlockd-sidecar", "example"])
def test_lint_others(name):
    assert "0 chart(s) failed" in helm("lint", "--strict", chart(name))


@pytest.mark.parametrize("path", ci_values(), ids=lambda path: path.stem)
def test_values_for_checks(path, tmp_path):
    rendered = tmp_path / "all.yaml"
    rendered.write_text(render("redlockd", yaml.safe_load(path.read_text())))
    assert podsecurity(rendered.read_text())[0]
    assert {verdict["status"] for verdict in kubeconform(NEWEST, rendered)} == {"statusValid"}


@pytest.mark.parametrize("version,ca", [(OLDEST, ""), (NEWEST, "masters-ca")])
def test_example(version, ca, tmp_path):
    """The chart that has redlockd in its pods, in both ways; with rediss:// and without."""
    text = render("example", {"redlockd": {"mastersCaSecret": ca}}, version=version)
    good, lines = podsecurity(text)
    assert good and len(lines) == 2, lines
    (tmp_path / "example.yaml").write_text(text)
    verdicts = kubeconform(version, tmp_path / "example.yaml")
    assert [verdict["status"] for verdict in verdicts] == ["statusValid"] * 2, verdicts
    for one in parse(text):
        sidecar = pod_of(one)["initContainers"][0]
        assert sidecar["restartPolicy"] == "Always"
        assert {mount["name"] for mount in sidecar.get("volumeMounts", [])} == {volume["name"] for volume in pod_of(one).get("volumes", [])}
        assert ("--masters-ca=/etc/redlockd/masters-ca/ca.crt" in sidecar["args"]) == bool(ca)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_example_with_the_service(version, tmp_path):
    """Without a sidecar: its token is in the place that redlockctl reads."""
    text = render("example", {"service": {"url": "http://locks", "audience": "locks.example"}}, version=version)
    good, lines = podsecurity(text)
    assert good and len(lines) == 3, lines
    (tmp_path / "example.yaml").write_text(text)
    assert [verdict["status"] for verdict in kubeconform(version, tmp_path / "example.yaml")] == ["statusValid"] * 3
    pod = pod_of(one_of(parse(text), "Deployment", "locks-service"))
    container, = containers(pod)
    volume, = pod["volumes"]
    mount, = container["volumeMounts"]
    assert volume["projected"]["sources"] == [{"serviceAccountToken": {"audience": "locks.example", "expirationSeconds": 600, "path": "token"}}]
    assert mount["name"] == volume["name"] and {"name": "REDLOCKCTL_KEY_FILE", "value": f"{mount['mountPath']}/token"} in container["env"]


def test_the_checks_can_fail(tmp_path):
    """Each of them on an object that is spoilt in its way."""
    text = render("redlockd", SIMPLE)
    privileged = text.replace("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true")
    assert not podsecurity(privileged)[0]
    misspelt = text.replace("automountServiceAccountToken", "automountServiceAccountTokn")
    assert any("unknown field" in line for line in podsecurity(misspelt)[1])
    (tmp_path / "misspelt.yaml").write_text(misspelt)
    assert "statusInvalid" in {verdict["status"] for verdict in kubeconform(OLDEST, tmp_path / "misspelt.yaml")}
    monitor = render("redlockd", matrix.merged([SIMPLE, {"serviceMonitor": {"enabled": True}}]))
    (tmp_path / "monitor.yaml").write_text(monitor.replace("interval: 15s", "intervl: 15s"))
    assert "statusInvalid" in {verdict["status"] for verdict in kubeconform(OLDEST, tmp_path / "monitor.yaml")}
    objects = parse(text)
    one_of(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] = "other"
    assert len(check_references(objects)) >= 3
    objects = template("redlockd", matrix.merged([EXTERNAL, matrix.AXES["access"]["accounts"]]))
    assert not check_references(objects)
    for kind in ("ConfigMap", "Role", "RoleBinding"):
        assert check_references([one for one in objects if one["kind"] != kind]), kind
    assert check_references([one for one in objects if one["metadata"]["name"] != "locks-redlockd-jwks" or one["kind"] != "ServiceAccount"])


# ---- values that will not do ----

def accounts(**members):
    """The values of a service for pods, with other members of access.serviceAccounts."""
    return matrix.merged([BUNDLED, {"access": {"serviceAccounts": {**matrix.ACCOUNTS, **members}}}])


def pods(**members):
    """The same with other members of the namespace shop; None: without it."""
    shop = {**matrix.ACCOUNTS["namespaces"]["shop"], **members}
    return accounts(namespaces={"shop": {name: value for name, value in shop.items() if value is not None}})


REFUSED = {
    "nothing": ({}, ["who may call", "access.keysSecret", "access.mtls", "access.insecure: true", "where are they", "masters.bundled.enabled"]),
    "nobody may call": (BUNDLED, ["who may call"]),
    "no masters": (INSECURE, ["where are they", "0 of them"]),
    "both kinds of masters": ([SIMPLE, EXTERNAL], ["exactly one", "2 of them"]),
    "insecure with keys": ([SIMPLE, {"access": {"keysSecret": "a"}}], ["access.insecure", "neither"]),
    "two kinds of keys": ([BUNDLED, {"access": {"keysSecret": "a", "keys": [matrix.ENTRY]}}], ["keysSecret or keys"]),
    "mtls without tls": ([BUNDLED, {"access": {"mtls": True}, "tls": {"clientCaSecret": "a"}}], ["access.mtls", "tls.enabled"]),
    "mtls without authorities": ([BUNDLED, {"access": {"mtls": True}, "tls": {"enabled": True, "secret": "a"}}], ["tls.clientCaSecret"]),
    "authorities without mtls": ([SIMPLE, {"tls": {"clientCaSecret": "a"}}], ["tls.clientCa", "access.mtls"]),
    "tls without certificate": ([SIMPLE, {"tls": {"enabled": True}}], ["tls.secret", "tls.certificate"]),
    "certificate without tls": ([SIMPLE, {"tls": {"secret": "a"}}], ["tls.enabled is false"]),
    "bundled without password": ([INSECURE, {"masters": {"bundled": {"enabled": True}}}], ["masters.bundled", "passwordSecret"]),
    "bundled with rediss": ([SIMPLE, {"masters": {"external": {"caSecret": "a"}}}], ["masters.external"]),
    "policy without masters": ([INSECURE, EXTERNAL, {"networkPolicy": {"enabled": True}}], ["networkPolicy.masters"]),
    "monitor without key": ([BUNDLED, {"access": {"keysSecret": "a"}, "serviceMonitor": {"enabled": True}}], ["serviceMonitor.keySecret"]),
    "monitor without certificate": ([BUNDLED, {"access": {"mtls": True}, "tls": {"enabled": True, "secret": "a", "clientCaSecret": "b"},
                                               "serviceMonitor": {"enabled": True}}], ["serviceMonitor.tlsConfig.cert"]),
    "fewer than fewest": ([SIMPLE, {"autoscaling": {"enabled": True, "minReplicas": 7}}], ["minReplicas"]),
    "even masters": ([SIMPLE, {"masters": {"bundled": {"count": 4}}}], ["count", "1, 3, 5"]),
    "short password": ([INSECURE, {"masters": {"bundled": {"enabled": True, "password": "short"}}}], ["password"]),
    "password that is no part of an address": ([INSECURE, {"masters": {"bundled": {"enabled": True, "password": "0123456789abcdef@x"}}}], ["password"]),
    "unknown value": ([SIMPLE, {"replicaCount": 3}], ["replicaCount"]),
    "unknown value below": ([SIMPLE, {"masters": {"bundled": {"replicas": 3}}}], ["bundled", "replicas"]),
    "unknown option": ([SIMPLE, {"options": {"max_tll_ms": 1}}], ["options", "max_tll_ms"]),
    "option with dashes": ([SIMPLE, {"options": {"max-ttl-ms": 60000}}], ["options", "max-ttl-ms"]),
    "option of the chart's": ([SIMPLE, {"options": {"bootstrap": True}}], ["options", "bootstrap"]),
    "option too large": ([SIMPLE, {"options": {"max_ttl_ms": 86400001}}], ["max_ttl_ms", "maximum"]),
    "time without a unit that is known": ([SIMPLE, {"options": {"max_ttl_ms": "1d"}}], ["max_ttl_ms", "pattern"]),
    "time with a fraction": ([SIMPLE, {"options": {"drain_ms": "1.5s"}}], ["drain_ms", "pattern"]),
    "time that is no time": ([SIMPLE, {"options": {"drain_ms": True}}], ["drain_ms", "string"]),
    "option of another type": ([SIMPLE, {"options": {"workers": "two"}}], ["workers", "integer"]),
    "no replicas": ([SIMPLE, {"replicas": 0}], ["replicas"]),
    "address without scheme": ([INSECURE, {"masters": {"external": {"addresses": ["10.0.0.1:6379"]}}}], ["addresses"]),
    "key without rights": ([BUNDLED, {"access": {"keys": [{"name": "a", "prefixes": [""]}]}}], ["access", "keys", "rights"]),
    "a right that is none": ([BUNDLED, {"access": {"keys": [{**matrix.ENTRY, "rights": ["write"]}]}}], ["rights", "acquire"]),
    "a hash that is none": ([BUNDLED, {"access": {"keys": [{**matrix.ENTRY, "sha256": "secret"}]}}], ["sha256"]),
    "a certificate that is none": ([SIMPLE, {"tls": {"enabled": True, "certificate": "/etc/tls.crt", "key": matrix.KEY}}], ["certificate"]),
    "no namespaces": (accounts(namespaces={}), ["access.serviceAccounts.namespaces", "at least one", "who may call"]),
    "no issuer": (accounts(issuer=""), ["access.serviceAccounts.issuer", "required"]),
    "no audience": (accounts(audience=""), ["audience"]),
    "a namespace without rights": (pods(rights=None), ["namespaces/shop", "missing property 'rights'"]),
    "a namespace without prefixes": (pods(prefixes=None), ["namespaces/shop", "missing property 'prefixes'"]),
    "a namespace with nothing": (pods(rights=None, prefixes=None, rate=None), ["missing properties 'prefixes', 'rights'"]),
    "a namespace with empty lists": (pods(rights=[], prefixes=[]), ["namespaces/shop/rights", "namespaces/shop/prefixes", "minItems"]),
    "a namespace with a right that is none": (pods(rights=["acquire", "write"]), ["namespaces/shop/rights/1", "acquire"]),
    "a namespace with a right twice": (pods(rights=["acquire", "acquire"]), ["namespaces/shop/rights", "equal"]),
    "a namespace with a member of a key": (pods(sha256="0" * 64), ["namespaces/shop", "sha256"]),
    "a namespace that can be none": (accounts(namespaces={"Shop": matrix.ACCOUNTS["namespaces"]["shop"]}), ["namespaces", "Shop"]),
    "a namespace with a pattern": (accounts(namespaces={"shop-*": matrix.ACCOUNTS["namespaces"]["shop"]}), ["namespaces", "shop-*"]),
    "a claim without a slash": (pods(prefixes=["shop/", "{sub}"]), ["namespaces.shop.prefixes[1]: {sub}", "slash"]),
    "a brace of no claim": (pods(prefixes=["a}"]), ["namespaces.shop.prefixes[0]: a}", "brace"]),
    "a control character": (pods(prefixes=["a\n"]), ["namespaces.shop.prefixes[0]", "control characters"]),
    "accounts with insecure": ([accounts(), INSECURE], ["access.insecure", "access.serviceAccounts"]),
    "accounts with a keys file": ([accounts(), {"access": {"keysSecret": "a"}}], ["access.serviceAccounts", "access.keysSecret"]),
    "public keys for nobody": ([BUNDLED, {"access": {"keys": [matrix.ENTRY], "jwks": {"configMap": "a"}}}], ["access.jwks.configMap"]),
    "a schedule that is none": ([accounts(), {"access": {"jwks": {"schedule": "hourly"}}}], ["jwks/schedule"]),
    "monitor with accounts alone": ([accounts(), {"serviceMonitor": {"enabled": True, "keySecret": matrix.MEMBER}}], ["serviceMonitor.keySecret"]),
    "a digest that is none": ([SIMPLE, {"image": {"digest": "latest"}}], ["digest"]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    values, words = REFUSED[what]
    with pytest.raises(Refused) as refused:
        render("redlockd", matrix.merged(values if isinstance(values, list) else [values]))
    for word in words:
        assert word in str(refused.value)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(Refused) as refused:
        render("redlockd", {"tls": {"enabled": True}, "networkPolicy": {"enabled": True}})
    assert len(re.findall(r"^  - ", str(refused.value), re.M)) == 4, refused.value


@pytest.mark.parametrize("values,word", [({"mastersSecret": ""}, "mastersSecret is missing"), ({"mastersSecrets": "a"}, "mastersSecrets is not known"),
                                         ({"options": {"listen": "0.0.0.0:1"}}, "options.listen"), ({"options": {"bootstrap": True}}, "options.bootstrap"),
                                         ({"port": 8081}, "socket or port, not both")])
def test_a_sidecar_refused(values, word):
    with pytest.raises(Refused, match=re.escape(word)):
        render("example", {"redlockd": values})


@pytest.mark.parametrize("how", ["dict", '(dict "audience" "")', '(dict "audience" 5)', '"redlockd"'])
def test_a_token_refused(how, tmp_path):
    """A token without an audience would be one for the API server: redlockd.token.volume makes none."""
    copy = tmp_path / "example"
    shutil.copytree(chart("example"), copy)
    (copy / "templates" / "deployments.yaml").write_text(f'{{{{ include "redlockd.token.volume" {how} }}}}')
    with pytest.raises(Refused, match="redlockd.token.volume: call it with"):
        helm("template", "locks", copy)


def test_an_older_kubernetes_is_refused():
    """No sidecar containers before 1.29."""
    with pytest.raises(Refused, match="kubeVersion"):
        render("redlockd", SIMPLE, version="1.28.0")


# ---- what must stay the same elsewhere ----

def number_of(text):
    """A number, or a time in milliseconds: 500ms, 60s, 24h."""
    number, unit = re.fullmatch(r"([\d.]+)(ms|s|m|h|)", text).groups()
    return float(number) * {"": 1, "ms": 1, "s": 1000, "m": 60000, "h": 3600000}[unit]


def test_options_are_those_of_the_program():
    """Names, ranges and choices in values.schema.json against redlockd --help; what is not there is the chart's own to set."""
    own = {"listen", "masters", "masters_file", "masters_ca", "masters_cert", "masters_key", "dev", "config", "bootstrap", "restart_guard", "tls_cert",
           "tls_key", "tls_client_ca", "keys", "insecure", "check", "help", "version"}
    table = table_of_options()
    rows = dict(re.findall(r"^\| `--([a-z-]+)[^|]*\|[^|]*\| ([^|]+) \|", table, re.M))
    allowed = {name.replace("-", "_"): text for name, text in rows.items()}
    assert own <= allowed.keys() and len(allowed) > len(own) + 20
    schema = json.loads((CHARTS / "redlockd" / "values.schema.json").read_text())["properties"]["options"]["properties"]
    assert schema.keys() == allowed.keys() - own
    times = {name.replace("-", "_") for name in re.findall(r"^\| `--([a-z-]+)=TIME`", table, re.M)}
    assert times and times == {name for name in schema if name.endswith("_ms")}
    for name, rule in schema.items():
        if "minimum" in rule:
            assert [rule["minimum"], rule["maximum"]] == [number_of(text) for text in allowed[name].split(" to ")], name
        for choice in rule.get("enum", []):
            assert choice in allowed[name], name


def test_the_schema_allows_every_default_and_nothing_else():
    """values.yaml and values.schema.json name the same values, all the way down."""
    def names(schema, path=""):
        for name, rule in schema.get("properties", {}).items():
            yield f"{path}{name}"
            if path + name not in ("options", "resources", "masters.bundled.resources"):
                yield from names(rule, f"{path}{name}.")

    def given(values, path=""):
        for name, value in values.items():
            yield f"{path}{name}"
            if isinstance(value, dict) and path + name not in ("options", "resources", "masters.bundled.resources"):
                yield from given(value, f"{path}{name}.")
    schema = json.loads((CHARTS / "redlockd" / "values.schema.json").read_text())
    assert set(names(schema)) - {"global"} == set(given(yaml.safe_load((CHARTS / "redlockd" / "values.yaml").read_text())))


@pytest.mark.parametrize("copy,original", [("redlockd.rules.yml", "docker/prometheus/redlockd.rules.yml"), ("redlockd.json", "docker/grafana/redlockd.json")])
def test_copies(copy, original):
    """A chart can hold no file from outside its folder: after a change, cp."""
    assert (CHARTS / "redlockd" / "files" / copy).read_bytes() == (ROOT / original).read_bytes()


def test_rules_and_dashboard_arrive_whole():
    objects = template("redlockd", matrix.merged([SIMPLE, {"prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}}]))
    assert one_of(objects, "PrometheusRule")["spec"] == yaml.safe_load((ROOT / "docker/prometheus/redlockd.rules.yml").read_text())
    dashboard = one_of(objects, "ConfigMap", "locks-redlockd-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(dashboard["data"]["redlockd.json"]) == json.loads((ROOT / "docker/grafana/redlockd.json").read_text())


def test_alerts_and_dashboard_link_to_the_runbook_that_is_published():
    url = "https://wiki.example.org/redlockd"
    objects = template("redlockd", matrix.merged([SIMPLE, {"prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}, "runbookUrl": url}]))
    rules = [rule for group in one_of(objects, "PrometheusRule", "locks-redlockd")["spec"]["groups"] for rule in group["rules"]]
    assert rules and all(rule["annotations"]["runbook_url"].startswith(url + "#") for rule in rules)
    dashboard = one_of(objects, "ConfigMap", "locks-redlockd-dashboard")["data"]["redlockd.json"]
    variable, = [one for one in json.loads(dashboard)["templating"]["list"] if one["name"] == "runbook"]
    assert variable["query"] == variable["current"]["value"] == variable["options"][0]["value"] == url
    assert "redlockd.example" not in dashboard


def test_versions():
    """Of the charts, of the program, and of the image that a sidecar takes by itself."""
    version = re.search(r"redlockd (\S+)", run_redlockd("--version").stdout)[1]
    for name in ("redlockd", "redlockd-sidecar"):
        assert yaml.safe_load((CHARTS / name / "Chart.yaml").read_text())["appVersion"] == version
    assert one_of(template("redlockd", SIMPLE), "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"] == f"redlockd:{version}"
    objects = template("example", {"redlockd": {"image": ""}})
    assert {pod_of(one)["initContainers"][0]["image"] for one in objects} == {f"redlockd:{version}"}


@pytest.mark.parametrize("name", ["redlockd", "redlockd-sidecar", "example"])
def test_package(name, tmp_path):
    helm("package", chart(name), "--destination", tmp_path)
    with tarfile.open(next(tmp_path.glob("*.tgz"))) as archive:
        names = archive.getnames()
    assert f"{name}/Chart.yaml" in names and not [one for one in names if "/ci/" in one]
    if name == "redlockd":
        assert {f"redlockd/{one}" for one in ("values.schema.json", "files/redlockd.json", "files/redlockd.rules.yml", "templates/NOTES.txt")} <= set(names)
        text = helm("template", "x", next(tmp_path.glob("*.tgz")), "--values", "-", stdin=json.dumps(SIMPLE))
        assert one_of(parse(text), "Deployment")


# ---- what has been thought about ----

def test_the_job_is_of_the_first_installation_alone():
    def job(values, *args):
        return one_of(template("redlockd", matrix.merged([INSECURE, values]), *args), "Job")
    assert job(BUNDLED) and not job(BUNDLED, "--is-upgrade")
    assert not job(EXTERNAL)
    assert job(matrix.merged([EXTERNAL, {"masters": {"external": {"bootstrap": True}}}]))
    assert not job(matrix.merged([BUNDLED, {"masters": {"bundled": {"bootstrap": False}}}]))


def test_times():
    """Of the end of a pod, and until a master is taken for one that votes."""
    def of(options, version=NEWEST):
        objects = template("redlockd", matrix.merged([SIMPLE, {"options": options}]), version=version)
        return pod_of(one_of(objects, "Deployment")), pod_of(one_of(objects, "StatefulSet"))["containers"][0]["readinessProbe"]["initialDelaySeconds"]
    pod, delay = of({})
    assert pod["terminationGracePeriodSeconds"] == 20 and pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"] == 5
    assert delay == 93  # 62.6, 10 and 20
    pod, delay = of({"drain_ms": 0, "max_ttl_ms": 300000, "drift_factor": 0.1}, OLDEST)
    assert pod["terminationGracePeriodSeconds"] == 5 and "lifecycle" not in pod["containers"][0]  # 1.29 has no sleep
    assert delay == 442
    pod, delay = of({"drain_ms": "2500ms", "max_ttl_ms": "5m", "drift_factor": 0.1, "max_hold_ms": "24h"}, OLDEST)
    assert pod["terminationGracePeriodSeconds"] == 8 and delay == 442
    assert {"--drain-ms=2500ms", "--max-ttl-ms=5m", "--max-hold-ms=24h"} <= set(pod["containers"][0]["args"])
    assert of({"drain_ms": "60s"}, OLDEST)[0]["terminationGracePeriodSeconds"] == 65


def test_secrets_that_change_restart_the_pods():
    def checksum(values):
        return one_of(template("redlockd", matrix.merged([BUNDLED, values])), "Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/secrets"]
    one = {"access": {"keys": [matrix.ENTRY]}}
    assert checksum(one) == checksum({**one, "replicas": 5})
    assert checksum(one) != checksum({"access": {"keys": [{**matrix.ENTRY, "sha256": "1" * 64}]}})


def test_public_keys_that_change_restart_nothing():
    """redlockd follows the file. No revision of the release changes the pods, and none writes the data of the ConfigMap, which would undo the Job's work."""
    def objects(*args):
        return template("redlockd", accounts(), *args)
    first, later = objects(), objects("--is-upgrade")
    assert pod_of(one_of(first, "Deployment")) == pod_of(one_of(later, "Deployment"))
    config = one_of(first, "ConfigMap", "locks-redlockd-jwks")
    assert config.keys() == {"apiVersion", "kind", "metadata"} and config == one_of(later, "ConfigMap", "locks-redlockd-jwks")
    volume, = [one for one in pod_of(one_of(first, "Deployment"))["volumes"] if one["name"] == "jwks"]
    assert volume["configMap"]["items"] == [{"key": "kubernetes.json", "path": "kubernetes.json"}]  # else the first pods would start without it, and end


def test_the_job_that_reads_public_keys_may_do_nothing_else():
    objects = template("redlockd", accounts())
    assert one_of(objects, "Role")["rules"] == [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["locks-redlockd-jwks"], "verbs": ["patch"]}]
    assert pod_of(one_of(objects, "CronJob")) == pod_of(one_of(objects, "Job", "locks-redlockd-jwks-1"))
    for name in ("locks-redlockd", "locks-redlockd-test"):
        pod = next(pod_of(one) for one in objects if one["metadata"]["name"] == name and pod_of(one))
        assert pod["serviceAccountName"] == "locks-redlockd" and not pod["automountServiceAccountToken"]
    assert not [one for one in template("redlockd", matrix.merged([EXTERNAL, matrix.AXES["access"]["accounts-keys"]])) if one["kind"] in ("CronJob", "Job", "Role")]


def test_no_secret_outside_secrets():
    """The password of the masters and their addresses stand in Secrets, and in nothing else."""
    for values in (SIMPLE, matrix.merged([INSECURE, {"masters": {"external": {"addresses": ["redis://:0123456789abcdef@10.0.0.1"]}}}])):
        holders = {one["kind"] for one in template("redlockd", values) if "0123456789abcdef" in json.dumps(one)}
        assert holders == {"Secret"}


DOCUMENT = (ROOT / "docs/how-to/kubernetes.md").read_text()
NOTES = {"insecure": SIMPLE, "keys": matrix.merged([BUNDLED, {"access": {"keysSecret": "a"}}]),
         "accounts": matrix.merged([BUNDLED, matrix.AXES["access"]["accounts"]]),
         "mtls": matrix.merged([BUNDLED, matrix.AXES["access"]["mtls"], matrix.AXES["tls"]["tls-secret"]])}


@pytest.mark.parametrize("how", NOTES)
def test_notes(how, tmp_path):
    """helm shows them only where it has a cluster: here they are made the text of an object, by a copy of the chart."""
    copy = tmp_path / "redlockd"
    shutil.copytree(chart("redlockd"), copy)
    (copy / "templates" / "NOTES.txt").rename(copy / "notes.txt")
    (copy / "templates" / "notes.yaml").write_text('kind: Notes\nmetadata: {name: notes}\ntext: |\n{{ tpl (.Files.Get "notes.txt") . | indent 2 }}\n')
    objects = parse(helm("template", "locks", copy, "--namespace", "shop", "--values", "-", stdin=json.dumps(NOTES[how])))
    text = one_of(objects, "Notes")["text"]
    assert ('"Authorization: Bearer $KEY"' in text) == (how == "keys") and ("-n shop create token default --audience redlockd" in text) == (how == "accounts")
    assert ("--cert client.crt" in text) == (how == "mtls") and ("https://localhost" in text) == (how == "mtls")
    assert "curl" in text and ("access.insecure is set" in text) == (how == "insecure") and "-n shop" in text


def documented():
    """The commands of helm in docs/how-to/kubernetes.md, but for those with a file of the reader's."""
    text = DOCUMENT.replace("\\\n", " ")
    return [line for line in re.findall(r"^helm (?:install|upgrade) .*$", text, re.M) if "values.yaml" not in line]


@pytest.mark.parametrize("command", documented())
def test_documented_commands(command):
    """Each is tried: as helm template, with the same values."""
    _, _, release, path, *rest = command.split()
    assert helm("template", release, chart(path.removeprefix("helm/")), *rest)


@pytest.mark.parametrize("block", re.findall(r"^```yaml\n# values.yaml\n(.*?)^```", DOCUMENT, re.M | re.S))
def test_documented_values(block):
    """Each block of values in the document, together with what it leaves to others."""
    values = yaml.safe_load(block)
    rest = [{} if "access" in values else INSECURE, {} if "masters" in values else BUNDLED]
    assert template("redlockd", matrix.merged([*rest, values]))
