# SPDX-License-Identifier: MIT
"""Mistakes at redlockd: the whole message and the exit status. A message says what is wrong and what to do, in one line, and repeats no secret.

The status is 2 for a mistake in what is configured, 1 for what the machine refuses."""

import os
import random
import socket

import pytest

from certificates import Authority
from harness import run_redlockd

MASTER = ["--masters=redis://a"]
MASTERS = "1 to 15 of redis:// or rediss://[user:pass@]host[:port][/db] or unix:/path, separated by commas"
HELP = "allowed are those that redlockd --help lists"
NO_MASTERS = "give --masters redis://HOST1,redis://HOST2,redis://HOST3 or --masters-file FILE, or try redlockd out with --dev"


# What is typed, and what follows "redlockd: ". More: tests/unit/options.txt.
@pytest.mark.parametrize("args, message", [
    # masters
    ([], f"--masters: missing: {NO_MASTERS}"),
    (["--masters=redis://user:hush@a"], "--masters: a password on the command line can be seen by everybody on this host (ps): give the masters by "
                                        "--masters-file, --config or the variable REDLOCKD_MASTERS"),
    # names
    (["--frobnicate", *MASTER], f"--frobnicate: unknown option; {HELP}"),
    # values
    (["--workers=0", *MASTER], "--workers=0: too low; allowed are 1 to 64"),
    # listeners
    (["--listen=0.0.0.0:1", *MASTER], "--listen: 0.0.0.0 is not a loopback address, and whoever reaches it could take and break locks: give --keys, or "
                                      "--tls-cert with --tls-client-ca; --insecure starts without"),
    # files
    (["--masters-ca=/nonexistent", "--masters=rediss://a"], "--masters-ca: /nonexistent: No such file or directory"),
    (["--keys=/nonexistent", *MASTER], "--keys: /nonexistent: No such file or directory"),
    (["--keys=/", *MASTER], "--keys: /: is not a regular file"),
    (["--config=/nonexistent"], "--config: /nonexistent: No such file or directory"),
])
def test_the_command_line(args, message):
    done = run_redlockd(*args)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"redlockd: {message}\n")


@pytest.mark.parametrize("variable, message", [
    ("REDLOCKD_WORKRES=3", f"REDLOCKD_WORKRES: unknown variable; did you mean REDLOCKD_WORKERS?; {HELP}"),
    ("REDLOCKD_LOG_LEVEL=loud", "REDLOCKD_LOG_LEVEL=loud: not known; allowed are debug, info, warn or error"),
    ("REDLOCKD_MASTERS=redis://u:hu:sh@a", f"REDLOCKD_MASTERS, address 1: user and password must be percent-encoded (: is %3A), and without %00; "
                                           f"allowed are {MASTERS}"),
])
def test_the_environment(variable, message):
    done = run_redlockd(env=dict([variable.split("=", 1)]))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"redlockd: {message}\n")


# The text of a file, its mode, the option that names it, and the message, in which FILE is its path.
@pytest.mark.parametrize("option, text, mode, message", [
    ("--config", '{\n  "masters": ["redis://a"],\n  "workers": 2,\n}\n', 0o600, "--config: FILE: bad JSON: line 4 column 1: string or '}' expected"),
    ("--config", "workers: 2\n", 0o600, "--config: FILE: bad JSON: line 1 column 7: '[' or '{' expected"),
    ("--config", '["redis://a"]', 0o600, "--config: FILE: not a JSON object"),
    ("--config", '{"dev": true, "dev": 5}', 0o600, "--config: FILE: bad JSON: line 1 column 19: duplicate object key near '\"dev\"'"),
    ("--config", '{"wrokers": 2}', 0o600, f"FILE: wrokers: unknown key; did you mean workers?; {HELP}"),
    ("--config", '{"max-ttl-ms": 2}', 0o600, f"FILE: max-ttl-ms: unknown key; did you mean max_ttl_ms?; {HELP}"),
    ("--config", '{"workers": "2"}', 0o600, "FILE: workers: the value has the wrong type; allowed are 1 to 64"),
    ("--config", '{"masters": ["redis://:hush@a"]}', 0o644, "FILE: holds a password, and so must not be readable by others (chmod o-r)"),
    ("--masters-file", "redis://a\nredis://u:hush@b c:6379\n", 0o600, f"--masters-file: FILE: line 2: the scheme is missing; masters are {MASTERS}"),
    ("--masters-file", "# none yet\n", 0o600, f"--masters-file: FILE: holds no address; masters are {MASTERS}"),
    ("--masters-file", "redis://:hush@a\n", 0o644, "--masters-file: FILE: must not be readable by others (chmod o-r)"),
    ("--keys", '{"keys": []}', 0o666, "--keys: FILE: must not be writable by its group or by others (chmod go-w)"),
    ("--keys", '{"keys": [{"name": "a"}]}', 0o600, '--keys: FILE: keys[0]: needs "sha256" or "certificates"'),
    ("--keys", "[]", 0o600, '--keys: FILE: line 1: must be a JSON object with the members "keys", "issuers" or both, and no other'),
])
def test_files(tmp_path, option, text, mode, message):
    path = tmp_path / "file"
    path.write_text(text)
    path.chmod(mode)
    done = run_redlockd(option, str(path), *(MASTER if option == "--keys" else []))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"redlockd: {message.replace('FILE', str(path))}\n")


def test_certificates(tmp_path):
    authority = Authority(str(tmp_path))
    one, other = authority.issue("one", "DNS:localhost"), authority.issue("other", "DNS:localhost")

    def said(certificate, key):
        done = run_redlockd("--tls-cert", certificate, "--tls-key", key, *MASTER)
        assert done.returncode == 2 and done.stdout == ""
        return done.stderr
    assert said(one.certificate, other.key) == f"redlockd: --tls-key {other.key}: does not belong to the certificate of --tls-cert {one.certificate}\n"
    assert said("/nonexistent", one.key) == "redlockd: --tls-cert: /nonexistent: No such file or directory\n"
    assert said(one.key, one.key) == f"redlockd: --tls-cert {one.key}: holds no certificate in PEM\n"
    os.chmod(one.key, 0o644)
    assert said(one.certificate, one.key) == f"redlockd: --tls-key: {one.key}: must not be readable by others (chmod o-r)\n"


# ---- what the machine refuses ----


def test_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_redlockd("--listen", str(port), *MASTER)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (f"redlockd: cannot listen on 127.0.0.1:{port}: Address already in use; end the other program, "
                           f"or start this one with --listen 127.0.0.1:{port + 1}\n")


def test_one_listener_covers_another():
    """No other program can be ended for it."""
    for port in random.sample(range(15000, 32000), 20):
        done = run_redlockd("--listen", f"0.0.0.0:{port}", "--listen", f"127.0.0.1:{port}", "--insecure", *MASTER)
        said = done.stderr.splitlines()[-1]
        if "on 0.0.0.0" not in said:  # somebody has the port
            break
    assert (done.returncode, said) == (1, f"redlockd: cannot listen on 127.0.0.1:{port}: Address already in use; end the other program, or start this one "
                                          f"with --listen 127.0.0.1:{port + 1}, or leave it out if 0.0.0.0:{port} covers it")


@pytest.mark.parametrize("address, reason", [
    ("192.0.2.1:1", "Cannot assign requested address; this machine does not have this address"),
    ("unix:/nonexistent/http", "No such file or directory"),
    ("unix:FILE", "there is a file of that name, and it is not a socket"),
])
def test_an_address_that_cannot_be(tmp_path, address, reason):
    (tmp_path / "file").write_text("not a socket")
    address = address.replace("FILE", str(tmp_path / "file"))
    done = run_redlockd("--listen", address, "--insecure", *MASTER)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"redlockd: cannot listen on {address}: {reason}"


def test_dev_without_what_it_needs(tmp_path):
    done = run_redlockd("--dev", "--listen=127.0.0.1:0", env={"PATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (1, "redlockd: --dev needs redis-server: install it with: apt-get install redis-server\n")
    done = run_redlockd("--dev", "--listen=127.0.0.1:0", env={"TMPDIR": "/nonexistent"})
    assert (done.returncode, done.stderr) == (1, "redlockd: --dev cannot make a folder below /nonexistent: No such file or directory\n")
