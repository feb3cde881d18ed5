"""YaRN as transformers computes it with `truncate: false`, which upstream's layers do not read; gpt-oss has it.

vLLM had the same fault (vllm-project/vllm#27722).
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import numpy as np

from ...types import Json
from .reading import TEXT_PARTS
from .rope import Rope, main_kind, read_rope

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn

log = logging.getLogger("localai_shim")

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
    import mlx.core as mx

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
