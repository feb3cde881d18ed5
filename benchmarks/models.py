"""Models of a chosen size with random weights, saved in Hugging Face format with a tokenizer trained on the spot."""

from __future__ import annotations

import importlib
import json
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tiny import TEMPLATE

_SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
_MARKERS = ["<think>", "</think>", "<|vision_start|>", "<|image_pad|>", "<|video_pad|>", "<|vision_end|>"]
_ENTROPY = 2.0  # nats


@dataclass(frozen=True, slots=True)
class Size:
    """The shape of a model, and of the work that it is given by default."""

    hidden: int
    layers: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    prompt_tokens: int
    new_tokens: int


SIZES = {
    "small": Size(256, 4, 1_024, 4, 2, 64, 6_000, 128, 128),
    "mid": Size(768, 12, 2_048, 12, 4, 64, 16_000, 128, 64),
    "large": Size(1_024, 28, 3_072, 16, 8, 128, 151_936, 128, 64),
}


def make_model(folder: Path, size: Size, vocabulary: int) -> None:
    """Save a qwen3 model with random weights and its tokenizer."""
    save_model(folder, qwen3_config(size, vocabulary))


def save_model(folder: Path, config: dict[str, Any], template: str = TEMPLATE) -> None:
    """Save a model with random weights and its tokenizer; the config is completed by the end of sequence.

    Weights are float32 on MLX's CPU back end and bfloat16 on a GPU.
    """
    from mlx import core as mx
    from mlx.utils import tree_flatten

    folder.mkdir(parents=True, exist_ok=True)
    quiet, end = make_tokenizer(folder, config["vocab_size"], template)
    config = {**config, "eos_token_id": end}
    (folder / "config.json").write_text(json.dumps(config))
    model = new_model(config)
    randomise(model, config["vocab_size"], quiet, mx.bfloat16 if mx.is_available(mx.gpu) else mx.float32)
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})


def new_model(config: dict[str, Any]) -> Any:
    """mlx-lm's model of a config; nothing is computed."""
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    return module.Model(module.ModelArgs.from_dict(config))


def randomise(model: Any, vocabulary: int, quiet: list[int], dtype: Any) -> None:
    """Give a model random weights, one array at a time.

    Logits are spread so that the distribution has about `_ENTROPY` nats, as a trained model's has: a flat one would
    make filters like top_p unrealistically slow. Tokens that give no text at once (`quiet`: the special ones and the
    lone space) get a logit of zero, so that they are next to never drawn and each token makes one chunk.
    """
    from mlx import core as mx
    from mlx.utils import tree_flatten

    mx.random.seed(0)
    # Gaussian logits of standard deviation s leave an entropy of about log(vocabulary) - s**2 / 2.
    spread = math.sqrt(2 * (math.log(vocabulary) - _ENTROPY))
    for name, array in tree_flatten(model.parameters()):
        if array.ndim > 1:
            scale = spread if "lm_head." in name else 1.0
            inputs = array.size // array.shape[0]
            array = mx.random.normal(array.shape, dtype) * (scale / math.sqrt(inputs))
        if "lm_head." in name:
            array[mx.array(quiet)] = 0.0
        array = array.astype(dtype)
        mx.eval(array)
        model.load_weights([(name, array)], strict=False)


def qwen3_config(size: Size, vocabulary: int) -> dict[str, Any]:
    return {
        "model_type": "qwen3",
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "intermediate_size": size.intermediate,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_dim,
        "rms_norm_eps": 1e-6,
        "vocab_size": vocabulary,
        "rope_theta": 1_000_000.0,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": False,
    }


def make_tokenizer(folder: Path, vocabulary: int, template: str = TEMPLATE) -> tuple[list[int], int]:
    """Train and save a byte-level BPE of ASCII text; returns the ids that give no text at once, and that of the end.

    It has a token for each of the markers that the template has.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    markers = [marker for marker in _MARKERS if marker in template]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    # The byte-level names of the space and the line feed, and printable ASCII: no token ends inside a character.
    alphabet = ["Ġ", "Ċ", *map(chr, range(33, 127))]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(markers), special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_corpus(vocabulary), trainer)
    tokenizer.add_tokens(markers)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=_SPECIAL[1], pad_token=_SPECIAL[2])
    fast.chat_template = template
    fast.save_pretrained(folder)
    ids: list[int] = fast.convert_tokens_to_ids([*_SPECIAL, *markers, "Ġ"])
    return ids, ids[1]


def _corpus(words: int) -> list[str]:
    """Lines of invented words, enough of them for a vocabulary of this size."""
    rng = random.Random(0)
    known: set[str] = set()
    while len(known) < words:
        syllables = rng.choice((2, 2, 3, 3, 4))
        known.add("".join(rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiouy") for _ in range(syllables)))
    listed = sorted(known)
    return [" " + " ".join(listed[at : at + 50]) for at in range(0, len(listed), 50)]
