"""Small models with random weights, made on the spot through mlx-lm's own classes and saved in HF format."""

from __future__ import annotations

import functools
import importlib
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}"""

AGENT_TURNS = """{%- if tools or messages[0].role == 'system' -%}
<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{%- for tool in tools or [] %}
{{ tool | tojson }}{% endfor %}<|im_end|>
{% endif -%}
{%- set ns = namespace(last=0) -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
<|im_start|>user
{{ message.content }}<|im_end|>
{% elif message.role == 'assistant' -%}
<|im_start|>assistant
{% if loop.index0 > ns.last and message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>
{% endif %}{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}{% set tool_call = call.function %}
<tool_call>{"name": "{{ tool_call.name }}", "arguments": {{ tool_call.arguments | tojson }}}</tool_call>
{%- endfor %}<|im_end|>
{% elif message.role == 'tool' -%}
<|im_start|>user
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
"""
"""As Qwen3's: thoughts before the last user message are dropped. What opens the answer's thought is to follow."""

THINKING = AGENT_TURNS + "<think>\n{% endif -%}"
"""The generation prompt opens a thought."""

CORPUS = [
    "The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs!",
    "What is the capital of France? Paris is the capital of France. How are you today?",
    "def add(a, b):\n    return a + b\n\nprint(add(1, 2))  # 3",
    "Zażółć gęślą jaźń. Привет, мир! 你好,世界。 こんにちは 🙂🚀",
    "one two three four five six seven eight nine ten 0 1 2 3 4 5 6 7 8 9",
] * 4

VOCABULARY = 400


def byte_fallback_tokenizer(normalizer: Any, texts: Iterable[str]) -> Any:
    """BPE trained on the texts, whose vocabulary has their characters, and bytes for all others."""
    from tokenizers import Tokenizer, models, trainers

    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizer
    trained.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=200, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *model["vocab"]]
    merges = [tuple(merge) for merge in model["merges"]]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys(names))}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizer
    return tokenizer


def make_tokenizer(folder: Path, *, template: str | None = TEMPLATE, vocabulary: int = VOCABULARY) -> None:
    """Train a byte-level BPE tokenizer and save it as transformers loads it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    if template is not None:
        fast.chat_template = template
    fast.save_pretrained(folder)


_BASE = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "rope_theta": 10000.0,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3": {**_BASE, "model_type": "qwen3", "head_dim": 16},
    "llama": {**_BASE, "model_type": "llama"},
    # Sliding window: layers with a ring of 32 positions beside global ones.
    "gemma3_text": {
        **_BASE,
        "model_type": "gemma3_text",
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 32,
        "sliding_window_pattern": 2,
        "rope_local_base_freq": 10000.0,
    },
    # Hybrid: gated delta-net layers (ArraysCache) beside attention, and experts.
    "qwen3_next": {
        **_BASE,
        "model_type": "qwen3_next",
        "head_dim": 16,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "shared_expert_intermediate_size": 64,
        "mlp_only_layers": [],
        "moe_intermediate_size": 64,
        "partial_rotary_factor": 0.5,
        "full_attention_interval": 2,
        "norm_topk_prob": True,
    },
    # Mixture of experts.
    "qwen3_moe": {
        **_BASE,
        "model_type": "qwen3_moe",
        "head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "moe_intermediate_size": 64,
        "norm_topk_prob": True,
    },
}


_WIDE = {
    **_BASE,
    "hidden_size": 128,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 8192,
}

WIDE: dict[str, dict[str, Any]] = {
    "qwen3 of 64": {**_WIDE, "model_type": "qwen3", "head_dim": 64},
    # Mamba layers and attention.
    "granitemoehybrid of 64": {
        **_WIDE,
        "model_type": "granitemoehybrid",
        "attention_bias": False,
        "embedding_multiplier": 1.0,
        "attention_multiplier": 0.125,
        "logits_scaling": 1.0,
        "residual_multiplier": 1.0,
        "layer_types": ["mamba", "attention"],
        "mamba_n_heads": 4,
        "mamba_d_head": 64,
        "mamba_d_state": 32,
        "mamba_d_conv": 4,
        "mamba_n_groups": 1,
        "mamba_proj_bias": False,
        "mamba_conv_bias": True,
    },
}
"""Models that Metal's own kernels compute: fused attention begins with heads of 64, Mamba's with states of 32."""


def make_model(folder: Path, kind: str, *, seed: int = 0, template: str | None = TEMPLATE, **changes: Any) -> Path:
    """Save a random model of a kind in CONFIGS or WIDE, with its tokenizer. Returns the folder."""
    config = {**(CONFIGS | WIDE)[kind], **changes}
    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(folder, template=template, vocabulary=config["vocab_size"])
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    return make_weights(folder, {**config, "eos_token_id": ids["<|im_end|>"]}, seed=seed)


def make_weights(folder: Path, config: dict[str, Any], *, seed: int = 0) -> Path:
    """Save a random model with this config beside its tokenizer. Returns the folder."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    (folder / "config.json").write_text(json.dumps(config))
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    mx.random.seed(seed)
    model = module.Model(module.ModelArgs.from_dict(config))
    # Wider than the initialisation, so that greedy tokens differ from prompt to prompt and ties do not happen.
    weights = {
        name: mx.random.normal(array.shape) * 0.15 if array.ndim > 1 else array + 0.05 * mx.random.normal(array.shape)
        for name, array in tree_flatten(model.parameters())
    }
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


@functools.cache
def tiny(kind: str, **changes: Any) -> Path:
    """The folder of a tiny model; made once per test session."""
    root = Path(tempfile.mkdtemp(prefix="localai_shim-tiny-"))
    return make_model(root / f"tiny-{kind}", kind, **changes)


def make_half_model(folder: Path, kind: str) -> Path:
    """As `make_model`, with weights in bfloat16."""
    import mlx.core as mx

    make_model(folder, kind)
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    halved = {name: array.astype(mx.bfloat16) for name, array in weights.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), halved, metadata={"format": "mlx"})
    return folder
