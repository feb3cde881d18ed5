"""Files of a checkpoint's folder, and what is read of them."""

from __future__ import annotations

import importlib.metadata
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..options import LoadOptions
from ..types import Json

if TYPE_CHECKING:
    from mlx import nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper

_CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "seq_length",
    "n_ctx",
    "model_max_length",
)
version = cache(importlib.metadata.version)  # which parses a file
_UNLIMITED = 10**9  # transformers' stand-in for "not said" is far above this


class Checkpoint(NamedTuple):
    """Contents of a checkpoint that was read, for the model that it becomes; `name` is that of `response.model`."""

    name: str
    model: nn.Module
    tokenizer: TokenizerWrapper
    config: Json
    path: Path
    options: LoadOptions


def read_json(path: Path) -> Json:
    """A file's object; empty where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def context_length(config: Json, tokenizer: TokenizerWrapper | None) -> int | None:
    """Most tokens of a row, as its config or its tokenizer says; None where they do not."""
    for part in (config, config.get("text_config") or {}):
        for key in _CONTEXT_KEYS:
            value = part.get(key)
            if isinstance(value, int) and 0 < value < _UNLIMITED:
                return value
    value = getattr(tokenizer, "model_max_length", None)
    return int(value) if isinstance(value, int | float) and 0 < value < _UNLIMITED else None
