"""A tokenizer for the processor that it is part of, which several threads call."""

from __future__ import annotations

import inspect
import threading
from typing import Any


class OneAtATime:
    """A tokenizer whose methods run in one thread at a time: fast ones are not re-entrant."""

    def __init__(self, tokenizer: Any) -> None:
        self._made, self._lock = tokenizer, threading.RLock()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # before there is one, as in a copy
            raise AttributeError(name)
        value = getattr(self._made, name)
        return self._locked(value) if inspect.ismethod(value) else value

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._locked(self._made)(*args, **options)

    def __len__(self) -> int:
        return len(self._made)

    def _locked(self, call: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            with self._lock:
                return call(*args, **options)

        return run
