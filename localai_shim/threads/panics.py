"""Errors of libraries that are not about what they were given: panics in Rust, Ctrl-C, and a lack of resources."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM))


class PanicError(RuntimeError):
    """A library in Rust panicked over what it was given: a pattern of a tokenizer that backtracks for too long."""


def panics_are_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function raise `PanicError` instead of a panic; all else that it raises stays as it is.

    pyo3 makes a BaseException of a panic, as of Ctrl-C, so that no handler of errors would see it.
    """

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            if not is_panic(error):
                raise
            raise PanicError(str(error)) from error

    return guarded


def is_panic(error: BaseException) -> bool:
    """True for a panic; each library has its own class for it."""
    return type(error).__name__ == "PanicException" and type(error).__module__ == "pyo3_runtime"


def is_interruption(error: BaseException) -> bool:
    """True for an error that pydantic raises when Ctrl-C interrupts it.

    The SDK's models are built at first use, and pydantic turns whatever is raised meanwhile into one SchemaError, whose
    text ends with the first error's name. The next use builds the model again.
    """
    return type(error).__name__ == "SchemaError" and str(error).rstrip().endswith("KeyboardInterrupt:")


def is_shortage(error: BaseException | None) -> bool:
    """True for a lack of memory, space or descriptors, itself or as the cause: another time there may be enough."""
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SHORTAGES):
            return True
        error = error.__cause__ or error.__context__
    return False
