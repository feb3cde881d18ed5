"""The other ends of MLX's connections to its peers, which the leader also holds.

A collective operation of MLX's ring has no time limit, and operations after a failed one wait forever. So a process
that was killed during a pass would leave the leader's thread in MLX. The killed process's connections stay open while
another process holds their ends, and that process can answer for it: waiting operations finish, and their results are
ignored.
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
    """Answer for the processes that had these ends, until the ends are shut down."""
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
