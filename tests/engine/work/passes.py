"""A model that embeds and does nothing else, and notes its passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mlx.core as mx

from localai_shim.engine.ports import TextHead
from localai_shim.models.heads.pooling import Pooling, Reading
from localai_shim.types import Task


class Head:
    """A head of two functions."""

    def __init__(self, encode: Callable[..., Any], begin: Callable[..., Any] = lambda text, skip: None) -> None:
        self._encode, self.begin = encode, begin

    def __call__(self, texts: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
        made: mx.array = self._encode(texts, skip)
        return made


class Passes:
    """Stands in for a model: a text's vector is (its length, its first token)."""

    name, tasks = "passes", ("embed",)

    @property
    def heads(self) -> Mapping[Task, TextHead]:
        return {"embed": Head(self.encode, self.begin)}

    def __init__(self) -> None:
        self.texts: list[list[list[int]]] = []
        self.fails: Callable[[Sequence[int]], bool] = lambda text: False
        self.in_pieces = self.fails_together = False
        self.begun: list[int] = []

    def encode(self, texts: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
        self.texts.append([list(text) for text in texts])
        if any(map(self.fails, texts)) or (self.fails_together and len(texts) > 1):
            raise ArithmeticError("a text that cannot be embedded")
        return mx.array([[float(len(text)), float(text[0])] for text in texts])

    def begin(self, text: Sequence[int], skip: int = 0) -> Reading | None:
        if not self.in_pieces:
            return None
        self.begun.append(text[0])

        def read(tokens: mx.array) -> mx.array:
            self.texts.append([tokens[0].tolist()])  # type: ignore[list-item]
            if self.fails(self.texts[-1][0]):
                raise ArithmeticError("a piece that cannot be read")
            return mx.broadcast_to(mx.array([float(len(text)), float(text[0])]), (1, tokens.shape[1], 2))

        return Reading(text, read, Pooling(["mean"], [len(text)]), lambda made: made)

    @property
    def lengths(self) -> list[list[int]]:
        return [sorted(map(len, texts)) for texts in self.texts]
