# SPDX-License-Identifier: MIT
"""TLS handshakes of strangers: none may hold the loop of a worker, whatever it sends; and how many round trips one takes."""

import contextlib
import os
import pathlib
import re
import subprocess
import zlib

import pytest

import harness
from certificates import build_absurd_client
from harness import connect_to, curl, wait_until
from test_memory import PROGRAM

COUNT = 3                 # connections of a test
SANITIZED = b"__asan_" in PROGRAM or b"__tsan_" in PROGRAM
PROCESSOR_SECONDS = 1 if SANITIZED else 0.1  # for each handshake, at most; those that were not refused took seconds
MEMORY_MIB = 24


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    return build_absurd_client(tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def service(authority):
    """It asks for certificates."""
    with harness.Lab() as lab:
        server = authority.issue("server", "IP:127.0.0.1", usage="serverAuth")
        options = ["--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca", authority.certificate, "--log-level", "debug"]
        daemon = lab.service(1, *options, listen=("127.0.0.1:0", "unix:" + os.path.join(lab.folder, "socket")), trust=authority.certificate, wait=False)
        wait_until(lambda: plain(daemon, "/readyz").status == 200, 20, "ready")
        yield daemon


def plain(service, path):
    return curl(service.addresses[1], "GET", path)


def port(service):
    return service.address.rpartition(":")[2]


def processor_seconds(service):
    tasks = pathlib.Path(f"/proc/{service.process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9


def resident_mib(service):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{service.process.pid}/status").read_text(encoding="ascii"))[1]) / 1024


def reasons(service):
    return [line.get("reason") for line in service.log("tls-handshake-failed")]


def failed(service):
    found = re.search(rb"^redlockd_tls_handshakes_failed_total (\d+)", plain(service, "/metrics").body, re.M)
    return int(found[1])


def present(client, service, version, words, *authority, count=COUNT, **env):
    """How each connection with this chain ended."""
    done = subprocess.run([client, port(service), version, str(count), words, *authority], env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


@contextlib.contextmanager
def cheaply(service, count=COUNT):
    """What goes on inside costs redlockd little."""
    before = processor_seconds(service)
    yield
    assert plain(service, "/healthz").status == 200
    spent = processor_seconds(service) - before
    assert spent < count * PROCESSOR_SECONDS, f"{spent:.3f} s for {count} handshakes"


# ---- certificates ----


@pytest.mark.parametrize("version", ["1.2", "1.3"])
@pytest.mark.parametrize("words, reason", [
    ("rsa:30000:30000", "RSA modulus over 8192 bits"), ("rsa:60000:17", "RSA modulus over 8192 bits"), ("rsa:8192:8000", "RSA exponent over 64 bits"),
    ("ec rsa:30000:30000", "RSA modulus over 8192 bits"), ("ec dsa", "key neither RSA, ECDSA nor EdDSA"),
    ("ec*9", "more than 8 certificates"), ("names:3000", "certificate over 8 KiB"), ("purposes:1000", "too many key purposes")])
def test_an_absurd_certificate(client, service, version, words, reason):
    """Refused before a signature is checked, by an alert, and counted. RSA of 30,000 bits: 2 s each."""
    before, counted = len(reasons(service)), failed(service)
    with cheaply(service):
        assert present(client, service, version, words) == ["alert Certificate is not supported"] * COUNT
    wait_until(lambda: reasons(service)[before:] == [reason] * COUNT, what="the reason in the log")
    assert failed(service) == counted + COUNT


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_an_absurd_certificate_of_the_authority(client, service, authority, version):
    """Its signature leads to the next check, of the certificate below it."""
    with cheaply(service, 1):
        lines = present(client, service, version, "ec rsa:30000:30000", authority.certificate, authority.key, count=1)
    assert lines == ["alert Certificate is not supported"]


@pytest.mark.parametrize("version", ["1.2", "1.3"])
@pytest.mark.parametrize("words", ["ec", "ec*8", "names:1000", "units:600"])
def test_a_large_certificate(client, service, authority, version, words):
    """Within the bounds: it is taken, and cheap."""
    with cheaply(service, 2 * COUNT):
        assert present(client, service, version, words, authority.certificate, authority.key) == ["200"] * COUNT
        assert present(client, service, version, words) == ["401"] * COUNT


# ---- messages ----


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_a_message_that_is_too_long(client, service, version):
    before = len(reasons(service))
    with cheaply(service):
        assert present(client, service, version, "rsa:140000:17") == ["alert Decode error"] * COUNT
    wait_until(lambda: reasons(service)[before:] == ["message over 16 KiB"] * COUNT, what="the reason in the log")


def test_a_message_without_an_end(service):
    """It is not kept: 16 MiB for each connection."""
    before, size = resident_mib(service), 16_000_000
    for _ in range(COUNT):
        with connect_to(service.address) as stranger:
            with contextlib.suppress(ConnectionError):
                stranger.sendall(b"\x16\x03\x01\x40\x00\x01" + size.to_bytes(3, "big") + bytes(16380))
                for _ in range(size // 16384):
                    stranger.sendall(b"\x16\x03\x01\x40\x00" + bytes(16384))
            with contextlib.suppress(ConnectionError):
                answer = stranger.recv(100)
                assert answer[:1] == b"\x15", "an alert"
    assert resident_mib(service) < before + MEMORY_MIB
    wait_until(lambda: reasons(service)[-COUNT:] == ["handshake over 48 KiB"] * COUNT, what="the reason in the log")


def test_a_compressed_certificate(client, service, tmp_path):
    """redlockd has not offered to decompress it; GnuTLS would, to 16 MiB."""
    body, plain_bytes = tmp_path / "body", bytes(8_000_000)
    packed = zlib.compress(plain_bytes, 9)
    body.write_bytes(b"\x00\x01" + len(plain_bytes).to_bytes(3, "big") + len(packed).to_bytes(3, "big") + packed)
    before = len(reasons(service))
    with cheaply(service):
        assert present(client, service, "1.3", "names:3200", COMPRESSED=str(body)) == ["alert Decode error"] * COUNT
    wait_until(lambda: reasons(service)[before:] == ["compressed certificate"] * COUNT, what="the reason in the log")


@pytest.mark.parametrize("size", [1, 16380, 17000, 200000])
def test_a_message_after_the_handshake(client, service, size):
    with cheaply(service):
        present(client, service, "1.3", "ec", LATE=str(size))


# ---- groups ----


def s_client(service, *options):
    command = ["openssl", "s_client", "-connect", "127.0.0.1:" + port(service), "-msg", *options]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout


def test_one_round_trip(service):
    """What OpenSSL sends at once is what redlockd wants: there is no HelloRetryRequest."""
    said = s_client(service, "-tls1_3")
    assert said.count(", ServerHello") == 1 and "Temp Key: X25519" in said, said


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
@pytest.mark.parametrize("group, shown", [("P-256", "prime256v1"), ("P-384", "secp384r1"), ("P-521", "secp521r1"), ("X448", "X448")])
def test_other_curves(service, group, shown, version):
    said = s_client(service, version, "-groups", group)
    assert re.search(rf"Temp Key: .*{shown}", said), said


@pytest.mark.parametrize("group", ["ffdhe2048", "ffdhe8192"])
def test_finite_fields_are_refused(service, group):
    """A single hello with 8,192 bits would cost 0.2 s."""
    with cheaply(service, 1):
        assert "ServerHello" not in s_client(service, "-tls1_3", "-groups", group)
