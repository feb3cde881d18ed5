"""Models whose code has something of its own in the way: each generates what `mlx_vlm.generate_step` does alone, by
itself and beside rows of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any
from unittest import mock

import mlx.core as mx
import numpy as np
import pytest
from PIL import Image

from localai_shim.engine.engine import Engine
from localai_shim.media import Media
from localai_shim.models.loading import load_model
from localai_shim.models.text import render
from localai_shim.models.vision.model import VisionModel
from localai_shim.types import GenerationRequest, Prompt
from tests import inside
from tests.engine.harness import GREEDY, Running
from tests.models.vision.seeing import (
    QUESTION,
    TOKENS,
    Step,
    alone,
    compare,
    load,
    pictures,
    poison,
    prepared,
    prompt_of,
)
from tests.vision import FAMILIES, sound, tiny_vision, user
from tests.vision_others import OTHERS, shrunk

Inputs = Callable[[VisionModel, Sequence[Media], Prompt], dict[str, Any]]


@pytest.fixture(scope="module", params=[pytest.param(name, marks=mark) for name, mark in OTHERS.items()])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    with shrunk(request.param) as family:
        FAMILIES[request.param] = family
        try:
            yield request.param
        finally:
            del FAMILIES[request.param]


@pytest.fixture(scope="module")
def model(kind: str) -> VisionModel:
    made = load(kind)
    poison(made)
    return made


def mlx_vlm(model: VisionModel, inputs: dict[str, Any]) -> list[Step]:
    """The tokens of mlx-vlm by itself; of gemma3n, with the factor that it applies to the tokens of an answer, and not
    of a prompt, on a prompt's text, too. What a tower made, and tokens with embeddings of their own, have none."""
    its = inside.network(model)
    if its.config.model_type != "gemma3n":
        return alone(model, inputs)
    embed = its.get_input_embeddings

    def scaled(ids: mx.array, *args: Any, **more: Any) -> Any:
        made = embed(ids, *args, **more)
        text = mx.logical_and(ids < its.embed_vision.vocab_offset, ids != its.config.audio_token_id)
        text = mx.logical_and(text, ids != its.config.image_token_id)
        made.inputs_embeds *= mx.where(text[..., None], made.inputs_embeds.shape[-1] ** 0.5, 1.0)
        return made

    with mock.patch.object(its, "get_input_embeddings", scaled):
        return alone(model, inputs)


def processor(kind: str) -> Any:
    from mlx_vlm.utils import load_processor

    return load_processor(tiny_vision(kind), add_detokenizer=False, trust_remote_code=False)


def shown(media: Sequence[Media]) -> list[Image.Image]:
    return [Image.fromarray(item.data) for item in media]


def of_deepseek(model: VisionModel, media: Sequence[Media], prompt: Prompt) -> dict[str, Any]:
    """It takes several pictures with one text only, and puts a token before it."""
    text = render(model.tokenizer, user(QUESTION, *["image"] * len(media)), {}, None, True)
    made = processor("deepseek_vl_v2")(text=text, images=shown(media))
    sizes, tiles = np.array(made["images_spatial_crop"]), made["images"].shape[1]
    return {
        "input_ids": made["input_ids"][:, 1:],
        "mask": made["attention_mask"][:, 1:],
        "pixel_values": made["images"],
        "images_seq_mask": made["images_seq_mask"][:, 1:],
        # mlx-vlm's own reads as many sizes as there are tiles, whatever stands behind those of the pictures.
        "images_spatial_crop": mx.array(np.pad(sizes, ((0, 0), (0, tiles - sizes.shape[1]), (0, 0)))),
    }


def of_phi3(model: VisionModel, media: Sequence[Media], prompt: Prompt) -> dict[str, Any]:
    """Its images have negative ids; its own processor drops the first token of a text behind one."""
    ids = np.array([prompt.tokens])
    for number, span in enumerate(prompt.media):
        ids[0, span.places] = -1 - number
    made = processor("phi3_v").image_processor(shown(media))
    return {"input_ids": mx.array(ids), "mask": mx.ones(ids.shape, mx.int32), **made}


def of_ernie(model: VisionModel, media: Sequence[Media], prompt: Prompt) -> dict[str, Any]:
    conversation = user(QUESTION)
    conversation[0]["content"] = [*[{"type": "image_url"}] * len(media), *conversation[0]["content"]]
    return prepared("ernie4_5_moe_vl", render(model.tokenizer, conversation, {}, None, True), media)


def of_gemma3n(model: VisionModel, media: Sequence[Media], prompt: Prompt) -> dict[str, Any]:
    return prepared("gemma3n", render(model.tokenizer, user(QUESTION, *["audio"] * len(media)), {}, None, True), media)


def of_gemma3n_pictures(model: VisionModel, media: Sequence[Media], prompt: Prompt) -> dict[str, Any]:
    text = render(model.tokenizer, user(QUESTION, *["image"] * len(media)), {}, None, True)
    return prepared("gemma3n_pictures", text, media)


MLX_VLM: dict[str, Inputs] = {
    "deepseek_vl_v2": of_deepseek,
    "ernie4_5_moe_vl": of_ernie,
    "phi3_v": of_phi3,
    "gemma3n": of_gemma3n,
    "gemma3n_pictures": of_gemma3n_pictures,
}
"""What mlx-vlm's own processors make of all of a prompt at once."""


def given(kind: str, count: int = 1) -> list[Media]:
    return [sound(0.6) for _ in range(count)] if kind == "gemma3n" else pictures(count)


@pytest.mark.parametrize("count", [1, 2])
def test_tokens_and_logits_are_those_of_mlx_vlm_alone(model: VisionModel, kind: str, count: int) -> None:
    media = given(kind, count)
    prompt = prompt_of(model, [model.text.process(item) for item in media])
    compare(model, media, MLX_VLM[kind](model, media, prompt), mlx_vlm)


def test_rows_beside_text_generate_what_they_generate_alone(model: VisionModel, kind: str) -> None:
    media = given(kind)
    item = model.text.process(media[0])
    seen, texts = prompt_of(model, [item]), [prompt_of(model, [], text) for text in ("Hello there", "Say it again")]
    want = [_alone(model, MLX_VLM[kind](model, media, seen))]
    for prompt in texts:
        ids = mx.array([prompt.tokens])
        want.append(_alone(model, {"input_ids": ids, "pixel_values": None, "mask": mx.ones_like(ids)}))
    with closing(Engine(lambda: load_model(str(tiny_vision(kind)), {}))) as engine:
        rows = [
            Running(engine, GenerationRequest(prompt, GREEDY, TOKENS, ignore_eos=True)) for prompt in (texts[0], seen)
        ]
        rows[0].read(1)
        rows.append(Running(engine, GenerationRequest(texts[1], GREEDY, TOKENS, ignore_eos=True)))
        assert [row.finish()[0] for row in rows] == [want[1], want[0], want[2]]
        assert engine.stats().tower_runs == 1


def _alone(model: VisionModel, inputs: dict[str, Any]) -> list[int]:
    return [token for token, _ in mlx_vlm(model, inputs)]
