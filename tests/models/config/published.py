"""Keys of published configs that mlx-lm's classes do not read, or read; sizes are those of the tests' tiny models."""

from __future__ import annotations

from typing import Any

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "mlp_bias": False,
    "model_type": "llama",
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.42.3",
    "use_cache": True,
}
_QWEN: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_window_layers": 28,
    "sliding_window": 131072,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.1",
    "use_cache": True,
    "use_sliding_window": False,
}
_DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
    "aux_loss_alpha": 0.001,
    "bos_token_id": 0,
    "ep_size": 1,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "num_nextn_predict_layers": 1,
    "pretraining_tp": 1,
    "seq_aux": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}

PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama 3.1": ("llama", _LLAMA),
    "Mistral 7B v0.3": (
        "llama",
        {**_LLAMA, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None},
    ),
    "Qwen 2.5": ("qwen2", {**_QWEN, "model_type": "qwen2"}),
    "Qwen 3": (
        "qwen3",
        {**_QWEN, "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "sliding_window": None},
    ),
    "Qwen 3 30B A3B": (
        "qwen3_moe",
        {
            **_QWEN,
            "architectures": ["Qwen3MoeForCausalLM"],
            "output_router_logits": False,
            "router_aux_loss_coef": 0.001,
        },
    ),
    "Gemma 1": (
        "gemma",
        {"hidden_act": "gelu", "hidden_activation": None, "torch_dtype": "bfloat16", "transformers_version": "4.38.1"},
    ),
    "Gemma 2": (
        "gemma2",
        {
            "attn_logit_softcapping": 50.0,
            "cache_implementation": "hybrid",
            "final_logit_softcapping": 30.0,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 256,
            "sliding_window": 4096,
        },
    ),
    "Gemma 3 1B": (
        "gemma3_text",
        {
            "attn_logit_softcapping": None,
            "cache_implementation": "hybrid",
            "final_logit_softcapping": None,
            "hidden_activation": "gelu_pytorch_tanh",
            "rope_scaling": None,
        },
    ),
    "Phi 3.5 mini": (
        "phi3",
        {
            "architectures": ["Phi3ForCausalLM"],
            "attention_bias": False,
            "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
            "embd_pdrop": 0.0,
            "hidden_act": "silu",
            "resid_pdrop": 0.0,
            "sliding_window": 262144,
        },
    ),
    "Mixtral 8x7B": (
        "mixtral",
        {
            "hidden_act": "silu",
            "num_local_experts": 4,
            "output_router_logits": False,
            "router_aux_loss_coef": 0.02,
            "sliding_window": None,
        },
    ),
    "DeepSeek V3": ("deepseek_v3", _DEEPSEEK),
    "gpt-oss": (
        "gpt_oss",
        {
            "experts_per_token": 2,
            "hidden_act": "silu",
            "initial_context_length": 4096,
            "num_experts_per_tok": 2,
            "output_router_logits": False,
            "router_aux_loss_coef": 0.9,
            "swiglu_limit": 7.0,
        },
    ),
    "SmolLM2": (
        "llama",
        {
            **_LLAMA,
            "is_llama_config": True,
            "rope_interleaved": False,
            "transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}},
        },
    ),
    "Granite 3": ("granite", {"hidden_act": "silu", "mlp_bias": False, "attention_dropout": 0.1}),
}
"""A module of mlx-lm, and a config."""
