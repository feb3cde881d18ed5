"""A follower's side: it makes the calls that the leader has made, in their order, and decides nothing."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

import mlx.core as mx

from ...backends import memory
from ...backends.machine import require_backend
from ...types import log
from . import ring
from .messages import Channel, Read, arrays_in, checksum

_NAME = "follower"


def rest(free: int | None, *, weights: int, clear: bool) -> None:
    """Note that nothing is in flight; see `Journal.rest`. Wired memory stays wired here: a follower never sleeps."""
    memory.process.loaded(_NAME, weights)
    memory.process.rest(_NAME, free=free, clear=clear)


class _Control:
    """Reads the leader's messages on its own thread, so that a follower that waits in MLX still ends and answers.

    Args:
        channel: to the leader.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.records: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.joining = threading.Event()
        self.done = 0

    def start(self) -> None:
        self.answer()
        threading.Thread(target=self._listen, name="localai_shim:leader", daemon=True).start()

    def answer(self) -> None:
        """Say what was done so far."""
        self._channel.send(b"k", self.done.to_bytes(8, "little"))

    def invite(self, port: int) -> None:
        """Ask for a connection to a port: see `ring.join`."""
        self._channel.send(b"v", port.to_bytes(4, "little"))

    def fail(self, error: BaseException) -> NoReturn:
        """Say why this follower ends, and end it."""
        try:
            self._channel.send(b"e", f"failed: {error!r}".encode())
        finally:
            os._exit(1)

    def _listen(self) -> None:
        try:
            while True:
                kind, content = self._channel.receive()
                if kind == b"r":
                    self.records.put(content)
                elif kind == b"p":
                    self.answer()
                elif kind == b"j":
                    self.joining.set()
                elif kind == b"c":
                    break
        except (OSError, EOFError):  # the leader is gone
            pass
        except BaseException as error:
            self.fail(error)
        for stream in (sys.stdout, sys.stderr):  # a program of mlx.launch may have written something
            stream.flush()
        os._exit(0)


def follow(channel: Channel, join: Callable[[Callable[[int], None]], None] | None) -> NoReturn:
    """Repeat a leader's calls until it ends.

    Args:
        channel: to it.
        join: joins MLX's group, when the leader says so; gets a function that asks for a connection to a port. None:
            this process has joined already.
    """
    control = _Control(channel)
    try:
        require_backend()

        from ...models import loading  # noqa: F401  # before a leader waits for it

        memory.process.enter(_NAME)
        control.start()
        if join is not None:
            control.joining.wait()
            join(control.invite)
            channel.send(b"n")
        _repeat(control)
    except BaseException as error:
        log.exception("a process of a model's group failed")
        control.fail(error)


def _repeat(control: _Control) -> NoReturn:
    read, last = Read(), 0
    launch: Callable[..., None] = mx.async_eval
    while True:
        number, expected, gone, call, args, kwargs = read.read(control.records.get())
        if (number, expected) != (control.done + 1, last):
            raise ValueError(f"call {control.done} had another outcome here: widths, lengths or capacity differ")
        read.drop(gone)
        try:
            result = call(*args, **kwargs)
        except Exception as error:  # the leader has caught it, too, or else it sees that it has not
            log.debug("call %d failed", number, exc_info=error)
            last = checksum(type(error).__name__, *args)
        else:
            read.returned(result)
            launch(arrays_in(result))
            last = checksum(result, *args)
            del result
        del args, kwargs
        control.done = number


def main() -> NoReturn:
    """Follow the leader at the other end of inherited sockets: `follower.py BACKEND RANK SIZE CHANNEL FILENO...`."""
    name, rank, size, channel, *numbers = sys.argv[1:]
    files = [socket.socket(fileno=int(number)) for number in numbers]

    def join(invite: Callable[[int], None]) -> None:
        if name == "ring":
            left, right = files
            ring.join(int(rank), int(size), left, right, invite)
            return
        mx.distributed.init(strict=True, backend=name)
        with files[0] as to:
            ring.hand_over(to)

    follow(Channel(socket.socket(fileno=int(channel))), join)


if __name__ == "__main__":
    main()
