"""Reads a checkpoint's config for the loaders of mlx-lm and mlx-vlm."""

from __future__ import annotations

import copy
import importlib
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...backends.patches import rebound, with_names
from ...types import Json
from ..checkpoint.tensor_names import fitted, has_head, laid_out, with_head
from ..upstream_faults import corrected
from ..vision.faults import FAULTS
from .translation import argument_fields, translated, without_unread

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
    from mlx.utils import tree_flatten

    said: Json = mlx_vlm.utils.load_config(path, **how)
    module = None if said.get("model_file") is not None else mlx_vlm.utils.get_model_and_args(said)[0]
    config = translated(said, module)
    if module is not None:
        config = with_head(config, lambda part: "tie_word_embeddings" in argument_fields(module, part), has_head(path))
    read = config if module is None else without_unread(config, module)
    load_weights = mlx_vlm.utils.load_model_weights

    def load_fitted(model: nn.Module, config: Json, weights: dict[str, Any], *args: Any, **how: Any) -> nn.Module:
        known = dict(tree_flatten(model.parameters()))
        made: nn.Module = load_weights(model, config, fitted(known, weights), *args, **how)
        return made

    classes = mlx_vlm.utils.get_model_and_args

    def mended(*args: Any, **how: Any) -> tuple[Any, str]:
        module, name = classes(*args, **how)
        return with_names(module, Model=corrected(module.Model, read, FAULTS)), name

    # Its loader reads the files itself, and takes no other config.
    scope = {**vars(mlx_vlm.utils), "load_config": lambda path, **how: copy.deepcopy(read)}
    scope |= {"load_model_weights": load_fitted, "get_model_and_args": mended}
    upstream = mlx_vlm.utils.sanitize_weights

    def sanitize(part: Any, weights: dict[str, Any], config: Any = None) -> dict[str, Any]:
        made: dict[str, Any] = upstream(part, weights if config is not None else laid_out(weights, read), config)
        return made

    scope["sanitize_weights"] = sanitize
    return rebound(mlx_vlm.utils.load_model, scope)(path, lazy=True, **how), config
