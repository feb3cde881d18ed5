"""A small model that sees, made of a tiny one for text: its tower is one product, and positions are embeddings.

What its answers depend on, beyond the text: the features in their places, positions that pictures shift (as in MRoPE
models, here a row of a table that is added to each embedding), and, if wanted, all of a first pass in one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.ports import Features, PassOutput, ProcessedMedia, StepInput
from localai_shim.models.loading import load_model
from localai_shim.models.text import TextModel
from localai_shim.types import Prompt
from tests.engine.harness import quantised_by
from tests.tiny import tiny

MAX_POSITIONS = 1024


class _Embeddings(nn.Module):
    """Gives what was put in, and the table's rows otherwise."""

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = table
        self.given: mx.array | None = None

    def __call__(self, tokens: mx.array) -> mx.array:
        given, self.given = self.given, None
        return self.table(tokens) if given is None else given

    def as_linear(self, x: mx.array) -> mx.array:
        return self.table.as_linear(x)


class Positions:
    """A row's state: two placeholders share a position, and what follows goes on from there."""

    def __init__(self, prompt: Prompt) -> None:
        steps = np.ones(len(prompt.tokens), dtype=np.int64)
        for span in prompt.media:
            steps[span.places[1::2]] = 0
        self.known = np.cumsum(steps) - 1
        self.delta = int(self.known[-1]) + 1 - len(self.known)

    def at(self, start: int, count: int) -> np.ndarray:
        """Positions of tokens of a chunk, those of the output included."""
        beyond = np.arange(len(self.known), max(len(self.known), start + count)) + self.delta
        return np.concatenate([self.known, beyond])[start : start + count]


class Seeing(TextModel):
    """Wraps the model of a `TextModel` that was loaded.

    Attributes:
        items: digests of what went through the tower.
        before_item: called before; may wait or raise.
        in_one: placeholders see all of their item, in a first pass which ends after the last one.
    """

    def __init__(self, loaded: TextModel, *, in_one: bool = False) -> None:
        self.__dict__.update(loaded.__dict__)
        self.in_one = in_one
        self.items: list[int] = []
        self.before_item: Callable[[int], None] = lambda digest: None
        inner = self._model.model
        hidden = inner.embed_tokens.weight.shape[1]
        self._embeddings = inner.embed_tokens = _Embeddings(inner.embed_tokens)
        key = mx.random.key(7)
        self._tower = mx.random.normal((8, hidden), key=key) * 0.5
        self._positions = mx.random.normal((MAX_POSITIONS, hidden), key=key) * 0.1
        mx.eval(self._tower, self._positions)

    def embed(self, media: ProcessedMedia) -> Features:
        self.before_item(media.digest)
        self.items.append(media.digest)
        rows = mx.tanh(mx.array(media.inputs["patches"]) @ self._tower)
        mx.eval(rows)
        return Features(rows)

    def row_state(self, prompt: Prompt) -> Positions | None:
        return Positions(prompt) if prompt.media else None

    def first_pass(self, prompt: Prompt) -> int:
        return prompt.media[-1].stop if self.in_one and prompt.media else 0

    def prefill(self, step: StepInput, *, wait: bool = True) -> PassOutput[mx.array | None]:
        self._put_in(step)
        return super().prefill(StepInput(step.tokens, step.layers, step.counts, ends=step.ends), wait=wait)

    def forward(self, step: StepInput) -> PassOutput[mx.array]:
        self._put_in(step)
        return super().forward(StepInput(step.tokens, step.layers, step.counts))

    def _put_in(self, step: StepInput) -> None:
        rows, count = step.tokens.shape
        offset = next(layer.offset for layer in step.layers if hasattr(layer, "offset"))
        h = self._embeddings.table(step.tokens)
        if rows == 1 and isinstance(offset, int):
            h = self._with_media(h, step, offset)
            state = step.state[0] if step.state else None
            at = state.at(offset, count) if isinstance(state, Positions) else np.arange(offset, offset + count)
            positions = mx.array(at[None])
        else:
            starts = mx.broadcast_to(mx.array(offset), (rows,))
            deltas = [state.delta if isinstance(state, Positions) else 0 for state in step.state or [None] * rows]
            positions = (starts + mx.array(deltas))[:, None] + mx.arange(count)
        self._embeddings.given = h + self._positions[positions]

    def _with_media(self, h: mx.array, step: StepInput, start: int) -> mx.array:
        for span, features in step.media:
            inside = [i for i, place in enumerate(span.places) if start <= place < start + h.shape[1]]
            at = mx.array([int(span.places[i]) - start for i in inside])
            rows = features.rows[mx.array(inside)]
            if self.in_one and start == 0:
                rows = rows + rows.mean(axis=0)
            h = mx.put_along_axis(h, mx.broadcast_to(at[None, :, None], (1, *rows.shape)), rows[None], axis=1)
        return h


def seeing(
    kind: str, options: EngineOptions | None = None, *, kv: Any = None, head_dim: int | None = None, **how: bool
) -> Engine[Seeing]:
    """An engine of its own over such a model."""
    path = str(tiny(kind) if head_dim is None else tiny(kind, head_dim=head_dim))
    return Engine(lambda: Seeing(load_model(path, quantised_by(kv)), **how), options)


_alone: dict[tuple[str, tuple[bool, ...]], Seeing] = {}
_lock = threading.Lock()


def alone(kind: str, prompt: Prompt, count: int, **how: bool) -> list[int]:
    """What such a model answers greedily without an engine: the prompt in one pass, then a token at a time."""
    with _lock:
        key = (kind, tuple(how.values()))
        if key not in _alone:
            _alone[key] = Seeing(load_model(str(tiny(kind)), {}), **how)
        model = _alone[key]
        media = [(span, model.embed(span.media)) for span in prompt.media]
        state = [model.row_state(prompt)]
        layers = model.new_cache()
        out: list[int] = []
        step = StepInput(mx.array([prompt.tokens]), layers, state=state, media=media)
        for _ in range(count):
            out.append(int(mx.argmax(model.forward(step).logits[0, -1]).item()))
            step = StepInput(mx.array([[out[-1]]]), layers, state=state)
        return out
