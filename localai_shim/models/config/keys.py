"""Keys of a config.json by their effect: those that change what a model computes, and those that do not.

Keys are judged by their names, which mean the same in all of transformers' families. `unread.py` uses these lists for
the keys that a model's code does not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...types import Json

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Keys that say how many experts a layer has."""

Neutral = Callable[[object, Json], bool]
"""True if a value changes nothing in a model whose code does not read the key; the config's other keys may count."""

_NO_EFFECT = {
    "names, files, and versions": (
        "_.*name_or_path|name|architectures?|auto_map|model_(type|file|name)|transformers(\\.js.*|_version|_weights)|"
        "tokenizer_class|processor_class|custom_pipelines|license|mlx.*|unsloth.*|.*checkpoint_path|_commit_hash|"
        "(torch_|compute_|params_)?dtype|_?attn_implementation.*|_experts_implementation.*|.*_version|languages?|"
        "_diffusers_version|base_model.*|finetuned_from|architecture|is_.*_config"
    ),
    "token IDs and labels": (
        ".*token_ids?|.*token_index|.*_token|im_(start|end|newline)_id|.*_(start|end)_id|id2label|label2id|num_labels|"
        ".*label_names|problem_type|.*ignore_index|.*prompt_tokens?|suppress_tokens|begin_suppress_tokens|eoi?_.*id"
    ),
    "training": (
        ".*dropout.*|.*_pdrop|.*drop_path.*|.*_dropout_prob|.*jitter.*|.*aux_loss.*|.*loss.*|.*z_loss.*|"
        ".*initializer.*|.*init_(std|scale|method|variance.*)|.*init_variance_scale|.*_init_scheme|.*init_floor|"
        "learnable_sink_init|.*init_value|layerscale_value|rescale_prenorm_residual|gradient_checkpointing|"
        "time_step_(min|max|floor|rank|scale)|linear_(a_log|dt)_(min|max)|freeze.*|seq_aux|ep_size|.*router_bias_update.*|"
        "use_(flash_attn|flash_attention|cache_quantization|cache_kernel)|.*_parallel_.*size|training.*|"
        "layer_(init|drop).*|layerdrop|mup_.*init.*|moe_token_drop.*|expert_capacity.*|capacity_factor|router_bias_.*"
    ),
    "the interface of transformers": (
        "return_(dict|dict_in_generate)|output_.*|use_cache|is_(encoder_decoder|decoder)|add_cross_attention|"
        "cross_attention_hidden_size|tie_encoder_decoder|chunk_size_feed_forward|pruned_heads|torchscript|use_bfloat16|"
        "tf_legacy_loss|pretraining_tp|num_logits_to_keep|keys_to_ignore.*|summary_.*|finetuning_task|task_specific.*|"
        "prefix|(decoder_start|forced_.*)_token.*|generation_config|sampling.*|do_sample|temperature|top_[kp]|typical_p|"
        "min_length|max_length|num_beams|num_beam_groups|num_return_sequences|.*repetition_penalty|length_penalty|"
        "early_stopping|diversity_penalty|no_repeat_ngram_size|encoder_no_repeat_ngram_size|bad_words_ids|"
        "exponential_decay.*|remove_invalid_values|.*penalty|cache_implementation|default_.*|user_.*|"
        "reshape_hidden_states|stage_names|out_(features|indices)"
    ),
    "precision and speed of the same computation": (
        ".*fp32.*|reorder_and_upcast_attn|use_(mamba_kernels|mambapy|associative_scan|fused.*|fast.*|kernels?)|"
        "mamba_ssm_cache_dtype|(mamba_)?chunk_size|block_size|moe_shared_expert_overlap|deterministic_flash_attn|"
        "disable_custom_kernels|fuse_.*|fused_.*|is_causal|kv_cache.*|use_qmm.*|moe_implementation"
    ),
    "the length of prompts, which is checked elsewhere": (
        "max_position_embeddings|n_positions|n_ctx|seq(_l|_len|_length)|max_seq(uence)?_len(gth)?|model_max_length|"
        "max_(context|sequence)_length|training_length|original_max_position_embeddings|max_target_positions|"
        "max_source_positions|initial_context_length"
    ),
    "RoPE, which is checked on the loaded layers": (
        "rope_.*|rotary_.*|.*rope_theta|.*rope_base_freq|partial_rotary_factors?|use_(rope|mrope).*|mrope_.*|"
        "compress_rope_theta"
    ),
    "windows and kinds of layers, which are checked on the loaded layers": (
        "sliding_window|use_sliding_window|max_window_layers|layer_types|_?sliding_window_pattern|"
        "global_attn_every_n_layers|full_attention_interval|attention_chunk_size|use_swa|window_attn_skip_freq"
    ),
    "sizes and places of tensors: another value is an error of the weights": (
        ".*bias|bias_.*|tie_word_embeddings|tie_.*embeddings.*|.*hidden_size|hidden_dim|.*intermediate_(size|dim)|"
        ".*head_dim|.*num_heads|head_size|.*num_key_value_(attention_)?heads|num_attention_groups|"
        "num_(hidden_)?layers|n_layers?|num_(local_)?experts|n_routed_experts|moe_num_experts|attention_heads|num_cls_tokens|num_registers|.*_expand|expand|n_inner|.*lora_rank|"
        ".*vocab_size|.*conv_kernel_(size|dim)s?|conv1d_width|qk_layernorm|.*projection_(hidden_size|dim)|"
        "out_hidden_size|num_channels|(in|out)_channels|mlp_layer_types|mlp_only_layers|moe_layers|"
        "first_k_dense_replace|decoder_sparse_step|interleave_moe_layer_step|moe_layer_(freq|interval|start_index|"
        "end_index)|indexer_types|num_shared_experts?|n_shared_experts|number_of_conv_states|num_sliding_attention_heads|"
        "mlp_dim|.*_ratio|hybrid_override_pattern|layers_block_type|has_.*layers?|lru_width|pos_emb_.*|"
        "num_position_embeddings|use_absolute_position_embeddings|use_(abs|rel)_pos|use_swiglu_ffn|.*_dim"
    ),
    "layers that draft tokens": "mtp_.*|num_nextn_predict_layers|num_mtp_.*|n_predict|nextn_.*|.*chain_hidden_.*",
    "images, video, and audio: preprocessing, and encoders that are loaded by their own config": (
        "(vision|image|img|video|audio|visual|media|perceiver|mm|speech|frame|patch|pixel|spatial|temporal)_.*|"
        ".*_(vision|image|img|video|audio|visual|frames?|patch|patches)(_.*)?|.*image.*|.*video.*|.*audio.*|"
        "vision|projector_.*|multi_?modal_.*|boi_.*|eoi_.*|boa_.*|eoa_.*|patch_size|merged_.*|tokens_per_second|"
        "max_vit_seq_len|supported_aspect_ratios|use_mean_pooling|num_classes|model_args|downsample_.*|ps_version|.*grid_pinpoints|dynamic_.*size|max_dynamic_patch|min_dynamic_patch"
    ),
    "settings of attn_temperature_tuning": "attn_scale|floor_scale",
    "quantization, which is checked elsewhere": "quantization.*|quant_.*|compression_config",
}
"""Reasons why keys cannot change an answer without an error, and their names."""

_NO_EFFECT_KEY = re.compile("|".join(_NO_EFFECT.values()))


def has_no_effect(key: str) -> bool:
    """True if a model whose code does not read a key still computes what its checkpoint means, or fails to load."""
    return _NO_EFFECT_KEY.fullmatch(key) is not None


def _is_off(value: object, config: Json) -> bool:
    return not value


def _is_on(value: object, config: Json) -> bool:
    return value is None or value is True


def _is_one(value: object, config: Json) -> bool:
    return value is None or value == 1


def _is_head_size(value: object, config: Json) -> bool:
    """A scale of scores that is the usual one."""
    heads, size = config.get("num_attention_heads"), config.get("hidden_size")
    usual = config.get("head_dim") or (size // heads if isinstance(heads, int) and heads and size else None)
    return value is None or value == usual


def _is_off_or_dense(value: object, config: Json) -> bool:
    return not value or not _has_experts(config)


def _is_one_or_dense(value: object, config: Json) -> bool:
    return value in (None, 1) or not _has_experts(config)


def _has_experts(config: Json) -> bool:
    """False if keys about experts are left from another model."""
    counts = (config.get(key) for key in EXPERTS)
    return any(isinstance(count, int) and count > 1 for count in counts)


def _is_unlimited(value: object, config: Json) -> bool:
    return value is None or (isinstance(value, list) and value[0] <= 0 and value[1] == float("inf"))


def _is_every_fourth(value: object, config: Json) -> bool:
    """Layers without RoPE as Llama 4 has them, and as its code has them too; or none."""
    if not value or not isinstance(value, list):
        return not value
    return all(value) or all(bool(each) == bool(i % 4) for i, each in enumerate(value, 1))


def _is_one_way(value: object, config: Json) -> bool:
    return value in (None, False, "vision")


_EFFECTS: dict[str, Neutral] = {
    "(attn|final|router|mla|output)?_?logits?_soft_?cap(ping)?|.*soft_?cap(ping)?": _is_off,
    "clip_qkv|qkv_clip|.*_clip": _is_off,
    "scale_attn_by_inverse_layer_idx|alibi|use_alibi|per_layer_config": _is_off,
    "moe_apply_router_weight_on_input|norm_topk_prob": _is_off_or_dense,
    "(use_)?parallel_(attn|residual)|new_decoder_architecture|apply_residual_connection_post_layernorm": _is_off,
    "llama_4_scaling.*|log_scaling|use_logn_attn": _is_off,
    "norm_after|do_pooling|use_qformer_text_input|pooling|sparse_prediction": _is_off,
    "scale_attn_weights|rope_interleave|moe_renormalize": _is_on,
    "query_pre_attn_scalar": _is_head_size,
    "use_bidirectional_attention": _is_one_way,
    "cross_attention_frequency": _is_one,
    "(num_)?experts_per_token": lambda value, config: (
        value in (None, config.get("num_experts_per_tok")) or not _has_experts(config)
    ),
    "compress_rates": lambda value, config: "compress_ratios" in config,
    "time_step_limit": _is_unlimited,
    "no_rope_layers": _is_every_fourth,
    "n_group|topk_group|num_expert_group|num_experts_per_tok|(moe_)?top_?k": _is_one_or_dense,
    "routed_scaling_factor": _is_one_or_dense,
    "(?!mtp_|time_step).*(multiplier|(alpha|beta|scaling)_factor|logits?_scal(e|ing)|_temperature)": _is_one,
    "embedding_scale|scale_(emb|depth)|residual_scale|attention_scale|.*_normalize_expert_weights": _is_one,
}
"""Names of keys that change an answer from its first tokens on."""
_EFFECT = {re.compile(names): neutral for names, neutral in _EFFECTS.items()}

ENCODERS = re.compile("(projector|projection|vision|image|mm|video|audio)_.*")
"""Keys that only matter if the model's encoders are loaded."""
ACTIVATION = re.compile(r"(.*_)?(hidden_act|hidden_activation|activation_function|activation|act_fn|mlp_activation)")
EPSILON = re.compile(r"(.*_)?(rms_)?(layer_?)?norm_(eps|epsilon)(_.*)?|(layer|rms)norm_epsilon|.*norm_eps(ilon)?")

LONG_PROMPTS = {"attn_temperature_tuning": "floor_scale"}
"""Keys that change answers to long prompts only, and the key of the length from which on they do."""

CONSTANTS: dict[tuple[str, str], float | str] = {
    ("bailing_hybrid", "kda_lower_bound"): -5.0,
    ("bailing_hybrid", "kda_safe_gate"): True,
    ("ernie4_5_moe", "moe_norm_min"): 1e-12,
    ("flint", "norm_topk_prob"): True,
    ("gemma3_embedding", "use_bidirectional_attention"): True,
    ("gpt_oss", "swiglu_alpha"): 1.702,
    ("gpt_oss", "swiglu_limit"): 7.0,
    ("inkling_mm_model", "shared_expert_sink"): True,
    ("llama4", "no_rope_layer_interval"): 4,
    ("llama4_text", "no_rope_layer_interval"): 4,
    ("molmo2", "qk_norm_type"): "qwen3",
    ("muse_spark", "residual_gate_temperature"): 0.3,
    ("nanochat", "final_logit_softcapping"): 15.0,
}
"""Numbers that a module of upstream's code has instead of the key, by module and key."""


def neutral_of(key: str) -> Neutral | None:
    """Test of the values that change nothing; None if the key is not known to change an answer."""
    return next((neutral for names, neutral in _EFFECT.items() if names.fullmatch(key)), None)
