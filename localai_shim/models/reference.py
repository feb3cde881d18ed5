"""A model with random 4-bit weights, and mlx-lm's own greedy tokens: the oracle of reports about a machine."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..types import Token
from .upstream_imports import LOADING, keeping_file_limits

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
HEAD_DIM = 128  # most models have it, and Metal has a fused kernel for it
BITS, GROUP = 4, 64
CONTEXT = 4_096
_ENTROPY = 2.0  # nats, about a trained model's: flat logits would make every rounding error visible as another token


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of a Qwen3 model."""

    hidden: int
    layers: int
    intermediate: int
    heads: int
    kv_heads: int


SMALL = Shape(hidden=256, layers=2, intermediate=512, heads=4, kv_heads=2)
"""1.3 million parameters: a CPU runs a long prompt in a second."""
LARGE = Shape(hidden=1_024, layers=8, intermediate=3_072, heads=8, kv_heads=2)
"""96 million parameters, for GPUs."""


def fitting_shape() -> Shape:
    """The shape that this machine runs in seconds."""
    from ..backends.machine import has_gpu

    return LARGE if has_gpu() else SMALL


def save_random_model(folder: Path, tokenizer: Path, shape: Shape) -> None:
    """Save a model with random weights in 4 bits.

    Args:
        folder: to save it in.
        tokenizer: folder of a checkpoint whose tokenizer it gets.
        shape: the model's; its scales and norms are in bfloat16 on a GPU and in float32 on a CPU.
    """
    import mlx.core as mx
    from mlx import nn
    from mlx.utils import tree_flatten

    from ..backends.machine import has_gpu

    with LOADING, keeping_file_limits():
        from mlx_lm.models import qwen3

    for name in TOKENIZER_FILES:
        shutil.copy(tokenizer / name, folder)
    vocabulary, end = _vocabulary(tokenizer)
    config = _config(shape, vocabulary, end)
    (folder / "config.json").write_text(json.dumps(config))
    model = qwen3.Model(qwen3.ModelArgs.from_dict(config))
    keys = iter(mx.random.split(mx.random.key(0), len(tree_flatten(model.parameters()))))
    spread = math.sqrt(2 * (math.log(vocabulary) - _ENTROPY))  # of Gaussian logits that have this entropy
    dtype = mx.bfloat16 if has_gpu() else mx.float32

    def draw(name: str, array: mx.array) -> mx.array:
        if array.ndim < 2:
            return array.astype(dtype)
        drawn = mx.random.normal(array.shape, dtype, key=next(keys)) / math.sqrt(array.shape[-1])
        if name.startswith("lm_head."):
            drawn = drawn * spread
            drawn[end] = 0.0  # so that answers do not end early
        return drawn

    weights = [(name, draw(name, array)) for name, array in tree_flatten(model.parameters())]
    model.load_weights(weights)
    nn.quantize(model, GROUP, BITS)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), {"format": "mlx"})


def _vocabulary(folder: Path) -> tuple[int, int]:
    """Number of tokens of a checkpoint, and the one that ends a sequence."""
    config = json.loads((folder / "config.json").read_text())
    return config["vocab_size"], config["eos_token_id"]


def _config(shape: Shape, vocabulary: int, end: int) -> dict[str, object]:
    return {
        "model_type": "qwen3",
        "vocab_size": vocabulary,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "tie_word_embeddings": False,
        "eos_token_id": end,
        "quantization": {"group_size": GROUP, "bits": BITS, "mode": "affine"},
    }


class UpstreamModel:
    """A checkpoint as mlx-lm loads and runs it, on the thread that makes this."""

    def __init__(self, folder: Path) -> None:
        import mlx_lm.utils

        loaded: tuple[nn.Module, TokenizerWrapper] = mlx_lm.utils.load(str(folder))
        self._model, self._tokenizer = loaded

    def greedy(self, prompt: Sequence[int], tokens: int, top_logprobs: int) -> list[Token]:
        """The answer of `mlx_lm.stream_generate` to a prompt."""
        from mlx_lm import stream_generate

        answers = stream_generate(self._model, self._tokenizer, list(prompt), max_tokens=tokens)
        return [_token(int(answer.token), answer.logprobs, top_logprobs) for answer in answers]


def _token(id: int, logprobs: mx.array, top_logprobs: int) -> Token:
    values: Any = logprobs.tolist()
    likeliest = sorted(range(len(values)), key=values.__getitem__, reverse=True)[:top_logprobs]
    return Token(id, values[id], tuple((other, values[other]) for other in likeliest))
