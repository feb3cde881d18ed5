"""A real model that has habits: after each token it wants to say a certain other one, whatever came before that."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.endpoints.scripting import marked_model

WISH = 30.0
"""Logit of a token that the model wants to say; those of all others are near 0."""


WORDS = ("assistant", "analysis", "final", "self", "user", "think", "response")
"""Words that are one token to the model, as they are to those that write them in headers."""


def habitual_model(template: str, *wanted: str, otherwise: Sequence[str] = (), markers: Sequence[str]) -> Path:
    """The folder of a model that goes on as texts do, in which each token is always followed by the same one.

    Args:
        template: of its chats.
        wanted: the texts.
        otherwise: texts that it goes on as where it may not say what it wants to.
        markers: special tokens.
    """
    import mlx.core as mx
    from transformers import AutoTokenizer

    folder = Path(tempfile.mkdtemp(prefix="localai_shim-habitual-")) / "model"
    shutil.copytree(marked_model(template, *markers, words=WORDS), folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    weights: Any = mx.load(str(folder / "model.safetensors"))
    size, width = weights["model.embed_tokens.weight"].shape
    embeddings, head = mx.zeros((size, width)), mx.zeros((size, width))
    places: dict[int, int] = {}  # of tokens in the embedding
    for texts, wish in ((otherwise, WISH / 2), (wanted, WISH)):
        for token, after in _habits(tokenizer, texts).items():
            place = places.setdefault(token, len(places))
            assert place < width - 1
            embeddings[token, place] = 1.0
            head[after, place] = wish / width**0.5  # the last norm makes it the square root of the width
    embeddings[:, width - 1] = 1e-3  # of the tokens that nothing follows
    for name in weights:
        if name.endswith(("o_proj.weight", "down_proj.weight")):  # no layer adds anything
            weights[name] = mx.zeros(weights[name].shape)
    weights["model.norm.weight"] = mx.ones((width,))
    weights["model.embed_tokens.weight"], weights["lm_head.weight"] = embeddings, head
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


def _habits(tokenizer: Any, texts: Sequence[str]) -> dict[int, int]:
    follows: dict[int, int] = {}
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False)
        for token, after in itertools.pairwise(ids):
            assert follows.setdefault(token, after) == after, f"{tokenizer.decode([token])!r} in {text!r}"
    return follows
