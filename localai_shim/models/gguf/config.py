"""Config of a GGUF file's model, as mlx-lm's classes take it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from ...types import Json, ModelLoadError
from .architectures import (
    FACTORS,
    LONG_FACTORS,
    ROPE_FACTORS,
    SHORT_FACTORS,
    architecture_of,
    layer_of,
    needless,
    weight_name,
)
from .blocks import GROUP
from .header import Header, Metadata
from .reading import read_numbers

log = logging.getLogger("localai_shim")

_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_LAYERS_OF_GEMMA_27B = 62  # whose queries are scaled otherwise, which no key says
_UNROTATED = 1e29  # factors of dimensions that do not rotate are larger
_SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}


def read_config(header: Header) -> Json:
    """The config of a file's model.

    Raises:
        ModelLoadError: it has what mlx-lm's class does not compute, or lacks what that needs.
    """
    architecture = architecture_of(header)
    metadata = Metadata(header, header.get("general.architecture", ""))
    _check_names(header)
    layers = metadata.number("block_count")
    used = layers - metadata.count("nextn_predict_layers")
    numbers = {layer for name in header.tensors if (layer := layer_of(name)) is not None}
    if len(numbers) > layers or max(numbers, default=0) >= layers or sum(each < used for each in numbers) != used:
        key = f"{metadata.prefix}.block_count"
        raise metadata.error(f"the metadata's '{key}' is {layers}, but there are tensors of {len(numbers)} layers")
    heads, width = metadata.number("attention.head_count"), metadata.number("embedding_length")
    head_dim = metadata.number("attention.key_length", width // heads)
    if metadata.number("attention.value_length", head_dim) != head_dim:
        raise metadata.error("heads whose keys and values have different lengths are not supported")
    rotated = metadata.number("rope.dimension_count", head_dim)
    if rotated > head_dim or (rotated < head_dim and not architecture.rotates_part):
        raise metadata.error(f"Partial RoPE ({rotated} of {head_dim} dims) is not supported")
    base: Json = {
        "model_type": architecture.model_type,
        "hidden_size": width,
        "num_hidden_layers": used,
        "num_attention_heads": heads,
        "head_dim": head_dim,
        "rms_norm_eps": metadata.real("attention.layer_norm_rms_epsilon", 1e-6),
        "rope_theta": metadata.real("rope.freq_base", 10000.0),
        "max_position_embeddings": metadata.number("context_length"),
        "vocab_size": header.tensors["token_embd.weight"].shape[0],
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "attention_bias": "blk.0.attn_output.bias" in header.tensors,
    }
    return _READERS.get(metadata.prefix, _plain)(metadata, base, rotated / head_dim)


def _check_names(header: Header) -> None:
    """Refuse tensors that are not known, and a file without an embedding; log those that the model does not need."""
    architecture, skipped = architecture_of(header), dict[str, int]()
    for name in header.tensors:
        if what := needless(header, name):
            skipped[what] = skipped.get(what, 0) + 1
        elif name not in FACTORS and weight_name(architecture, name) is None:
            raise ModelLoadError(
                f"'{header.path}': tensor '{name}' is not known in the architecture "
                f"'{header.get('general.architecture', '')}'."
            )
    if "token_embd.weight" not in header.tensors:
        raise ModelLoadError(f"'{header.path}' has no tensor 'token_embd.weight': it is not a whole model.")
    for what, count in skipped.items():
        log.info("'%s': %d tensors are skipped, which the model does not need (%s)", header.path.name, count, what)


def _plain(metadata: Metadata, base: Json, part: float) -> Json:
    """A decoder whose layers are all alike."""
    return {
        **base,
        "num_key_value_heads": metadata.number("attention.head_count_kv", base["num_attention_heads"]),
        "rope_scaling": _rope_scaling(metadata, base["head_dim"]),
        "intermediate_size": metadata.number("feed_forward_length"),
    }


def _gemma3(metadata: Metadata, base: Json, part: float) -> Json:
    layers, head_dim = base["num_hidden_layers"], base["head_dim"]
    by_width = base["hidden_size"] // base["num_attention_heads"]
    return {
        **_plain(metadata, base, part),
        "sliding_window": metadata.number("attention.sliding_window"),
        "sliding_window_pattern": metadata.number("attention.sliding_window_pattern", 6),
        "rope_local_base_freq": metadata.real("rope.freq_base_swa", 10000.0),
        "rope_theta": metadata.real("rope.freq_base", 1000000.0),
        "query_pre_attn_scalar": by_width if layers == _LAYERS_OF_GEMMA_27B else head_dim,
    }


def _experts(metadata: Metadata) -> Json:
    return {
        "num_experts": metadata.number("expert_count"),
        "num_experts_per_tok": metadata.number("expert_used_count"),
        "moe_intermediate_size": metadata.number("expert_feed_forward_length"),
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
    }


def _qwen3_moe(metadata: Metadata, base: Json, part: float) -> Json:
    return {
        **base,
        **_experts(metadata),
        "num_key_value_heads": metadata.number("attention.head_count_kv", base["num_attention_heads"]),
        "rope_scaling": _rope_scaling(metadata, base["head_dim"]),
        "intermediate_size": metadata.number("feed_forward_length", 1),
    }


def _qwen3_5(metadata: Metadata, base: Json, part: float) -> Json:
    """One layer of each interval has attention, and the others have a gated delta net."""
    if _rope_scaling(metadata, base["head_dim"]) is not None:
        raise metadata.error(f"rope scaling is not supported in the architecture '{metadata.prefix}'")
    value_heads, inner = metadata.number("ssm.time_step_rank"), metadata.number("ssm.inner_size")
    sparse = {}
    if metadata.count("expert_count"):
        shared = metadata.header.tensors.get("blk.0.ffn_up_shexp.weight")
        sparse = {**_experts(metadata), "shared_expert_intermediate_size": shared.shape[0] if shared else 0}
    rope = {"type": "default", "rope_theta": base["rope_theta"], "partial_rotary_factor": part}
    text = {
        **base,
        **sparse,
        "num_key_value_heads": metadata.number("attention.head_count_kv"),
        "intermediate_size": metadata.number("feed_forward_length", 1 if sparse else 0),
        "rope_parameters": rope,
        "full_attention_interval": metadata.number("full_attention_interval", 4),
        "linear_num_value_heads": value_heads,
        "linear_num_key_heads": metadata.number("ssm.group_count"),
        "linear_key_head_dim": metadata.number("ssm.state_size"),
        "linear_value_head_dim": inner // value_heads,
        "linear_conv_kernel_dim": metadata.number("ssm.conv_kernel"),
    }
    if value_heads % text["linear_num_key_heads"] or inner % (GROUP * value_heads):
        raise metadata.error("heads of linear attention of this number or size are not supported")
    _check_layer_kinds(metadata, text)
    del text["rope_theta"]
    return {"model_type": base["model_type"], "tie_word_embeddings": base["tie_word_embeddings"], "text_config": text}


def _check_layer_kinds(metadata: Metadata, text: Json) -> None:
    """Refuse a file whose layers of attention are not those of the interval."""
    for layer in range(text["num_hidden_layers"]):
        attends = f"blk.{layer}.attn_q.weight" in metadata.header.tensors
        if attends != ((layer + 1) % text["full_attention_interval"] == 0):
            raise metadata.error(f"layer {layer} is not of the kind that 'full_attention_interval' says")


def _gpt_oss(metadata: Metadata, base: Json, part: float) -> Json:
    return {
        **_plain(metadata, base, part),
        "num_local_experts": metadata.number("expert_count"),
        "num_experts_per_tok": metadata.number("expert_used_count"),
        "intermediate_size": metadata.number("expert_feed_forward_length"),
        "sliding_window": metadata.number("attention.sliding_window"),
        "layer_types": [("sliding_attention", "full_attention")[i % 2] for i in range(base["num_hidden_layers"])],
    }


def _ministral3(metadata: Metadata, base: Json, part: float) -> Json:
    scaling = _rope_scaling(metadata, base["head_dim"]) or {"rope_type": "default"}
    multiplier = metadata.header.get(f"{metadata.prefix}.rope.scaling.yarn_log_multiplier", 0.0)
    if multiplier:
        scaling |= {"mscale": multiplier, "mscale_all_dim": multiplier}
    scaling = {
        "original_max_position_embeddings": base["max_position_embeddings"],
        **scaling,
        "rope_theta": base["rope_theta"],
        "llama_4_scaling_beta": metadata.header.get(f"{metadata.prefix}.attention.temperature_scale", 0.0),
    }
    plain = _plain(metadata, base, part)
    del plain["rope_scaling"], plain["rope_theta"]
    return {**plain, "rope_parameters": scaling}


def _phi3(metadata: Metadata, base: Json, part: float) -> Json:
    short, long = (read_numbers(metadata.header, name) for name in (SHORT_FACTORS, LONG_FACTORS))
    dims = round(part * base["head_dim"] / 2)
    scaling: Json | None = None
    if long or short:
        if len(long) != dims or len(short) != dims:
            raise metadata.error(f"tensors '{SHORT_FACTORS}' and '{LONG_FACTORS}' do not have {dims} values each")
        scaling = {"type": "longrope", "short_factor": short, "long_factor": long}
    elif _rope_scaling(metadata, base["head_dim"]) is not None:
        raise metadata.error("rope scaling is supported in the architecture 'phi3' only with tensors of factors")
    return {
        **base,
        "num_key_value_heads": metadata.number("attention.head_count_kv", base["num_attention_heads"]),
        "intermediate_size": metadata.number("feed_forward_length"),
        "sliding_window": metadata.count("attention.sliding_window") or None,
        "partial_rotary_factor": part,
        "rope_scaling": scaling,
        "original_max_position_embeddings": metadata.number(
            "rope.scaling.original_context_length", base["max_position_embeddings"]
        ),
    }


def _glm4_moe(metadata: Metadata, base: Json, part: float) -> Json:
    if metadata.header.get(f"{metadata.prefix}.expert_gating_func", 2) != 2:
        raise metadata.error("its experts are not chosen by sigmoids, which mlx-lm's class needs")
    plain = _plain(metadata, base, part)
    if plain["rope_scaling"] is not None:
        raise metadata.error("rope scaling is not supported in the architecture 'glm4moe'")
    experts = _experts(metadata)
    return {
        **plain,
        "num_experts_per_tok": experts["num_experts_per_tok"],
        "moe_intermediate_size": experts["moe_intermediate_size"],
        "n_routed_experts": experts["num_experts"],
        "n_shared_experts": metadata.number("expert_shared_count"),
        "first_k_dense_replace": metadata.count("leading_dense_block_count"),
        "routed_scaling_factor": metadata.real("expert_weights_scale", 1.0),
        "norm_topk_prob": metadata.header.get(f"{metadata.prefix}.expert_weights_norm", True),
        "n_group": metadata.number("expert_group_count", 1),
        "topk_group": metadata.number("expert_group_used_count", 1),
        "use_qk_norm": "blk.0.attn_q_norm.weight" in metadata.header.tensors,
        "attention_bias": "blk.0.attn_q.bias" in metadata.header.tensors,
        "partial_rotary_factor": part,
    }


def _gemma4(metadata: Metadata, base: Json, part: float) -> Json:
    """Layers with a window, and layers without, whose heads are larger."""
    layers, header = base["num_hidden_layers"], metadata.header
    slides = header.list_of(f"{metadata.prefix}.attention.sliding_window_pattern", bool)
    if len(slides) != layers or True not in slides:
        raise metadata.error(
            f"the metadata's '{metadata.prefix}.attention.sliding_window_pattern' is not a list of layers"
        )
    kv_heads, sizes = (
        metadata.per_layer("attention.head_count_kv", layers),
        metadata.per_layer("feed_forward_length", layers),
    )
    full = slides.index(False) if False in slides else 0
    factors = read_numbers(header, ROPE_FACTORS)
    rotating = sum(factor < _UNROTATED for factor in factors) / len(factors) if factors else 0.25
    sparse = metadata.count("expert_count")
    rotations = {
        "full_attention": {
            "rope_type": "proportional",
            "rope_theta": base["rope_theta"],
            "partial_rotary_factor": rotating,
        },
        "sliding_attention": {"rope_type": "default", "rope_theta": metadata.real("rope.freq_base_swa", 10000.0)},
    }
    plain = {key: value for key, value in base.items() if key != "rope_theta"}
    return {
        **plain,
        "head_dim": metadata.number("attention.key_length_swa"),
        "global_head_dim": base["head_dim"],
        "num_key_value_heads": kv_heads[slides.index(True)],
        "num_global_key_value_heads": kv_heads[full],
        "attention_k_eq_v": f"blk.{full}.attn_v.weight" not in header.tensors,
        "num_kv_shared_layers": metadata.count("attention.shared_kv_layers"),
        "intermediate_size": sizes[0],
        "use_double_wide_mlp": sizes[-1] == 2 * sizes[0],
        "hidden_size_per_layer_input": metadata.count("embedding_length_per_layer_input"),
        "vocab_size_per_layer_input": base["vocab_size"],
        "sliding_window": metadata.number("attention.sliding_window"),
        "layer_types": ["sliding_attention" if slide else "full_attention" for slide in slides],
        "final_logit_softcapping": header.get(f"{metadata.prefix}.final_logit_softcapping", 0.0) or None,
        "rope_parameters": rotations,
        "enable_moe_block": bool(sparse),
        "num_experts": sparse or None,
        "top_k_experts": metadata.count("expert_used_count") or None,
        "moe_intermediate_size": metadata.count("expert_feed_forward_length") or None,
    }


_READERS: dict[str, Callable[[Metadata, Json, float], Json]] = {
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "glm4moe": _glm4_moe,
    "gpt-oss": _gpt_oss,
    "mistral3": _ministral3,
    "phi3": _phi3,
    "qwen35": _qwen3_5,
    "qwen35moe": _qwen3_5,
    "qwen3moe": _qwen3_moe,
    "qwen3vlmoe": _qwen3_moe,
    "qwen3next": _qwen3_5,
}


def read_sampling(header: Header) -> Json:
    """Sampling that a file recommends, by the names of a generation_config.json."""
    found = {name: header.metadata.get(f"general.sampling.{key}") for key, name in _SAMPLING.items()}
    return {name: value for name, value in found.items() if value is not None}


def _rope_scaling(metadata: Metadata, head_dim: int) -> Json | None:
    header, key = metadata.header, f"{metadata.prefix}.rope.scaling"
    kind, factor = header.get(f"{key}.type", "none"), header.get(f"{key}.factor", 1.0)
    if ROPE_FACTORS in header.tensors:  # they replace what follows from these
        if (shape := header.tensors[ROPE_FACTORS].shape) != (head_dim // 2,):
            raise metadata.error(f"tensor '{ROPE_FACTORS}' has the shape {list(shape)}, not [{head_dim // 2}]")
        return dict(_LLAMA3)
    if kind == "none" or (kind == "linear" and factor == 1):
        return None
    if kind not in ("linear", "yarn"):
        raise metadata.error(f"rope scaling '{kind[:100]}' is not supported")
    if not 0 < factor < math.inf:
        raise metadata.error(f"the metadata's '{key}.factor' is {factor}")
    found: Json = {"rope_type": kind, "factor": factor}
    if original := header.get(f"{key}.original_context_length", 0):
        found["original_max_position_embeddings"] = original
    if kind == "yarn":
        names = {"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}
        found |= {
            name: header.get(f"{key}.{own}", 0.0) for name, own in names.items() if f"{key}.{own}" in header.metadata
        }
    return found
