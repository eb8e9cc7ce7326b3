# SPDX-License-Identifier: MIT
"""Callers by token (JWT): which tokens are refused and why, which rule maps them to which caller. Tokens are made by
PyJWT, or by hand if it refuses to make such a one."""

import hashlib
import hmac
import json
import os

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ctl import ctl
from harness import Lab, wait_until
from key_fixtures import Key
from token_fixtures import AUDIENCE, Issuer, Signer, Tokened, encode, rule

ANY = [rule({"sub": "**"}, "{sub}", [""], ["acquire", "inspect"])]


def by_hand(header, payload, signature=b"x"):
    return ".".join(encode(part if isinstance(part, bytes) else json.dumps(part).encode()) for part in (header, payload, signature))


@pytest.fixture(name="issuer")
def fixture_issuer(lab):
    return Issuer(lab, "https://issuer.example", Signer("rsa"), Signer("ec", "ES256"), Signer("old"))


@pytest.fixture(name="world")
def fixture_world(lab, issuer):
    return Tokened(lab, [issuer.entry(ANY)])


@pytest.mark.parametrize("signer", [0, 1, 2])
def test_a_token_acquires(world, issuer, signer):
    token = issuer.token(signer=issuer.signers[signer], sub="job:1")
    for _ in range(2):  # verified, and remembered
        answer = world.by(token, "GET", "/whoami")
        assert (answer.status, answer.json) == (200, {"caller": "job:1", "rights": ["acquire", "inspect"], "prefixes": [""]})
    lease = world.by(token, "POST", "/locks", body={"resource": "a", "ttl_ms": 60000}).json
    assert world.by(token, "GET", "/locks/a").json["caller"] == "job:1"
    assert world.by(token, "DELETE", "/locks/a", body={"token": lease["token"]}).status == 204
    assert world.refusals() == {}


def hmac_token(issuer, key):
    """The classic mistake: the public key as the secret of an HMAC."""
    head = by_hand({"alg": "HS256", "kid": "rsa", "typ": "JWT"}, issuer.claims(sub="x")).rpartition(".")[0]
    return f"{head}.{encode(hmac.new(key, head.encode(), hashlib.sha256).digest())}"


def cut(token, part, change):
    parts = token.split(".")
    parts[part] = change(parts[part])
    return ".".join(parts)


def other_claims(issuer, **claims):
    """Claims of another token behind the header and the signature of a good one."""
    return cut(issuer.token(sub="x"), 1, lambda _: encode(json.dumps(issuer.claims(**claims)).encode()))


BAD = {
    "none": ("algorithm", lambda i: jwt.encode(i.claims(sub="x"), None, "none", headers={"kid": "rsa"})),
    "none without a signature": ("algorithm", lambda i: by_hand({"alg": "none"}, i.claims(sub="x"), b"")),
    "hmac": ("algorithm", lambda i: hmac_token(i, json.dumps(i.signers[0].jwk()).encode())),
    "rs512": ("algorithm", lambda i: jwt.encode(i.claims(sub="x"), i.signers[0].key, "RS512", headers={"kid": "rsa"})),
    "ps256": ("algorithm", lambda i: jwt.encode(i.claims(sub="x"), i.signers[0].key, "PS256", headers={"kid": "rsa"})),
    "eddsa": ("algorithm", lambda i: jwt.encode(i.claims(sub="x"), ed25519.Ed25519PrivateKey.generate(), "EdDSA", headers={"kid": "rsa"})),
    "no alg": ("algorithm", lambda i: by_hand({"kid": "rsa"}, i.claims(sub="x"))),
    "alg is a list": ("algorithm", lambda i: by_hand({"alg": ["RS256"], "kid": "rsa"}, i.claims(sub="x"))),
    "crit": ("crit", lambda i: i.token(sub="x", headers={"crit": ["x"], "x": 1})),
    "crit is empty": ("crit", lambda i: i.token(sub="x", headers={"crit": []})),
    "no exp": ("no-expiry", lambda i: i.token(sub="x", drop=["exp"])),
    "exp is a text": ("no-expiry", lambda i: by_hand({"alg": "RS256", "kid": "rsa"}, {**i.claims(sub="x"), "exp": "9999999999"})),
    "exp is huge": ("no-expiry", lambda i: by_hand({"alg": "RS256", "kid": "rsa"}, {**i.claims(sub="x"), "exp": 1e300})),
    "exp is negative": ("no-expiry", lambda i: by_hand({"alg": "RS256", "kid": "rsa"}, {**i.claims(sub="x"), "exp": -1})),
    "expired": ("expired", lambda i: i.token(sub="x", seconds=-61)),
    "not yet": ("not-yet", lambda i: i.token(sub="x", nbf=i.claims(120)["exp"])),
    "nbf is a text": ("not-yet", lambda i: by_hand({"alg": "RS256", "kid": "rsa"}, {**i.claims(sub="x"), "nbf": "0"})),
    "other issuer": ("issuer", lambda i: i.token(sub="x", iss="https://issuer.example/")),
    "no issuer": ("issuer", lambda i: i.token(sub="x", drop=["iss"])),
    "issuer is a list": ("issuer", lambda i: by_hand({"alg": "RS256", "kid": "rsa"}, {**i.claims(sub="x"), "iss": [i.name]})),
    "other audience": ("audience", lambda i: i.token(sub="x", aud="vault")),
    "no audience": ("audience", lambda i: i.token(sub="x", drop=["aud"])),
    "other audiences": ("audience", lambda i: i.token(sub="x", aud=["vault", "redlockd2", "Redlockd"])),
    "unknown kid": ("key", lambda i: i.token(sub="x", headers={"kid": "new"})),
    "empty kid": ("key", lambda i: i.token(sub="x", headers={"kid": ""})),
    "kid is a number": ("key", lambda i: by_hand({"alg": "RS256", "kid": 1}, i.claims(sub="x"))),
    "no kid, two keys": ("key", lambda i: jwt.encode(i.claims(sub="x"), i.signers[0].key, "RS256")),
    "key of another type": ("key", lambda i: jwt.encode(i.claims(sub="x"), i.signers[1].key, "ES256", headers={"kid": "rsa"})),
    "alg of another type": ("key", lambda i: jwt.encode(i.claims(sub="x"), i.signers[0].key, "RS256", headers={"kid": "ec"})),
    "stranger's key": ("signature", lambda i: jwt.encode(i.claims(sub="x"), rsa.generate_private_key(public_exponent=65537, key_size=2048), "RS256", headers={"kid": "rsa"})),
    "stranger's ec key": ("signature", lambda i: jwt.encode(i.claims(sub="x"), ec.generate_private_key(ec.SECP256R1()), "ES256", headers={"kid": "ec"})),
    "other claims": ("signature", lambda i: other_claims(i, sub="y")),
    "other key of the set": ("signature", lambda i: i.token(sub="x", headers={"kid": "old"})),
    "no signature": ("malformed", lambda i: cut(i.token(sub="x"), 2, lambda _: "")),
    "short signature": ("signature", lambda i: cut(i.token(sub="x"), 2, lambda text: text[:-4])),
    "long signature": ("signature", lambda i: cut(i.token(sub="x"), 2, lambda text: text + "AAAA")),
    "zeros as ec signature": ("signature", lambda i: by_hand({"alg": "ES256", "kid": "ec"}, i.claims(sub="x"), bytes(64))),
    "signature of a digit too many": ("malformed", lambda i: cut(i.token(sub="x"), 2, lambda text: text[:len(text) // 4 * 4] + "A")),
    "signature of one digit": ("malformed", lambda i: cut(i.token(sub="x"), 2, lambda _: "A")),
    "signature of two digits": ("signature", lambda i: cut(i.token(sub="x"), 2, lambda _: "AA")),
    "signature is no base64": ("malformed", lambda i: cut(i.token(sub="x"), 2, lambda text: "!" + text[1:])),
    "header is no base64": ("malformed", lambda i: cut(i.token(sub="x"), 0, lambda text: "!" + text[1:])),
    "payload is no base64": ("malformed", lambda i: cut(i.token(sub="x"), 1, lambda text: "+" + text[1:])),
    "payload has padding": ("malformed", lambda i: cut(i.token(sub="x"), 1, lambda text: text + "=")),
    "payload of a digit too many": ("malformed", lambda i: cut(i.token(sub="x"), 1, lambda text: text[:len(text) // 4 * 4] + "A")),
    "no header": ("malformed", lambda i: cut(i.token(sub="x"), 0, lambda _: "")),
    "header is no object": ("malformed", lambda i: by_hand(["RS256"], i.claims(sub="x"))),
    "payload is no object": ("malformed", lambda i: by_hand({"alg": "RS256", "kid": "rsa"}, "text")),
    "payload is no json": ("malformed", lambda i: by_hand({"alg": "RS256", "kid": "rsa"}, b"{'sub'}")),
    "alg twice": ("malformed", lambda i: by_hand(b'{"alg":"none","alg":"RS256","kid":"rsa"}', i.claims(sub="x"))),
    "nested deeply": ("malformed", lambda i: by_hand({"alg": "RS256", "kid": "rsa"}, b"[" * 3000)),
}


def test_bad_tokens(world, issuer):
    """Each is a 401 that names its check, in the answer and in a counter. No token is in the log."""
    texts, tokens = {}, []
    for name, (reason, make) in BAD.items():
        token, before = make(issuer), world.refusals()
        tokens.append(token)
        answer = world.by(token, "POST", "/locks", body={"resource": "a", "ttl_ms": 1000})
        assert (answer.status, answer.code) == (401, "unauthorized"), (name, answer)
        assert answer.headers["www-authenticate"].startswith("Bearer")
        after = world.refusals()
        assert {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)} == {reason: 1}, name
        assert texts.setdefault(reason, answer.json["detail"]) == answer.json["detail"], name
    assert len(set(texts.values())) == len(texts)
    log = "\n".join(json.dumps(line) for line in world.redlockd.log())
    assert not [token for token in tokens if max(token.split("."), key=len) in log]
    assert world.by(issuer.token(sub="x"), "GET", "/whoami").status == 200


def test_other_forms_are_keys(world, issuer):
    """Without three parts it is a key, known or not."""
    for text in ("a.b", "a.b.c.d", issuer.token(sub="x") + ".x", issuer.token(sub="x").replace(".", "-")):
        answer = world.by(text, "GET", "/whoami")
        assert answer.status == 401 and "key" in answer.json["detail"]
    assert world.refusals() == {}


def test_a_key_may_look_like_a_token(lab, issuer):
    key = Key("dotted", [""], ["acquire"])
    key.secret = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.x"
    key.entry["sha256"] = hashlib.sha256(key.secret.encode()).hexdigest()
    world = Tokened(lab, [issuer.entry(ANY)], keys=[key])
    assert world.by(key.secret, "GET", "/whoami").json["caller"] == "dotted"


def test_a_token_that_is_too_large(world, issuer):
    """The headers have a bound of their own."""
    assert world.by(issuer.token(sub="x", more="x" * 4000), "GET", "/whoami").status == 200
    assert world.by(issuer.token(sub="x", more="x" * 7000), "GET", "/whoami").status == 431


def test_no_kid_and_one_key(lab):
    issuer = Issuer(lab, "https://one.example", Signer(None), Signer("ec", "ES256"))
    world = Tokened(lab, [issuer.entry(ANY)])
    assert world.by(issuer.token(sub="x"), "GET", "/whoami").status == 200
    assert world.by(jwt.encode(issuer.claims(sub="x"), issuer.signers[1].key, "ES256"), "GET", "/whoami").status == 200


def test_clocks_may_differ_by_a_minute(world, issuer):
    assert world.by(issuer.token(sub="x", seconds=-30), "GET", "/whoami").status == 200
    assert world.by(issuer.token(sub="x", nbf=issuer.claims(30)["exp"]), "GET", "/whoami").status == 200
    assert world.by(issuer.token(sub="x", aud=["vault", AUDIENCE]), "GET", "/whoami").status == 200


# ---- rules ----

RULES = [
    rule({"sub": "repo:acme/*:ref:refs/heads/main"}, "main", ["main/"], ["acquire"]),
    rule({"sub": "repo:acme/**", "kind/of work": "b%*"}, "kind", ["kind/"], ["acquire"]),
    rule({"sub": "system:serviceaccount:*:web"}, "{sub}", ["{kubernetes.io/namespace}/", "shared/{kubernetes.io/serviceaccount/name}/"], ["acquire"]),
    rule({"groups": "ops"}, "ops-{sub}", [""], ["acquire", "admin"], max_ttl_ms=5000, rate=1000),
    rule({"https:%2F%2Facme.example%2Frole%25": "lead", "xx": "*"}, "lead", [""], ["list"]),
]


def kube(namespace, account="web"):
    return {"sub": f"system:serviceaccount:{namespace}:{account}", "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": account}}}


@pytest.mark.parametrize("claims, caller, prefixes", [
    ({"sub": "repo:acme/app:ref:refs/heads/main"}, "main", ["main/"]),
    ({"sub": "repo:acme/a/b:ref:refs/heads/main"}, "main", ["main/"]),
    ({"sub": "repo:acme/:ref:refs/heads/main"}, "main", ["main/"]),
    ({"sub": "repo:acme/app:environment:x:ref:refs/heads/main"}, None, None),  # `*` does not go over a colon
    ({"sub": "repo:acme2/app:ref:refs/heads/main"}, None, None),
    ({"sub": "repo:acme/app:ref:refs/heads/main2"}, None, None),
    ({"sub": "xrepo:acme/app:ref:refs/heads/main"}, None, None),
    ({"sub": "Repo:acme/app:ref:refs/heads/main"}, None, None),
    ({"sub": "repo:acme/app:pull_request", "kind": {"of work": "b%c"}}, "kind", ["kind/"]),
    ({"sub": "repo:acme/app:pull_request", "kind/of work": "b%c"}, None, None),
    ({"sub": "repo:acme/app:pull_request", "kind": {"of work": "b"}}, None, None),
    ({"sub": "repo:acme/app:pull_request", "kind": "of work"}, None, None),
    (kube("shop"), "system:serviceaccount:shop:web", ["shop/", "shared/web/"]),
    (kube("a.b"), "system:serviceaccount:a.b:web", ["a.b/", "shared/web/"]),
    (kube("shop", "api"), None, None),
    ({**kube("shop"), "kubernetes.io": {}}, None, None),  # a claim of the template is missing
    ({**kube("shop"), "kubernetes.io": {"namespace": ["shop"], "serviceaccount": {"name": "web"}}}, None, None),
    ({**kube("shop"), "kubernetes.io": {"namespace": 7, "serviceaccount": {"name": "web"}}}, None, None),
    ({**kube("shop"), "kubernetes.io": {"namespace": "a/b", "serviceaccount": {"name": "web"}}}, None, None),
    ({**kube("shop"), "kubernetes.io": {"namespace": "", "serviceaccount": {"name": "web"}}}, None, None),
    ({**kube("shop"), "kubernetes.io": {"namespace": ".", "serviceaccount": {"name": "web"}}}, None, None),
    ({**kube("shop"), "kubernetes.io": {"namespace": "..", "serviceaccount": {"name": "web"}}}, None, None),
    ({**kube("shop"), "kubernetes.io": {"namespace": "a\nb", "serviceaccount": {"name": "web"}}}, None, None),
    ({**kube("shop"), "kubernetes.io": {"namespace": "x" * 300, "serviceaccount": {"name": "web"}}}, None, None),
    ({"sub": "ann", "groups": ["dev", "ops"]}, "ops-ann", [""]),
    ({"sub": "ann", "groups": "ops"}, "ops-ann", [""]),
    ({"sub": "ann", "groups": ["dev", ["ops"], {"ops": "ops"}, 7]}, None, None),
    ({"sub": "a\tn", "groups": "ops"}, None, None),
    ({"groups": "ops"}, None, None),  # no sub for the name
    ({"sub": "ann", "https://acme.example/role%": "lead", "xx": ""}, "lead", [""]),
    ({"sub": "ann", "https://acme.example/role%": "lead"}, None, None),
])
def test_rules(ruled, claims, caller, prefixes):
    world, issuer = ruled
    answer = world.by(issuer.token(**claims), "GET", "/whoami")
    if caller is not None:
        assert (answer.status, answer.json["caller"], answer.json["prefixes"]) == (200, caller, prefixes)
        return
    assert (answer.status, answer.code) == (403, "forbidden")
    assert "no rule" in answer.json["detail"]
    assert issuer.name in answer.json["detail"] and AUDIENCE in answer.json["detail"]
    for _ in range(2):
        assert world.by(issuer.token(**claims), "POST", "/locks", body={"resource": "main/a"}).status == 403


@pytest.fixture(name="ruled", scope="module")
def fixture_ruled():
    with Lab() as lab:
        issuer = Issuer(lab, "https://rules.example")
        yield Tokened(lab, [issuer.entry(RULES)]), issuer


def test_rights_and_limits_of_a_rule(ruled):
    world, issuer = ruled
    token = issuer.token(sub="bob", groups=["ops"])
    answer = world.by(token, "POST", "/locks", body={"resource": "limits", "ttl_ms": 5001})
    assert (answer.status, answer.json["errors"][0]["field"]) == (400, "ttl_ms")
    assert world.by(token, "POST", "/locks", body={"resource": "limits", "ttl_ms": 5000}).status == 201
    assert world.by(token, "GET", "/locks/limits").status == 403
    assert world.by(token, "DELETE", "/locks/limits?force=true").status == 204
    main = issuer.token(sub="repo:acme/app:ref:refs/heads/main")
    assert world.by(main, "POST", "/locks", body={"resource": "other/x"}).status == 403


def test_each_caller_has_a_rate_of_its_own(lab, issuer):
    world = Tokened(lab, [issuer.entry([rule({"sub": "*"}, "{sub}", [""], ["acquire"], rate=1)])])
    first = [world.by(issuer.token(sub="a", jti="0"), "GET", "/whoami").status]
    while first[-1] != 429:  # other tokens, one caller
        first.append(world.by(issuer.token(sub="a", jti=str(len(first))), "GET", "/whoami").status)
        assert len(first) < 50, first
    assert set(first) == {200, 429}, first
    assert world.by(issuer.token(sub="b"), "GET", "/whoami").status == 200


def test_idempotency_keys_belong_to_the_mapped_name(lab, issuer):
    """Two tokens of one caller are one; a key of the same name is another."""
    world = Tokened(lab, [issuer.entry([rule({"sub": "*"}, "{sub}", [""], ["acquire"])])], keys=[Key("ann", [""], ["acquire"])])
    header, body = {"Idempotency-Key": "0123456789abcdef"}, {"resource": "once", "ttl_ms": 60000}
    one = world.by(issuer.token(sub="ann", jti="1"), "POST", "/locks", body=body, headers=header)
    again = world.by(issuer.token(sub="ann", jti="2"), "POST", "/locks", body=body, headers=header)
    assert (one.status, again.status, one.json["token"]) == (201, 200, again.json["token"])
    assert world.by(issuer.token(sub="bob"), "POST", "/locks", body=body, headers=header).status == 409
    assert world.call("ann", "POST", "/locks", body=body, headers=header).status == 409


def test_a_new_token_renews_with_a_body_in_pieces(world, issuer):
    """The body comes after the head whose token waits to be verified."""
    body = json.dumps({"resource": "pieces", "ttl_ms": 60000}).encode()
    with world.redlockd.connect() as plain:
        plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (issuer.token(sub="p").encode(), len(body)))
        for at in range(0, len(body), 7):
            plain.sendall(body[at:at + 7])
        assert plain.recv(4096).startswith(b"HTTP/1.1 201")


def test_a_stranger_with_a_token_of_a_lease(world, issuer):
    """A bad token makes a stranger, who may still use a lease's token; a good one is told more."""
    lease = world.by(issuer.token(sub="x"), "POST", "/locks", body={"resource": "s", "ttl_ms": 60000}).json
    bad, good = issuer.token(sub="x", seconds=-100), issuer.token(sub="x", jti="n")
    assert world.by(bad, "PUT", "/locks/s", body={"token": lease["token"], "ttl_ms": 60000}).status == 200
    other = {"token": "0" * 40, "ttl_ms": 60000}
    assert world.by(bad, "PUT", "/locks/s", body=other).status == 410
    assert world.by(good, "PUT", "/locks/s", body=other).status == 409


def test_redlockctl_shows_what_a_token_may_do(lab, world, issuer):
    """From a file that all may read, as the kubelet makes it, and that is replaced."""
    path = os.path.join(lab.folder, "token")
    for text, status, caller in ((issuer.token(sub="job:1"), 0, "job:1"), (issuer.token(sub="job:2"), 0, "job:2"), (issuer.token(sub="x", aud="vault"), 77, "audience")):
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(path, 0o644)
        done = ctl("whoami", "--key-file", path, server=world.redlockd)
        assert (done.returncode, caller in done.stdout + done.stderr) == (status, True), done
        assert ("acquire, inspect" in done.stdout and "(all names)" in done.stdout) == (status == 0), done


def test_the_caller_is_in_the_log(lab, issuer):
    world = Tokened(lab, [issuer.entry(ANY)], "--log-requests", "all")
    world.by(issuer.token(sub="job:7"), "POST", "/locks", body={"resource": "logged", "ttl_ms": 1000})
    wait_until(lambda: [line for line in world.redlockd.log("request") if line.get("caller") == "job:7"], 10, "the line")
