"""A tokenizer for the processor that it is part of, which several threads call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ...threads.cache import LRUCache
from ...threads.system import RLock

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

P = ParamSpec("P")
R = TypeVar("R")
_KEPT_TEXTS = 8


class OneAtATime:
    """A tokenizer whose methods run in one thread at a time: fast ones are not re-entrant.

    Encodings of its last texts are kept: a processor makes it read one of thousands of placeholders for each image,
    the same one for images of one size.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._made, self._lock = tokenizer, RLock()
        self._kept: LRUCache[BatchEncoding] = LRUCache(_KEPT_TEXTS)

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):  # before there is one, as in a copy
            raise AttributeError(name)
        value = getattr(self._made, name)
        return self._locked(value) if inspect.ismethod(value) else value

    def __call__(self, *args: object, **options: object) -> object:
        from transformers import BatchEncoding

        key = _key(args, options)
        if key is None:
            return self._locked(self._made)(*args, **options)
        with self._lock:
            made = self._kept.get(key)
            if made is None:
                made = self._made(*args, **options)
                if not isinstance(made, BatchEncoding):
                    return made
                self._kept.put(key, made)
        return _copy(made)

    def __len__(self) -> int:
        return len(self._made)

    def _locked(self, call: Callable[P, R]) -> Callable[P, R]:
        def run(*args: P.args, **options: P.kwargs) -> R:
            with self._lock:
                return call(*args, **options)

        return run


def _key(args: Sequence[object], options: Mapping[str, object]) -> Hashable | None:
    """Equal for equal calls with a list of texts; None for others."""
    if len(args) != 1 or type(args[0]) is not list or "return_tensors" in options:
        return None
    values = (*args[0], *options.values())
    plain = all(value is None or isinstance(value, str | int) for value in values)
    return (*args[0], *sorted(options.items())) if plain else None


def _copy(made: BatchEncoding) -> BatchEncoding:
    """The same encoding with its own lists: processors may write to them."""
    other = object.__new__(type(made))
    vars(other).update(vars(made), data={name: [[*row] for row in rows] for name, rows in made.items()})
    return other
