"""The checkpoint in Hugging Face form: SmolVLM's weights by their names there, and the configuration files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from training.vision.dialogues import IMAGE
from training.vision.network import Network, Shape
from training.vision.tokens import CONTEXT, END, END_OF_TEXT, IMAGE_TOKENS

TOWER: Final = {
    "tower_out": "self_attn.out_proj.weight", "tower_out_bias": "self_attn.out_proj.bias",
    "tower_up": "mlp.fc1.weight", "tower_up_bias": "mlp.fc1.bias",
    "tower_down": "mlp.fc2.weight", "tower_down_bias": "mlp.fc2.bias",
}  # fmt: skip
TEXT: Final = {
    "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj", "output": "self_attn.o_proj",
    "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}  # fmt: skip


def named_places(network: Network) -> dict[str, Tensor]:
    """The network's weights by the names that transformers and mlx-vlm read."""
    shape, vision, text = network.shape, "model.vision_model.", "model.text_model."
    made: dict[str, Tensor] = {
        f"{vision}embeddings.patch_embedding.weight": network.patches.view(-1, 3, shape.patch, shape.patch),
        f"{vision}embeddings.patch_embedding.bias": network.patch_bias,
        f"{vision}embeddings.position_embedding.weight": network.places,
        f"{vision}post_layernorm.weight": network.tower_last,
        f"{vision}post_layernorm.bias": network.tower_last_shift,
        "model.connector.modality_projection.proj.weight": network.connector,
        f"{text}embed_tokens.weight": network.embedding,
        f"{text}norm.weight": network.last_norm,
        "lm_head.weight": network.logits,
    }
    for layer in range(shape.tower_layers):
        start = f"{vision}encoder.layers.{layer}."
        for i, name in enumerate(("q_proj", "k_proj", "v_proj")):
            made[f"{start}self_attn.{name}.weight"] = network.tower_qkv[layer, i]
            made[f"{start}self_attn.{name}.bias"] = network.tower_qkv_bias[layer, i]
        for ours, theirs in TOWER.items():
            made[start + theirs] = getattr(network, ours)[layer]
        for i in range(2):
            made[f"{start}layer_norm{i + 1}.weight"] = network.tower_norms[layer, i]
            made[f"{start}layer_norm{i + 1}.bias"] = network.tower_shifts[layer, i]
    for layer in range(shape.layers):
        start = f"{text}layers.{layer}."
        for ours, theirs in TEXT.items():
            made[f"{start}{theirs}.weight"] = getattr(network, ours)[layer]
        made[f"{start}input_layernorm.weight"] = network.norms[layer, 0]
        made[f"{start}post_attention_layernorm.weight"] = network.norms[layer, 1]
    return made


def configs(shape: Shape, table: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Configuration files by name."""
    end, padding = table[END], table[END_OF_TEXT]
    common = {"hidden_size": shape.width, "num_attention_heads": shape.heads}
    text = {
        **common,
        "model_type": "llama",
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head,
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.theta,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False,
        "eos_token_id": end,
        "pad_token_id": padding,
    }
    vision = {
        **common,
        "model_type": "smolvlm_vision",
        "intermediate_size": shape.tower_inner,
        "num_hidden_layers": shape.tower_layers,
        "patch_size": shape.patch,
        "image_size": shape.image,
        "num_channels": 3,
        "layer_norm_eps": shape.tower_epsilon,
        "hidden_act": "gelu",
    }
    return {
        "config.json": {
            "architectures": ["SmolVLMForConditionalGeneration"],
            "model_type": "smolvlm",
            "text_config": text,
            "vision_config": vision,
            "scale_factor": shape.merge,
            "image_token_id": table[IMAGE],
            "vocab_size": shape.vocabulary,
            "max_position_embeddings": CONTEXT,
            "tie_word_embeddings": False,
            "torch_dtype": "float16",
            "eos_token_id": end,
            "pad_token_id": padding,
        },
        "generation_config.json": {"do_sample": False, "eos_token_id": [end, padding], "pad_token_id": padding},
        "preprocessor_config.json": {
            "image_processor_type": "SmolVLMImageProcessor",
            "do_convert_rgb": True,
            "do_resize": False,
            "do_image_splitting": False,
            "do_pad": False,
            "size": {"longest_edge": shape.image},
            "max_image_size": {"longest_edge": shape.image},
            "resample": 2,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
        "processor_config.json": {"processor_class": "SmolVLMProcessor", "image_seq_len": IMAGE_TOKENS},
    }


def write_checkpoint(network: Network, folder: Path, table: Mapping[str, int]) -> None:
    """Write the weights and the configuration files beside the tokenizer's."""
    for name, config in configs(network.shape, table).items():
        (folder / name).write_text(json.dumps(config, indent=2) + "\n")
    write_weights(network, folder / "model.safetensors")


def write_weights(network: Network, file: Path) -> None:
    """Write the weights in float16."""
    weights = {name: one.detach().to("cpu", torch.float16).contiguous() for name, one in named_places(network).items()}
    save_file(weights, str(file), metadata={"format": "pt"})


def load_weights(network: Network, file: Path) -> None:
    """Give the network the weights of a file that :func:`write_weights` made."""
    weights = load_file(str(file))
    with torch.no_grad():
        for name, place in named_places(network).items():
            place.copy_(weights[name])
