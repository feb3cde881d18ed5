"""SmolLM2 as a folder that mlx-lm loads by itself: what llama.cpp's package reads in the file, in float32.

The config is that of the published checkpoint, and names and order of rows are llama.cpp's: nothing here is read by the
code that is tested, but for the tokenizer's files.
"""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import mlx.core as mx
import numpy as np

from localai_shim.models.gguf.header import read_header
from localai_shim.models.gguf.tokenizer import read_tokenizer

CONFIG = {
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
_HEADS = {"attn_q": 9, "attn_k": 3}


def save(file: Path, folder: Path) -> Path:
    """Write the folder. Returns it."""
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}

    def values(name: str) -> np.ndarray:
        tensor = tensors[f"{name}.weight"]
        return np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)

    found = {"model.embed_tokens": values("token_embd"), "model.norm": values("output_norm")}
    for layer in range(30):
        for ours, theirs in _LAYER.items():
            matrix = values(f"blk.{layer}.{theirs}")
            if heads := _HEADS.get(theirs):
                rows, columns = matrix.shape
                pairs = matrix.reshape(heads, rows // heads // 2, 2, columns)
                matrix = np.concatenate([pairs[:, :, 0], pairs[:, :, 1]], axis=1).reshape(rows, columns)
            found[f"model.layers.{layer}.{ours}"] = matrix
    read_tokenizer(read_header(file)).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    mx.save_safetensors(str(folder / "model.safetensors"), {f"{k}.weight": mx.array(v) for k, v in found.items()})
    return folder
