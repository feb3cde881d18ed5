"""Panics of libraries that are written in Rust, such as tokenizers, as errors of the one call that they belong to."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class PanicError(RuntimeError):
    """A library in Rust panicked over what it was given: a pattern of a tokenizer that backtracks for too long."""


def panics_are_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Have a function raise `PanicError` where it would raise a panic; all else that it raises stays as it is.

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
    """True for a panic; each library has a class of its own for it."""
    return type(error).__name__ == "PanicException" and type(error).__module__ == "pyo3_runtime"
