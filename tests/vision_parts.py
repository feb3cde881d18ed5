"""What the small models of tests/vision_families.py are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SPECIALS = """<pad> <eos> <bos> <image> <|image_pad|> <|video_pad|> <|vision_start|> <|vision_end|> [IMG] [IMG_BREAK]
[IMG_END] <start_of_image> <end_of_image> <image_soft_token> <|image|> <|audio|> <|video|> <fake_token_around_image>
<global-img> <end_of_utterance> <row_1_col_1> <row_1_col_2> <row_2_col_1> <row_2_col_2> <img> </img> <IMG_CONTEXT>
<|im_start|> <|im_end|> <boi> <eoi> <|begin_of_image|> <|end_of_image|> <|media_pad|> <boa> <eoa>
<tool_call> </tool_call>""".split()  # noqa: SIM905
FIRST_ID = 256  # of these; before them are the bytes
ID = {text: FIRST_ID + i for i, text in enumerate(SPECIALS)}
VOCABULARY = 320

TEMPLATE = """{%- macro render(content) -%}
{%- if content is string -%}{{ content }}{%- else -%}
{%- for part in content or [] -%}
{%- if part['type'] == 'image' -%}IMAGE{%- elif part['type'] == 'video' -%}VIDEO
{%- elif part['type'] == 'audio' -%}AUDIO
{%- else -%}{{ part['text'] }}{%- endif -%}
{%- endfor -%}{%- endif -%}
{%- endmacro -%}
{%- if tools -%}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ render(message.content) }}
{%- for call in message.tool_calls or [] -%}{% set tool_call = call.function %}
<tool_call>{"name": "{{ tool_call.name }}", "arguments": {{ tool_call.arguments | tojson }}}</tool_call>
{%- endfor -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""
"""Parts in their places, tools, and calls as JSON in tags."""

QWEN_IMAGE, QWEN_VIDEO = (f"<|vision_start|><|{kind}_pad|><|vision_end|>" for kind in ("image", "video"))

TEXT: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "rope_theta": 10000.0,
    "max_position_embeddings": 2048,
    "head_dim": 8,
    "tie_word_embeddings": False,
}
EXPERTS = {"moe_intermediate_size": 16, "n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2}
_LATENT = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 8, "qk_nope_head_dim": 8}
DEEPSEEK: dict[str, Any] = {**TEXT, **EXPERTS, **_LATENT, "num_key_value_heads": 4, "first_k_dense_replace": 1}
GEMMA_WINDOW = {"sliding_window": 16, "sliding_window_pattern": 2}
GEMMA_EDGES = {f"{edge}_token": f"<{edge}>" for edge in ("boi", "eoi", "boa", "eoa")}
QWEN_TOWER: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 32,
    "embed_dim": 32,
    "num_heads": 2,
    "patch_size": 14,
    "in_channels": 3,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "intermediate_size": 48,
    "out_hidden_size": 32,
    "mlp_ratio": 2,
}
QWEN_PIXELS: dict[str, Any] = {
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "min_pixels": 28 * 28,
    "max_pixels": 28 * 28 * 4,
}
QWEN_IDS = {
    "image_token_id": ID["<|image_pad|>"],
    "video_token_id": ID["<|video_pad|>"],
    "vision_start_token_id": ID["<|vision_start|>"],
    "vision_end_token_id": ID["<|vision_end|>"],
}
SIGLIP: dict[str, Any] = {
    "model_type": "siglip_vision_model",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "patch_size": 14,
    "image_size": 56,
    "num_channels": 3,
    "layer_norm_eps": 1e-6,
}
PIXTRAL: dict[str, Any] = {
    "model_type": "pixtral",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "patch_size": 14,
    "image_size": 112,
    "num_channels": 3,
    "rms_norm_eps": 1e-5,
    "head_dim": 16,
    "rope_theta": 10000.0,
}


@dataclass(frozen=True)
class Family:
    """What a checkpoint of one family is made of."""

    config: dict[str, Any]
    pixels: dict[str, Any]
    """preprocessor_config.json"""
    processor: dict[str, Any] = field(default_factory=dict)
    """processor_config.json, if any."""
    image: str = "<image>"
    """What its template writes for an image."""
    video: str = ""
    audio: str = ""
    specials: dict[str, str] = field(default_factory=dict)
    """Names of special tokens in tokenizer_config.json."""
    images: int = 3
    """Most images of different sizes in a prompt that mlx-vlm itself can take."""
    template: str | None = TEMPLATE
    tokenizer: Callable[[Path], dict[str, Any]] | None = None
    """Saves one of its own and returns its config; None: of bytes and special tokens."""
