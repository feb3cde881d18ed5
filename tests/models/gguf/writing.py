"""GGUF files of the tiny models, written by llama.cpp's own package: its names of keys and tensors, its quantisation.

Written down here is what its converter does beside: the order of the rows of q and k, Gemma's norms, types of tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import TokenType

ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3",
}
"""model_type -> llama.cpp's name."""
WRITTEN = (Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1)


Packed = Callable[[str, np.ndarray], tuple[np.ndarray, Type]]
"""Blocks that take the place of a matrix, by its name and values, and their type."""


def write(
    folder: Path,
    file: Path,
    type_: Type = Type.F32,
    *,
    rest: Mapping[str, Any] | None = None,
    packed: Packed | None = None,
    more: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """Convert a checkpoint; matrices are of the type.

    Args:
        rest: further metadata; None as a value leaves a key away.
        packed: makes other matrices.
        more: further tensors, in float32.
    """
    config = json.loads((folder / "config.json").read_text())
    name = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(file, name)
    _write_config(writer, config)
    write_tokenizer(writer, folder)
    for key, value in (rest or {}).items():
        if value is None:
            for part in writer.kv_data:
                part.pop(key, None)
        else:
            kind = gguf.GGUFValueType.get_type(value)
            writer.add_key_value(key, value, gguf.GGUFValueType.FLOAT32 if isinstance(value, float) else kind)
    names = gguf.get_tensor_name_map(_number(name), config["num_hidden_layers"])
    for original, values in read(folder).items():
        known = names.get_name(_stacked(original), try_suffixes=(".weight", ".bias"))
        assert known is not None, original
        if packed is not None and values.ndim > 1:
            raw, kind = packed(original, values)
            order = _converted(original, np.arange(values.shape[-2], dtype=np.int64), config)
            writer.add_tensor(known, raw[..., order, :] if "_proj" in original else raw, raw_dtype=kind)
            continue
        matrix = values.ndim > 1
        stored = gguf.quants.quantize(_converted(original, values, config), type_ if matrix else Type.F32)
        writer.add_tensor(known, stored, raw_dtype=type_ if matrix else Type.F32)
    for known, values in (more or {}).items():
        writer.add_tensor(known, values)
    return close(writer)


def rounded(folder: Path, target: Path, type_: Type) -> Path:
    """The checkpoint of the weights that a file of this type holds, in float32."""
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    held = {}
    for name, values in read(folder).items():
        values = values if values.ndim < 2 else gguf.quants.dequantize(gguf.quants.quantize(values, type_), type_)
        held[name] = mx.array(values)
    mx.save_safetensors(str(target / "model.safetensors"), held, metadata={"format": "mlx"})
    return target


def holding(folder: Path, target: Path, packed: Packed) -> Path:
    """The checkpoint of the weights that a file with these blocks holds, in float32."""
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    held = {}
    for name, values in read(folder).items():
        held[name] = mx.array(gguf.quants.dequantize(*packed(name, values)) if values.ndim > 1 else values)
    mx.save_safetensors(str(target / "model.safetensors"), held, metadata={"format": "mlx"})
    return target


def read(folder: Path) -> dict[str, np.ndarray]:
    """A checkpoint's weights."""
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    return {name: np.array(array) for name, array in weights.items()}


def close(writer: Any) -> Path:
    """Write what the writer was given. Returns the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(writer.path)


KINDS = {
    bool: gguf.GGUFValueType.BOOL,
    int: gguf.GGUFValueType.UINT32,
    float: gguf.GGUFValueType.FLOAT32,
    str: gguf.GGUFValueType.STRING,
}


def rewrite(
    file: Path,
    target: Path,
    change: Callable[[str, np.ndarray], tuple[np.ndarray, Type] | None],
    rename: Callable[[str], str] = str,
    metadata: Mapping[str, bool | int | float | str | list[float]] = {},
    more: Mapping[str, np.ndarray] = {},
) -> Path:
    """Write a file of numbers again, with other tensors.

    Args:
        change: makes a tensor of its name and values; None leaves it as it is.
        rename: makes another name of a tensor's.
        metadata: other values, and values of new keys.
        more: tensors that the file does not have.
    """
    reader = gguf.GGUFReader(file)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            inner = field.types[1] if len(field.types) > 1 else None
            if field.name not in metadata:
                writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    for key, value in metadata.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, KINDS[type(value)])
    for tensor in reader.tensors:
        values = np.array(tensor.data)
        raw, kind = change(tensor.name, values) or (values, tensor.tensor_type)
        writer.add_tensor(rename(tensor.name), raw, raw_dtype=kind)
    for name, values in more.items():
        writer.add_tensor(name, values)
    return close(writer)


def write_tokenizer(writer: Any, folder: Path, pre: str = "gpt-2") -> None:
    """A byte-level tokenizer and the chat template of a folder."""
    content = json.loads((folder / "tokenizer.json").read_text())
    added = {token["content"]: token["special"] for token in content["added_tokens"]}
    ids = {**content["model"]["vocab"], **{token["content"]: token["id"] for token in content["added_tokens"]}}
    texts = sorted(ids, key=lambda text: ids[text])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(texts)
    kinds = {None: TokenType.NORMAL, True: TokenType.CONTROL, False: TokenType.USER_DEFINED}
    writer.add_token_types([kinds[added.get(text)] for text in texts])
    writer.add_token_merges([" ".join(merge) for merge in content["model"]["merges"]])
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    writer.add_eos_token_id(ids[settings["eos_token"]])
    writer.add_pad_token_id(ids[settings["pad_token"]])
    if (template := folder / "chat_template.jinja").exists():
        writer.add_chat_template(template.read_text())


def _write_config(writer: Any, config: dict[str, Any]) -> None:
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    if config["model_type"] == "llama":
        writer.add_rope_dimension_count(head_dim)
    elif config["model_type"] != "qwen2":
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if "sliding_window" in config:
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern(config["sliding_window_pattern"])
    if "num_experts" in config:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def _number(name: str) -> Any:
    return next(number for number, text in gguf.MODEL_ARCH_NAMES.items() if text == name)


def _stacked(name: str) -> str:
    """mlx-lm's name of stacked experts as that of the converter."""
    return name.replace("switch_mlp", "experts")


def _converted(name: str, values: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """Values as the converter writes them."""
    if config["model_type"] == "gemma3_text" and name.endswith("norm.weight"):
        return values + 1
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
    if config["model_type"] == "llama" and heads is not None:
        shape = values.shape
        halves = values.reshape(config[heads], 2, shape[0] // config[heads] // 2, *shape[1:])
        return halves.swapaxes(1, 2).reshape(shape)
    return values
