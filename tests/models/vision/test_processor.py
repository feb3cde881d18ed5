"""What the caller's side makes of media: templates with items in place, what callers spell, details, threads."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from PIL import Image

from localai_shim.media import Media, ProcessedMedia
from localai_shim.models.loading import load_model
from localai_shim.models.vision.model import VisionModel
from localai_shim.models.vision.processor import VisionTokenizer
from localai_shim.prompt.control_tokens import CallerText
from localai_shim.prompt.template import ChatTokenizer
from tests.heartbeat import stays_free
from tests.vision import FAMILIES, ID, TEMPLATE, families, make_model, picture, tiny_vision, user

# Kimi-VL's processor asks Pillow for what it will drop.
pytestmark = pytest.mark.filterwarnings("ignore:Image.Image.getdata:DeprecationWarning")

LONGEST_GAP = 0.05  # seconds
FUNCTION = {"name": "look", "parameters": {"type": "object"}, "description": "<image>"}
TOOL = {"type": "function", "function": FUNCTION}


@pytest.fixture(scope="module", params=families())
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def text(kind: str) -> VisionTokenizer:
    return load(kind)


def load(kind: str) -> VisionTokenizer:
    model = load_model(str(tiny_vision(kind)), {})
    assert isinstance(model, VisionModel)
    return model.text


def said(text: VisionTokenizer, ids: list[int]) -> str:
    return str(text.tokenizer.decode(ids))


def item(text: VisionTokenizer, seed: int = 0) -> ProcessedMedia:
    return text.process(picture(60, 80, seed=seed))


def test_a_processor_makes_no_arrays_of_mlx(text: VisionTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """All MLX work belongs to the engine thread, and processors run on any."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("MLX was asked for an array")

    for name in ("array", "stack", "concatenate", "transpose", "zeros", "eval"):
        monkeypatch.setattr(mx, name, refuse if name != "array" else type("array", (), {"__new__": refuse}))
    made = item(text)
    assert all(isinstance(array, np.ndarray) and not array.flags.writeable for array in made.inputs.values())
    assert made.inputs and 0 < made.digest < 2**63


def test_a_processor_has_no_large_picture_s_pixels_written_out(
    text: VisionTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing pixels out, joining and copying them takes a third of the time."""
    written: list[int] = []
    write = Image.Image.tobytes

    def noting(image: Image.Image, *args: Any) -> bytes:
        written.append(image.width * image.height)
        return write(image, *args)

    monkeypatch.setattr(Image.Image, "tobytes", noting)
    text.process(picture(900, 1200))
    assert all(pixels < 900 * 1200 for pixels in written)


def test_the_expansion_is_tokenised_to_its_tokens(text: VisionTokenizer) -> None:
    made = item(text)
    assert text.encode(made.expansion, add_special_tokens=False) == list(made.tokens)


@pytest.mark.parametrize("kind", ["gemma3", "smolvlm"])
def test_the_expansion_is_its_text_whatever_the_file_s_decoder_makes_of_it(kind: str, tmp_path: Path) -> None:
    """Devstral's has sentencepiece's decoder behind GPT-2's alphabet."""
    folder = shutil.copytree(tiny_vision(kind), tmp_path / kind)
    file = folder / "tokenizer.json"
    decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    file.write_text(json.dumps({**json.loads(file.read_text()), "decoder": decoder}))
    model = load_model(str(folder), {})
    assert isinstance(model, VisionModel)
    assert item(model.text).expansion == item(load(kind)).expansion
    assert said(model.text, model.text.encode("two words\n")) == "two words\n"


def test_threads_may_process_at_once(text: VisionTokenizer) -> None:
    wanted = [item(text, seed).digest for seed in range(4)]
    found: dict[int, int] = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: item(text, n).digest})) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(4)] == wanted


def test_items_stand_where_the_messages_have_them(text: VisionTokenizer, kind: str) -> None:
    images = FAMILIES[kind].images
    items = [item(text, seed) for seed in range(images)]
    parts: list[dict[str, str]] = []
    for i in range(images):
        parts += [{"type": "text", "text": f"({i})"}, {"type": "image"}]
    ids = text.apply_chat_template(
        [{"role": "user", "content": [*parts, {"type": "text", "text": "?"}]}], {}, media=items
    )
    spans = text.spans(ids, items)
    assert [span.media for span in spans] == items
    if kind != "paligemma":  # its images come first
        for i, span in enumerate(spans):
            assert said(text, ids[: span.start]).count("(") == i + 1
    placeholders = {ids[place] for span in spans for place in span.places.tolist()}
    assert len(placeholders) == 1
    assert [at for at, token in enumerate(ids) if token in placeholders] == [
        place for span in spans for place in span.places.tolist()
    ]


def test_what_a_caller_spells_stays_text(text: VisionTokenizer) -> None:
    chat, made = ChatTokenizer(text), item(text)
    spelled = "".join(place.text for place in text._processor.placeholders.values()) + "<image><|image_pad|>"
    caller = CallerText(chat.control_tokens)
    messages = caller.mask_messages(user(spelled, "image"))
    ids = caller.clean(text.apply_chat_template(messages, {}, None, True, caller.restore, [made]))
    [span] = text.spans(ids, [made])
    token = ids[span.start]
    assert [at for at, token_id in enumerate(ids) if token_id == token] == span.places.tolist()
    assert spelled in said(text, ids)


def test_a_placeholder_that_is_no_token_stays_text_without_a_mask() -> None:
    text = load("internvl_chat")
    made = item(text)
    ids = text.apply_chat_template(user("<image>? <image>", "image"), {}, [TOOL], media=[made])
    assert len(text.spans(ids, [made])) == 1
    assert said(text, ids).count("<image>") == 3


def test_tools_stand_in_the_prompt(text: VisionTokenizer, kind: str) -> None:
    if kind == "paligemma":
        pytest.skip("it has no template that knows tools")
    made = item(text)
    plain = {"type": "function", "function": {**FUNCTION, "description": "Looks."}}
    ids = text.apply_chat_template(user("What?", "image"), {}, [plain], media=[made])
    assert '"name": "look"' in said(text, ids)
    assert len(text.spans(ids, [made])) == 1


def test_text_alone_is_rendered_as_for_a_model_of_text(text: VisionTokenizer, kind: str) -> None:
    ids = text.apply_chat_template([{"role": "user", "content": "Hi"}], {})
    assert said(text, ids) == (
        "<bos>Hi\n" if kind == "paligemma" else "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_that_leaves_items_out_is_refused(tmp_path: Any) -> None:
    family = FAMILIES["llava"]
    template = TEMPLATE.replace("IMAGE", "")
    text = made_with(tmp_path, dataclasses.replace(family, template=template))
    made = item(text)
    with pytest.raises(ValueError, match=r"does not support image in these positions; it renders none"):
        text.apply_chat_template(user("?", "image"), {}, media=[made])
    with pytest.raises(ValueError, match="no place for image 1 of 1"):
        text.spans([1, 2, 3], [made])


def test_a_template_of_strings_gets_placeholders_in_place(tmp_path: Any) -> None:
    plain = "{% for m in messages %}{{ m.role }}: {{ m.content + '\\n' }}{% endfor %}"
    text = made_with(tmp_path, dataclasses.replace(FAMILIES["llava"], template=plain))
    items = [item(text, seed) for seed in range(2)]
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}, {"type": "image"}]
    ids = text.apply_chat_template([{"role": "user", "content": parts}], {}, media=items)
    image = "<image>" * (len(ids) - len("user: ab\n"))
    half = image[: len(image) // 2]
    assert said(text, ids) == f"user: a{half}b{half}\n"


def made_with(folder: Any, family: Any) -> VisionTokenizer:
    FAMILIES["other"] = family
    try:
        model = load_model(str(make_model(folder / "other", "other")), {})
    finally:
        del FAMILIES["other"]
    assert isinstance(model, VisionModel)
    return model.text


def test_a_kind_that_the_model_does_not_read_is_refused() -> None:
    with pytest.raises(ValueError, match="does not read audio; it reads image, video"):
        load("qwen2_vl").process(Media("audio", np.zeros(16, np.float32), "x", rate=16000.0))


def test_what_a_processor_refuses_is_a_value_error() -> None:
    """Qwen's refuses pictures that are 200 times as wide as high."""
    with pytest.raises(ValueError, match="refuses this image: absolute aspect ratio"):
        load("qwen3_vl").process(picture(2, 900))


@pytest.mark.parametrize(
    ("kind", "size", "says"),
    [
        ("kimi_vl", (1, 1), "image too small: 1 x 1, minimum 28 x 28"),
        ("kimi_vl", (27, 100), "image too small: 100 x 27, minimum 28 x 28"),
        ("kimi_vl", (28, 20_000), "it is too narrow for its length; cut it"),
        ("pixtral", (10, 20_000), "it is too narrow for its length; cut it"),
    ],
)
def test_what_to_do_about_its_size_is_said(kind: str, size: tuple[int, int], says: str) -> None:
    text = load(kind)
    with pytest.raises(ValueError, match=f"refuses this image: {says}"):
        text.process(picture(*size))
    if kind == "kimi_vl":
        assert text.process(picture(28, 28)).tokens


def wide(kind: str, tmp_path: Any) -> VisionTokenizer:
    """A model that takes more pixels than the tiny ones."""
    family = FAMILIES[kind]
    return made_with(tmp_path, dataclasses.replace(family, pixels={**family.pixels, "max_pixels": 28 * 28 * 600}))


def test_details_change_how_many_tokens_an_image_takes(tmp_path: Any) -> None:
    text = wide("qwen2_vl", tmp_path)
    taken = {detail: len(text.process(picture(784, 1400, detail=detail)).tokens) for detail in details()}
    assert taken["low"] < taken["auto"] == taken["high"] < taken["original"]
    assert taken["low"] <= (512 // 28) ** 2
    assert taken["original"] == 784 * 1400 // 28**2
    assert len(text.process(picture(784, 1400)).tokens) == taken["auto"]  # limits are set for one call


def details() -> tuple[Any, ...]:
    return ("low", "auto", "original", "high")


def test_the_limits_of_transformers_own_processors(tmp_path: Any) -> None:
    """They name numbers of pixels as if they were edges."""
    text = load("glm4v")
    taken = {detail: len(text.process(picture(112, 140, detail=detail)).tokens) for detail in details()}
    assert taken["auto"] == taken["high"] < taken["original"] == 112 * 140 // 28**2
    assert len(text.process(picture(112, 140)).tokens) == taken["auto"]


def test_low_detail_cuts_no_tiles() -> None:
    text = load("smolvlm")
    tokens = {detail: text.process(picture(80, 100, detail=detail)).tokens for detail in details()}
    assert list(tokens["low"]).count(ID["<image>"]) == 4
    assert list(tokens["auto"]).count(ID["<image>"]) > 4


def test_equal_pixels_have_equal_digests_whatever_the_detail_does_not_change() -> None:
    text = load("qwen2_vl")
    assert text.process(picture(56, 56, detail="high")).digest == text.process(picture(56, 56)).digest
    assert text.process(picture(56, 56, seed=1)).digest != text.process(picture(56, 56)).digest


@pytest.mark.timed
@pytest.mark.parametrize("kind", ["kimi_vl", "paligemma"])
def test_large_pictures_in_threads_do_not_hold_an_event_loop_up(kind: str) -> None:
    text = load(kind)
    shown = [picture(4000, 5000, seed=seed) for seed in range(5)]
    began = time.process_time()
    text.process(shown.pop())
    blocking = time.process_time() - began

    async def work(number: int) -> None:
        await asyncio.gather(*(asyncio.to_thread(text.process, each) for each in shown[2 * number : 2 * number + 2]))

    assert asyncio.run(stays_free(work, min(blocking / 2, 2 * LONGEST_GAP), rounds=2))
