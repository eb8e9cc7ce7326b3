# SPDX-License-Identifier: MIT
"""Many sockets at once, with epoll and as little processor time as possible, for hostile clients. All in one thread,
none of it ever blocks."""

import collections
import errno
import re
import select
import socket
import time

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
STATUS_BYTES = len(b"HTTP/1.1 200 ")


class Member:
    """One connection: what it still has to send, which answers came back, how and when it ended."""

    def __init__(self, plain, label, todo, reads, leaves):
        self.socket, self.label, self.todo, self.reads, self.leaves = plain, label, todo, reads, leaves
        self.opened, self.answered, self.closed = time.monotonic(), None, None
        self.how = None  # "end" (an orderly one), "reset", "left" (by ourselves), "refused"
        self.leaving = 0.0  # seconds from its last bytes to its close
        self.statuses, self.tail = [], b""

    @property
    def seconds(self):
        """After how long it was answered; where it was not, how long it lasted."""
        return (self.answered or self.closed or time.monotonic()) - self.opened

    @property
    def outcome(self):
        """The first status; where there was none, how it ended."""
        return str(self.statuses[0]) if self.statuses else {"end": "closed", "reset": "closed", "left": "left", "refused": "refused", None: "open"}[self.how]


class Crowd:
    """Connections to one address, from one address of loopback."""

    def __init__(self, address, source):
        self.address, self.source = address, source
        self.poll = select.epoll()
        self.open, self.all = {}, []
        self.drips = collections.deque()

    def add(self, label, todo=b"", reads=True, leaves=False, receive_buffer=0):
        """One connection more; sends `todo` as soon as it can. `reads` false: it never reads. `leaves`: it closes as soon as all is sent."""
        plain = socket.socket()
        plain.setblocking(False)
        if receive_buffer:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        plain.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: the port is chosen by connect()
        plain.bind((self.source, 0))
        member = Member(plain, label, todo, reads, leaves)
        self.all.append(member)
        error = plain.connect_ex(self.address)
        if error not in (0, errno.EINPROGRESS):
            self._end(member, "refused")
            return member
        self.open[plain.fileno()] = member
        self.poll.register(plain.fileno(), (select.EPOLLIN if reads else 0) | select.EPOLLRDHUP | (select.EPOLLOUT if todo else 0))
        return member

    def send(self, member, todo):
        """More to send; goes at once where it can."""
        if member.closed is None:
            member.todo += todo
            self._send(member)

    def leave(self, member):
        """Closes it, whatever is under way."""
        if member.closed is None:
            self._end(member, "left")

    def leave_all(self):
        for member in list(self.open.values()):
            self._end(member, "left")

    def step(self, timeout):
        """Waits for events for at most `timeout` seconds and deals with them."""
        for fd, events in self.poll.poll(timeout, 512):
            member = self.open.get(fd)
            if member is None:
                continue
            if events & select.EPOLLIN and member.reads:
                self._receive(member)
            elif events & (select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP):
                self._end(member, "reset" if events & select.EPOLLERR else "end")
            if events & select.EPOLLOUT and member.closed is None:
                self._send(member)

    def _receive(self, member):
        try:
            content = member.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            self._end(member, "reset")
            return
        if not content:
            self._end(member, "end")
            return
        content = member.tail + content
        if member.answered is None:
            member.answered = time.monotonic()
        member.statuses += [int(status) for status in STATUS.findall(content)]
        member.tail = content[-(STATUS_BYTES - 1):]  # too short for a status to be found twice

    def _send(self, member):
        began = time.monotonic()
        try:
            while member.todo:
                member.todo = member.todo[member.socket.send(member.todo):]
        except BlockingIOError:
            self.poll.modify(member.socket.fileno(), (select.EPOLLIN if member.reads else 0) | select.EPOLLRDHUP | select.EPOLLOUT)
            return
        except OSError:
            if member.reads:
                member.todo = b""  # its answer may still lie there to be read
            else:
                self._end(member, "reset")
                return
        if member.leaves:
            self._end(member, "left")
            member.leaving = time.monotonic() - began
        else:
            self.poll.modify(member.socket.fileno(), (select.EPOLLIN if member.reads else 0) | select.EPOLLRDHUP)

    def _end(self, member, how):
        member.closed, member.how = time.monotonic(), how
        self.open.pop(member.socket.fileno(), None)
        member.socket.close()
