"""Attention and an activation as MLX's CPU back end is best at them on x86, where its `exp` takes three times as long
as its `power`.

Of MLX 0.32.4, on one core of an Emerald Rapids, per number: exp 23 ns, sigmoid 28, power 7, products and sums 0.4. A
step of 16 tokens for each of 8 rows spends more than half of its time in these exponentials.
"""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import activations, base

FEWEST_SCORES, FEWEST_GATES = 4_096, 1_024  # numbers below which the operations themselves cost more

Attention = Callable[..., mx.array]
_attention: Attention = base.scaled_dot_product_attention
_swiglu: Callable[[mx.array, mx.array], mx.array] = activations.swiglu


def use_cpu_forms(model: nn.Module, *, enabled: bool | None = None) -> int:
    """Have upstream's modules that this model is made of call what is here in place of upstream's functions.

    Models of the same architecture elsewhere in the process do so, too: what comes out is the same but for rounding.

    Args:
        model: mlx-lm's or mlx-vlm's.
        enabled: whether to do it; None does it on an x86 CPU and nowhere else.

    Returns:
        how many functions changed.
    """
    on_cpu = mx.default_device() == mx.Device(mx.cpu) and platform.machine() in ("x86_64", "AMD64")
    if not (on_cpu if enabled is None else enabled):
        return 0
    changed = 0
    forms: dict[object, Attention] = {_attention: scaled_dot_product_attention, _swiglu: swiglu}
    vision: Attention | None = getattr(sys.modules.get("mlx_vlm.models.base"), "scaled_dot_product_attention", None)
    if vision is not None and vision not in forms:
        forms[vision] = _attending(vision)
    for name in {type(module).__module__ for module in model.modules()}:
        module: Any = sys.modules[name]
        for function in ("scaled_dot_product_attention", "swiglu"):
            if (form := forms.get(getattr(module, function, None))) is not None:
                setattr(module, function, form)
                changed += 1
    return changed


def _attending(upstream: Attention) -> Attention:
    """A function like upstream's, to which what is not known here is left."""

    def attend(
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        cache: Any,
        scale: float,
        mask: mx.array | str | None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        tokens, columns = queries.shape[2], keys.shape[2] if isinstance(keys, mx.array) else 0
        scores = queries.shape[0] * queries.shape[1] * tokens * columns
        known = sinks is None and not hasattr(cache, "bits") and (not isinstance(mask, str) or mask == "causal")
        if not known or scores < FEWEST_SCORES or queries.dtype != mx.float32:
            return upstream(queries, keys, values, cache, scale, mask, sinks)
        if isinstance(mask, str):
            mask = _causal(tokens, columns) if tokens > 1 else None
        return _attend(queries, keys, values, scale, mask)

    vars(attend)["upstream"] = upstream  # `cuda_attention` looks for it
    return attend


scaled_dot_product_attention = _attending(_attention)


def swiglu(gate: mx.array, x: mx.array) -> mx.array:
    """As upstream's function of this name: silu(gate) * x."""
    if gate.dtype != mx.float32 or gate.size < FEWEST_GATES:
        return _swiglu(gate, x)
    return gate / (1 + mx.power(math.e, -gate)) * x


def _attend(queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: mx.array | None) -> mx.array:
    """Queries that share a key head are one matrix.

    Args:
        queries: `[rows, heads, tokens, dim]`.
        mask: bool, or to be added; broadcast to `[rows, heads, tokens, columns]`.
    """
    rows, heads, tokens, dim = queries.shape
    key_heads, columns = keys.shape[1], keys.shape[2]
    scores = (queries * scale).reshape(rows, key_heads, -1, dim) @ keys.swapaxes(-1, -2)
    if mask is not None:
        if mask.dtype == mx.bool_:
            mask = mx.where(mask, 0.0, mx.finfo(mx.float32).min)
        scores = (scores.reshape(rows, heads, tokens, columns) + mask).reshape(rows, key_heads, -1, columns)
    weights = mx.power(math.e, scores - scores.max(axis=-1, keepdims=True))
    out = (weights @ values) / weights.sum(axis=-1, keepdims=True)
    return out.reshape(rows, heads, tokens, -1)


def _causal(tokens: int, columns: int) -> mx.array:
    """The last tokens see all up to themselves: `[tokens, columns]` bool."""
    return mx.arange(columns) <= mx.arange(columns - tokens, columns)[:, None]
