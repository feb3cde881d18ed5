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
from ..checkpoint.extra_tensors import without_extra
from ..checkpoint.layer_bits import with_layers_names
from ..faults.table import corrected
from .translation import translated, without_unread

if TYPE_CHECKING:
    import mlx.core as mx
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


def load_text_model(path: Path, **how: Any) -> tuple[nn.Module, TokenizerWrapper, Json]:
    """A model of mlx-lm, whose weights are not read yet, its tokenizer, and its config."""
    import mlx_lm.utils

    def classes(config: Json) -> tuple[Any, type]:
        upstream, arguments = mlx_lm.utils._get_classes(config)
        kind = corrected(upstream, config)

        def make(arguments: Any) -> nn.Module:
            model: nn.Module = kind(arguments)

            def load_weights(weights: list[tuple[str, mx.array]], strict: bool = True) -> nn.Module:
                vars(model).pop("load_weights", None)
                return model.load_weights(list(without_extra(_tensors(model), dict(weights), config).items()), strict)

            model.load_weights = load_weights
            return model

        return make, arguments

    load_model = partial(mlx_lm.utils.load_model, get_model_classes=classes)
    load = rebound(mlx_lm.utils.load, {**vars(mlx_lm.utils), "load_model": load_model})
    loaded: tuple[nn.Module, TokenizerWrapper, Json]
    loaded = load(str(path), model_config=text_config(path), lazy=True, return_config=True, **how)
    return loaded


def _tensors(model: nn.Module) -> set[str]:
    from mlx.utils import tree_flatten

    return {name for name, _ in tree_flatten(model.parameters())}


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
    raw: dict[str, mx.array] = {}
    own = vars(mlx_vlm.utils)

    def load_file(file: str) -> dict[str, mx.array]:
        found: dict[str, mx.array] = own["_load_safetensors"](file)
        raw.update(found)
        return found

    def load_weights(model: nn.Module, config: Json, weights: dict[str, mx.array], *more: Any, **how: Any) -> nn.Module:
        if isinstance(bits := config.get("quantization"), dict):
            paths = (path for path, _ in model.named_modules())
            names = {alias: path for path in paths for alias in own["_quantization_path_aliases"](path, model)}
            config = {**config, "quantization": with_layers_names(bits, names, raw, weights)}
        raw.clear()
        needed = without_extra(_tensors(model), weights, config)
        loaded: nn.Module = own["load_model_weights"](model, config, needed, *more, **how)
        return loaded

    # Its loader reads the file itself, and takes no other config.
    reading = {"load_config": lambda path, **how: copy.deepcopy(read), "_load_safetensors": load_file}
    scope = {**own, **reading, "load_model_weights": load_weights}
    return rebound(mlx_vlm.utils.load_model, scope)(path, lazy=True, **how), config
