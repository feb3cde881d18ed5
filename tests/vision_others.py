"""Configs of small models whose code has something of its own in the way: sizes that stand in it, or a tokenizer."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from mlx import nn

from tests.vision_parts import DEEPSEEK, GEMMA_EDGES, GEMMA_WINDOW, ID, TEMPLATE, TEXT, VOCABULARY, Family


def deepseek_vl_v2() -> Family:
    vision = {"model_type": "vision", "layers": 1, "width": 32, "intermediate_size": 48, "num_attention_heads": 2}
    config = {
        "model_type": "deepseek_vl_v2",
        "text_config": {**DEEPSEEK, "model_type": "deepseek_v2"},
        "vision_config": {**vision, "image_size": 56, "patch_size": 14},
        "projector_config": {"input_dim": 32, "n_embed": 32},
        "image_token_index": ID["<image>"],
        "vocab_size": VOCABULARY,
    }
    sizes = {"candidate_resolutions": [[56, 56], [112, 56], [56, 112]], "patch_size": 14, "downsample_ratio": 2}
    # Its processor gives some tokens more to its tokenizer, and cuts three or more images of a prompt otherwise.
    return Family(config, {}, {**sizes, "pad_token": "<pad>"}, images=2)


def ernie4_5_moe_vl() -> Family:
    """Its tokenizer is SentencePiece's."""
    config = {
        **TEXT,
        "model_type": "ernie4_5_moe_vl",
        "pixel_hidden_size": 32,
        "moe_num_experts": [4, 4],
        "moe_intermediate_size": [16, 16],
        "moe_layer_start_index": [1, 1],
        "moe_layer_end_index": [1, 1],
        "rope_3d": True,
        "freq_allocation": 2,
        "mrope_section": [1, 1, 2],
        "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2},
        "image_start_token_id": 3,
        "image_end_token_id": 4,
        "im_patch_id": 5,
        "video_token_id": 6,
    }
    image = "Picture 1:<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>"
    template = TEMPLATE.replace("part['type'] == 'image'", "part['type'] == 'image_url'")
    return Family(config, {}, {}, image, template=template, tokenizer=_sentencepiece)


def _sentencepiece(folder: Path) -> dict[str, Any]:
    """Save a tokenizer of bytes and special tokens; returns its config."""
    import sentencepiece

    with (folder / "tokenizer.model").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["What is this? Hello there, plain text."]),
            model_writer=file,
            vocab_size=300,
            model_type="bpe",
            byte_fallback=True,
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            hard_vocab_limit=False,
            user_defined_symbols=_ERNIE,
            normalization_rule_name="identity",
            minloglevel=2,
        )
    return {"tokenizer_class": "Ernie4_5_VLTokenizer", "eos_token": "</s>", "pad_token": "<unk>", "bos_token": "<s>"}


_ERNIE = [f"<|{name}|>" for name in ("IMAGE_START", "IMAGE_END", "IMAGE_PLACEHOLDER", "VIDEO", "im_start", "im_end")]


def phi3_v() -> Family:
    config = {
        **TEXT,
        "model_type": "phi3_v",
        "original_max_position_embeddings": 2048,
        "text_config": {},
        "vision_config": {"model_type": "phi3_v"},
    }
    return Family(config, {"num_crops": 1}, {}, "<|image_1|>")


def gemma3n() -> Family:
    """It hears; its tower for pictures has the sizes of the real one's, and is left out."""
    text = {
        **TEXT,
        "model_type": "gemma3n_text",
        "intermediate_size": [48] * 2,
        "vocab_size_per_layer_input": VOCABULARY - 40,
        "hidden_size_per_layer_input": 8,
        "laurel_rank": 4,
        "altup_num_inputs": 2,
        **GEMMA_WINDOW,
        "layer_types": ["sliding_attention", "full_attention"],
        "num_kv_shared_layers": 0,
        "activation_sparsity_pattern": [0.0, 0.0],
        "rope_local_base_freq": 10000.0,
    }
    audio = {
        "hidden_size": 32,
        "input_feat_size": 128,
        "conf_num_attention_heads": 2,
        "conf_num_hidden_layers": 1,
        "sscp_conv_channel_size": [4, 4],
        "vocab_size": 64,
        "vocab_offset": ID["<eoa>"],  # which has an embedding of its own, as the tokens behind it
    }
    vision = {"model_type": "gemma3n_vision", "hidden_size": 32, "vocab_size": 1, "vocab_offset": ID["<eoa>"]}
    config = {
        "model_type": "gemma3n",
        "text_config": text,
        "vision_config": vision,
        "audio_config": audio,
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "audio_token_id": ID["<|audio|>"],
        "image_token_id": ID["<|image|>"],
        "audio_soft_tokens_per_image": 8,
    }
    pixels = {"image_processor_type": "SiglipImageProcessor", "size": {"height": 56, "width": 56}}
    return Family(
        config,
        {**pixels, "feature_extractor_type": "Gemma3nAudioFeatureExtractor", "feature_size": 128},
        {"processor_class": "Gemma3nProcessor", "audio_seq_length": 8, "image_seq_length": 4},
        "<|image|>",
        audio="<|audio|>",
        specials={"image_token": "<|image|>", "audio_token": "<|audio|>", **GEMMA_EDGES},
    )


def gemma3n_pictures() -> Family:
    """It sees, through mlx-vlm's own tower with fewer and narrower blocks."""
    family, pixels = gemma3n(), {"height": 512, "width": 512}  # smaller ones would not go the way of the real one's
    vision = {**family.config["vision_config"], "hidden_size": 4 * _WIDTH}
    return replace(
        family,
        config={**family.config, "vision_config": vision},
        pixels={**family.pixels, "size": pixels},
        processor={**family.processor, "image_seq_length": 256},
    )


_WIDTH = 8  # channels of each of the tower's stages


@contextmanager
def _narrow() -> Iterator[None]:
    """MobileNet-V5 with the first block of each stage, which has its own stride, and one of each other kind."""
    tower = importlib.import_module("mlx_vlm.models.gemma3n.vision")
    stages = [
        [_narrowed(block) for block in (stage[0], *{type(block): block for block in stage[1:]}.values())]
        for stage in tower.gemma3n_mobilenet_def()
    ]
    fused = tower.MobileNetV5MultiScaleFusionAdapter

    def fuse(in_chs: Any, out_chs: Any, output_resolution: Any) -> Any:
        return fused([2 * _WIDTH], 4 * _WIDTH, output_resolution)

    with mock.patch.multiple(tower, gemma3n_mobilenet_def=lambda: stages, MobileNetV5MultiScaleFusionAdapter=fuse):
        yield


def _narrowed(block: Any) -> Any:
    if hasattr(block, "num_heads"):
        return replace(block, num_heads=2, kv_dim=8)
    return replace(block, filters=_WIDTH, expand_ratio=1.0)


@contextmanager
def shrunk(name: str) -> Iterator[Family]:
    """A family, while the sizes that stand in its code are small."""
    if name == "phi3_v":
        tower = importlib.import_module("mlx_vlm.models.phi3_v.vision").VisionModel.CLIP_VIT_LARGE_PATCH14_336_CONFIG
        with mock.patch.multiple(tower, num_hidden_layers=2, intermediate_size=32):
            yield phi3_v()
    elif name == "gemma3n":
        code = importlib.import_module("mlx_vlm.models.gemma3n.gemma3n")
        package = importlib.import_module("mlx_vlm.models.gemma3n")
        with mock.patch.object(code, "VisionModel", _Blind), mock.patch.object(package, "VisionModel", _Blind):
            yield gemma3n()
    elif name == "gemma3n_pictures":
        with _narrow():
            yield gemma3n_pictures()
    else:
        yield {"deepseek_vl_v2": deepseek_vl_v2, "ernie4_5_moe_vl": ernie4_5_moe_vl}[name]()


class _Blind(nn.Module):
    """In the place of 300 million weights that no sound goes through."""

    def __init__(self, config: Any) -> None:
        super().__init__()

    def sanitize(self, weights: dict[str, Any]) -> dict[str, Any]:
        return weights


OTHERS: dict[str, Any] = {
    "deepseek_vl_v2": (),
    "ernie4_5_moe_vl": (),
    "gemma3n": (),
    "gemma3n_pictures": pytest.mark.exhaustive,  # its tower takes seconds
    "phi3_v": pytest.mark.exhaustive,  # its tower is as wide as the real one
}
"""With the marks of their tests."""
