"""A limit of the CPU time that reading one file may take."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from ..threads import deadline
from .document import DocumentError

DOCUMENT_SECONDS = 30.0
"""Of a processor, for reading one file."""
_CALLS_PER_CHECK = 1000


class _OverTimeError(BaseException):
    """The time is over. No `Exception`: parsers catch those, and continue with the next object."""


class TimeLimit:
    """CPU time of the current thread, which begins now.

    Args:
        seconds: how much there is.
    """

    def __init__(self, seconds: float = DOCUMENT_SECONDS) -> None:
        self._seconds, self._end = seconds, time.thread_time() + seconds

    def check(self) -> None:
        """Compare what was used with the limit.

        Raises:
            DocumentError: more than the limit was used.
            Overdue: the request that the file is for is over.
        """
        deadline.check()
        if time.thread_time() > self._end:
            raise self._error()

    @contextlib.contextmanager
    def at_each_call(self) -> Iterator[None]:
        """Check while a library in Python runs in the context, which never comes back to ask.

        Python calls a thread's profile function at every call of a function, so one that raises ends any loop. It makes
        the library two to four times as slow, which is still less than the time that a model takes to read the text.

        Raises:
            DocumentError: more than the limit was used.
            Overdue: the request that the file is for is over.
        """
        calls = 0

        def check(*_: object) -> None:
            nonlocal calls
            calls += 1
            if calls % _CALLS_PER_CHECK:
                return
            deadline.check()
            if time.thread_time() > self._end:
                raise _OverTimeError

        before = sys.getprofile()
        sys.setprofile(check)
        try:
            yield
        except _OverTimeError:
            raise self._error() from None
        finally:
            sys.setprofile(before)

    def _error(self) -> DocumentError:
        return DocumentError(f"it takes longer than {self._seconds:g} seconds to read; split or simplify the file")
