"""Ends a leader that is frozen, from a separate process, which runs this file.

NCCL waits on the GPU without limit for a lost peer, and MLX also waits for the GPU in calls that hold the GIL. Then no
Python thread runs, and nothing in this process can fail a request. A process that no longer answers is better ended;
PyTorch's NCCL watchdog does the same.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

FROZEN_SECONDS = 20.0  # in which a leader whose follower has ended gives a sign of life
EXIT_SECONDS = 10.0  # in which such a one ends, once its interpreter does
BEAT_SECONDS = 1.0  # between two signs of life

_BEAT, _EXITING, _CLOSED = b"n", b"x", b"c"


class Watchdog:
    """The leader's side.

    Args:
        followers: processes that are watched. Linux only.
        frozen_seconds: see `FROZEN_SECONDS`.
    """

    def __init__(self, followers: Sequence[subprocess.Popen[bytes]], frozen_seconds: float = FROZEN_SECONDS) -> None:
        there, self._end = os.pipe()
        self._pid = os.getpid()
        watched: list[int] = []
        try:
            watched += [_opened(each) for each in (self._pid, *(follower.pid for follower in followers))]
            command = [sys.executable, "-I", "-S", str(Path(__file__)), str(frozen_seconds)]
            self._process = subprocess.Popen(
                [*command, *map(str, [there, *watched])],
                pass_fds=[there, *watched],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            os.close(self._end)
            raise
        finally:
            for each in (there, *watched):
                os.close(each)
        atexit.register(self._exiting)

    def beat(self) -> None:
        """Give a sign of life."""
        self._tell(_BEAT)

    def close(self) -> None:
        """Have it end."""
        atexit.unregister(self._exiting)
        self._tell(_CLOSED)
        self._process.wait()
        os.close(self._end)

    def _exiting(self) -> None:
        if os.getpid() == self._pid:  # not a forked child
            self._tell(_EXITING)

    def _tell(self, what: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._end, what)


def _opened(process: int) -> int:
    """A file descriptor of a process."""
    if sys.platform == "linux":
        return os.pidfd_open(process)
    raise NotImplementedError("watchdogs run on Linux only, as NCCL does")


def watch(frozen_seconds: float, told: int, leader: int, *followers: int) -> None:
    """Wait for a follower's end, and then for its leader's message.

    Args:
        frozen_seconds: see `FROZEN_SECONDS`.
        told: file descriptor of the pipe from the leader.
        leader: file descriptor of the leader's process.
        followers: file descriptors of the followers' processes.
    """
    limit: float | None = None
    waiting = [told, leader, *followers]
    while ready := select.select(waiting, [], [], limit)[0]:
        if leader in ready:
            return
        if told not in ready:  # a follower has ended
            waiting, limit = [told, leader], frozen_seconds
            continue
        word = os.read(told, 1)
        if word in (b"", _CLOSED) or (word == _EXITING and limit is None):
            return
        if word == _EXITING:
            if not _ends(told, leader):
                _kill(leader, "does not end")
            return
    _kill(leader, "is frozen")


def _ends(told: int, leader: int) -> bool:
    """Wait for the leader's end, or its last word; False where neither comes in time."""
    latest = time.monotonic() + EXIT_SECONDS
    while ready := select.select([told, leader], [], [], max(0.0, latest - time.monotonic()))[0]:
        if leader in ready or os.read(told, 1) in (b"", _CLOSED):
            return True
    return False


def _kill(leader: int, what: str) -> None:
    sys.stderr.write(
        f"localai_shim: process {os.getppid()} is killed: it {what}, as its GPU waits for a process of its model's "
        "group, which has ended\n"
    )
    sys.stderr.flush()
    if sys.platform == "linux":  # always; type checkers for other systems ask
        signal.pidfd_send_signal(leader, signal.SIGKILL)


if __name__ == "__main__":
    watch(float(sys.argv[1]), *map(int, sys.argv[2:]))
