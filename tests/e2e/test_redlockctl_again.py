# SPDX-License-Identifier: MIT
"""redlockctl when an answer to its acquisition is lost: the next request finds the lease that was granted. And --metadata."""

import contextlib
import json
import re
import signal
import socket
import struct
import threading

import pytest

from ctl import FOREVER, Run, ctl, is_free, url
from harness import connect_to, wait_until


class Cutter:
    """A server in front of redlockd that hands on `bytes_left` bytes of the answer to the first POST, and then resets the connection."""

    def __init__(self, service, bytes_left):
        self.service, self.bytes_left, self.cut = service, bytes_left, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def url(self):
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def kill(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                front = self.listener.accept()[0]
                with contextlib.suppress(OSError):
                    self._pass_on(front)

    def _pass_on(self, front):
        with front, connect_to(self.service.address) as back:
            front.settimeout(20)
            request, left = b"", None
            while left is None or left > 0:
                more = front.recv(65536)
                if not more:
                    return
                request += more
                head, _, body = request.partition(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: *(\d+)", head)
                left = (int(length[1]) if length else 0) - len(body) if b"\r\n\r\n" in request else None
            back.sendall(request)
            answer = back.recv(65536)
            self.cut += request.startswith(b"POST")
            if not request.startswith(b"POST") or self.cut > 1:
                front.sendall(answer)
                return
            front.sendall(answer[:self.bytes_left])
            front.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.fixture
def cutter(lab):
    return lambda service, left: lab.keep(Cutter(service, left))


def statuses(service, resource, count):
    """Of the requests for the resource, of which there are so many: a line may come after the answer."""
    def lines():
        return [line["status"] for line in service.log("request") if line.get("resource") == resource and line["method"] == "POST"]
    wait_until(lambda: len(lines()) >= count, what="their lines")
    return lines()


@pytest.mark.parametrize("left", [0, 1, 15, 300])
def test_a_run_does_not_wait_for_its_own_lease(lab, cutter, resource, left):
    service = lab.service()
    front = cutter(service, left)
    run = Run(lab, resource, command=FOREVER, servers=[front.url(), service], ttl_ms=60000)
    run.file("pid")
    assert front.cut == 1 and statuses(service, resource, 2) == ["201", "200"]
    run.process.send_signal(signal.SIGTERM)
    run.wait()
    assert is_free(service, resource)


def test_an_acquisition_finds_its_lease_at_another_server(lab, cutter, resource):
    masters = lab.redises(3)
    one, other = lab.redlockd(masters), lab.redlockd(masters)
    front = cutter(one, 0)
    done = ctl("acquire", resource, "--json", "--ttl", "60s", env={"REDLOCKCTL_SERVER": f"{front.url()},{url(other)}"})
    lease = json.loads(done.stdout)
    assert done.returncode == 0 and statuses(one, resource, 1) == ["201"] and statuses(other, resource, 1) == ["200"]
    assert other.curl("GET", f"/locks/{resource}").json["fence"] == lease["fence"]


@pytest.mark.parametrize("left", [0, 300])
def test_an_acquisition_of_several_finds_its_lease(lab, cutter, resource, left):
    service = lab.service()
    front = cutter(service, left)
    names = [f"{resource}/a", f"{resource}/b"]
    done = ctl("acquire", *names, "--json", "--ttl", "60s", env={"REDLOCKCTL_SERVER": f"{front.url()},{url(service)}"})
    lease = json.loads(done.stdout)
    assert done.returncode == 0 and lease["resources"] == names and front.cut == 1, done
    states = [service.curl("GET", f"/locks/{name}").json for name in names]
    assert [state["fence"] for state in states] == [lease["fence"]] * 2
    wait_until(lambda: [line["status"] for line in service.log("request") if line["method"] == "POST"] == ["201", "200"], what="both requests")


def test_each_acquisition_has_a_key_of_its_own(lab, resource):
    service = lab.service()
    assert ctl("acquire", resource, server=service).returncode == 0
    assert ctl("acquire", resource, "--no-wait", server=service).returncode == 75
    assert statuses(service, resource, 2) == ["201", "409"]


def test_metadata_is_shown(service, resource):
    done = ctl("acquire", resource, "--metadata", '{"job": 7, "é": ["a", null]}', server=service)
    assert done.returncode == 0, done.stderr
    shown = ctl("status", resource, server=service).stdout
    assert '  metadata  {"job":7,"é":["a",null]}' in shown.split("\n")
    assert json.loads(ctl("status", resource, "--json", server=service).stdout)["metadata"] == {"job": 7, "é": ["a", None]}


def test_metadata_of_a_run_is_shown(lab, service, resource):
    run = Run(lab, resource, "--metadata", '{"n":1}', command=FOREVER, servers=[service])
    run.file("pid")
    assert '  metadata  {"n":1}' in ctl("status", resource, server=service).stdout.split("\n")


@pytest.mark.parametrize("metadata, reason", [("7", "--metadata: not a JSON object"), ("{", "--metadata: not a JSON object"),
                                              ('{"a":1,"a":2}', "--metadata: not a JSON object"),
                                              (json.dumps({"a": "x" * 1020}), "--metadata: too long")])
def test_metadata_is_checked_before_anything_is_sent(metadata, reason):
    done = ctl("acquire", "r", "--metadata", metadata, server="http://127.0.0.1:1")
    assert done.returncode == 64 and reason in done.stderr, done.stderr
