"""Attention and an activation as MLX's CPU back end is best at them on x86, where its `exp` takes three times as long
as its `power`.

Of MLX 0.32.4, on one core of an Emerald Rapids, per number: exp 23 ns, sigmoid 28, power 7, products and sums 0.4. A
step of 16 tokens for each of 8 rows spends more than half of its time in these exponentials. The exp of NumPy takes
0.6 ns: what is run `at_once` has it compute them.
"""

from __future__ import annotations

import contextlib
import functools
import math
import platform
import sys
import threading
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx_lm.models import activations, base

from .forms import Array, Function, Mask, upstream_attention, use_forms

FEWEST_SCORES, FEWEST_GATES = 4_096, 1_024  # numbers below which the operations themselves cost more
FEWEST_AT_ONCE = 16_384  # numbers below which waiting for them costs more than NumPy saves

_swiglu: Function = activations.swiglu
_thread = threading.local()


def use_cpu_forms(model: nn.Module, *, enabled: bool | None = None) -> int:
    """Have a model's code call what is here; returns how many functions changed, see `use_forms`.

    Args:
        enabled: whether to do it; None does it on an x86 CPU and nowhere else.
    """
    if not (on_x86_cpu() if enabled is None else enabled):
        return 0
    swiglus = {_swiglu, getattr(sys.modules.get("mlx_vlm.models.activations"), "swiglu", _swiglu)}
    attentions = {attention: attending(attention) for attention in upstream_attention()}
    return use_forms(model, {**dict.fromkeys(swiglus, swiglu), **attentions})


def on_x86_cpu() -> bool:
    """Whether this is where these forms are faster."""
    return mx.default_device() == mx.Device(mx.cpu) and platform.machine() in ("x86_64", "AMD64")


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """In this thread, have NumPy compute exponentials as soon as they are asked for, where they are many.

    For passes that are waited for. All their inputs have to be there: a graph that is built before its tokens are known
    would be computed of what stands in their place.
    """
    before = getattr(_thread, "at_once", False)
    _thread.at_once = True
    try:
        yield
    finally:
        _thread.at_once = before


def exp_of(x: mx.array) -> mx.array:
    """e to the power of x, float32. `x` was computed for this alone: it may be overwritten."""
    view = _numbers(x)
    if view is None:
        return mx.power(math.e, x)
    with np.errstate(all="ignore"):
        np.exp(view, out=view)
    return x


def _numbers(x: mx.array) -> npt.NDArray[np.float32] | None:
    """The numbers of an array, to be overwritten, where they are to be computed at once; None where they are not."""
    if x.size < FEWEST_AT_ONCE or not getattr(_thread, "at_once", False):
        return None
    try:
        mx.eval(x)
    except (ValueError, RuntimeError):  # it has none in what `mx.compile` traces
        return None
    view = np.array(x, copy=False)
    return view if view.flags.c_contiguous else None


@functools.cache
def attending(upstream: Function) -> Function:
    """A function like upstream's, to which what is not known here is left."""

    def attend(
        queries: Array, keys: Array, values: Array, cache: Any, scale: float, mask: Mask, sinks: Array | None = None
    ) -> Array:
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


scaled_dot_product_attention = attending(base.scaled_dot_product_attention)


def swiglu(gate: mx.array, x: mx.array) -> mx.array:
    """As upstream's function of this name: silu(gate) * x."""
    if gate.dtype != mx.float32 or gate.size < FEWEST_GATES:
        return _swiglu(gate, x)
    return gate / (1 + exp_of(-gate)) * x


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
            mask = (mask.astype(mx.float32) - 1) * mx.finfo(mx.float32).max  # `where` takes 9 ns a number
        scores = (scores.reshape(rows, heads, tokens, columns) + mask).reshape(rows, key_heads, -1, columns)
    weights = _weights(scores)
    out = (weights @ values) / weights.sum(axis=-1, keepdims=True)
    return out.reshape(rows, heads, tokens, -1)


def _weights(scores: mx.array) -> mx.array:
    """e to the power of scores, less the most of their row. They may be overwritten."""
    view = _numbers(scores)
    if view is None:
        return mx.power(math.e, scores - scores.max(axis=-1, keepdims=True))
    with np.errstate(all="ignore"):
        view -= view.max(axis=-1, keepdims=True)
        np.exp(view, out=view)
    return scores


def _causal(tokens: int, columns: int) -> mx.array:
    """The last tokens see all up to themselves: `[tokens, columns]` bool."""
    return mx.arange(columns) <= mx.arange(columns - tokens, columns)[:, None]
