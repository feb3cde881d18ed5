"""Architectures of mlx-lm whose code computes something else than the model's authors, and what mends it.

Each row was found by `make test-reference`, which compares logits with transformers'. A row applies only to the source
that it was written for.
"""

from __future__ import annotations

import functools
import importlib
import logging
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..backends.patches import class_like, fingerprint, replace, with_names
from ..types import Json, ModelLoadError

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn

log = logging.getLogger("localai_shim")

Weights: TypeAlias = "dict[str, mx.array]"
Sanitize = Callable[[Any, Weights], Weights]
"""Makes a checkpoint's tensors the model's."""


class Fault(NamedTuple):
    """Something that mlx-lm computes wrong, or cannot read.

    Attributes:
        what: the difference.
        issue: upstream's, with its number.
        sources: functions of the module, or of another one (`module:name`), whose `fingerprint` has to be this one.
        mend: changes a new model's layers; gets its config.
        sanitize: makes another `sanitize` of the model's.
        refuse: says why a model with this config cannot be served; empty if it can be.
    """

    what: str
    issue: str
    sources: Mapping[str, str]
    mend: Callable[[nn.Module, Json], object] = lambda model, config: None
    sanitize: Callable[[Sanitize], Sanitize] = lambda upstream: upstream
    refuse: Callable[[Json], str] = lambda config: ""


def corrected(kind: Any, config: Json, table: Mapping[str, tuple[Fault, ...]] | None = None) -> Any:
    """A model's class, or a subclass that computes and reads what upstream's does not.

    Args:
        kind: upstream's class.
        config: of the model.
        table: faults by module; mlx-lm's if it is None.

    Raises:
        ModelLoadError: upstream's code computes something else, and nothing mends that.
    """
    faults = [each for each in (FAULTS if table is None else table).get(kind.__module__, ()) if _is_known(kind, each)]
    for fault in faults:
        if reason := fault.refuse(config):
            raise ModelLoadError(reason)
    if not faults:
        return kind

    def create(self: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, *args, **kwargs)
        for fault in faults:
            fault.mend(self, config)

    sanitize = getattr(kind, "sanitize", lambda self, weights: weights)
    for fault in faults:
        sanitize = fault.sanitize(sanitize)
    return class_like(kind, {"__init__": create, "sanitize": sanitize})


def _is_known(kind: Any, fault: Fault) -> bool:
    for name, source in fault.sources.items():
        found = fingerprint(_found(kind.__module__, name))
        if found != source:
            log.info("%s: %s is used as upstream has it: its source is another (%s)", kind.__module__, name, found)
            return False
    return True


def _found(module: str, name: str) -> Any:
    """A function of a module, or of a module next to it that is named before a colon."""
    other, _, path = name.rpartition(":")
    place = importlib.import_module(f"mlx_lm.models.{other}" if other and "." not in other else other or module)
    return functools.reduce(lambda place, part: getattr(place, part, None), path.split("."), place)


def _layers(model: nn.Module, name: str) -> list[Any]:
    return [layer for layer in model.modules() if type(layer).__name__ == name]


def _set_call(layer: Any, call: Callable[..., Any]) -> None:
    layer.__class__ = class_like(type(layer), {"__call__": call})


_EXACT = ("gelu", "gelu_python")
_ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function")


def _use_gelu(default: str, reads_config: bool = True) -> Callable[[nn.Module, Json], None]:
    """Compute the GELU that the config names, exactly or approximately."""

    def mend(model: nn.Module, config: Json) -> None:
        said = next((config[key] for key in _ACTIVATIONS if config.get(key)), default) if reads_config else default
        replace(model, _gelu(said in _EXACT))

    return mend


@functools.cache
def _gelu(exact: bool) -> tuple[tuple[object, object], ...]:
    from mlx import nn

    gelu = nn.gelu if exact else nn.gelu_approx
    return ((nn, with_names(nn, gelu=gelu, gelu_approx=gelu)),)


def _correct_scores(model: nn.Module, config: Json) -> None:
    """ERNIE's experts are chosen by their scores and a bias each."""
    import mlx.core as mx

    for layer in _layers(model, "Ernie4_5_MoeMLP"):
        layer.e_score_correction_bias = mx.zeros((config["moe_num_experts"],))
        _set_call(layer, _ernie_experts)


def _ernie_experts(self: Any, x: mx.array) -> mx.array:
    import mlx.core as mx

    scores = self.gate_act(self.gate(x).astype(mx.float32))
    best = mx.argpartition(-(scores + self.e_score_correction_bias), kth=self.k - 1, axis=-1)[..., : self.k]
    scores = mx.take_along_axis(scores, best, axis=-1)
    scores = scores / mx.maximum(scores.sum(axis=-1, keepdims=True), 1e-12)
    y: mx.array = (self.switch_mlp(x, best) * scores[..., None]).sum(axis=-2).astype(x.dtype)
    return y if self.shared_experts is None else y + self.shared_experts(x)


def _keep_biases(upstream: Sanitize) -> Sanitize:
    """Read the biases of ERNIE's experts; a checkpoint that mlx-lm has converted has none."""
    key = "e_score_correction_bias"

    def sanitize(self: Any, weights: Weights) -> Weights:
        import mlx.core as mx

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


def _jamba_experts(self: Any, x: mx.array) -> mx.array:
    """Jamba's probabilities are those of all experts, and do not sum up to 1 for the chosen ones."""
    import mlx.core as mx

    k = self.num_experts_per_tok
    scores = mx.softmax(self.router(x).astype(mx.float32), axis=-1, precise=True)
    best = mx.argpartition(-scores, kth=k - 1, axis=-1)[..., :k]
    scores = mx.take_along_axis(scores, best, axis=-1).astype(x.dtype)
    y: mx.array = (self.switch_mlp(x, best) * scores[..., None]).sum(axis=-2)
    return y


def _grouped_norm(self: Any, x: mx.array, gate: mx.array) -> mx.array:
    """Each group of a Mamba layer's heads is normalized by itself."""
    import mlx.core as mx
    from mlx import nn

    x = mx.unflatten(nn.silu(gate) * x, -1, (self.groups, -1))
    normed: mx.array = mx.fast.rms_norm(x, None, self.eps).flatten(-2)
    return self.weight * normed


def _group_norms(name: str, key: str) -> Callable[[nn.Module, Json], None]:
    def mend(model: nn.Module, config: Json) -> None:
        for layer in _layers(model, name):
            layer.groups = config[key]
            _set_call(layer, _grouped_norm)

    return mend


def _set_epsilon(model: nn.Module, config: Json) -> None:
    for layer in _layers(model, "ResidualBlock"):
        layer.norm.eps = config["layer_norm_epsilon"]


def _scale_tied_logits(model: nn.Module, config: Json) -> None:
    if not config.get("tie_word_embeddings"):
        return
    upstream, scale = type(model).__call__, config["dim_model_base"] / config["hidden_size"]

    def call(self: Any, *args: Any, **kwargs: Any) -> mx.array:
        logits: mx.array = upstream(self, *args, **kwargs) * scale
        return logits

    _set_call(model, call)


def _yarn_untruncated(model: nn.Module, config: Json) -> None:
    """The ramp between the frequencies that YaRN keeps and those that it scales has its exact ends."""
    rope = config.get("rope_scaling") or {}
    if rope.get("truncate", True):
        return
    for layer in _layers(model, "YarnRoPE"):
        layer._freqs = _yarn(layer.dims, config["rope_theta"], rope)


def _yarn(dims: int, theta: float, rope: Json) -> mx.array:
    """Positions per radian of each pair of values."""
    import mlx.core as mx

    context = rope["original_max_position_embeddings"]
    low, high = (
        dims * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(theta))
        for turns in (rope.get("beta_fast", 32), rope.get("beta_slow", 1))
    )
    low, high = max(low, 0), min(high, dims - 1)
    scaled = mx.clip((mx.arange(dims // 2) - low) / ((high - low) or 0.001), 0, 1)
    plain = theta ** -(mx.arange(0, dims, 2) / dims)
    frequencies: mx.array = 1 / (plain * (1 - scaled) + plain / rope["factor"] * scaled)
    return frequencies


def _multiply_keys(upstream: Sanitize) -> Sanitize:
    """Falcon-H1's multipliers of keys and values, which upstream multiplies into the weights under other names."""

    def sanitize(self: Any, weights: Weights) -> Weights:
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


def _fill_shared_layers(upstream: Sanitize) -> Sanitize:
    """Layers that use another one's keys have no weights for them; upstream's layers have some, and never use them."""

    def sanitize(self: Any, weights: Weights) -> Weights:
        from mlx.utils import tree_flatten

        made = upstream(self, weights)
        for name, array in tree_flatten(self.parameters()):
            if name not in made and _UNUSED.search(name):
                made[name] = array
        return made

    return sanitize


def _falcon_norm(self: Any, x: mx.array, gate: mx.array | None = None) -> mx.array:
    """Like `_grouped_norm`; the gate may follow."""
    import mlx.core as mx
    from mlx import nn

    if gate is not None and not self.norm_before_gate:
        x = nn.silu(gate) * x
    normed: mx.array = mx.fast.rms_norm(mx.unflatten(x, -1, (self.n_groups, -1)), None, self.variance_epsilon)
    normed = self.weight * normed.flatten(-2)
    return nn.silu(gate) * normed if gate is not None and self.norm_before_gate else normed


def _falcon_norms(model: nn.Module, config: Json) -> None:
    for layer in _layers(model, "FalconH1RMSNormGated"):
        _set_call(layer, _falcon_norm)


def _drop_zero_experts(upstream: Sanitize) -> Sanitize:
    """transformers saves weights for LongCat's experts that compute nothing."""

    def sanitize(self: Any, weights: Weights) -> Weights:
        last = self.args.n_routed_experts
        numbers = {name: re.search(r"\.mlp\.experts\.(\d+)\.", name) for name in weights}
        kept = {name: weights[name] for name, found in numbers.items() if found is None or int(found[1]) < last}
        return upstream(self, kept)

    return sanitize


def _heads_apart(config: Json) -> str:
    if config.get("multi_query", True):
        return ""
    return (
        "config.json: multi_query is false, and mlx-lm reads the weights of its attention in another order. Choose "
        "another model: its answers would be wrong."
    )


def _transpose_experts(upstream: Sanitize) -> Sanitize:
    """Read gpt-oss' experts in float, which transformers saves with their inputs first."""

    def sanitize(self: Any, weights: Weights) -> Weights:
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


def _rename(names: Mapping[str, str]) -> Callable[[Sanitize], Sanitize]:
    """Read the names of tensors that transformers has."""

    def renaming(upstream: Sanitize) -> Sanitize:
        def sanitize(self: Any, weights: Weights) -> Weights:
            return upstream(self, {_renamed(name, names): array for name, array in weights.items()})

        return sanitize

    return renaming


def _renamed(name: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        name = name.replace(old, new)
    return name


_NANOCHAT = {
    "model.embed_tokens.": "transformer.wte.",
    "model.layers.": "transformer.h.",
    ".self_attn.q_proj.": ".attn.c_q.",
    ".self_attn.k_proj.": ".attn.c_k.",
    ".self_attn.v_proj.": ".attn.c_v.",
    ".self_attn.o_proj.": ".attn.c_proj.",
    ".mlp.fc1.": ".mlp.c_fc.",
    ".mlp.fc2.": ".mlp.c_proj.",
}
_OLMO_HYBRID = {
    ".attention_layer_norm.": ".input_layernorm.",
    ".feedforward_layer_norm.": ".post_attention_layernorm.",
}
_UNUSED = re.compile(r"\.self_attn\.(k_proj|v_proj|k_norm|v_norm)\.")
_GPT2 = {"transformer.": ""}
_KIMI_LINEAR = {f".block_sparse_moe.{name}.": f".mlp.{name}." for name in ("gate_proj", "up_proj", "down_proj")}
_NOT_REPORTED = "not reported"

FAULTS: dict[str, tuple[Fault, ...]] = {
    f"mlx_lm.models.{name}": faults
    for name, faults in {
        "ernie4_5_moe": (
            Fault(
                "experts are chosen without e_score_correction_bias",
                "vllm-project/vllm#21586 (the same fault in vLLM)",
                {"Ernie4_5_MoeMLP.__call__": "05cbd2b7f59c", "Model.sanitize": "1a0c867bd5bd"},
                mend=_correct_scores,
                sanitize=_keep_biases,
            ),
        ),
        "falcon_h1": (
            Fault(
                "keys without key_multiplier, and values without attention_in_multiplier",
                _NOT_REPORTED,
                {"Model.sanitize": "0237ca1d0bd5"},
                sanitize=_multiply_keys,
            ),
            Fault(
                "one norm for all groups of a Mamba layer",
                _NOT_REPORTED,
                {"FalconH1RMSNormGated.__call__": "c13398a6124d"},
                mend=_falcon_norms,
            ),
        ),
        "gemma3n": (
            Fault(
                "layers that use another one's keys require weights that transformers 5 does not save",
                _NOT_REPORTED,
                {"Model.sanitize": "23ee73861b54"},
                sanitize=_fill_shared_layers,
            ),
        ),
        "llama4_text": (
            Fault(
                "transformers' name of the head is not read",
                _NOT_REPORTED,
                {},
                sanitize=_rename({"lm_head.": "output."}),
            ),
        ),
        "gemma": (
            Fault(
                "the exact GELU, not that by tanh",
                _NOT_REPORTED,
                {"MLP.__call__": "3f9b9c7828ec"},
                mend=_use_gelu("gelu_pytorch_tanh", False),
            ),
        ),
        "gpt2": (
            Fault(
                "transformers' names of tensors are not read",
                _NOT_REPORTED,
                {"Model.sanitize": "85a04afd528d"},
                sanitize=_rename(_GPT2),
            ),
        ),
        "gpt_bigcode": (
            Fault(
                "the exact GELU, whatever activation_function says",
                _NOT_REPORTED,
                {"MLP.__call__": "728be96dcf5d"},
                mend=_use_gelu("gelu_pytorch_tanh"),
            ),
            Fault(
                "weights of multi_query=false are read in another order",
                _NOT_REPORTED,
                {"Attention.__call__": "285804808506"},
                refuse=_heads_apart,
            ),
        ),
        "gpt_neox": (
            Fault(
                "GELU by tanh, whatever hidden_act says",
                _NOT_REPORTED,
                {"MLP.__call__": "7861ec4f7ca2"},
                mend=_use_gelu("gelu"),
            ),
        ),
        "gpt_oss": (
            Fault(
                "experts that transformers saves in float are not read",
                _NOT_REPORTED,
                {"Model.sanitize": "f03a7ae202b9"},
                sanitize=_transpose_experts,
            ),
            Fault(
                "YaRN's ramp has ends that are rounded, whatever truncate says",
                "vllm-project/vllm#27722 (the same fault in vLLM)",
                {"rope_utils:YarnRoPE.__init__": "e7df3da9056c"},
                mend=_yarn_untruncated,
            ),
        ),
        "granitemoehybrid": (
            Fault(
                "one norm for all groups of a Mamba layer",
                _NOT_REPORTED,
                {"GraniteMoeHybridRMSNormGated.__call__": "68dca54483b5"},
                mend=_group_norms("GraniteMoeHybridRMSNormGated", "mamba_n_groups"),
            ),
        ),
        "jamba": (
            Fault(
                "the probabilities of the chosen experts are made to sum up to 1",
                _NOT_REPORTED,
                {"JambaSparseMoeBlock.__call__": "b0e4da2bc9e2"},
                mend=lambda model, config: [
                    _set_call(each, _jamba_experts) for each in _layers(model, "JambaSparseMoeBlock")
                ],
            ),
        ),
        "kimi_linear": (
            Fault(
                "transformers' names of dense layers are not read",
                _NOT_REPORTED,
                {"Model.sanitize": "f550c74e56c1"},
                sanitize=_rename(_KIMI_LINEAR),
            ),
        ),
        "longcat_flash": (
            Fault(
                "weights of experts that compute nothing are no part of the model",
                _NOT_REPORTED,
                {"Model.sanitize": "3b6a1c1f3a32"},
                sanitize=_drop_zero_experts,
            ),
        ),
        "mamba2": (
            Fault(
                "one norm for all groups of a layer",
                _NOT_REPORTED,
                {"MambaRMSNormGated.__call__": "68dca54483b5"},
                mend=_group_norms("MambaRMSNormGated", "n_groups"),
            ),
            Fault(
                "norms of layers do not use layer_norm_epsilon",
                _NOT_REPORTED,
                {"ResidualBlock.__init__": "868a78a3d916"},
                mend=_set_epsilon,
            ),
        ),
        "minicpm3": (
            Fault(
                "logits of a tied head are not scaled by dim_model_base",
                _NOT_REPORTED,
                {"Model.__call__": "6e0e2de0b6d8"},
                mend=_scale_tied_logits,
            ),
        ),
        "nanochat": (
            Fault("transformers' names of tensors are not read", _NOT_REPORTED, {}, sanitize=_rename(_NANOCHAT)),
        ),
        "olmo_hybrid": (
            Fault(
                "transformers' names of norms are not read",
                _NOT_REPORTED,
                {"Model.sanitize": "fea7aadda37d"},
                sanitize=_rename(_OLMO_HYBRID),
            ),
        ),
        "starcoder2": (
            Fault(
                "the exact GELU, whatever hidden_act says",
                _NOT_REPORTED,
                {"MLP.__call__": "2ff6ea271cac"},
                mend=_use_gelu("gelu_pytorch_tanh"),
            ),
        ),
    }.items()
}
"""By the module that defines the model."""
