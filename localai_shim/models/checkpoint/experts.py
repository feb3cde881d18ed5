"""Experts as transformers saves them without packing, in the form that upstream's code reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...types import Json

if TYPE_CHECKING:
    import mlx.core as mx

_GPT_OSS = re.compile(r"(.*\.mlp\.experts)\.(gate_up_proj|down_proj)(_bias)?")


def with_experts(weights: dict[str, mx.array], config: Json) -> dict[str, mx.array]:
    """A checkpoint's tensors, with each expert's matrices by the names and the layout of the model's layers.

    The code for gpt-oss reads packed experts, whose layout is another one than that of plain ones.
    """
    found = {name: _GPT_OSS.fullmatch(name) for name in weights} if config.get("model_type") == "gpt_oss" else {}
    if not any(found.values()) or any(name.endswith("_blocks") for name in weights):
        return weights
    made: dict[str, mx.array] = {}
    for name, array in weights.items():
        place = found[name]
        if place is None:
            made[name] = array
            continue
        experts, layer, is_bias = place.groups()
        part = "bias" if is_bias else "weight"
        if not is_bias:
            array = array.swapaxes(-1, -2)
        if layer == "down_proj":
            made[f"{experts}.down_proj.{part}"] = array
            continue
        for first, half in enumerate(("gate_proj", "up_proj")):
            made[f"{experts}.{half}.{part}"] = array[:, first::2]
    return made
