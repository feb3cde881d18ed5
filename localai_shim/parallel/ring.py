"""Joins MLX's ring over connections that the leader has made.

Where MLX makes them, it takes whoever connects to its port first for its peer, and the peer that comes too late tries
for half a minute, with the GIL held. Here a process joins alone: it is visited, by whomever, and connects to itself.
Then the sockets of that are replaced by its ends of socket pairs, which no other program can reach.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import mlx.core as mx

HOST = "127.0.0.1"
BUFFER_BYTES = 4 << 20  # of each connection; systems give less
VISIT_SECONDS = 30.0  # in which a process that is to be visited listens
POLL_SECONDS = 0.001
_NOBODY = f"{HOST}:1"


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
        invite: has another process `visit` a port. MLX waits for that with the GIL held.

    Raises:
        RuntimeError: MLX cannot join.
    """
    with socket.create_server((HOST, 0)) as itself, tempfile.TemporaryDirectory(prefix="localai_shim-") as folder:
        port, mine = _free_port(), itself.getsockname()[1]
        nodes = [[_NOBODY] for _ in range(size)]
        nodes[rank], nodes[(rank + 1) % size] = [f"{HOST}:{port}"], [f"{HOST}:{mine}"]
        hosts = Path(folder, "hosts.json")
        hosts.write_text(json.dumps(nodes), encoding="ascii")
        invite(port)
        with environment({"MLX_RANK": str(rank), "MLX_HOSTFILE": str(hosts)}):
            mx.distributed.init(strict=True, backend="ring")
        found = dict(_sockets(port, mine))
    if found.keys() != {"left", "right"}:
        raise RuntimeError("MLX's connections were not found")
    for side, end in (("left", left), ("right", right)):
        fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(found[side], fcntl.F_GETFL))
        os.dup2(end.fileno(), found[side], inheritable=False)
        end.close()


def visit(port: int) -> None:
    """Connect to a process that joins, until it needs that no more."""
    end = time.monotonic() + VISIT_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), VISIT_SECONDS) as connection:
            connection.recv(1)
            return
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Have these variables in the environment meanwhile."""
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


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _sockets(port: int, mine: int) -> Iterator[tuple[str, int]]:
    """Files of MLX's connections: the one that it accepted, and the one that it made."""
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as found:
            if found.family == socket.AF_INET:
                own, peer = found.getsockname(), found.getpeername()
                if peer == (HOST, mine):
                    yield "right", int(name)
                elif own == (HOST, port):
                    yield "left", int(name)
