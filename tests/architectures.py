"""Tiny models with random weights of every architecture that mlx-lm defines, made in memory through its own classes."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any

import numpy as np

from localai_shim.engine.cache_contents import Quantised
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.models.checkpoint.files import Checkpoint
from localai_shim.models.misreading_layers import batch_attention
from localai_shim.models.text import TextModel
from localai_shim.runtime.host import connect
from tests.engine.harness import quantised_by
from tests.tiny import TEMPLATE, VOCABULARY, tiny

connect()  # scripts import this without the other parts of the suite

WINDOW = 32
"""Positions that sliding windows and chunks hold."""

_ROPE = {"rope_theta": 10000.0, "rope_type": "default"}
_LINEAR = {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4, "kda_layers": [1, 3]}
_MUP = {"embedding_multiplier": 1.0, "attention_multiplier": 0.25, "logits_scaling": 1.0, "residual_multiplier": 1.0}
GATED_DELTA = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
}
_LONGCAT = {
    "ffn_hidden_size": 128,
    "expert_ffn_hidden_size": 32,
    "moe_topk": 2,
    "zero_expert_num": 1,
    "mla_scale_q_lora": True,
    "mla_scale_kv_lora": True,
    "attention_method": "MLA",
    "zero_expert_type": "identity",
    "ngram_vocab_size_ratio": 4,
}

COMMON: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_layers": 4,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 1024,
    "rope_theta": 10000.0,
    "rope_parameters": _ROPE,
    "rope_scaling": None,
    "partial_rotary_factor": 0.5,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "use_bias": False,
    "mlp_bias": False,
    "use_qk_norm": True,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "rms_norm_eps": 1e-6,
    "layer_norm_epsilon": 1e-5,
    "layer_norm_eps": 1e-5,
    "norm_eps": 1e-5,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "n_shared_experts": 1,
    "num_shared_experts": 1,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "shared_intermediate_size": 32,
    "routed_scaling_factor": 1.0,
    "norm_topk_prob": True,
    "first_k_dense_replace": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    # Latent attention.
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "index_head_dim": 16,
    "index_n_heads": 2,
    "index_topk": 8,
    # GPT-2 and what took its names.
    "n_embd": 64,
    "n_layer": 4,
    "n_inner": 128,
    "n_head": 4,
    "n_positions": 1024,
    "n_ctx": 1024,
    "rotary_emb_base": 10000,
    "rotary_pct": 0.5,
}

SPECIAL: dict[str, dict[str, Any]] = {
    "Klear": {},
    "afm7": {"hidden_dim": 64, "num_kv_reuse_layers": 2, "num_heads": 4, "num_kv_heads": 2},
    "apertus": {"post_norm": False, "qk_norm": True},
    "baichuan_m1": {"sliding_window_layers": [0, 2], "conv_window": 2},
    "bailing_hybrid": {"layer_group_size": 2, "group_norm_size": 2},
    "bailing_moe_linear": {"layer_group_size": 2, "group_norm_size": 2},
    "bailing_moe_v3": {"layer_group_size": 2},
    "dbrx": {
        "d_model": 64,
        "n_layers": 4,
        "n_heads": 4,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "cohere2": {"sliding_window_pattern": 2},
    "deepseek_v2": {"rope_scaling": {"factor": 1.0, "mscale_all_dim": 0}},
    "deepseek_v41": {
        "head_dim": 32,
        "qk_rope_head_dim": 8,
        "o_groups": 2,
        "o_lora_rank": 16,
        "index_head_dim": 32,
        "index_n_heads": 8,
        "index_topk": 4,
        "compress_ratios": [0, 4, 4, 4],
        "kv_source_layer_ids": [1],
        "index_source_layer_ids": [1, 2],
        "candidate_source_layer_id": 1,
        "candidate_topk_blocks": 5,
        "candidate_block_size": 2,
        "scoring_func": "sqrtsoftplus",
        "hc_mult": 2,
        "hc_sinkhorn_iters": 2,  # 20 are many small operations in each layer
    },
    "exaone4": {"sliding_window_pattern": "LG"},
    "exaone_moe": {"is_moe_layer": [False, True, True, True]},
    "gear": {"layer_types": ["conv_mixer", "sliding_attention", "conv_mixer", "full_attention"]},
    "gemma3_text": {"sliding_window_pattern": 2, "query_pre_attn_scalar": 16},
    "gemma3n": {
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": VOCABULARY,
        "rope_local_base_freq": 10000.0,
        "final_logit_softcapping": 30.0,
        "activation_sparsity_pattern": [0.5, 0.5, 0.0, 0.0],
        "hidden_size_per_layer_input": 16,
        "altup_num_inputs": 2,
        "altup_coef_clip": 120.0,
        "altup_correct_scale": True,
        "altup_active_idx": 0,
        "laurel_rank": 8,
    },
    "gemma4_text": {
        "global_head_dim": 32,
        "vocab_size_per_layer_input": VOCABULARY,
        "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 16,
        "rope_parameters": None,
    },
    "gptj": {"rotary_dim": 8},
    "granite": _MUP,
    "granitemoe": _MUP,
    "granitemoehybrid": {
        **_MUP,
        "layer_types": ["mamba", "attention"] * 2,
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 32,
        "mamba_d_conv": 4,
        "mamba_n_groups": 1,
        "mamba_proj_bias": False,
        "mamba_conv_bias": True,
    },
    "hunyuan": {
        "moe_topk": 2,
        "num_shared_expert": 1,
        "use_mixed_mlp_moe": True,
        "use_cla": True,
        "cla_share_factor": 2,
        "rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "dynamic"},
    },
    "iquestloopcoder": {"loop_window_size": WINDOW},
    "jamba": {
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "expert_layer_offset": 1,
        "expert_layer_period": 2,
        "mamba_d_conv": 4,
        "mamba_d_state": 16,
        "mamba_expand": 2,
    },
    "kimi_k3": {"linear_attn_config": _LINEAR, "activation_situ_beta": 1.0, "attn_res_block_size": 2},
    "kimi_linear": {"linear_attn_config": _LINEAR, "model_max_length": 1024},
    "lfm2": {
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": 64,
        "block_ff_dim": 128,
        "block_multiple_of": 32,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv", "full_attention"] * 2,
    },
    "lfm2_moe": {
        "use_expert_bias": True,
        "num_dense_layers": 1,
        "conv_bias": False,
        "conv_L_cache": 3,
        "layer_types": ["conv", "full_attention"] * 2,
    },
    "lille-130m": {"block_size": 1024, "n_kv_heads": 2},
    "llama4": {
        "attention_chunk_size": WINDOW,
        "attn_temperature_tuning": True,
        "floor_scale": 16,
        "attn_scale": 0.5,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 128,
    },
    "llama4_text": {"intermediate_size_mlp": 128, "no_rope_layers": [1, 0, 1, 0]},
    "longcat_flash": _LONGCAT,
    "longcat_flash_ngram": _LONGCAT,
    "mamba": {"state_size": 16, "conv_kernel": 4, "use_conv_bias": True, "time_step_rank": 4},
    "mamba2": {
        "num_heads": 8,
        "state_size": 32,
        "conv_kernel": 4,
        "n_groups": 1,
        "use_conv_bias": True,
        "time_step_limit": (0.001, 100.0),
        "time_step_rank": 4,
    },
    "mimo_v2_flash": {
        "hybrid_layer_pattern": [1, 0, 1, 0],
        "moe_layer_freq": [0, 1, 1, 1],
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "sliding_window_size": WINDOW,
        "layernorm_epsilon": 1e-6,
        "swa_rope_theta": 10000.0,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2,
        "swa_head_dim": 16,
        "swa_v_head_dim": 16,
    },
    "mellum": {"rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}},
    "minicpm": {"dim_model_base": 64, "scale_depth": 1.4, "scale_emb": 1.0},
    "minicpm3": {
        "dim_model_base": 64,
        "scale_depth": 1.4,
        "scale_emb": 1.0,
        "rope_scaling": {"original_max_position_embeddings": 1024},
    },
    "minimax": {"rotary_dim": 8},
    "minimax_m3_vl": {
        "dense_intermediate_size": 128,
        "sparse_attention_freq": [0, 1, 0, 1],
        "moe_layer_freq": [0, 1, 1, 1],
        "index_block_size": 8,
        "index_topk_blocks": 4,
        "layer_types": None,
        "rotary_dim": 8,
    },
    "ministral3": {
        "rope_parameters": {**_ROPE, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": WINDOW},
    },
    "mistral4": {
        "rope_parameters": {
            **_ROPE,
            "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": WINDOW,
        },
    },
    "muse_spark": {
        "post_norm_eps": 1e-6,
        "layer_rope_theta": [10000.0, 0, 10000.0, 0],
        "final_logit_softcapping": 30.0,
        "output_multiplier": 1.0,
        "moe_hidden_size": 64,
        "num_shared_experts": 0,
    },
    "nemotron": {"hidden_act": "relu2"},
    "nemotron-nas": {
        "block_configs": [
            {
                "attention": {"no_op": False, "n_heads_in_group": 2, "replace_with_linear": False},
                "ffn": {"no_op": False, "ffn_mult": 2.0, "replace_with_linear": False},
            },
        ]
        * 4,
    },
    "nemotron_h": {
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "mamba_proj_bias": False,
        "ssm_state_size": 32,
        "conv_kernel": 4,
        "n_groups": 1,
        "use_conv_bias": True,
        "hybrid_override_pattern": ["M", "*", "-", "M"],
    },
    "olmo_hybrid": {
        **GATED_DELTA,
        "linear_allow_neg_eigval": True,
        "layer_types": ["linear_attention", "full_attention"] * 2,
    },
    "openelm": {
        "num_transformer_layers": 4,
        "model_dim": 64,
        "ffn_dim_divisor": 16,
        "num_query_heads": [4, 4, 4, 4],
        "num_kv_heads": [2, 2, 2, 2],
        "ffn_multipliers": [2.0, 2.0, 2.0, 2.0],
    },
    "phi3small": {
        "dense_attention_every_n_layers": 2,
        "ff_intermediate_size": 128,
        "gegelu_limit": 20.0,
        "vocab_size": 100352,  # it bans tokens of its own by number
        "blocksparse_block_size": 64,
        "blocksparse_num_local_blocks": 2,
        "blocksparse_vert_stride": 2,
    },
    "phixtral": {"num_vocab": VOCABULARY, "model_dim": 64, "num_heads": 4, "rotary_dim": 8},
    "plamo": {"n_shared_head": 2},
    # Where its window is full, a prompt's tokens see one position more than an answer's: what an answer left cannot be
    # what mlx-lm makes of the same tokens in a prompt.
    "plamo3": {"sliding_window": 256},
    "qwen": {"kv_channels": 16, "num_hidden_layers": 4},
    "qwen3_next": GATED_DELTA,
    "qwen3_5": GATED_DELTA,
    "qwen3_5_moe": GATED_DELTA,
    "recurrent_gemma": {
        "conv1d_width": 4,
        "logits_soft_cap": 30.0,
        "attention_window_size": WINDOW,
        "num_key_value_heads": 1,
        "block_types": ["recurrent", "attention"],
    },
    "rwkv7": {"a_low_rank_dim": 8, "v_low_rank_dim": 8, "gate_low_rank_dim": 8, "decay_low_rank_dim": 8},
    "spark2_5": {"rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}},
    "stablelm": {"use_qkv_bias": True},
    "step3p5": {"num_attention_groups": 2, "moe_top_k": 2},
}

_INSIDE = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n",
    "gemma4": "gemma4_text",
    "kimi_k25": "deepseek_v3",
    "kimi_k3": "kimi_k3",
    "kimi_vl": "deepseek_v3",
    "lfm2-vl": "lfm2",
    "llama4": "llama4",
    "minimax_m3_vl": "minimax_m3_vl",
    "mistral3": "ministral3",
    "muse_spark": "muse_spark",
    "pixtral": "llama",
    "prism_hadamard_qwen35": "qwen3_5",
    "qwen2_vl": "qwen2",
    "qwen3_5": "qwen3_5",
    "qwen3_5_moe": "qwen3_5_moe",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
}
"""Models whose config has that of their language model inside, and whose that is."""

_BESIDE: dict[str, dict[str, Any]] = {
    "prism_hadamard_qwen35": {
        "schema_version": 1,
        "tensor_namespace": "mlx-lm-text",
        "quantization": {"bits": 2, "group_size": 128, "mode": "affine"},
        "modules": [
            {"path": "model.layers.0.linear_attn.out_proj", "embedding": False, "dtype": "float16", "block": 0}
        ],
    }
}
"""What their configs have beside it."""


def architectures() -> list[str]:
    """The modules of mlx-lm that define a model."""
    import mlx_lm.models

    folder = Path(mlx_lm.models.__path__[0])
    return sorted(file.stem for file in folder.glob("*.py") if "class ModelArgs" in file.read_text(encoding="utf-8"))


def config_of(name: str, **changes: Any) -> dict[str, Any]:
    """What a checkpoint's config.json would say."""
    inner = _INSIDE.get(name)
    if inner is None:
        return {**COMMON, **SPECIAL.get(name, {}), "model_type": name, **changes}
    text = {**COMMON, **SPECIAL.get(inner, {}), "model_type": inner}
    outer = {"vocab_size": VOCABULARY, "tie_word_embeddings": False, **_BESIDE.get(name, {}), "model_type": name}
    return {**outer, "text_config": {**text, **changes}}


def randomise(model: Any) -> None:
    """Weights wider than the initialisation, so that greedy tokens differ from prompt to prompt and do not tie."""
    import mlx.core as mx
    from mlx.utils import tree_map

    numbers = np.random.default_rng(0)

    def random(array: Any) -> Any:
        if not mx.issubdtype(array.dtype, mx.floating):
            return array
        drawn = mx.array(numbers.standard_normal(array.shape, dtype=np.float32))
        return (0.15 * drawn if array.ndim > 1 else array + 0.05 * drawn).astype(array.dtype)

    model.update(tree_map(random, model.parameters()))
    model.eval()
    mx.eval(model.parameters())


def make(name: str, **changes: Any) -> Any:
    """A model with random weights, the same each time. To be made on the thread that runs it."""
    import mlx.core as mx

    module = importlib.import_module(f"mlx_lm.models.{name}")
    mx.random.seed(0)  # biases keep what they begin with
    model = module.Model(module.ModelArgs.from_dict(config_of(name, **changes)))
    randomise(model)
    return model


@functools.cache
def tokenizer(template: str = TEMPLATE) -> Any:
    """mlx-lm's wrapper of the tiny models' tokenizer."""
    from mlx_lm.tokenizer_utils import load

    return load(tiny("qwen3", template=template))


def text_model(name: str, kv: Quantised | None = None, template: str = TEMPLATE, **changes: Any) -> TextModel:
    """As a checkpoint would be loaded. To be called on the engine's thread."""
    config = config_of(name, **changes)
    checkpoint = Checkpoint(name, make(name, **changes), tokenizer(template), config, tiny("qwen3"), quantised_by(kv))
    return TextModel(checkpoint)


def engine_of(
    name: str,
    options: EngineOptions | None = None,
    kv: Quantised | None = None,
    template: str = TEMPLATE,
    **changes: Any,
) -> Engine[TextModel]:
    """An engine of its own, which has loaded its model."""
    engine = Engine(lambda: text_model(name, kv, template, **changes), options)
    engine.wait()
    return engine


class Alone:
    """mlx_lm.stream_generate with one prompt at a time: what answers are held against."""

    def __init__(self, name: str) -> None:
        self._model = make(name)
        if name == "phi3small":
            batch_attention(self._model)  # mlx-lm's own code is wrong for one row, too

    @functools.cache  # noqa: B019  # as long as the test module that made it
    def tokens(self, prompt: tuple[int, ...], max_tokens: int) -> list[int]:
        import mlx_lm

        made = mlx_lm.stream_generate(self._model, tokenizer(), list(prompt), max_tokens=max_tokens)
        return [step.token for step in made]
