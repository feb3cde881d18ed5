"""Layers of heads, made of the model's own classes: how what they read is joined, and the layer behind it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import NamedTuple

import mlx.core as mx
from mlx import nn

from ...types import Json

_FUSED = re.compile(r"(.*)\.(?:experts|switch_mlp)\.gate_up_proj(\.weight|\.scales|\.biases)?")
_DOWN = re.compile(r"(.*)\.experts\.down_proj(\.weight|\.scales|\.biases)?")
_EXPERT = re.compile(r"(.*)\.experts\.(\d+)\.(gate_proj|up_proj|down_proj)\.(weight|scales|biases)")
_BLOCK = re.compile(r"layers\.(\d+)\.mixer\.(\w+)\..*")
_SCALES = (".k_scale", ".v_scale")  # of keys and values that others keep in 8 bits
_GROUPS = {16: ("nvfp4", 4), 32: ("mxfp", 0)}
"""Modes of packed weights without biases, by group size."""

Tensors = dict[str, mx.array]


class Family(NamedTuple):
    """Parts around the layers of a family's heads: names of tensors, and the form of the states that they read."""

    embedding: str
    hidden: str
    join: str
    norm: str
    hidden_first: bool = False
    """States come before embeddings in what is joined."""
    before_norm: bool = False
    """States are those before the model's last norm."""

    @property
    def names(self) -> dict[str, str]:
        """Names of a module's parts, with those in a checkpoint."""
        return {"embedding": self.embedding, "hidden": self.hidden, "join": self.join, "norm": self.norm}


QWEN = Family("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
NEXT = Family("enorm", "hnorm", "eh_proj", "shared_head.norm")
MIMO = Family("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm", True, True)
NEMOTRON = Family("enorm", "hnorm", "eh_proj", "final_layernorm")
FAMILIES: dict[str, Family] = {
    "qwen3": QWEN,
    "qwen3_next": QWEN,
    "qwen3_5": QWEN,
    "qwen3_5_moe": QWEN,
    "glm4_moe": NEXT,
    "glm4_moe_lite": NEXT,
    "deepseek_v3": NEXT,
    "deepseek_v32": NEXT,
    "glm_moe_dsa": NEXT,
    "mimo": MIMO,
    "nemotron_h": NEMOTRON,
}
"""Kinds of models, by mlx-lm's module, whose heads are read."""
OWN_OUTPUT = ("glm4_moe_lite",)
"""Those whose head has another output layer than the model; in others it is the same one once more."""
ARRAY_MASKS = ("glm4_moe_lite", "deepseek_v3", "deepseek_v32", "glm_moe_dsa")
"""Those whose attention reads masks as arrays only."""


class HeadParts(NamedTuple):
    """A head's module, and its tensors by the module's names."""

    module: nn.Module
    tensors: Tensors


def renamed(kind: str, tensors: Tensors) -> Tensors:
    """Tensors of a layer behind a model's own ones, by the names that a checkpoint of the model's kind has.

    Args:
        kind: the model's, a key of `FAMILIES`.
        tensors: by names as in DeepSeek's checkpoints.
    """
    family = FAMILIES[kind]
    if family is NEXT:
        return tensors
    names = {NEXT.names[part]: its for part, its in family.names.items()}
    made: Tensors = {}
    for name, array in tensors.items():
        stem, _, ending = name.rpartition(".")
        made[f"{names[stem]}.{ending}" if stem in names else f"layers.0.{name}"] = array
    return made


def make_parts(kind: str, config: Json, tensors: Tensors) -> HeadParts:
    """Make a head's module, with the layer that the model's code has.

    Args:
        kind: the model's, a key of `FAMILIES`.
        config: the text model's.
        tensors: of the head, by a checkpoint's names.

    Raises:
        ValueError: it lacks tensors, or its config does not fit.
    """
    family = FAMILIES[kind]
    if f"{family.join}.weight" not in tensors:
        raise ValueError(f"it has no '{family.join}.weight'")
    if family is QWEN:
        tensors = with_stacked_experts(tensors)
        layers, eps = _qwen_layers(kind, config, moe=any("switch_mlp" in name for name in tensors))
    elif family is NEMOTRON:
        layers, eps, tensors = _nemotron_layers(config, tensors)
    else:
        layers, eps, tensors = _next_layers(kind, config, tensors)
    width = config["hidden_size"]
    made = nn.Module()
    made.embedding, made.hidden, made.norm = (nn.RMSNorm(width, eps=eps) for _ in range(3))
    made.join, made.layers = nn.Linear(2 * width, width, bias=False), layers
    moved: Tensors = {}
    for name, array in tensors.items():
        part = next((part for part, its in family.names.items() if name.startswith(f"{its}.")), None)
        if part is not None:
            turned = _with_halves_swapped(array) if part == "join" and family.hidden_first else array
            moved[part + name.removeprefix(family.names[part])] = turned
        elif name.startswith("layers."):
            moved[name] = array
        elif name.startswith("shared_head.head.") and kind in OWN_OUTPUT:
            moved[name.replace("shared_head.head", "output")] = array
            made.output = nn.Linear(width, config["vocab_size"], bias=False)
    return HeadParts(made, moved)


def _qwen_layers(kind: str, config: Json, *, moe: bool) -> tuple[list[nn.Module], float]:
    """A decoder layer with full attention."""
    module = importlib.import_module(f"mlx_lm.models.{'qwen3_5' if kind == 'qwen3_5_moe' else kind}")
    one = {"num_hidden_layers": 1, "full_attention_interval": 1, "mlp_only_layers": [], "decoder_sparse_step": 1}
    made = {**config, **one, **({} if moe else {"num_experts": 0})}
    if kind == "qwen3":
        args = module.ModelArgs.from_dict(made)
        return [module.TransformerBlock(args)], args.rms_norm_eps
    if kind == "qwen3_next":
        args = module.ModelArgs.from_dict(made)
        return [module.Qwen3NextDecoderLayer(args, 0)], args.rms_norm_eps
    args = module.TextModelArgs.from_dict(made)
    return [module.DecoderLayer(args, 0)], args.rms_norm_eps


def _next_layers(kind: str, config: Json, tensors: Tensors) -> tuple[list[nn.Module], float, Tensors]:
    """The layer that comes behind a model's own ones, and the tensors in the form that the model's code makes."""
    module = importlib.import_module(f"mlx_lm.models.{kind}")
    args = module.ModelArgs.from_dict({**config, "num_hidden_layers": 1, "first_k_dense_replace": 0})
    model = module.Model(args)
    prefix = "model.layers.0."
    made: Tensors = model.sanitize({prefix + name: array for name, array in tensors.items()})
    made = {name.removeprefix(prefix): array for name, array in made.items() if "rotary_emb.inv_freq" not in name}
    outside = (*FAMILIES[kind].names.values(), "shared_head.", "embed_tokens.")
    named = {name if name.startswith(outside) else f"layers.0.{name}": array for name, array in made.items()}
    return model.model.layers, args.rms_norm_eps, named


def _nemotron_layers(config: Json, tensors: Tensors) -> tuple[list[nn.Module], float, Tensors]:
    """Blocks of which each has an attention, experts, or an MLP. Their tensors say which: names in configs differ.

    Raises:
        ValueError: other than one of them has attention.
    """
    from mlx_lm.models import nemotron_h

    blocks: dict[int, str] = {}
    for name in tensors:
        if found := _BLOCK.match(name):
            kind = "*" if found[2] == "q_proj" else "E" if found[2] == "gate" else ""
            blocks[int(found[1])] = kind or blocks.get(int(found[1]), "-")
    pattern = [blocks[i] for i in sorted(blocks)]
    if pattern.count("*") != 1:
        raise ValueError(f"{pattern.count('*')} of its blocks have attention, not one")
    args = nemotron_h.ModelArgs.from_dict({**config, "hybrid_override_pattern": pattern})
    model, prefix = nemotron_h.Model(args), "backbone."
    made: Tensors = model.sanitize({prefix + name: array for name, array in tensors.items()})
    named = {name.removeprefix(prefix): array for name, array in made.items() if not name.endswith(_SCALES)}
    return model.layers, args.layer_norm_epsilon, named


def _with_halves_swapped(array: mx.array) -> mx.array:
    """A tensor of a layer, packed or not, for inputs whose halves have changed places."""
    first, second = mx.split(array, 2, axis=-1)
    return mx.concatenate([second, first], axis=-1)


def with_stacked_experts(tensors: Mapping[str, mx.array]) -> Tensors:
    """Tensors with all experts of a block in one, as MLX's layers have them."""
    made: Tensors = {}
    experts: dict[str, dict[int, mx.array]] = {}
    for name, array in tensors.items():
        if found := _FUSED.fullmatch(name):
            ending = found[2] or ".weight"
            gate, up = mx.split(array, 2, axis=-2)
            made[f"{found[1]}.switch_mlp.gate_proj{ending}"] = gate
            made[f"{found[1]}.switch_mlp.up_proj{ending}"] = up
        elif found := _DOWN.fullmatch(name):
            made[f"{found[1]}.switch_mlp.down_proj{found[2] or '.weight'}"] = array
        elif found := _EXPERT.fullmatch(name):
            experts.setdefault(f"{found[1]}.switch_mlp.{found[3]}.{found[4]}", {})[int(found[2])] = array
        else:
            made[name] = array
    for name, each in experts.items():
        if sorted(each) != list(range(len(each))):
            raise ValueError(f"experts are missing: '{name}' has {len(each)}, up to number {max(each)}")
        made[name] = mx.stack([each[i] for i in range(len(each))])
    return made


def load(parts: HeadParts) -> None:
    """Give a head's module its tensors, packed as these are.

    Raises:
        ValueError: some are missing, or have other shapes; names them.
    """

    def packing(path: str, layer: nn.Module) -> bool | dict[str, object]:
        scales, weight = parts.tensors.get(f"{path}.scales"), parts.tensors.get(f"{path}.weight")
        if scales is None or weight is None or not hasattr(layer, "to_quantized"):
            return False
        return _packing(layer.weight.shape[-1], weight, scales, affine=f"{path}.biases" in parts.tensors)

    nn.quantize(parts.module, class_predicate=packing)
    parts.module.load_weights(list(parts.tensors.items()), strict=True)
    parts.module.eval()


def _packing(inputs: int, weight: mx.array, scales: mx.array, *, affine: bool) -> dict[str, object]:
    """The settings of a packed layer, by the shapes of its tensors."""
    group_size, bits = inputs // scales.shape[-1], weight.shape[-1] * 32 // inputs
    if affine:
        return {"group_size": group_size, "bits": bits, "mode": "affine"}
    mode, known = _GROUPS.get(group_size, ("mxfp", 0))
    return {"group_size": group_size, "bits": known or bits, "mode": mode if known else f"{mode}{bits}"}
