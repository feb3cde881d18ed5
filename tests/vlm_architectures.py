"""Tiny language models with random weights of every family that mlx-vlm defines, made in memory through its classes."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_map

from tests.architectures import _COMMON, _SPECIAL

ABSENT = object()
_MROPE = {"type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2], "partial_rotary_factor": 1.0}
_CHANGES: dict[str, dict[str, Any]] = {
    "gemma3": {"num_hidden_layers": 6, "sliding_window_pattern": 2, "query_pre_attn_scalar": 16},
    "qwen2_vl": {"rope_scaling": _MROPE},
    "qwen3_5": {"rope_parameters": _MROPE},
    "llava": {"model_type": "llama"},
}
_OUTER: dict[str, dict[str, Any]] = {}
_SHARED = ("vocab_size", "hidden_size")
_TOWER: dict[str, Any] = {"model_type": "", "hidden_size": 32, "spatial_merge_size": 2}
_BY_TYPE = {"<class 'str'>": "", "<class 'bool'>": False, "<class 'float'>": 1.0}
_INSIDE = {}


def _found(name: str, what: str) -> Any:
    """A class of a family's, from whichever of its modules has it."""
    for module in ("", ".language", ".config"):
        try:
            found = getattr(importlib.import_module(f"mlx_vlm.models.{name}{module}"), what, None)
        except ModuleNotFoundError:
            continue
        if found is not None:
            return found
    raise LookupError(f"{name} has no {what}")


def _beside(name: str, part: str) -> Any:
    """The config of a tower, which is not built."""
    try:
        return _made(_found(name, {"vision_config": "VisionConfig", "audio_config": "AudioConfig"}[part]), _TOWER)
    except LookupError:
        return None


def families() -> list[str]:
    """The modules of mlx-vlm that define a language model."""
    import mlx_vlm.models

    folder = Path(mlx_vlm.models.__path__[0])
    return sorted(f.parent.name for f in folder.glob("*/__init__.py") if "Model" in f.read_text(encoding="utf-8"))


def _made(cls: Any, values: dict[str, Any]) -> Any:
    """A config of these values: its class's defaults where they say nothing, something small where it has none."""
    given = {}
    for field in dataclasses.fields(cls):
        if field.name in values:
            given[field.name] = values[field.name]
        elif field.default is field.default_factory is dataclasses.MISSING:
            given[field.name] = "" if field.name == "model_type" else _BY_TYPE.get(str(field.type), 1)
    return cls(**given)


def make(name: str, **changes: Any) -> Any:
    language = _found(name, "LanguageModel")
    values = {
        **_COMMON,
        **_SPECIAL.get(_INSIDE.get(name, name), {}),
        "model_type": name,
        **_CHANGES.get(name, {}),
        **changes,
    }
    values = {key: value for key, value in values.items() if value is not ABSENT}
    config = _found(name, "ModelConfig")
    inside = {f.name for f in dataclasses.fields(config)} & {"text_config", "vision_config", "audio_config"}
    if "text_config" in inside:
        its = _made(_found(name, "TextConfig"), values)
        parts = {part: its if part == "text_config" else _beside(name, part) for part in inside}
        outer = _made(
            config,
            {**{k: v for k, v in values.items() if k in _SHARED}, **_OUTER.get(name, {}), **parts, "model_type": name},
        )
    else:
        its = outer = config.from_dict(values)
    takes = list(inspect.signature(language.__init__).parameters)[1:]
    mx.random.seed(0)
    model = language(its, outer) if len(takes) == 2 and takes[1] in ("config", "model_config") else language(its)
    numbers = np.random.default_rng(0)

    def random(array: Any) -> Any:
        if not mx.issubdtype(array.dtype, mx.floating):
            return array
        drawn = mx.array(numbers.standard_normal(array.shape, dtype=np.float32))
        return (0.15 * drawn if array.ndim > 1 else array + 0.05 * drawn).astype(array.dtype)

    model.update(tree_map(random, model.parameters()))
    model.eval()
    mx.eval(model.parameters())
    return Language(model)


class Language(nn.Module):
    """A language model of mlx-vlm, called as mlx-lm's are."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.language_model = model
        self._positions = "rope_deltas" in inspect.getsource(type(model))

    def make_cache(self) -> list[Any]:
        from mlx_vlm.models.cache import make_prompt_cache

        return make_prompt_cache(self.language_model)

    @property
    def layers(self) -> Any:
        return self.language_model.layers

    def __call__(self, tokens: Any, cache: Any = None) -> Any:
        extra = {"position_ids": _positions(tokens, cache)} if self._positions else {}
        return self.language_model(tokens, cache=cache, **extra).logits


def _positions(tokens: Any, cache: list[Any]) -> Any:
    """`[3, rows, tokens]`: where text stands, the same on each axis."""
    offset = next(layer.offset for layer in cache if hasattr(layer, "offset"))
    starts = mx.array(offset).reshape(-1, 1)
    return mx.broadcast_to(starts + mx.arange(tokens.shape[1]), (3, *tokens.shape))
