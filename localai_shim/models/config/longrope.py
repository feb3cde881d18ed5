"""LongRoPE's factors, of which a config has two lists: up to the original context, and beyond it.

A sequence cannot change from one list to the other, because the keys in its cache are rotated already. mlx-lm always
takes the factors for long contexts. mlx-vlm looks at the longest row of a batch, so other requests would change an
answer. Here the context that the model is loaded with decides, as in vLLM and llama.cpp.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...types import Json
from .reading import TEXT_PARTS

if TYPE_CHECKING:
    from mlx import nn

log = logging.getLogger("localai_shim")

_LAYER = "SuScaledRoPE"
_LIMIT = "original_max_position_embeddings"
_ANY = 2**31 - 1  # positions are int32
_SHORT, _LONG = "short_factor", "long_factor"


def choose_factors(model: nn.Module, config: Json, context_length: int | None) -> None:
    """Let the layers of a model rotate with one list of factors.

    Args:
        config: a `translated` one.
        context_length: the longest prompt, if it is not the config's.
    """
    layers = [layer for layer in model.modules() if type(layer).__name__ == _LAYER]
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
    import mlx.core as mx

    scaling = config["rope_scaling"]
    short, long = (mx.array(scaling.get(name, 1.0)) for name in (_SHORT, _LONG))  # MiniCPM3 may have none
    layer._freqs = layer._freqs * (short / long)
    layer._scale = scaling.get("short_mscale") or layer._scale  # PhiMoE has both
    mx.eval(layer._freqs)
