"""Settings of language models that choose experts or keys, apart from the usual sizes."""

from __future__ import annotations

from tests.reference.cases import WINDOW, Config

DEEPSEEK_V4: Config = {
    "layer_types": [
        "sliding_attention",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
        "compressed_sparse_attention",
    ],
    "mlp_layer_types": ["hash_moe", *["moe"] * 3],
    "num_key_value_heads": 1,
    "partial_rotary_factor": 0.5,
    "sliding_window": WINDOW,
    "o_groups": 2,
    "o_lora_rank": 16,
    "index_n_heads": 8,
    "index_head_dim": 16,
    "index_topk": 8,
    "hc_mult": 2,
}
GLM5_NEXT: Config = {
    "layer_types": ["linear_attention", "indexed_attention", "indexed_attention", "linear_attention"],
    "indexer_types": ["full", "full", "shared", "full"],
    "num_key_value_heads": 4,
    "qk_rope_head_dim": 0,
    "index_kpool": 4,
    "linear_head_dim": 16,
    "linear_num_heads": 4,
    "hc_mult": 2,
    "index_head_dim": 16,
    "index_n_heads": 8,  # of few, all may score 0, and it is open which tokens are chosen
    "index_topk": 8,
}
HY_4: Config = {
    "num_key_value_heads": 4,
    "index_head_dim": 24,
    "index_n_heads": 8,
    "index_topk": 8,
    "swiglu_limit": 0.5,
}
INKLING: Config = {
    "layer_types": ["hybrid_sliding", "hybrid"] * 2,
    "mlp_layer_types": ["dense", *["sparse"] * 3],
    "swa_num_attention_heads": 2,
    "swa_num_key_value_heads": 1,
    "swa_head_dim": 24,
    "sliding_window_size": WINDOW,
    "d_rel": 8,
    "rel_extent": 24,
    "log_scaling_n_floor": 20,
    "logits_mup_width_multiplier": 2.0,
    "n_shared_experts": 2,
}
MINIMAX_M3: Config = {
    "rotary_dim": 8,  # transformers reads the factor instead
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5},
    "layer_types": ["full_attention", "minimax_m3_sparse"] * 2,
    "mlp_layer_types": ["dense", *["sparse"] * 3],
    "dense_intermediate_size": 96,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "index_block_size": 8,
    "index_topk_blocks": 2,
}
QWEN_4: Config = {
    "output_gate_type": "sigmoid",
    "ple_embed_dim": 32,
    "hc_count": 2,
    "hc_lowrank": 8,
    "indexer_head_dim": 16,
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_compress_ratio": 2,
    "indexer_budget": 8,
    "ngram_vocab_size_base": 64,
    "split_ngram_parts": 1,
    "make_ngram_vocab_size_divisible_by": 1,
}
STEP_3: Config = {
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "mlp_layer_types": ["dense", *["sparse"] * 3],
    "sliding_window": WINDOW,
    "num_sliding_attention_heads": 8,
    "share_expert_dim": 48,
    "moe_router_scaling_factor": 1.5,
    "swiglu_limits": [None, 0.1, 0.1, None],
    "swiglu_limits_shared": [0.1, None, 0.1, None],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        "full_attention": {
            "rope_type": "llama3",
            "rope_theta": 5000.0,
            "partial_rotary_factor": 0.5,
            "factor": 2.0,
            "original_max_position_embeddings": 32,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
    },
}
