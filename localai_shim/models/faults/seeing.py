"""Mends of layers of models that see: functions of a model that was made, and its config.

mlx-vlm's code of some models takes a whole prompt's features of images. The layers here get and return the features of
an image's tokens alone, as in its code of Qwen3-VL: one array per layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
from mlx import nn

from ...backends.patches import Mask, class_like
from ...types import Json
from ..attention.blocks import by_head

if TYPE_CHECKING:
    from mlx_vlm.models.base import InputEmbeddingsFeatures, LanguageModelOutput
    from mlx_vlm.models.cache import KVCache

Mend = Callable[[nn.Module, Json], None]


def calling(name: str, call: Callable[..., object], **members: object) -> Mend:
    """Give the layers of a class another `__call__`."""

    def mend(model: nn.Module, config: Json) -> None:
        for layer in model.modules():
            if type(layer).__name__ == name:
                layer.__class__ = _called(type(layer), call, **members)

    return mend


def _called(kind: type, call: Callable[..., object], **members: object) -> type:
    from ...backends.patches import class_like

    return class_like(kind, {"__call__": call, "upstream_call": kind.__call__, **members})


class _ImageMasks:
    """Masks of layers that see all of an image that a token belongs to."""

    def __init__(self, types: mx.array, window: int) -> None:
        kinds = np.array(types[0]) == 1
        starts = kinds & ~np.concatenate([[False], kinds[:-1]])
        images = np.where(kinds, np.cumsum(starts), 0)
        same = (images[:, None] == images) & kinds
        places = np.arange(len(kinds))
        causal = places[:, None] >= places
        self.full = mx.array(causal | same)
        self.sliding = mx.array((causal & (places[:, None] - places < window)) | same)


def _gemma3(self: nn.Module, inputs: mx.array, *args: object, **kwargs: Any) -> LanguageModelOutput:
    """Tokens of an image see each other, in both directions."""
    types = kwargs.pop("mm_token_type_ids", None)
    types = kwargs.pop("token_type_ids", None) if types is None else types
    if types is not None and inputs.shape[1] == types.shape[1] > 1 and bool((types == 1).any()):
        kwargs["mask"] = _ImageMasks(types, self.config.sliding_window)
    return self.upstream_call(inputs, *args, **kwargs)


def _gemma3_layer(self: nn.Module, x: mx.array, mask: _ImageMasks | Mask = None, cache: object = None) -> mx.array:
    if isinstance(mask, _ImageMasks):
        mask = mask.sliding if self.self_attn.is_sliding else mask.full
    out: mx.array = self.upstream_call(x, mask, cache)
    return out


def see_images_nearby(model: nn.Module, config: Json) -> None:
    """Let only Gemma 4's layers with a window see later tokens of an image, and nothing beyond the window."""
    from ...backends.patches import class_like

    text = model.language_model.model
    kind = type(text)
    text.__class__ = class_like(kind, {"_make_masks": _gemma4_masks, "upstream_masks": kind._make_masks})


def _gemma4_masks(self: nn.Module, h: mx.array, cache: object, types: mx.array | None = None) -> list[Mask]:
    masks: list[Mask] = self.upstream_masks(h, cache, types)
    if types is None:
        return masks
    places = mx.arange(h.shape[1])
    near = places[:, None] - places < self.window_size

    def within(mask: Mask) -> Mask:
        return mask & near if isinstance(mask, mx.array) and mask.shape[-2:] == near.shape else mask

    causal = self.upstream_masks(h, cache, None)
    return [
        within(mask) if layer.layer_type == "sliding_attention" else plain
        for layer, mask, plain in zip(self.layers, masks, causal, strict=True)
    ]


def _in_one_pass(self: nn.Module, *args: object, prefill_kwargs: Json | None = None, **kwargs: object) -> bool:
    """False for a prompt with images, which must run in one pass."""
    types = (prefill_kwargs or {}).get("mm_token_type_ids")
    return types is None or not bool((types == 1).any())


def see_images(model: nn.Module, config: Json) -> None:
    calling("LanguageModel", _gemma3, chunked_prefill_policy=_in_one_pass)(model, config)
    calling("TransformerBlock", _gemma3_layer)(model, config)


def place_from_zero(self: nn.Module, x: mx.array, mask: mx.array | None = None) -> mx.array:
    """Positions of patches are those of as many equal parts as the position table has."""
    patches = self.patch_embedding(x).flatten(1, 2)
    edges = np.arange(1 / self.num_patches, 1.0, 1 / self.num_patches, dtype=np.float32)
    places = np.zeros(patches.shape[:2], int)
    for number, seen in enumerate(np.array(mask)):
        rows, columns = (
            np.digitize(np.minimum(np.arange(count, dtype=np.float32) / count, 1 - 1e-6), edges)
            for count in (seen[:, 0].sum(), seen[0].sum())
        )
        places[number][seen.reshape(-1)] = (rows[:, None] * self.num_patches + columns).reshape(-1)
    placed: mx.array = patches + self.position_embedding(mx.array(places))
    return placed


def gelu(approximation: str, *names: str, kind: str = "") -> Mend:
    """Compute this GELU in layers, or those of a class, that have another one under one of these names."""

    def mend(model: nn.Module, config: Json) -> None:
        for layer in model.modules():
            for name in names if type(layer).__name__ == kind or not kind else ():
                if isinstance(layer.get(name), nn.GELU):
                    layer[name] = nn.GELU(approximation)

    return mend


def last_norm(model: nn.Module, config: Json) -> None:
    """Give Cohere's vision models the features behind the encoder's last norm, which Aya's do not read."""

    def call(self: nn.Module, *args: object, **kwargs: object) -> tuple[object, ...]:
        last, *others, states = self.upstream_call(*args, **kwargs)
        return (last, *others, (*states[:-1], last))

    if config.get("model_type") == "cohere2_vision":
        calling("VisionModel", call)(model, config)


def same_epsilon(model: nn.Module, config: Json) -> None:
    """Give the norms of GLM's layers the epsilon that the config has for all norms of the encoder."""
    tower = model.get("vision_tower")  # a model that is loaded as text has none
    for layer in tower.blocks if tower is not None else ():
        layer.norm1.eps = layer.norm2.eps = model.config.vision_config.rms_norm_eps


def turned_positions(model: nn.Module, config: Json) -> None:
    """Muse Glimmer counts the rows of the position table along an image's width."""
    from ...backends.patches import class_like

    def turned(self: nn.Module, grid: list[list[int]]) -> mx.array:
        positions: mx.array = self.upstream_positions([[frames, width, height] for frames, height, width in grid])
        return positions

    for layer in model.modules():
        if (kind := type(layer)).__name__ == "PatchEmbedder":
            members = {"_position_embeddings": turned, "upstream_positions": kind._position_embeddings}
            layer.__class__ = class_like(kind, members)


def reads_pieces(model: nn.Module, config: Json) -> None:
    """Only images need one pass, which the language model knows by the types of tokens."""
    model.language_model.no_chunked_prefill = False


def blocks_by_head(model: nn.Module, config: Json) -> None:
    for layer in model.modules():
        if type(layer).__name__ == "MiniMaxAttention" and layer.has_sparse_index:
            layer.indexer = by_head(layer.indexer)


def parts_in_a_row(model: nn.Module, config: Json) -> None:
    """Let MiniCPM-V read the parts of an image, whose sizes can differ, from one row of patches."""
    from ...backends.patches import class_like

    def embedded(self: nn.Module, pixels: object, sizes: mx.array, downsample_mode: str | None = None) -> mx.array:
        if isinstance(pixels, mx.array) and pixels.ndim == 4:
            ends = np.cumsum(np.prod(np.array(sizes[0]), axis=1) * pixels.shape[2])[:-1]
            pixels = [mx.split(pixels[0], ends.tolist(), axis=-1)]
        embeddings: mx.array = self.upstream_embedding(pixels, sizes, downsample_mode)
        return embeddings

    kind = type(model)
    members = {"get_vision_embedding": embedded, "upstream_embedding": kind.get_vision_embedding}
    model.__class__ = class_like(kind, members)


def add_to_granite(model: nn.Module, config: Json) -> None:
    _mend(model, lambda features: list(features), _run_granite)


def add_to_omni(model: nn.Module, config: Json) -> None:
    _mend(model, lambda features: list(features[0].swapaxes(0, 1)), _run_omni)


def _mend(
    model: nn.Module, by_layer: Callable[[mx.array], list[mx.array]], run: Callable[..., LanguageModelOutput]
) -> None:
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


_ERNIE = tuple(f"{kind}{part}_token_id" for kind in ("image", "video") for part in ("", "_start", "_end"))


def choose_experts(model: nn.Module, config: Json) -> None:
    """ERNIE has other experts for images and videos, and for the tokens at their edges."""
    ids = mx.array(sorted({getattr(model.config, name) for name in _ERNIE}))

    def call(
        self: nn.Module, inputs: mx.array, inputs_embeds: mx.array | None = None, **kwargs: object
    ) -> LanguageModelOutput:
        if inputs.shape[1] > 1 or inputs_embeds is not None:
            seen = (inputs[..., None] == ids).any(axis=-1)
            if seen.any().item():
                kwargs["token_type_ids"] = seen.astype(mx.int32)
        return upstream(self, inputs, inputs_embeds, **kwargs)

    language = model.language_model
    upstream = type(language).__call__
    language.__class__ = class_like(type(language), {"__call__": call})
