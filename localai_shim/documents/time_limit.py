"""A limit of the time that reading one file may take."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ..threads import deadline
from ..threads.system import Event, Lock, get_ident
from ..threads.workers import Workers
from .document import DocumentError

T = TypeVar("T")
DOCUMENT_SECONDS = 60.0
"""For reading one file. pypdf takes some hundredths of a second per page."""
_POLL_SECONDS = 0.1


class _OverTimeError(BaseException):
    """The time is over. No `Exception`: parsers catch those, and continue with the next object."""


class TimeLimit:
    """Time that begins now.

    Args:
        seconds: how much there is.
    """

    def __init__(self, seconds: float = DOCUMENT_SECONDS) -> None:
        self._seconds, self._end = seconds, time.monotonic() + seconds

    def check(self) -> None:
        """Compare the time with the limit.

        Raises:
            DocumentError: the time is over.
            Overdue: the request that the file is for is over.
        """
        deadline.check()
        if time.monotonic() > self._end:
            raise DocumentError(f"it takes longer than {self._seconds:g} seconds to read; split or simplify the file")

    def run(self, work: Callable[[], T]) -> T:
        """Call a library in Python that does not check the time itself, and end it when the time is over.

        Raises:
            DocumentError: the time is over.
            Overdue: the request that the file is for is over.
        """
        watch = _Watch(self.check)
        try:
            try:
                return work()
            finally:
                watch.end()
        except _OverTimeError as error:
            watch.end()
            self.check()
            raise DocumentError("reading was interrupted; try again") from error


class _Watch:
    """Another thread that raises an error in this one as soon as a check fails.

    Python raises it between two of its instructions, so that it ends any loop in Python.

    Args:
        check: raises when the time is over. It is called in the current context.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._thread = get_ident()
        self._lock, self._ended = Lock(), Event()
        _watchers.submit(partial(self._watch, check))

    def end(self) -> None:
        """End the watch. Nothing is raised in this thread afterwards. May be called again."""
        with self._lock:
            self._ended.set()
            _raise_in(self._thread, None)

    def _watch(self, check: Callable[[], None]) -> None:
        if get_ident() == self._thread:  # no other thread could be started
            return
        while not self._ended.wait(_POLL_SECONDS):
            try:
                check()
            except (DocumentError, deadline.Overdue):
                with self._lock:
                    if not self._ended.is_set():
                        _raise_in(self._thread, _OverTimeError)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raise an error in a thread at its next instruction; None: take an error back that was not raised yet."""
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


_watchers = Workers("reading")
