"""What a comparison with transformers is made of: a model's config and what is changed for it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, fields
from typing import Any

Config = dict[str, Any]

LENGTH = 90
WINDOW = 16
"""Positions that sliding windows hold: prompts are longer."""
CONTEXT = 32
"""Positions before RoPE is scaled: prompts are longer."""

SIZES: Config = {
    "vocab_size": 400,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "shared_intermediate_size": 32,
    "n_shared_experts": 1,
    "moe_num_shared_experts": 1,
    "num_shared_experts": 1,
    "first_k_dense_replace": 1,
    "num_dense_layers": 1,
    "n_group": 1,
    "topk_group": 1,
    # Latent attention.
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
"""Keys of which each model gets those that its class of configs declares."""


@dataclass(frozen=True)
class Case:
    """A model that is compared.

    Attributes:
        kind: `model_type`.
        changes: what its config has besides `SIZES`.
        model_class: the class of transformers; that of `AutoModelForCausalLM` if it is None.
        tolerance: how much logits may differ, as a part of their spread.
        inside: `model_type` of a model with media, whose config and weights have those of this one inside.
    """

    kind: str
    changes: Config = field(default_factory=dict)
    model_class: str | None = None
    tolerance: float = 1e-3
    inside: str | None = None

    def config(self) -> Any:
        """The config, an object of transformers."""
        from transformers import CONFIG_MAPPING

        cls = CONFIG_MAPPING[self.kind]
        declared = {each.name for each in fields(cls)}
        usual = {key: value for key, value in SIZES.items() if key in declared}
        return cls(**copy.deepcopy({**usual, **self.changes}))
