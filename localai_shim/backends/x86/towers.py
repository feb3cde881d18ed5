"""Attention and activations of towers and encoders in the forms of `cpu_forms`: what they call in MLX itself.

mlx-vlm's code reads `mx.fast.scaled_dot_product_attention`, `nn.silu` and others through the names `mx` and `nn` of its
modules: there these names mean the same with some functions in other forms, and MLX's own are left alone. Layers of
MLX's classes get a class of the same kind.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from ..forms import with_names
from . import forms as cpu_forms
from .gelu import gelu_on_cpu

Activation = Callable[[mx.array], mx.array]
_BASE = "mlx_vlm.models.base"


def use_tower_forms(model: nn.Module, *, enabled: bool | None = None) -> int:
    """Have mlx-vlm's modules that a model is made of read the functions here in the place of MLX's.

    Models of the same architecture elsewhere in the process do so, too: what comes out is the same but for rounding.

    Args:
        model: some of its layers change as well.
        enabled: see `use_cpu_forms`.

    Returns:
        how many modules of Python changed.
    """
    if not (cpu_forms.on_x86_cpu() if enabled is None else enabled):
        return 0
    layers = model.modules()
    names = {kind.__module__ for layer in layers for kind in type(layer).__mro__}
    names = {name for name in names if name.startswith("mlx_vlm.")}
    if not names:
        return 0
    for layer in layers:
        if (form := _LAYERS.get(type(layer))) is not None:
            layer.__class__ = form
    return sum([_change(sys.modules[name]) for name in (_BASE, *sorted(names - {_BASE}))])


def _change(module: Any) -> bool:
    """Have a module read what is here; whether that is new to it."""
    its, forms = vars(module), dict[str, object]()
    if "ensure_fused_sdpa" in its and its["ensure_fused_sdpa"] is not _fused:
        forms["ensure_fused_sdpa"] = _fused
    if module.__name__ != _BASE:  # which calls what models do not
        forms |= {name: form for name, (of, form) in _MODULES.items() if its.get(name) is of}
    its.update(forms)
    return bool(forms)


def _by_power(factor: float) -> Activation:
    """x * sigmoid(factor * x)."""
    return lambda x: x / (1 + cpu_forms.exp_of(x * -factor))


def _gelu_approx(x: mx.array) -> mx.array:
    """By (1 + tanh(y)) / 2 = sigmoid(2 y)."""
    y = x * (0.044715 * x * x + 1) * -math.sqrt(8 / math.pi)
    return x / (1 + cpu_forms.exp_of(y))


def _for_many(form: Activation, upstream: Activation) -> Activation:
    """What calls a form where that takes less than upstream's function."""

    def activation(x: mx.array) -> mx.array:
        return form(x) if x.dtype == mx.float32 and x.size >= cpu_forms.FEWEST_GATES else upstream(x)

    return activation


silu = _for_many(_by_power(1.0), nn.silu)
gelu = _for_many(gelu_on_cpu, nn.gelu)
gelu_approx = _for_many(_gelu_approx, nn.gelu_approx)
gelu_fast_approx = _for_many(_by_power(1.702), nn.gelu_fast_approx)
_GELUS = {"none": gelu, "precise": gelu_approx, "tanh": gelu_approx, "fast": gelu_fast_approx}


class _Silu(nn.SiLU):  # type: ignore[misc]
    def __call__(self, x: mx.array) -> mx.array:
        return silu(x)


class _Gelu(nn.GELU):  # type: ignore[misc]
    def __call__(self, x: mx.array) -> mx.array:
        return _GELUS[self._approx](x)


def attention(
    queries: mx.array, keys: mx.array, values: mx.array, *, scale: float, mask: Any = None, **more: Any
) -> mx.array:
    """As `mx.fast.scaled_dot_product_attention`."""
    if more:
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask, **more)
    return _attend(queries, keys, values, None, scale, mask)


def _upstream(
    queries: mx.array, keys: mx.array, values: mx.array, cache: Any, scale: float, mask: Any, sinks: Any
) -> mx.array:
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)


def _fused(q: mx.array, k: mx.array, v: mx.array, scale: float, mask: Any = None) -> mx.array:
    """As mlx-vlm's `ensure_fused_sdpa`, which fills heads up to sizes that Metal has kernels for."""
    return attention(q, k, v, scale=scale, mask=mask)


_attend = cpu_forms.attending(_upstream)
_LAYERS: dict[type, type] = {nn.SiLU: _Silu, nn.GELU: _Gelu}
_MODULES: dict[str, tuple[ModuleType, ModuleType]] = {
    "mx": (mx, with_names(mx, fast=with_names(mx.fast, scaled_dot_product_attention=attention))),
    "nn": (nn, with_names(nn, silu=silu, gelu=gelu, gelu_approx=gelu_approx, gelu_fast_approx=gelu_fast_approx)),
}
"""By the name in upstream's code: what it means there, and what it is to mean."""
