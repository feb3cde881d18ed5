"""What tiny families with a vision encoder are made of: settings, tokens, and images."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy

from tests.models.gguf.checkpoints import ROPE, SIZES


class Seeing(NamedTuple):
    """A family with a vision encoder, which the converter writes to a file of its own.

    Attributes:
        kind: of transformers' classes.
        settings: of its config.
        tokens: those that are added to the vocabulary, with their keys in the config.
        image: tokens of an image.
        inputs: what the encoder reads, as the processor would make it of an image.
        preprocessor: what is saved of the processor.
        tensors: shapes of the published checkpoint's tensors, if transformers has no class of the family.
    """

    kind: str
    settings: dict[str, Any]
    tokens: dict[str, str]
    image: list[str]
    inputs: dict[str, Any]
    preprocessor: dict[str, Any]
    tensors: Mapping[str, tuple[int, ...]] = MappingProxyType({})


def waves(*shape: int) -> Any:
    """Numbers like those of pixels."""
    return numpy.sin(numpy.arange(numpy.prod(shape), dtype=numpy.float32)).reshape(shape)


SEEING_SIZES = {**SIZES, "vocab_size": 416}
QWEN_TOKENS = {
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
}
QWEN_PREPROCESSOR = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}


PIXTRAL = {
    "model_type": "pixtral",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 56,
    "patch_size": 7,
    "hidden_act": "silu",
}
PIXTRAL_TOKENS = {
    "image_token_index": "[IMG]",
    "image_break_token_id": "[IMG_BREAK]",
    "image_end_token_id": "[IMG_END]",
}


def pixtral_image(rows: int, columns: int) -> list[str]:
    row = ["[IMG]"] * columns
    return [*[*row, "[IMG_BREAK]"] * (rows - 1), *row, "[IMG_END]"]


GLM_TOKENS = {
    "image_start_token_id": "<|begin_of_image|>",
    "image_end_token_id": "<|end_of_image|>",
    "video_start_token_id": "<|begin_of_video|>",
    "video_end_token_id": "<|end_of_video|>",
    "image_token_id": "<|image|>",
    "video_token_id": "<|video|>",
}
INTERNVL_VISION = {
    "architectures": ["InternVisionModel"],
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,  # more than the numbers of the projector's layers
    "num_attention_heads": 2,
    "image_size": [28, 28],
    "patch_size": [7, 7],
    "attention_bias": True,
}
QWEN35_ROPE = {**ROPE, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
QWEN35_VISION = {
    "depth": 3,
    "hidden_size": 32,
    "num_heads": 2,
    "intermediate_size": 48,
    "out_hidden_size": 32,
    "patch_size": 8,
    "num_position_embeddings": 25,
    "deepstack_visual_indexes": [],
}


MINICPM_TOKENS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "image_start_id": "<image>",
    "image_end_id": "</image>",
    "slice_start_id": "<slice>",
    "slice_end_id": "</slice>",
    "number_start_id": "<image_id>",
    "number_end_id": "</image_id>",
}
GEMMA4_SIZES = {**SIZES, "vocab_size": 410}  # of all tokens: the converter cuts only one of the two embeddings
GEMMA4_TOKENS = {
    "image_token_id": "<|image|>",
    "boi_token_id": "<|image>",
    "eoi_token_id": "<image|>",
    "video_token_id": "<|video|>",
    "audio_token_id": "<|audio|>",
    "boa_token_id": "<|audio>",
    "eoa_token_index": "<audio|>",
}
GEMMA4_VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "patch_size": 4,
    "position_embedding_size": 64,
}
GEMMA4_AUDIO = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "subsampling_conv_channels": [128, 4],  # the first has to be the number of bins
    "output_proj_dims": 48,
}
BOUNDS = {"input_min": -1.25, "input_max": 1.5, "output_min": -0.75, "output_max": 0.5}
"""Of inputs and outputs of layers, which exceed them."""
GEMMA4_PREPROCESSOR = {"image_mean": [0.0] * 3, "image_std": [1.0] * 3}


def gemma4_image(count: int) -> list[str]:
    return ["<|image>", *["<|image|>"] * count, "<image|>"]


def gemma4_inputs(rows: int, columns: int, side: int = 4) -> dict[str, Any]:
    """Patches of an image with their places."""
    places = numpy.stack(numpy.meshgrid(numpy.arange(columns), numpy.arange(rows)), -1).reshape(1, -1, 2)
    return {"pixel_values": waves(1, rows * columns, 3 * side * side) / 2 + 0.5, "image_position_ids": places}


def qwen_image(count: int) -> list[str]:
    return ["<|vision_start|>", *["<|image_pad|>"] * count, "<|vision_end|>"]
