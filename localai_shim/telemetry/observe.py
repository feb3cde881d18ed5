"""Observers of requests: each is called once per request, when it has ended."""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..threads.system import Lock, SimpleQueue, Thread, make_thread
from ..types import EngineLike, Work, log
from . import logs
from .timings import Observer, Served, measure

if TYPE_CHECKING:
    from ..endpoints.turn import AnyAssembler, Turn


def observe(
    method: str, path: str, operation: str | None, body: Mapping[str, object], started: float
) -> Observation | None:
    """An observation of a request that has begun; None: there is no observer.

    Runs where the caller is: observers note the caller's context here.

    Args:
        method, path, operation, body: see `Served`.
        started: when, as `time.monotonic` says.
    """
    observers: list[Observer] = [logs.write] if log.isEnabledFor(logging.INFO) else []
    if operation is not None and "opentelemetry" in sys.modules:  # nobody can have set it up otherwise
        try:
            from . import tracing

            tracer = tracing.observer()
        except Exception:  # such as a version that we do not know
            log.exception("OpenTelemetry could not be used; the request continues")
            tracer = None
        if tracer is not None:
            observers.append(tracer)
    return Observation(method, path, operation, body, started, observers) if observers else None


class Observation:
    """A request while it runs."""

    def __init__(
        self,
        method: str,
        path: str,
        operation: str | None,
        body: Mapping[str, object],
        started: float,
        observers: Sequence[Observer],
    ) -> None:
        self._endpoint, self._body, self._started = (method, path, operation), body, started
        self._observers = [observers]  # taken out once: by whoever ends the request first, on whatever thread
        self._engine: EngineLike | None = None
        self._rounds: Sequence[Sequence[Work]] = ()
        self._assembler: AnyAssembler | None = None
        self._in_background = False
        _late.start()

    def prepared(self, engine: EngineLike, turn: Turn) -> None:
        """The request was read. From here on it may end in the background."""
        self._engine, self._rounds, self._assembler = engine, turn.rounds, turn.assembler
        self._in_background = turn.background is not None

    def answered(self) -> None:
        """A whole answer was returned. Its response may still run in the background."""
        if not self._in_background:
            self.end(None)

    def end(self, error: BaseException | None) -> None:
        """Tell the observers, unless that was done. Raises nothing: the request may have been answered."""
        for observers in self._take():
            try:
                served = self._served(error)
            except Exception:
                log.exception("a request could not be observed")
            else:
                _tell(observers, served)

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        """A stream was dropped. That may be the garbage collector's doing, while this very thread holds any lock.

        At the interpreter's end no observer is called: threads have stopped, and modules are empty.
        """
        if is_ending():
            return
        for observers in self._take():
            _late.put(observers, self._served(GeneratorExit()))

    def _take(self) -> list[Sequence[Observer]]:
        try:
            return [self._observers.pop()]
        except IndexError:
            return []

    def _served(self, error: BaseException | None) -> Served:
        timings = measure([*itertools.chain(*self._rounds)], self._started, time.monotonic())
        answer_id: str | None = getattr(self._assembler, "id", None)
        if self._assembler is not None:
            reasons, reasoning = self._assembler.finish_reasons(), self._assembler.reasoning_tokens
            timings = replace(timings, finish_reasons=reasons or timings.finish_reasons, reasoning_tokens=reasoning)
        return Served(*self._endpoint, self._body, self._engine, answer_id, timings, error)


def _tell(observers: Sequence[Observer], served: Served) -> None:
    for observer in observers:
        try:
            observer(served)
        except Exception:
            log.exception("an observer of a request failed; the request did not")


class _Late:
    """A thread that tells observers of requests that were dropped."""

    def __init__(self) -> None:
        self._inbox: SimpleQueue[tuple[Sequence[Observer], Served]] = SimpleQueue()
        self._thread: Thread | None = None
        self._lock = Lock()

    def start(self) -> None:
        """Start the thread if it does not run; a forked process has none yet."""
        if self._thread is None or not self._thread.is_alive():
            with self._lock:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = make_thread(self._run, name="localai_shim:dropped")
                    with contextlib.suppress(RuntimeError):  # there are too many threads: the next one tries again
                        self._thread.start()

    def put(self, observers: Sequence[Observer], served: Served) -> None:
        """Tell them soon. Takes no lock."""
        self._inbox.put((observers, served))

    def _run(self) -> None:
        while True:
            _tell(*self._inbox.get())


_late = _Late()
