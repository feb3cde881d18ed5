"""Timelines that a client records of its engines."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Protocol, TypeVar, runtime_checkable

from ..threads.system import RLock
from ..types import EngineLike
from ..types.timeline import Recorded, Recording

EngineT = TypeVar("EngineT", bound=EngineLike)


@runtime_checkable
class _Recorder(Protocol):
    """An engine that records timelines, as scripted ones do not."""

    def record(self) -> Recording: ...


class ClientRecording:
    """A recording of all engines that a client uses meanwhile.

    Args:
        engines: that it uses already.
    """

    def __init__(self, engines: Iterable[EngineLike] = ()) -> None:
        self._recordings: list[Recording] = []
        self._is_over = False
        for engine in engines:
            self.add(engine)

    def add(self, engine: EngineLike) -> None:
        """Record another engine from now on."""
        if isinstance(engine, _Recorder) and not self._is_over:
            self._recordings.append(engine.record())
            if self._is_over:  # a finalizer, or another thread, has stopped the others meanwhile
                self.stop()

    def read(self) -> list[Recorded]:
        """The timelines of the engines so far."""
        return [recording.read() for recording in [*self._recordings]]

    def stop(self) -> None:
        """Stop recording. The timelines can still be read."""
        self._is_over = True
        for recording in [*self._recordings]:
            recording.stop()


class Timelines:
    """The recordings of a client and its copies.

    Attributes:
        whole: of everything that the client does; None: it was not asked for.
    """

    def __init__(self) -> None:
        self.whole: ClientRecording | None = None
        self._lock = RLock()
        self._engines: weakref.WeakSet[EngineLike] = weakref.WeakSet()
        """Those that the client uses."""
        self._running: list[ClientRecording] = []

    def record_all(self) -> None:
        """Record everything that the client does."""
        self.whole = self.start()

    def start(self) -> ClientRecording:
        """Start a recording."""
        with self._lock:
            made = ClientRecording([*self._engines])
            self._running.append(made)
            return made

    def noted(self, engine: EngineT) -> EngineT:
        """Record this engine, too, if it is a new one; returns it."""
        if engine not in self._engines:
            with self._lock:
                if engine not in self._engines:
                    self._engines.add(engine)
                    for recording in self._running:
                        recording.add(engine)
        return engine

    def end(self, recording: ClientRecording) -> None:
        """Stop a recording."""
        with self._lock:
            self._running.remove(recording)
        recording.stop()

    def stop(self) -> None:
        """Stop all recordings. Takes no lock: finalizers call it, which may run on a thread that holds any."""
        for recording in [*self._running]:
            recording.stop()
