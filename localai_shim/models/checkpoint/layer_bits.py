"""Settings of quantization by layer, under the names that the model's layers have.

A converter may write a layer's name as the original checkpoint has it, which the model's code changes while it loads.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...types import Json

if TYPE_CHECKING:
    import mlx.core as mx

log = logging.getLogger("localai_shim")

_MAX_NAMED = 3
_OUTER = ("model", "language_model")
_PARTS = ("weight", "scales", "biases")


def _short(layer: str) -> str:
    """A layer's name without the parts that differ between forms of a checkpoint."""
    return ".".join(part for part in layer.split(".") if part not in _OUTER)


def with_layers_names(
    quantization: Json, layers: Mapping[str, str], raw: Mapping[str, mx.array], weights: Mapping[str, mx.array]
) -> Json:
    """Settings whose layers have the model's names; a log line names those of no layer.

    Args:
        quantization: of a config.
        layers: names by which upstream's code finds settings, and the layers that have them.
        raw: tensors by the checkpoint's names.
        weights: the same ones by the model's.
    """
    named = {id(array): name.rpartition(".")[0] for name, array in weights.items()}
    paths = set(layers.values())
    short = Counter(_short(path) for path in paths)
    only = {name: path for path in paths if short[name := _short(path)] == 1}
    made, lost = dict(quantization), []
    for layer, settings in quantization.items():
        if not isinstance(settings, dict | bool) or layer in layers:
            continue
        arrays = [raw[name] for part in _PARTS if (name := f"{layer}.{part}") in raw]
        places = {named.get(id(array)) for array in arrays} or {only.get(_short(layer))}
        place = places.pop() if len(places) == 1 else None
        if place is None:
            lost += [layer] if isinstance(settings, dict) else []
        elif place in layers:  # any other one is of a part that is skipped
            made.setdefault(place, settings)
    if lost:
        more = f" and {len(lost) - _MAX_NAMED} more" if len(lost) > _MAX_NAMED else ""
        log.warning(
            "config.json: 'quantization' has settings for layers that the model does not have: %s%s",
            ", ".join(lost[:_MAX_NAMED]),
            more,
        )
    return made
