# SPDX-License-Identifier: MIT
"""Shared parts of the tests of TLS to masters: redis-servers with TLS, and their certificates."""

import pathlib

import pytest

from certificates import Authority
from harness import Redis


class TlsRedis(Redis):
    """A redis-server whose TCP port speaks TLS and nothing else; its Unix socket, for the tests, is plain. It demands no certificate of its clients unless the
    options say so."""

    def __init__(self, folder, certificate, authority, *options, host="127.0.0.1", **how):
        self.host = host
        files = ["--tls-cert-file", certificate.certificate, "--tls-key-file", certificate.key, "--tls-ca-cert-file", authority.certificate]
        super().__init__(folder, *files, "--tls-auth-clients", "no", *options, tcp=True, **how)

    def listens(self, port):
        return ["--port", "0", "--tls-port", str(port)]

    def broken_off(self):
        """How often a handshake was broken off, as its log says (--loglevel verbose); its figures do not count those."""
        return pathlib.Path(self.folder, "log").read_text(encoding="utf-8").count("Error accepting a client connection")

    @property
    def url(self):
        return f"rediss://{self.host}:{self.port}"

    @property
    def plain_url(self):
        return f"redis://{self.host}:{self.port}"


class Tls:
    """An authority, and servers with certificates of it."""

    def __init__(self, lab):
        self.lab = lab
        self.authority = Authority(lab.folder)
        self.certificate = self.authority.issue("server", "IP:127.0.0.1", "DNS:localhost")

    @property
    def options(self):
        """Those of redlockd that trust these servers."""
        return ["--masters-ca", self.authority.certificate]

    def server(self, *options, certificate=None, **how):
        return self.lab.keep(TlsRedis(self.lab.folder, certificate or self.certificate, self.authority, *options, **how))

    def servers(self, count, *options, **how):
        return [self.server(*options, **how) for _ in range(count)]


@pytest.fixture
def tls(lab):
    return Tls(lab)
