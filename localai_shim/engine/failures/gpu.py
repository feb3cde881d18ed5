"""Exceptions of a GPU that refuses further work, or has stopped work that took too long."""

from __future__ import annotations

import threading

from ...types import EngineClosedError
from .. import threads
from ..ports import host


class _Thread(threading.local):
    timed_out = False


_thread = _Thread()
"""An engine's: passes that take too long are its model's."""


def note_gpu_fault(error: BaseException) -> EngineClosedError | None:
    """Note on the engine's thread what an error says about the GPU.

    Returns:
        The error of all requests of this process from now on, if the GPU refuses its work.
    """
    fault = host().machine.gpu_fault(error)
    if fault == "timeout":
        _thread.timed_out = True
    elif fault == "refuses":
        threads.refuse(
            "the GPU refuses all further work of this process, because earlier work failed; restart the process. "
            f"MLX's error: {error}"
        )
        return threads.refusal()
    return None


def take_timeout() -> bool:
    """True if the GPU has stopped work of this thread's engine since the last call, because it took too long."""
    timed_out, _thread.timed_out = _thread.timed_out, False
    return timed_out
