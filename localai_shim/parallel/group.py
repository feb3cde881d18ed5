"""Starts a group on this machine: followers in processes of their own, and MLX's collectives between them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import mlx.core as mx

from ..types import EngineClosedError
from .channel import Channel
from .leader import Follower, Leader
from .watchdog import Watchdog

_PACKAGE = Path(__file__).parent.parent
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
    name = backend()
    devices = _gpus(size) if name == "nccl" else [{}] * size
    with tempfile.TemporaryDirectory(prefix="localai_shim-") as folder, _joining:
        settings = _settings(name, size, Path(folder))
        if _last is not None and _last.is_stuck:
            raise EngineClosedError("this process's GPU waits for one that was lost: start the program again")
        followers: list[Follower] = []
        try:
            for rank in range(1, size):
                followers.append(_spawn(rank, name, {**settings, **devices[rank]}))
            watchdog = _watchdog(name, followers)
        except BaseException:
            for follower in followers:
                follower.end_now()
            raise
        leader = _last = Leader(followers, on_lost, watchdog)
        try:
            leader.wait_until_ready()
            leader.join()
            _forget_groups()
            with _environment({**settings, "MLX_RANK": "0"}):
                mx.distributed.init(strict=True, backend=name)
            leader.take_over()
        except RuntimeError as error:
            leader.close()
            raise leader.lost(error) or EngineClosedError(
                f"the group of processes could not be joined: {error}"
            ) from error
        except BaseException:
            leader.close()
            raise
    return leader


def _watchdog(name: str, followers: Sequence[Follower]) -> Watchdog | None:
    """Watchdog of a back end that waits without limit, where nothing here can end that."""
    return Watchdog([each.process for each in followers if each.process]) if name == "nccl" else None


def _settings(name: str, size: int, folder: Path) -> Mapping[str, str]:
    """Environment by which MLX's back end finds the group."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(size)]
        ports = [each.getsockname()[1] for each in sockets]
    if name == "nccl":
        return {"NCCL_HOST_IP": "127.0.0.1", "NCCL_PORT": str(ports[0]), "MLX_WORLD_SIZE": str(size)}
    hosts = folder / "hosts.json"
    hosts.write_text(json.dumps([[f"127.0.0.1:{port}"] for port in ports]), encoding="ascii")
    return {"MLX_HOSTFILE": str(hosts)}


def _gpus(size: int) -> list[Mapping[str, str]]:
    """Environment by which each process sees a GPU of its own alone: MLX computes on the first one that it sees.

    Raises:
        EngineClosedError: there are fewer GPUs than processes, of which NCCL would end this one.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = list(map(str, range(mx.device_count(mx.gpu)))) if named is None else named.split(",")
    if len(devices) < size:
        raise EngineClosedError(f"each process needs a GPU of its own, and this one sees {len(devices)}")
    return [{"CUDA_VISIBLE_DEVICES": device} for device in devices]


def _spawn(rank: int, name: str, settings: Mapping[str, str]) -> Follower:
    """Start a follower. It is in a session of its own: Ctrl-C is the leader's to answer."""
    (mine, its), (spare, hand) = socket.socketpair(), socket.socketpair()
    path = os.pathsep.join(filter(None, (str(_PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    with its, hand:
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.follower", str(its.fileno()), str(hand.fileno()), name],
            env={**os.environ, **settings, "MLX_RANK": str(rank), "PYTHONPATH": path},
            pass_fds=[its.fileno(), hand.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    return Follower(rank, Channel(mine), process, spare)


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
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


def _forget_groups() -> None:
    """Have MLX join a new group: it remembers the first one of each back end for good."""
    from mlx.nn.layers import distributed

    distributed.sum_gradients.cache_clear()
    library = next(Path(mx.__file__).parent.glob("lib/libmlx.*"), None)
    if library is not None:
        with contextlib.suppress(AttributeError):  # then a second group of this process cannot be joined
            ctypes.CDLL(str(library))._ZN3mlx4core11distributed14clear_backendsEv()
