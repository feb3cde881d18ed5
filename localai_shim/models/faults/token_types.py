"""Models that compute tokens of images in another way, of which mlx-vlm's code does not say which they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...backends.patches import class_like
from ...types import Json

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn
    from mlx_vlm.models.base import LanguageModelOutput

_ERNIE = tuple(f"{kind}{part}_token_id" for kind in ("image", "video") for part in ("", "_start", "_end"))


def choose_experts(model: nn.Module, config: Json) -> None:
    """ERNIE has other experts for images and videos, and for the tokens at their edges."""
    import mlx.core as mx

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
