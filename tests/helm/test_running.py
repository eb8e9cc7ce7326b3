# SPDX-License-Identifier: MIT
"""Containers of rendered pods, run here (pods.py): with the built redlockd and redlockctl, real masters and real curl."""

import json
import os
import pathlib
import subprocess

import pytest

import matrix
from certificates import Authority
from charts import one_of, pod_of, template
from harness import curl, end_process, run_redlockd, wait_until
from pods import Pod, ends, listens, ready

INSECURE = {"access": {"insecure": True}}
PASSWORD = "0123456789abcdef"
PATIENT = {"master_timeout_ms": 5000}  # a busy machine is not a dead master


# ---- the service ----

def bundled(lab, count=3):
    """Masters with a password, and what to put in place of their names in the cluster."""
    servers = [lab.redis("--requirepass", PASSWORD, tcp=True, auth=(PASSWORD,)) for _ in range(count)]
    names = {f"locks-redlockd-masters-{i}.locks-redlockd-masters.shop.svc:6379": f"127.0.0.1:{server.port}" for i, server in enumerate(servers)}
    return servers, {**names, "0.0.0.0:8080": "127.0.0.1:0", "127.0.0.1:8080": "127.0.0.1:0"}


def hash_of(text):
    import hashlib
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def released(lab):
    """A release with all that a pod can be given: keys, certificates of clients, masters from a Secret, and every kind of option."""
    authority = Authority(lab.folder)
    server = authority.issue("server", "IP:127.0.0.1", "DNS:localhost")
    client = authority.issue("client", "DNS:billing")
    masters = lab.redises(3)
    read = lambda path: pathlib.Path(path).read_text()  # noqa: E731
    values = {"access": {"mtls": True, "keys": [{**matrix.ENTRY, "sha256": hash_of("k" * 40)}]},
              "tls": {"enabled": True, "certificate": read(server.certificate), "key": read(server.key), "clientCa": read(authority.certificate)},
              "masters": {"external": {"addresses": [f"redis://10.0.0.{i}" for i in range(3)]}},
              "options": {**PATIENT, "max_ttl_ms": 30000, "default_ttl_ms": 20000, "max_hold_ms": 31536000000, "drift_factor": 0.02, "key_prefix": "prod: ",
                          "allow_origin": ["https://a.example", "https://b.example"], "log_format": "logfmt", "allow_replicas": True}}
    instead = {f"redis://10.0.0.{i}": master.url for i, master in enumerate(masters)}
    instead["0.0.0.0:8080"] = "127.0.0.1:0"
    return authority, client, masters, template("redlockd", values), instead


def test_a_service_with_everything(lab, released):
    """The container of the Deployment starts, its probes are answered without a key, and a lock takes one."""
    authority, client, masters, objects, instead = released
    lab.redlockd(masters, "--key-prefix", "prod: ", "--max-ttl-ms", "30000", "--default-ttl-ms", "20000").stop()  # writes their epochs, which is not what this tests
    pod = Pod(lab, objects, "Deployment", instead)
    address = listens(pod.start("redlockd"))
    container = pod.container("redlockd")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = container[probe]["httpGet"]
        assert address.startswith(get["scheme"].lower() + "://")
        wait_until(lambda: curl(address, "GET", get["path"], "--insecure").status == 200, 20, get["path"])  # noqa: B023
    trust, body = ("--cacert", authority.certificate), {"resource": "orders/42"}
    assert curl(address, "POST", "/locks", *trust, body=body).status == 401
    assert curl(address, "POST", "/locks", *trust, body=body, headers={"Authorization": "Bearer " + "k" * 40}).status == 201
    unnamed = curl(address, "POST", "/locks", *trust, "--cert", client.certificate, "--key", client.key, body=body)
    assert unnamed.status == 401 and "keys file" in unnamed.json["detail"], unnamed  # its authority is known, and keys.json does not name it
    assert masters[0].cli("EXISTS", "prod: orders/42") == 1


ACCESS = {"insecure": INSECURE, "keys": {"access": {"keysSecret": "their-keys"}}}


@pytest.mark.parametrize("how", ACCESS)
def test_may_listen_beyond_loopback(lab, how):
    """redlockd refuses that unless it is told who may call. No port is opened beyond loopback here: a listener that cannot be had comes first, and ends
    what was not refused."""
    objects = template("redlockd", matrix.merged([ACCESS[how], {"masters": {"external": {"addresses": ["redis://127.0.0.1:1"]}}}]))
    pod = Pod(lab, objects, "Deployment", {}, {"their-keys": {"keys.json": json.dumps({"keys": [matrix.ENTRY]})}})
    args = [f"--listen=unix:{pod.root}/none/socket", *(pod.here(arg) for arg in pod.container("redlockd")["args"])]
    assert "--listen=0.0.0.0:8080" in args
    refused = run_redlockd(*[arg for arg in args if not arg.startswith(("--insecure", "--keys"))])
    assert refused.returncode == 2 and "--insecure" in refused.stderr, refused.stderr
    taken = run_redlockd(*args)
    assert taken.returncode == 1 and "cannot listen on unix" in taken.stderr, taken.stderr


def test_every_option_is_taken(lab):
    """Each option of the schema, with its largest value or its last choice, alone: the start goes as far as the masters' file, which is missing."""
    schema = json.loads((pathlib.Path(__file__).resolve().parents[2] / "helm/redlockd/values.schema.json").read_text())["properties"]["options"]["properties"]
    longest = {"min_ttl_ms": 86400000, "default_ttl_ms": 86400000, "max_ttl_ms": 86400000}
    together = {"min_ttl_ms": longest, "default_ttl_ms": longest, "drift_ms": longest, "retry_min_ms": {"retry_max_ms": 60000}}
    texts = {"allow_origin": ["https://a.example"], "allow_host": ["a.example", "b.example"], "key_prefix": "prod: "}
    for name, rule in schema.items():
        value = texts[name] if name in texts else rule.get("maximum", rule.get("enum", [True])[-1])
        values = {**INSECURE, "masters": {"external": {"secret": "theirs"}}, "options": {name: value, **together.get(name, {})}}
        args = pod_of(one_of(template("redlockd", values), "Deployment"))["containers"][0]["args"]
        done = run_redlockd(*[arg.replace("0.0.0.0:8080", "127.0.0.1:0") for arg in args])
        assert done.returncode == 2 and "/etc/redlockd/masters/masters" in done.stderr and len(done.stderr.splitlines()) == 1, (name, args, done.stderr)


def test_the_first_start(lab):
    """Two replicas find masters without epochs, and wait. The Job says that these are new, and all serve at once, long before a quarantine would be over."""
    _, instead = bundled(lab)
    objects = template("redlockd", {**INSECURE, "masters": {"bundled": {"enabled": True, "password": PASSWORD}}, "options": PATIENT})
    replicas = [listens(Pod(lab, objects, "Deployment", instead).start("redlockd")) for _ in range(2)]
    for replica in replicas:
        def quarantined():
            return all((one["reason"] or "").startswith("no-epoch") for one in curl(replica, "GET", "/masters").json["masters"])  # noqa: B023
        wait_until(quarantined, 20, "quarantined")
        assert curl(replica, "GET", "/readyz").status == 503
    job = Pod(lab, objects, "Job", instead)
    address = listens(job.start("redlockd"))
    env = {"REDLOCKCTL_SERVER": f"http://{address}"}  # the pod's port 8080 is another one here
    job.container("redlockd")["env"].append({"name": "REDLOCKCTL_SERVER", "value": env["REDLOCKCTL_SERVER"]})
    wait_until(lambda: job.probe("redlockd", "startupProbe") == 0, 20, "the Job has started")
    assert ends(job.start("done", **env))[0] == 0
    for replica in replicas:
        ready(replica)
        assert curl(replica, "POST", "/locks", body={"resource": f"a/{replica}"}).status == 201


def test_helm_test(lab):
    """The command of the test's pod takes a lock through the service, and gives it back; it fails where there is none to be had."""
    service = lab.service(3)
    objects = template("redlockd", {**INSECURE, "masters": {"external": {"secret": "theirs"}}})
    url = "http://locks-redlockd.shop.svc:8080"
    code, text = ends(Pod(lab, objects, "Pod", {url: f"http://{service.address}"}).start("test"))
    assert code == 0, text
    counted = service.metrics()
    assert [counted[f'redlockd_lease_requests_total{{op="{op}",outcome="ok"}}'] for op in ("acquire", "release")] == [1, 1]
    service.stop()
    assert ends(Pod(lab, objects, "Pod", {url: f"http://{service.address}"}).start("test"))[0] != 0


# ---- masters ----

def test_a_bundled_master(lab):
    """Its command and its configuration start a server that asks for the password, keeps a file, and drops nothing; its probe is answered. (redis-server
    is taken for valkey-server.)"""
    objects = template("redlockd", {**INSECURE, "masters": {"bundled": {"enabled": True, "password": PASSWORD, "appendfsync": "always"}}})
    used = lab.redis(tcp=True)
    port = used.port
    used.kill()
    pod = Pod(lab, objects, "StatefulSet", {"valkey-server": "redis-server", "valkey-cli": f"redis-cli -p {port}", "port 6379": f"port {port}"})
    process = pod.start("valkey")
    wait_until(lambda: process.poll() is None and pod.probe("valkey", "readinessProbe") == 0, 20, "ready")
    cli = ["redis-cli", "-p", str(port)]
    assert "NOAUTH" in subprocess.run([*cli, "PING"], capture_output=True, text=True, check=False).stdout
    for name, value in {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction", "maxmemory": str(192 << 20), "save": "", "hz": "100"}.items():
        said = subprocess.run([*cli, "CONFIG", "GET", name], env={**os.environ, "REDISCLI_AUTH": PASSWORD}, capture_output=True, text=True, check=True).stdout
        assert said.splitlines()[1] == value, said
    assert PASSWORD not in pathlib.Path(f"/proc/{process.pid}/cmdline").read_text()
    password = pathlib.Path(pod.instead["/run/valkey"], "password.conf")
    assert password.stat().st_mode & 0o077 == 0
    end_process(process)
    assert pod.probe("valkey", "readinessProbe") != 0


# ---- the sidecar ----

@pytest.mark.parametrize("way", ["loopback", "socket"])
def test_a_sidecar_and_its_program(lab, way):
    """Both containers of the example, in both ways: the sidecar's probe lets the program start, and the program takes its lock with curl and gives it back."""
    masters = lab.redises(3)
    lab.redlockd(masters, "--max-ttl-ms", "60000").stop()
    secret = {"redis-masters": {"masters": ",".join(master.url for master in masters)}}
    instead = {"127.0.0.1:8080": "127.0.0.1:0"}
    pod = Pod(lab, template("example", {"redlockd": {"options": PATIENT}}), "Deployment", instead, secret, name=f"locks-{way}")
    address = listens(pod.start("redlockd"))
    if way == "loopback":
        pod.instead = {**pod.instead, "http://127.0.0.1:8080": f"http://{address}"}
    else:
        assert address == f"unix:{pod.root}/run/redlockd/http.sock"
    wait_until(lambda: pod.probe("redlockd", "startupProbe") == 0, 20, "the sidecar has started")
    assert pod.probe("redlockd", "livenessProbe") == 0
    ready(address)
    program = pod.start("app", EVERY_S="0.1", WORK_S="0")
    wait_until(lambda: program.log.read_text().count("it is my turn") >= 2, 20, "the program had its turn twice")
    assert "not now" not in program.log.read_text()
    held = curl(address, "POST", "/locks", body={"resource": "example/minutely"})
    wait_until(lambda: held.status == 201 or curl(address, "POST", "/locks", body={"resource": "example/minutely"}).status == 201, 20, "we have it")
    wait_until(lambda: "somebody else is at it" in program.log.read_text(), 20, "the program sees that")
