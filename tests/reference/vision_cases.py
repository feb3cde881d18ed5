"""Families of mlx-vlm that are compared with transformers, with images."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.reference.cases import SIZES, Config

IMAGE, START, END = 390, 391, 392
"""Tokens of images, and of their edges."""
_SIZES: Config = {**SIZES, "image_token_id": IMAGE, "image_token_index": IMAGE}
_TOWER: Config = {
    "hidden_size": 32,
    "embed_dim": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "depth": 3,
    "num_heads": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "patch_size": 14,
    "image_size": 56,
    "out_hidden_size": 64,
    "projection_dim": 64,
    "spatial_merge_size": 2,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0, 1],
    "fullatt_block_indexes": [1],
    "window_size": 56,
}
"""Keys of which each class of configs gets those that it declares."""


@dataclass(frozen=True)
class Picture:
    """An image of a prompt, as models get it.

    Attributes:
        tokens: of the prompt, those that features replace among them.
        theirs: arguments of transformers' model.
        ours: arguments of mlx-vlm's model.
    """

    tokens: list[int]
    theirs: dict[str, npt.NDArray[Any]]
    ours: dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class VisionCase:
    """A model that is compared.

    Attributes:
        kind: `model_type`.
        pictures: makes two images of different sizes, if the family has that.
        text: what the config of its language model has besides `SIZES`.
        vision: what the config of its vision encoder has besides the usual sizes.
        top: what its config has besides.
        model_class: the class of transformers; that of `AutoModelForImageTextToText` if it is None.
        tolerance: how much logits may differ, as a part of their spread.
    """

    kind: str
    pictures: Callable[[], list[Picture]] | None = None
    text: Config = field(default_factory=dict)
    vision: Config = field(default_factory=dict)
    top: Config = field(default_factory=dict)
    model_class: str | None = None
    tolerance: float = 1e-3
    join_axis: int = 0

    def config(self) -> Any:
        """The config, an object of transformers."""
        from transformers import CONFIG_MAPPING

        cls = CONFIG_MAPPING[self.kind]
        made = _usual(cls, _SIZES, self.top)
        parts = {"text_config": (SIZES, self.text), "vision_config": (_TOWER, self.vision)}
        defaults = getattr(cls, "sub_configs_defaults", {})
        for name, (usual, changes) in parts.items():
            part = defaults.get(name)
            kind = changes.get("model_type", getattr(part, "model_type", None))
            part = getattr(part, "config_class", part)
            if kind in CONFIG_MAPPING:
                part = CONFIG_MAPPING[kind]
            if part is not None:
                made[name] = _usual(part, usual, changes)
        return cls(**copy.deepcopy(made))


def _usual(cls: Any, usual: Config, changes: Config) -> Config:
    declared = {each.name for each in fields(cls)}
    return {**{key: value for key, value in usual.items() if key in declared}, **changes}


def _noise(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def patches(grids: tuple[tuple[int, int], ...] = ((4, 6), (8, 4)), patch: int = 14, times: int = 2) -> list[Picture]:
    """Images as Qwen's processors cut them, by their rows and columns of patches."""
    made = []
    for number, (rows, columns) in enumerate(grids):
        inputs = {
            "pixel_values": _noise(rows * columns, 3 * times * patch * patch, seed=number),
            "image_grid_thw": np.array([[1, rows, columns]], np.int64),
        }
        made.append(Picture([START, *[IMAGE] * (rows * columns // 4), END], inputs, inputs))
    return made


_QWEN_IDS: Config = {"vision_start_token_id": START, "vision_end_token_id": END, "video_token_id": 393}


def _mrope(sections: list[int], **more: Any) -> Config:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": sections, **more}}


def square(tokens: int, *, tiles: tuple[int, ...] = (1, 1), size: int = 56, axes: int = 4) -> Callable[[], list[Picture]]:
    """Images of fixed size, or of several tiles each: so many tokens per tile."""

    def made() -> list[Picture]:
        found = []
        for number, count in enumerate(tiles):
            pixels = _noise(count, 3, size, size, seed=number)
            inputs = {"pixel_values": pixels if axes == 4 else pixels[None]}
            found.append(Picture([START, *[IMAGE] * (tokens * count), END], inputs, inputs))
        return found

    return made


_GEMMA: Config = {"layer_types": ["sliding_attention", "full_attention"] * 2, "query_pre_attn_scalar": 24}
CASES: dict[str, dict[str, VisionCase]] = {
    "qwen2_vl": {"plain": VisionCase("qwen2_vl", patches, _mrope([2, 3, 3]), {"hidden_size": 64}, _QWEN_IDS)},
    "qwen2_5_vl": {"plain": VisionCase("qwen2_5_vl", patches, _mrope([2, 3, 3]), {}, _QWEN_IDS)},
    "qwen3_vl": {"plain": VisionCase("qwen3_vl", patches, _mrope([4, 2, 2]), {}, _QWEN_IDS)},
    "qwen3_vl_moe": {"plain": VisionCase("qwen3_vl_moe", patches, _mrope([4, 2, 2]), {}, _QWEN_IDS)},
    "qwen3_5": {"plain": VisionCase("qwen3_5", patches, {**_mrope([2, 1, 1], partial_rotary_factor=0.5)}, {}, _QWEN_IDS)},
    "qwen3_5_moe": {"plain": VisionCase("qwen3_5_moe", patches, {**_mrope([2, 1, 1], partial_rotary_factor=0.5)}, {}, _QWEN_IDS)},
    "qwen4_exp": {"plain": VisionCase("qwen4_exp", patches, {**_mrope([2, 1, 1], partial_rotary_factor=0.5)}, {}, _QWEN_IDS)},
    "qwen3_omni_moe": {"plain": VisionCase("qwen3_omni_moe_thinker", patches, _mrope([4, 2, 2]), {}, _QWEN_IDS)},
    "glm4v": {"plain": VisionCase("glm4v", patches, _mrope([2, 1, 1], partial_rotary_factor=0.5), {}, _QWEN_IDS)},
    "glm4v_moe": {"plain": VisionCase("glm4v_moe", patches, _mrope([2, 1, 1], partial_rotary_factor=0.5), {}, _QWEN_IDS)},
    "glm_ocr": {"plain": VisionCase("glm_ocr", patches, _mrope([2, 3, 3]), {}, _QWEN_IDS)},
    "glm5_next": {"plain": VisionCase("glm5_next", patches, {}, {}, _QWEN_IDS)},
    "cohere_compass": {"plain": VisionCase("cohere_compass", patches, {}, {}, _QWEN_IDS)},
    "paddleocr_vl": {"plain": VisionCase("paddleocr_vl", patches, _mrope([2, 3, 3]), {}, _QWEN_IDS)},
    "ernie4_5_moe_vl": {"plain": VisionCase("ernie4_5_vl_moe", patches, {}, {}, _QWEN_IDS)},
    "minimax_m3_vl": {"plain": VisionCase("minimax_m3_vl", patches, {}, {}, _QWEN_IDS)},
    "gemma3": {"plain": VisionCase("gemma3", square(4), _GEMMA, {}, {"mm_tokens_per_image": 4})},
    "paligemma": {"plain": VisionCase("paligemma", square(16), {"model_type": "gemma"}, {}, {})},
    "llava": {"plain": VisionCase("llava", square(16), {"model_type": "llama"}, {"model_type": "clip_vision_model"}, {})},
    "aya_vision": {
        "plain": VisionCase("aya_vision", square(4, tiles=(1, 3)), {"model_type": "cohere2"}, {"model_type": "siglip_vision_model"}, {}),
        "cohere2_vision": VisionCase("cohere2_vision", square(4, tiles=(1, 3)), {"model_type": "cohere2"}, {"model_type": "siglip_vision_model"}, {})},
    "internvl": {"plain": VisionCase("internvl", square(4, tiles=(1, 3)), {"model_type": "qwen2"}, {"image_size": [56, 56], "patch_size": [14, 14]}, {})},
    "idefics3": {"plain": VisionCase("idefics3", square(4, tiles=(1, 3), axes=5), {"model_type": "llama"}, {}, {}, join_axis=1)},
    "smolvlm": {"plain": VisionCase("smolvlm", square(4, tiles=(1, 3), axes=5), {"model_type": "llama"}, {}, {}, join_axis=1)},
    "idefics2": {"plain": VisionCase("idefics2", square(4, axes=5), {"model_type": "mistral"}, {}, {"perceiver_config": {"hidden_size": 64, "resampler_n_latents": 4, "resampler_depth": 2, "resampler_n_heads": 4, "resampler_head_dim": 16, "num_key_value_heads": 2}}, join_axis=1)},
    "llava_next": {"plain": VisionCase("llava_next", None, {"model_type": "mistral"}, {"model_type": "clip_vision_model"}, {})},
    "llava_onevision": {"plain": VisionCase("llava_onevision", None, {"model_type": "qwen2"}, {"model_type": "siglip_vision_model"}, {})},
    "granite4_vision": {"plain": VisionCase("granite4_vision", None)},
    "mistral3": {"plain": VisionCase("mistral3", None, {"model_type": "mistral"}, {"model_type": "pixtral"}, {})},
    "molmo2": {"plain": VisionCase("molmo2")},
    "llama4": {"plain": VisionCase("llama4")},
    "gemma4": {"plain": VisionCase("gemma4")},
    "gemma4_unified": {"plain": VisionCase("gemma4_unified")},
    "gemma3n": {"plain": VisionCase("gemma3n")},
    "lfm2_vl": {"plain": VisionCase("lfm2_vl", None, {"model_type": "lfm2"}, {"model_type": "siglip2_vision_model"})},
    "kimi_k25": {"plain": VisionCase("kimi_k25")},
    "minicpmv4_6": {"plain": VisionCase("minicpmv4_6")},
    "minicpmv4_7": {"plain": VisionCase("minicpmv4_7")},
    "muse_glimmer": {"plain": VisionCase("muse_glimmer")},
    "step3p7": {"plain": VisionCase("step3p7")},
    "unlimited_ocr": {"plain": VisionCase("unlimited_ocr")},
    "got": {"plain": VisionCase("got_ocr2")},
    "nemotron_h_nano_omni": {"plain": VisionCase("nemotron_h_omni")},
    "deepseekocr_2": {"plain": VisionCase("deepseek_ocr2")},
    "fastvlm": {"plain": VisionCase("fast_vlm")},
    "inkling": {"plain": VisionCase("inkling_mm_model")},
    "phi4mm": {"plain": VisionCase("phi4_multimodal")},
    "cohere2_moe": {"plain": VisionCase("cohere2_moe")},
    "deepseek_v4": {"plain": VisionCase("deepseek_v4")},
    "flint": {"plain": VisionCase("flint")},
    "hrm_text": {"plain": VisionCase("hrm_text")},
    "hy_v4": {"plain": VisionCase("hy_v4")},
    "kolibri1": {"plain": VisionCase("kolibri1")},
    "qwen3_5_text": {"plain": VisionCase("qwen3_5_text")},
    "qwen3_5_moe_text": {"plain": VisionCase("qwen3_5_moe_text")},
}
