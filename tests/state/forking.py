"""Processes that go on with a copy of this one's memory."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable


def fork(child: Callable[[], object]) -> int:
    """Start a process that runs `child`, and shares this one's memory as it is now; its id.

    The process ends within a minute, and with 0 where `child` returns.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python's, of forking with threads: that is the test
        pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        code = 1
        try:
            child()
            code = 0
        except BaseException as error:
            os.write(2, f"in the child: {error!r}\n".encode())
        finally:
            os._exit(code)
    return pid


def end(pid: int) -> int:
    """Wait for a process; its exit status, or the signal that ended it, negative."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
