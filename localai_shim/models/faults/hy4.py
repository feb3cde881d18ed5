"""Mends of faults in mlx-vlm's code of Hy4."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import mlx.core as mx
from mlx import nn

from ...backends.patches import class_like, replace
from ...types import Json


def rotate_last(model: nn.Module, config: Json) -> None:
    """The indexer's queries and keys have the part with positions last."""

    def rotating(dims: int) -> Callable[..., mx.array]:
        def rotate(self: nn.Module, x: mx.array, *args: object, **kwargs: object) -> mx.array:
            return mx.concatenate([x[..., :-dims], self.upstream_call(x[..., -dims:], *args, **kwargs)], axis=-1)

        return rotate

    for layer in model.modules():
        if type(layer).__name__ == "HyV4Indexer":
            kind = type(layer.rope)
            members = {"__call__": rotating(layer.rope_head_dim), "upstream_call": kind.__call__}
            layer.rope.__class__ = class_like(kind, members)


def _best_keys(top_k: int, masked: bool) -> Callable[..., mx.array]:
    """Choose a query's keys.

    Upstream compiles this for any number of keys. `kth` counts from their end, and is resolved only once.
    """

    def partition(q: mx.array, k: mx.array, weights: mx.array, mask: mx.array | None = None) -> mx.array:
        scores = mx.maximum(q @ k.swapaxes(-1, -2), 0) * weights.swapaxes(-1, -2)[..., None]
        scores = scores.sum(axis=1, keepdims=True)
        return mx.argpartition(scores if mask is None else mx.where(mask, scores, -mx.inf), kth=-top_k, axis=-1)

    return partition


def choose_keys(model: nn.Module, config: Json) -> None:
    indexer = importlib.import_module("mlx_vlm.models.hy_v4.indexer")
    replace(model, ((indexer._partition_scores, _best_keys),))


def limit_experts(model: nn.Module, config: Json) -> None:
    """Routed experts clip what their gates multiply."""
    limit = config.get("swiglu_limit") or 0
    if limit <= 0:
        return

    def activation(up: mx.array, gate: mx.array) -> mx.array:
        limited: mx.array = nn.silu(mx.minimum(gate, limit)) * mx.clip(up, -limit, limit)
        return limited

    for layer in model.modules():
        if type(layer).__name__ == "FusedSwitchGLU":
            layer.activation = activation
