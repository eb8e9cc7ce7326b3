# SPDX-License-Identifier: MIT
"""A network between a client and redlockd: it hands bytes on, slowly, or into nothing."""

import contextlib
import json
import re
import socket
import threading
import time

from harness import connect_to


class Relay:
    """On a port of 127.0.0.1. While `deaf`, nothing gets through in either direction; `delay`: seconds before each answer."""

    def __init__(self, service, delay=0.0):
        self.service, self.delay, self.deaf, self.sockets = service, delay, False, []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def kill(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for plain in self.sockets:
            self._shut(plain)

    @staticmethod
    def _shut(plain):
        with contextlib.suppress(OSError):
            plain.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                front = self.listener.accept()[0]
                back = connect_to(self.service.address)
                self.sockets += [front, back]
                for source, target, delay in ((front, back, False), (back, front, True)):
                    threading.Thread(target=self._pass_on, args=(source, target, delay), daemon=True).start()

    def _pass_on(self, source, target, delays):
        source.settimeout(None)
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                time.sleep(self.delay if delays else 0)
                if not self.deaf:
                    target.sendall(data)
        if not self.deaf:
            self._shut(target)


class CuttingRelay(Relay):
    """Hands on only N bytes of the first answer to a POST for the resource named N, and closes the connection; the others whole.
    `statuses`: of all answers for N."""

    def __init__(self, service):
        self.statuses, self.lock = {}, threading.Lock()
        super().__init__(service)

    def length_of_an_answer(self):
        """For a resource that has a name as long; with room for numbers that have fewer digits in another answer."""
        body = json.dumps({"resource": "____", "ttl_ms": 60000, "wait_ms": 0}).encode()
        request = (
            b"POST /locks HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: 0123456789abcdef\r\nContent-Length: %d\r\n\r\n"
            % len(body)
        )
        with connect_to(self.service.address) as back:
            back.sendall(request + body)
            answer = self._read(back)
            lease = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert "token" in lease, answer
        assert self.service.curl("DELETE", "/locks/____", headers={"Lock-Token": lease["token"]}).status == 204
        return len(answer)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                front = self.listener.accept()[0]
                threading.Thread(target=self._serve, args=(front,), daemon=True).start()

    def _serve(self, front):
        """A connection stays open until the client closes it or an answer is cut."""
        with contextlib.suppress(OSError), front, connect_to(self.service.address) as back:
            front.settimeout(20)
            whole = True
            while whole and (request := self._read(front)):
                back.sendall(request)
                answer = self._read(back)
                passed = answer[:self._bytes(request, answer)]
                whole = passed == answer
                front.sendall(passed)
            front.shutdown(socket.SHUT_WR)
            front.recv(1)

    def _bytes(self, request, answer):
        if not request.startswith(b"POST"):
            return len(answer)
        number = int(json.loads(request.partition(b"\r\n\r\n")[2])["resource"])
        with self.lock:
            statuses = self.statuses.setdefault(number, [])
            statuses.append(int(answer.split()[1]))
            return len(answer) if len(statuses) > 1 else min(number, len(answer) - 1)

    @staticmethod
    def _read(plain):
        """A whole message that says its length."""
        data = b""
        while True:
            head, end, body = data.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            if end and len(body) >= (int(length[1]) if length else 0):
                return data
            more = plain.recv(65536)
            if not more:
                return data
            data += more
