"""Recurrent layers that compute their states again for fewer tokens than a step ran.

A state cannot be cut. If some of a step's tokens were wrong drafts, the layer is called again with the same input and
the states before the step, for the tokens that stay. Its projections return what they returned in the step, so only
the convolution's weights are read. MLX is lazy, so the layer's own output, which nothing uses, is never computed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import mlx.core as mx
from mlx import nn

from ...backends.patches import Function


class _Projection:
    """A child of a layer that computes the layer's input once, and anything else as usual.

    Args:
        layer: the child.
        x: the layer's input.
        made: the child's output for it; None: not known yet.
    """

    def __init__(self, layer: nn.Module, x: mx.array, made: mx.array | None = None) -> None:
        self.layer, self.made, self._x = layer, made, x

    def __call__(self, x: mx.array, *others: mx.array) -> mx.array:
        if x is not self._x or others:
            return self.layer(x, *others)  # type: ignore[no-any-return]
        if self.made is None:
            self.made = self.layer(x)
        return self.made


def keeping_inputs(upstream: Function) -> Function:
    """Let the cache of a step of several tokens have a function that computes the states again: see `StateSlots`.

    It calls upstream's method again with other `lengths` of the cache. All these layers read them: the states are those
    after this number of tokens of each row.
    """

    def call(
        self: nn.Module, inputs: mx.array, mask: mx.array | None = None, cache: Any = None, **options: object
    ) -> mx.array:
        if not getattr(cache, "keeps_inputs", False):
            return upstream(self, inputs, mask, cache, **options)
        with _projecting(self, {name: _Projection(self[name], inputs) for name in _names(self)}) as used:
            out = upstream(self, inputs, mask, cache, **options)
        made = {name: each.made for name, each in used.items() if each.made is not None}
        cache.again = partial(_states, upstream, self, inputs, made, cache)
        return out

    return call


def _states(
    upstream: Function,
    layer: nn.Module,
    inputs: mx.array,
    made: dict[str, mx.array],
    cache: Any,
    before: Sequence[mx.array | None],
    kept: Sequence[int],
) -> list[mx.array | None]:
    """Compute the states again, lazily.

    Args:
        made: what projections returned for the inputs.
        before: the states before the step.
        kept: `[rows]` tokens that stay.
    """
    again, count = copy.copy(cache), max(kept)
    again.cache, again.lengths, again.keeps_inputs = list(before), mx.array(list(kept)), False
    x = inputs[:, :count]
    with _projecting(layer, {name: _Projection(layer[name], x, y[:, :count]) for name, y in made.items()}):
        upstream(layer, x, again.make_mask(count), again)
    return list(again.cache)


def _names(layer: nn.Module) -> list[str]:
    """Children that may project the input; a convolution's weights are read as attributes."""
    children = layer.children().items()
    return [name for name, its in children if isinstance(its, nn.Module) and not isinstance(its, nn.Conv1d)]


@contextmanager
def _projecting(layer: nn.Module, projections: dict[str, _Projection]) -> Iterator[dict[str, _Projection]]:
    """Let these stand for a layer's children."""
    dict.update(layer, projections)
    try:
        yield projections
    finally:
        dict.update(layer, {name: each.layer for name, each in projections.items()})
