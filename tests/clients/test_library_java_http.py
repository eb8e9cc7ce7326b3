# SPDX-License-Identifier: MIT
"""What the library for Java has for itself: its clock, JSON, HTTP, and the files for TLS."""

import json
import os
import ssl

import pytest

from certificates import Authority, openssl
from driver import DRIVERS
from fake_redlockd import TOKEN, fake  # noqa: F401
from java_programs import java  # noqa: F401

pytestmark = pytest.mark.skipif("java" not in DRIVERS, reason="java is not in REDLOCKD_TEST_LANGUAGES")


def test_a_loss_is_final(java):
    """Also where a renewal is answered right after it; a renewal moves the end, and never back."""
    assert java.run("""
        long now = Term.clock(), second = 1_000_000_000L;
        Term over = new Term(now - second, 0);
        over.extend(now + 100 * second);
        System.out.println(over.remaining() + " " + over.lost().code());
        Term term = new Term(now + 50 * second, 10 * second);
        term.extend(now + 100 * second);
        term.extend(now);
        System.out.println(term.lost() == null && term.remaining() > 80 * second && term.remaining() <= 90 * second);
        """, package="io.github.redlockd") == ["0 lock-lost", "true"]


def test_a_lease_holds_nothing_more_after_many_renewals(fake, java):
    """What waits for its end is the same after each: a leader may hold a lease for months."""
    server = fake()
    lines = java.run("""
        Lease lease = RedlockdClient.builder(arguments[0]).build().lock("x", new Options().ttl(Duration.ofMillis(4500)));
        java.lang.reflect.Field field = Lease.class.getDeclaredField("term");
        field.setAccessible(true);
        int before = ((Term) field.get(lease)).over.getNumberOfDependents();
        System.out.println(lease.awaitLost(Duration.ofMillis(7500)));
        System.out.println(((Term) field.get(lease)).over.getNumberOfDependents() - before);
        """, server.address, package="io.github.redlockd")
    assert lines == ["false", "0"] and len(server.of("extend")) > 3


GOOD = ["null", "[]", "{}", " [1 , -2.5e3,true,\"\\u00e9\\n\\/\"] ", '{"a":{"b":[0]},"a":1}', "9007199254740993", "123456789012345678901", "-0", '"\U0001f600"',
        "[" * 512 + "]" * 512]
BAD = ["", " ", "nul", "[1,]", "[1 2]", "{\"a\"}", "{a:1}", "{\"a\":1,}", "01", "1.", ".5", "+1", "1e", "NaN", "\"a", "\"\t\"", "\"\\x\"", "\"\\u12g4\"", "[1]]",
       "{} {}", "'a'", "[" * 1500 + "]" * 1500, "[" * 100000, "\ufeff{}"]


def test_json(java, tmp_path):
    for number, text in enumerate([*GOOD, *BAD]):
        (tmp_path / str(number)).write_text(text, encoding="utf-8")
    (tmp_path / "x").write_bytes(b'"\xff"')
    (tmp_path / "y").write_bytes(b'"\xed\xa0\x80"')
    lines = java.run("""
        for (String name : arguments) {
            try {
                System.out.println(Json.write(Json.parse(java.nio.file.Files.readAllBytes(Path.of(name)))));
            } catch (IllegalArgumentException error) {
                System.out.println("bad");
            }
        }
        """, *(str(tmp_path / name) for name in [*map(str, range(len(GOOD) + len(BAD))), "x", "y"]))
    assert [json.loads(line) for line in lines[:len(GOOD)]] == [json.loads(text, parse_int=lambda text: int(text) if len(text) < 19 else float(text)) for text in GOOD]
    assert lines[len(GOOD):] == ["bad"] * (len(BAD) + 2)


def body_of(call):
    return json.dumps({**call.names, "token": TOKEN, "fence": 7, "ttl_ms": 30000, "validity_ms": 30000}).encode()


WHOLE = {
    "chunks": lambda body: b"HTTP/1.1 201 X\r\ntransfer-encoding: chunked\r\n\r\n5;a=b\r\n" + body[:5] + b"\r\n%x\r\n" % len(body[5:]) + body[5:] + b"\r\n0\r\nA: b\r\n\r\n",
    "to the end": lambda body: b"HTTP/1.0 201\r\n\r\n" + body,
    "bare line ends": lambda body: b"HTTP/1.1 201 X\nContent-Length: %d\n\n" % len(body) + body,
}
NO_ANSWERS = {
    "nothing": lambda body: b"",
    "half a head": lambda body: b"HTTP/1.1 201 X\r\nContent-Le",
    "too little": lambda body: b"HTTP/1.1 201 X\r\nContent-Length: %d\r\n\r\n" % (len(body) + 1) + body,
    "half a document": lambda body: b"HTTP/1.1 201 X\r\n\r\n" + body[:-1],
    "without the last chunk": lambda body: b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) + body + b"\r\n",
    "half a chunk": lambda body: b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % (len(body) + 1) + body,
    "a bad length": lambda body: b"HTTP/1.1 201 X\r\nContent-Length: -1\r\n\r\n" + body,
    "too long": lambda body: b"HTTP/1.1 201 X\r\nContent-Length: 99999999\r\n\r\n" + body,
    "a page": lambda body: b"HTTP/1.1 200 X\r\nContent-Length: 6\r\n\r\n<html>",
    "no object": lambda body: b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n[]",
    "no UTF-8": lambda body: b"HTTP/1.1 201 X\r\n\r\n" + body.replace(b'"fence"', b'"a":"\xff","fence"'),
    "no HTTP": lambda body: b"SSH-2.0\r\n\r\n" + body,
    "a status without code": lambda body: b"HTTP/1.1 409 X\r\nContent-Length: 2\r\n\r\n{}",
    "headers without end": lambda body: b"HTTP/1.1 201 X\r\n" + b"A: b\r\n" * 300 + b"\r\n" + body,
    "a line without end": lambda body: b"HTTP/1.1 201 X\r\nA: " + b"b" * 20000 + b"\r\n\r\n" + body,
}


def test_answers_that_count_and_others(fake, java):
    """After each of the others the same request is sent again, with the same key; each resource is one of them."""
    asked = {}

    def acquire(call):
        name = call.body["resource"]
        asked.setdefault(name, []).append(call.headers["idempotency-key"])
        if name in WHOLE:
            call.connection.sendall(WHOLE[name](body_of(call)))
        elif len(asked[name]) == 1:
            call.connection.sendall(NO_ANSWERS[name](body_of(call)))
        else:
            call.lease()
    server = fake(acquire=acquire)
    lines = java.run("""
        RedlockdClient client = RedlockdClient.builder(arguments[0]).build();
        for (String name : Arrays.copyOfRange(arguments, 1, arguments.length)) System.out.println(client.tryLock(name).isPresent());
        """, server.address, *WHOLE, *NO_ANSWERS)
    assert lines == ["true"] * len(asked)
    assert {name: len(keys) for name, keys in asked.items()} == {**dict.fromkeys(WHOLE, 1), **dict.fromkeys(NO_ANSWERS, 2)}
    assert all(len(set(keys)) == 1 for keys in asked.values())


def tls_server(authority, *names):
    context, mine = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), authority.issue("server", *names, usage="serverAuth")
    context.load_cert_chain(mine.certificate, mine.key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def new_key(folder, kind, authority):
    """A client certificate whose key is of this kind."""
    files = [os.path.join(folder, f"{kind}.{part}") for part in ("pem", "key")]
    options = {"RSA": ["rsa:2048"], "EC": ["ec", "-pkeyopt", "ec_paramgen_curve:P-384"], "EdDSA": ["ed25519"]}[kind]
    openssl("req", "-x509", "-config", authority.config, "-newkey", *options, "-nodes", "-keyout", files[1], "-out", files[0], "-days", "2", "-subj", f"/CN={kind}",
            "-CA", authority.certificate, "-CAkey", authority.key)
    return files


def test_tls(lab, fake, java):
    """The name in the certificate counts; each kind of key that the README names is shown to the server."""
    authority = Authority(lab.folder)
    server, other = fake(tls=tls_server(authority, "IP:127.0.0.1")), fake(tls=tls_server(authority, "DNS:elsewhere"))
    files = [file for kind in ("RSA", "EC", "EdDSA") for file in new_key(lab.folder, kind, authority)]
    old = os.path.join(lab.folder, "old.key")
    openssl("rsa", "-in", files[1], "-traditional", "-out", old)
    lines = java.run("""
        RedlockdClient.Builder builder = RedlockdClient.builder(arguments[1]).timeout(Duration.ofMinutes(1)).trust(Path.of(arguments[2]));
        try {
            builder.build().tryLock("x");
        } catch (RedlockdException.NoAnswer error) {
            System.out.println(error.getMessage().contains("certificate is not trusted"));
        }
        for (int each = 4; each < arguments.length; each += 2) {
            builder = RedlockdClient.builder(arguments[0]).timeout(Duration.ofMinutes(1)).trust(Path.of(arguments[2]));
            builder.certificate(Path.of(arguments[each]), Path.of(arguments[each + 1]));
            System.out.println(builder.build().tryLock("x").isPresent());
        }
        for (String key : List.of(arguments[3], arguments[7])) {
            try {
                builder.certificate(Path.of(arguments[4]), Path.of(key)).build();
            } catch (IllegalArgumentException error) {
                System.out.println(error.getMessage().contains("openssl pkcs8 -topk8 -nocrypt"));
            }
        }
        try {
            builder.trust(Path.of(arguments[3])).build();
        } catch (IllegalArgumentException error) {
            System.out.println("no authority");
        }
        """, server.address, other.address, authority.certificate, old, *files)
    assert lines == ["true"] * 5 + ["false", "no authority"] and not other.calls
    shown = [dict(pair for part in call.certificate["subject"] for pair in part)["commonName"] for call in server.of("acquire")]
    assert shown == ["RSA", "EC", "EdDSA"]
