"""Functions by name, and one error in each of them."""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from collections.abc import Callable
from functools import reduce
from types import FrameType
from typing import Any

import pytest

PACKAGE = "localai_shim"
BESIDE = "beside"
"""Beginning of the names of threads that meet no fault."""


class Fault(ArithmeticError):
    """An error that is injected where nobody expects one of its kind."""


class Armed:
    """An error that the next call of a function raises, once.

    Args:
        patch: undoes it.
        place: `module:function` or `module:Class.method`, beneath the package; `module:mx.eval` are a module's calls
            of what is another's.
        raised: makes the error.
        after: calls that go well before it.
        times: how many calls raise it.
        beside: streams that run beside the request may meet it, too.

    Attributes:
        fired: set when it was raised.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        place: str,
        raised: Callable[[], BaseException] = Fault,
        after: int = 0,
        times: float = 1,
        *,
        beside: bool = False,
    ) -> None:
        self.fired = threading.Event()
        self._raised, self._due, self._lock = raised, (after, after + times), threading.Lock()
        self._calls, self._beside = 0, beside
        owner, name = find(place)
        module = f"{PACKAGE}.{place.partition(':')[0]}"
        foreign = inspect.ismodule(owner) and not owner.__name__.startswith(PACKAGE)
        self._caller = module if foreign and module in sys.modules else None
        static = inspect.getattr_static(owner, name)
        if isinstance(static, property):
            patch.setattr(owner, name, property(self._failing(static.fget)))
        elif isinstance(static, staticmethod | classmethod):
            patch.setattr(owner, name, type(static)(self._failing(static.__func__)))
        else:
            patch.setattr(owner, name, self._failing(static))

    def _failing(self, original: Any) -> Any:
        def failing(*given: Any, **more: Any) -> Any:
            if self._is_meant(sys._getframe(1)) and self._is_due():
                raise self._raised()
            return original(*given, **more)

        return failing

    def _is_meant(self, caller: FrameType) -> bool:
        if self._caller not in (None, caller.f_globals["__name__"]):
            return False
        return self._beside or not threading.current_thread().name.startswith(BESIDE)

    def _is_due(self) -> bool:
        with self._lock:
            first, end = self._due
            if due := first <= self._calls < end:
                self.fired.set()
            self._calls += 1
            return due


def find(place: str) -> tuple[Any, str]:
    """What holds a function, and its name there."""
    module, _, path = place.partition(":")
    *outer, name = path.split(".")
    try:
        found = importlib.import_module(f"{PACKAGE}.{module}")
    except ModuleNotFoundError:  # a library's
        found = importlib.import_module(module)
    if outer == ["mx"]:  # which some modules import in their functions
        return importlib.import_module("mlx.core"), name
    return reduce(getattr, outer, found), name


def home(place: str) -> str:
    """Place where a function is defined, which may be imported by the module that it is named in."""
    owner, name = find(place)
    static = inspect.getattr_static(owner, name)
    made: Any = static.fget if isinstance(static, property) else getattr(static, "__func__", static)
    made = inspect.unwrap(made)
    return f"{str(made.__module__).removeprefix(f'{PACKAGE}.')}:{made.__qualname__}"
