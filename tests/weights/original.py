"""GGUF files as folders that mlx-lm loads by itself: what llama.cpp's package reads in a file, in float32.

Configs are those of the published checkpoints, and names and order of rows are llama.cpp's: nothing here is read by the
code that is tested, except the tokenizer's files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import mlx.core as mx
import numpy as np

from localai_shim.models.gguf.header import read_header
from localai_shim.models.gguf.tokenizer import read_tokenizer

_SMOLLM2 = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0,
    "max_position_embeddings": 8192,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GEMMA3 = {
    "model_type": "gemma3_text",
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_hidden_layers": 18,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "query_pre_attn_scalar": 256,
    "max_position_embeddings": 32768,
    "vocab_size": 262144,
    "bos_token_id": 2,
    "eos_token_id": 1,
}
_GEMMA3_LAYER = {
    **_LAYER,
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


class Original(NamedTuple):
    """A published checkpoint.

    Attributes:
        layer: names of weights in a layer, and llama.cpp's names.
        heads: of the weights whose rows llama.cpp pairs.
        norm_shift: what its converter adds to the weights of norms.
    """

    config: dict[str, Any]
    layer: dict[str, str]
    heads: dict[str, int]
    norm_shift: int = 0


SMOLLM2 = Original(_SMOLLM2, _LAYER, {"attn_q": 9, "attn_k": 3})
GEMMA3 = Original(_GEMMA3, _GEMMA3_LAYER, {}, 1)


def save(file: Path, folder: Path, original: Original = SMOLLM2) -> Path:
    """Write the folder. Returns it."""
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}

    def values(name: str) -> np.ndarray:
        tensor = tensors[f"{name}.weight"]
        found = np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)
        return found - original.norm_shift if name.endswith("norm") else found

    found = {"model.embed_tokens": values("token_embd"), "model.norm": values("output_norm")}
    for layer in range(original.config["num_hidden_layers"]):
        for ours, theirs in original.layer.items():
            matrix = values(f"blk.{layer}.{theirs}")
            if heads := original.heads.get(theirs):
                rows, columns = matrix.shape
                pairs = matrix.reshape(heads, rows // heads // 2, 2, columns)
                matrix = np.concatenate([pairs[:, :, 0], pairs[:, :, 1]], axis=1).reshape(rows, columns)
            found[f"model.layers.{layer}.{ours}"] = matrix
    read_tokenizer(read_header(file)).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(original.config))
    mx.save_safetensors(str(folder / "model.safetensors"), {f"{k}.weight": mx.array(v) for k, v in found.items()})
    return folder
