"""Vision encoders of GGUF models, which are files of their own ("mmproj"): Gemma 3's, in mlx-vlm's model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...types import Json, ModelLoadError
from ..faults.table import corrected
from ..faults.vision import FAULTS
from .header import Header, read_header
from .reading import Weight, log_rounding, read_tensors

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from transformers import PreTrainedTokenizerFast, ProcessorMixin

_TOWER, _PROJECTOR = "vision_tower.vision_model.", "multi_modal_projector."
_TOP = {
    "v.patch_embd": f"{_TOWER}embeddings.patch_embedding",
    "v.position_embd": f"{_TOWER}embeddings.position_embedding",
    "v.post_ln": f"{_TOWER}post_layernorm",
    "mm.soft_emb_norm": f"{_PROJECTOR}mm_soft_emb_norm",
}
_PROJECTION = "mm.input_projection.weight"  # whose name in the model has no ending
_LAYER = {
    "ln1": "layer_norm1",
    "ln2": "layer_norm2",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.out_proj",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}
_NAME = re.compile(r"(?:v\.blk\.(\d+)\.(\w+)|([\w.]+))\.(weight|bias)")
_EMBEDDING = "model.embed_tokens"
_BEGINNING, _END, _SOFT = "<start_of_image>", "<end_of_image>", "<image_soft_token>"
_POOLED = 4  # patches to a side that become one token, if the file does not say otherwise


def vision_config(file: Path, text: Json) -> Json:
    """The config of a model with its encoder, as that of a folder.

    Args:
        file: the encoder.
        text: the language model's config.

    Raises:
        ModelLoadError: a key is missing, or a tensor is not known.
    """
    header = read_header(file)
    size, patch = _number(header, "image_size"), _number(header, "patch_size")
    vision: Json = {
        "model_type": "siglip_vision_model",
        "hidden_size": _number(header, "embedding_length"),
        "intermediate_size": _number(header, "feed_forward_length"),
        "num_hidden_layers": _number(header, "block_count"),
        "num_attention_heads": _number(header, "attention.head_count"),
        "image_size": size,
        "patch_size": patch,
        "layer_norm_eps": header.get("clip.vision.attention.layer_norm_epsilon", 1e-6),
    }
    side = size // patch // _number(header, "projector.scale_factor", _POOLED)
    for name in header.tensors:
        _path(header, name, vision)
    return {
        "model_type": "gemma3",
        "text_config": {**text, "rope_global_base_freq": text["rope_theta"], "mm_tokens_per_image": side * side},
        "vision_config": vision,
        "hidden_size": text["hidden_size"],
        "vocab_size": text["vocab_size"],
        "pad_token_id": 0,
        "mm_tokens_per_image": side * side,
    }


def _number(header: Header, key: str, default: int = 0) -> int:
    value = header.get(f"clip.vision.{key}", default)
    if not 0 < value < 1 << 31:
        raise ModelLoadError(f"'{header.path}': the metadata's 'clip.vision.{key}' is missing, or it is {value}.")
    return value


def _path(header: Header, name: str, vision: Json) -> str:
    """mlx-vlm's name of a tensor."""
    found = _NAME.fullmatch(name)
    if name == _PROJECTION:
        return f"{_PROJECTOR}mm_input_projection_weight"
    if found is not None and found[3] in _TOP:
        return f"{_TOP[found[3]]}.{found[4]}"
    if found is None or found[2] not in _LAYER or int(found[1]) >= vision["num_hidden_layers"]:
        raise ModelLoadError(f"'{header.path}': tensor '{name}' is not known in a vision encoder of Gemma 3.")
    part = _LAYER[found[2]]
    if part.startswith("mlp."):  # older converters changed the two names
        rows = header.tensors[name].shape[0]
        part = "mlp.fc1" if rows == vision["intermediate_size"] else "mlp.fc2"
    return f"{_TOWER}encoder.layers.{found[1]}.{part}.{found[4]}"


def read_vision_model(file: Path, config: Json, arrays: dict[str, mx.array], packings: dict[str, Json]) -> nn.Module:
    """mlx-vlm's model with its encoder.

    Args:
        file: the encoder.
        config: of `vision_config`, and the image token.
        arrays: the language model's, by mlx-lm's names.
        packings: of its layers.

    Raises:
        ModelLoadError: a tensor is missing, or has another shape.
    """
    import mlx.core as mx
    from mlx import nn
    from mlx_vlm.models import gemma3

    parts = {
        "text_config": gemma3.TextConfig.from_dict(config["text_config"]),
        "vision_config": gemma3.VisionConfig.from_dict(config["vision_config"]),
    }
    model: nn.Module = corrected(gemma3.Model, config, FAULTS)(gemma3.ModelConfig.from_dict({**config, **parts}))
    header = read_header(file)
    log_rounding(header)
    if "lm_head.weight" not in arrays:  # it is tied, which mlx-vlm's class does not know
        tied = {name: array for name, array in arrays.items() if name.startswith(_EMBEDDING)}
        arrays = {**arrays, **{name.replace(_EMBEDDING, "lm_head"): array for name, array in tied.items()}}
        packings = {**packings, **({"lm_head": packings[_EMBEDDING]} if _EMBEDDING in packings else {})}
    arrays = {f"language_model.{name}": array for name, array in arrays.items()}
    packings = {f"language_model.{name}": packing for name, packing in packings.items()}
    kind = arrays["language_model.model.norm.weight"].dtype
    for name, weight in read_tensors(header):
        path = _path(header, name, config["vision_config"])
        if weight.packing:
            packings[path.rpartition(".")[0]] = dict(weight.packing)
        for each, array in _arrays(path, weight).items():
            arrays[each] = array if array.dtype in (mx.uint32, mx.uint8) else array.astype(kind)
            mx.eval(arrays[each])
    nn.quantize(model, class_predicate=lambda path, _: packings.get(path, False))
    model.eval()
    model.load_weights(list(arrays.items()), strict=True)
    return model


def _arrays(path: str, weight: Weight) -> dict[str, mx.array]:
    """A tensor's arrays by mlx-vlm's names, in its order."""
    array = weight.arrays["weight"]
    if path.endswith("patch_embedding.weight"):
        return {path: array.transpose(0, 2, 3, 1)}
    if path.endswith("mm_soft_emb_norm.weight"):  # the converter adds 1
        return {path: array - 1}
    layer = path.rpartition(".")[0]
    return {path if kind == "weight" else f"{layer}.{kind}": each for kind, each in weight.arrays.items()}


def image_token(tokenizer: PreTrainedTokenizerFast | TokenizerWrapper) -> int:
    """Id of the token that an image's features replace.

    Raises:
        ModelLoadError: the vocabulary has none.
    """
    known = tokenizer.get_vocab()
    for text in (_BEGINNING, _END, _SOFT):
        if text not in known:
            raise ModelLoadError(f"The vocabulary lacks '{text}', which images need. Pass text_only=True.")
    return int(known[_SOFT])


def make_processor(file: Path, tokenizer: PreTrainedTokenizerFast, config: Json) -> ProcessorMixin:
    """The processor of images, with the encoder's settings."""
    from mlx_vlm.models.gemma3.processing_gemma3 import Gemma3Processor
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    header = read_header(file)
    size = config["vision_config"]["image_size"]
    settings: dict[str, Any] = {"size": {"height": size, "width": size}}
    for name in ("image_mean", "image_std"):
        if values := header.list_of(f"clip.vision.{name}", float):
            settings[name] = values
    tokens = {"image_token": _SOFT, "boi_token": _BEGINNING, "eoi_token": _END}
    for name, text in tokens.items():
        setattr(tokenizer, name, text)
    tokenizer.image_token_id = image_token(tokenizer)
    pictures = Gemma3ImageProcessorPil(**settings)
    return Gemma3Processor(pictures, tokenizer, image_seq_length=config["mm_tokens_per_image"])
