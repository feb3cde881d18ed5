"""Reads a checkpoint's config for the loaders of mlx-lm and mlx-vlm."""

from __future__ import annotations

import copy
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...backends.patches import rebound
from ...types import Json
from .translation import translated, without_unread

if TYPE_CHECKING:
    from mlx import nn

TEXT_PARTS = ("text_config", "llm_config", "thinker_config")
_HEADS = ("num_attention_heads", "n_heads", "n_head", "num_heads")


def text_config(path: Path) -> Json:
    """The config of a model that mlx-lm loads: the argument `model_config` of its loader."""
    import mlx_lm.utils

    config: Json = mlx_lm.utils.load_config(path)
    if config.get("model_file") is not None:
        return translated(config, None)
    _, arguments = mlx_lm.utils._get_classes(config)
    return translated(config, sys.modules[arguments.__module__])


def query_heads(config: Json) -> int:
    """Heads of the text layers' attention; 1 if the config does not say."""
    for part in (config, *(config.get(name) for name in TEXT_PARTS)):
        for key in _HEADS:
            if isinstance(part, dict) and isinstance(heads := part.get(key), int) and heads > 0:
                return heads
    return 1


def encoder_config(path: Path, name: str) -> Json:
    """The config of a model that mlx-vlm's encoder loader loads, by the module that defines it."""
    import mlx_vlm.utils

    return translated(mlx_vlm.utils.load_config(path), importlib.import_module(f"mlx_vlm.models.{name}"))


def load_vision_model(path: Path, **how: Any) -> tuple[nn.Module, Json]:
    """A model of mlx-vlm, whose weights are not read yet, and its config."""
    import mlx_vlm.utils

    said: Json = mlx_vlm.utils.load_config(path, **how)
    module = None if said.get("model_file") is not None else mlx_vlm.utils.get_model_and_args(said)[0]
    config = translated(said, module)
    read = config if module is None else without_unread(config, module)
    # Its loader reads the file itself, and takes no other config.
    scope = {**vars(mlx_vlm.utils), "load_config": lambda path, **how: copy.deepcopy(read)}
    return rebound(mlx_vlm.utils.load_model, scope)(path, lazy=True, **how), config
