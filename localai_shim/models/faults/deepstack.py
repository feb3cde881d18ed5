"""Models whose layers add features of images, of which mlx-vlm's code takes those of a whole prompt.

They get and return those of an image's tokens alone, as Qwen3-VL's code does: one array per layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.patches import class_like
from ...types import Json

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn
    from mlx_vlm.models.base import InputEmbeddingsFeatures, LanguageModelOutput
    from mlx_vlm.models.cache import KVCache


def add_to_granite(model: nn.Module, config: Json) -> None:
    _mend(model, lambda features: list(features), _run_granite)


def add_to_omni(model: nn.Module, config: Json) -> None:
    _mend(model, lambda features: list(features[0].swapaxes(0, 1)), _run_omni)


def _mend(
    model: nn.Module, by_layer: Callable[[mx.array], list[mx.array]], run: Callable[..., LanguageModelOutput]
) -> None:
    import mlx.core as mx

    def get_input_embeddings(self: nn.Module, *args: object, **kwargs: object) -> InputEmbeddingsFeatures:
        made = upstream(self, *args, **kwargs)
        features, seen = made.deepstack_visual_embeds, made.visual_pos_masks
        made.deepstack_visual_embeds = None
        if features is not None and seen is not None:
            places = mx.array(np.flatnonzero(np.array(seen[0])))
            made.deepstack_visual_embeds = [layer[places] for layer in by_layer(features)]
        return made

    upstream, language = type(model).get_input_embeddings, model.language_model
    model.__class__ = class_like(type(model), {"get_input_embeddings": get_input_embeddings})
    language.__class__ = class_like(type(language), {"__call__": run, "upstream_call": type(language).__call__})


def _run_omni(self: nn.Module, inputs: mx.array, *args: object, **kwargs: Any) -> LanguageModelOutput:
    """Features have the axes rows, tokens, layers, and dimensions; those of text are zeros."""
    import mlx.core as mx

    features = kwargs.pop("deepstack_visual_embeds", None)
    if features is not None:
        places = mx.array(np.flatnonzero(np.array(kwargs["visual_pos_masks"][0])))
        whole = mx.zeros((1, inputs.shape[1], len(features), features[0].shape[-1]), features[0].dtype)
        whole[0, places] = mx.stack(features, axis=1)
        kwargs["deepstack_visual_embeds"] = whole
    return self.upstream_call(inputs, *args, **kwargs)


def _run_granite(
    self: nn.Module, inputs: mx.array, *args: object, cache: list[KVCache] | None = None, **kwargs: Any
) -> LanguageModelOutput:
    """Features begin with the prompt's first token."""
    import mlx.core as mx

    features, seen = kwargs.pop("deepstack_visual_embeds", None), kwargs.pop("visual_pos_masks", None)
    if features is not None:
        start, count = 0 if cache is None else int(cache[0].offset), inputs.shape[1]
        places = mx.array(start + np.flatnonzero(np.array(seen[0])))
        whole = mx.zeros((len(features), start + count, features[0].shape[-1]), features[0].dtype)
        whole[:, places] = mx.stack(features)
        mask = mx.zeros((1, start + count), mx.bool_)
        mask[:, places] = True
        kwargs |= {"deepstack_visual_embeds": whole, "visual_pos_masks": mask}
    return self.upstream_call(inputs, *args, cache=cache, **kwargs)
