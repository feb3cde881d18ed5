"""Models of each kind of cache, with a chat template that drops thoughts of earlier turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tiny import AGENT_TURNS

from .models import SIZES, qwen3_config, save_model

THINKING = (
    AGENT_TURNS
    + """<think>
{% if enable_thinking is defined and not enable_thinking %}
</think>

{% endif %}
{%- endif -%}"""
)
"""As Qwen3's: the generation prompt opens a thought, or closes an empty one; thoughts before the last user message
are dropped."""

_VOCABULARY = 2_000
_COMMON: dict[str, Any] = {**qwen3_config(SIZES["small"], _VOCABULARY)}

FAMILIES: dict[str, dict[str, Any]] = {
    "dense": _COMMON,
    "sliding window": {
        **_COMMON,
        "model_type": "gemma3_text",
        "query_pre_attn_scalar": 64,
        "sliding_window": 512,
        "sliding_window_pattern": 2,
        "rope_local_base_freq": 10_000.0,
    },
    # Gated delta-net layers, whose states cannot be rewound, beside attention; experts.
    "hybrid": {
        **_COMMON,
        "model_type": "qwen3_next",
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "linear_conv_kernel_dim": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "shared_expert_intermediate_size": 256,
        "mlp_only_layers": [],
        "moe_intermediate_size": 256,
        "partial_rotary_factor": 0.5,
        "full_attention_interval": 2,
        "norm_topk_prob": True,
    },
}


def make_family(folder: Path, family: str) -> Path:
    """Save a model of a family."""
    save_model(folder, FAMILIES[family], THINKING)
    return folder
