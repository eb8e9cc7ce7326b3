# SPDX-License-Identifier: MIT
"""The well-behaved client: one kept-alive connection, in a process of its own, that acquires a lock and gives it back,
over and over. Its counts are in a page of memory that it shares with its parent, so that reading them costs it
nothing."""

import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import time

PAGE = struct.Struct("=QQd")  # the client's: pairs done, mistakes, longest answer in seconds
ASKED = struct.Struct("=Q")   # the other's, at ASKED_AT: how often it has asked for the longest, which then begins anew
ASKED_AT = 64


def read_answer(plain, buffer):
    """Status and body of one answer, and what came after it."""
    while b"\r\n\r\n" not in buffer:
        piece = plain.recv(65536)
        if not piece:
            raise ConnectionError("closed")
        buffer += piece
    head, _, rest = buffer.partition(b"\r\n\r\n")
    length = 0
    at = head.lower().find(b"content-length:")
    if at >= 0:
        length = int(head[at + 15:].split(b"\r\n", 1)[0])
    while len(rest) < length:
        rest += plain.recv(65536)
    return int(head[9:12]), rest[:length], rest[length:]


def connect(host, port, source):
    plain = socket.create_connection((host, port), 30, (source, 0))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain


def work(host, port, source, extra, page):
    """Until it is killed. A connection that ends, an answer that is late or wrong: a mistake."""
    plain, count, mistakes, number, most, asked = None, 0, 0, 0, 0.0, 0
    extra = "".join(line + "\r\n" for line in extra).encode()
    while True:
        number += 1
        body = b'{"resource":"good/%d"}' % (number % 1000)
        begun = time.monotonic()
        try:
            plain = plain or connect(host, port, source)
            plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s" % (extra, len(body), body))
            status, content, _ = read_answer(plain, b"")
            middle = time.monotonic()
            token = json.loads(content)["token"].encode() if status == 201 else b""
            plain.sendall(b"DELETE /locks/good/%d HTTP/1.1\r\nHost: localhost\r\nLock-Token: %s\r\n\r\n" % (number % 1000, token))
            released, _, _ = read_answer(plain, b"")
            longest = max(middle - begun, time.monotonic() - middle)
            good = status == 201 and released == 204
        except (OSError, ConnectionError):
            good, longest, plain = False, time.monotonic() - begun, None
            time.sleep(0.01)
        count, mistakes = count + good, mistakes + (not good)
        anew, asked = asked != ASKED.unpack_from(page, ASKED_AT)[0], ASKED.unpack_from(page, ASKED_AT)[0]
        most = longest if anew else max(longest, most)
        PAGE.pack_into(page, 0, count, mistakes, most)


class GoodClient:
    """Starts it and looks at what it does. `extra`: further lines of its requests' headers."""

    def __init__(self, address, source="127.0.0.2", extra=()):
        self.fd = os.memfd_create("good")
        os.ftruncate(self.fd, mmap.PAGESIZE)
        self.page = mmap.mmap(self.fd, mmap.PAGESIZE)
        PAGE.pack_into(self.page, 0, 0, 0, 0.0)
        command = [sys.executable, __file__, address[0], str(address[1]), source, str(self.fd), *extra]
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *command], pass_fds=[self.fd], stdin=subprocess.DEVNULL)

    def look(self):
        """How many pairs so far, how many mistakes."""
        return PAGE.unpack_from(self.page)[:2]

    def longest(self):
        """The longest that an answer took since the last call, in seconds."""
        longest = PAGE.unpack_from(self.page)[2]
        ASKED.pack_into(self.page, ASKED_AT, ASKED.unpack_from(self.page, ASKED_AT)[0] + 1)
        return longest

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.page.close()
        os.close(self.fd)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent ends it
    work(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[5:], mmap.mmap(int(sys.argv[4]), mmap.PAGESIZE))
