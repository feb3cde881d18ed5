"""Checks that a loaded model's layers rotate as its config says.

A setting that the model's class has no argument for, or that its code does not read, would be lost silently.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn

from ...types import Json, ModelLoadError
from .reading import TEXT_PARTS
from .rope import Rope, main_kind, read_rope

log = logging.getLogger("localai_shim")

Angles = npt.NDArray[np.float64]
"""Of each pair of values that is rotated, from one position to the next."""

_ROTARY = re.compile("rope|rotary", re.IGNORECASE)
_NUMBER = re.compile(r"\.(\d+)\.")
_TABLES = ("_freqs", "_long_freqs")  # positions per radian, which the classes of scaled rotations have
_LATENT = "qk_rope_head_dim"  # then the rotated part of a head has its own size
_TOLERANCE = 0.01  # more than rounding makes of an angle, and less than another base


class Rotary(NamedTuple):
    """A layer that rotates.

    Attributes:
        number: the layer's, where it is one of several.
        is_dynamic: its angles change beyond the usual context.
        is_scaled: its class scales them, even if that changes little.
    """

    number: int | None
    angles: Angles
    is_dynamic: bool
    is_scaled: bool


def check_rotation(model: nn.Module, config: Json) -> None:
    """Refuse a model whose layers rotate otherwise than its config says.

    Args:
        config: a `translated` one.

    Raises:
        ModelLoadError: says which setting has no effect.
    """
    text = config
    while inner := next((text[key] for key in TEXT_PARTS if isinstance(text.get(key), dict)), None):
        text = inner
    kinds = read_rope(text)
    layers = list(_rotaries(getattr(model, "language_model", model))) if kinds else []
    for kind, rope in kinds.items():
        if rope.kind == "dynamic" and not any(layer.is_dynamic for layer in layers):
            log.warning(
                "config.json: RoPE scaling 'dynamic' has no effect: prompts beyond the usual context are misread"
            )
            kinds[kind] = rope._replace(scaling=None)
        elif rope.scales and not layers:
            log.warning("config.json: '%s' RoPE scaling may have no effect: this model's code is not known", rope.kind)
    wrong = _wrong(layers, kinds, text) if layers else None
    if wrong is not None:
        raise ModelLoadError(
            f"config.json has RoPE settings that the code of '{text.get('model_type')}' does not compute: {wrong}. "
            "The model's answers would be wrong. To load it nevertheless, take the setting out of config.json."
        )


def _wrong(layers: Sequence[Rotary], kinds: Mapping[str, Rope], config: Json) -> str | None:
    """Describe the first layer that rotates otherwise than the config says; None if there is none."""
    types, size, main = config.get("layer_types"), _head_size(config), kinds[main_kind(kinds)]
    ropes = [main, *(rope for rope in kinds.values() if rope is not main)]
    if not isinstance(types, list) or len(kinds) == 1:
        # Nothing says which settings are whose: layers of other kinds may have what the class has for them.
        found = [_mismatch(layer, rope, size) for layer in layers for rope in ropes]
        return found[0] if all(found) else None
    for layer in layers:
        its = ropes
        if layer.number is not None and layer.number < len(types):
            kind = types[layer.number]
            its = [kinds[kind]] if kind in kinds else []
        found = [_mismatch(layer, rope, size) for rope in its]
        if found and all(found):
            return found[0]
    return None


def _mismatch(layer: Rotary, rope: Rope, size: int | None) -> str | None:
    """Describe the difference between a layer's rotation and these settings; None if there is none."""
    count = len(layer.angles)
    if isinstance(rope.partial, int | float) and size is not None and rope.kind != "proportional":
        expected = int(size * rope.partial)
        if abs(2 * count - expected) > 1:
            return f"partial_rotary_factor is {rope.partial}, but {2 * count} of {size} values of a head are rotated"
    theta = rope.theta
    if isinstance(theta, list):  # one for each layer
        theta = theta[layer.number] if layer.number is not None and layer.number < len(theta) else None
    if not isinstance(theta, int | float) or theta <= 0 or layer.is_dynamic or rope.kind == "proportional":
        return None
    plain = _unscaled(theta, 2 * count)
    is_plain = np.allclose(layer.angles, plain, rtol=_TOLERANCE, atol=0)
    if rope.scales:
        return f"'{rope.kind}' scaling is not computed" if is_plain and not layer.is_scaled else None
    return None if is_plain else f"rope_theta is {theta}, but {_base(layer.angles):.6g} is computed"


def _rotaries(model: nn.Module) -> Iterator[Rotary]:
    """Layers that rotate, of the classes whose numbers can be read."""
    for name, module in model.named_modules():
        kind = type(module).__name__
        angles = _angles(module) if _ROTARY.search(kind) else None
        if angles is not None and angles.ndim == 1:
            found = _NUMBER.search(name)
            number = None if found is None else int(found[1])
            is_scaled = any(hasattr(module, table) for table in _TABLES)
            yield Rotary(number, angles, kind.startswith("Dynamic"), is_scaled)


def _angles(module: nn.Module) -> Angles | None:
    for table in (*_TABLES, "_inv_freq", "inv_freq"):
        found = getattr(module, table, None)
        if isinstance(found, mx.array):
            numbers = np.array(found.astype(mx.float32), np.float64)
            return 1 / numbers if table in _TABLES else numbers
    base, size = getattr(module, "base", None), getattr(module, "dims", getattr(module, "dim", None))
    if not isinstance(base, int | float) or not isinstance(size, int):
        return None
    scaled: Angles = _unscaled(base, size) * getattr(module, "scale", 1.0)
    return scaled


def _unscaled(theta: float, size: int) -> Angles:
    return np.array(float(theta) ** (-np.arange(0, size, 2) / size), np.float64)


def _base(angles: Angles) -> float:
    return float(angles[1] ** -len(angles)) if len(angles) > 1 else 1.0


def _head_size(config: Json) -> int | None:
    """Values of a head; None if the config does not say, or if the rotated ones have their own number."""
    heads = config.get("num_attention_heads")
    if config.get(_LATENT) or not isinstance(heads, int) or not heads:
        return None
    size = config.get("head_dim") or config.get("hidden_size", 0) // heads
    return size if isinstance(size, int) and size else None
