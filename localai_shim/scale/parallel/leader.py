"""The leader's side: the journal of an engine's thread, and the followers that it is for."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import mlx.core as mx

from ...types import EngineClosedError, log
from .follower import rest
from .messages import Channel, Written, arrays_in, checksum
from .ring import shut_down, stand_in, take_over
from .watchdog import BEAT_SECONDS, Watchdog

R = TypeVar("R")

START_SECONDS = 120.0  # until followers have imported what they need
PING_SECONDS = 1.0  # between two questions while work is in flight
ANSWER_SECONDS = 10.0  # after which a follower that does not answer is given up
STALL_SECONDS = 600.0  # for which a follower may be in one call, such as loading
END_SECONDS = 1.0  # after which a follower that was told to end is killed
NOTICE_SECONDS = 1.0  # that an error may be earlier than the news of the follower that is its reason


@dataclass(eq=False)
class Follower:
    """One follower, as the leader knows it."""

    rank: int
    """Its place in the group, from 1."""
    channel: Channel
    """To it."""
    process: subprocess.Popen[bytes] | None = None
    """Of this machine, which ends with the group; None: it was started elsewhere."""
    spare: socket.socket | None = None
    """Gives the other ends of MLX's connections after the group has been joined, if MLX has made them."""
    ready: threading.Event = field(default_factory=threading.Event)
    joined: threading.Event = field(default_factory=threading.Event)
    done: int = 0
    """Number of the last call that it has made."""
    answered: int = 0
    """Pings, and more."""

    def end_now(self) -> None:
        """End it, whatever it is in: SIGTERM is not seen inside a collective operation."""
        if self.process is not None:
            self.process.kill()
        else:  # it ends by itself once the leader is gone
            self.channel.close()


class Leader:
    """Writes an engine's mirrored calls to its followers, and notices when one is lost: a `Journal`.

    All methods but `close` are called on the engine's thread.

    Args:
        followers: those of the group.
        on_lost: called once, on another thread, when one of them is.
        watchdog: ends this process should it not notice.
        visit: connects to a port of a follower that joins.
        ends: the followers' ends of MLX's connections: see `stand_in`.

    Attributes:
        is_stuck: a follower was lost during a pass, for which MLX waits forever: MLX must not be used in this process.
    """

    def __init__(
        self,
        followers: Sequence[Follower],
        on_lost: Callable[[], None] = lambda: None,
        watchdog: Watchdog | None = None,
        visit: Callable[[int], None] = lambda port: None,
        ends: Sequence[socket.socket] = (),
    ) -> None:
        self._followers, self._on_lost, self._watchdog, self._visit = followers, on_lost, watchdog, visit
        self._written = Written()
        self._number = self._checksum = 0
        self._inside = self.is_stuck = False
        self._built: list[mx.array] = []
        self._ends = list(ends)
        self._reason: str | None = None
        self._lost, self._closed, self._busy = threading.Event(), threading.Event(), threading.Event()
        self._lock = threading.Lock()
        for follower in followers:
            threading.Thread(target=self._listen, args=(follower,), name="localai_shim:follower", daemon=True).start()
        threading.Thread(target=self._watch, name="localai_shim:followers", daemon=True).start()

    # -- the journal ---------------------------------------------------------------------------------------------

    def run(
        self,
        name: Callable[..., object],
        call: Callable[..., R],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> R:
        if self._inside:
            return call(*args, **kwargs)
        self._send(name, args, kwargs)
        self._inside = True
        try:
            result = call(*args, **kwargs)
        except BaseException as error:  # followers raise it, too, or they disagree
            self._checksum = checksum(type(error).__name__, *args)
            raise
        finally:
            self._inside = False
        self._written.returned(result)
        self._checksum = checksum(result, *args)
        self._built = arrays_in(result) or self._built
        return result

    def rest(self, free: int | None = None, *, weights: int = 0, clear: bool = False) -> None:
        if self._reason is None:
            built, self._built = self._built, []
            mx.eval(built)
            mx.synchronize()
            self._send(rest, (), {"free": free, "weights": weights, "clear": clear})
            self._checksum = checksum(None)
        self._busy.clear()

    def lost(self, cause: BaseException | None = None) -> EngineClosedError | None:
        if isinstance(cause, RuntimeError):  # as MLX raises where a peer is gone
            self._lost.wait(NOTICE_SECONDS)
        return None if self._reason is None else EngineClosedError(self._reason)

    def end(self) -> bool:
        with contextlib.suppress(RuntimeError, EngineClosedError):  # a follower that is lost now is not missed any more
            self.rest()
        self.close()
        return not self.is_stuck

    # -- the group -----------------------------------------------------------------------------------------------

    def wait_until_ready(self) -> None:
        """Wait until all followers have imported what they need.

        Raises:
            EngineClosedError: one has ended, or takes too long.
        """
        for follower in self._followers:
            self._await(follower, follower.ready, "was not ready")

    def join(self) -> None:
        """Tell followers to join MLX's group."""
        self._busy.set()
        for follower in self._followers:
            follower.channel.send(b"j")

    def wait_until_joined(self) -> None:
        """Wait until all followers have joined MLX's group.

        Raises:
            EngineClosedError: one could not, or takes too long.
        """
        for follower in self._followers:
            self._await(follower, follower.joined, "has not joined")

    def take_over(self) -> None:
        """Hold MLX's connections, as the followers do: see `stand_in`."""
        for follower in self._followers:
            if follower.spare is not None:
                follower.spare.settimeout(START_SECONDS)
                with follower.spare:
                    self._ends += take_over(follower.spare)

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    def close(self) -> None:
        """End the followers, and wait for those of this machine."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
        self._busy.set()  # wakes who watches
        for follower in self._followers:
            with contextlib.suppress(OSError):
                follower.channel.send(b"c")
        for follower in self._followers:
            if follower.process is not None:
                try:
                    follower.process.wait(0.0 if self._lost.is_set() else END_SECONDS)
                except subprocess.TimeoutExpired:
                    follower.process.kill()
                    follower.process.wait()
            follower.channel.close()
        shut_down(self._ends)
        if self._watchdog is not None and not self.is_stuck:
            self._watchdog.close()

    # -- inside --------------------------------------------------------------------------------------------------

    def _await(self, follower: Follower, event: threading.Event, what: str) -> None:
        if not event.wait(START_SECONDS):
            self._lose(follower, f"{what} after {START_SECONDS:.0f} s")
        self._check()

    def _check(self) -> None:
        if self._reason is not None:
            raise EngineClosedError(self._reason)
        if self._closed.is_set():
            raise EngineClosedError("the followers of this model have ended")

    def _send(self, name: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Write a call to all followers."""
        self._check()
        self._number += 1
        gone = self._written.take_gone()
        record = self._written.write((self._number, self._checksum, gone, name, args, dict(kwargs)))
        self._busy.set()
        for follower in self._followers:
            try:
                follower.channel.send(b"r", record)
            except OSError as error:
                self._lose(follower, f"takes nothing any more: {error}")
                self._check()

    def _listen(self, follower: Follower) -> None:
        """Read what a follower says, until its end."""
        try:
            while True:
                kind, content = follower.channel.receive()
                if kind == b"e":
                    self._lose(follower, content.decode())
                elif kind == b"v":
                    self._visit(int.from_bytes(content, "little"))
                elif kind == b"n":
                    follower.joined.set()
                elif kind == b"k":
                    follower.ready.set()
                    follower.answered += 1
                    done = int.from_bytes(content, "little")
                    follower.done = max(follower.done, done)
        except (OSError, EOFError, KeyError):
            code = None if follower.process is None else follower.process.poll()
            self._lose(follower, "ended" if code is None else f"ended with {code}")
        finally:
            follower.ready.set()
            follower.joined.set()

    def _watch(self) -> None:
        """Ask followers for what they have done while work is in flight; give one up that does not answer."""
        while not self._closed.is_set() and not self._lost.is_set():
            self._busy.wait()
            silent = {follower: (follower.answered, 0.0) for follower in self._followers}
            slow = {follower: (follower.done, 0.0) for follower in self._followers}
            while self._busy.is_set() and not self._lost.is_set() and not self._closed.wait(PING_SECONDS):
                for follower in self._followers:
                    with contextlib.suppress(OSError):  # who listens says so
                        follower.channel.send(b"p")
                    self._count(silent, follower, follower.answered, ANSWER_SECONDS, "does not answer")
                    if follower.done < self._number:
                        self._count(slow, follower, follower.done, STALL_SECONDS, "does not get on")
        while self.is_stuck and self._watchdog is not None:
            self._watchdog.beat()
            time.sleep(BEAT_SECONDS)

    def _count(
        self, waited: dict[Follower, tuple[int, float]], follower: Follower, now: int, limit: float, what: str
    ) -> None:
        """Count the seconds during which a number does not grow, and give the follower up at the limit."""
        before, seconds = waited[follower]
        waited[follower] = now, 0.0 if now != before else seconds + PING_SECONDS
        if waited[follower][1] >= limit:
            self._lose(follower, f"{what} for {limit:.0f} s")

    def _lose(self, follower: Follower, why: str) -> None:
        """Give the group up: the others are killed, which ends every collective operation that waits for them."""
        with self._lock:
            if self._closed.is_set() or self._lost.is_set():
                return
            self._reason = f"process {follower.rank} of this model's group {why}"
            self._lost.set()
            self.is_stuck = self._watchdog is not None and self._busy.is_set()
        then = "the program has to be started again" if self.is_stuck else "the next one starts the group anew"
        log.error("%s: its requests fail, and %s", self._reason, then)
        for each in self._followers:
            each.end_now()
        stand_in(self._ends)
        self._busy.set()
        self._on_lost()
