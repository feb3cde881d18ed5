"""Checks when a model is loaded that the device computes its operations as NumPy does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from .safe_attention import Call, calls, guard
from .shape import EPSILONS, Shape
from .verdicts import unsafe_sizes

PLAIN = "plain attention at sizes that failed the self-test"

Kind = tuple[tuple[str, Any], ...]
"""Fields of a shape that say how a kind of weights is packed, and their values."""


def check_device(model: nn.Module, build: Callable[[], mx.array], kv: tuple[int, int] | None = None) -> dict[str, int]:
    """Give a model's layers plain attention at sizes where the device's own is wrong; returns how many have it.

    Args:
        model: mlx-lm's or mlx-vlm's; changed in place if necessary.
        build: builds the logits of a pass, `[..., vocabulary]`, without evaluating them.
        kv: bits and group size of quantized keys and values that attention reads as they are.

    Raises:
        ModelLoadError: the device computes another operation wrongly.
    """
    built: list[mx.array] = []
    attended = calls(model, lambda: built.append(build()))
    failed = unsafe_sizes(shapes(model, attended, built[0].shape[-1], kv), attended)
    return {PLAIN: guard(model, failed)} if failed else {}


def shapes(
    model: nn.Module, attended: Sequence[Call], vocabulary: int, kv: tuple[int, int] | None = None
) -> list[Shape]:
    """Shapes of a model: one for each kind of its weights."""
    dtype = _dtype(model)
    call = attended[0] if attended else Call(None, 1, 1, 64, 64, dtype, False)  # type: ignore[arg-type]
    common: dict[str, Any] = {
        "head_dim": call.head_dim,
        "heads": call.heads,
        "kv_heads": call.kv_heads,
        "dtype": dtype,
        "vocabulary": vocabulary,
        "value_dim": call.value_dim,
        "sinks": call.sinks,
        **_rotation(model, call.head_dim),
    }
    if kv is not None:
        common["kv_bits"], common["kv_group_size"] = kv
    return [Shape(**common, **dict(kind), inputs=inputs) for kind, inputs in _weights(model).items()] or [
        Shape(**common)
    ]


def _dtype(model: nn.Module) -> str:
    """The dtype of most of a model's numbers that are not packed."""
    sizes = dict.fromkeys(EPSILONS, 0)
    for _, array in tree_flatten(model.parameters()):
        name = str(array.dtype).removeprefix("mlx.core.")
        if name in sizes:
            sizes[name] += array.size
    return max(sizes, key=lambda name: sizes[name])


def _weights(model: nn.Module) -> dict[Kind, int]:
    """Kinds of weights, as fields of a shape, each with the most inputs that a layer has."""
    kinds = dict[Kind, int]()
    for layer in model.modules():
        kind: Kind = ()
        inputs = 0
        if isinstance(layer, nn.QuantizedLinear):
            kind = (("bits", layer.bits), ("group_size", layer.group_size), ("mode", layer.mode))
            inputs = layer.weight.shape[-1] * 32 // layer.bits
        elif isinstance(layer, nn.Linear):
            inputs = layer.weight.shape[-1]
        if inputs:
            kinds[kind] = max(kinds.get(kind, 0), inputs)
    return kinds


def _rotation(model: nn.Module, head_dim: int) -> dict[str, Any]:
    """Fields of a shape that say how a model's layers rotate; the usual ones if none says."""
    for layer in model.modules():
        dims, traditional = getattr(layer, "dims", None), getattr(layer, "traditional", None)
        if isinstance(dims, int) and isinstance(traditional, bool) and dims <= head_dim:
            return {"rope_dims": dims, "traditional": traditional}
    return {"rope_dims": head_dim // 2 * 2}
