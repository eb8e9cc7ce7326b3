# SPDX-License-Identifier: MIT
"""SIGHUP reads the masters' passwords, certificates and addresses again, without a restart and without losing a lease. Another server at a changed
address: test_masters_replaced.py."""

import os
import shutil
import signal
import time

import pytest

from certificates import Authority, Certificate, openssl
from harness import wait_until
from master_checks import TIMEOUT_MS, check_a_majority_serves, wait_for_reason
from rediss_fixtures import tls  # noqa: F401
from reload_fixtures import MastersFile, reload, serve

TTL_MS = 60000


def cut_connections(servers):
    """All of them, those of notifications, too."""
    for server in servers:
        server.cli("CLIENT", "KILL", "TYPE", "normal")
        server.cli("CLIENT", "KILL", "TYPE", "pubsub")


def check_all_vote_again(service, servers):
    """After new connections."""
    reconnects = sum(value for name, value in service.metrics().items() if name.startswith("redlockd_master_reconnects_total"))
    cut_connections(servers)
    wait_until(lambda: sum(value for name, value in service.metrics().items() if name.startswith("redlockd_master_reconnects_total")) >= reconnects + 3,
               what="new connections")
    service.wait_voting(3)


def extends(service, lease):
    return service.curl("PUT", f"/locks/{lease['resource']}", body={"token": lease["token"], "ttl_ms": TTL_MS}).status == 200


# ---- passwords ----


def with_user(servers, password):
    return [f"redis://locks:{password}@127.0.0.1:{server.port}" for server in servers]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_password_is_changed(lab, workers):
    servers, file = lab.redises(3, tcp=True), MastersFile(lab)
    for server in servers:
        server.cli("ACL", "SETUSER", "locks", "on", ">old", "~*", "&*", "+@all")
    file.write(*with_user(servers, "old"))
    service = serve(lab, file, "--workers", workers)
    lease = service.acquire("x", TTL_MS)
    for server in servers:
        server.cli("ACL", "SETUSER", "locks", ">new")
    file.write(*with_user(servers, "new"))
    line = reload(service)
    assert line["file"] == file.path and "moved" not in line and service.log("nothing-to-reload") == [], line
    assert service.metrics()["redlockd_config_reload_successful"] == 1
    assert sum(value for name, value in service.metrics().items() if name.startswith("redlockd_master_reconnects_total")) == 0, "connections stay"
    for server in servers:
        server.cli("ACL", "SETUSER", "locks", "<old")
    assert extends(service, lease)
    check_all_vote_again(service, servers)
    assert extends(service, lease) and service.release(lease).status == 204
    assert "new@" not in service.stderr() and ":new" not in service.stderr()


def test_a_master_that_is_away_gets_the_new_password(lab):
    servers, file = lab.redises(3, tcp=True), MastersFile(lab)
    file.write(*(server.url for server in servers))
    service = serve(lab, file)
    servers[0].cli("CONFIG", "SET", "requirepass", "new")
    servers[0].auth = ["new"]
    cut_connections(servers[:1])
    wait_for_reason(service, servers[0], "auth")
    file.write(f"redis://:new@127.0.0.1:{servers[0].port}", *(server.url for server in servers[1:]))
    reload(service)
    service.wait_voting(3)


# ---- certificates ----


class Files:
    """The files of the authorities, the certificate and the key of redlockd, which are replaced."""

    def __init__(self, lab):
        self.ca, self.certificate, self.key = (os.path.join(lab.folder, name) for name in ("ca.pem", "own.pem", "own.key"))
        self.options = ["--masters-ca", self.ca, "--masters-cert", self.certificate, "--masters-key", self.key]

    def put(self, authority, own):
        for path, to in ((authority.certificate, self.ca), (own.certificate, self.certificate), (own.key, self.key)):
            shutil.copyfile(path, to + ".new")
            os.chmod(to + ".new", 0o600)
            os.rename(to + ".new", to)


def rotated(lab, tls, *options):  # noqa: F811
    """A redlockd whose masters have another authority, server certificate and authority of clients by now, as have the files."""
    files = Files(lab)
    files.put(tls.authority, tls.authority.issue("redlockd"))
    servers = tls.servers(3, "--tls-auth-clients", "yes")
    service = lab.redlockd(servers, "--master-timeout-ms", TIMEOUT_MS, *files.options, *options)
    service.wait_voting(3)
    other = Authority(lab.folder, "other")
    new = other.issue("server", "IP:127.0.0.1")
    for server in servers:
        server.cli("CONFIG", "SET", "tls-cert-file", new.certificate, "tls-key-file", new.key, "tls-ca-cert-file", other.certificate)
    files.put(other, other.issue("redlockd"))
    return service, servers, files


@pytest.mark.parametrize("workers", ["1", "2"])
def test_authority_and_certificates_are_changed(lab, tls, workers):  # noqa: F811
    service, servers, files = rotated(lab, tls, "--workers", workers)
    lease = service.acquire("x", TTL_MS)
    line = reload(service)
    assert line["authorities"] == files.ca and line["certificate"] == files.certificate and "file" not in line, line
    assert service.log("nothing-to-reload") == []
    assert extends(service, lease)
    check_all_vote_again(service, servers)
    assert extends(service, lease) and service.release(lease).status == 204


def test_the_steps_of_the_manual(lab, tls):  # noqa: F811
    """docs/how-to/operate.md: for a while each side trusts both authorities, so that no connection fails at any step."""
    files = Files(lab)
    files.put(tls.authority, tls.authority.issue("redlockd"))
    servers = tls.servers(3, "--tls-auth-clients", "yes")
    service = lab.redlockd(servers, "--master-timeout-ms", TIMEOUT_MS, *files.options)
    service.wait_voting(3)
    lease = service.acquire("x", TTL_MS)
    other, both = Authority(lab.folder, "other"), Certificate(lab.folder, "both")
    with open(both.certificate, "w", encoding="utf-8") as out:
        for authority in (tls.authority, other):
            with open(authority.certificate, encoding="utf-8") as one:
                out.write(one.read())
    own, new = tls.authority.issue("redlockd"), other.issue("server", "IP:127.0.0.1")

    def step(authority=None, client=None, **of_masters):
        if authority:
            files.put(authority, client)
            reload(service)
        for server in servers:
            for name, value in of_masters.items():
                server.cli("CONFIG", "SET", *[word for pair in zip(name.split("__"), value) for word in (pair[0].replace("_", "-"), pair[1])])
            check_all_vote_again(service, servers)
        assert extends(service, lease)
    step(both, own)
    step(tls_ca_cert_file=[both.certificate])
    step(tls_cert_file__tls_key_file=[new.certificate, new.key])
    step(both, other.issue("redlockd"))
    step(tls_ca_cert_file=[other.certificate])
    step(other, other.issue("redlockd"))
    assert [line for line in service.log("master") if "tls: " in line.get("reason", "")] == []
    assert service.release(lease).status == 204


def test_the_authorities_of_the_system_are_changed(lab, tls):  # noqa: F811
    bundle = os.path.join(lab.folder, "bundle.pem")
    shutil.copyfile(Authority(lab.folder, "other").certificate, bundle)
    servers = tls.servers(3)
    service = lab.redlockd(servers, "--master-timeout-ms", TIMEOUT_MS, env={"SSL_CERT_FILE": bundle}, wait=False)
    wait_for_reason(service, servers[0], "tls: certificate verify failed")
    shutil.copyfile(tls.authority.certificate, bundle)
    reload(service)
    service.wait_voting(3)


def expiry(service, option):
    """Seconds until then."""
    return service.metrics()[f'redlockd_masters_certificate_expiry_timestamp_seconds{{option="{option}"}}'] - time.time()


def test_certificates_that_expire_are_told(lab, tls):  # noqa: F811
    """At the start and at each reload, like that of --tls-cert."""
    files, day = Files(lab), 24 * 60 * 60
    files.put(tls.authority, tls.authority.issue("redlockd", ended=True))
    servers = tls.servers(3)
    service = lab.redlockd(servers, "--master-timeout-ms", TIMEOUT_MS, *files.options)
    assert [line["certificate"] for line in service.log("masters-certificate-expired")] == [files.certificate]
    assert [line["certificate"] for line in service.log("masters-certificate-expires-soon")] == [files.ca]
    assert -3600 < expiry(service, "masters-cert") < 0 and day < expiry(service, "masters-ca") < 2 * day
    files.put(tls.authority, tls.authority.issue("redlockd", future=True))
    reload(service)
    soon = wait_until(lambda: len(service.log("masters-certificate-expires-soon")) == 3 and service.log("masters-certificate-expires-soon"), what="both again")
    assert {line["certificate"] for line in soon} == {files.ca, files.certificate} and 0 < int(soon[-1]["hours_left"]) < 48, soon
    assert 0 < expiry(service, "masters-cert") < 2 * day
    with open(files.ca, encoding="utf-8") as one, open(short_authority(lab), encoding="utf-8") as two:
        both = one.read() + two.read()
    with open(files.ca, "w", encoding="utf-8") as to:
        to.write(both)
    reload(service)
    wait_until(lambda: 0 < expiry(service, "masters-ca") < day + 60, what="the authority that expires first")


def short_authority(lab):
    """One that is good for a day."""
    made = Certificate(lab.folder, "short")
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", made.key, "-out", made.certificate, "-days", "1",
            "-subj", "/CN=short")
    return made.certificate


def test_without_certificates_there_is_no_metric(lab):
    assert not [name for name in lab.service(1).metrics() if "masters_certificate" in name]


# ---- what cannot be used ----


@pytest.mark.parametrize("case", ["no authority", "key of another certificate", "no certificate"])
def test_certificates_that_cannot_be_used(lab, tls, case):  # noqa: F811
    """What was read before stays in use as a whole, until the files are good."""
    service, servers, files = rotated(lab, tls)
    other = Authority(lab.folder, "third").issue("other")
    path, by, option = {"no authority": (files.ca, None, "--masters-ca"), "key of another certificate": (files.key, other.key, "--masters-key"),
                        "no certificate": (files.certificate, other.key, "--masters-cert")}[case]
    with open(path, encoding="utf-8") as file:
        good = file.read()
    with open(by or os.devnull, encoding="utf-8") as file, open(path, "w", encoding="utf-8") as to:
        to.write(file.read())
    line = reload(service, "masters-reload-failed")
    assert option in line["message"] and path in line["message"] and line["note"], line
    assert service.metrics()["redlockd_config_reload_successful"] == 0 and service.metrics()["redlockd_config_reload_failures_total"] == 1
    for server in servers:  # the masters go back to what redlockd still has
        server.cli("CONFIG", "SET", "tls-cert-file", tls.certificate.certificate, "tls-key-file", tls.certificate.key,
                   "tls-ca-cert-file", tls.authority.certificate)
    check_all_vote_again(service, servers)
    with open(path, "w", encoding="utf-8") as to:
        to.write(good)
    reload(service)
    assert service.metrics()["redlockd_config_reload_successful"] == 1


@pytest.mark.parametrize("case, words", [
    ("an address that is none", "line 1"), ("one master less", "has 2 masters and not 3"), ("one master more", "has 4 masters and not 3"),
    ("another order", "master 1 was master 2"), ("another database", "another database"), ("no address", "holds no address"),
    ("the same twice", "the same master twice"), ("readable by others", "must not be readable by others"), ("gone", "No such file"),
    ("rediss without authorities that can be read", "--masters-ca"),
])
def test_a_file_that_cannot_be_used(lab, case, words):
    servers, file = lab.redises(3, tcp=True), MastersFile(lab)
    urls = [server.url for server in servers]
    file.write(*urls)
    options = []
    if case.startswith("rediss"):
        authority = Authority(lab.folder)
        options = ["--masters-ca", authority.certificate]
        urls[2] = f"rediss://127.0.0.1:{servers[2].port}"
        file.write(*urls)
        lab.redlockd(servers).stop()  # so that two of them may vote without the third
    service = lab.redlockd([], "--masters-file", file.path, "--bootstrap", "--master-timeout-ms", TIMEOUT_MS, *options, wait=False)
    service.wait_voting(2 if options else 3)
    spare = lab.redis(tcp=True).url
    file.write(*{"an address that is none": ["http://s3cret", *urls[1:]], "one master less": urls[:2], "one master more": [*urls, spare],
                 "another order": [urls[1], urls[0], urls[2]], "another database": [urls[0] + "/1", *urls[1:]], "no address": [],
                 "the same twice": [urls[0], urls[0], urls[2]]}.get(case, [spare, *urls[1:]]),
               mode=0o644 if case == "readable by others" else 0o600)
    if case == "gone":
        os.unlink(file.path)
    if options:
        os.unlink(options[1])
    line = reload(service, "masters-reload-failed")
    assert words in line["message"] and "s3cret" not in service.stderr(), line
    assert service.log("masters-reloaded") == []
    assert [master["address"] for master in service.curl("GET", "/masters").json["masters"]] == urls
    check_a_majority_serves(service, "x")
    if not options:
        check_all_vote_again(service, servers)


def test_nothing_is_given_that_could_be_read(lab):
    service = lab.service(3)
    service.process.send_signal(signal.SIGHUP)
    note = wait_until(lambda: service.log("nothing-to-reload"), what="a line")[0]["note"]
    assert all(option in note for option in ("--tls-cert", "--keys", "--masters-file", "rediss://")), note
