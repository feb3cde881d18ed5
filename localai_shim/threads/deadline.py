"""Limits of what is done before a model runs, known to all code that does it: a request's deadline, and a budget.

A request's deadline is looked at between items, pieces of a download and turns of a template's loops, and once more
before anything is submitted.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from .system import sleep

T = TypeVar("T")
log = logging.getLogger("localai_shim")
TRIAL_SECONDS = 2.0  # ten times what large templates take
END_SECONDS = 5.0  # that the interpreter's end waits for what computes


class Overdue(BaseException):
    """The caller no longer waits for this request. No `Exception`: those of templates and processors are caught."""


class Deadline:
    """Time by which a request has to be answered.

    Args:
        seconds: from `since` on; None: it has time.
        since: as `time.monotonic` says; None: now.
    """

    __slots__ = ("at",)

    def __init__(self, seconds: float | None = None, since: float | None = None) -> None:
        self.at = math.inf if seconds is None else (time.monotonic() if since is None else since) + seconds

    def left(self) -> float | None:
        """Seconds that are left, 0 or more; None: as many as it takes."""
        return None if self.at == math.inf else max(0.0, self.at - time.monotonic())

    def abandon(self) -> None:
        """The caller no longer waits: all work for the request stops at its next check."""
        self.at = -math.inf

    def check(self) -> None:
        """Raise Overdue where it is over."""
        if time.monotonic() >= self.at:
            raise Overdue


_current: contextvars.ContextVar[Deadline | None] = contextvars.ContextVar("deadline", default=None)
"""A context's, so that threads that begin work for a request have it, too."""


@contextlib.contextmanager
def until(deadline: Deadline) -> Iterator[None]:
    """Have what is done in the context stop when the deadline is over, see `check`."""
    with contextlib.ExitStack() as stack:  # which resets it even if an interrupt comes at any line of this
        stack.callback(_current.reset, _current.set(deadline))
        yield


_computing: list[Deadline] = []
"""Deadlines of work that computes, each once for each thread."""
os.register_at_fork(after_in_child=_computing.clear)  # which has none of the threads


@contextlib.contextmanager
def computing(deadline: Deadline) -> Iterator[None]:
    """Do what `until` does, and have the interpreter end after what is done in the context.

    A thread that comes back from a library in Rust, such as a tokenizer or a grammar's compiler, into an interpreter
    that is ending would be unwound there, and crash the process.
    """
    _computing.append(deadline)
    try:
        with until(deadline):
            yield
    finally:
        _computing.remove(deadline)


@atexit.register
def _end() -> None:
    """Have all that computes stop, and wait until it has."""
    for deadline in tuple(_computing):
        deadline.abandon()
    latest = time.monotonic() + END_SECONDS
    while _computing and time.monotonic() < latest:
        sleep(0.001)


def current() -> Deadline | None:
    """Deadline of what is done here; None: it has none."""
    return _current.get()


def left() -> float | None:
    """Seconds that are left for what is done here; None: as many as it takes."""
    deadline = _current.get()
    return None if deadline is None else deadline.left()


_allowed: contextvars.ContextVar[float | None] = contextvars.ContextVar("allowed", default=None)
"""The `time.thread_time` at which the budget is spent; None: nothing limits the work."""


class OverBudget(BaseException):
    """The budget is spent. No `Exception`, for the same reason as `Overdue`."""


class Budget:
    """Computing time for what is found out about a model by trial, such as how its chat template takes conversations.

    It is counted as the CPU time of the thread that tries, so that a busy machine finds out the same.

    Args:
        seconds: of CPU time, for all that is found out.

    Attributes:
        is_over: something was given up.
    """

    def __init__(self, seconds: float = TRIAL_SECONDS) -> None:
        self._total = self._left = seconds
        self.is_over = False

    def find(self, what: str, find: Callable[[], T], otherwise: Callable[[], T]) -> T:
        """Result of `find`; where that costs more than is left it is given up, and the result is that of `otherwise`.

        Args:
            what: for the log, where one line tells of the first that was given up.
        """
        if _allowed.get() is not None:  # a part of what is found out already, and paid for there
            return find()
        began = time.thread_time()
        before = _allowed.set(began + self._left)
        try:
            check()
            return find()
        except OverBudget:
            if not self.is_over:
                text = "a chat template takes long: it was tried for %.3g s of CPU time, and %s was not found out"
                log.warning(text, self._total, what)
            self.is_over = True
        finally:
            _allowed.reset(before)
            self._left -= time.thread_time() - began
        return otherwise()


def check() -> None:
    """Raise Overdue if no caller waits for the current work any more, and OverBudget if it costs too much.

    Costs a tenth of a microsecond.
    """
    deadline = _current.get()
    if deadline is not None and time.monotonic() >= deadline.at:
        raise Overdue
    allowed = _allowed.get()
    if allowed is not None and time.thread_time() >= allowed:
        raise OverBudget
