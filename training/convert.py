"""The checkpoint in Hugging Face form: weights by their names there, and the configuration files."""

import json
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from training.chat import END_OF_TEXT, IM_END
from training.network import Network, Shape

NAMES: Final = {
    "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj", "output": "self_attn.o_proj",
    "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}  # fmt: skip


def model_config(shape: Shape, end_of_text: int, im_end: int, context: int) -> dict[str, Any]:
    """`config.json`."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "intermediate_size": shape.inner,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head,
        "max_position_embeddings": context,
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.theta,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "use_cache": True,
        "torch_dtype": "float16",
        "bos_token_id": None,
        "eos_token_id": im_end,
        "pad_token_id": end_of_text,
    }


def generation_config(end_of_text: int, im_end: int) -> dict[str, Any]:
    """`generation_config.json`: sampling mild enough to keep the answers right."""
    return {
        "do_sample": True,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 20,
        "eos_token_id": [im_end, end_of_text],
        "pad_token_id": end_of_text,
    }


def named_places(network: Network) -> dict[str, torch.Tensor]:
    """The network's weights by the names that transformers and mlx-lm read."""
    made: dict[str, torch.Tensor] = {
        "model.embed_tokens.weight": network.embedding,
        "model.norm.weight": network.last_norm,
    }
    for layer in range(network.shape.layers):
        start = f"model.layers.{layer}."
        for ours, theirs in NAMES.items():
            made[f"{start}{theirs}.weight"] = getattr(network, ours)[layer]
        made[f"{start}input_layernorm.weight"] = network.norms[layer][0]
        made[f"{start}post_attention_layernorm.weight"] = network.norms[layer][1]
        made[f"{start}self_attn.q_norm.weight"] = network.head_norms[layer][0]
        made[f"{start}self_attn.k_norm.weight"] = network.head_norms[layer][1]
    return made


def write_checkpoint(network: Network, tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Write `model.safetensors`, `config.json` and `generation_config.json`."""
    vocabulary = tokenizer.get_vocab()
    end_of_text, im_end = vocabulary[END_OF_TEXT], vocabulary[IM_END]
    config = model_config(network.shape, end_of_text, im_end, context)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    sampling = generation_config(end_of_text, im_end)
    (folder / "generation_config.json").write_text(json.dumps(sampling, indent=2) + "\n")
    write_weights(network, folder / "model.safetensors")


def load_network(folder: Path) -> Network:
    """The network of a checkpoint that :func:`write_checkpoint` made."""
    config = json.loads((folder / "config.json").read_text())
    shape = Shape(
        config["vocab_size"], config["hidden_size"], config["num_hidden_layers"], config["intermediate_size"],
        config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"], config["rope_theta"],
        config["rms_norm_eps"],
    )  # fmt: skip
    network = Network(shape, 0)
    load_weights(network, folder)
    return network


def write_weights(network: Network, file: Path) -> None:
    """Write the weights in float16."""
    weights = {name: one.detach().to("cpu", torch.float16).contiguous() for name, one in named_places(network).items()}
    save_file(weights, str(file), metadata={"format": "pt"})


def load_weights(network: Network, folder: Path) -> None:
    """Give the network the weights of a checkpoint."""
    weights = load_file(str(folder / "model.safetensors"))
    with torch.no_grad():
        for name, place in named_places(network).items():
            place.copy_(weights[name])
