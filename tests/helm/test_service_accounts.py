# SPDX-License-Identifier: MIT
"""Pods that call by the token of their service account: the rendered keys file in a running redlockd, the Job that writes
the public keys of the cluster, the program of the example with its token. Tokens are made by PyJWT, with the claims of
Kubernetes."""

import contextlib
import http.server
import json
import pathlib
import ssl
import subprocess
import threading

import pytest
import yaml

import matrix
from certificates import Authority
from charts import Refused, render, template
from harness import curl, run_redlockd, wait_until
from pods import CTL, Pod, ends, listens, ready
from token_fixtures import Issuer, Signer

ISSUER = "https://kubernetes.default.svc.cluster.local"
PATIENT = {"master_timeout_ms": 5000}  # a busy machine is not a dead master
API = "https://kubernetes.default.svc"


def values(namespaces, **access):
    accounts = {"issuer": ISSUER, "namespaces": namespaces}
    return {"access": {"serviceAccounts": accounts, **access}, "masters": {"external": {"secret": "their-masters"}}, "options": PATIENT}


def jwks(*signers):
    return json.dumps({"keys": [signer.jwk() for signer in signers]})


@pytest.fixture(name="cluster")
def fixture_cluster(lab):
    """The API server's keys for tokens: as the issuer of PyJWT."""
    return Issuer(lab, ISSUER, Signer("one"), Signer("two", "ES256"))


def token(cluster, namespace, account="web", **how):
    return cluster.token(sub=f"system:serviceaccount:{namespace}:{account}",
                         **{"kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": account, "uid": "u"}}}, **how)


def service(lab, objects, keys):
    """The pod of the Deployment, over three masters; `keys`: the text of the file with the public keys."""
    masters = lab.redises(3)
    lab.redlockd(masters).stop()  # writes their epochs, which is not what this tests
    secrets = {"their-masters": {"masters": ",".join(master.url for master in masters)}}
    configs = {"locks-redlockd-jwks": {"kubernetes.json": keys}, "their-jwks": {"kubernetes.json": keys}}
    return Pod(lab, objects, "Deployment", {"0.0.0.0:8080": "127.0.0.1:0"}, secrets, configs=configs)


def by(address, shown, method, path, body=None):
    return curl(address, method, path, body=body, headers={"Authorization": f"Bearer {shown}"})


NAMESPACES = {
    "shop": {"prefixes": ["shop/", "shared/"], "rights": ["acquire", "inspect"], "max_ttl_ms": 5000},
    "*": {"prefixes": ["{kubernetes.io/namespace}/"], "rights": ["acquire"]},
}


def test_namespaces(lab, cluster):
    """Each may do what its entry says, and nothing in the names of another one; "*" is for the namespaces without an entry."""
    entry = {**matrix.ENTRY, "sha256": "a" * 64}
    pod = service(lab, template("redlockd", values(NAMESPACES, keys=[entry])), jwks(*cluster.signers))
    checked = run_redlockd(*(pod.here(arg) for arg in pod.container("redlockd")["args"]), "--check")
    assert checked.returncode == 0, checked.stderr
    assert f"issuer: {ISSUER} for redlockd, rules: 2, keys in {pod.root}/etc/redlockd/jwks/kubernetes.json\n" in checked.stdout
    address = listens(pod.start("redlockd"))
    ready(address)

    def acquires(shown, resource, **body):
        return by(address, shown, "POST", "/locks", {"resource": resource, **body}).status
    shop, other = token(cluster, "shop"), token(cluster, "billing", signer=cluster.signers[1])
    whoami = by(address, shop, "GET", "/whoami").json
    assert whoami == {"caller": "system:serviceaccount:shop:web", "rights": ["acquire", "inspect"], "prefixes": ["shop/", "shared/"]}
    assert [acquires(shop, "shop/a", ttl_ms=5000), acquires(shop, "shared/a"), acquires(shop, "billing/a"), acquires(shop, "shop")] == [201, 201, 403, 403]
    assert acquires(shop, "shop/b", ttl_ms=5001) == 400
    assert [acquires(other, "billing/a"), acquires(other, "shop/c"), acquires(other, "shared/c")] == [201, 403, 403]
    assert by(address, other, "GET", "/locks/billing/a").status == 403  # "*" has no right to inspect
    assert acquires(token(cluster, "shop", aud="https://kubernetes.default.svc"), "shop/d") == 401  # a pod's token for the API server
    assert by(address, cluster.token(sub="system:node:shop:web"), "GET", "/whoami").status == 403
    assert curl(address, "POST", "/locks", body={"resource": "shop/d"}).status == 401


def test_only_named_namespaces(lab, cluster):
    pod = service(lab, template("redlockd", values({"shop": NAMESPACES["shop"]}, jwks={"configMap": "their-jwks"})), jwks(*cluster.signers))
    address = listens(pod.start("redlockd"))
    assert by(address, token(cluster, "shop"), "GET", "/whoami").status == 200
    for namespace in ("shop2", "sho", "billing", "shop:web"):
        assert by(address, token(cluster, namespace), "GET", "/whoami").status == 403, namespace


def test_other_public_keys_restart_nothing(lab, cluster):
    pod = service(lab, template("redlockd", values(NAMESPACES)), jwks(cluster.signers[0]))
    process = pod.start("redlockd")
    address, new = listens(process), token(cluster, "shop", signer=cluster.signers[1])
    assert by(address, new, "GET", "/whoami").status == 401
    pod.replace("/etc/redlockd/jwks/kubernetes.json", jwks(cluster.signers[1]))
    wait_until(lambda: by(address, new, "GET", "/whoami").status == 200, 20, "the new key counts")
    assert by(address, token(cluster, "shop"), "GET", "/whoami").status == 401 and process.poll() is None


PREFIXES = ["", "a", "shop/", "{sub}/", "a{sub}/b", "{kubernetes.io/namespace}/x/{sub}/", "{a%2Fb%25}/", "ä/", "%", "a b", "{sub}", "{sub}x", "{sub", "sub}",
            "{}/", "{{sub}}/", "{a//b}/", "{/a}/", "{a/}/", "{a%2f}/", "{a%}/", "a\n", "\x7f", "\x85", "{a\x00}/", "{a\tb}/", "\u00a0"]


@pytest.mark.parametrize("prefix", PREFIXES, ids=ascii)
def test_the_chart_takes_the_prefixes_that_redlockd_takes(lab, cluster, prefix):
    entry = {"prefixes": [prefix], "rights": ["acquire"]}
    path = pathlib.Path(lab.folder, "keys.json")
    path.write_text(json.dumps({"issuers": [cluster.entry([{"match": {"sub": "*"}, "name": "{sub}", **entry}])]}))
    path.chmod(0o640)
    checked = run_redlockd("--masters=redis://127.0.0.1:1", f"--keys={path}", "--check")
    assert checked.returncode in (0, 2)
    try:
        taken = bool(render("redlockd", values({"shop": entry})))
    except Refused as refused:
        assert "access.serviceAccounts.namespaces.shop.prefixes[0]: " in str(refused)
        taken = False
    assert taken == (checked.returncode == 0), checked.stderr


# ---- the public keys of the cluster ----

class ApiServer(http.server.BaseHTTPRequestHandler):
    """The two requests of the Job, as the API server answers them."""

    def log_message(self, *_):
        pass

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def allowed(self):
        if self.headers["Authorization"] == "Bearer of-the-job":
            return True
        self.answer(403, '{"kind":"Status","status":"Failure","reason":"Forbidden"}')
        return False

    def do_GET(self):
        if self.allowed():
            self.answer(200, self.server.jwks if self.path == "/openid/v1/jwks" else "{}")

    def do_PATCH(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if not self.allowed():
            return
        if self.server.no_role:
            self.answer(403, '{"kind":"Status","status":"Failure","reason":"Forbidden"}')
        elif self.path != "/api/v1/namespaces/shop/configmaps/locks-redlockd-jwks?fieldManager=redlockd-jwks":
            self.answer(404, "{}")
        elif self.headers["Content-Type"] != "application/apply-patch+yaml":
            self.answer(415, "{}")
        else:
            self.server.applied.append(yaml.safe_load(body))
            self.answer(200, "{}")


@pytest.fixture(name="api")
def fixture_api(lab):
    """Stands for the API server of Kubernetes, which cannot be had here; over TLS."""
    authority = Authority(lab.folder)
    certificate = authority.issue("api", "IP:127.0.0.1")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ApiServer)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate.certificate, certificate.key)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.applied, server.no_role, server.authority = [], False, pathlib.Path(authority.certificate).read_text()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with contextlib.closing(server.socket):
        yield server
        server.shutdown()
        thread.join()


def refresh(lab, api, shown="of-the-job", authority=None):
    """Runs the container of the Job: (its status, its output)."""
    configs = {"kube-root-ca.crt": {"ca.crt": authority or api.authority}}
    objects, instead = template("redlockd", values(NAMESPACES)), {API: f"https://127.0.0.1:{api.server_port}"}
    return ends(Pod(lab, objects, "Job", instead, configs=configs, tokens={None: shown}).start("refresh"))


@pytest.mark.parametrize("indent", [None, 2], ids=["one line", "many lines"])
def test_the_job_writes_what_redlockd_reads(lab, cluster, api, indent):
    api.jwks = json.dumps(json.loads(jwks(*cluster.signers)), indent=indent)
    code, text = refresh(lab, api)
    assert code == 0, text
    config, = api.applied
    assert config.keys() == {"apiVersion", "kind", "metadata", "data"} and config["metadata"] == {"name": "locks-redlockd-jwks"}
    assert json.loads(config["data"]["kubernetes.json"]) == json.loads(api.jwks)
    address = listens(service(lab, template("redlockd", values(NAMESPACES)), config["data"]["kubernetes.json"]).start("redlockd"))
    assert by(address, token(cluster, "shop"), "GET", "/whoami").status == 200


@pytest.mark.parametrize("how", ["another token", "another authority", "no role", "no keys", "an empty answer"])
def test_the_job_fails_and_writes_nothing(lab, api, cluster, how):
    """The old keys stay where they are."""
    api.jwks = {"no keys": '{"keys":[]}', "an empty answer": ""}.get(how, jwks(*cluster.signers))
    other = pathlib.Path(Authority(lab.folder).certificate).read_text()
    api.no_role = how == "no role"
    code, text = refresh(lab, api, "of-another" if how == "another token" else "of-the-job", other if how == "another authority" else None)
    assert code != 0 and not api.applied and text.strip(), text
    assert ("Forbidden" in text) == (how in ("another token", "no role")), text
    assert "of-the-job" not in text


# ---- a program ----

def test_a_program_with_a_token(lab, cluster):
    """The third program of the example takes its lock from the service, also after the kubelet has put another token into the file, and the old one does not
    count any more. redlockctl reads the same file, in the same pod."""
    namespaces = {"shop": {"prefixes": ["example/"], "rights": ["acquire", "inspect"]}}
    server = service(lab, template("redlockd", values(namespaces)), jwks(*cluster.signers))
    process = server.start("redlockd")
    address = listens(process)
    ready(address)
    old, new = (token(cluster, "shop", signer=signer) for signer in cluster.signers)
    objects = template("example", {"service": {"url": f"http://{address}"}})
    pod = Pod(lab, objects, "Deployment", {}, name="locks-service", tokens={"redlockd": old})
    program = pod.start("app", EVERY_S="0.1", WORK_S="0")

    def turns(more):
        count = program.log.read_text().count("it is my turn") + more
        wait_until(lambda: program.log.read_text().count("it is my turn") >= count, 30, "the program has its turn")
    turns(2)
    pod.replace("/var/run/secrets/redlockd/token", new)
    turns(2)
    server.replace("/etc/redlockd/jwks/kubernetes.json", jwks(cluster.signers[1]))
    wait_until(lambda: by(address, old, "GET", "/whoami").status == 401, 20, "the old token does not count")
    turns(2)
    assert "not now" not in program.log.read_text() and process.poll() is None
    env = {**pod.environment(pod.container("app")), "REDLOCKCTL_SERVER": f"http://{address}"}
    asked = subprocess.run([CTL, "whoami"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert asked.returncode == 0 and "system:serviceaccount:shop:web" in asked.stdout, asked
    done = subprocess.run([CTL, "run", "example/redlockctl", "--", "echo", "the work"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stdout) == (0, "the work\n"), done
