"""Large pictures and the event loop, and a model that really sees, from the SDK's call to the answer."""

from __future__ import annotations

import asyncio
import base64
import functools
import io
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import openai
import pytest
from PIL import Image

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.conftest import revalidate
from tests.endpoints.pictures import BLUE, RED, data_url, image_url, input_image, picture, png, user, user_item
from tests.heartbeat import stays_free
from tests.vision import tiny_vision

_QUICKLY: dict[str, dict[str, int]] = {"PNG": {"compress_level": 1}, "JPEG": {}, "WEBP": {"method": 0}}
LONGEST_GAP = 0.05  # seconds
ASK: dict[str, Any] = {"model": "any", "max_tokens": 3, "temperature": 0}
RESPOND: dict[str, Any] = {"model": "any", "max_output_tokens": 3, "temperature": 0}


@functools.cache
def large() -> npt.NDArray[np.uint8]:
    """20 megapixels that no codec finds trivial."""
    sums = np.add.outer(np.arange(4000), np.arange(5000)).astype(np.uint32)
    return np.stack([sums // 7, sums // 3, sums], -1).astype(np.uint8)


def another(number: int, form: str) -> Any:
    """A large picture that nothing has seen."""
    pixels = large().copy()
    pixels[:64, :64] = 40 * number, 7, 7  # enough for a codec that loses some
    if form == "array":
        return pixels
    image = Image.fromarray(pixels)
    if form in ("PIL", "transparent"):
        return image.convert("RGBA") if form == "transparent" else image
    out = io.BytesIO()
    image.save(out, form, **_QUICKLY[form])
    return f"data:;base64,{base64.b64encode(out.getvalue()).decode()}"


@pytest.mark.timed
@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("qwen2_5_vl", "array"),
        ("qwen2_5_vl", "JPEG"),
        *(
            pytest.param(kind, form, marks=pytest.mark.exhaustive)
            for kind, form in [
                *(("qwen2_5_vl", form) for form in ("PIL", "transparent", *_QUICKLY) if form != "JPEG"),
                ("paligemma", "array"),
                ("kimi_vl", "array"),  # its tower sees all patches at once: seconds
            ]
        ),
    ],
)
def test_large_pictures_do_not_hold_the_event_loop_up(kind: str, form: str) -> None:
    """They are read and processed in worker threads, which let go of the GIL."""
    path = tiny_vision(kind)
    with LocalOpenAI(path) as client:
        client.chat.completions.create(**ASK, messages=[user(image_url(picture(width=56, height=56)))])
        began = time.process_time()
        client.chat.completions.create(**ASK, messages=[user(image_url(another(0, form)))])
        blocking = time.process_time() - began

    async def main(sources: list[Any]) -> bool:
        async with AsyncLocalOpenAI(path) as client:

            async def work(_: int) -> None:
                asked = (client.chat.completions.create(**ASK, messages=[user(image_url(each))]) for each in sources)
                await asyncio.gather(*asked)

            return await stays_free(work, min(blocking / 4, 2 * LONGEST_GAP), rounds=1)

    assert any(asyncio.run(main([another(1 + 2 * number + i, form) for i in range(2)])) for number in range(2))


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "smolvlm"])
def test_a_model_that_sees_answers_through_both_apis(kind: str) -> None:
    with LocalOpenAI(tiny_vision(kind), keep_alive=0) as client:
        parts = [
            "Here",
            image_url(picture(RED, width=90, height=70)),
            "and",
            image_url(data_url(BLUE, width=60, height=70)),
        ]
        whole = client.chat.completions.create(**ASK, messages=[user(*parts)])
        revalidate(whole)
        assert whole.usage is not None and whole.usage.prompt_tokens_details is not None
        details = whole.usage.prompt_tokens_details.model_dump()
        assert (
            details["image_tokens"] > 1
            and details["text_tokens"] + details["image_tokens"] == whole.usage.prompt_tokens
        )
        chunks = list(client.chat.completions.create(**ASK, messages=[user(*parts)], stream=True))
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert said == whole.choices[0].message.content

        first = client.responses.create(**RESPOND, input=[user_item(*parts[:1], input_image(picture(RED, width=90)))])
        second = client.responses.create(**RESPOND, input="And now?", previous_response_id=first.id)
        assert first.usage is not None and second.usage is not None
        cached = second.usage.input_tokens_details.cached_tokens
        images = second.usage.input_tokens_details.model_dump()["image_tokens"]
        assert images > 0 and cached > images, "the first turn is not run again, its image included"
        assert "image" in client.models.list().data[0].model_dump()["modalities"]


def test_pictures_that_fail_fail_their_own_requests_beside_many_that_share_one() -> None:
    """Of requests that come at once; what sixteen of them show is looked at once."""
    shown, cut = data_url(RED, width=90, height=70), base64.b64encode(png(BLUE, width=90, height=70)[:60]).decode()
    wrong = [f"data:image/png;base64,{cut}", "data:image/png;base64,!", data_url(BLUE, width=900, height=2)]

    async def main() -> tuple[list[Any], int]:
        async with AsyncLocalOpenAI(tiny_vision("qwen2_5_vl"), keep_alive=0) as client:
            asked = [f"{i}?" for i in range(16)]
            messages = [[user(image_url(shown), text)] for text in asked] + [[user(image_url(url))] for url in wrong]
            calls = (client.chat.completions.create(**ASK, messages=each) for each in messages)
            answers = await asyncio.gather(*calls, return_exceptions=True)
            return answers, client.stats().tower_runs

    answers, runs = asyncio.run(main())
    assert runs == 1
    assert all(answer.usage.completion_tokens > 0 for answer in answers[:16])
    for error in answers[16:]:
        assert isinstance(error, openai.BadRequestError) and error.param == "messages[0].content[0].image_url.url"


def test_another_picture_is_another_answer_and_another_prefix() -> None:
    with LocalOpenAI(tiny_vision("qwen2_5_vl"), keep_alive=0) as client:

        def cached(colour: tuple[int, int, int]) -> int:
            message = user("See", image_url(picture(colour, width=90, height=70)), "this")
            answer = client.chat.completions.create(**ASK, messages=[message])
            return answer.usage.prompt_tokens_details.cached_tokens  # type: ignore[union-attr,return-value]

        assert cached(RED) == 0
        same, other = cached(RED), cached(BLUE)
        assert 0 <= other < same


def test_text_only_leaves_the_tower_out() -> None:
    path = tiny_vision("qwen2_5_vl")
    with LocalOpenAI(path, text_only=True, keep_alive=0) as client:
        assert client.chat.completions.create(**ASK, messages=[user("Hi")]).usage is not None
        assert client.stats().modalities == ("text",)
        with pytest.raises(Exception, match="This model reads text only"):
            client.chat.completions.create(**ASK, messages=[user(image_url(picture()))])
