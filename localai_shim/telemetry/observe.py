"""Observers of requests: each is called once per request, when it has ended. One writes a line to the log."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..threads.system import Lock, SimpleQueue, Thread, make_thread
from ..types import EngineLike, Work, log
from .timings import Observer, Served, between, measure

if TYPE_CHECKING:
    from ..endpoints.turn import AnyAssembler, Turn

VARIABLE = "LOCALAI_SHIM_LOG"
LEVELS = ("debug", "info", "warning", "error")


def follow_environment() -> None:
    """Set the logger's level to what `LOCALAI_SHIM_LOG` says, and have its lines on stderr if nothing takes them yet.

    Called when a client is made: importing the package changes nothing of the program's logging.
    """
    wanted = os.environ.get(VARIABLE, "").strip().lower()
    if not wanted:
        return
    if wanted not in LEVELS:
        log.warning("%s must be one of %s, not '%s': it has no effect", VARIABLE, ", ".join(LEVELS), wanted)
        return
    log.setLevel(wanted.upper())
    if not log.hasHandlers() and sys.stderr is not None:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        log.addHandler(handler)


Fields = dict[str, str | int | float]
"""Of a line, by name: seconds, counts, words."""


def write_line(served: Served) -> None:
    """Write the line of a request that has ended."""
    endpoint = f"{served.method.upper()} {served.path}"
    model = {} if served.model is None else {"model": served.model}
    if served.timings.adapter is not None:
        model["adapter"] = served.timings.adapter
    fields: Fields = {**model, **_timings(served), "total": served.timings.seconds, **_outcome(served)}
    words = "".join(f" {name}={_shown(name, value)}" for name, value in fields.items())
    log.info("%s%s", endpoint, words, extra={"request": {"endpoint": endpoint, **fields}})


def _timings(served: Served) -> Fields:
    timings = served.timings
    if timings.queued is None:
        return {}
    stages = {
        "prepare": timings.queued - timings.started,
        "queued": timings.queue_seconds,
        "prefill": between(timings.begun, timings.first_token),
        "ttft": timings.first_token_seconds,
    }
    fields: Fields = {name: seconds for name, seconds in stages.items() if seconds is not None}
    fields |= {"in": timings.input_tokens, "cached": timings.cached_tokens, "out": timings.output_tokens}
    decoded = timings.output_tokens - timings.rows
    if timings.first_token is not None and decoded > 0:
        fields["tok/s"] = decoded / max((timings.finished or timings.ended) - timings.first_token, 1e-9)
    return fields


def _outcome(served: Served) -> Fields:
    """Outcome of a request: with the kind of an error, not its message, which may quote the request."""
    error = served.error
    if isinstance(error, GeneratorExit):
        return {"finish": "left"}
    if error is not None:
        found = {name: getattr(error, name, None) for name in ("param", "code")}
        return {"error": type(error).__name__, **{name: str(value) for name, value in found.items() if value}}
    reasons = ",".join(dict.fromkeys(served.timings.finish_reasons))
    return {"finish": reasons} if reasons else {}


def _shown(name: str, value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.1f}" if name == "tok/s" else f"{value * 1000:.1f}ms"
    return str(value)


def observe(
    method: str, path: str, operation: str | None, body: Mapping[str, object], started: float
) -> Observation | None:
    """An observation of a request that has begun; None: there is no observer.

    Runs where the caller is: observers note the caller's context here.

    Args:
        method, path, operation, body: see `Served`.
        started: when, as `time.monotonic` says.
    """
    observers: list[Observer] = [write_line] if log.isEnabledFor(logging.INFO) else []
    if operation is not None and "opentelemetry" in sys.modules:  # nobody can have set it up otherwise
        try:
            from . import tracing

            tracer = tracing.observer()
        except Exception:  # such as a version that we do not know
            log.exception("OpenTelemetry could not be used; the request continues")
            tracer = None
        if tracer is not None:
            observers.append(tracer)
    return Observation((method, path, operation), body, started, observers) if observers else None


Endpoint = tuple[str, str, str | None]
"""Method, path, and operation: see `Served`."""


class Observation:
    """A request while it runs."""

    def __init__(
        self, endpoint: Endpoint, body: Mapping[str, object], started: float, observers: Sequence[Observer]
    ) -> None:
        self._endpoint, self._body, self._started = endpoint, body, started
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
