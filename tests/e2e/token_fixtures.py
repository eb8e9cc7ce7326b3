# SPDX-License-Identifier: MIT
"""Issuers of tokens for the tests of callers by JWT: keys by cryptography, tokens by PyJWT, and a redlockd that trusts
them.

    issuer = Issuer(lab, "https://issuer.example")
    world = Tokened(lab, [issuer.entry([rule({"sub": "job:*"}, "{sub}", [""], ["acquire"])])])
    world.call(issuer.token(sub="job:1"), "GET", "/whoami").json
"""

import base64
import json
import os
import secrets
import time

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import RSAAlgorithm

from key_fixtures import Keyed

AUDIENCE = "redlockd"
MAKERS = {"RS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048), "ES256": lambda: ec.generate_private_key(ec.SECP256R1())}
JWKS = {"RS256": RSAAlgorithm.to_jwk, "ES256": lambda key: ec_jwk(key)}


def encode(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def ec_jwk(key):
    """PyJWT drops zeros at the beginning of a number, or has no to_jwk for these keys."""
    numbers = key.public_numbers()
    return json.dumps({"kty": "EC", "crv": "P-256", "x": encode(numbers.x.to_bytes(32, "big")), "y": encode(numbers.y.to_bytes(32, "big"))})


class Signer:
    """A key pair of an issuer."""

    def __init__(self, kid, algorithm="RS256"):
        self.kid, self.algorithm, self.key = kid, algorithm, MAKERS[algorithm]()

    def jwk(self, **more):
        members = json.loads(JWKS[self.algorithm](self.key.public_key()))
        members.pop("key_ops", None)
        return {**members, **({"kid": self.kid} if self.kid is not None else {}), **more}


def rule(match, name, prefixes, rights, **more):
    return {"match": match, "name": name, "prefixes": prefixes, "rights": rights, **more}


class Issuer:
    """An issuer with keys in a jwks_file."""

    def __init__(self, lab, name, *signers, path=None):
        self.name, self.signers = name, list(signers) or [Signer("first")]
        self.path = path or os.path.join(lab.folder, f"jwks-{secrets.token_hex(4)}.json")
        self.write()

    def write(self, *signers):
        """Writes the jwks_file with these keys, or with all."""
        self.write_text(json.dumps({"keys": [one.jwk() for one in signers or self.signers]}))

    def write_text(self, text):
        with open(self.path + ".new", "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(self.path + ".new", 0o644)
        os.rename(self.path + ".new", self.path)

    def entry(self, rules, **more):
        return {"issuer": self.name, "audience": AUDIENCE, "jwks_file": self.path, "callers": rules, **more}

    def claims(self, seconds=3600, **claims):
        return {"iss": self.name, "aud": AUDIENCE, "exp": int(time.time()) + seconds, **claims}

    def token(self, *, signer=None, headers=None, seconds=3600, drop=(), **claims):
        """A token with these claims besides the usual ones, without those in `drop`."""
        signer = signer or self.signers[0]
        payload = {name: value for name, value in self.claims(seconds, **claims).items() if name not in drop}
        kid = {"kid": signer.kid} if signer.kid is not None else {}
        return jwt.encode(payload, signer.key, signer.algorithm, headers={**kid, **(headers or {})})


class Tokened(Keyed):
    """A redlockd with --keys in which there are issuers."""

    def __init__(self, lab, issuers, *options, keys=(), **how):
        self.issuers = issuers
        super().__init__(lab, list(keys), *options, **how)
        self.wait_ready()

    def write_text(self, text, mode=0o640):
        content = json.loads(text)
        super().write_text(json.dumps({**content, **({"issuers": self.issuers} if self.issuers else {})}), mode)

    def set_issuers(self, issuers):
        """Other issuers in the file, which is read again."""
        self.issuers = issuers
        self.write([one for name, one in self.keys.items() if name != "operator"])
        self.reload()

    def by(self, token, method, path, *extra, body=None, headers=None):
        return self.redlockd.curl(method, path, *extra, body=body, headers={"Authorization": f"Bearer {token}", **(headers or {})})

    def refusals(self):
        """{reason: count} of the tokens that were refused."""
        found = self.call("operator", "GET", "/metrics").body.decode().splitlines()
        lines = [line.partition("} ") for line in found if line.startswith("redlockd_tokens_refused_total{")]
        return {name.partition('reason="')[2].rstrip('"'): int(count) for name, _, count in lines if int(count) > 0}
