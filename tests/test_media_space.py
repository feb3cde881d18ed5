"""Items that cannot fit into the context are refused by their size, before they are decoded or processed."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
import pytest

from localai_shim import LocalOpenAI
from tests.conftest import refused
from tests.endpoints.pictures import image_url, input_image, picture, png, user, user_item
from tests.prompt.media.files import wav
from tests.vision import tiny_vision

ASK: dict[str, Any] = {"model": "any", "max_tokens": 3, "temperature": 0}
RESPOND: dict[str, Any] = {"model": "any", "max_output_tokens": 16, "temperature": 0}
CONTEXT = 100
TOO_LONG = "context_length_exceeded"
AT = "messages[0].content[0].image_url.url"


def client(kind: str = "qwen2_5_vl", context_length: int = CONTEXT) -> LocalOpenAI:
    return LocalOpenAI(tiny_vision(kind), context_length=context_length, keep_alive=0)


def headed(width: int, height: int) -> str:
    """A PNG of this size, as its head says, of which nothing can be decoded."""
    data = bytearray(png(width=4, height=4))
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return f"data:;base64,{base64.b64encode(bytes(data[:60])).decode()}"


def original(width: int, height: int) -> Any:
    return image_url(headed(width, height), detail="original")


def test_a_picture_that_does_not_fit_is_refused_before_it_is_decoded() -> None:
    with client() as made:
        with refused(AT, TOO_LONG, f"'{AT}': this image of 5600x2800 pixels takes 20000 tokens"):
            made.chat.completions.create(**ASK, messages=[user(original(5600, 2800))])
        at = "input[0].content[0].image_url"
        with refused(at, TOO_LONG, "maximum context length is 100 tokens"):
            item = user_item(input_image(headed(5600, 2800), detail="original"))
            made.responses.create(**RESPOND, input=[item])


def test_a_picture_in_memory_is_refused_before_it_is_processed() -> None:
    with client() as made:
        for source in (picture(width=1400, height=700), np.zeros((700, 1400, 3), np.uint8)):
            with refused(AT, TOO_LONG, "1400x700 pixels takes 1250 tokens"):
                made.chat.completions.create(**ASK, messages=[user(image_url(source, detail="original"))])


def test_pictures_that_only_together_do_not_fit_are_refused_at_the_first_that_is_too_many() -> None:
    parts = [original(280, 140) for _ in range(3)]  # 50 tokens each
    with client() as made, refused("messages[0].content[2].image_url.url", TOO_LONG, "150 with what is before it"):
        made.chat.completions.create(**ASK, messages=[user(*parts)])


def test_what_fits_alone_and_not_with_the_text_is_refused_as_a_long_prompt_is() -> None:
    shown = image_url(picture(width=280, height=252), detail="original")  # 90 tokens
    with client() as made, refused("messages", TOO_LONG, "However, your messages resulted in"):
        made.chat.completions.create(**ASK, messages=[user(shown, "Please look at this.")])


def test_how_long_the_answer_may_be_is_no_reason_to_refuse_a_picture() -> None:
    shown = image_url(picture(width=140, height=140), detail="original")  # 25 tokens
    with client() as made:
        answer = made.chat.completions.create(**{**ASK, "max_tokens": 90}, messages=[user(shown)])
        assert answer.usage is not None and answer.usage.total_tokens <= CONTEXT


def test_the_default_detail_lets_the_same_picture_in() -> None:
    with client() as made:
        assert made.chat.completions.create(**ASK, messages=[user(image_url(picture(width=1400, height=700)))]).choices


@pytest.mark.parametrize("kind", ["image_url", "input_image"])
def test_a_turn_whose_picture_does_not_fit_is_left_out_where_that_is_asked_for(kind: str) -> None:
    """It is not decoded for that."""
    with client() as made:
        if kind == "image_url":
            turns = [user(original(5600, 2800)), {"role": "assistant", "content": "ok"}, user("And now?")]
            whole = made.chat.completions.create(**ASK, messages=turns, extra_body={"truncate_prompt_tokens": -1})
            assert whole.usage is not None and whole.usage.prompt_tokens < 50
            with refused("truncate_prompt_tokens", "invalid_value", "the last one is longer than that"):
                made.chat.completions.create(**ASK, messages=turns[:1], extra_body={"truncate_prompt_tokens": -1})
        else:
            items = [user_item(input_image(headed(5600, 2800), detail="original")), user_item("And now?")]
            response = made.responses.create(**RESPOND, input=items, truncation="auto")
            assert response.usage is not None and response.usage.input_tokens < 50
            with refused("input", TOO_LONG, "resulted in 200"):
                made.responses.create(**RESPOND, input=items[:1], truncation="auto")


def test_tokens_of_what_does_not_fit_are_counted() -> None:
    item = user_item(input_image(headed(5600, 2800), detail="original"))
    with client() as made:
        counted = made.responses.input_tokens.count(model="any", input=[item])
        assert 20_000 < counted.input_tokens < 20_050


def test_frames_that_do_not_fit_are_refused_before_they_are_decoded() -> None:
    frames = [headed(56, 56) for _ in range(700)]
    for video in (frames, np.zeros((700, 56, 56, 3), np.uint8)):
        part = {"type": "video_url", "video_url": video}
        with client("qwen2_vl") as made, refused("messages[0].content[0].video_url", TOO_LONG, "700 frames of 56x56"):
            made.chat.completions.create(**ASK, messages=[user(part)])


def test_a_sound_that_does_not_fit_is_refused_before_it_is_processed() -> None:
    data = base64.b64encode(wav(np.zeros(16_000 * 20, np.float32))).decode()
    part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    at = "messages[0].content[0].input_audio.data"
    with client("gemma4") as made, refused(at, TOO_LONG, "this audio of 20.0 seconds takes 500 tokens"):
        made.chat.completions.create(**ASK, messages=[user(part)])
