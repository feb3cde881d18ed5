"""LongRoPE's factors, and YaRN with `truncate: false`, if upstream's layers read a config in another way.

A config has two lists of LongRoPE's factors: up to the original context, and beyond it. A sequence cannot change from
one list to the other, because the keys in its cache are rotated already. mlx-lm always takes the factors for long
contexts. mlx-vlm looks at the longest row of a batch, so other requests would change an answer. Here the context that
the model is loaded with decides, as in vLLM and llama.cpp.

gpt-oss sets `truncate: false`, which upstream's layers do not read; vLLM had the same fault (vllm-project/vllm#27722).
"""

from __future__ import annotations

import logging
import math

import mlx.core as mx
import numpy as np
from mlx import nn

from ...types import Json
from .reading import TEXT_PARTS
from .rope import Rope, main_kind, read_rope

log = logging.getLogger("localai_shim")

_SCALED_LAYER = "SuScaledRoPE"
_LIMIT = "original_max_position_embeddings"
_ANY = 2**31 - 1  # positions are int32
_SHORT, _LONG = "short_factor", "long_factor"


def choose_factors(model: nn.Module, config: Json, context_length: int | None) -> None:
    """Let the layers of a model rotate with one list of factors.

    Args:
        config: a `translated` one.
        context_length: the longest prompt, if it is not the config's.
    """
    layers = [layer for layer in model.modules() if type(layer).__name__ == _SCALED_LAYER]
    if not layers:
        return
    text = config
    while inner := next((text[key] for key in TEXT_PARTS if isinstance(text.get(key), dict)), None):
        text = inner
    original = layers[0].original_max_position_embeddings
    longest = context_length or text.get("max_position_embeddings") or _ANY
    short = longest <= original
    log.info("LongRoPE: '%s', because the context has %d tokens", _SHORT if short else _LONG, longest)
    for layer in layers:
        if hasattr(layer, "_short_freqs"):  # mlx-vlm's
            setattr(layer, _LIMIT, _ANY if short else 0)
        elif short:
            _shorten(layer, text)


def _shorten(layer: nn.Module, config: Json) -> None:
    """Give a layer of mlx-lm the factors for short contexts."""
    scaling = config["rope_scaling"]
    short, long = (mx.array(scaling.get(name, 1.0)) for name in (_SHORT, _LONG))  # MiniCPM3 may have none
    layer._freqs = layer._freqs * (short / long)
    layer._scale = scaling.get("short_mscale") or layer._scale  # PhiMoE has both
    mx.eval(layer._freqs)


_LAYER = "YarnRoPE"
_TABLE = "_freqs"  # positions per radian, for each pair of values


def set_untruncated(model: nn.Module, config: Json) -> None:
    """Let the layers of a model rotate without whole numbers as bounds of the ramp, if its config says so.

    Args:
        config: a `translated` one.
    """
    text = config
    while inner := next((text[key] for key in TEXT_PARTS if isinstance(text.get(key), dict)), None):
        text = inner
    kinds = read_rope(text)
    rope = kinds[main_kind(kinds)] if kinds else Rope()
    if rope.kind != "yarn" or (rope.scaling or {}).get("truncate", True) is not False:
        return
    layers = [each for each in model.modules() if type(each).__name__ == _LAYER and hasattr(each, _TABLE)]
    for layer in layers:
        setattr(layer, _TABLE, _table(rope, layer.dims))
    if not layers:
        log.warning("config.json: 'truncate' of the RoPE scaling is false, but the code of this model computes true")


def _table(rope: Rope, size: int) -> mx.array:
    """Positions per radian: interpolated for slow pairs, as without scaling for fast ones, with a ramp between them."""
    said = rope.scaling or {}
    theta, factor = float(rope.theta), float(said["factor"])
    length = said["original_max_position_embeddings"]

    def pair(rotations: float) -> float:
        """The pair that turns this often in the original context."""
        return float(size * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(theta)))

    low, high = max(pair(said.get("beta_fast") or 32), 0.0), min(pair(said.get("beta_slow") or 1), size - 1.0)
    ramp = np.clip((np.arange(size // 2) - low) / (max(high - low, 0) or 0.001), 0, 1)
    angles = theta ** (-np.arange(0, size, 2) / size)
    return mx.array((1 / (angles / factor * ramp + angles * (1 - ramp))).astype(np.float32))
