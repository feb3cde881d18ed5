"""Attention and an activation as MLX's CPU back end is best at them on x86, where its `exp` takes three times as long
as its `power`.

Of MLX 0.32.4, on one core of an Emerald Rapids, per number: exp 23 ns, sigmoid 28, power 7 to 10, products and sums
0.5. A step of 16 tokens for each of 8 rows spends more than half of its time in these exponentials. NumPy's `exp` takes
0.5 ns, but it needs its numbers at once: what comes before in the graph has to be computed. Where a pass is computed as
soon as its graph is there (`at_once`), that costs little: one of 5 tokens for each of 32 rows takes three quarters.
"""

from __future__ import annotations

import functools
import math
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx_lm.models import activations, base

from ..forms import Array, Function, Mask, upstream_attention, use_forms

FEWEST_SCORES, FEWEST_GATES = 4_096, 1_024  # numbers below which the operations themselves cost more
FEWEST_AT_ONCE = 8_192  # numbers below which NumPy gains less than waiting for them costs

_swiglu: Function = activations.swiglu
_async_eval: Callable[..., None] = mx.async_eval
_thread = threading.local()


@contextmanager
def at_once(now: bool = True) -> Iterator[None]:
    """A pass that this thread builds meanwhile may be computed as it is built; not where gradients are wanted."""
    before, _thread.at_once = _computes_at_once(), now
    try:
        yield
    finally:
        _thread.at_once = before


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


def exp_of(x: mx.array) -> mx.array:
    """e to the power of x, float32. `x` is computed for this alone: it may be overwritten."""
    if x.size < FEWEST_AT_ONCE or not _computed(x):
        return mx.power(math.e, x)
    view = _view(x)
    if not view.flags.c_contiguous:  # several of its places may be one number
        return mx.power(math.e, x)
    with np.errstate(all="ignore"):
        np.exp(view, out=view)
    return x


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
        return _begun(_swiglu(gate, x))
    if gate.size >= FEWEST_AT_ONCE and _computed(gate, x):
        return _swiglu_by_numpy(gate, x)
    return _begun(gate / (1 + mx.power(math.e, -gate)) * x)


def _attend(queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: mx.array | None) -> mx.array:
    """Queries that share a key head are one matrix.

    Args:
        queries: `[rows, heads, tokens, dim]`.
        mask: bool, or to be added; broadcast to `[rows, heads, tokens, columns]`.
    """
    rows, heads, tokens, dim = queries.shape
    key_heads, columns = keys.shape[1], keys.shape[2]
    scores = (queries * scale).reshape(rows, key_heads, -1, dim) @ keys.swapaxes(-1, -2)
    if scores.size >= FEWEST_AT_ONCE and _computed(scores, *([] if mask is None else [mask])):
        weights = _softmax_by_numpy(scores.reshape(rows, heads, tokens, columns), mask)
        return (weights.reshape(rows, key_heads, -1, columns) @ values).reshape(rows, heads, tokens, -1)
    if mask is not None:
        if mask.dtype == mx.bool_:
            mask = (mask.astype(mx.float32) - 1) * mx.finfo(mx.float32).max  # `where` takes 9 ns a number
        scores = (scores.reshape(rows, heads, tokens, columns) + mask).reshape(rows, key_heads, -1, columns)
    weights = mx.power(math.e, scores - scores.max(axis=-1, keepdims=True))
    out = (weights @ values) / weights.sum(axis=-1, keepdims=True)
    return out.reshape(rows, heads, tokens, -1)


def _causal(tokens: int, columns: int) -> mx.array:
    """The last tokens see all up to themselves: `[tokens, columns]` bool."""
    return mx.arange(columns) <= mx.arange(columns - tokens, columns)[:, None]


def _computes_at_once() -> bool:
    return getattr(_thread, "at_once", False)


def _computed(*arrays: mx.array) -> bool:
    """Whether these are to be computed at once; then they have been."""
    if not _computes_at_once():
        return False
    try:
        mx.eval(*arrays)
    except (ValueError, RuntimeError):  # there are no numbers yet in what `mx.compile` traces
        return False
    return True


def _begun(array: mx.array) -> mx.array:
    """Have what has been built of a pass computed while the rest is built, where it may be computed at once.

    On two cores a step of 2, 3, 5 or 9 tokens of one row of the shipped checkpoint takes 13, 12, 16 or 6 % less.
    """
    if _computes_at_once():
        with suppress(ValueError):  # raised in what `mx.compile` and gradients trace
            _async_eval(array)
    return array


def _softmax_by_numpy(scores: mx.array, mask: mx.array | None) -> mx.array:
    """The softmax of scores, in their place: nobody else may have them."""
    weights = _view(scores)
    if mask is not None:
        given = _view(mask if mask.dtype == mx.bool_ else mask.astype(mx.float32))
        weights += given if given.dtype != np.bool_ else np.where(given, 0, np.finfo(np.float32).min)
    with np.errstate(all="ignore"):  # a query that sees nothing is no number, as MLX has it, and no warning
        weights -= weights.max(axis=-1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=-1, keepdims=True)
    return scores


def _swiglu_by_numpy(gate: mx.array, x: mx.array) -> mx.array:
    out = np.negative(_view(gate))
    with np.errstate(all="ignore"):  # what is divided by infinity is 0
        np.exp(out, out=out)
        out += 1
        np.divide(_view(gate), out, out=out)
        out *= _view(x)
    return mx.array(out)


def _view(array: mx.array) -> npt.NDArray[Any]:
    """MLX's own memory, without a copy."""
    return np.array(array, copy=False)
