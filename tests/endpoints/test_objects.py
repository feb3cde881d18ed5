"""Pictures as Python objects in the place of URLs, with every method of the SDK that takes messages."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pydantic
import pytest
from PIL import Image

import localai_shim
from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.conftest import refused
from tests.endpoints.pictures import BLUE, GREEN, RED, data_url, image_url, input_image, picture, png, user, user_item
from tests.endpoints.seeing import SeeingModel, seeing

Seen = tuple[LocalOpenAI, ScriptedEngine, SeeingModel]
KINDS = ["PIL", "array", "floats", "bytes", "bytearray", "path"]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    engine, model = seeing(monkeypatch, *['{"a": 1}'] * 64)
    with engine, LocalOpenAI(engine=engine) as client:
        yield client, engine, model


def source(kind: str, folder: Path) -> Any:
    """A red picture."""
    path = folder / "red.png"
    path.write_bytes(png(RED))
    return {
        "PIL": picture(RED),
        "array": np.asarray(picture(RED)),
        "floats": np.asarray(picture(RED)) / 255,
        "bytes": png(RED),
        "bytearray": bytearray(png(RED)),
        "path": path,
    }[kind]


class Answer(pydantic.BaseModel):
    a: int


def decoded(url: str) -> Image.Image:
    """The picture of a data URL."""
    assert url.startswith("data:image/png;base64,")
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


def is_red(url: str) -> bool:
    return np.array_equal(np.asarray(decoded(url)), np.asarray(picture(RED)))


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_may_stand_in_the_place_of_a_url(seen: Seen, kind: str, tmp_path: Path) -> None:
    client, engine, model = seen
    given = source(kind, tmp_path)
    chat: Any = {"model": "any", "messages": [user("x", image_url(given), "y")]}
    items: Any = {"model": "any", "input": [user_item("x", input_image(given), "y")]}
    client.chat.completions.create(**chat)
    assert list(client.chat.completions.create(**chat, stream=True))
    assert client.chat.completions.parse(**chat, response_format=Answer).choices[0].message.parsed == Answer(a=1)
    with client.chat.completions.stream(**chat) as stream:
        assert list(stream)
    client.responses.create(**items)
    assert list(client.responses.create(**items, stream=True))
    assert client.responses.parse(**items, text_format=Answer).output_parsed == Answer(a=1)
    with client.responses.stream(**items) as events:
        assert list(events)
    assert len(engine.requests) == 8
    assert all("x<image><image>" in prompt and "<image>y" in prompt for prompt in engine.prompts)
    assert set(model.seen) == {RED} and len(model.seen) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["PIL", "array", "path"])
async def test_async_clients_take_them_too(monkeypatch: pytest.MonkeyPatch, kind: str, tmp_path: Path) -> None:
    engine, model = seeing(monkeypatch, *['{"a": 1}'] * 8)
    given = source(kind, tmp_path)
    chat: Any = {"model": "any", "messages": [user("x", image_url(given))]}
    items: Any = {"model": "any", "input": [user_item("x", input_image(given))]}
    with engine:
        async with AsyncLocalOpenAI(engine=engine) as client:
            await client.chat.completions.create(**chat)
            parsed = await client.chat.completions.parse(**chat, response_format=Answer)
            assert parsed.choices[0].message.parsed == Answer(a=1)
            async with client.chat.completions.stream(**chat) as stream:
                assert [event async for event in stream]
            await client.responses.create(**items)
            assert (await client.responses.parse(**items, text_format=Answer)).output_parsed == Answer(a=1)
            async with client.responses.stream(**items) as events:
                assert [event async for event in events]
            raw = await client.chat.completions.with_raw_response.create(**chat)
            body = json.loads(await raw.http_response.request.aread())
            assert is_red(body["messages"][0]["content"][1]["image_url"]["url"])
    assert model.seen == [RED]


def test_the_parts_that_the_package_makes_are_taken(seen: Seen) -> None:
    client, engine, model = seen
    client.chat.completions.create(model="any", messages=[user(localai_shim.image(picture(RED), detail="low"))])
    client.responses.create(model="any", input=[user_item(localai_shim.input_image(picture(BLUE)))])
    assert model.seen == [RED, BLUE]
    assert all("<image>" in prompt for prompt in engine.prompts)


def test_arrays_are_not_copied_on_their_way(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is processed is the only copy: neither the SDK nor anything of ours makes another."""
    client, _, model = seen
    pixels = np.asarray(picture(RED)).copy()
    got: list[Any] = []
    monkeypatch.setattr(localai_shim.prompt.media.parts, "array_pixels", lambda array, _: got.append(array) or array)
    client.chat.completions.create(model="any", messages=[user(image_url(pixels))])
    client.responses.create(model="any", input=[user_item(input_image(pixels))], store=False)
    assert all(each is pixels for each in got) and len(got) == 2
    assert model.seen == [RED]


def test_what_is_no_picture_is_refused(seen: Seen) -> None:
    client, _, _ = seen
    for given, code, fragment in (
        (np.zeros((2, 2, 7), np.uint8), "invalid_image", "(2, 2, 7)"),
        (b"nothing", "invalid_image_format", "PNG"),
        (Path("there is none.png"), "image_file_not_found", "cannot be read"),
        (object(), "invalid_type", "object"),
    ):
        with refused("messages[0].content[0].image_url.url", code, fragment):
            client.chat.completions.create(model="any", messages=[user(image_url(given))])
        if code != "invalid_type":
            with refused("input[0].content[0].image_url", code, fragment):
                client.responses.create(model="any", input=[user_item(input_image(given))])


# -- where only JSON will do -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_raw_response_shows_them_as_data_urls(seen: Seen, kind: str, tmp_path: Path) -> None:
    client, _, _ = seen
    messages = [user("x", image_url(source(kind, tmp_path), detail="low"))]
    raw = client.chat.completions.with_raw_response.create(model="any", messages=messages, temperature=0)
    request = raw.http_response.request
    body = json.loads(request.content)
    part = body["messages"][0]["content"][1]
    assert is_red(part["image_url"]["url"]) and part["image_url"]["detail"] == "low"
    assert (body["temperature"], request.headers["content-type"]) == (0, "application/json")
    assert request.content is request.content, "made once"
    with client.responses.with_streaming_response.create(
        model="any", input=[user_item(input_image(source(kind, tmp_path)))]
    ) as response:
        assert is_red(json.loads(response.http_response.request.read())["input"][0]["content"][0]["image_url"])


def test_nothing_is_written_before_somebody_looks(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _, _ = seen
    written: list[Any] = []
    save = Image.Image.save
    monkeypatch.setattr(Image.Image, "save", lambda *a, **k: (written.append(a), save(*a, **k))[1])
    raw = client.chat.completions.with_raw_response.create(model="any", messages=[user(image_url(picture(RED)))])
    assert raw.parse().choices and not written
    assert raw.http_response.request.content and len(written) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_stored_objects_hold_data_urls(seen: Seen, kind: str, tmp_path: Path) -> None:
    client, engine, _ = seen
    given = source(kind, tmp_path)
    response = client.responses.create(model="any", input=[user_item("x", input_image(given))])
    [item] = client.responses.input_items.list(response.id).data
    assert is_red(item.to_dict()["content"][1]["image_url"])  # type: ignore[index]
    client.responses.create(model="any", input="And?", previous_response_id=response.id)
    assert "x<image>" in engine.prompts[-1]

    conversation = client.conversations.create(items=[user_item("x", input_image(given))])
    [item] = client.conversations.items.list(conversation.id).data
    assert is_red(item.to_dict()["content"][1]["image_url"])  # type: ignore[index]

    for part in (image_url(given), input_image(given)):
        made = client.chat.completions.create(model="any", messages=[user("x", part)], store=True)
        [message] = client.chat.completions.messages.list(made.id).data
        shown = message.to_dict()["content_parts"][1]  # type: ignore[index]
        assert shown["type"] == "image_url" and is_red(shown["image_url"]["url"])


def test_a_response_in_the_background_keeps_them_too(seen: Seen) -> None:
    client, _, _ = seen
    response = client.responses.create(
        model="any", input=[user_item(input_image(picture(RED)))], background=True, stream=True
    )
    events = list(response)
    stored: Any = events[-1]
    [item] = client.responses.input_items.list(stored.response.id).data
    assert is_red(item.to_dict()["content"][0]["image_url"])  # type: ignore[index]


def test_the_pixels_that_are_stored_are_those_that_the_model_saw(seen: Seen) -> None:
    """The next turn has the same key for the picture: a data URL of it is the same picture."""
    client, engine, _ = seen
    first = client.responses.create(model="any", input=[user_item(input_image(picture(GREEN)))])
    client.responses.create(model="any", input="And?", previous_response_id=first.id)
    before, after = (request.prompt for request in engine.requests)
    [span] = before.media
    assert after.keys[span.start : span.stop] == before.keys[span.start : span.stop]


def test_a_url_stays_as_it_was_sent(seen: Seen) -> None:
    client, _, _ = seen
    url = data_url(RED)
    response = client.responses.create(model="any", input=[user_item(input_image(url))])
    [item] = client.responses.input_items.list(response.id).data
    assert item.to_dict()["content"][0]["image_url"] == url  # type: ignore[index]


def test_a_pipe_holds_nobody_up_who_looks_at_the_request(seen: Seen, tmp_path: Path) -> None:
    client, _, _ = seen
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    with pytest.raises(openai.BadRequestError, match="not a regular file") as caught:
        client.chat.completions.with_raw_response.create(model="any", messages=[user(image_url(pipe))])
    [part] = json.loads(caught.value.request.content)["messages"][0]["content"]
    assert part["image_url"]["url"] == str(pipe)
