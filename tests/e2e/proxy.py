# SPDX-License-Identifier: MIT
"""A proxy between redlockd and one Redis server, to play the network: slow, deaf, or cut.

Two threads a connection, one for each direction. It also records what redlockd sent.
"""

import contextlib
import os
import re
import socket
import tempfile
import threading
import time


class Proxy:
    def __init__(self, folder, redis):
        self.redis = redis
        self.path = os.path.join(tempfile.mkdtemp(prefix="p", dir=folder), "s")
        self.reply_delay = 0.0  # seconds before each reply is handed on
        self.gate = threading.Event()  # requests are handed on while it is set
        self.gate.set()
        self.replies = threading.Event()  # replies are handed on while it is set
        self.replies.set()
        self.swallow = False    # replies are lost, requests arrive
        self.cut_at_script = False  # the next script arrives at the master, then the connection is cut before its reply
        self.recorded = []      # what redlockd sent: one bytearray for each connection
        self.is_cut = self.closed = self.script_seen = False
        self.lock = threading.Lock()
        self.open = set()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"unix:{self.path}"

    def cut(self):
        """Closes all connections, and new ones as soon as they are made, until heal()."""
        with self.lock:
            self.is_cut = True
            for plain in self.open:
                with contextlib.suppress(OSError):
                    plain.shutdown(socket.SHUT_RDWR)

    def heal(self):
        self.cut_at_script = self.script_seen = self.swallow = self.is_cut = False
        self.reply_delay = 0.0
        self.gate.set()
        self.replies.set()

    def kill(self):
        self.closed = True
        self.gate.set()
        self.replies.set()
        self.cut()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def changed(self, data):
        """The bytes to hand on in place of a reply; subclasses change them."""
        return data

    def arrives(self, data):
        """Whether these requests, and all that follow on their connection, are handed on; subclasses decide, and may wait."""
        return True

    def commands(self, name=None):
        """The commands that redlockd has sent, as lists of strings; only those of one name where it is given."""
        found = [command for stream in list(self.recorded) for command in parse_commands(bytes(stream))]
        return [command for command in found if name is None or command[0].upper() == name]

    def _accept(self):
        while True:
            try:
                front, _ = self.listener.accept()
            except OSError:
                return
            if self.closed:
                return
            back = socket.socket(socket.AF_UNIX)
            try:
                if self.is_cut:
                    raise ConnectionError
                back.connect(self.redis.path)
            except OSError:
                front.close()
                back.close()
                continue
            with self.lock:
                self.open |= {front, back}
            stream = bytearray()
            self.recorded.append(stream)
            threading.Thread(target=self._requests, args=(front, back, stream), daemon=True).start()
            threading.Thread(target=self._replies, args=(front, back), daemon=True).start()

    def _requests(self, front, back, stream):
        with contextlib.suppress(OSError):
            while data := front.recv(65536):
                stream += data
                if self.cut_at_script and b"EVALSHA" in data.upper():
                    self.script_seen = True
                self.gate.wait()
                if not self.arrives(data):
                    break
                back.sendall(data)
            while front.recv(65536):
                pass
        self._end(front, back)

    def _replies(self, front, back):
        with contextlib.suppress(OSError):
            while data := back.recv(65536):
                if self.script_seen and self.cut_at_script:
                    self.cut()
                    break
                if self.reply_delay:
                    time.sleep(self.reply_delay)
                self.replies.wait()
                if not self.swallow:
                    front.sendall(self.changed(data))
        self._end(front, back)

    def _end(self, front, back):
        for plain in (front, back):
            with contextlib.suppress(OSError):
                plain.shutdown(socket.SHUT_RDWR)
        with self.lock:
            for plain in {front, back} & self.open:
                self.open.discard(plain)
        # The sockets close when the other direction's thread lets go of them too.


def parse_commands(stream):
    """The commands in a stream of RESP arrays; an unfinished one at the end is left out."""
    commands, at = [], 0
    while match := re.compile(rb"\*(\d+)\r\n").match(stream, at):
        at, command = match.end(), []
        for _ in range(int(match[1])):
            size = re.compile(rb"\$(\d+)\r\n").match(stream, at)
            if not size or size.end() + int(size[1]) + 2 > len(stream):
                return commands
            command.append(stream[size.end():size.end() + int(size[1])].decode("utf-8", "replace"))
            at = size.end() + int(size[1]) + 2
        commands.append(command)
    return commands
