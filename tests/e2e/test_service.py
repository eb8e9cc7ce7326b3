# SPDX-License-Identifier: MIT
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


MASTERS = ["--masters", "unix:/nonexistent/a"]


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
    service = lab.redlockd(proxies, "--drain-ms", "300000", "--master-timeout-ms", str(round(10000 * SLOW)))
    token = service.acquire("held", 60000)["token"]
    wait_until(lambda: all(server.cli("EXISTS", "held") for server in servers), what="on all masters")
    idle, *busy = (service.connect() for _ in range(4))
    for proxy in proxies:
        proxy.gate.clear()

    def send(plain, method, path, body):
        plain.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    send(busy[0], "POST", "/locks", '{"resource":"in-flight"}')
    wait_until(lambda: service.metrics()["redlockd_operations_in_flight"] == 1, what="in flight")
    service.process.send_signal(signal.SIGTERM)
    ready = wait_until(lambda: (lambda got: got if got.status != 200 else None)(service.curl("GET", "/readyz")), what="not ready")
    assert ready.status == 503 and ready.code == "draining"
    refused = service.curl("POST", "/locks", body={"resource": "new"})
    assert refused.status == 503 and refused.code == "draining" and int(refused.headers["retry-after"]) >= 1
    assert service.curl("GET", "/healthz").status == 200
    # A holder can still extend and release its lease.
    send(busy[1], "PUT", "/locks/held", f'{{"token":"{token}"}}')
    send(busy[2], "DELETE", "/locks/held", f'{{"token":"{token}"}}')
    wait_until(lambda: service.metrics()["redlockd_operations_in_flight"] == 3, what="all in flight")
    for proxy in proxies:
        proxy.heal()
    answers = [read_response(plain) for plain in busy]
    assert [answer and answer.status for answer in answers] == [201, 200, 204], "the requests in flight are answered"
    service.stop(signal.SIGTERM)  # it does not sit out --drain-ms with nothing to do
    for plain in (idle, *busy):
        plain.close()


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
    assert time.monotonic() - start > 1.0
    answer = read_response(busy)
    assert answer is None or (answer.status == 503 and answer.code == "draining"), answer
    busy.close()
    wait_until(lambda: all(server.cli("EXISTS", "x") == 0 for server in servers), what="what was granted to nobody is given back")


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


@pytest.mark.parametrize("given", ["", "a" * 129, "a b", "a'b", 'a"b', "ä", "a\\b"])
def test_a_bad_request_id_is_replaced(service, given):
    answer = service.curl("GET", "/healthz", headers={"X-Request-Id": given})
    assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["x-request-id"])


def test_every_answer_has_a_request_id(service):
    for method, path in (("GET", "/healthz"), ("GET", "/nothing"), ("PATCH", "/locks"), ("GET", "/locks?x=1"), ("POST", "/locks")):
        assert re.fullmatch(r"[0-9a-f]{16}", service.curl(method, path).headers["x-request-id"]), path
    same = service.curl("GET", "/nothing", headers={"X-Request-Id": "x" * 128})
    assert same.headers["x-request-id"] == "x" * 128


def test_a_log_that_nobody_reads_stops_nothing(lab):
    """The other end of the pipe is full: lines are dropped and counted, requests go on."""
    path, master = f"{lab.folder}/http", lab.redis()
    options = ["--log-level", "debug", "--log-requests", "all", "--listen", f"unix:{path}", "--masters", master.url, "--bootstrap", "--master-timeout-ms", "5000"]
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
    assert value("redlockd_lease_duration_seconds_sum", 'op="acquire"') > 0
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


def test_slow_clients_do_not_disturb_the_others(lab):
    service = lab.service(3)
    slow = [service.connect() for _ in range(200)]
    for plain in slow:
        plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    answer = service.curl("POST", "/locks", body={"resource": "x"})
    assert answer.status == 201
    for plain in slow:
        plain.close()
