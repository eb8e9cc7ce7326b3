# SPDX-License-Identifier: MIT
"""Client certificates (--tls-client-ca), and what SIGHUP reads anew: certificate, key, authorities, keys file. Terminals: test_terminal.py."""

import hashlib
import json
import os
import shutil
import signal
import ssl
import threading

import pytest

import harness
from certificates import Authority
from harness import connect_to, curl, quote, read_response, wait_until

KEY = "rlk_" + "k" * 43
OTHER_KEY = "rlk_" + "o" * 43


@pytest.fixture(scope="module")
def clients(tmp_path_factory, authority):
    """Certificates of clients by what they are."""
    stranger, middle = Authority(str(tmp_path_factory.mktemp("other"))), authority.issue("middle", authority=True)
    return {
        "good": authority.issue("common", "DNS:worker.example", "URI:spiffe://example/worker", usage="clientAuth"),
        "common name": authority.issue("worker-7"),
        "address": authority.issue("worker-8", "IP:10.0.0.1"),
        "expired": authority.issue("late", "DNS:worker.example", ended=True),
        "future": authority.issue("early", "DNS:worker.example", future=True),
        "server": authority.issue("other", "DNS:worker.example", usage="serverAuth"),
        "stranger": stranger.issue("stranger", "DNS:worker.example"),
        "middle": middle,
    }


def options_for(server, authority=None):
    options = ["--tls-cert", server.certificate, "--tls-key", server.key]
    return [*options, "--tls-client-ca", authority.certificate] if authority else options


def with_certificate(client):
    return ["--cert", client.certificate, "--key", client.key]


@pytest.fixture(scope="module")
def service(authority, server):
    with harness.Lab() as lab:
        path = os.path.join(lab.folder, "socket")
        daemon = lab.service(1, *options_for(server, authority), listen=("127.0.0.1:0", f"unix:{path}"), trust=authority.certificate, wait=False)
        wait_until(lambda: daemon.curl("GET", "/readyz").status == 200, what="ready")
        yield daemon


# ---- client certificates ----


@pytest.mark.parametrize("version", ["--tlsv1.2", "--tlsv1.3"])
@pytest.mark.parametrize("who, name", [("good", "worker.example"), ("common name", "worker-7"), ("address", "certificate")])
def test_a_good_certificate(service, clients, resource, who, name, version):
    answer = service.curl("POST", "/locks", "--tls-max", version[-3:], version, *with_certificate(clients[who]), body={"resource": resource})
    assert answer.status == 201, answer
    wait_until(lambda: any(line.get("caller") == name for line in service.log("request")), what="the line in the log")


@pytest.mark.parametrize("version", ["--tlsv1.2", "--tlsv1.3"])
@pytest.mark.parametrize("who, reason", [("expired", "expired"), ("future", "not valid yet"), ("server", "not meant for clients"),
                                         ("stranger", "not signed by an authority")])
def test_a_bad_certificate(service, clients, resource, who, reason, version):
    """The handshake goes on, and the answer says why."""
    answer = service.curl("POST", "/locks", "--tls-max", version[-3:], version, *with_certificate(clients[who]), body={"resource": resource})
    assert (answer.status, answer.code) == (401, "unauthorized")
    assert reason in answer.json["detail"]
    assert service.curl("GET", "/healthz", *with_certificate(clients[who])).status == 200


def test_no_certificate(service, resource):
    assert service.curl("GET", "/healthz").status == service.curl("GET", "/readyz").status == 200
    answer = service.curl("POST", "/locks", body={"resource": resource})
    assert (answer.status, answer.code) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_without_a_certificate_nobody_learns_what_is_held(service, clients, resource):
    lease = service.curl("POST", "/locks", *with_certificate(clients["good"]), body={"resource": resource, "ttl_ms": 60000}).json
    for method in ("PUT", "DELETE"):
        held, free = (service.curl(method, f"/locks/{quote(name)}", body={"token": "0" * 40}) for name in (resource, resource + "-free"))
        assert held.status == 410 and held.json == free.json, held
        assert service.curl(method, f"/locks/{quote(resource)}", *with_certificate(clients["expired"]), body={"token": "0" * 40}).status == 410
        assert service.curl(method, f"/locks/{quote(resource)}", *with_certificate(clients["good"]), body={"token": "0" * 40}).status == 409
        assert curl(service.addresses[1], method, f"/locks/{quote(resource)}", body={"token": "0" * 40}).status == 409  # everybody may do everything there
    assert service.curl("PUT", f"/locks/{quote(resource)}", body={"token": lease["token"]}).status == 200
    assert service.release(lease).status == 204


def test_the_unix_socket_asks_for_none(service, resource):
    assert curl(service.addresses[1], "POST", "/locks", body={"resource": resource}).status == 201


def test_nobody_is_an_administrator_by_certificate_alone(service, clients, resource):
    who = with_certificate(clients["good"])
    assert service.curl("POST", "/locks", *who, body={"resource": resource}).status == 201
    answer = service.curl("DELETE", f"/locks/{quote(resource)}?force=true", *who)
    assert (answer.status, answer.code) == (403, "forbidden")


def test_a_chain_over_an_intermediate(service, clients, tmp_path, resource, authority):
    """The client sends the certificate that signed its own; the authority of the service is the root alone."""
    middle = clients["middle"]
    signer = Authority.__new__(Authority)
    signer.folder, signer.config = str(tmp_path), authority.config
    signer.certificate, signer.key = middle.certificate, middle.key
    client = signer.issue("far", "DNS:far.example")
    chain = tmp_path / "chain.pem"
    chain.write_bytes(open(client.certificate, "rb").read() + open(middle.certificate, "rb").read())
    answer = service.curl("POST", "/locks", "--cert", str(chain), "--key", client.key, body={"resource": resource})
    assert answer.status == 201, answer
    wait_until(lambda: any(line.get("caller") == "far.example" for line in service.log("request")), what="the line in the log")
    answer = service.curl("POST", "/locks", *with_certificate(client), body={"resource": resource + "/2"})
    assert answer.status == 401, "without it nothing leads to the root"


def write_keys(path, *entries):
    with open(path + ".new", "w", encoding="utf-8") as out:
        json.dump({"keys": list(entries)}, out)
    os.chmod(path + ".new", 0o600)
    os.rename(path + ".new", path)


def entry(name, **members):
    return {"name": name, "prefixes": [""], "rights": ["acquire", "inspect", "list"], **members}


def hashed(key):
    return hashlib.sha256(key.encode()).hexdigest()


def test_certificates_in_the_keys_file(lab, authority, server, clients):
    keys = os.path.join(lab.folder, "keys.json")
    write_keys(keys, entry("web", certificates="spiffe://example/worker", prefixes=["web/"]), entry("old", certificates=["worker-7"], rights=["inspect"]),
               entry("key", sha256=hashed(KEY)))
    daemon = lab.service(1, *options_for(server, authority), "--keys", keys, trust=authority.certificate, wait=False)

    def acquire(resource, *extra):
        answer = daemon.curl("POST", "/locks", *extra, body={"resource": resource})
        return answer.status, answer.json.get("code")
    wait_until(lambda: daemon.curl("GET", "/readyz").status == 200, what="ready")
    assert acquire("web/a", *with_certificate(clients["good"])) == (201, None)
    wait_until(lambda: any(line.get("caller") == "web" for line in daemon.log("request")), what="the line in the log")
    assert acquire("other", *with_certificate(clients["good"])) == (403, "forbidden")
    assert acquire("web/b", *with_certificate(clients["common name"])) == (403, "forbidden")
    assert acquire("web/b", *with_certificate(clients["address"])) == (401, "unauthorized")
    assert acquire("web/b", *with_certificate(clients["expired"])) == (401, "unauthorized")
    assert acquire("web/b", "-H", f"Authorization: Bearer {KEY}") == (201, None)
    assert acquire("web/c") == (401, "unauthorized")


# ---- SIGHUP ----


class Files:
    """The files of a daemon, which are replaced while it runs."""

    def __init__(self, folder, server):
        self.certificate, self.key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
        self.put(server)

    def put(self, server):
        for source, target in ((server.certificate, self.certificate), (server.key, self.key)):
            shutil.copy(source, target + ".new")
            os.chmod(target + ".new", 0o600)
            os.rename(target + ".new", target)


def serial(daemon):
    """Of the certificate that a new connection gets."""
    with connect_to(daemon.address, tls=daemon.tls) as client:
        return client.getpeercert()["serialNumber"]


def hang_up(daemon, *events):
    before = [len(daemon.log(event)) for event in events]
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: all(len(daemon.log(event)) > count for event, count in zip(events, before)), what=f"{events} in the log")


def test_reload_under_load(lab, authority, server):
    """Ten times, with requests on open and on new connections all the while: none fails, new connections see the new certificate."""
    files = Files(lab.folder, server)
    daemon = lab.service(1, *options_for(files), "--workers", "2", "--master-timeout-ms", "5000", trust=authority.certificate)
    failures, counts, over = [], [0, 0], threading.Event()

    def keep_asking(kind, number):
        client = daemon.client()
        try:
            while not over.is_set():
                if kind == 1:
                    client.close()
                    client = daemon.client()
                name = f"{kind}/{number}"
                lease = client.call("POST", "/locks", {"resource": name})
                assert lease.status == 201, lease
                assert client.call("DELETE", f"/locks/{name}", {"token": lease.json["token"]}).status == 204
                counts[kind] += 1
        except Exception as failure:  # noqa: BLE001
            failures.append(failure)
        finally:
            client.close()
    threads = [threading.Thread(target=keep_asking, args=(i % 2, i)) for i in range(6)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            old, before = serial(daemon), list(counts)
            files.put(authority.issue("server", "IP:127.0.0.1"))
            hang_up(daemon, "tls-reloaded")
            wait_until(lambda old=old: serial(daemon) != old and serial(daemon) != old, what="the new certificate, from both workers")
            wait_until(lambda before=before: all(now > then for now, then in zip(counts, before)) or failures, what="work goes on")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failures and len(daemon.log("tls-reloaded")) == 10
    print(counts)


def test_bad_files_leave_the_old_ones(lab, authority, server):
    files = Files(lab.folder, server)
    daemon = lab.service(1, *options_for(files), trust=authority.certificate)
    before, open_one = serial(daemon), daemon.client()
    shutil.copy(authority.issue("other", "IP:127.0.0.1").certificate, files.certificate)
    hang_up(daemon, "tls-reload-failed")
    failure = daemon.log("tls-reload-failed")[-1]
    assert failure["level"] == "error" and "does not belong" in failure["message"] and files.key in failure["message"]
    os.unlink(files.key)
    hang_up(daemon, "tls-reload-failed")
    assert serial(daemon) == before
    assert open_one.call("GET", "/healthz").status == 200
    open_one.close()
    files.put(authority.issue("next", "IP:127.0.0.1"))
    hang_up(daemon, "tls-reloaded")
    wait_until(lambda: serial(daemon) != before, what="the new one")


def test_authorities_are_read_anew(lab, authority, server, clients):
    """The certificates of open connections are measured by the new ones, too; whose authority stays goes on."""
    next_authority = Authority(lab.folder)
    trusted = os.path.join(lab.folder, "authorities.pem")
    shutil.copy(authority.certificate, trusted)
    daemon = lab.service(1, *options_for(server), "--tls-client-ca", trusted, trust=authority.certificate, wait=False)
    wait_until(lambda: daemon.curl("GET", "/readyz").status == 200, what="ready")
    old, new = clients["good"], next_authority.issue("new", "DNS:new.example")
    context = ssl.create_default_context(cafile=authority.certificate)
    context.load_cert_chain(old.certificate, old.key)
    ask = b"GET /masters HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect_to(daemon.address, tls=context) as open_one:
        open_one.sendall(ask)
        assert read_response(open_one).status == 200
        shutil.copy(next_authority.certificate, trusted)
        hang_up(daemon, "tls-reloaded")
        wait_until(lambda: daemon.curl("GET", "/masters", *with_certificate(new)).status == 200, what="the new authority counts")
        assert daemon.curl("GET", "/masters", *with_certificate(old)).status == 401
        open_one.sendall(ask)
        assert read_response(open_one).status == 401
        with open(trusted, "wb") as both:
            for one in (authority, next_authority):
                with open(one.certificate, "rb") as file:
                    both.write(file.read())
        hang_up(daemon, "tls-reloaded")
        wait_until(lambda: open_one.sendall(ask) or read_response(open_one).status == 200, what="the authority is back")


def test_keys_are_read_anew(lab, authority, server):
    keys = os.path.join(lab.folder, "keys.json")
    write_keys(keys, entry("a", sha256=hashed(KEY)))
    daemon = lab.service(1, *options_for(server), "--keys", keys, "--workers", "2", trust=authority.certificate, wait=False)

    def status(key):
        return daemon.curl("GET", "/masters", "-H", f"X-Api-Key: {key}").status
    assert (status(KEY), status(OTHER_KEY)) == (200, 401)
    write_keys(keys, entry("b", sha256=hashed(OTHER_KEY)))
    hang_up(daemon, "keys-reloaded", "tls-reloaded")
    assert daemon.log("keys-reloaded")[-1]["keys"] == "1"
    wait_until(lambda: [status(OTHER_KEY) for _ in range(4)] == [200] * 4, what="the new key counts")
    wait_until(lambda: [status(KEY) for _ in range(4)] == [401] * 4, what="the old one does not, at the other worker either")
    with open(keys, "w", encoding="utf-8") as out:
        out.write('{"keys":[{"name":"x"}]}')
    hang_up(daemon, "keys-reload-failed", "tls-reloaded")
    assert "keys[0]" in daemon.log("keys-reload-failed")[-1]["message"]
    assert status(OTHER_KEY) == 200


def test_a_hangup_with_nothing_to_read(lab):
    daemon = lab.service(1)
    hang_up(daemon, "nothing-to-reload")
    assert daemon.curl("GET", "/healthz").status == 200


def test_many_reloads_leave_nothing_behind(lab, authority, server):
    """Signals come faster than they are taken; each old certificate goes with its last connection."""
    daemon = lab.service(1, *options_for(server), trust=authority.certificate)
    clients = [daemon.client() for _ in range(5)]
    for i in range(200):
        daemon.process.send_signal(signal.SIGHUP)
        assert clients[i % 5].call("GET", "/healthz").status == 200
        if i % 10 == 0:
            clients[i // 10 % 5].close()
            clients[i // 10 % 5] = daemon.client()
    hang_up(daemon, "tls-reloaded")
    for client in clients:
        client.close()
