"""Messages of the pytest plugin: JSON between pytest, the process that forks ranks, and ranks."""

import fcntl
import json
import socket
import struct

_LENGTH = struct.Struct("!I")
_FIRST_FD = 10  # below lie those that a test may close


class Closed(Exception):
    """The other side has ended."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected stream sockets, away from the standard streams even where these are closed."""
    return tuple(map(_away, socket.socketpair()))


def packet_pair() -> tuple[socket.socket, socket.socket]:
    return tuple(map(_away, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)))


def _away(end: socket.socket) -> socket.socket:
    moved = socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, _FIRST_FD))
    end.close()
    return moved


class Channel:
    """Whole messages over a stream socket. What JSON has no word for is sent as its repr."""

    def __init__(self, end: socket.socket):
        self._end = end
        self._unread = bytearray()

    def fileno(self) -> int:
        return self._end.fileno()

    def close(self):
        self._end.close()

    def send(self, **message):
        """\\raises Closed."""
        data = json.dumps(message, default=repr).encode()
        try:
            self._end.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self) -> dict:
        """Waits for one message. \\raises Closed."""
        while (message := self._next()) is None:
            self._read()
        return message

    def arrived(self) -> list[dict]:
        """Those that are here, after select has called the socket readable. \\raises Closed if
        there will be no more and none is left."""
        messages = []
        try:
            self._read()
        except Closed:
            if len(self._unread) < _LENGTH.size:
                raise
        while (message := self._next()) is not None:
            messages.append(message)
        return messages

    def _read(self):
        try:
            data = self._end.recv(1 << 20)
        except OSError as error:
            raise Closed(str(error)) from error
        if not data:
            raise Closed("the other side has ended")
        self._unread += data

    def _next(self) -> "dict | None":
        if len(self._unread) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._unread)
        end = _LENGTH.size + length
        if len(self._unread) < end:
            return None
        message = json.loads(self._unread[_LENGTH.size : end])
        del self._unread[:end]
        return message
