"""Granite 4 Vision, whose layers add features of images: mlx-vlm's code takes those of whole prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.patches import class_like
from ...types import Json

if TYPE_CHECKING:
    from mlx import nn


def add_by_tokens(model: nn.Module, config: Json) -> None:
    """Take and return features of an image's tokens alone, as Qwen3-VL's code does."""
    for part, method, call in (
        (model, "get_input_embeddings", _embeddings),
        (model.language_model, "__call__", _run),
    ):
        upstream = getattr(type(part), method)
        part.__class__ = class_like(type(part), {method: call, f"upstream_{method.strip('_')}": upstream})


def _embeddings(self: Any, *args: Any, **kwargs: Any) -> Any:
    import mlx.core as mx

    made = self.upstream_get_input_embeddings(*args, **kwargs)
    if made.deepstack_visual_embeds is not None:
        places = mx.array(np.flatnonzero(np.array(made.visual_pos_masks[0])))
        made.deepstack_visual_embeds = [layer[places] for layer in made.deepstack_visual_embeds]
    return made


def _run(self: Any, inputs: Any, *args: Any, cache: Any = None, **kwargs: Any) -> Any:
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
