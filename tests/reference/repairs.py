"""What transformers 5.24 computes otherwise than the models' authors, or cannot run, mended for comparisons."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers.models.gemma4_unified import modeling_gemma4_unified
from transformers.models.hy_v4 import modeling_hy_v4


def _run_llama4() -> None:
    """Its model reads an attribute that its language model's outputs do not have."""
    transformers.modeling_outputs.MoeCausalLMOutputWithPast.image_outputs = None


def _rotate_pairs_in_hy_v4() -> None:
    """Tencent's checkpoints have RoPE of neighbors, not of halves: WestWaters/pollard-weights#70, and llama.cpp."""
    upstream = modeling_hy_v4.apply_rotary_pos_emb

    def halves(x: torch.Tensor) -> torch.Tensor:
        """Neighbors as halves: of queries and keys alike, so that scores stay the same."""
        return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)

    def rotated(q: torch.Tensor, k: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return upstream(halves(q), halves(k), *args, **kwargs)

    modeling_hy_v4.apply_rotary_pos_emb = rotated


def _see_nearby_in_gemma4_unified() -> None:
    """Only `generate` has Gemma 4's masks, in which layers without a window see no later tokens of an image."""
    upstream = modeling_gemma4_unified.create_masks_for_generate

    def masks(**kwargs: Any) -> Any:
        make = modeling_gemma4_unified.create_masks_for_vision_model if "block_sequence_ids" in kwargs else upstream
        return make(**kwargs)

    modeling_gemma4_unified.create_masks_for_generate = masks


def repair() -> None:
    _see_nearby_in_gemma4_unified()
    _run_llama4()
    _rotate_pairs_in_hy_v4()
