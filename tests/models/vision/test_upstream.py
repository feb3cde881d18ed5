"""What mlx-vlm does, and adapters/vision*.py were written for: where one of these fails, look there."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from PIL import Image

from localai_shim.models.vision.model import on_device
from localai_shim.models.vision.threaded_processor import without_mlx
from tests import inside
from tests.models.vision.seeing import load, poison
from tests.vision import FAMILIES, ID, picture, tiny_vision
from tests.vision_others import shrunk


def processor_of(kind: str) -> Any:
    import mlx_vlm.utils

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mlx_vlm.utils.load_processor(tiny_vision(kind), add_detokenizer=False, trust_remote_code=False)


def shown(height: int = 60, width: int = 80) -> Image.Image:
    return Image.fromarray(picture(height, width).data)


def test_upstream_s_patch_of_auto_processor_trusts_a_checkpoint_unless_told_not_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mlx_vlm.models.base import install_auto_processor_patch
    from transformers import AutoProcessor

    asked: list[object] = []

    class Recording:
        @classmethod
        def from_pretrained(cls, path: object, **options: object) -> str:
            asked.append(options["trust_remote_code"])
            return "made"

    folder = str(tiny_vision("llava"))
    monkeypatch.setattr(AutoProcessor, "from_pretrained", AutoProcessor.from_pretrained)
    install_auto_processor_patch("llava", Recording)
    assert AutoProcessor.from_pretrained(folder) == "made"
    AutoProcessor.from_pretrained(folder, trust_remote_code=False)
    assert asked == [True, False]


@pytest.mark.parametrize("kind", ["qwen2_vl", "internvl_chat"])
def test_processors_make_arrays_of_mlx(kind: str) -> None:
    """On whatever thread they run."""
    load(kind)
    processor, text = processor_of(kind), {"qwen2_vl": "<|image_pad|>", "internvl_chat": "<image>"}[kind]
    assert isinstance(processor(images=[shown()], text=[text])["pixel_values"], mx.array)
    kept = type(processor)
    numpy = without_mlx(processor)
    assert isinstance(numpy, kept) and type(numpy) is not kept
    made = numpy(images=[shown()], text=[text], return_tensors="np")["pixel_values"]
    assert isinstance(made, np.ndarray)
    assert getattr(sys.modules[kept.__module__], "mx", mx) is mx
    again = processor_of(kind)
    assert isinstance(again(images=[shown()], text=[text])["pixel_values"], mx.array)


@pytest.mark.filterwarnings("ignore:.*getdata:DeprecationWarning")  # which theirs calls
@pytest.mark.parametrize(("kind", "text"), [("internvl_chat", "<image>"), ("kimi_vl", "<|media_pad|>")])
def test_numpy_computes_what_mlx_would(kind: str, text: str) -> None:
    load(kind)
    processor = processor_of(kind)
    theirs = np.array(processor(images=[shown()], text=[text])["pixel_values"])
    ours = without_mlx(processor)(images=[shown()], text=[text], return_tensors="np")["pixel_values"]
    assert ours.dtype == theirs.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_processor_of_llava_takes_no_padding() -> None:
    """mlx-vlm's `prepare_inputs` asks for it."""
    load("llava")
    with pytest.raises(TypeError, match="padding"):
        processor_of("llava")(images=[shown()], text=["<image>"], padding=True)


def test_embedding_a_prompt_leaves_state_on_some_models() -> None:
    model = load("glm4v")
    poison(model)
    ids = mx.array([[1, 2, 3]])
    inside.network(model).get_input_embeddings(ids, None, mask=mx.ones_like(ids))
    assert model._language._position_ids is None
    poison(model)
    model._embeddings(ids)
    assert model._language._position_ids == "poison"


def test_paligemma_takes_the_first_tokens_for_those_of_its_image() -> None:
    """So its template has images first."""
    model = load("paligemma")
    item = model.text.process(picture(56, 56))
    rows = model.embed(item).rows
    tokens = [ID["<bos>"], 65, *item.tokens, 66]
    ids = mx.array([tokens])
    pixels = on_device(item.inputs["pixel_values"])
    whole = inside.network(model).get_input_embeddings(ids, pixels, mask=mx.ones_like(ids)).inputs_embeds[0]
    np.testing.assert_array_equal(np.array(whole[2]), np.array(rows[2]))  # where the first row should be


def test_placeholders_of_any_text_are_taken_for_images() -> None:
    """What a user spells has to be cut before a processor, or a template's placeholder, could see it."""
    load("qwen2_vl")
    with pytest.raises((IndexError, StopIteration)):
        processor_of("qwen2_vl")(images=[shown()], text=["<|image_pad|> and <|image_pad|>"])


def test_gemma3n_embeds_a_prompt_without_the_factor_of_its_tokens() -> None:
    """So prompts with sounds get it from `VisionModel`, as those of text do from its language model."""
    with shrunk("gemma3n") as family:
        FAMILIES["gemma3n"] = family
        try:
            model = load("gemma3n")
        finally:
            del FAMILIES["gemma3n"]
    ids = mx.array([[65, 66, 67]])
    made = inside.network(model).get_input_embeddings(ids, None).inputs_embeds
    logits = [
        model._language(ids, **more).logits for more in ({}, {"inputs_embeds": made}, {"inputs_embeds": made * 32**0.5})
    ]
    assert not np.allclose(logits[0], logits[1], atol=1e-3)
    np.testing.assert_allclose(logits[0], logits[2], atol=1e-4)
