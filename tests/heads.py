"""Models with heads that guess further tokens (MTP), saved as checkpoints in the forms that there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.architectures import config_of, make
from tests.tiny import TEMPLATE, make_tokenizer

QWEN = ("qwen3", "qwen3_next", "qwen3_5", "qwen3_5_moe")
NEXT = ("glm4_moe", "glm4_moe_lite", "deepseek_v3", "deepseek_v32", "glm_moe_dsa")
KINDS = (*QWEN, *NEXT, "mimo", "nemotron_h")
OUTPUTS = ("o_proj.weight", "out_proj.weight", "down_proj.weight", "fc2.weight")
_QWEN_NAMES = "pre_fc_norm_embedding pre_fc_norm_hidden fc norm"
_NEXT_NAMES = "enorm hnorm eh_proj shared_head.norm"
_NAMES = {
    "mimo": "token_layernorm hidden_layernorm input_proj final_layernorm",
    "nemotron_h": "layers.0.enorm layers.0.hnorm layers.0.eh_proj layers.1.final_layernorm",
}
_PREFIXES = {"mimo": "model.mtp_layers.0.", "nemotron_h": "mtp."}
_CHANGES: dict[str, dict[str, Any]] = {
    "nemotron_h": {
        "hybrid_override_pattern": ["M", "*", "E", "M"],
        "layer_types": ["linear_attention", "full_attention", "moe", "linear_attention"],
        "mtp_hybrid_override_pattern": "*E",
        "moe_shared_expert_intermediate_size": 32,
    }
}
_LAYERS = {"nemotron_h": (1, 2)}
"""Layers of a model that its head has as well; of others it is one."""
_SHIFTED = (
    ".input_layernorm.weight",
    ".post_attention_layernorm.weight",
    "model.norm.weight",
    ".q_norm.weight",
    ".k_norm.weight",
)

Tensors = dict[str, Any]


def text_of(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a config that describes the text model."""
    return config.get("text_config", config)  # type: ignore[no-any-return]


def base_of(kind: str) -> str:
    """The beginning of the names of a model's tensors."""
    if kind == "nemotron_h":
        return "backbone."
    return "language_model.model." if kind.startswith("qwen3_5") else "model."


def norm_of(kind: str) -> str:
    """The name of the factors of a model's last norm."""
    return base_of(kind) + ("norm_f.weight" if kind == "nemotron_h" else "norm.weight")


def trunk(kind: str, share: float = 1.0) -> tuple[Tensors, dict[str, Any]]:
    """A model's tensors and its config; with a small share its layers change little of what the embeddings say."""
    from mlx.utils import tree_flatten

    changes = _CHANGES.get(kind, {})
    weights = dict(tree_flatten(make(kind, **changes).parameters()))
    config = json.loads(json.dumps(config_of(kind, **changes)))
    declared = "mtp_num_hidden_layers" if kind in QWEN else "num_nextn_predict_layers"
    text_of(config)[declared] = 1
    if text_of(config)["rope_scaling"] is None:
        del text_of(config)["rope_scaling"]  # transformers warns of it in configs of models that it does not know
    return {name: array * share if name.endswith(OUTPUTS) else array for name, array in weights.items()}, config


def head(kind: str, weights: Tensors, config: dict[str, Any], *, agrees: bool = True, seed: int = 5) -> Tensors:
    """A head's tensors in MLX's form, by their names behind `mtp.` or `layers.N.`.

    Args:
        agrees: it guesses what a model whose layers do nothing says.
    """
    import mlx.core as mx

    mx.random.seed(seed)
    base, text = base_of(kind), text_of(config)
    layers = _LAYERS.get(kind, (text.get("full_attention_interval", text["num_hidden_layers"]) - 1,))
    made: Tensors = {}
    for i, layer in enumerate(layers):
        prefix, inner = f"{base}layers.{layer}.", f"layers.{i}." if _has_layers(kind) else ""
        made |= {inner + name.removeprefix(prefix): array for name, array in weights.items() if name.startswith(prefix)}
    names = _NAMES.get(kind, _QWEN_NAMES if kind in QWEN else _NEXT_NAMES)
    embedding, hidden, join, norm = (f"{name}.weight" for name in names.split())
    width = text["hidden_size"]
    made = {name: _random(array, name) for name, array in made.items()}
    if agrees:
        made = {name: array * 0 if name.endswith(OUTPUTS) else array for name, array in made.items()}
        made |= {embedding: mx.ones(width), hidden: mx.ones(width), norm: weights[norm_of(kind)]}
        halves = mx.eye(width), mx.zeros((width, width))
        made[join] = mx.concatenate(halves[::-1] if kind == "mimo" else halves, axis=1)
    else:
        made |= {name: 1 + 0.1 * mx.random.normal((width,)) for name in (embedding, hidden, norm)}
        made[join] = 0.15 * mx.random.normal((width, 2 * width))
    if kind == "glm4_moe_lite":
        made["shared_head.head.weight"] = weights["lm_head.weight"] * 1.0
    return made


def _has_layers(kind: str) -> bool:
    """The names of a head's layers have their number."""
    return kind in QWEN or kind == "nemotron_h"


def _random(array: Any, name: str) -> Any:
    import mlx.core as mx

    return 0.15 * mx.random.normal(array.shape) if array.ndim > 1 else array + 0.05 * mx.random.normal(array.shape)


def named(kind: str, tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """A head's tensors by the names that they have in a checkpoint."""
    layers = text_of(config)["num_hidden_layers"]
    prefix = _PREFIXES.get(kind, "mtp." if kind in QWEN else f"model.layers.{layers}.")
    return {prefix + name: array for name, array in tensors.items()}


def as_published(kind: str, tensors: Tensors) -> Tensors:
    """A Qwen checkpoint's or head's tensors in Hugging Face's form: norms are what is added to 1."""
    made: Tensors = {}
    for name, array in tensors.items():
        if array.ndim == 1 and (name.endswith(_SHIFTED) or (name.startswith("mtp.") and "norm" in name)):
            array = array - 1
        if "conv1d.weight" in name:
            array = array.moveaxis(1, 2)
        stacked = ".switch_mlp." in name and kind == "qwen3_next"
        for expert in range(array.shape[0]) if stacked else (None,):
            own = name if expert is None else name.replace("switch_mlp", f"experts.{expert}")
            made[own.replace("language_model.model.", "model.language_model.")] = (
                array if expert is None else array[expert]
            )
    return made


def save(folder: Path, tensors: Tensors, config: dict[str, Any], form: str | None = "mlx") -> Path:
    """Save a checkpoint, with its tokenizer. Returns the folder."""
    import mlx.core as mx

    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(folder, template=TEMPLATE)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": ids["<|im_end|>"]}))
    tensors = {name: mx.contiguous(array) for name, array in tensors.items()}
    metadata = {} if form is None else {"format": form}
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, metadata=metadata)
    return folder


def model_with_head(folder: Path, kind: str, *, share: float = 0.05, agrees: bool = True) -> Path:
    """Save a model with a head in its own file, in MLX's form. Returns the folder."""
    weights, config = trunk(kind, share)
    its = named(kind, head(kind, weights, config, agrees=agrees), config)
    return save(folder, {**weights, **its}, config)
