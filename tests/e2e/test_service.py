"""The program itself: options, --dev, signals, log, metrics, connections."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest

from harness import SLOW, bare_redlockd, children_of, connect_to, curl, parse_logfmt, process_state, read_response, run_redlockd, wait_until
from proxy import Proxy


# ---- options ----


def test_help():
    result = run_redlockd("--help")
    assert result.returncode == 0 and result.stderr == ""
    for option in ("listen", "masters", "dev", "config", "key-prefix", "default-ttl-ms", "min-ttl-ms", "max-ttl-ms", "max-hold-ms", "master-timeout-ms",
                   "retry-min-ms", "retry-max-ms", "retry-count", "drift-factor", "drift-ms", "workers", "drain-ms", "log-format", "log-level",
                   "max-connections", "help", "version"):
        assert re.search(rf"^\s*--{option}\b", result.stdout, re.M), option


def test_version():
    result = run_redlockd("--version")
    assert result.returncode == 0
    assert re.fullmatch(r"redlockd \d+\.\d+\.\d+\S* \(\S+\)\n", result.stdout), result.stdout


MASTERS = ["--masters", "unix:/nonexistent/a"]


@pytest.mark.parametrize("args, words", [
    (["--frobnicate"], ["--frobnicate"]),
    (["--frobnicate=1", *MASTERS], ["--frobnicate"]),
    (["--Masters", "x"], ["--Masters"]),
    (["-x", *MASTERS], ["-x"]),
    (["stray", *MASTERS], ["argument 1"]),
    ([], ["--masters"]),
    (["--masters", ""], ["--masters"]),
    (["--masters"], ["--masters"]),
    (["--masters", "http://x"], ["--masters, address 1", "redis://"]),
    (["--masters", "redis://h:99999"], ["--masters", "65535"]),
    (["--masters", "redis://h:6379/x"], ["--masters"]),
    (["--masters", "redis://a,,redis://b"], ["--masters"]),
    (["--masters", ",".join(f"unix:/m{n}" for n in range(16))], ["--masters", "15"]),
    (["--dev=0"], ["--dev", "0"]),
    (["--dev=16"], ["--dev", "16"]),
    (["--dev=x"], ["--dev", "x"]),
    (["--dev", *MASTERS], ["--dev", "--masters"]),
    (["--listen", "127.0.0.1", *MASTERS], ["--listen", "port is missing"]),
    (["--listen", "127.0.0.1:65536", *MASTERS], ["--listen", "65535"]),
    (["--listen", "127.0.0.1:http", *MASTERS], ["--listen", "not a number"]),
    (["--listen", "unix:", *MASTERS], ["--listen"]),
    (["--listen", "unix:/" + "x" * 200, *MASTERS], ["--listen"]),
    (["--listen", "::1:8080", *MASTERS], ["--listen"]),
    (["--max-ttl-ms", "0", *MASTERS], ["--max-ttl-ms", "0"]),
    (["--max-ttl-ms", "-1", *MASTERS], ["--max-ttl-ms", "-1"]),
    (["--max-ttl-ms", "1e3", *MASTERS], ["--max-ttl-ms", "1e3"]),
    (["--max-ttl-ms", "30d", *MASTERS], ["--max-ttl-ms=30d", "60s", " ms"]),
    (["--max-ttl-ms", "", *MASTERS], ["--max-ttl-ms"]),
    (["--max-ttl-ms", " 5000", *MASTERS], ["--max-ttl-ms"]),
    (["--max-ttl-ms", "99999999999999999999", *MASTERS], ["--max-ttl-ms", "99999999999999999999"]),
    (["--min-ttl-ms", "5000", "--max-ttl-ms", "4000", *MASTERS], ["ttl"]),
    (["--default-ttl-ms", "70000", *MASTERS], ["--default-ttl-ms"]),
    (["--retry-min-ms", "300", "--retry-max-ms", "200", *MASTERS], ["--retry-m"]),
    (["--retry-count", "0", *MASTERS], ["--retry-count", "0"]),
    (["--drift-factor", "0.9", *MASTERS], ["--drift-factor", "0.9"]),
    (["--drift-factor", "0.0009", *MASTERS], ["--drift-factor", "0.0009"]),
    (["--drift-ms", "1", *MASTERS], ["--drift-ms", "1"]),
    (["--drift-factor", "nan", *MASTERS], ["--drift-factor", "nan"]),
    (["--drift-factor", "-0.1", *MASTERS], ["--drift-factor", "-0.1"]),
    (["--workers", "0", *MASTERS], ["--workers", "0"]),
    (["--workers", "1000", *MASTERS], ["--workers", "1000"]),
    (["--log-format", "xml", *MASTERS], ["--log-format", "xml", "json"]),
    (["--log-level", "INFO", *MASTERS], ["--log-level", "INFO"]),
    (["--key-prefix", "a\nb", *MASTERS], ["--key-prefix"]),
    (["--key-prefix", "x" * 129, *MASTERS], ["--key-prefix"]),
    (["--config", "/nonexistent/file", *MASTERS], ["--config", "/nonexistent/file"]),
    (["--help=tex"], ["--help", "takes no value"]),
    (["--version=1"], ["--version"]),
    (["--workers", "1", "--workers", "2", *MASTERS], ["--workers"]),
])
def test_a_bad_command_line_is_refused(args, words):
    result = run_redlockd(*args)
    assert result.returncode == 2, result
    assert result.stdout == "" and result.stderr.count("\n") == 1, result.stderr
    for word in words:
        assert word in result.stderr, result.stderr


@pytest.mark.parametrize("name, value", [
    ("REDLOCKD_MAX_TTL_MS", "soon"), ("REDLOCKD_MASTERS", "nonsense"), ("REDLOCKD_FROBNICATE", "1"), ("REDLOCKD_WORKERS", ""),
    ("REDLOCKD_LISTEN", "127.0.0.1"), ("REDLOCKD_DEV", "maybe"), ("REDLOCKD_CONFIG", "/nonexistent"), ("REDLOCKD_LOG_FORMAT", "xml"),
])
def test_a_bad_environment_is_refused(name, value):
    args = [] if name in ("REDLOCKD_MASTERS", "REDLOCKD_DEV") else MASTERS
    result = run_redlockd(*args, env={name: value})
    assert result.returncode == 2, result
    assert name in result.stderr and (value in result.stderr or name in ("REDLOCKD_FROBNICATE", "REDLOCKD_MASTERS", "REDLOCKD_LISTEN")), result.stderr


@pytest.mark.parametrize("text, word", [
    ('{"max_ttl_ms": "soon"}', "max_ttl_ms"), ('{"max_ttl_ms": 1.5}', "max_ttl_ms"), ('{"max_ttl_ms": -1}', "max_ttl_ms"), ('{"max_ttl_ms": null}', "max_ttl_ms"),
    ('{"frobnicate": 1}', "frobnicate"), ('{"max-ttl-ms": 1000}', "max-ttl-ms"), ('{"workers": 1, "workers": 2}', "workers"), ('{"workers": 1', ""),
    ('[]', ""), ('', ""), ('{"workers": 1} x', ""), ('{"config": "x"}', "config"), ('{"log_level": 3}', "log_level"), ('{"dev": "maybe"}', "dev"),
    ('{"masters": [1]}', "masters"), ('{"listen": {}}', "listen"), ('{"key_prefix": "a\\u0000b"}', ""),
])
def test_a_bad_file_is_refused(tmp_path, text, word):
    path = tmp_path / "redlockd.json"
    path.write_text(text)
    masters = [] if '"masters"' in text or '"dev"' in text else MASTERS
    result = run_redlockd("--config", str(path), *masters)
    assert result.returncode == 2, result
    assert str(path) in result.stderr and word in result.stderr, result.stderr


def test_passwords_are_not_repeated_in_messages():
    for value in ("redis://u:s3cret@h:99999", "redis://:s3cret@h:6379/x", "http://:s3cret@h", "redis://u:s3cret@h:1,nonsense"):
        result = run_redlockd("--masters", value)
        assert result.returncode == 2 and "s3cret" not in result.stderr, result.stderr


def test_flag_before_environment_before_file(lab, tmp_path):
    path = tmp_path / "redlockd.json"
    path.write_text(json.dumps({"default_ttl_ms": 1111, "min_ttl_ms": 100, "key_prefix": "file:", "drift_ms": 7, "drift_factor": 0.1}))
    master = lab.redis()
    env = {"REDLOCKD_CONFIG": str(path), "REDLOCKD_DEFAULT_TTL_MS": "2222", "REDLOCKD_KEY_PREFIX": "env:"}
    service = lab.redlockd([master], "--default-ttl-ms", "3333", env=env)
    lease = service.curl("POST", "/locks", body={"resource": "x"}).json
    assert lease["ttl_ms"] == 3333, "the flag"
    assert sorted(master.cli("KEYS", "*")) == ["env:redlockd:master", "env:x"], "the environment"
    assert lease["drift_ms"] == 341, "the file: 333.3 + 7, rounded up"


def test_all_of_it_from_a_file(lab, tmp_path):
    masters = lab.redises(3)
    path = tmp_path / "redlockd.json"
    path.write_text(json.dumps({"masters": [master.url for master in masters], "listen": [f"unix:{lab.folder}/http"], "log_format": "logfmt",
                                "workers": 2, "master_timeout_ms": 1000, "dev": False, "bootstrap": True}))
    with bare_redlockd("--config", str(path), listens_at=f"{lab.folder}/http") as process:
        assert curl(f"unix:{lab.folder}/http", "POST", "/locks", body={"resource": "x"}).status == 201
        process.terminate()
        stderr = process.communicate(timeout=20 * SLOW)[1]
        assert process.returncode == 0, stderr
    assert not os.path.exists(f"{lab.folder}/http")


def test_masters_as_list_in_the_environment(lab):
    masters = lab.redises(3)
    variables = {"REDLOCKD_MASTERS": ",".join(master.url for master in masters), "REDLOCKD_BOOTSTRAP": "true"}
    service = lab.redlockd([], env=variables, wait=False)
    service.wait_voting(3)


# ---- --check ----


def test_check_says_what_would_run(lab, tmp_path):
    """All is read, nothing is bound and nothing connected to: also where another redlockd listens already."""
    (tmp_path / "masters").write_text("redis://user:hush@192.0.2.1:6379,unix:/m\n")
    (tmp_path / "masters").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket(socket.AF_UNIX) as master:
        master.bind(f"{lab.folder}/m")
        master.listen()
        master.setblocking(False)
        port = taken.getsockname()[1]
        result = run_redlockd("--check", "--masters", f"unix:{lab.folder}/m", "--listen", str(port), "--listen", f"unix:{lab.folder}/http", "--max-ttl-ms", "5m")
        assert (result.returncode, result.stderr) == (0, ""), result
        assert result.stdout.splitlines() == [
            f"listen: http://127.0.0.1:{port}", f"listen: unix:{lab.folder}/http", f"master: unix:{lab.folder}/m",
            "leases: 100 to 300000 ms, 30000 ms if the request names none", "workers: 1", "The configuration is good. Nothing was started."]
        with pytest.raises(BlockingIOError):
            master.accept()
    assert not os.path.exists(f"{lab.folder}/http")
    result = run_redlockd("--check", "--masters-file", str(tmp_path / "masters"))
    assert result.returncode == 0 and "master: redis://192.0.2.1:6379\n" in result.stdout and "hush" not in result.stdout


@pytest.mark.parametrize("args, named", [
    (["--max-ttl-ms", "1"], "--max-ttl-ms"), (["--listen", "0.0.0.0:0"], "--listen"), (["--listen", "https://localhost:1"], "https://localhost:1 needs --tls-cert"),
    (["--keys", "/nonexistent"], "--keys: /nonexistent"), (["--tls-cert", "/nonexistent", "--tls-key", "/nonexistent"], "--tls-"),
    (["--masters-ca", "/nonexistent"], "--masters-ca"), (["--config", "/nonexistent"], "/nonexistent"),
])
def test_check_finds_every_mistake(args, named):
    result = run_redlockd("--check", *MASTERS, *args)
    assert (result.returncode, result.stdout) == (2, "") and named in result.stderr and result.stderr.count("\n") == 1, result


def test_an_address_in_use(lab):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run_redlockd("--listen", f"127.0.0.1:{port}", "--masters", lab.redis().url)
    assert result.returncode == 1, result
    assert str(port) in result.stderr and "in use" in result.stderr.lower()


# ---- --dev ----


def redis_servers_below(pid):
    found = []
    for child in children_of(pid):
        try:
            if b"redis-server" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_dev_leaves_nothing_behind(lab, how):
    service = lab.redlockd([], "--dev", "--drain-ms", "1000", wait=False)
    service.wait_voting(3)
    temporary = pathlib.Path(service.folder)  # its TMPDIR; our own files in it are these two
    ours = {"stdout", "stderr"}
    below, servers = children_of(service.process.pid), redis_servers_below(service.process.pid)
    assert len(servers) == 3 and set(os.listdir(temporary)) != ours
    lease = service.acquire("x")
    assert service.release(lease).status == 204
    listening = subprocess.run(["cat", "/proc/net/tcp"], capture_output=True, text=True, check=True).stdout
    inodes = {link for pid in servers for link in socket_inodes(pid)}
    assert not [line for line in listening.splitlines()[1:] if line.split()[9] in inodes], "a redis-server has a TCP port"
    if how == signal.SIGKILL:
        service.kill()
    else:
        service.stop(how)
    wait_until(lambda: not any(process_state(pid) for pid in below), what="all its processes are gone")
    wait_until(lambda: set(os.listdir(temporary)) == ours, what="its folder is gone")


def socket_inodes(pid):
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{entry}"))
        except OSError:
            continue
        if match:
            yield match[1]


def test_dev_with_a_number(lab):
    service = lab.redlockd([], "--dev=5", wait=False)
    service.wait_voting(5)
    assert service.curl("GET", "/readyz").json["quorum"] == {"needed": 3, "voting": 5, "masters": 5}


def test_dev_without_redis_server_names_the_package(lab):
    result = run_redlockd("--dev", "--listen", "127.0.0.1:0", env={"PATH": lab.folder, "TMPDIR": lab.folder})
    assert result.returncode in (1, 2), result
    assert "redis-server" in result.stderr and "apt-get install redis-server" in result.stderr
    assert os.listdir(lab.folder) == []


def test_dev_where_a_bad_listen_address_ends_it(lab):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run_redlockd("--dev", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", env={"TMPDIR": lab.folder})
    assert result.returncode == 1
    wait_until(lambda: os.listdir(lab.folder) == [], what="the folder is gone")


# ---- the end ----


def test_sigterm_drains(lab):
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    service = lab.redlockd(proxies, "--drain-ms", "8000", "--master-timeout-ms", str(round(10000 * SLOW)))
    lease = service.acquire("held")
    busy, idle, kept = service.connect(), service.connect(), service.client()
    assert kept.call("GET", "/healthz").status == 200
    for proxy in proxies:
        proxy.reply_delay = 0.4
    body = b'{"resource":"in-flight"}'
    busy.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    wait_until(lambda: servers[0].cli("EXISTS", "in-flight"), what="in flight")
    start = time.monotonic()
    service.process.send_signal(signal.SIGTERM)
    ready = wait_until(lambda: (lambda got: got if got.status != 200 else None)(service.curl("GET", "/readyz")), what="not ready")
    assert ready.status == 503 and ready.code == "draining"
    refused = service.curl("POST", "/locks", body={"resource": "new"})
    assert refused.status == 503 and refused.code == "draining" and int(refused.headers["retry-after"]) >= 1
    assert service.curl("GET", "/healthz").status == 200
    # A holder can still extend and release its lease.
    for proxy in proxies:
        proxy.heal()
    if process_state(service.process.pid):
        assert service.curl("PUT", "/locks/held", body={"token": lease["token"]}).status == 200
        assert service.release(lease).status == 204
    answer = read_response(busy)
    assert answer is not None and answer.status == 201, "the request in flight is answered"
    idle.close()
    service.stop(signal.SIGTERM)
    assert time.monotonic() - start < 7.5 * SLOW, "it does not sit out the whole of --drain-ms with nothing to do"
    busy.close()


def test_sigterm_does_not_wait_longer_than_drain_ms(lab):
    """A request that hangs does not hold up the end."""
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    service = lab.redlockd(proxies, "--drain-ms", "1500", "--master-timeout-ms", "60000")
    for proxy in proxies:
        proxy.swallow = True
    busy = service.connect()
    body = b'{"resource":"x"}'
    busy.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    wait_until(lambda: servers[0].cli("EXISTS", "x"), what="in flight")
    start = time.monotonic()
    service.stop(signal.SIGTERM)
    assert 1.0 < time.monotonic() - start < 1.5 + 3 * SLOW
    answer = read_response(busy)
    assert answer is None or (answer.status == 503 and answer.code == "draining"), answer
    busy.close()
    wait_until(lambda: all(server.cli("EXISTS", "x") == 0 for server in servers), what="what was granted to nobody is given back")


def test_sigint_ends_at_once(lab):
    service = lab.service(3)
    idle = service.connect()
    start = time.monotonic()
    service.stop(signal.SIGINT)
    assert time.monotonic() - start < 1 * SLOW
    idle.close()


def test_it_ends_with_its_masters_stopped(lab):
    service = lab.service(3)
    for server in service.masters:
        server.stop()
    service.curl("POST", "/locks", body={"resource": "x"})
    service.stop(signal.SIGTERM)
    for server in service.masters:
        server.cont()


# ---- the log ----


@pytest.mark.parametrize("json_log", [False, True])
def test_the_log_can_be_parsed(lab, json_log):
    service = lab.service(3, json_log=json_log)
    names = ["plain", "with blank", 'with "quotes"', "with = and \\", "ünïcödé 鍵", "new/line?&"]
    for name in names:
        answer = service.curl("POST", "/locks", body={"resource": name, "owner": name}, headers={"X-Request-Id": "abc-1.2_3"})
        assert answer.status == 201 and answer.headers["x-request-id"] == "abc-1.2_3"
    service.stop()
    lines = service.log()  # fails where one cannot be parsed
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["ts"])
        assert line["level"] in ("debug", "info", "warn", "error") and line["event"]
    requests = [line for line in lines if line["event"] == "request" and line.get("resource") in names]
    assert [line["resource"] for line in requests] == names
    assert all("abc-1.2_3" in line.values() and str(line["status"]) == "201" for line in requests)


@pytest.mark.parametrize("given", ["", "a" * 65, "a b", "a=b", 'a"b', "ä", "a/b"])
def test_a_bad_request_id_is_replaced(service, given):
    answer = service.curl("GET", "/healthz", headers={"X-Request-Id": given})
    assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["x-request-id"])


def test_every_answer_has_a_request_id(service):
    for method, path in (("GET", "/healthz"), ("GET", "/nothing"), ("PATCH", "/locks"), ("GET", "/locks?x=1"), ("POST", "/locks")):
        assert re.fullmatch(r"[0-9a-f]{16}", service.curl(method, path).headers["x-request-id"]), path
    same = service.curl("GET", "/nothing", headers={"X-Request-Id": "x" * 64})
    assert same.headers["x-request-id"] == "x" * 64


def test_the_level_of_the_log(lab):
    path, master = f"{lab.folder}/http", lab.redis()
    options = ["--log-level", "error", "--listen", f"unix:{path}", "--masters", master.url, "--bootstrap"]
    with bare_redlockd(*options, listens_at=path) as process:
        assert curl(f"unix:{path}", "POST", "/locks", body={"resource": "y"}).status == 201
        process.terminate()
        assert process.communicate(timeout=20 * SLOW)[1] == b""
        assert process.returncode == 0


def test_a_log_that_nobody_reads_stops_nothing(lab):
    """The other end of the pipe is full: lines are dropped and counted, requests go on."""
    path, master = f"{lab.folder}/http", lab.redis()
    options = ["--log-level", "debug", "--log-requests", "all", "--listen", f"unix:{path}", "--masters", master.url, "--bootstrap"]
    with bare_redlockd(*options, listens_at=path) as process:
        plain = connect_to(f"unix:{path}")
        for _ in range(2000):
            plain.sendall(b"GET /locks/" + b"a" * 200 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_response(plain).status == 200
        plain.close()
        metrics = curl(f"unix:{path}", "GET", "/metrics").body.decode()
        assert float(re.search(r"^redlockd_log_dropped_total (\S+)$", metrics, re.M)[1]) > 0
        process.terminate()
        lines = process.communicate(timeout=20 * SLOW)[1].decode().splitlines()
        assert process.returncode == 0
    for line in lines:
        parse_logfmt(line)


# ---- metrics and the other pages ----


def test_metrics_pass_promtool(service, resource):
    service.release(service.acquire(resource))
    answer = service.curl("GET", "/metrics")
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain")
    result = subprocess.run(["promtool", "check", "metrics"], input=answer.body, capture_output=True, check=False)
    assert result.returncode == 0 and result.stderr == b"", result


def test_metrics_count_what_was_done(lab):
    service = lab.service(3)
    lease = service.acquire("x")
    service.curl("POST", "/locks", body={"resource": "x"})
    service.curl("PUT", "/locks/x", body={"token": lease["token"]})
    service.curl("PUT", "/locks/x", body={"token": "0" * 40})
    service.release(lease)
    service.release(lease)
    service.curl("GET", "/locks/x")
    service.curl("GET", "/nothing")
    service.curl("POST", "/locks", body="{}")
    metrics = service.metrics()

    def value(name, *labels):
        found = [number for key, number in metrics.items() if key.startswith(name + "{") and all(label in key for label in labels)]
        assert len(found) == 1, (name, labels, found)
        return found[0]
    for operation, outcome, count in (("acquire", "ok", 1), ("acquire", "locked", 1), ("extend", "ok", 1), ("extend", "not-owner", 1),
                                      ("release", "ok", 1), ("release", "lease-expired", 1), ("inspect", "ok", 1), ("acquire", "no-quorum", 0)):
        assert value("redlockd_lease_requests_total", f'op="{operation}"', f'outcome="{outcome}"') == count, (operation, outcome)
    assert value("redlockd_lease_duration_seconds_count", 'op="acquire"') == 2
    assert 0 < value("redlockd_lease_duration_seconds_sum", 'op="acquire"') < 10 * SLOW
    assert value("redlockd_lease_duration_seconds_bucket", 'op="acquire"', 'le="+Inf"') == 2
    for route, method, status, count in (("acquire", "POST", 201, 1), ("acquire", "POST", 409, 1), ("extend", "PUT", 200, 1), ("release", "DELETE", 410, 1),
                                         ("acquire", "POST", 400, 1), ("none", "GET", 404, 1)):
        assert value("redlockd_http_requests_total", f'route="{route}"', f'method="{method}"', f'status="{status}"') == count, (route, status)
    for server in service.masters:
        assert value("redlockd_master_up", server.path) == 1
        assert value("redlockd_master_rtt_seconds_count", server.path) > 0
    assert any(key.startswith("redlockd_build_info{") and number == 1 for key, number in metrics.items())
    assert any(key.startswith("process_resident_memory_bytes") and number > 1e6 for key, number in metrics.items()), [k for k in metrics if "process" in k]
    service.masters[0].kill()
    service.wait_voting(2)
    metrics = service.metrics()
    assert value("redlockd_master_up", service.masters[0].path) == 0


def test_the_other_pages(service):
    assert service.curl("GET", "/healthz").json == {"status": "ok"}
    version = service.curl("GET", "/version").json
    assert version["version"] in run_redlockd("--version").stdout
    assert service.curl("GET", "/whoami").json == {"caller": None, "rights": ["acquire", "inspect", "list", "admin"], "prefixes": [""]}
    described = service.curl("GET", "/openapi.yaml")
    assert described.status == 200 and described.body.startswith(b"openapi: ") and b"/locks" in described.body
    page = service.curl("GET", "/")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html") and b"<html" in page.body.lower()
    missing = service.curl("GET", "/nothing")
    assert missing.status == 404 and missing.code == "not-found"
    wrong = service.curl("PATCH", "/locks/x")
    assert wrong.status == 405 and wrong.code == "method-not-allowed"
    assert {method.strip() for method in wrong.headers["allow"].split(",")} == {"GET", "HEAD", "PUT", "DELETE"}


# ---- connections ----


@pytest.mark.parametrize("sent", [
    b"", b"GET", b"GET /healthz HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: ",
    b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
    b"POST /locks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n{",
], ids=["nothing", "word", "line", "header", "body", "chunk"])
def test_a_slow_client_is_closed_after_an_absolute_deadline(lab, sent):
    """One byte every 100 ms keeps it busy, but not for ever."""
    service = lab.service(1, "--request-timeout-ms", "1000", "--idle-timeout-ms", "1000")
    plain = service.connect()
    plain.sendall(sent)
    plain.settimeout(0.1)
    start, closed = time.monotonic(), False
    while not closed:
        assert time.monotonic() - start < 4 * SLOW, "still open"
        try:
            if sent:
                plain.send(b"a")
            closed = plain.recv(4096) == b""
        except TimeoutError:
            pass
        except OSError:
            closed = True
    assert time.monotonic() - start > 0.8
    plain.close()
    assert service.curl("GET", "/healthz").status == 200


def test_a_client_that_does_not_take_its_answer_is_closed(lab):
    service = lab.service(1, "--request-timeout-ms", "1000")
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    host, _, port = service.address.rpartition(":")
    plain.connect((host, int(port)))
    plain.settimeout(0.2)
    try:
        for _ in range(100):
            plain.sendall(b"GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
    except OSError:
        pass
    gauge = "redlockd_http_connections"
    wait_until(lambda: service.metrics()[gauge] == 1, 10, "only the connection that asks is left")
    plain.close()


def test_an_idle_connection_is_closed(lab):
    service = lab.service(1, "--idle-timeout-ms", "500")
    plain = service.connect()
    plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert read_response(plain).status == 200
    start = time.monotonic()
    assert plain.recv(100) == b""
    assert 0.3 < time.monotonic() - start < 0.5 + 2 * SLOW
    plain.close()


def test_slow_clients_do_not_disturb_the_others(lab):
    service = lab.service(3)
    slow = [service.connect() for _ in range(200)]
    for plain in slow:
        plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    answer = service.curl("POST", "/locks", body={"resource": "x"})
    assert answer.status == 201 and answer.seconds < 1 * SLOW
    for plain in slow:
        plain.close()


def test_connections_above_the_bound_are_refused(lab):
    service = lab.service(1, "--max-connections", "5")
    first = service.client()
    wait_until(lambda: b"\nredlockd_http_connections 1\n" in first.call("GET", "/metrics").body, what="the others are gone")
    kept = [first.connection.sock, *(service.connect() for _ in range(4))]
    for plain in kept:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_response(plain).status == 200
    extra = service.connect()
    extra.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = read_response(extra)
    assert answer.status == 429 and answer.code == "too-many-requests" and answer.headers["retry-after"] == "1"
    extra.close()
    kept[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert read_response(kept[0]).status == 200
    kept.pop().close()
    wait_until(lambda: service.curl("GET", "/healthz").status == 200, what="room for one more")
    for plain in kept:
        plain.close()


def test_pipelined_requests_are_answered_in_order(service, resource):
    plain = service.connect()
    names = [f"{resource}/{number}" for number in range(20)]
    bodies = [json.dumps({"resource": name}).encode() for name in names]
    plain.sendall(b"".join(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies))
    received = b""
    while received.count(b'"drift_ms"') < 20:
        piece = plain.recv(65536)
        assert piece
        received += piece
    positions = [received.index(json.dumps(name).encode()) for name in names]
    assert positions == sorted(positions) and received.count(b"HTTP/1.1 201 ") == 20
    plain.close()


def test_http_1_0_and_connection_close(service):
    for request in (b"GET /healthz HTTP/1.0\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"):
        plain = service.connect()
        plain.sendall(request)
        received = b""
        while piece := plain.recv(65536):
            received += piece
        assert b" 200 " in received.split(b"\r\n")[0] and received.endswith(b'{"status":"ok"}'), received
        plain.close()


def test_a_body_in_chunks_and_after_100_continue(service, resource):
    chunked = service.curl("POST", "/locks", body={"resource": resource + "/chunks"}, headers={"Transfer-Encoding": "chunked"})
    assert chunked.status == 201, chunked
    expected = service.curl("POST", "/locks", body={"resource": resource + "/continue"}, headers={"Expect": "100-continue"})
    assert expected.status == 201, expected
