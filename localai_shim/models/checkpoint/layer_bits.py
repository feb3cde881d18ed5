"""Settings of quantization by layer, under the names that the model's layers have.

A converter may write a layer's name as the original checkpoint has it, which the model's code changes while it loads.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ...types import Json

if TYPE_CHECKING:
    import mlx.core as mx

log = logging.getLogger("localai_shim")

_MAX_NAMED = 3
_PARTS = ("weight", "scales", "biases")


def with_layers_names(
    quantization: Json, layers: Collection[str], raw: Mapping[str, mx.array], weights: Mapping[str, mx.array]
) -> Json:
    """Settings whose layers have the model's names; a log line names those of no layer.

    Args:
        quantization: of a config.
        layers: names by which upstream's code finds settings.
        raw: tensors by the checkpoint's names.
        weights: the same ones by the model's.
    """
    named = {id(array): name.rpartition(".")[0] for name, array in weights.items()}
    made, lost = dict(quantization), []
    for layer, settings in quantization.items():
        if not isinstance(settings, dict | bool) or layer in layers:
            continue
        arrays = [raw[name] for part in _PARTS if (name := f"{layer}.{part}") in raw]
        places = {named.get(id(array)) for array in arrays}
        if len(places) != 1 or None in places:
            lost += [layer] if isinstance(settings, dict) else []
        elif (place := places.pop()) in layers:  # any other one is of a part that is skipped
            made.setdefault(str(place), settings)
    if lost:
        more = f" and {len(lost) - _MAX_NAMED} more" if len(lost) > _MAX_NAMED else ""
        log.warning(
            "config.json: 'quantization' has settings for layers that the model does not have: %s%s",
            ", ".join(lost[:_MAX_NAMED]),
            more,
        )
    return made
