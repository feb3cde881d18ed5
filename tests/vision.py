"""Small models that see, with random weights, made on the spot through mlx-vlm's own classes; nothing is fetched."""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localai_shim.media import Media, MediaKind

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
{%- for call in message.tool_calls or [] -%}{% set function = call.function %}
<tool_call>{"name": "{{ function.name }}", "arguments": {{ function.arguments | tojson }}}</tool_call>
{%- endfor -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""
"""Parts in their places, tools, and calls as JSON in tags."""

QWEN_IMAGE, QWEN_VIDEO = (f"<|vision_start|><|{kind}_pad|><|vision_end|>" for kind in ("image", "video"))

_TEXT: dict[str, Any] = {
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
_QWEN_TOWER: dict[str, Any] = {
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
_QWEN_PIXELS: dict[str, Any] = {
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "min_pixels": 28 * 28,
    "max_pixels": 28 * 28 * 4,
}
_QWEN_IDS = {
    "image_token_id": ID["<|image_pad|>"],
    "video_token_id": ID["<|video_pad|>"],
    "vision_start_token_id": ID["<|vision_start|>"],
    "vision_end_token_id": ID["<|vision_end|>"],
}
_SIGLIP: dict[str, Any] = {
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
_PIXTRAL: dict[str, Any] = {
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


def _qwen(kind: str, sections: list[int], **tower: Any) -> Family:
    rope = {"type": "mrope", "mrope_section": sections}
    vision = {**_QWEN_TOWER, "model_type": kind, **tower}
    if kind.startswith("qwen2"):
        config = {**_TEXT, "rope_scaling": rope, "vision_config": vision}
    else:
        text = {**_TEXT, "model_type": f"{kind}_text", "rope_scaling": rope}
        config = {"text_config": text, "vision_config": vision, "vocab_size": VOCABULARY}
    return Family({"model_type": kind, **config, **_QWEN_IDS}, _QWEN_PIXELS, {}, QWEN_IMAGE, QWEN_VIDEO)


def _qwen3_5() -> Family:
    text = {
        **_TEXT,
        "model_type": "qwen3_5_text",
        "num_hidden_layers": 4,
        "linear_num_value_heads": 2,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "head_dim": 16,
        "rope_parameters": {
            "type": "default",
            "mrope_section": [2, 1, 1],
            "rope_theta": 10000,
            "partial_rotary_factor": 0.5,
        },
    }
    like = _qwen("qwen3_vl", [2, 1, 1])
    vision = {**_QWEN_TOWER, "model_type": "qwen3_5", "num_position_embeddings": 16, "deepstack_visual_indexes": []}
    config = {"model_type": "qwen3_5", "text_config": text, "vision_config": vision, "vocab_size": VOCABULARY}
    return Family({**config, **_QWEN_IDS}, _QWEN_PIXELS, {}, like.image, like.video)


def _gemma3() -> Family:
    text = {
        **_TEXT,
        "model_type": "gemma3_text",
        "sliding_window": 16,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 8,
        "mm_tokens_per_image": 4,
    }
    config = {
        "model_type": "gemma3",
        "text_config": text,
        "vision_config": dict(_SIGLIP),
        "image_token_index": ID["<image_soft_token>"],
        "hidden_size": 32,
        "vocab_size": VOCABULARY,
        "pad_token_id": 0,
        "mm_tokens_per_image": 4,
        "boi_token_index": ID["<start_of_image>"],
        "eoi_token_index": ID["<end_of_image>"],
    }
    return Family(
        config,
        {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 56, "width": 56}, "image_seq_length": 4},
        {"image_seq_length": 4, "processor_class": "Gemma3Processor"},
        "<start_of_image>",
        specials={
            "image_token": "<image_soft_token>",
            "boi_token": "<start_of_image>",
            "eoi_token": "<end_of_image>",
        },
    )


def _gemma4(bidirectional: bool) -> Family:
    text = {
        **_TEXT,
        "model_type": "gemma4_text",
        "global_head_dim": 8,
        "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 8,
        "num_kv_shared_layers": 0,
        "sliding_window": 16,
        "sliding_window_pattern": 2,
        "tie_word_embeddings": True,
        **({"use_bidirectional_attention": "vision"} if bidirectional else {}),
    }
    vision = {
        "model_type": "gemma4_vision",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "patch_size": 8,
        "pooling_kernel_size": 2,
        "default_output_length": 4,
        "position_embedding_size": 64,
    }
    config: dict[str, Any] = {
        "model_type": "gemma4",
        "text_config": text,
        "vision_config": vision,
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "image_token_id": ID["<|image|>"],
        "video_token_id": ID["<|video|>"],
        "audio_token_id": ID["<|audio|>"],
        "boi_token_id": ID["<boi>"],
        "eoi_token_id": ID["<eoi>"],
        "vision_soft_tokens_per_image": 4,
    }
    if not bidirectional:
        config["audio_config"] = {
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "subsampling_conv_channels": [4, 4],
            "output_proj_dims": 32,
        }
    limits = {"patch_size": 8, "max_soft_tokens": 4, "pooling_kernel_size": 2}
    return Family(
        config,
        {"image_processor_type": "Gemma4ImageProcessor", **limits},
        {
            "processor_class": "Gemma4Processor",
            "image_processor": limits,
            "video_processor": {**limits, "max_soft_tokens": 70, "num_frames": 3},
        },
        "<|image|>",
        "<|video|>",
        "<|audio|>",
        specials={
            "image_token": "<|image|>",
            "audio_token": "<|audio|>",
            "video_token": "<|video|>",
            "boi_token": "<boi>",
            "eoi_token": "<eoi>",
            "boa_token": "<boa>",
            "eoa_token": "<eoa>",
        },
    )


def _idefics(kind: str, name: str) -> Family:
    config = {
        "model_type": kind,
        "text_config": {**_TEXT, "model_type": "llama"},
        "vision_config": dict(_SIGLIP),
        "image_token_id": ID["<image>"],
        "scale_factor": 2,
        "vocab_size": VOCABULARY,
    }
    pixels = {
        "image_processor_type": f"{name}ImageProcessor",
        "size": {"longest_edge": 112},
        "max_image_size": {"longest_edge": 56},
        "do_image_splitting": True,
    }
    return Family(config, pixels, {"image_seq_len": 4, "processor_class": f"{name}Processor"})


def _llava() -> Family:
    vision = {**_SIGLIP, "model_type": "clip_vision_model", "num_hidden_layers": 3, "projection_dim": 32}
    config = {
        "model_type": "llava",
        "text_config": {**_TEXT, "model_type": "llama"},
        "vision_config": {**vision, "vocab_size": VOCABULARY},
        "image_token_index": ID["<image>"],
        "vocab_size": VOCABULARY,
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
    }
    pixels = {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 56},
        "crop_size": {"height": 56, "width": 56},
        "do_center_crop": True,
        "do_resize": True,
    }
    processor = {
        "patch_size": 14,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
        "processor_class": "LlavaProcessor",
    }
    return Family(config, pixels, processor)


def _pixtral(kind: str, merge: dict[str, int]) -> Family:
    config = {
        "model_type": kind,
        "text_config": {**_TEXT, "model_type": "mistral"},
        "vision_config": dict(_PIXTRAL),
        "image_token_index": ID["[IMG]"],
        "vocab_size": VOCABULARY,
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
        **merge,
    }
    pixels = {"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 56}, "patch_size": 14}
    return Family(config, pixels, {"patch_size": 14, "processor_class": "PixtralProcessor", **merge}, "[IMG]")


def _paligemma() -> Family:
    config = {
        "model_type": "paligemma",
        "text_config": {**_TEXT, "model_type": "gemma"},
        "vision_config": {**_SIGLIP, "projection_dim": 32},
        "image_token_index": ID["<image>"],
        "hidden_size": 32,
        "projection_dim": 32,
        "vocab_size": VOCABULARY,
        "pad_token_id": 0,
    }
    pixels = {
        "image_processor_type": "SiglipImageProcessor",
        "size": {"height": 56, "width": 56},
        "image_seq_length": 16,
    }
    return Family(config, pixels, {"processor_class": "PaliGemmaProcessor"}, images=1, template=None)


def _internvl() -> Family:
    config = {
        "model_type": "internvl_chat",
        "text_config": {**_TEXT, "model_type": "qwen3"},
        "vision_config": {**_SIGLIP, "model_type": "intern_vit_6b"},
        "image_token_index": ID["<IMG_CONTEXT>"],
        "vocab_size": VOCABULARY,
        "max_dynamic_patch": 2,
    }
    # Nobody's token: the processor reads it as text.
    return Family(config, {"image_processor_type": "CLIPImageProcessor"}, {}, "<image>")


def _glm4v() -> Family:
    text = {
        **_TEXT,
        "model_type": "glm4v_text",
        "partial_rotary_factor": 0.5,
        "rope_scaling": {"rope_type": "default", "mrope_section": [1, 1, 0]},
        "eos_token_id": [ID["<eos>"]],
        "pad_token_id": 0,
    }
    config = {
        "model_type": "glm4v",
        "text_config": text,
        "vision_config": {**_QWEN_TOWER, "model_type": "glm4v", "image_size": 56},
        "vocab_size": VOCABULARY,
        "image_token_id": ID["<|image|>"],
        "image_token_index": ID["<|image|>"],
        "video_token_id": ID["<|video|>"],
        "vision_start_token_id": ID["<|begin_of_image|>"],
        "vision_end_token_id": ID["<|end_of_image|>"],
    }
    pixels = {
        "image_processor_type": "Glm4vImageProcessor",
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "size": {"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 8},
    }
    image = "<|begin_of_image|><|image|><|end_of_image|>"
    return Family(config, pixels, {"processor_class": "Glm4vProcessor"}, image, specials={"image_token": "<|image|>"})


def _glm_ocr() -> Family:
    like = _glm4v()
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "partial_rotary_factor": 1.0, "rope_theta": 10000}
    text = {**_TEXT, "model_type": "glm_ocr_text", "rope_parameters": rope}
    del text["rope_theta"]  # its config takes no other names than its own
    vision = {**_QWEN_TOWER, "model_type": "glm_ocr_vision", "image_size": 56}
    del vision["embed_dim"], vision["mlp_ratio"]
    ids = {"image_start_token_id": ID["<|begin_of_image|>"], "image_end_token_id": ID["<|end_of_image|>"]}
    config = {**like.config, "model_type": "glm_ocr", "text_config": text, "vision_config": vision, **ids}
    return dataclasses.replace(like, config=config)


def _glm4v_moe() -> Family:
    like = _glm4v()
    text = {
        **_TEXT,
        "model_type": "glm4v_moe_text",
        "moe_intermediate_size": 16,
        "norm_topk_prob": True,
        "n_group": 1,
        "topk_group": 1,
        "n_shared_experts": 1,
        "n_routed_experts": 4,
        "routed_scaling_factor": 1.0,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "use_qk_norm": False,
        "attention_bias": False,
        "partial_rotary_factor": 0.5,
        "rope_scaling": {"type": "default", "mrope_section": [1, 1, 0]},
    }
    vision = {**like.config["vision_config"], "model_type": "glm4v_moe"}
    config = {**like.config, "model_type": "glm4v_moe", "text_config": text, "vision_config": vision}
    return dataclasses.replace(like, config=config)


def _paddleocr() -> Family:
    config = {
        **_TEXT,
        "hidden_size": 1024,  # the number stands in its code
        "model_type": "paddleocr_vl",
        "rope_scaling": {"type": "default", "rope_type": "default", "mrope_section": [1, 1, 2]},
        "hidden_act": "silu",
        "use_bias": False,
        "vision_config": {**_SIGLIP, "model_type": "paddleocr_vl", "spatial_merge_size": 2},
        **_QWEN_IDS,
        "eos_token_id": ID["<eos>"],
    }
    pixels = {**_QWEN_PIXELS, "image_processor_type": "SiglipImageProcessor", "temporal_patch_size": 1}
    # Its own processor takes several images if they are of one size only.
    return Family(config, pixels, {}, QWEN_IMAGE, specials={"image_token": "<|image_pad|>"}, images=1)


def _kimi() -> Family:
    text = {
        **_TEXT,
        "model_type": "deepseek_v3",
        "moe_intermediate_size": 16,
        "num_key_value_heads": 4,
        "n_shared_experts": 1,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "kv_lora_rank": 16,
        "q_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 8,
        "qk_nope_head_dim": 8,
        "first_k_dense_replace": 1,
    }
    config = {
        "model_type": "kimi_vl",
        "text_config": text,
        "vision_config": {
            **_QWEN_TOWER,
            "model_type": "moonvit",
            "init_pos_emb_height": 4,
            "init_pos_emb_width": 4,
            "num_channels": 3,
            "merge_kernel_size": [2, 2],
        },
        "vocab_size": VOCABULARY,
        "media_placeholder_token_id": ID["<|media_pad|>"],
    }
    return Family(config, {"image_processor_type": "CLIPImageProcessor"}, {}, "<|media_pad|>")


FAMILIES: dict[str, Family] = {
    "qwen2_vl": _qwen("qwen2_vl", [1, 1, 2]),
    "qwen2_5_vl": _qwen("qwen2_5_vl", [1, 1, 2], window_size=56, fullatt_block_indexes=[1]),
    "qwen3_vl": _qwen("qwen3_vl", [2, 1, 1], num_position_embeddings=16, deepstack_visual_indexes=[0]),
    "qwen3_5": _qwen3_5(),
    "gemma3": _gemma3(),
    "gemma4": _gemma4(False),
    "gemma4_bidirectional": _gemma4(True),
    "smolvlm": _idefics("smolvlm", "SmolVLM"),
    "idefics3": _idefics("idefics3", "Idefics3"),
    "llava": _llava(),
    "pixtral": _pixtral("pixtral", {}),
    "mistral3": _pixtral("mistral3", {"spatial_merge_size": 2}),
    "paligemma": _paligemma(),
    "internvl_chat": _internvl(),
    "glm4v": _glm4v(),
    "glm4v_moe": _glm4v_moe(),
    "glm_ocr": _glm_ocr(),
    "paddleocr_vl": _paddleocr(),
    "kimi_vl": _kimi(),
}


LIKE_OTHERS = {
    "qwen2_5_vl",
    "gemma4",
    "idefics3",
    "mistral3",
    "glm4v_moe",
    "glm_ocr",
    "paddleocr_vl",
    "kimi_vl",
}
"""Families whose code is nearly that of others here."""


def families() -> list[Any]:
    """The names of all families, as parameters of a test; those that are like others run in sweeps."""
    like = pytest.mark.exhaustive
    return [pytest.param(kind, marks=like if kind in LIKE_OTHERS else ()) for kind in FAMILIES]


def make_model(folder: Path, kind: str, **changes: Any) -> Path:
    """Save a random model of a family, with its tokenizer and processor. Returns the folder."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_vlm.utils import get_model_and_args, update_module_configs

    family = FAMILIES[kind]
    folder.mkdir(parents=True, exist_ok=True)
    config = {**family.config, "eos_token_id": ID["<eos>"], **changes}
    _write(folder / "config.json", config)
    _write(folder / "preprocessor_config.json", family.pixels)
    if family.processor:
        _write(folder / "processor_config.json", family.processor)
    _save_tokenizer(folder, family)
    module, _ = get_model_and_args(dict(config))
    plain = json.loads(json.dumps(config))
    made = module.ModelConfig.from_dict(plain)
    made = update_module_configs(made, module, plain, ["text", "vision", "perceiver", "projector", "audio"])
    mx.random.seed(3)
    model = module.Model(made)
    weights = {
        name: mx.random.normal(array.shape) * 0.25 if array.ndim > 1 else array
        for name, array in tree_flatten(model.parameters())
    }
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


@functools.cache
def tiny_vision(kind: str) -> Path:
    """The folder of a tiny model of a family; made once per test session."""
    root = Path(tempfile.mkdtemp(prefix="localai_shim-vision-"))
    return make_model(root / f"tiny-{kind}", kind)


def picture(height: int, width: int, *, seed: int = 0, detail: Any = "auto") -> Media:
    """An image of noise."""
    pixels = np.random.default_rng((seed, height, width)).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Media("image", pixels, "messages[0].content[0].image_url", detail)


def film(frames: int, height: int, width: int, *, rate: float = 2.0) -> Media:
    """A video of noise."""
    pixels = np.random.default_rng(frames).integers(0, 255, (frames, height, width, 3), dtype=np.uint8)
    return Media("video", pixels, "messages[0].content[0].video_url", rate=rate)


def sound(seconds: float, *, rate: float = 16000.0) -> Media:
    """Noise."""
    samples = np.random.default_rng(7).uniform(-0.5, 0.5, round(seconds * rate)).astype(np.float32)
    return Media("audio", samples, "messages[0].content[0].input_audio", rate=rate)


def user(text: str, *kinds: MediaKind) -> list[dict[str, Any]]:
    """A conversation of one message, media first."""
    return [{"role": "user", "content": [*({"type": kind} for kind in kinds), {"type": "text", "text": text}]}]


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def _save_tokenizer(folder: Path, family: Family) -> None:
    """A tokenizer of bytes and special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIALS)
    assert tokenizer.token_to_id(SPECIALS[-1]) == ID[SPECIALS[-1]]
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "bos_token": "<bos>",
        "extra_special_tokens": family.specials,
    }
    template = family.template
    if template is not None:
        texts = {"IMAGE": family.image, "VIDEO": family.video, "AUDIO": family.audio}
        for name, text in texts.items():
            template = template.replace(name, text)
        config["chat_template"] = template
    _write(folder / "tokenizer_config.json", config)
