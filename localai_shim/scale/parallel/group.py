"""Starts a group on this machine: followers in their own processes, and MLX's collectives between them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import mlx.core as mx

from ...types import EngineClosedError
from . import ring
from .leader import Follower, Leader
from .messages import Channel
from .visitor import HOST, Visitor
from .watchdog import Watchdog

_ROOT = Path(__file__).parents[3]  # of the import path
_joining = threading.Lock()  # what tells MLX of its group stands in the environment, which all threads share
_last: Leader | None = None


def backend() -> str:
    """Back end of MLX's collectives between processes of this machine."""
    return "nccl" if mx.cuda.is_available() and mx.distributed.is_available("nccl") else "ring"


def start(size: int, on_lost: Callable[[], None]) -> Leader:
    """Start a group's followers, and join it as its leader.

    Args:
        size: processes, this one included.
        on_lost: see `Leader`.

    Raises:
        EngineClosedError: one of them has ended, or there are fewer GPUs than processes, or this one's waits for good.
    """
    global _last
    with _joining:
        if _last is not None and _last.is_stuck:
            raise EngineClosedError("GPU is blocked on a lost peer; restart the program.")
        name, followers = backend(), list[Follower]()
        way: _Ring | _Nccl = _Nccl(size) if name == "nccl" else _Ring(size)
        try:
            for rank in range(1, size):
                followers.append(way.spawn(rank))
            leader = _last = Leader(followers, on_lost, _watchdog(name, followers), way.visit, way.ends)
        except BaseException:
            for follower in followers:
                follower.end_now()
            for end in way.ends:
                end.close()
            way.close()
            raise
        try:
            leader.wait_until_ready()
            _forget_groups()
            leader.join()
            way.join(leader)
        except (OSError, RuntimeError) as error:
            leader.close()
            raise leader.lost(error) or EngineClosedError(
                f"the group of processes could not be joined: {error}"
            ) from error
        except BaseException:
            leader.close()
            raise
        finally:
            way.close()
    return leader


class _Ring:
    """MLX's ring.

    Attributes:
        ends: followers' ends of connections, which stay open here, too: see `ring`.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._own, *self._theirs = ring.connections(size)
        self.ends = [end for both in self._theirs for end in both]
        self._visitor = Visitor()

    def spawn(self, rank: int) -> Follower:
        return _spawn(rank, self._size, "ring", {}, self._theirs[rank - 1])

    def visit(self, port: int) -> None:
        self._visitor.visit(port)

    def join(self, leader: Leader) -> None:
        """Join once all followers have."""
        leader.wait_until_joined()
        left, right = self._own
        ring.join(0, self._size, left, right, self.visit)

    def close(self) -> None:
        self._visitor.close()
        for end in self._own:
            end.close()


class _Nccl:
    """NCCL's group, which all processes join at the same time.

    Raises:
        EngineClosedError: there are fewer GPUs than processes.
    """

    ends: Sequence[socket.socket] = ()

    def __init__(self, size: int) -> None:
        self._size, self._devices = size, _gpus(size)
        with socket.create_server((HOST, 0)) as free:
            port = free.getsockname()[1]
        self._settings = {"NCCL_HOST_IP": HOST, "NCCL_PORT": str(port), "MLX_WORLD_SIZE": str(size)}

    def spawn(self, rank: int) -> Follower:
        spare, hand = socket.socketpair()
        with hand:
            settings = {**self._settings, **self._devices[rank], "MLX_RANK": str(rank)}
            follower = _spawn(rank, self._size, "nccl", settings, [hand])
        follower.spare = spare
        return follower

    def visit(self, port: int) -> None:
        raise AssertionError("followers of NCCL's group join by themselves")

    def join(self, leader: Leader) -> None:
        with ring.environment({**self._settings, "MLX_RANK": "0"}):
            mx.distributed.init(strict=True, backend="nccl")
        leader.take_over()

    def close(self) -> None:
        """Close nothing: NCCL has its connections."""


def _watchdog(name: str, followers: Sequence[Follower]) -> Watchdog | None:
    """Watchdog of a back end that waits without limit, where nothing here can end that."""
    return Watchdog([each.process for each in followers if each.process]) if name == "nccl" else None


def _gpus(size: int) -> list[Mapping[str, str]]:
    """Environments in which each process sees only its own GPU: MLX computes on the first one that it sees.

    Raises:
        EngineClosedError: there are fewer GPUs than processes; NCCL would end this process.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = list(map(str, range(mx.device_count(mx.gpu)))) if named is None else named.split(",")
    if len(devices) < size:
        raise EngineClosedError(f"each process needs its own GPU, and this one sees {len(devices)}")
    return [{"CUDA_VISIBLE_DEVICES": device} for device in devices]


def _spawn(rank: int, size: int, name: str, settings: Mapping[str, str], files: Sequence[socket.socket]) -> Follower:
    """Start a follower in its own session, so that only the leader gets Ctrl-C."""
    mine, its = socket.socketpair()
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    numbers = [each.fileno() for each in (its, *files)]
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.follower", name, str(rank), str(size), *map(str, numbers)],
            env={**os.environ, **settings, "PYTHONPATH": path},
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    return Follower(rank, Channel(mine), process)


def _forget_groups() -> None:
    """Make MLX join a new group: it permanently remembers the first one of each back end."""
    from mlx.nn.layers import distributed

    distributed.sum_gradients.cache_clear()
    library = next(Path(mx.__file__).parent.glob("lib/libmlx.*"), None)
    if library is not None:
        with contextlib.suppress(AttributeError):  # then a second group of this process cannot be joined
            ctypes.CDLL(str(library))._ZN3mlx4core11distributed14clear_backendsEv()
