"""Exceptions that belong to no request, and what exceptions say about the GPU itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx

from ..types import EngineClosedError, ModelLoadError
from . import threads
from .mirror import journal as mirror
from .ports import host

log = logging.getLogger("localai_shim")


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


def load_error(what: str, cause: BaseException, *, transient: bool = False) -> ModelLoadError:
    """The error of a model that cannot be had; a lack of memory may pass, and the loss of another process."""
    refusal = note_gpu_fault(cause)
    transient = transient or host().machine.is_out_of_memory(cause) or mirror.lost(cause) is not None
    error = ModelLoadError(what if refusal is None else f"{what}: {refusal}", transient=transient)
    error.__cause__ = cause
    return error


def synchronize() -> None:
    """Wait for all that this thread has launched."""
    with logged("what was launched for requests failed"):
        mx.synchronize()


@contextmanager
def logged(what: str) -> Iterator[None]:
    """Log an exception that no request could fail with, and continue."""
    try:
        yield
    except BaseException as error:
        note_gpu_fault(error)
        log.exception(what)
