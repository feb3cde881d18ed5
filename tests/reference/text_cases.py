"""Text architectures of mlx-lm that are compared with transformers."""

from __future__ import annotations

from tests.reference.cases import CONTEXT, Case, Config

THETA: Config = {"rope_theta": 5000.0}
LLAMA3: Config = {
    **THETA,
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": CONTEXT,
}
YARN: Config = {**THETA, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": CONTEXT}
LINEAR: Config = {**THETA, "rope_type": "linear", "factor": 4.0}

CASES: dict[str, dict[str, Case]] = {
    "llama": {
        "plain": Case("llama", {"rope_parameters": {**THETA, "rope_type": "default"}}),
        "tied": Case("llama", {"tie_word_embeddings": True}),
        "biases": Case("llama", {"attention_bias": True, "mlp_bias": True}),
        "llama3": Case("llama", {"rope_parameters": LLAMA3}),
        "yarn": Case("llama", {"rope_parameters": YARN}),
        "linear": Case("llama", {"rope_parameters": LINEAR}),
    },
    "qwen3": {"plain": Case("qwen3")},
}
"""By the architecture's name in docs/model-architectures.md, and what is special."""
