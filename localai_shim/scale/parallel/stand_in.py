"""The other ends of MLX's connections to its peers, which the leader holds as well.

A collective operation of MLX's ring has no limit, and those behind one that failed wait for ever: a process that was
killed amid a pass would leave the leader's thread in MLX. Its connections do not end with it where somebody else holds
their ends, and can be answered in its place: what waits is finished, and nobody looks at the outcome.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from collections.abc import Iterator, Sequence

MAX_ENDS = 64
_PIECE = bytes(2**16)


def hand_over(to: socket.socket) -> None:
    """Give all of this process's TCP connections to the leader, too."""
    found = [number for number, opened in open_sockets() if _is_connection(opened)]
    socket.send_fds(to, [b"s"], found[:MAX_ENDS])


def take_over(given: socket.socket) -> list[socket.socket]:
    """Connections that a follower hands over."""
    _, numbers, _, _ = socket.recv_fds(given, 1, MAX_ENDS)
    return [socket.socket(fileno=number) for number in numbers]


def stand_in(ends: Sequence[socket.socket]) -> None:
    """Answer in the place of those whose ends these were, until they are shut down."""
    for end in ends:
        with contextlib.suppress(OSError):  # the group is closed meanwhile
            end.setblocking(True)
        for serve in (_drain, _feed):
            threading.Thread(target=serve, args=(end,), name="localai_shim:stand-in", daemon=True).start()


def shut_down(ends: Sequence[socket.socket]) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def _drain(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while end.recv(len(_PIECE)):
            pass


def _feed(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            end.sendall(_PIECE)


def open_sockets() -> Iterator[tuple[int, socket.socket]]:
    """This process's sockets: the number of each, and a duplicate that is closed afterwards."""
    for name in sorted(os.listdir("/dev/fd"), key=int):
        with contextlib.suppress(OSError):  # it is the list's own
            number = int(name)
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            blocks = os.get_blocking(number)
            with socket.socket(fileno=os.dup(number)) as found:
                os.set_blocking(number, blocks)  # which `socket.setdefaulttimeout` changes
                yield number, found


def _is_connection(end: socket.socket) -> bool:
    try:
        end.getpeername()
    except OSError:
        return False
    return end.family in (socket.AF_INET, socket.AF_INET6)
