"""Tensors of checkpoints that mlx-lm reads under other names, in another order, or not at all."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

log = logging.getLogger("localai_shim")

Weights: TypeAlias = "dict[str, mx.array]"
Sanitize = Callable[[nn.Module, Weights], Weights]
"""Makes a checkpoint's tensors the model's."""

NANOCHAT = {
    "model.embed_tokens.": "transformer.wte.",
    "model.layers.": "transformer.h.",
    ".self_attn.q_proj.": ".attn.c_q.",
    ".self_attn.k_proj.": ".attn.c_k.",
    ".self_attn.v_proj.": ".attn.c_v.",
    ".self_attn.o_proj.": ".attn.c_proj.",
    ".mlp.fc1.": ".mlp.c_fc.",
    ".mlp.fc2.": ".mlp.c_proj.",
}

OLMO_HYBRID = {
    ".attention_layer_norm.": ".input_layernorm.",
    ".feedforward_layer_norm.": ".post_attention_layernorm.",
}

SHARED_LAYERS = r"\.self_attn\.(k_proj|v_proj|k_norm|v_norm)\."
"""Of layers that use another one's keys; upstream's layers have such tensors without using them."""

_MLX_VLM = ("language_model.model.", "language_model.")
"""Names of mlx-vlm's language models, and what they are before its classes have read them."""

GPT2 = {"transformer.": ""}

KIMI_LINEAR = {f".block_sparse_moe.{name}.": f".mlp.{name}." for name in ("gate_proj", "up_proj", "down_proj")}


def keep_biases(upstream: Sanitize) -> Sanitize:
    """Read the biases of ERNIE's experts; a checkpoint that mlx-lm has converted has none."""
    key = "e_score_correction_bias"

    def sanitize(self: nn.Module, weights: Weights) -> Weights:
        biases = {}
        for name, array in weights.items():
            if name.endswith(key) and ".mlp." in name:
                biases[name.replace(".moe_statics.", ".").replace(".gate.", ".")] = array.reshape(-1)
        made = upstream(self, weights)
        for number, layer in enumerate(self.layers):
            if key in layer.mlp:
                made[name] = biases.get(name := f"model.layers.{number}.mlp.{key}", mx.zeros_like(layer.mlp[key]))
        if not biases:
            log.warning("the checkpoint has no %s: it was lost when the model was converted to MLX", key)
        return made

    return sanitize


def multiply_keys(upstream: Sanitize) -> Sanitize:
    """Falcon-H1's multipliers of keys and values, which upstream multiplies into the weights under other names."""

    def sanitize(self: nn.Module, weights: Weights) -> Weights:
        made, args = upstream(self, dict(weights)), self.args
        is_converted = all(made[name] is array for name, array in weights.items())
        factors = {".k_proj.": args.key_multiplier, ".v_proj.": args.attention_in_multiplier}
        if is_converted and any(factor != 1 for factor in factors.values()):
            log.warning(
                "mlx-lm has converted this checkpoint without its key_multiplier: its answers differ from the "
                "original's. Use the original checkpoint"
            )
            return made
        for name in made:
            factor = next((factor for part, factor in factors.items() if part in name), 1)
            made[name] = made[name] * factor if factor != 1 else made[name]
        return made

    return sanitize


def fill_unused(names: str) -> Callable[[Sanitize], Sanitize]:
    """Give a model tensors with these names, which it has and never uses, if a checkpoint has none."""
    unused = re.compile(names)

    def filling(upstream: Sanitize) -> Sanitize:
        def sanitize(self: nn.Module, weights: Weights) -> Weights:
            made = upstream(self, weights)
            saved = {name.replace(*_MLX_VLM) for name in made}
            for name, array in tree_flatten(self.parameters()):
                if name.replace(*_MLX_VLM) not in saved and unused.search(name):
                    made[name] = array
            return made

        return sanitize

    return filling


def fold_scales(upstream: Sanitize) -> Sanitize:
    """Multiply an encoder's scales of layers, which transformers saves, into the projections before them."""
    scale = re.compile(r"(.*\.blocks\.\d+)\.layer_scale(1|2)\.lambda1")
    projections = {"1": "attn.proj", "2": "mlp.fc2"}

    def sanitize(self: nn.Module, weights: Weights) -> Weights:
        found = {name: match for name in weights if (match := scale.fullmatch(name))}
        made = {name: array for name, array in weights.items() if name not in found}
        for name, match in found.items():
            layer = f"{match[1]}.{projections[match[2]]}"
            made[f"{layer}.weight"] = made[f"{layer}.weight"] * weights[name][:, None]
            made[f"{layer}.bias"] = made[f"{layer}.bias"] * weights[name]
        return upstream(self, made)

    return sanitize


def drop_zero_experts(upstream: Sanitize) -> Sanitize:
    """transformers saves weights for LongCat's experts that compute nothing."""

    def sanitize(self: nn.Module, weights: Weights) -> Weights:
        last = self.args.n_routed_experts
        numbers = {name: re.search(r"\.mlp\.experts\.(\d+)\.", name) for name in weights}
        kept = {name: weights[name] for name, found in numbers.items() if found is None or int(found[1]) < last}
        return upstream(self, kept)

    return sanitize


def transpose_experts(upstream: Sanitize) -> Sanitize:
    """Read gpt-oss' experts in float, which transformers saves with their inputs first."""

    def sanitize(self: nn.Module, weights: Weights) -> Weights:
        ends = ("experts.gate_up_proj", "experts.down_proj")
        return upstream(
            self,
            {
                f"{name}.weight" if name.endswith(ends) else name: array.swapaxes(-1, -2)
                if name.endswith(ends)
                else array
                for name, array in weights.items()
            },
        )

    return sanitize


_HY4 = {
    "model.hc_pre.hc_head.": "model.hc_head.",
    ".hc_pre.hc_attn_layer.": ".hc_attn_layer.hc_pre.",
    ".hc_pre.hc_mlp_layer.": ".hc_mlp_layer.hc_pre.",
    ".mlp.linear_gate.": ".mlp.gate_proj.",
    ".mlp.shared_experts.linear_gate.": ".mlp.shared_experts.gate_proj.",
}


def read_floats_of_hy4(upstream: Sanitize) -> Sanitize:
    """Read Hy4's tensors in float, as transformers saves them and names them; upstream expects scales."""

    def sanitize(self: nn.Module, weights: Weights) -> Weights:
        made, args = dict[str, mx.array](), self.config
        for old, array in weights.items():
            name, has_scale = _renamed(old, _HY4), f"{old}_scale" in weights
            if name.endswith(("experts.gate_up_proj", "experts.down_proj")) and not has_scale:
                made[name.replace(".experts.", ".switch_mlp.") + ".weight"] = array
            elif name.endswith(".kv_b_proj.weight") and not has_scale:
                place = name.removesuffix("kv_b_proj.weight")
                both = array.reshape(args.num_attention_heads, -1, args.kv_lora_rank)
                made[f"{place}embed_q.weight"] = mx.contiguous(both[:, : args.qk_nope_head_dim].swapaxes(-1, -2))
                made[f"{place}unembed_out.weight"] = mx.contiguous(both[:, args.qk_nope_head_dim :])
            else:
                made[name] = array
        return upstream(self, made)

    return sanitize


def rename(names: Mapping[str, str]) -> Callable[[Sanitize], Sanitize]:
    """Read the names of tensors that transformers has."""

    def renaming(upstream: Sanitize) -> Sanitize:
        def sanitize(self: nn.Module, weights: Weights) -> Weights:
            return upstream(self, {_renamed(name, names): array for name, array in weights.items()})

        return sanitize

    return renaming


def _renamed(name: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        name = name.replace(old, new)
    return name
