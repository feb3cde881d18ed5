"""Fills the port `Group`, with processes that are started on this machine, or those that `mlx.launch` has started.

Where `mlx.launch` has, each process runs the same program, and one of them continues it.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import mlx.core as mx

from ...types import EngineClosedError
from . import group
from .follower import follow
from .leader import START_SECONDS, Follower, Leader
from .messages import Channel

_TOKEN_BYTES, _PORT_BYTES, _RANK_BYTES = 32, 2, 2
_led = False


def join(size: int) -> None:
    """Join the group that `mlx.launch` has started, if it has."""
    if _rank() is not None:
        _join_launched(size)


def lead(size: int, on_lost: Callable[[], None]) -> Leader:
    """Have the other processes follow this one."""
    return (group.start if _rank() is None else _lead_launched)(size, on_lost)


def _rank() -> int | None:
    """This process's place in a group that was launched; None where none was."""
    text = os.environ.get("MLX_RANK", "")
    return int(text) if text.isdecimal() else None


def _lead_launched(size: int, on_lost: Callable[[], None]) -> Leader:
    """Have the other processes follow this one.

    Args:
        size: processes, this one included.
        on_lost: see `Leader`.

    Raises:
        EngineClosedError: they do not come, or have followed another engine.
    """
    global _led
    if _led:
        raise EngineClosedError("the processes of mlx.launch serve one model, once: start the program again")
    _led = True
    token, followers = secrets.token_bytes(_TOKEN_BYTES), list[Follower]()
    with socket.create_server((_host(), 0)) as server:
        _shared(token + server.getsockname()[1].to_bytes(_PORT_BYTES, "little"))
        server.settimeout(START_SECONDS)
        try:
            while len(followers) < size - 1:
                end, _ = server.accept()
                end.settimeout(START_SECONDS)
                given = end.recv(_TOKEN_BYTES + _RANK_BYTES, socket.MSG_WAITALL)
                if hmac.compare_digest(given[:_TOKEN_BYTES], token):
                    followers.append(Follower(int.from_bytes(given[_TOKEN_BYTES:], "little"), Channel(end)))
                else:
                    end.close()
        except OSError as error:
            missing = size - 1 - len(followers)
            if isinstance(error, TimeoutError):
                raise EngineClosedError(f"Timed out waiting for {missing} of {size} processes.") from error
            raise EngineClosedError(f"Waiting for {missing} of {size} processes failed: {error}") from error
    leader = Leader(followers, on_lost)
    leader.wait_until_ready()
    return leader


def _join_launched(size: int) -> None:
    """Join the group, in every process at about the same time; all but the leader follow it from here on.

    Raises:
        EngineClosedError: the processes are not as many.
    """
    began = time.monotonic()
    while True:
        try:
            found = mx.distributed.init(strict=True).size()
            break
        except RuntimeError as error:  # the ring gives a peer that has not begun yet a few seconds only
            if time.monotonic() - began > START_SECONDS:
                raise EngineClosedError(f"the group of mlx.launch could not be joined: {error}") from error
    if found != size:
        raise EngineClosedError(f"mlx.launch has started {found} processes, and tensor_parallel is {size}")
    if _rank():
        _follow_leader()


def _follow_leader() -> NoReturn:
    """Follow the process that continues the program, until it ends."""
    rank = mx.distributed.init(strict=True).rank()
    shared = _shared(bytes(_TOKEN_BYTES + _PORT_BYTES))
    end = socket.create_connection((_host(), int.from_bytes(shared[_TOKEN_BYTES:], "little")), START_SECONDS)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    end.sendall(shared[:_TOKEN_BYTES] + rank.to_bytes(_RANK_BYTES, "little"))
    follow(Channel(end), None)


def _shared(mine: bytes) -> bytes:
    """The leader's bytes, in all processes; others give as many zeros."""
    made = mx.distributed.all_sum(mx.array(list(mine), mx.uint8), stream=mx.cpu)
    values: Any = made.tolist()
    return bytes(values)


def _host() -> str:
    """Address at which the others reach the leader, as mlx.launch has told MLX."""
    for name in ("MLX_JACCL_COORDINATOR", "NCCL_HOST_IP"):
        if found := os.environ.get(name):
            return found.partition(":")[0]
    if path := os.environ.get("MLX_HOSTFILE"):
        first: list[str] = json.loads(Path(path).read_text(encoding="utf-8"))[0]
        return first[0].rpartition(":")[0]
    return "127.0.0.1"
