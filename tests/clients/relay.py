"""A network between a client and redlockd: it hands bytes on, slowly, or into nothing."""

import contextlib
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
