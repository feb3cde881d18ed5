"""Softmax and activations by other functions than those of MLX's CPU back end, which are slow on x86.

Of MLX 0.32.4, on one core, per number: exp 23 ns, sigmoid 28, power 7 to 10, products and sums 0.5. NumPy's exp takes
0.5 ns, but it needs its numbers immediately. If a pass is waited for as soon as its graph exists (`at_once`: prompts,
images, steps of several tokens), that costs little. Otherwise attention and `swiglu` use `power`, and other activations
are MLX's.
Compared with MLX's own forms (two cores), a prompt of 600 tokens of the bundled model takes half of the time, an image
of 224 x 224 takes 80 %, and a step of 32 rows 88 %. A step of 16 tokens for each of these rows takes 60 % (35 ms; 57
without `swiglu`). A step of one row takes the same time.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from ...engine.cache_contents import Shared
from .. import shared_attention as portable
from ..machine import on_x86_cpu
from ..patches import Array, Function, Mask, Patch, Replaced, attention_patches, replace, replaced, with_names
from . import rotary

# erf(x) = x P(x^2) / Q(x^2) for |x| up to 4, and 1 beyond, as Eigen computes it; the lowest powers first.
_P = (
    -1.60960333e-02,
    -2.95459981e-03,
    -7.34990631e-04,
    -5.69250639e-05,
    -2.10102402e-06,
    2.77068143e-08,
    -2.7261423e-10,
)
_Q = (-1.42647391e-02, -7.37332917e-03, -1.68282698e-03, -2.13374055e-04, -1.45660719e-05)
_MOST = 4.0


def gelu_on_cpu(x: mx.array) -> mx.array:
    """By products and sums: 16 ns of a core's time for a number, where `nn.GELU` takes 56. Errors: 3e-7 of x."""
    t = mx.clip(x * math.sqrt(0.5), -_MOST, _MOST)
    square, half = t * t, x * 0.5
    return half + half * (t * _polynomial(_P, square) / _polynomial(_Q, square))


def _polynomial(factors: Sequence[float], x: mx.array) -> mx.array:
    made = x * factors[-1] + factors[-2]
    for factor in factors[-3::-1]:
        made = made * x + factor
    return made


FEWEST_SCORES = 4_096  # numbers below which the operations themselves cost more
FEWEST_AT_ONCE = 8_192  # numbers below which NumPy gains less than waiting for them costs
FEWEST_BY_POWER = 2_048  # of a gate

Activation = Callable[[mx.array], mx.array]
_thread = threading.local()


@contextmanager
def at_once(now: bool = True) -> Iterator[None]:
    """A pass that this thread builds meanwhile may be computed as it is built; not where gradients are wanted."""
    before, _thread.at_once = _computes_at_once(), now
    try:
        yield
    finally:
        _thread.at_once = before


def use_x86_forms(model: nn.Module) -> int:
    """Have a model's layers compute in these forms; returns how many layers changed."""
    if not any(type(layer).__module__.startswith("mlx_vlm.") for layer in model.modules()):
        return replace(model, replaced(PATCHES))
    activations = {id(layer): layer for layer in model.modules() if type(layer) in _LAYERS}  # FastVLM's share one
    for layer in activations.values():
        layer.__class__ = _LAYERS[type(layer)]
    return len(activations) + replace(model, (*replaced(PATCHES), *_MODULES))  # towers call MLX itself


# -- attention -------------------------------------------------------------------------------------------------------


@functools.cache
def attending(upstream: Function) -> Function:
    """Upstream's `scaled_dot_product_attention` in float32, with its own softmax."""

    def attend(
        queries: Array, keys: Array, values: Array, cache: object, scale: float, mask: Mask, sinks: Array | None = None
    ) -> Array:
        tokens, columns = queries.shape[2], keys.shape[2] if isinstance(keys, mx.array) else 0
        scores = queries.shape[0] * queries.shape[1] * tokens * columns
        known = sinks is None and not hasattr(cache, "bits") and (not isinstance(mask, str) or mask == "causal")
        if not known or scores < FEWEST_SCORES or queries.dtype != mx.float32:
            return upstream(queries, keys, values, cache, scale, mask, sinks)
        if isinstance(mask, str):  # the last tokens see all up to themselves
            mask = mx.arange(columns) <= mx.arange(columns - tokens, columns)[:, None] if tokens > 1 else None
        return _attend(queries, keys, values, scale, mask)

    return attend


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
    weights = _exp(scores - scores.max(axis=-1, keepdims=True))
    out = (weights @ values) / weights.sum(axis=-1, keepdims=True)
    return out.reshape(rows, heads, tokens, -1)


def attend_shared(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    shared: Shared,
    scale: float,
    mask: Mask,
    sinks: mx.array | None = None,
) -> mx.array:
    """Attention to tokens that rows share, and to their own; see `shared_attention.attend_shared`."""
    exp = _exp if on_x86_cpu() else mx.exp
    return portable.attend_shared(queries, keys, values, shared, scale, mask, sinks, exp)


def _exp(x: mx.array) -> mx.array:
    """Exponentials, which may be written over their exponents: no other array may share their memory."""
    if x.size >= FEWEST_AT_ONCE and _computed(x):
        np.exp(_view(x), out=_view(x))
        return x
    return mx.power(math.e, x)


def _softmax_by_numpy(scores: mx.array, mask: mx.array | None) -> mx.array:
    """The softmax of scores, written over them: no other array may share their memory."""
    weights = _view(scores)
    if mask is not None:
        given = _view(mask if mask.dtype == mx.bool_ else mask.astype(mx.float32))
        weights += given if given.dtype != np.bool_ else np.where(given, 0, np.finfo(np.float32).min)
    with np.errstate(all="ignore"):  # a query that sees nothing is no number, as MLX has it, and no warning
        weights -= weights.max(axis=-1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=-1, keepdims=True)
    return scores


def attention(
    queries: mx.array, keys: mx.array, values: mx.array, *, scale: float, mask: Mask = None, **more: Any
) -> mx.array:
    """Attention with the signature of `mx.fast.scaled_dot_product_attention`."""
    if more:
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask, **more)
    return attending(_mlx_s)(queries, keys, values, None, scale, mask)


def _mlx_s(q: mx.array, k: mx.array, v: mx.array, cache: object, scale: float, mask: Mask, sinks: object) -> mx.array:
    return mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=mask)


def _fused(q: mx.array, k: mx.array, v: mx.array, scale: float, mask: Mask = None) -> mx.array:
    """mlx-vlm's `ensure_fused_sdpa`, which fills heads up to sizes that Metal has kernels for."""
    return attention(q, k, v, scale=scale, mask=mask)


# -- activations -----------------------------------------------------------------------------------------------------


def _by_sigmoid(inner: Activation, upstream: Function) -> Activation:
    """x * sigmoid(inner(x)), as `upstream` computes it where it is not computed at once."""

    def activation(x: mx.array) -> mx.array:
        if x.dtype == mx.float32 and x.size >= FEWEST_AT_ONCE and _computed(minus := -inner(x)):
            with np.errstate(all="ignore"):
                power = np.exp(_view(minus))
                return x / (1 + mx.array(power))
        return upstream(x)

    return activation


@functools.cache
def _gated(upstream: Function) -> Function:
    """Upstream's `swiglu`: silu(gate) * x."""

    def swiglu(gate: mx.array, x: mx.array) -> mx.array:
        if gate.dtype != mx.float32 or gate.size < FEWEST_BY_POWER:
            return upstream(gate, x)
        if gate.size < FEWEST_AT_ONCE or not _computed(gate, x):
            return gate * x / (1 + mx.power(1 / math.e, gate))
        out = np.negative(_view(gate))
        with np.errstate(all="ignore"):  # what is divided by infinity is 0
            np.exp(out, out=out)
            out += 1
            np.divide(_view(gate), out, out=out)
            out *= _view(x)
        return mx.array(out)

    return swiglu


silu = _by_sigmoid(lambda x: x, nn.silu)
gelu_approx = _by_sigmoid(lambda x: x * (0.044715 * x * x + 1) * math.sqrt(8 / math.pi), nn.gelu_approx)
gelu_fast_approx = _by_sigmoid(lambda x: 1.702 * x, nn.gelu_fast_approx)


def gelu(x: mx.array) -> mx.array:
    """GELU with the signature of `nn.gelu`."""
    return gelu_on_cpu(x) if x.dtype == mx.float32 else nn.gelu(x)


class _Silu(nn.SiLU):  # type: ignore[misc]
    def __call__(self, x: mx.array) -> mx.array:
        return silu(x)


class _Gelu(nn.GELU):  # type: ignore[misc]
    def __call__(self, x: mx.array) -> mx.array:
        return _GELUS[self._approx](x)


def _computes_at_once() -> bool:
    return getattr(_thread, "at_once", False)


def _computed(*arrays: mx.array) -> bool:
    """True if these are to be computed at once; then they have been."""
    if not _computes_at_once():
        return False
    try:
        mx.eval(*arrays)
    except (ValueError, RuntimeError):  # there are no numbers yet in what `mx.compile` traces
        return False
    return True


def _view(array: mx.array) -> npt.NDArray[np.float32]:
    """MLX's own memory, without a copy."""
    return np.array(array, copy=False)


_GELUS = {"none": gelu, "precise": gelu_approx, "tanh": gelu_approx, "fast": gelu_fast_approx}
_LAYERS: dict[type, type] = {nn.SiLU: _Silu, nn.GELU: _Gelu}
_MODULES: Replaced = (
    (mx, with_names(mx, fast=with_names(mx.fast, scaled_dot_product_attention=attention, rope=rotary.rope))),
    (nn, with_names(nn, silu=silu, gelu=gelu, gelu_approx=gelu_approx, gelu_fast_approx=gelu_fast_approx)),
)
PATCHES = (
    *attention_patches(attending),
    Patch("mlx_vlm.models.base", "ensure_fused_sdpa", lambda _: _fused, "e11a2ef57c93"),
    Patch("mlx_lm.models.activations", "swiglu", _gated, "5cc2248bc31c"),
    Patch("mlx_vlm.models.activations", "swiglu", _gated, "5cc2248bc31c"),
)
