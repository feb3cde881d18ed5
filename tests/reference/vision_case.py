"""What a comparison with transformers is made of, for a model that reads images."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tests.reference.cases import LENGTH, SIZES, Config
from tests.reference.pictures import END, IMAGE, START, Picture

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
    "vision_use_head": False,
    "window_size": 56,
}
"""Keys of which each class of configs gets those that it declares."""


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
        join_axis: of the arrays of several images, or of some by name; others are joined along the first one.
        saved_as: `model_type` of checkpoints that mlx-vlm reads, if it is another.
        inside: `model_type` of a model that this one is a part of, and the part's name.
        renamed: patterns in the names of tensors, and what checkpoints that mlx-vlm reads have instead.
        added: shapes of tensors that checkpoints have and no model computes with.
        published: makes transformers' config one that mlx-vlm reads.
        length: tokens of the prompt without images.
        encoder_spread: of the weights of its encoder: those of deep ones are smaller, or rounding errors grow.
    """

    kind: str
    pictures: Callable[[], list[Picture]] | None = None
    text: Config = field(default_factory=dict)
    vision: Config = field(default_factory=dict)
    top: Config = field(default_factory=dict)
    model_class: str | None = None
    tolerance: float = 1e-3
    join_axis: int | dict[str, int] = 0
    saved_as: str | None = None
    length: int = LENGTH
    encoder_spread: float = 0.15
    inside: tuple[str, str] | None = None
    published: Callable[[Config], Config] | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    added: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

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


QWEN_IDS: Config = {"vision_start_token_id": START, "vision_end_token_id": END, "video_token_id": 393}
"""Tokens of Qwen's models and their likes."""


def mrope(sections: list[int], **more: Any) -> Config:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": sections, **more}}
