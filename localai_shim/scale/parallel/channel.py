"""Frames over a plain socket between the leader and a follower: a kind, and bytes."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Literal

Kind = Literal[b"r", b"p", b"c", b"j", b"k", b"n", b"e", b"v"]
"""From the leader: a record, a ping, close, join the group. From a follower: what it has done, that it has joined, an
error, a port to visit."""
KINDS: dict[bytes, Kind] = {kind: kind for kind in (b"r", b"p", b"c", b"j", b"k", b"n", b"e", b"v")}

SEND_SECONDS = 10  # that a peer which reads nothing may keep a sender
_HEADER = struct.Struct("<cQ")


class Channel:
    """One end. Frames may be sent from several threads, and read from one."""

    def __init__(self, end: socket.socket) -> None:
        self._socket, self._lock = end, threading.Lock()
        end.setblocking(True)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))

    def send(self, kind: Kind, content: bytes = b"") -> None:
        """Send a frame.

        Raises:
            OSError: the other end is gone, or reads nothing.
        """
        with self._lock:
            self._socket.sendall(_HEADER.pack(kind, len(content)) + content)

    def receive(self) -> tuple[Kind, bytes]:
        """The next frame.

        Raises:
            OSError, EOFError: the other end is gone.
        """
        kind, size = _HEADER.unpack(self._read(_HEADER.size))
        return KINDS[kind], self._read(size)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, size: int) -> bytes:
        content = bytearray(size)
        view = memoryview(content)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise EOFError("the other end was closed")
            view = view[count:]
        return bytes(content)
