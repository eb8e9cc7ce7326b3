# SPDX-License-Identifier: MIT
"""redlockctl over TLS: whom it trusts, what it shows of itself, and that the ways out of a wait lose no lease there either."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess

import pytest

import harness
from certificates import Authority
from ctl import BINARY, FOREVER, UNREACHABLE, USAGE, Run, ctl
from fake_redlockd import TOKEN, fake  # noqa: F401
from harness import DIES_WITH_US, SLOW, clean_environment, wait_until

UNTRUSTED, FORBIDDEN = 76, 77
NAMES = ("IP:127.0.0.1", "DNS:localhost")


@pytest.fixture
def authority(lab):
    return Authority(lab.folder)


def context(certificate, client_ca=None):
    """The options of a server for TLS. `client_ca`: clients need a certificate of this authority."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate.certificate, certificate.key)
    if client_ca:
        made.load_verify_locations(client_ca.certificate)
        made.verify_mode = ssl.CERT_REQUIRED
    return made


@pytest.fixture
def secure(fake, authority):
    """Makes servers with a certificate of the test's authority."""
    def make(client_ca=None, **behaviour):
        return fake(tls=context(authority.issue("server", *NAMES), client_ca), **behaviour)
    return make


def trusting(authority, *servers, **more):
    return {"REDLOCKCTL_CACERT": authority.certificate, "REDLOCKCTL_SERVER": ",".join(server.address for server in servers), **more}


def in_one_file(lab, certificate, name="both.pem", mode=0o600):
    path = pathlib.Path(lab.folder, name)
    path.write_text(pathlib.Path(certificate.certificate).read_text() + pathlib.Path(certificate.key).read_text())
    path.chmod(mode)
    return str(path)


# ------------------------------------------------------------------------------------------------------- trust


def test_all_commands(authority, secure, resource):
    server = secure(state=lambda call: call.answer(200, {"resource": resource, "held": False}) if "?resource=" in call.path else call.answer(200, {"locks": []}))
    environment = {"REDLOCK_TOKEN": TOKEN}
    for args in (["run", resource, "--", "true"], ["acquire", resource], ["extend", resource], ["release", resource], ["status", resource], ["list"]):
        at = args.index("--") if "--" in args else len(args)
        done = ctl(*args[:at], "--cacert", authority.certificate, *args[at:], server=server.address, env=environment)
        assert (done.returncode, done.stderr) == (0, ""), args
    assert [call.kind for call in server.calls] == ["acquire", "release", "acquire", "extend", "release", "state", "state"]


def test_name_of_a_host(authority, secure, resource):
    server = secure()
    assert ctl("status", resource, server=f"https://localhost:{server.port}", env=trusting(authority, server)).returncode == 0


@pytest.mark.parametrize("what", ["unknown authority", "no authority", "other name", "expired", "not yet valid", "signed by itself"])
def test_server_that_is_not_trusted(lab, authority, fake, resource, what):
    """Nothing is sent to it, and it is not waited for."""
    other = Authority(lab.folder, "other")
    certificate = {"unknown authority": lambda: other.issue("server", *NAMES), "no authority": lambda: authority.issue("server", *NAMES),
                   "other name": lambda: authority.issue("server", "IP:127.0.0.2", "DNS:example.com"), "expired": lambda: authority.issue("server", *NAMES, ended=True),
                   "not yet valid": lambda: authority.issue("server", *NAMES, future=True), "signed by itself": lambda: other}[what]()
    server = fake(tls=context(certificate))
    environment = {"REDLOCKCTL_SERVER": server.address, **({} if what == "no authority" else {"REDLOCKCTL_CACERT": authority.certificate})}
    for args in (["status", resource], ["acquire", resource, "--wait", "5m"], ["run", resource, "--", "touch", f"{lab.folder}/ran"]):
        done = ctl(*args, env=environment)
        assert done.returncode == UNTRUSTED and "its certificate is not trusted: " in done.stderr and server.address in done.stderr
    assert json.loads(ctl("status", resource, "--json", env=environment).stdout)["code"] == "untrusted"
    assert not server.calls and not os.path.exists(f"{lab.folder}/ran")


def test_another_server_is_trusted(lab, authority, fake, secure, resource):
    impostor, server = fake(tls=context(Authority(lab.folder).issue("server", *NAMES))), secure()
    done = ctl("run", resource, "--", "true", env=trusting(authority, impostor, server))
    assert done.returncode == 0 and not impostor.calls
    assert ctl("status", resource, env=trusting(authority, impostor, server)).returncode == 0


def test_intermediate_authority(authority, fake, resource):
    between = authority.issue("between", authority=True)
    issuer = Authority.__new__(Authority)
    issuer.folder, issuer.config, issuer.certificate, issuer.key = authority.folder, authority.config, between.certificate, between.key
    leaf = issuer.issue("server", *NAMES)
    with open(leaf.certificate, "a", encoding="utf-8") as chain:
        chain.write(pathlib.Path(between.certificate).read_text())
    server = fake(tls=context(leaf))
    assert ctl("status", resource, env=trusting(authority, server)).returncode == 0


OLD = "openssl_conf = a\n[a]\nssl_conf = b\n[b]\nsystem_default = c\n[c]\nMinProtocol = TLSv1\nCipherString = ALL:@SECLEVEL=0\n"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_no_old_tls(lab, authority, secure, resource):
    """Also where the system's own rules would let it: curl gets through."""
    server = secure()
    server.tls.minimum_version, server.tls.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    server.tls.set_ciphers("ALL:@SECLEVEL=0")
    rules = pathlib.Path(lab.folder, "openssl.cnf")
    rules.write_text(OLD)
    curl = subprocess.run(["curl", "-sS", "--noproxy", "*", "--tlsv1.0", "--cacert", authority.certificate, server.address + "/locks/a"],
                          env=clean_environment({"OPENSSL_CONF": str(rules)}), capture_output=True, check=False)
    assert curl.returncode == 0, curl.stderr
    asked = len(server.calls)
    done = ctl("status", resource, env=trusting(authority, server, OPENSSL_CONF=str(rules)))
    assert done.returncode == UNREACHABLE and "protocol" in done.stderr and len(server.calls) == asked


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(authority, secure, resource, version):
    server = secure()
    server.tls.minimum_version = server.tls.maximum_version = version
    assert ctl("run", resource, "--", "true", env=trusting(authority, server)).returncode == 0


def test_one_connection_for_one_request_at_a_time(authority, secure, resource):
    """HTTP/2 would put a request that waits and the look at who has the lock on one connection, to be hung up together."""
    seen = []
    server = secure(acquire=lambda call: (seen.append(call.connection.selected_alpn_protocol()), call.lease()))
    server.tls.set_alpn_protocols(["h2", "http/1.1"])
    assert ctl("run", resource, "--", "true", env=trusting(authority, server)).returncode == 0
    assert seen in (["http/1.1"], [None])


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(authority, secure, fake, resource, status):
    elsewhere = fake(port=True)
    server = secure(acquire=lambda call: call.answer(status, None, Location=f"{elsewhere.address}/locks"))
    done = ctl("acquire", resource, env=trusting(authority, server))
    assert done.returncode == UNTRUSTED and str(status) in done.stderr
    assert not elsewhere.calls and len(server.calls) == 1


def test_plain_server_behind_https(fake, authority, resource):
    plain = fake(port=True)
    done = ctl("status", resource, server=f"https://127.0.0.1:{plain.port}", env={"REDLOCKCTL_CACERT": authority.certificate})
    assert done.returncode == UNREACHABLE and done.stderr and not plain.calls


# -------------------------------------------------------------------------------------------------- certificates


def client_names(call):
    return [value for kind, value in call.certificate["subjectAltName"]]


@pytest.mark.parametrize("how", ["options", "environment", "one file", "one file, environment"])
def test_certificate_of_a_client(lab, authority, secure, resource, how):
    server, mine = secure(client_ca=authority), authority.issue("me", "DNS:me.example")
    given = {"options": (["--cert", mine.certificate, "--key", mine.key], {}), "environment": ([], {"REDLOCKCTL_CERT": mine.certificate, "REDLOCKCTL_KEY": mine.key}),
             "one file": (["--cert", in_one_file(lab, mine)], {}), "one file, environment": ([], {"REDLOCKCTL_CERT": in_one_file(lab, mine)})}[how]
    done = ctl("run", resource, *given[0], "--", "true", env=trusting(authority, server, **given[1]))
    assert (done.returncode, done.stderr) == (0, "")
    assert all(client_names(call) == ["me.example"] for call in server.calls) and not server.refused


def test_no_certificate_of_a_client(authority, secure, resource):
    server = secure(client_ca=authority)
    done = ctl("status", resource, env=trusting(authority, server))
    assert done.returncode == UNREACHABLE and server.address in done.stderr and not server.calls


def test_certificate_that_is_renewed(lab, authority, secure, resource):
    """Certificates may be shorter-lived than a command: the files count as they are when a connection is made."""
    def extended(call):
        call.lease(200)
        call.answered = None  # closes
    server = secure(client_ca=authority, extend=extended)
    first, second = authority.issue("first", "DNS:first.example"), authority.issue("second", "DNS:second.example")
    used = in_one_file(lab, first)
    run = Run(lab, resource, "--cert", used, "--cacert", authority.certificate, command=FOREVER, servers=[server])
    assert client_names(server.call("extend")) == ["first.example"]
    os.replace(in_one_file(lab, second, "new.pem"), used)
    wait_until(lambda: client_names(server.of("extend")[-1]) == ["second.example"], 20, "the new certificate")
    os.kill(int(run.file("pid")), signal.SIGTERM)
    assert run.wait() == 128 + signal.SIGTERM


def test_authority_that_is_replaced(lab, authority, fake, secure, resource):  # noqa: F811
    """The server that answers then has a certificate of the new one."""
    other, used = Authority(lab.folder, "other"), os.path.join(lab.folder, "used.pem")
    first, second = secure(), fake(tls=context(other.issue("server", *NAMES)))
    shutil.copy(authority.certificate, used)
    run = Run(lab, resource, "--cacert", used, command=FOREVER, servers=[first.address, second.address])
    first.call("extend")
    shutil.copy(other.certificate, used + ".new")
    os.replace(used + ".new", used)
    first.kill()
    second.call("extend", 2)
    os.kill(int(run.file("pid")), signal.SIGTERM)
    assert run.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize("what, named", [
    ("no authority", "--cacert"), ("authority that is none", "--cacert"), ("no certificate", "--cert"), ("no key", "--key"), ("key of another", "--cert, --key"),
    ("certificate that is none", "--cert, --key"), ("key that others can read", "--key"), ("key that others can read, in one file", "--cert"), ("key alone", "--cert"),
])
def test_files_that_will_not_do(lab, authority, secure, resource, what, named):
    """Reported at once, without the wait; no request is sent."""
    server, mine = secure(), authority.issue("me", "DNS:me")
    nothing, rubbish, open_key = (os.path.join(lab.folder, name) for name in ("nothing", "rubbish", "open"))
    pathlib.Path(rubbish).write_text("-----BEGIN CERTIFICATE-----\nrubbish\n-----END CERTIFICATE-----\n")
    shutil.copy(mine.key, open_key)
    os.chmod(open_key, 0o644)
    os.chmod(rubbish, 0o600)
    args = {"no authority": ["--cacert", nothing], "authority that is none": ["--cacert", rubbish], "no certificate": ["--cert", nothing, "--key", mine.key],
            "no key": ["--cert", mine.certificate, "--key", nothing], "key of another": ["--cert", mine.certificate, "--key", authority.key],
            "certificate that is none": ["--cert", rubbish], "key that others can read": ["--cert", mine.certificate, "--key", open_key],
            "key that others can read, in one file": ["--cert", in_one_file(lab, mine, mode=0o644)], "key alone": ["--key", mine.key]}[what]
    for command in (["run", resource, *args, "--", "true"], ["status", resource, *args]):
        done = ctl(*command, env=trusting(authority, server))
        assert (done.returncode, done.stdout) == (USAGE, "") and f"{named}" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not server.calls


def test_key_with_a_password(lab, authority, secure, resource):
    """No passphrase is asked for: a question at the terminal would stop the extensions. OpenSSL would read it from
    stdin here."""
    server, mine = secure(), authority.issue("me", "DNS:me")
    locked = os.path.join(lab.folder, "locked")
    subprocess.run(["openssl", "pkcs8", "-topk8", "-in", mine.key, "-out", locked, "-passout", "pass:abcd"], check=True, stdin=subprocess.DEVNULL)
    os.chmod(locked, 0o600)
    done = subprocess.run([*DIES_WITH_US, "setsid", "-w", BINARY, "status", resource, "--cert", mine.certificate, "--key", locked], input="abcd\n", capture_output=True,
                          text=True, env=clean_environment(trusting(authority, server)), timeout=20 * SLOW, check=False)
    assert (done.returncode, done.stdout) == (USAGE, "") and "--key" in done.stderr and "pass phrase:" not in done.stderr


# -------------------------------------------------------------------------------------------------- as we give up


def start(command, server, authority, resource, folder):
    rest = ["--", "touch", f"{folder}/ran"] if command == "run" else []
    return subprocess.Popen([*DIES_WITH_US, "env", "--default-signal", BINARY, command, resource, "--wait", "1m", *rest], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=clean_environment(trusting(authority, server)))


@pytest.mark.parametrize("command", ["run", "acquire"])
def test_closed_as_a_signal_comes(lab, authority, secure, resource, command):
    """As redlockd does it: it has granted nothing, and closes. Writing TLS's own closing message to what is closed must not end us in another way."""
    def acquire(call):
        if len(server.of("acquire")) == 1:
            call.until_hung_up()
        else:  # whether a lease was granted meanwhile
            call.answer(409, {"code": "locked"})

    server = secure(acquire=acquire)
    process = start(command, server, authority, resource, lab.folder)
    server.call("acquire")
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=20 * SLOW)
    assert process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM) and (output, errors) == ("", "")


def test_signal_before_the_handshake(lab, authority, resource):
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = subprocess.Popen([*DIES_WITH_US, "env", "--default-signal", BINARY, "acquire", resource, "--wait", "1m", "--timeout", "1m"], stdin=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, env=clean_environment({"REDLOCKCTL_SERVER": f"https://127.0.0.1:{listener.getsockname()[1]}"}))
        connection, _ = listener.accept()
        assert re.match(rb"\x16\x03", connection.recv(5))
        process.send_signal(signal.SIGINT)
        assert process.wait(20 * SLOW) == -signal.SIGINT
        process.stderr.close()
        connection.close()


# ---------------------------------------------------------------------------------------------------- a real one


@pytest.fixture(scope="module")
def real():
    """A redlockd that wants certificates of its clients. `real.mine`: one that it takes."""
    with harness.Lab() as lab:
        authority = Authority(lab.folder)
        server = authority.issue("server", *NAMES)
        daemon = lab.service(3, "--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca", authority.certificate, trust=authority.certificate, wait=False)
        wait_until(lambda: daemon.curl("GET", "/readyz").status == 200, what="ready")
        daemon.authority, daemon.mine = authority, authority.issue("me", "DNS:me.example")
        yield daemon


def environment_for(real, mine=None):
    return {"REDLOCKCTL_SERVER": f"https://{real.address.removeprefix('https://')}", "REDLOCKCTL_CACERT": real.authority.certificate,
            **({"REDLOCKCTL_CERT": mine.certificate, "REDLOCKCTL_KEY": mine.key} if mine else {})}


def state(real, resource):
    return json.loads(ctl("status", resource, "--json", env=environment_for(real, real.mine)).stdout)


def test_real_redlockd(real, resource):
    environment = environment_for(real, real.mine)
    assert ctl("run", resource, "--", "sh", "-c", "exit 7", env=environment).returncode == 7
    lease = json.loads(ctl("acquire", resource, "--json", env=environment).stdout)
    assert ctl("extend", resource, env={**environment, "REDLOCK_TOKEN": lease["token"]}).returncode == 0
    assert ctl("status", resource, env=environment).stdout.startswith(f"{resource}: held by ")
    assert resource in ctl("list", env=environment).stdout and "3 of 3 may vote" in ctl("masters", env=environment).stdout
    assert ctl("release", resource, "--force", env=environment).returncode == FORBIDDEN  # a certificate alone is no admin
    assert ctl("release", resource, env={**environment, "REDLOCK_TOKEN": lease["token"]}).returncode == 0


def test_real_redlockd_and_certificates(real, resource):
    for mine, said in ((None, ""), (real.authority.issue("me", "DNS:me.example", ended=True), "expired"), (Authority(real.folder).issue("me", "DNS:me.example"), "")):
        done = ctl("run", resource, "--wait", "5m", "--", "true", env=environment_for(real, mine))
        assert done.returncode == FORBIDDEN and said in done.stderr and ("--cert" in done.stderr) == (mine is None), done.stderr
    assert ctl("status", resource, env={**environment_for(real), "REDLOCKCTL_CACERT": Authority(real.folder).certificate}).returncode == UNTRUSTED


@pytest.mark.parametrize("command", ["run", "acquire"])
def test_real_redlockd_sees_us_leave(lab, real, resource, command):
    """Its queue entry is removed at once: the next waiter is served."""
    environment = environment_for(real, real.mine)
    lease = json.loads(ctl("acquire", resource, "--json", env=environment).stdout)
    rest = ["--", "touch", f"{lab.folder}/ran"] if command == "run" else []
    process = subprocess.Popen([*DIES_WITH_US, "env", "--default-signal", BINARY, command, resource, "--wait", "1m", *rest], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=clean_environment(environment))
    wait_until(lambda: state(real, resource)["waiters"] == 1, what="in the queue")
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=10 * SLOW) == ("", "") and process.returncode == -signal.SIGINT
    wait_until(lambda: state(real, resource)["waiters"] == 0, what="out of the queue")
    assert ctl("release", resource, env={**environment, "REDLOCK_TOKEN": lease["token"]}).returncode == 0
    assert not state(real, resource)["held"] and not os.path.exists(f"{lab.folder}/ran")


def test_real_redlockd_and_a_wait(lab, real, resource):
    """A lease that comes after a wait is extended, and goes on to be, on its connection."""
    environment = environment_for(real, real.mine)
    lease = json.loads(ctl("acquire", resource, "--json", env=environment).stdout)
    path = pathlib.Path(lab.folder, "stderr")
    with open(path, "w", encoding="utf-8") as errors:
        process = subprocess.Popen([*DIES_WITH_US, BINARY, "run", resource, "--json", "--ttl", "5s", "--", "sh", "-c", "until [ -e go ]; do sleep 0.02; done"], cwd=lab.folder,
                                   stdin=subprocess.DEVNULL, stderr=errors, env=clean_environment(environment))
    wait_until(lambda: state(real, resource)["waiters"] == 1, what="in the queue")
    assert ctl("release", resource, env={**environment, "REDLOCK_TOKEN": lease["token"]}).returncode == 0
    wait_until(lambda: path.read_text().count('"extended"') >= 2, 20, "two extensions")
    pathlib.Path(lab.folder, "go").touch()
    assert process.wait(20 * SLOW) == 0 and '"lost"' not in path.read_text()
