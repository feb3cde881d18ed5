"""Layers of mlx-lm's models that compute something else than transformers', and what they compute instead."""

from __future__ import annotations

import functools
from collections.abc import Callable

import mlx.core as mx
from mlx import nn

from ...backends.patches import Function, class_like, replace, with_names
from ...types import Json


def _layers(model: nn.Module, name: str) -> list[nn.Module]:
    return [layer for layer in model.modules() if type(layer).__name__ == name]


def _set_call(layer: nn.Module, call: Function) -> None:
    layer.__class__ = class_like(type(layer), {"__call__": call})


_EXACT = ("gelu", "gelu_python")

_ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function")


def use_gelu(default: str, reads_config: bool = True) -> Callable[[nn.Module, Json], None]:
    """Compute the GELU that the config names, exactly or approximately."""

    def mend(model: nn.Module, config: Json) -> None:
        said = next((config[key] for key in _ACTIVATIONS if config.get(key)), default) if reads_config else default
        replace(model, _gelu(said in _EXACT))

    return mend


@functools.cache
def _gelu(exact: bool) -> tuple[tuple[object, object], ...]:
    gelu = nn.gelu if exact else nn.gelu_approx
    return ((nn, with_names(nn, gelu=gelu, gelu_approx=gelu)),)


def correct_scores(model: nn.Module, config: Json) -> None:
    """ERNIE's experts are chosen by their scores and a bias each."""
    for layer in _layers(model, "Ernie4_5_MoeMLP"):
        layer.e_score_correction_bias = mx.zeros((config["moe_num_experts"],))
        _set_call(layer, _ernie_experts)


def _ernie_experts(self: nn.Module, x: mx.array) -> mx.array:
    scores = self.gate_act(self.gate(x).astype(mx.float32))
    best = mx.argpartition(-(scores + self.e_score_correction_bias), kth=self.k - 1, axis=-1)[..., : self.k]
    scores = mx.take_along_axis(scores, best, axis=-1)
    scores = scores / mx.maximum(scores.sum(axis=-1, keepdims=True), 1e-12)
    y: mx.array = (self.switch_mlp(x, best) * scores[..., None]).sum(axis=-2).astype(x.dtype)
    return y if self.shared_experts is None else y + self.shared_experts(x)


def _jamba_experts(self: nn.Module, x: mx.array) -> mx.array:
    """Jamba's probabilities are those of all experts, and do not sum up to 1 for the chosen ones."""
    k = self.num_experts_per_tok
    scores = mx.softmax(self.router(x).astype(mx.float32), axis=-1, precise=True)
    best = mx.argpartition(-scores, kth=k - 1, axis=-1)[..., :k]
    scores = mx.take_along_axis(scores, best, axis=-1).astype(x.dtype)
    y: mx.array = (self.switch_mlp(x, best) * scores[..., None]).sum(axis=-2)
    return y


def _grouped_norm(self: nn.Module, x: mx.array, gate: mx.array) -> mx.array:
    """Each group of a Mamba layer's heads is normalized by itself."""
    x = mx.unflatten(nn.silu(gate) * x, -1, (self.groups, -1))
    normed: mx.array = mx.fast.rms_norm(x, None, self.eps).flatten(-2)
    scaled: mx.array = self.weight * normed
    return scaled


def group_norms(name: str, key: str) -> Callable[[nn.Module, Json], None]:
    def mend(model: nn.Module, config: Json) -> None:
        for layer in _layers(model, name):
            layer.groups = config[key]
            _set_call(layer, _grouped_norm)

    return mend


def set_epsilon(model: nn.Module, config: Json) -> None:
    for layer in _layers(model, "ResidualBlock"):
        layer.norm.eps = config["layer_norm_epsilon"]


def no_norms_without_positions(model: nn.Module, config: Json) -> None:
    for layer in _layers(model, "Attention"):
        layer.use_qk_norm = layer.use_qk_norm and bool(layer.use_rope)


def scale_tied_logits(model: nn.Module, config: Json) -> None:
    if not config.get("tie_word_embeddings"):
        return
    upstream, scale = type(model).__call__, config["dim_model_base"] / config["hidden_size"]

    def call(self: nn.Module, *args: object, **kwargs: object) -> mx.array:
        logits: mx.array = upstream(self, *args, **kwargs) * scale
        return logits

    _set_call(model, call)


def _falcon_norm(self: nn.Module, x: mx.array, gate: mx.array | None = None) -> mx.array:
    """Like `_grouped_norm`; the gate may follow."""
    if gate is not None and not self.norm_before_gate:
        x = nn.silu(gate) * x
    normed: mx.array = mx.fast.rms_norm(mx.unflatten(x, -1, (self.n_groups, -1)), None, self.variance_epsilon)
    normed = self.weight * normed.flatten(-2)
    return nn.silu(gate) * normed if gate is not None and self.norm_before_gate else normed


def falcon_norms(model: nn.Module, config: Json) -> None:
    for layer in _layers(model, "FalconH1RMSNormGated"):
        _set_call(layer, _falcon_norm)


def choose_sparse_layers(model: nn.Module, config: Json) -> None:
    """Phi-3-small's last layer of each group of n is dense. mlx-lm's first one is sparse, and the others are dense."""
    args = model.args
    for i, layer in enumerate(model.layers):
        attention = layer.self_attn
        attention.block_sparse = (i + 1) % args.dense_attention_every_n_layers != 0
        attention.blocksparse_block_size = args.blocksparse_block_size
        attention.blocksparse_num_local_blocks = args.blocksparse_num_local_blocks
        attention.blocksparse_vert_stride = args.blocksparse_vert_stride
        attention.head_step = 0 if config.get("blocksparse_homo_head_pattern") else 1


def sum_all_experts(model: nn.Module, config: Json) -> None:
    for layer in _layers(model, "JambaSparseMoeBlock"):
        _set_call(layer, _jamba_experts)
