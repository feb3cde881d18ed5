"""Models whose vision encoder is in a file next to them, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
from gguf import GGMLQuantizationType as Type

from localai_shim.models.loading import load_model
from localai_shim.models.vision.model import VisionModel
from localai_shim.options import LoadOptions
from tests.models.gguf import writing
from tests.models.gguf.checkpoints import PLACES
from tests.models.gguf.converting import unpack
from tests.models.gguf.image_families import SEEING
from tests.models.gguf.pictured import image_prompt

NAME = "gemma3-vision"


def unpack_both(name: str, folder: Path) -> Path:
    """A model, with its encoder in the same folder."""
    unpack(f"mmproj-{name}", folder)
    return unpack(name, folder)


def load(file: Path, **options: Any) -> VisionModel:
    model = load_model(str(file), LoadOptions(**options))
    assert isinstance(model, VisionModel)
    return model


def logits(model: VisionModel, name: str = NAME) -> np.ndarray:
    """Logits for a family's prompt with an image."""
    ids = image_prompt(name, model.tokenizer.get_vocab())
    inputs = {key: mx.array(value) for key, value in SEEING[name].inputs.items()}
    if SEEING[name].kind == "MiniCPMV4_6":
        inputs = in_a_row(inputs, ids, model)
    made = model._embeddings(mx.array([ids]), inputs.pop("pixel_values"), **inputs)
    names = ("position_ids", "visual_pos_masks", "deepstack_visual_embeds", "per_layer_inputs")
    more = {each: value for each in names if (value := getattr(made, each)) is not None}
    if SEEING[name].kind == "Glm4vMoe":  # it keeps them for its next call
        more["position_ids"] = model._language.get_rope_index(mx.array([ids]), inputs["image_grid_thw"])[0]
    if SEEING[name].kind.startswith("Gemma4"):
        more["mm_token_type_ids"] = (mx.array([ids]) == model.tokenizer.convert_tokens_to_ids("<|image|>")) * 1
    return np.array(model._language(mx.array([ids]), inputs_embeds=made.inputs_embeds, **more).logits[0, PLACES])


def in_a_row(inputs: dict[str, Any], ids: list[int], model: VisionModel) -> dict[str, Any]:
    """Parts of an image, one after another, with their places as mlx-vlm's MiniCPM-V takes them."""
    names = model.tokenizer.convert_tokens_to_ids(["<image>", "<slice>", "</image>", "</slice>"])
    starts, stops = ([i for i, each in enumerate(ids) if each in part] for part in (names[:2], names[2:]))
    places = [[start + 1, stop] for start, stop in zip(starts, stops, strict=True)]
    return {
        "pixel_values": inputs["pixel_values"],
        "tgt_sizes": inputs["target_sizes"][None],
        "image_bound": mx.array([places]),
    }


def write_encoder(path: Path, changes: dict[str, Any]) -> None:
    """Write an encoder that has little but its kind."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_string("clip.projector_type", changes.get("clip.projector_type", "gemma3"))
    writer.add_uint32("clip.vision.projection_dim", changes.get("clip.vision.projection_dim", 32))
    writer.add_tensor("v.patch_embd.weight", np.ones((4, 4), np.float32))
    writing.close(writer)


def rewrite_encoder(
    file: Path,
    change: Callable[[str, np.ndarray], tuple[np.ndarray, Type] | None] = lambda *_: None,
    rename: Callable[[str], str] = str,
    metadata: Mapping[str, Any] = MappingProxyType({}),
    more: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> None:
    """Write the encoder of a model again; see `rewrite`."""
    encoder = file.with_name(f"mmproj-{file.name}")
    new = writing.rewrite(encoder, encoder.with_suffix(".new"), change, rename, metadata, more)
    new.replace(encoder)
