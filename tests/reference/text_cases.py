"""Text architectures of mlx-lm that are compared with transformers."""

from __future__ import annotations

from typing import Any

from tests.reference.cases import CONTEXT, WINDOW, Case, Config

THETA: Config = {"rope_theta": 5000.0}
PLAIN: Config = {**THETA, "rope_type": "default"}
LINEAR: Config = {**THETA, "rope_type": "linear", "factor": 4.0}
DYNAMIC: Config = {**THETA, "rope_type": "dynamic", "factor": 4.0}
YARN: Config = {**THETA, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": CONTEXT}
LLAMA3: Config = {
    **THETA,
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": CONTEXT,
}
LONGROPE: Config = {
    **THETA,
    "rope_type": "longrope",
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [2.0 + 0.5 * i for i in range(8)],
    "original_max_position_embeddings": CONTEXT,
}
_MSCALE = {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7}
_SLIDING, _FULL = "sliding_attention", "full_attention"
_LATENT: Config = {"num_key_value_heads": 4, "num_experts": 8, "n_routed_experts": 8, "n_group": 2, "topk_group": 1}
_LATENT_GROUPS: Config = {"num_key_value_heads": 4, "n_routed_experts": 8, "n_group": 2, "topk_group": 1}
_INDEX: Config = {"num_key_value_heads": 4, "index_topk": 16, "index_head_dim": 32, "index_n_heads": 16}
_MUP: Config = {
    "embedding_multiplier": 2.0,
    "attention_multiplier": 0.2,
    "logits_scaling": 3.0,
    "residual_multiplier": 0.7,
}
_GATED_DELTA: Config = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", _FULL] * 2,
}
_MAMBA: Config = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 32,
    "mamba_d_conv": 4,
    "mamba_n_groups": 2,
    "mamba_expand": 2,
}
_LLAMA4: Config = {
    "intermediate_size_mlp": 96,
    "attention_chunk_size": WINDOW,
    "no_rope_layers": [1, 1, 1, 0],
    "num_experts_per_tok": 1,
}
_MIMO: Config = {"sliding_window": WINDOW, "layer_types": [_FULL, _SLIDING] * 2, "head_dim": 24}
_GEMMA3: Config = {
    "query_pre_attn_scalar": 16,
    "sliding_window": WINDOW,
    "layer_types": [_SLIDING, _FULL] * 2,
    "rope_parameters": {_FULL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 50000.0}, _SLIDING: PLAIN},
}
_GEMMA4: Config = {
    "sliding_window": WINDOW,
    "layer_types": [_SLIDING, _FULL] * 2,
    "global_head_dim": 32,
    "hidden_size_per_layer_input": 16,
    "vocab_size_per_layer_input": 400,
    "num_kv_shared_layers": 2,
}
_QWEN35: Config = {
    **_GATED_DELTA,
    "rope_parameters": {**PLAIN, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1], "mrope_interleaved": True},
}


def _of(kind: str, **variations: Config) -> dict[str, Case]:
    """Cases of a kind: each variation changes `plain`, which all have."""
    plain = variations.pop("plain", {})
    cases = {"plain": Case(kind, plain)}
    return cases | {name: Case(kind, {**plain, **changes}) for name, changes in variations.items()}


def _inside(outer: str, kind: str, **changes: Any) -> dict[str, Case]:
    """The case of a language model inside another model."""
    return {"inside": Case(kind, changes, inside=outer)}


_TIED: Config = {"tie_word_embeddings": True}
_UNTIED: Config = {"tie_word_embeddings": False}
_BIASES: Config = {"attention_bias": True}


def _rope(settings: Config) -> Config:
    return {"rope_parameters": settings}


CASES: dict[str, dict[str, Case]] = {
    "afmoe": _of(
        "afmoe",
        plain={"layer_types": [_SLIDING, _FULL] * 2, "sliding_window": WINDOW, "num_dense_layers": 1},
        tied=_TIED,
    ),
    "apertus": _of("apertus", plain=_rope(LLAMA3), tied=_TIED),
    "cohere": _of("cohere", plain=_rope(PLAIN), biases=_BIASES, qk_norm={"use_qk_norm": True}),
    "cohere2": _of(
        "cohere2",
        plain={"sliding_window": WINDOW, "layer_types": [_SLIDING, _SLIDING, _SLIDING, _FULL]},
        biases=_BIASES,
    ),
    "dbrx": _of(
        "dbrx",
        plain={
            "d_model": 64,
            "n_layers": 4,
            "n_heads": 4,
            "max_seq_len": 512,
            "attn_config": {"kv_n_heads": 2, "clip_qkv": 1, "rope_theta": 5000.0},
            **_rope(PLAIN),
            "ffn_config": {"ffn_hidden_size": 64, "hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
        },
    ),
    "deepseek_v2": _of(
        "deepseek_v2",
        plain={"num_key_value_heads": 4, "topk_method": "greedy"},
        groups={**_LATENT_GROUPS, "topk_method": "group_limited_greedy", "routed_scaling_factor": 2.5},
        yarn=_rope(_MSCALE),
        no_q_lora={"q_lora_rank": None},
    ),
    "deepseek_v3": _of(
        "deepseek_v3", plain=_LATENT_GROUPS, yarn=_rope(_MSCALE), no_q_lora={"q_lora_rank": None}, biases=_BIASES
    ),
    "deepseek_v32": _of("deepseek_v32", plain={**_LATENT_GROUPS, **_INDEX}),
    "dots1": _of(
        "dots1",
        plain={"n_group": 1, "topk_group": 1},
    ),
    "ernie4_5": _of("ernie4_5", biases={"use_bias": True}, untied=_UNTIED),
    "ernie4_5_moe": _of("ernie4_5_moe", plain={"moe_layer_start_index": 1, "moe_layer_end_index": 3}, untied=_UNTIED),
    "exaone": _of("exaone"),
    "exaone4": _of(
        "exaone4",
        plain={"sliding_window": WINDOW, "layer_types": [_SLIDING, _SLIDING, _SLIDING, _FULL]},
        full={"sliding_window": None, "layer_types": [_FULL] * 4},
        llama3=_rope(LLAMA3),
    ),
    "exaone_moe": _of(
        "exaone_moe",
        plain={
            "sliding_window": WINDOW,
            "layer_types": [_SLIDING, _SLIDING, _SLIDING, _FULL],
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
        },
    ),
    "falcon_h1": _of(
        "falcon_h1",
        plain={**_MAMBA, "mamba_d_ssm": 128},
        norm={"mamba_rms_norm": True},
        multipliers={
            "lm_head_multiplier": 0.7,
            "embedding_multiplier": 1.5,
            "mlp_multipliers": [1.2, 0.8],
            "key_multiplier": 0.6,
            "attention_out_multiplier": 0.9,
            "attention_in_multiplier": 1.1,
            "ssm_multipliers": [0.5, 0.7, 0.9, 1.1, 1.3],
            "ssm_in_multiplier": 1.2,
            "ssm_out_multiplier": 0.8,
        },
        biases={"attention_bias": True, "mlp_bias": True, "projectors_bias": True, "mamba_proj_bias": True},
    ),
    "gemma": _of("gemma"),
    "gemma2": _of("gemma2", plain={"sliding_window": 4096, "query_pre_attn_scalar": 16}),
    "gemma3": _inside("gemma3", "gemma3_text", **_GEMMA3),
    "gemma3_text": _of("gemma3_text", plain=_GEMMA3, untied=_UNTIED),
    "gemma3n": _inside(
        "gemma3n",
        "gemma3n_text",
        num_kv_shared_layers=2,
        vocab_size_per_layer_input=400,
        hidden_size_per_layer_input=16,
        altup_num_inputs=2,
        laurel_rank=8,
        layer_types=[_SLIDING, _FULL] * 2,
        sliding_window=WINDOW,
        activation_sparsity_pattern=[0.5, 0.5, 0.0, 0.0],
        intermediate_size=[96] * 4,
    ),
    "gemma4": _inside("gemma4", "gemma4_text", **_GEMMA4),
    "gemma4_text": _of(
        "gemma4_text",
        plain=_GEMMA4,
        experts={"enable_moe_block": True, "num_kv_shared_layers": 0, "top_k_experts": 2},
        large={
            "hidden_size_per_layer_input": 0,
            "num_kv_shared_layers": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
        },
    ),
    "glm": _of("glm", plain={**_rope({**PLAIN, "partial_rotary_factor": 1.0}), "attention_bias": True}),
    "glm4": _of("glm4", biases=_BIASES),
    "glm4_moe": _of(
        "glm4_moe",
        plain={"use_qk_norm": False},
        qk_norm={"use_qk_norm": True},
        biases=_BIASES,
        groups={"n_routed_experts": 8, "n_group": 2},
    ),
    "glm4_moe_lite": _of("glm4_moe_lite", plain=_LATENT_GROUPS),
    "glm_moe_dsa": _of("glm_moe_dsa", plain={**_LATENT_GROUPS, **_INDEX}),
    "gpt2": _of(
        "gpt2",
        plain={"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 512},
    ),
    "gpt_bigcode": _of(
        "gpt_bigcode",
        plain={"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 512, "n_inner": 96},
        exact={"activation_function": "gelu"},
    ),
    "gpt_neox": _of(
        "gpt_neox",
        plain={"intermediate_size": 256},
        sequential={"use_parallel_residual": False},
        approximate={"hidden_act": "gelu_fast"},
    ),
    "gpt_oss": _of(
        "gpt_oss",
        plain={"sliding_window": WINDOW, "layer_types": [_SLIDING, _FULL] * 2, **_rope({**YARN, "truncate": False})},
        rounded=_rope(YARN),
    ),
    "gptj": _of(
        "gptj", plain={"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 512, "n_inner": 256, "rotary_dim": 8}
    ),
    "granite": _of("granite", plain=_MUP, tied=_TIED, biases={"attention_bias": True, "mlp_bias": True}),
    "granitemoe": _of("granitemoe", plain=_MUP),
    "granitemoehybrid": _of(
        "granitemoehybrid",
        plain={**_MUP, **_MAMBA, "layer_types": ["mamba", "attention"] * 2, "position_embedding_type": "nope"},
        rope={"position_embedding_type": "rope", **_rope(PLAIN)},
        dense={"num_local_experts": 0, "intermediate_size": 32},
    ),
    "helium": _of("helium", biases={"attention_bias": True}),
    "hunyuan_v1_dense": _of("hunyuan_v1_dense", plain=_rope({**DYNAMIC, "alpha": 1000.0, "factor": 1.0})),
    "internlm3": _of("internlm3", biases={"bias": True, "qkv_bias": True}),
    "jamba": _of(
        "jamba",
        plain={"attn_layer_offset": 1, "attn_layer_period": 2, "mamba_d_conv": 4, "mamba_dt_rank": 8},
        one_expert={"num_experts": 1, "num_experts_per_tok": 1},
    ),
    "kimi_k25": _inside("kimi_k25", "deepseek_v3", **_LATENT_GROUPS),
    "kimi_linear": _of(
        "kimi_linear",
        plain={
            "num_key_value_heads": 4,
            "linear_head_dim": 16,
            "linear_num_heads": 4,
            "layer_types": ["linear_attention", _FULL] * 2,
            "q_lora_rank": None,
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
        },
    ),
    "laguna": _of("laguna", plain={"sliding_window": WINDOW, "layer_types": [_FULL, _SLIDING] * 2}),
    "lfm2": _of("lfm2", plain={"layer_types": ["conv", _FULL] * 2, "conv_L_cache": 3}, biases={"conv_bias": True}),
    "lfm2_moe": _of("lfm2_moe", plain={"layer_types": ["conv", _FULL] * 2, "num_dense_layers": 1}),
    "llama": _of(
        "llama",
        plain=_rope(PLAIN),
        tied=_TIED,
        biases={"attention_bias": True, "mlp_bias": True},
        llama3=_rope(LLAMA3),
        yarn=_rope(YARN),
        linear=_rope(LINEAR),
        longrope=_rope(LONGROPE),
    ),
    "llama4": _inside("llama4", "llama4_text", **_LLAMA4),
    "llama4_text": _of(
        "llama4_text",
        plain={**_LLAMA4, "interleave_moe_layer_step": 10, "attention_chunk_size": 8192},
        tied=_TIED,
    ),
    "longcat_flash": _of(
        "longcat_flash",
        plain={
            "num_layers": 2,
            "ffn_hidden_size": 96,
            "expert_ffn_hidden_size": 32,
            "moe_topk": 2,
            "zero_expert_num": 2,
            "num_key_value_heads": 4,
            "routed_scaling_factor": 2.0,
        },
    ),
    "mamba": _of("mamba", plain={"state_size": 16, "time_step_rank": 4}, biases={"use_bias": True}),
    "mamba2": _of(
        "mamba2",
        epsilon={"layer_norm_epsilon": 1e-3},
        plain={"num_heads": 8, "head_dim": 16, "state_size": 32, "n_groups": 2, "layer_norm_epsilon": 1e-5},
    ),
    "mellum": _of(
        "mellum",
        plain={
            "sliding_window": WINDOW,
            "layer_types": [_SLIDING, _FULL] * 2,
            "rope_parameters": {_FULL: YARN, _SLIDING: PLAIN},
        },
    ),
    "mimo_v2_flash": _of("mimo_v2_flash", plain=_MIMO, original={"sliding_window_size": WINDOW - 1}),
    "minicpm3": _of(
        "minicpm3",
        plain={"num_key_value_heads": 4, "qk_rope_head_dim": 16, "dim_model_base": 32, "scale_emb": 3},
        longrope={**_rope(LONGROPE), "original_max_position_embeddings": CONTEXT},
    ),
    "minimax": _of("minimax_m2", partial=_rope({**PLAIN, "partial_rotary_factor": 0.5})),
    "ministral3": _of(
        "ministral3", plain=_rope({**YARN, "llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0})
    ),
    "mistral3": _inside(
        "mistral3", "ministral3", **_rope({**YARN, "llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0})
    ),
    "mistral4": {"plain": Case("mistral4", _LATENT_GROUPS, "Mistral4ForCausalLM")},
    "mixtral": _of("mixtral", tied=_TIED),
    "nanochat": _of("nanochat"),
    "nemotron": _of("nemotron", biases={"attention_bias": True, "mlp_bias": True}, untied=_UNTIED),
    "nemotron_h": _of(
        "nemotron_h",
        plain={
            "layers_block_type": ["linear_attention", "moe", _FULL, "mlp"],
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "ssm_state_size": 32,
            "n_groups": 2,
            "moe_shared_expert_intermediate_size": 48,
            "time_step_min": 1e-12,
        },
        biases={"use_bias": True, "mamba_proj_bias": True, "mlp_bias": True},
    ),
    "olmo2": _of("olmo2", tied=_TIED, yarn=_rope(YARN), biases=_BIASES),
    "olmo3": _of(
        "olmo3",
        plain={"sliding_window": WINDOW, "layer_types": [_SLIDING, _SLIDING, _SLIDING, _FULL]},
        yarn=_rope(YARN),
    ),
    "olmo_hybrid": _of("olmo_hybrid", plain={**_GATED_DELTA, "linear_num_key_heads": 4, "num_key_value_heads": 4}),
    "olmoe": _of("olmoe", plain={"norm_topk_prob": True}, unnormalized={"norm_topk_prob": False}),
    "phi": _of("phi", linear={"num_key_value_heads": 4}),
    "phi3": _of(
        "phi3",
        plain={"sliding_window": None},
        longrope={**_rope(LONGROPE), "original_max_position_embeddings": CONTEXT},
        partial=_rope({**PLAIN, "partial_rotary_factor": 0.5}),
        tied=_TIED,
    ),
    "phimoe": _of("phimoe", plain={"attention_bias": True, "lm_head_bias": True}),
    "pixtral": _inside("pixtral", "mistral", sliding_window=None),
    "qwen2": _of("qwen2", tied=_TIED, yarn=_rope(YARN)),
    "qwen2_moe": _of("qwen2_moe", plain={"norm_topk_prob": False}),
    "qwen2_vl": _inside("qwen2_vl", "qwen2"),
    "qwen3": _of("qwen3", tied=_TIED, yarn=_rope(YARN)),
    "qwen3_5": _inside("qwen3_5", "qwen3_5_text", **_QWEN35),
    "qwen3_5_moe": _inside("qwen3_5_moe", "qwen3_5_moe_text", **_QWEN35),
    "qwen3_moe": _of("qwen3_moe", plain={"norm_topk_prob": True}, dense={"mlp_only_layers": [1]}),
    "qwen3_next": _of("qwen3_next", plain={**_GATED_DELTA, **_rope({**PLAIN, "partial_rotary_factor": 0.5})}),
    "qwen3_vl": _inside("qwen3_vl", "qwen3"),
    "qwen3_vl_moe": _inside("qwen3_vl_moe", "qwen3_moe", norm_topk_prob=True),
    "recurrent_gemma": _of(
        "recurrent_gemma",
        plain={
            "attention_window_size": WINDOW,
            "block_types": ["recurrent", "attention"],
            "lru_width": 64,
            "num_key_value_heads": 1,
        },
    ),
    "seed_oss": _of("seed_oss", plain={"attention_bias": True, "attention_out_bias": True, "mlp_bias": True}),
    "smollm3": _of("smollm3", plain={"no_rope_layers": [1, 1, 1, 0]}, untied=_UNTIED),
    "solar_open": _of("solar_open"),
    "stablelm": _of(
        "stablelm",
        biases={"use_qkv_bias": True},
        qk_norm={"qk_layernorm": True},
        parallel={"use_parallel_residual": True},
    ),
    "starcoder2": _of("starcoder2", plain={"sliding_window": None}, exact={"hidden_act": "gelu"}),
}
"""By the architecture's name in docs/model-architectures.md, and what is special."""


REFUSED: dict[str, Case] = {
    "another model of this name": Case("bailing_hybrid", {"num_key_value_heads": 4, "num_mtp_layers": 0}),
    "another model of this name, MiniMax-Text-01": Case("minimax"),
    "biases of attention, dots1": Case("dots1", _BIASES),
    "biases of attention, qwen3": Case("qwen3", _BIASES),
    "a bias of the head": Case("ernie4_5_moe", {"use_bias": True}),
    "experts": Case("llama4_text", _LLAMA4),
    "multi_query": Case("gpt_bigcode", {"n_embd": 64, "n_layer": 4, "n_head": 4, "multi_query": False}),
    "a narrow MLP, gpt2": Case("gpt2", {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_inner": 96}),
    "a narrow MLP, gpt_neox": Case("gpt_neox", {"intermediate_size": 96}),
}
"""Models that mlx-lm's code cannot compute, and that loading refuses."""

EXCEPTIONS: dict[str, str] = {
    "bailing_hybrid": "mlx-lm's model of this name has another kind of attention; that of transformers is refused",
    "bitnet": "mlx-lm's kernels need Metal",
    "lfm2-vl": "mlx-lm's class reads converted folders only; checkpoints with a vision encoder use mlx-vlm's",
    "minimax_m3_vl": "mlx-lm's class reads other names of tensors; checkpoints with a vision encoder use mlx-vlm's",
    "muse_glimmer": "transformers has no class for its language model alone",
    "muse_spark": "mlx-lm's kernels need Metal",
    "olmo": "importing mlx-lm's module ends the process",
    "step3p5": "transformers has no class for its language model alone",
}
"""Architectures that transformers has, and why they are not compared."""

OTHER_NAMES: dict[str, str] = {"lfm2-vl": "lfm2_vl", "minimax": "minimax_m2"}
"""`model_type` of transformers, if the architecture has another name in mlx-lm."""
