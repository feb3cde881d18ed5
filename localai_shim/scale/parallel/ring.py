"""Joins MLX's ring over connections that the leader has made, and answers for a process that was killed.

If MLX makes the connections, it takes the first program that connects to its port for its peer. The peer that comes too
late tries for half a minute, with the GIL held. Here each process joins alone: it connects to itself, and a `Visitor`,
or any other program, connects to it. Then its ends of socket pairs replace the sockets of these connections.

A collective operation of MLX's ring has no time limit, and operations after a failed one wait forever. So a process
that was killed during a pass would leave the leader's thread in MLX. The killed process's connections stay open while
another process holds their ends, and that process can answer for it: waiting operations finish, and their results are
ignored. The leader holds these ends, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import mlx.core as mx

from .visitor import HOST

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


ATTEMPTS = 5  # to find a port that no other program takes meanwhile
BUFFER_BYTES = 4 << 20  # of each connection; systems give less
_NO_ADDRESS = f"{HOST}:1"


def connections(size: int) -> list[tuple[socket.socket, socket.socket]]:
    """The connections of each process, to its left neighbor and to its right one."""
    pairs = [socket.socketpair() for _ in range(size)]  # right end of each process, left end of the next one
    for end in (end for pair in pairs for end in pair):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    return [(pairs[rank - 1][1], pairs[rank][0]) for rank in range(size)]


def join(rank: int, size: int, left: socket.socket, right: socket.socket, invite: Callable[[int], None]) -> None:
    """Join the group; takes the connections over.

    Args:
        rank: this process's place.
        size: processes of the group.
        left: connection to the process before it.
        right: connection to the process after it.
        invite: makes another process connect to a port. MLX waits for that with the GIL held.

    Raises:
        RuntimeError: MLX cannot join.
    """
    for left_attempts in reversed(range(ATTEMPTS)):
        port = _free_port()
        try:
            found = _joined(rank, size, port, invite)
            break
        except RuntimeError:
            if not left_attempts:
                raise
    if found.keys() != {"left", "right"}:
        raise RuntimeError("MLX's connections were not found")
    for side, end in (("left", left), ("right", right)):
        fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(found[side], fcntl.F_GETFL))
        os.dup2(end.fileno(), found[side], inheritable=False)
        end.close()


def _joined(rank: int, size: int, port: int, invite: Callable[[int], None]) -> dict[str, int]:
    """Join over this port; returns the files of MLX's connections."""
    with socket.create_server((HOST, 0)) as itself, tempfile.TemporaryDirectory(prefix="localai_shim-") as folder:
        own = itself.getsockname()[1]
        nodes = [[_NO_ADDRESS] for _ in range(size)]
        nodes[rank], nodes[(rank + 1) % size] = [f"{HOST}:{port}"], [f"{HOST}:{own}"]
        hosts = Path(folder, "hosts.json")
        hosts.write_text(json.dumps(nodes), encoding="ascii")
        invite(port)
        with environment({"MLX_RANK": str(rank), "MLX_HOSTFILE": str(hosts)}):
            mx.distributed.init(strict=True, backend="ring")
        return dict(_connected(port, own))


def _connected(port: int, own: int) -> Iterator[tuple[str, int]]:
    """Files of the connection that was accepted at a port, and of the one that was made to this process's own."""
    for number, found in open_sockets():
        with contextlib.suppress(OSError):  # who connected may be gone, and then there is no peer
            if found.family != socket.AF_INET:
                continue
            if found.getsockname() == (HOST, port):
                yield "left", number
            elif found.getpeername() == (HOST, own):
                yield "right", number


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set these variables of the environment, and set them back afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
