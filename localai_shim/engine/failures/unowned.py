"""Exceptions that belong to no request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx

from ...types import ModelLoadError, log
from ..mirror import journal as mirror
from ..ports import host
from .gpu import note_gpu_fault


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
