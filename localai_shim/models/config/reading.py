"""Reads a checkpoint's config for the loaders of mlx-lm and mlx-vlm."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from ...backends.patches import rebound, with_names
from ...types import Json
from ..checkpoint.quantization import with_layers_names
from ..checkpoint.tensor_names import fitted, has_head, laid_out, with_head, without_extra
from ..faults.table import corrected
from ..faults.vision import FAULTS
from .translation import argument_fields, translated, without_unread

if TYPE_CHECKING:
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


def load_text_model(path: Path, **how: object) -> tuple[nn.Module, TokenizerWrapper, Json]:
    """A model of mlx-lm, whose weights are not read yet, its tokenizer, and its config."""
    import mlx_lm.utils

    def classes(config: Json) -> tuple[Callable[[object], nn.Module], type]:
        upstream, arguments = mlx_lm.utils._get_classes(config)
        kind = corrected(upstream, config)

        def make(arguments: object) -> nn.Module:
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


def load_vision_model(path: Path, **how: object) -> tuple[nn.Module, Json]:
    """A model of mlx-vlm whose faults are mended, whose weights are not read yet, and its config."""
    import mlx_vlm.utils

    said: Json = mlx_vlm.utils.load_config(path, **how)
    module = None if said.get("model_file") is not None else mlx_vlm.utils.get_model_and_args(said)[0]
    config = translated(said, module)
    if module is not None:
        config = with_head(config, lambda part: "tie_word_embeddings" in argument_fields(module, part), has_head(path))
    read = config if module is None else without_unread(config, module)
    own = vars(mlx_vlm.utils)

    def find_classes(*args: object, **how: object) -> tuple[ModuleType, str]:
        module, name = own["get_model_and_args"](*args, **how)
        return with_names(module, Model=corrected(module.Model, read, FAULTS)), name

    # Its loader reads the files itself, and takes no other config.
    scope = {**own, **_reading_weights(own, read), "get_model_and_args": find_classes}
    scope["load_config"] = lambda path, **how: copy.deepcopy(read)
    return rebound(mlx_vlm.utils.load_model, scope)(path, lazy=True, **how), config


def _reading_weights(own: Json, read: Json) -> Json:
    """Functions of mlx-vlm's loader that read weights under the names of checkpoints and of transformers 5.

    Args:
        own: the loader's own, by name.
        read: the model's config.
    """
    raw: dict[str, mx.array] = {}

    def load_file(file: str) -> dict[str, mx.array]:
        found: dict[str, mx.array] = own["_load_safetensors"](file)
        raw.update(found)
        return found

    def sanitize(part: object, weights: dict[str, mx.array], config: object = None) -> dict[str, mx.array]:
        if config is None:  # of the whole model
            weights = laid_out(weights, read)
        made: dict[str, mx.array] = own["sanitize_weights"](part, weights, config)
        return made

    def load_weights(
        model: nn.Module, config: Json, weights: dict[str, mx.array], *more: object, **how: object
    ) -> nn.Module:
        known = _tensors(model)
        weights = fitted(known, weights)
        if isinstance(bits := config.get("quantization"), dict):
            paths = (path for path, _ in model.named_modules())
            names = {alias: path for path in paths for alias in own["_quantization_path_aliases"](path, model)}
            config = {**config, "quantization": with_layers_names(bits, names, raw, weights)}
        raw.clear()
        loaded: nn.Module = own["load_model_weights"](
            model, config, without_extra(known, weights, config), *more, **how
        )
        return loaded

    return {"_load_safetensors": load_file, "sanitize_weights": sanitize, "load_model_weights": load_weights}
