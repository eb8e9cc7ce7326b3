# SPDX-License-Identifier: MIT
"""TLS sessions that resume: no full handshake, at any worker, until a reload; and none where clients have certificates."""

import base64
import re
import shutil
import ssl
import subprocess

import pytest

from certificates import Authority
from harness import connect_to, read_response, wait_until
from test_tls_clients import Files, hang_up, options_for

VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
ASK = b"GET /whoami HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Client:
    """Connects again and again with the last session that it got."""

    def __init__(self, daemon, authority, version, certificate=None):
        self.address, self.session = daemon.address, None
        self.context = ssl.create_default_context(cafile=authority.certificate)
        self.context.minimum_version = self.context.maximum_version = version
        if certificate:
            self.context.load_cert_chain(certificate.certificate, certificate.key)

    def ask(self):
        """One connection: the answer, and whether its session was resumed."""
        with self.context.wrap_socket(connect_to(self.address), server_hostname="127.0.0.1", session=self.session) as plain:
            plain.sendall(ASK)
            answer = read_response(plain)
            self.session = plain.session
            return answer, plain.session_reused


@VERSIONS
def test_sessions_resume(lab, authority, server, version):
    """Two workers share the key of the tickets; a session that was resumed is resumed again."""
    daemon = lab.service(1, *options_for(server), "--workers", "2", trust=authority.certificate)
    client = Client(daemon, authority, version)
    asked = [client.ask() for _ in range(12)]
    assert [answer.status for answer, _ in asked] == [200] * 12
    assert [resumed for _, resumed in asked] == [False] + [True] * 11


@VERSIONS
def test_a_reload_ends_them(lab, authority, server, version):
    files = Files(lab.folder, server)
    daemon = lab.service(1, *options_for(files), trust=authority.certificate)
    client = Client(daemon, authority, version)
    assert [client.ask()[1] for _ in range(2)] == [False, True]
    files.put(authority.issue("server", "IP:127.0.0.1"))
    hang_up(daemon, "tls-reloaded")
    wait_until(lambda: not client.ask()[1], what="a full handshake")
    assert client.ask()[1], "of a session that began after it"


def test_no_early_data(lab, authority, server):
    """A request in it could be replayed."""
    daemon = lab.service(1, *options_for(server), trust=authority.certificate)
    assert re.findall(r"Max Early Data: (\d+)", s_client(daemon, "-tls1_3").stdout) == ["0", "0"]


# ---- client certificates ----


@VERSIONS
def test_a_client_with_a_certificate_proves_it_each_time(lab, authority, server, version):
    """It has the same name each time. Where its authority is not trusted any more, an old session does not help."""
    trusted = f"{lab.folder}/authorities.pem"
    shutil.copy(authority.certificate, trusted)
    daemon = lab.service(1, *options_for(server), "--tls-client-ca", trusted, trust=authority.certificate, wait=False)
    client = Client(daemon, authority, version, authority.issue("worker", "DNS:worker.example"))
    wait_until(lambda: client.ask()[0].status == 200, what="it answers")
    for _ in range(3):
        answer, resumed = client.ask()
        assert answer.json["caller"] == "worker.example" and not resumed
    shutil.copy(Authority(lab.folder).certificate, trusted)
    hang_up(daemon, "tls-reloaded")
    wait_until(lambda: client.ask()[0].status == 401, what="its authority has gone")


def s_client(daemon, *options):
    request = ASK.decode().replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
    command = ["openssl", "s_client", "-ign_eof", "-connect", daemon.address.removeprefix("https://"), *options]
    return subprocess.run(command, input=request, capture_output=True, text=True, check=False)


def elements(der):
    """(tag, begin, end) of the contents of each element of DER."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:
            length, at = int.from_bytes(der[at:at + (length & 0x7f)], "big"), at + (length & 0x7f)
        yield tag, at, at + length
        at += length


def make_stale(session):
    """OpenSSL's file of a session: the age of its ticket becomes another one, so that it cannot be resumed."""
    der = bytearray(base64.b64decode("".join(session.split("-----")[2].split())))
    _, begin, end = next(elements(der))
    for tag, _, last in elements(der[begin:end]):
        if tag == 0xae:  # [14] ticket_age_add
            der[begin + last - 4] ^= 0x40
    text = base64.encodebytes(bytes(der)).decode()
    return f"-----BEGIN SSL SESSION PARAMETERS-----\n{text}-----END SSL SESSION PARAMETERS-----\n"


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_a_session_that_was_seen_on_the_wire_is_nobody(lab, tmp_path, authority, server, version):
    """A ticket passes unencrypted when it is used. Presented by another client, in a way that GnuTLS then resumes nothing, it must not bring the
    certificate of the first one: GnuTLS 3.7 and 3.8 show it as that of the client."""
    daemon = lab.service(1, *options_for(server, authority), trust=authority.certificate, wait=False)
    worker = authority.issue("worker", "DNS:worker.example")
    seen, changed = tmp_path / "seen", tmp_path / "changed"
    said = s_client(daemon, version, "-cert", worker.certificate, "-key", worker.key, "-sess_out", str(seen)).stdout
    assert '"caller":"worker.example"' in said
    if seen.exists():  # TLS 1.3 has no session without a ticket
        changed.write_text(make_stale(seen.read_text()))
        for options in (["-sess_in", str(seen)], ["-sess_in", str(changed)], ["-sess_in", str(changed), "-servername", "another"]):
            said = s_client(daemon, version, *options).stdout
            assert "HTTP/1.1 401 " in said and "worker" not in said, said
