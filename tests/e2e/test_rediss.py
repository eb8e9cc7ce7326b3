# SPDX-License-Identifier: MIT
"""rediss://: TLS to masters: operations over it, and the reasons that are given for untrusted masters."""

import os
import socket
import time

import pytest

from certificates import Authority, openssl
from fixtures import certified
from harness import run_redlockd, wait_until
from master_checks import TIMEOUT_MS, check_a_majority_serves, check_votes_without_one, wait_for_reason
from rediss_fixtures import tls  # noqa: F401
from waiting_fixtures import check_notifications_are_heard, crowd  # noqa: F401


def check_lease_calls(service, name):
    lease = service.acquire(name, 60000, owner="me")
    assert service.curl("POST", "/locks", body={"resource": name}).code == "locked"
    assert service.curl("GET", f"/locks/{name}").json["owner"] == "me"
    assert service.curl("PUT", f"/locks/{name}", body={"token": lease["token"]}).status == 200
    assert name in [lock["resource"] for lock in service.curl("GET", "/locks").json["locks"]]
    assert service.release(lease).status == 204


def beside_two_good_ones(lab, tls, url, *options, **how):
    """A redlockd over two masters that it trusts and one that it shall not."""
    good = certified(lab, 3)[:2]
    service = lab.redlockd([*good, url], "--master-timeout-ms", TIMEOUT_MS, *(options or tls.options), wait=False, **how)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, 20, "ready")
    return service


def check_is_left_out(service, url, *words):
    """It may not vote, for one of these reasons, a majority serves without it, and it is told in the log too."""
    master = wait_for_reason(service, url, *words)
    assert master["state"] == "down", master
    check_a_majority_serves(service, "x")
    check_votes_without_one(service, "x")
    lines = [line for line in service.log("master") if line["master"] == master["address"] and line["state"] == "down"]
    assert lines and not any(line["state"] == "voting" for line in service.log("master") if line["master"] == master["address"]), lines
    return master["reason"]


# ---- what works ----


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_leases_over_tls(lab, tls, host, protocol):
    servers = tls.servers(3, "--tls-protocols", protocol, host=host)
    service = lab.redlockd(servers, *tls.options)
    check_lease_calls(service, "x")
    masters = service.curl("GET", "/masters").json["masters"]
    assert [(master["address"], master["state"], master["warnings"]) for master in masters] == [(server.url, "voting", []) for server in servers]
    assert "openssl" in service.curl("GET", "/version").json["libraries"]


def test_beside_plain_masters_and_unix_sockets(lab, tls):
    service = lab.redlockd([tls.server(), lab.redis(tcp=True), lab.redis()], *tls.options)
    check_lease_calls(service, "x")
    assert service.curl("GET", "/masters").json["quorum"]["voting"] == 3


def test_an_ipv6_address(lab, tls):
    server = tls.server("--bind", "::1", certificate=tls.authority.issue("server", "IP:::1"), host="[::1]")
    check_lease_calls(lab.redlockd([server], *tls.options), "x")


def test_a_common_name_counts_where_there_is_no_other(lab, tls):
    server = tls.server(certificate=tls.authority.issue("localhost"), host="localhost")
    check_lease_calls(lab.redlockd([server], *tls.options), "x")


def test_by_the_authorities_of_the_system(lab, tls):
    server = tls.server()
    service = lab.redlockd([server], env={"SSL_CERT_FILE": tls.authority.certificate})
    check_lease_calls(service, "x")


@pytest.mark.parametrize("login, options, auth", [
    (":s3cret@", ["--requirepass", "s3cret"], ["s3cret"]),
    ("locker:p%40ss@", ["--user", "locker", "on", ">p@ss", "~*", "&*", "+@all", "--user", "default", "off"], ["locker", "p@ss"]),
], ids=["password", "acl-user"])
def test_with_a_password_and_a_database(lab, tls, crowd, login, options, auth):
    servers = tls.servers(3, *options, auth=auth)
    masters = ",".join(f"rediss://{login}127.0.0.1:{server.port}/3" for server in servers)
    service = lab.redlockd([], "--bootstrap", *tls.options, env={"REDLOCKD_MASTERS": masters})
    service.wait_voting(3)
    check_lease_calls(service, "x")
    check_notifications_are_heard(service, crowd, servers)
    shown = service.curl("GET", "/masters").body.decode() + service.curl("GET", "/metrics").body.decode() + service.stderr()
    assert "s3cret" not in shown and "p@ss" not in shown and "p%40ss" not in shown


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_a_master_that_wants_to_see_a_certificate(lab, tls, crowd, protocol):
    between = tls.authority.issue("between", authority=True)
    between.__class__ = type("Between", (Authority,), {})  # it signs as the first one does
    between.folder, between.config = tls.authority.folder, tls.authority.config
    client = between.issue("redlockd", usage="clientAuth")
    chain = os.path.join(lab.folder, "chain.pem")
    with open(chain, "w", encoding="utf-8") as out:
        for path in (client.certificate, between.certificate):
            with open(path, encoding="utf-8") as one:
                out.write(one.read())
    servers = tls.servers(3, "--tls-auth-clients", "yes", "--tls-protocols", protocol)
    service = lab.redlockd(servers, *tls.options, "--masters-cert", chain, "--masters-key", client.key)
    check_lease_calls(service, "x")
    check_notifications_are_heard(service, crowd, servers)


# ---- the second connection ----


def test_waiters_are_woken_over_tls(lab, tls, crowd):
    servers = tls.servers(3)
    service = lab.redlockd(servers, *tls.options)
    check_notifications_are_heard(service, crowd, servers)


# ---- whom it does not trust ----


@pytest.mark.parametrize("host, names, more, words", [
    ("127.0.0.1", ["IP:127.0.0.2", "DNS:localhost"], {}, "ip address mismatch"),
    ("localhost", ["IP:127.0.0.1", "DNS:other.example"], {}, "hostname mismatch"),
    ("localhost", ["DNS:*host"], {}, "hostname mismatch"),
    ("localhost", ["DNS:localhost.example", "DNS:a.localhost", "DNS:xlocalhost"], {}, "hostname mismatch"),
    ("127.0.0.1", ["DNS:127.0.0.1"], {}, "ip address mismatch"),
    ("127.0.0.1", ["IP:127.0.0.1"], {"ended": True}, "certificate has expired"),
    ("127.0.0.1", ["IP:127.0.0.1"], {"future": True}, "certificate is not yet valid"),
    ("127.0.0.1", ["IP:127.0.0.1"], {"usage": "clientAuth"}, "certificate purpose"),
], ids=["another-address", "another-name", "half-a-label", "longer-names", "address-as-name", "expired", "not-yet-valid", "a-client's"])
def test_one_with_a_certificate_that_is_not_good(lab, tls, host, names, more, words):
    server = tls.server("--requirepass", "s3cret", certificate=tls.authority.issue("server", *names, **more), host=host, auth=["s3cret"])
    service = beside_two_good_ones(lab, tls, server.url)
    reason = check_is_left_out(service, server.url, words)
    assert reason.startswith("tls: certificate verify failed: "), reason
    assert service.stderr().count(words) or words in service.stderr().lower()


def test_one_with_a_certificate_of_another_authority(lab, tls):
    server = tls.server()
    stranger = Authority(lab.folder, "stranger")
    service = beside_two_good_ones(lab, tls, server.url, "--masters-ca", stranger.certificate)
    check_is_left_out(service, server.url, "tls: certificate verify failed: self-signed", "tls: certificate verify failed: unable to get local issuer")


def test_one_whom_the_system_does_not_know(lab, tls):
    server = tls.server()
    service = lab.redlockd([*certified(lab, 3)[:2], server], wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, 20, "ready")
    check_is_left_out(service, server.url, "tls: certificate verify failed: self-signed", "tls: certificate verify failed: unable to get local issuer")


def test_the_password_goes_only_to_whom_it_is_for(lab, tls):
    """Nothing at all is said to a server whose certificate is not good."""
    server = tls.server("--loglevel", "verbose", certificate=tls.authority.issue("server", "DNS:other.example"))
    service = lab.redlockd([], *tls.options, env={"REDLOCKD_MASTERS": f"rediss://:s3cret@127.0.0.1:{server.port}"}, wait=False)
    wait_for_reason(service, server.url, "ip address mismatch")
    wait_until(lambda: server.broken_off() >= 4, 20, "further attempts")
    assert set(server.calls()) <= {"info", "ping"}, server.calls()


@pytest.mark.parametrize("protocol, words", [("TLSv1.2", "handshake failure"), ("TLSv1.3", "certificate required")])
def test_one_that_wants_to_see_a_certificate_and_we_have_none(lab, tls, protocol, words):
    server = tls.server("--tls-auth-clients", "yes", "--tls-protocols", protocol)
    service = beside_two_good_ones(lab, tls, server.url)
    assert check_is_left_out(service, server.url, words).startswith("tls: ")


def test_one_that_does_not_know_who_signed_our_certificate(lab, tls):
    server = tls.server("--tls-auth-clients", "yes")
    ours = Authority(lab.folder, "stranger").issue("redlockd")
    service = beside_two_good_ones(lab, tls, server.url, *tls.options, "--masters-cert", ours.certificate, "--masters-key", ours.key)
    assert check_is_left_out(service, server.url, "unknown ca").startswith("tls: ")


def test_a_plain_server_behind_rediss(lab, tls):
    server = lab.redis(tcp=True)
    url = server.url.replace("redis:", "rediss:")
    service = beside_two_good_ones(lab, tls, url)
    check_is_left_out(service, url, "tls: no end of the handshake", "tls: what it answers is not tls")


def test_a_tls_server_behind_redis(lab, tls):
    server = tls.server()
    good = certified(lab, 3)[:2]
    service = lab.redlockd([*good, server.plain_url], "--master-timeout-ms", TIMEOUT_MS, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, 20, "ready")
    check_is_left_out(service, server.plain_url, "connection: ")


# ---- masters that come and go ----


def test_a_master_that_hangs_in_the_handshake(lab, tls):
    """Its kernel accepts the connection, and no answer comes. Nothing else waits for it, and the loop does not spin."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"rediss://127.0.0.1:{silent.getsockname()[1]}"
        service = beside_two_good_ones(lab, tls, url)
        check_is_left_out(service, url, "tls: no end of the handshake")
        spent, since = cpu_seconds(service), time.monotonic()
        time.sleep(1)  # a rate over this time is measured
        assert (cpu_seconds(service) - spent) / (time.monotonic() - since) < 0.5


def cpu_seconds(service):
    with open(f"/proc/{service.process.pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_master_that_is_stopped_during_the_handshake(lab, tls):
    servers = tls.servers(3)
    lab.redlockd(servers, *tls.options).stop()
    servers[2].stop()
    service = lab.redlockd(servers, *tls.options, "--master-timeout-ms", TIMEOUT_MS, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, 20, "ready")
    check_is_left_out(service, servers[2].url, "tls: no end of the handshake")
    servers[2].cont()
    service.wait_voting(3)


def test_a_master_that_is_restarted(lab, tls, crowd):
    servers = tls.servers(3)
    service = lab.redlockd(servers, *tls.options, "--restart-guard", "off")
    for server in servers:
        server.kill()
        master = wait_for_reason(service, server, "connection: ")
        assert master["state"] == "down", master
        check_lease_calls(service, "x")
        server.start()
        service.wait_voting(3)
    check_lease_calls(service, "x")
    check_notifications_are_heard(service, crowd, servers)


def test_a_master_that_comes_back_with_another_certificate(lab, tls):
    servers = tls.servers(3)
    service = lab.redlockd(servers, *tls.options, "--restart-guard", "off")
    wrong = tls.authority.issue("server", "DNS:other.example")
    servers[0].restart("--tls-cert-file", wrong.certificate, "--tls-key-file", wrong.key)
    wait_for_reason(service, servers[0], "tls: certificate verify failed: ip address mismatch")
    check_lease_calls(service, "x")
    servers[0].restart()
    service.wait_voting(3)


def test_one_that_is_not_trusted_does_not_disturb_the_others(lab, tls):
    """OpenSSL keeps errors for each thread, not for each connection: those of one must not end another one."""
    good = tls.servers(2)
    bad = tls.server("--loglevel", "verbose", certificate=tls.authority.issue("server", "DNS:other.example"))
    service = lab.redlockd([*good, bad], *tls.options, "--restart-guard", "off", wait=False)
    service.wait_voting(2)

    def connections(server):
        return int(server.cli("INFO", "stats").split("total_connections_received:")[1].split()[0])
    own = [connections(server) for server in good]  # each look is one more
    tried = bad.broken_off()
    wait_until(lambda: service.release(service.acquire("x")).status == 204 and bad.broken_off() >= tried + 4, what="further attempts")
    assert [connections(server) - before for server, before in zip(good, own)] == [1, 1]


def test_stopped_masters_under_load(lab, tls, crowd):
    """Commands pile up in a connection whose other side has stopped, more than its socket takes at once, and all of them are worked off when it goes on."""
    servers = tls.servers(3)
    service = lab.redlockd(servers, *tls.options, "--workers", "2")
    client = service.client()
    for round_ in range(3):
        leases = [client.call("POST", "/locks", {"resource": f"{round_}/{n}/" + "x" * 240, "ttl_ms": 60000}).json for n in range(200)]
        servers[round_].stop()
        for lease in leases:
            assert client.call("DELETE", f"/locks/{lease['resource']}", {"token": lease["token"]}).status == 204
        servers[round_].cont()
        service.wait_voting(3)
        wait_until(lambda: [server.cli("KEYS", "*/*") for server in servers] == [[], [], []], 20, "all released")
    client.close()
    check_lease_calls(service, "x")


# ---- files ----


def encrypted(folder, key):
    path = os.path.join(folder, "encrypted.key")
    openssl("ec", "-in", key, "-aes128", "-passout", "pass:secret", "-out", path)
    os.chmod(path, 0o600)
    return path


def written(folder, name, text, mode=0o600):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    os.chmod(path, mode)
    return path


@pytest.mark.parametrize("case", [
    "no ca", "empty ca", "broken ca", "no certificate", "certificate of another key", "encrypted key", "key that others may read", "no key in the file",
    "ca that others may write to", "ca is a folder"])
def test_files_that_cannot_be_used(lab, tls, case):
    ours, other = tls.authority.issue("redlockd"), tls.authority.issue("other")
    with open(ours.key, encoding="utf-8") as key, open(tls.authority.certificate, encoding="utf-8") as pem:
        key_text, authority_text = key.read(), pem.read()
    lines = authority_text.splitlines(True)
    folder = lab.folder
    ca, pair = ["--masters-ca"], ["--masters-cert", ours.certificate, "--masters-key"]
    options, named = {
        "no ca": ([*ca, folder + "/none"], "--masters-ca"),
        "empty ca": ([*ca, written(folder, "a", "")], "--masters-ca"),
        "broken ca": ([*ca, written(folder, "a", authority_text + "".join(lines[:3]) + "!!!\n" + lines[-1])], "--masters-ca"),
        "no certificate": (["--masters-cert", ours.key, "--masters-key", ours.key], "--masters-cert"),
        "certificate of another key": ([*pair, other.key], "--masters-key"),
        "encrypted key": ([*pair, encrypted(folder, ours.key)], "--masters-key"),
        "key that others may read": ([*pair, written(folder, "k", key_text, 0o644)], "--masters-key"),
        "no key in the file": ([*pair, ours.certificate], "--masters-key"),
        "ca that others may write to": ([*ca, written(folder, "a", authority_text, 0o666)], "--masters-ca"),
        "ca is a folder": ([*ca, folder], "--masters-ca"),
    }[case]
    if case == "no key in the file":
        os.chmod(ours.certificate, 0o600)
    done = run_redlockd("--listen", "127.0.0.1:0", "--masters", "rediss://127.0.0.1:1", *options)
    assert done.returncode == 2, done
    assert named in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("options", [["--masters-ca", "{ca}"], ["--masters-cert", "{cert}", "--masters-key", "{key}"]])
def test_files_where_no_master_is_rediss(tls, options):
    ours = tls.authority.issue("redlockd")
    given = [option.format(ca=tls.authority.certificate, cert=ours.certificate, key=ours.key) for option in options]
    done = run_redlockd("--listen", "127.0.0.1:0", "--masters", "redis://127.0.0.1:1", *given)
    assert done.returncode == 2 and options[0] in done.stderr and "no master is rediss://" in done.stderr, done
