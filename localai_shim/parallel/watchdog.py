"""Ends a leader that is frozen, from a process of its own, which this file is run as.

NCCL waits on the GPU for a peer that is gone, without limit, and MLX waits for the GPU also in calls that hold the GIL:
then no thread of Python's runs, and nothing here can fail a request. A process that does not answer any more is better
ended; PyTorch's watchdog of NCCL does the same.
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
        watched: list[int] = []
        try:
            watched += [os.pidfd_open(each.pid) for each in followers]
            command = [sys.executable, "-I", "-S", str(Path(__file__)), str(os.getpid()), str(frozen_seconds)]
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
        self._tell(_EXITING)

    def _tell(self, what: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._end, what)


def watch(leader: int, frozen_seconds: float, told: int, followers: Sequence[int]) -> None:
    """Wait for a follower's end, and then for its leader's word.

    Args:
        leader: its process.
        frozen_seconds: see `FROZEN_SECONDS`.
        told: file descriptor of the pipe from the leader.
        followers: file descriptors of the followers' processes.
    """
    limit: float | None = None
    waiting = [told, *followers]
    while ready := select.select(waiting, [], [], limit)[0]:
        if told not in ready:  # a follower has ended
            waiting, limit = [told], frozen_seconds
            continue
        word = os.read(told, 1)
        if word in (b"", _CLOSED) or (word == _EXITING and limit is None):
            return
        if word == _EXITING:
            if not _ends(told):
                _kill(leader, "does not end")
            return
    _kill(leader, "is frozen")


def _ends(told: int) -> bool:
    """Wait for the leader's end, in time."""
    latest = time.monotonic() + EXIT_SECONDS
    while (left := latest - time.monotonic()) > 0:
        if select.select([told], [], [], left)[0] and os.read(told, 1) in (b"", _CLOSED):
            return True
    return False


def _kill(leader: int, what: str) -> None:
    sys.stderr.write(
        f"localai_shim: process {leader} is killed: it {what}, as its GPU waits for a process of its model's group, "
        "which has ended\n"
    )
    sys.stderr.flush()
    os.kill(leader, signal.SIGKILL)


if __name__ == "__main__":
    watch(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), [int(each) for each in sys.argv[4:]])
