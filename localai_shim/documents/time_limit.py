"""A limit of the time that reading one file may take."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ..threads import deadline
from ..threads.system import Event, Lock, get_ident, sleep
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
        try:
            return self._watched(work)
        except _OverTimeError as error:
            self.check()
            raise DocumentError("reading was interrupted; try again") from error

    def _watched(self, work: Callable[[], T]) -> T:
        watch = _Watch(self.check)
        try:
            made = work()
        except BaseException as error:
            watch.end(has_come=isinstance(error, _OverTimeError))
            raise
        watch.end(has_come=False)
        return made


class _Watch:
    """Another thread that raises an error in this one, once, as soon as a check fails.

    Python raises it between two of its instructions, so that it ends any loop in Python.

    Args:
        check: raises when the time is over. It is called in the current context.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._thread = get_ident()
        self._lock, self._ended, self._raised = Lock(), Event(), False
        _watchers.submit(partial(self._watch, check))

    def end(self, *, has_come: bool) -> None:
        """End the watch. Nothing is raised in this thread afterwards.

        An error that is on its way is awaited. CPython cannot take it back: it would look for the error at each
        instruction from then on, and a profiler would hang.

        Args:
            has_come: the error has been raised.
        """
        while True:
            try:
                with self._lock:
                    self._ended.set()
                while self._raised and not has_come:
                    sleep(0)
                return
            except _OverTimeError:
                has_come = True

    def _watch(self, check: Callable[[], None]) -> None:
        if get_ident() == self._thread:  # no other thread could be started
            return
        while not self._ended.wait(_POLL_SECONDS):
            try:
                check()
            except (DocumentError, deadline.Overdue):
                with self._lock:
                    if not self._ended.is_set():
                        self._raised = True
                        _raise_in(self._thread, _OverTimeError)
                return


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise an error in a thread at its next instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


_watchers = Workers("reading")
