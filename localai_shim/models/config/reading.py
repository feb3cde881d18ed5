"""Reads a checkpoint's config for the loaders of mlx-lm and mlx-vlm."""

from __future__ import annotations

import copy
import importlib
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...backends.patches import rebound
from ...types import Json
from ..faults.table import corrected
from .translation import translated, without_unread

if TYPE_CHECKING:
    from mlx import nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper

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


def load_text_model(path: str, **how: Any) -> tuple[nn.Module, TokenizerWrapper, Json]:
    """A model of mlx-lm whose faults are mended, its tokenizer and its config."""
    import mlx_lm.utils

    def classes(config: Json) -> tuple[Any, Any]:
        model, arguments = mlx_lm.utils._get_classes(config)
        return corrected(model, config), arguments

    read = partial(mlx_lm.utils.load_model, get_model_classes=classes)  # its loader passes no classes on
    loaded: tuple[nn.Module, TokenizerWrapper, Json] = rebound(
        mlx_lm.utils.load, {**vars(mlx_lm.utils), "load_model": read}
    )(path, return_config=True, **how)
    return loaded


def query_heads(config: Json) -> int:
    """Maximum number of query heads of a text layer; 1 if the config does not say."""
    inner = next((config[name] for name in TEXT_PARTS if isinstance(config.get(name), dict)), None)
    if inner is not None and (found := query_heads(inner)) > 1:
        return found
    said = next((config[key] for key in _HEADS if config.get(key)), 1)
    heads = said if isinstance(said, list) else [said]
    return max((each for each in heads if isinstance(each, int)), default=1)


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
