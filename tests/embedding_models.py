"""Tiny embedders and rerankers with random weights, in the files that sentence-transformers and transformers write.

The weights' names and shapes are those of mlx-vlm's own classes, brought into the form of the checkpoints that are
published. Whatever is drawn is the same each time, on each machine: `embedding_oracle.json` was recorded with it.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.embedding_tokenizers import MAX_POSITIONS, TOKENIZERS

Prompts = tuple[tuple[str, str], ...]
"""(name, text) of config_sentence_transformers.json."""

SLIDING_WINDOW = 32
"""Of gemma3_text, as its config has it: a token sees half of it to either side."""
LOCAL_ATTENTION = 16
"""Of modernbert, both sides together."""

RERANK_TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif -%}"""

_ENCODER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": MAX_POSITIONS,
}
_DECODER = {
    **_ENCODER,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "max_position_embeddings": 512,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {**_ENCODER, "architectures": ["BertModel"], "type_vocab_size": 2, "pad_token_id": 0},
    "modernbert": {
        **_ENCODER,
        "architectures": ["ModernBertModel"],
        "num_hidden_layers": 3,
        "local_attention": LOCAL_ATTENTION,
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "norm_eps": 1e-5,
        "pad_token_id": 3,
        "cls_token_id": 1,
        "sep_token_id": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    # Positions begin behind the padding's id, as those of all RoBERTa models.
    "xlm-roberta": {
        **_ENCODER,
        "architectures": ["XLMRobertaModel"],
        "max_position_embeddings": MAX_POSITIONS + 2,
        "type_vocab_size": 1,
        "pad_token_id": 1,
        "layer_norm_eps": 1e-5,
    },
    "qwen3": {**_DECODER, "architectures": ["Qwen3ForCausalLM"]},
    "gemma3_text": {
        **_DECODER,
        "architectures": ["Gemma3TextModel"],
        "use_bidirectional_attention": True,
        "query_pre_attn_scalar": 16,
        "sliding_window": SLIDING_WINDOW,
        "sliding_window_pattern": 2,
        "_sliding_window_pattern": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_local_base_freq": 10000.0,
        "rope_theta": 1000000.0,
        "rope_global_base_freq": 1000000.0,
    },
    "lfm2": {
        **_DECODER,
        "architectures": ["Lfm2BidirectionalModel"],
        "norm_eps": 1e-5,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": 32,
        "block_ff_dim": 64,
        "block_multiple_of": 32,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv", "full_attention"],
    },
    "ministral3": {
        **_DECODER,
        "architectures": ["Ministral3BidirectionalModel"],
        "rope_parameters": {
            "rope_theta": 10000.0,
            "rope_type": "default",
            "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 256,
        },
    },
    "llama_bidirec": {**_DECODER, "architectures": ["LlamaBidirectionalModel"]},
}
"""What config.json says of each kind, but for the vocabulary."""

KINDS = tuple(CONFIGS)
_MODULES = {
    "xlm-roberta": "xlm_roberta",
    "qwen3": "qwen3_embedding",
    "gemma3_text": "gemma3_embedding",
    "lfm2": "lfm2_embedding",
    "ministral3": "ministral3_embedding",
}
USUAL_POOLING = {"qwen3": "lasttoken", "lfm2": "cls"}
"""What published checkpoints of a kind have; the others have the mean."""

_LEGACY_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}

# -- checkpoints ----------------------------------------------------------------------------------------------------


@functools.cache
def tiny_embedder(
    kind: str = "bert",
    *,
    pooling: str | tuple[str, ...] | None = None,
    legacy: bool = False,
    dense: tuple[tuple[int, str], ...] = (),
    normalize: bool = True,
    prompts: Prompts = (),
    default_prompt: str | None = None,
    include_prompt: bool = True,
    max_seq_length: int | None = None,
    modules: bool = True,
    **changes: Any,
) -> Path:
    """The folder of an embedder; made once per test session.

    Args:
        kind: of KINDS.
        pooling: a mode, or several whose results are concatenated; None: `USUAL_POOLING`.
        legacy: 1_Pooling/config.json has a flag for each mode, as older releases wrote it.
        dense: layers behind the pooling: (features that come out, activation's class in torch.nn).
        normalize: the vectors have length 1.
        prompts: texts that are put before inputs, by name.
        default_prompt: the name of the one that is put there when none is asked for.
        include_prompt: pooling counts the prompt's tokens.
        max_seq_length: of sentence_bert_config.json; tokens behind it are cut off.
        modules: False: transformers' files alone.
        **changes: of config.json.
    """
    folder = Path(tempfile.mkdtemp(prefix="localai_shim-embedder-")) / f"tiny-{kind}-embedder"
    layers = dense or (((128, "Identity"), (32, "Identity")) if kind == "gemma3_text" and modules else ())
    _make_encoder(folder, kind, "Model", changes)
    if not modules:
        return folder
    _write_modules(folder, len(layers), normalize)
    _write_pooling(folder, pooling or USUAL_POOLING.get(kind, "mean"), legacy, include_prompt)
    width = CONFIGS[kind]["hidden_size"] * (len(pooling) if isinstance(pooling, tuple) else 1)
    for number, (features, activation) in enumerate(layers, 2):
        _write_dense(folder / f"{number}_Dense", width, features, activation, seed=number)
        width = features
    _write(folder / "sentence_bert_config.json", {"max_seq_length": max_seq_length, "do_lower_case": False})
    _write(
        folder / "config_sentence_transformers.json",
        {
            "__version__": {"sentence_transformers": "5.1.0"},
            "prompts": dict(prompts),
            "default_prompt_name": default_prompt,
            "similarity_fn_name": "cosine",
        },
    )
    return folder


@functools.cache
def tiny_classifier(kind: str = "bert", *, labels: int = 1, **changes: Any) -> Path:
    """The folder of a sequence classifier, which a reranker is with one label. Kinds: bert, modernbert, xlm-roberta."""
    folder = Path(tempfile.mkdtemp(prefix="localai_shim-reranker-")) / f"tiny-{kind}-reranker"
    name = CONFIGS[kind]["architectures"][0].removesuffix("Model")
    names = {str(i): f"LABEL_{i}" for i in range(labels)}
    given = {"id2label": names, "label2id": {name: int(i) for i, name in names.items()}}
    own = {"architectures": [f"{name}ForSequenceClassification"], **given, **changes}
    _make_encoder(folder, kind, "SequenceClassificationModel", own, num_labels=labels)
    return folder


@functools.cache
def tiny_judge(**changes: Any) -> Path:
    """The folder of a generative reranker: a qwen3 whose vocabulary has the tokens yes and no."""
    folder = Path(tempfile.mkdtemp(prefix="localai_shim-judge-")) / "tiny-qwen3-reranker"
    _make_encoder(folder, "qwen3", "CausalLM", changes)
    (folder / "chat_template.jinja").write_text(RERANK_TEMPLATE)
    return folder


# -- weights --------------------------------------------------------------------------------------------------------


def _make_encoder(folder: Path, kind: str, cls: str, changes: Mapping[str, Any], **sizes: Any) -> None:
    """Write config.json, the weights and the tokenizer."""
    from mlx.utils import tree_flatten
    from safetensors.numpy import save_file

    folder.mkdir(parents=True)
    vocabulary = TOKENIZERS[kind](folder)
    config = {**CONFIGS[kind], "model_type": kind, "vocab_size": vocabulary, "dtype": "float32", **changes}
    _write(folder / "config.json", config)
    name = _MODULES.get(kind, kind)
    module = importlib.import_module(f"mlx_vlm.models.{name}")
    model_class = module.Model if cls == "CausalLM" else getattr(module, cls)
    model = model_class(module.ModelConfig.from_dict({**config, **sizes, "model_type": name}))
    shapes = {name: array.shape for name, array in tree_flatten(model.parameters()) if not name.startswith("dense.")}
    save_file(_published(kind, cls, _draw(shapes)), folder / "model.safetensors", metadata={"format": "pt"})


def _draw(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """Wide enough that the vectors of different texts differ much."""
    numbers = np.random.default_rng(seed)
    drawn = {}
    for name, shape in sorted(shapes.items()):
        wide = numbers.standard_normal(shape, dtype=np.float32)
        is_gain = len(shape) == 1 and name.endswith("weight")
        drawn[name] = wide * np.float32(0.05) + is_gain if len(shape) == 1 else wide * np.float32(0.3)
    return drawn


def _published(kind: str, cls: str, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights as checkpoints on the hub have them: names in front of them, and transposed convolutions."""
    if kind == "lfm2":
        turned = {n: np.ascontiguousarray(w.transpose(0, 2, 1)) if w.ndim == 3 else w for n, w in weights.items()}
        return {name.removeprefix("model."): array for name, array in turned.items()}
    if cls == "CausalLM":
        return weights
    if cls == "Model":
        return {name.removeprefix("model."): array for name, array in weights.items()}
    prefix = {"bert": "bert.", "modernbert": "model.", "xlm-roberta": "roberta."}[kind]
    outside = re.compile(r"(classifier|head)\.")
    return {name if outside.match(name) else prefix + name: array for name, array in weights.items()}


def _write(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, indent=1))


# -- sentence-transformers' files -----------------------------------------------------------------------------------


def _write_modules(folder: Path, dense: int, normalize: bool) -> None:
    names = [("", "Transformer"), ("1_Pooling", "Pooling"), *((f"{i}_Dense", "Dense") for i in range(2, dense + 2))]
    if normalize:
        names.append((f"{len(names)}_Normalize", "Normalize"))
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (path, name) in enumerate(names)
    ]
    _write(folder / "modules.json", listed)


def _write_pooling(folder: Path, pooling: str | tuple[str, ...], legacy: bool, include_prompt: bool) -> None:
    modes = (pooling,) if isinstance(pooling, str) else pooling
    width = json.loads((folder / "config.json").read_text())["hidden_size"]
    if legacy:
        flags = {flag: mode in modes for mode, flag in _LEGACY_FLAGS.items()}
        config = {"word_embedding_dimension": width, **flags, "include_prompt": include_prompt}
    else:
        mode = modes[0] if len(modes) == 1 else list(modes)
        config = {"embedding_dimension": width, "pooling_mode": mode, "include_prompt": include_prompt}
    (folder / "1_Pooling").mkdir()
    _write(folder / "1_Pooling" / "config.json", config)


def _write_dense(folder: Path, width: int, features: int, activation: str, seed: int) -> None:
    from safetensors.numpy import save_file

    folder.mkdir()
    bias = activation != "Identity"  # as EmbeddingGemma's and distiluse's
    place = "torch.nn.modules.linear" if activation == "Identity" else "torch.nn.modules.activation"
    config = {"in_features": width, "out_features": features, "bias": bias}
    _write(folder / "config.json", {**config, "activation_function": f"{place}.{activation}"})
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (features, width)}
    if bias:
        shapes["linear.bias"] = (features,)
    save_file(_draw(shapes, seed), folder / "model.safetensors", metadata={"format": "pt"})
