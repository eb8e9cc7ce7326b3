# SPDX-License-Identifier: MIT
"""Certificates for the tests of TLS, made with the openssl program in the test's own folder; P-256, so that it takes milliseconds.

    authority = Authority(lab.folder)
    server = authority.issue("server", "IP:127.0.0.1", "DNS:localhost")     # server.certificate, server.key: paths of PEM files
    old = authority.issue("old", "IP:127.0.0.1", ended=True)
"""

import itertools
import os
import subprocess
import tempfile
import time

NUMBERS = itertools.count(1)

CONFIG = """
[ca]
default_ca = here
[here]
database = {folder}/index
new_certs_dir = {folder}
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
[any]
commonName = optional
[req]
distinguished_name = name
[name]
"""


def openssl(*args):
    done = subprocess.run(["openssl", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"openssl {' '.join(args)}: {done.stderr}"
    return done.stdout


def build_absurd_client(folder):
    """The path of absurd_client, a TLS client with absurd certificates (absurd_client.c)."""
    program, here = os.path.join(folder, "absurd_client"), os.path.dirname(os.path.abspath(__file__))
    unit = os.path.join(here, "..", "unit")
    sources = [os.path.join(here, "absurd_client.c"), os.path.join(unit, "absurd_certificate.c")]
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-Wall", "-Wextra", "-Werror", "-I", unit, "-o", program, *sources, "-lgnutls"], check=True)
    return program


def asn1_time(seconds_from_now):
    return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + seconds_from_now))


class Certificate:
    """Paths of a certificate and of its key (which only its owner may read)."""

    def __init__(self, folder, name):
        number = next(NUMBERS)
        self.certificate, self.key = (os.path.join(folder, f"{name}-{number}.{kind}") for kind in ("pem", "key"))


class Authority(Certificate):
    """A certificate authority."""

    def __init__(self, folder, name="authority"):
        self.folder = tempfile.mkdtemp(prefix="ca", dir=folder)
        super().__init__(self.folder, name)
        self.config = os.path.join(self.folder, "config")
        with open(self.config, "w", encoding="utf-8") as config:
            config.write(CONFIG.format(folder=self.folder))
        with open(os.path.join(self.folder, "index"), "w", encoding="utf-8"):
            pass
        openssl("req", "-x509", "-config", self.config, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key,
                "-out", self.certificate, "-days", "2", "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:true",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-addext", "subjectKeyIdentifier=hash")
        os.chmod(self.key, 0o600)

    def issue(self, common_name, *names, usage=None, ended=False, future=False, authority=False):
        """A certificate for these subjectAltNames ("DNS:a", "IP:1.2.3.4", "URI:spiffe://x/y"); none: only the common name. `usage`: extendedKeyUsage,
        such as "serverAuth". `ended`: it was good until a minute ago. `future`: it will be good in an hour. `authority`: it may sign others."""
        made = Certificate(self.folder, common_name.replace("/", "_"))
        request, extensions = made.certificate + ".request", made.certificate + ".extensions"
        lines = [f"basicConstraints=critical,CA:{'true' if authority else 'false'}", "authorityKeyIdentifier=keyid"]
        lines += [f"subjectAltName={','.join(names)}"] if names else []
        lines += [f"extendedKeyUsage={usage}"] if usage else []
        with open(extensions, "w", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")
        openssl("req", "-new", "-config", self.config, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", made.key, "-out", request,
                "-subj", f"/CN={common_name}")
        openssl("ca", "-batch", "-notext", "-config", self.config, "-cert", self.certificate, "-keyfile", self.key, "-in", request, "-out", made.certificate,
                "-extfile", extensions, "-startdate", asn1_time(3600 if future else -7200), "-enddate", asn1_time(-60 if ended else 86400))
        os.chmod(made.key, 0o600)
        return made
