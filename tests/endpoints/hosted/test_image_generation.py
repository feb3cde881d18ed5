"""`image_generation` with a hook: items, events, options, formats, and what the model sees of the image."""

from __future__ import annotations

import asyncio
import base64
import io
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any, get_args

import openai
import pytest
from openai.types.responses.tool import ImageGeneration as Tool
from PIL import Image

from localai_shim import ImageGenerationHook, ImageResult, LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.endpoints.functions import call
from tests.endpoints.hosted.hosting import RESULT, SAVE, ask, each_way, script, types
from tests.endpoints.pictures import GREEN, RED, data_url, input_image, picture, png, user_item

IMAGE: Any = {"type": "image_generation"}
ASKS_IMAGE = call("image_generation", {"prompt": "a cat"})
FILE = png()
TEXT = base64.b64encode(FILE).decode()
MADE = "The image was generated (8x6 pixels, png), and the user sees it."


class Painter:
    """Returns images, and notes its calls."""

    def __init__(self, *images: Any) -> None:
        self.images, self.calls = images or (FILE,), list[Any]()

    def draw(self, prompt: str, **options: Any) -> Any:
        self.calls.append((prompt, options))
        return self.images[min(len(self.calls), len(self.images)) - 1]


def paint(how: str, *replies: str, hook: Any = None, **more: Any) -> tuple[Any, list[Any], list[str]]:
    """The response, its events, and the prompts."""
    with ScriptedEngine(script(*(replies or (ASKS_IMAGE, "There it is.")))) as engine:
        hooks = {"image_generation": Painter() if hook is None else hook}
        response, events = ask(engine, how, hooks, **{"tools": [IMAGE], **more})
        return response, events, engine.prompts


@each_way
def test_an_image_is_generated_and_the_same_response_continues(how: str) -> None:
    painter = Painter(ImageResult(FILE, "a black cat"))
    hook: ImageGenerationHook = painter
    response, events, prompts = paint(how, hook=hook)
    assert types(response) == ["image_generation_call", "message"]
    made = response.output[0]
    assert made.id.startswith("ig_") and made.status == "completed" and made.result == TEXT
    assert (made.revised_prompt, made.size, made.output_format) == ("a black cat", "8x6", "png")
    assert painter.calls == [("a cat", {})]
    assert MADE in prompts[1] and TEXT not in prompts[1]
    if how.endswith("streamed"):
        heard = [event.type.split(".")[-1] for event in events if ".image_generation_call." in event.type]
        assert heard == ["in_progress", "generating", "completed"]


def buffer(image: Image.Image, format: str) -> bytes:
    out = io.BytesIO()
    image.save(out, format)
    return out.getvalue()


RETURNED: list[tuple[Any, str]] = [
    (FILE, "png"),
    (bytearray(FILE), "png"),
    (TEXT, "png"),
    (data_url(), "png"),
    (picture(), "png"),
    (picture().convert("RGBA"), "png"),
    ({"image": picture()}, "png"),
    (ImageResult(TEXT), "png"),
    (SimpleNamespace(b64_json=TEXT, revised_prompt=None), "png"),
    (buffer(picture(), "JPEG"), "jpeg"),
    (buffer(picture(), "WEBP"), "webp"),
    (buffer(picture(), "GIF"), "gif"),
]


@pytest.mark.parametrize(("returned", "format"), RETURNED)
def test_images_in_every_form_become_files(returned: Any, format: str) -> None:
    response, _, _ = paint("streamed", hook=Painter(returned))
    made = response.output[0]
    image = Image.open(io.BytesIO(base64.b64decode(made.result)))
    assert (image.format or "").lower() == made.output_format == format
    assert image.size == (8, 6) and made.size == "8x6" and made.revised_prompt == "a cat"


FORMATS = [value for value in get_args(get_args(Tool.model_fields["output_format"].annotation)[0]) if value != "svg"]
"""Formats of images that the SDK knows, which are fewer in its 2.x line."""


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("returned", [FILE, picture(), picture().convert("RGBA")])
def test_images_are_converted_to_the_format_that_is_asked_for(returned: Any, format: str) -> None:
    sizes = []
    big = picture(width=64, height=64) if isinstance(returned, Image.Image) else returned
    for quality in (10, 95):
        tool = {**IMAGE, "output_format": format, "output_compression": quality}
        response, _, _ = paint("whole", hook=lambda prompt: big, tools=[tool])  # takes no option
        made = response.output[0]
        data = base64.b64decode(made.result)
        assert made.output_format == format == (Image.open(io.BytesIO(data)).format or "").lower()
        sizes.append(len(data))
    assert (sizes[0] < sizes[1]) or format in ("png", "gif") or returned is FILE


def test_an_svg_is_returned_as_it_is_and_not_shown_to_the_model() -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"/>'
    response, _, prompts = paint("streamed", hook=Painter(svg), tools=[IMAGE])
    made = response.output[0]
    assert base64.b64decode(made.result) == svg and made.output_format == "svg"
    assert "<image>" not in prompts[1]


@pytest.mark.parametrize(
    "returned", [None, 5, {}, [], "no image", b"", b"text", FILE[:40], {"image": 3}, "data:image/png,x", "data:x"]
)
def test_what_is_no_image_fails_the_item(returned: Any, caplog: pytest.LogCaptureFixture) -> None:
    response, _, prompts = paint("streamed", hook=Painter(returned))
    made, answer = response.output
    assert (made.status, made.result, answer.status) == ("failed", None, "completed")
    assert "Error: image_generation returned no result that can be read." in prompts[1]
    assert "the function that `hosted_tools` has for 'image_generation'" in caplog.text


def test_a_hook_that_raises_fails_the_item() -> None:
    def draw(prompt: str, **options: Any) -> Any:
        raise ValueError("not allowed")

    response, _, prompts = paint("streamed", hook=draw)
    assert response.output[0].status == "failed" and "Error: ValueError: not allowed" in prompts[1]


# -- options --------------------------------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {
    "action": "generate",
    "background": "opaque",
    "complexity": "low",
    "input_fidelity": "high",
    "input_image_mask": {"image_url": data_url()},
    "model": "gpt-image-2",
    "moderation": "low",
    "output_compression": 50,
    "output_format": "webp",
    "partial_images": 2,
    "quality": "high",
    "size": "1024x1024",
}


def test_fields_of_the_tool_are_options_of_the_hook() -> None:
    painter = Painter()
    response, _, _ = paint("whole", hook=painter, tools=[{**IMAGE, **OPTIONS}])
    assert painter.calls == [("a cat", OPTIONS)]
    made = response.output[0]
    assert (made.action, made.background, made.quality) == ("generate", "opaque", "high")
    assert made.size == "8x6"  # which it has


@pytest.mark.parametrize(
    ("field", "value"), [("size", 5), ("quality", "best"), ("partial_images", 4), ("input_image_mask", {"x": 1})]
)
def test_fields_that_openai_does_not_know_are_refused(field: str, value: Any) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        paint("whole", tools=[{**IMAGE, field: value}])
    assert str(caught.value.param).startswith(f"tools[0].{field}")


def test_a_hook_without_a_mask_refuses_requests_with_one() -> None:
    with pytest.raises(openai.BadRequestError, match="does not take 'input_image_mask'"):
        paint("whole", hook=lambda prompt, size="auto": FILE, tools=[{**IMAGE, **OPTIONS}])
    response, _, _ = paint("whole", hook=lambda prompt: FILE, tools=[{**IMAGE, "size": "auto", "quality": "low"}])
    assert response.output[0].status == "completed"


def test_a_hook_gets_the_images_of_the_conversation() -> None:
    painter = Painter(FILE, png(GREEN))
    given = user_item("Weather?", input_image(data_url(RED, width=2)))
    with (
        ScriptedEngine(script(ASKS_IMAGE, "There.")) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"image_generation": painter}) as client,
    ):
        asked: Any = {"model": "m", "tools": [IMAGE]}
        first = client.responses.create(input=[given], **asked)
        client.responses.create(input="Weather? Edit it.", previous_response_id=first.id, **asked)
    images = [options["images"] for _, options in painter.calls]
    assert images == [[data_url(RED, width=2)], [data_url(RED, width=2), data_url()]]


@pytest.mark.parametrize("choice", ["required", IMAGE, {"type": "allowed_tools", "mode": "required", "tools": [IMAGE]}])
def test_a_forced_image_is_generated_once(choice: Any) -> None:
    painter = Painter()
    with ScriptedEngine(script(ASKS_IMAGE, "There."), obey_constraints=True) as engine:
        tools = [IMAGE] if choice == "required" else [SAVE, IMAGE]
        response, _ = ask(engine, "whole", {"image_generation": painter}, tools=tools, tool_choice=choice)
    assert types(response) == ["image_generation_call", "message"] and len(painter.calls) == 1


# -- unfinished images ----------------------------------------------------------------------------------------------


def drawing(*images: Any) -> Callable[..., Iterator[Any]]:
    def draw(prompt: str, **options: Any) -> Iterator[Any]:
        yield from images

    return draw


def drawing_later(*images: Any) -> Callable[..., AsyncIterator[Any]]:
    async def draw(prompt: str, **options: Any) -> AsyncIterator[Any]:
        for image in images:
            await asyncio.sleep(0)
            yield image

    return draw


@pytest.mark.parametrize("most", [None, 0, 1, 2, 3])
@pytest.mark.parametrize("make", [drawing, drawing_later])
def test_unfinished_images_are_streamed(make: Any, most: int | None) -> None:
    files = [png(width=width) for width in (1, 2, 3)]
    response, events, _ = paint("streamed", hook=make(*files), tools=[{**IMAGE, "partial_images": most}])
    partial = [event for event in events if event.type == "response.image_generation_call.partial_image"]
    assert [base64.b64decode(event.partial_image_b64) for event in partial] == files[:-1][: most or 0]
    assert [event.size for event in partial] == ["1x6", "2x6"][: most or 0]
    assert base64.b64decode(response.output[0].result) == files[-1]


class Easel:
    """Hooks whose last image is not drawn before an unfinished one was seen."""

    def __init__(self) -> None:
        self.seen = threading.Event()

    def draw(self, prompt: str, **options: Any) -> Iterator[Any]:
        yield from (png(width=1), png(width=2))
        assert self.seen.wait(60)
        yield FILE

    async def draw_later(self, prompt: str, **options: Any) -> AsyncIterator[Any]:
        for width in (1, 2):
            yield png(width=width)
        assert await asyncio.to_thread(self.seen.wait, 60)
        yield FILE


@pytest.mark.parametrize("method", ["draw", "draw_later"])
def test_an_unfinished_image_is_seen_before_the_last_one_is_drawn(method: str) -> None:
    easel = Easel()
    with (
        ScriptedEngine(script(ASKS_IMAGE, "There.")) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"image_generation": getattr(easel, method)}) as client,
    ):
        tools: Any = [{**IMAGE, "partial_images": 1}]
        stream = client.responses.create(model="m", input="Weather?", tools=tools, stream=True)
        events: list[Any] = []
        for event in stream:
            events.append(event)
            if event.type == "response.image_generation_call.partial_image":
                easel.seen.set()
    assert base64.b64decode(events[-1].response.output[0].result) == FILE


@pytest.mark.parametrize("method", ["draw", "draw_later"])
def test_a_drawing_ends_when_its_reader_leaves(method: str) -> None:
    ended = threading.Event()

    class Endless(Easel):
        def draw(self, prompt: str, **options: Any) -> Iterator[Any]:
            try:
                while True:
                    yield FILE
            finally:
                ended.set()

        async def draw_later(self, prompt: str, **options: Any) -> AsyncIterator[Any]:
            try:
                yield FILE
                yield FILE
                await asyncio.sleep(3600)
            finally:
                ended.set()

    with (
        ScriptedEngine(script(ASKS_IMAGE, "There.")) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"image_generation": getattr(Endless(), method)}) as client,
    ):
        tools: Any = [{**IMAGE, "partial_images": 1}]
        stream: Any = client.responses.create(model="m", input="Weather?", tools=tools, stream=True)
        while next(stream).type != "response.image_generation_call.partial_image":
            pass
        stream.close()
        assert ended.wait(60)


def broken(prompt: str, **options: Any) -> Iterator[Any]:
    yield FILE
    yield FILE
    raise ValueError("no paint")


@pytest.mark.parametrize(
    ("hook", "told"),
    [
        (broken, "Error: ValueError: no paint"),
        (drawing(), "Error: image_generation returned no result"),
        (drawing(b"x", FILE), "Error: image_generation returned no result"),
    ],
)
def test_a_drawing_that_breaks_off_fails_its_item(hook: Any, told: str) -> None:
    response, _, prompts = paint("streamed", hook=hook, tools=[{**IMAGE, "partial_images": 3}])
    assert [item.status for item in response.output] == ["failed", "completed"] and told in prompts[1]


# -- what the model sees --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["previous_response_id", "input"])
def test_a_model_that_sees_reads_the_image_now_and_later(way: str) -> None:
    asked: Any = {"model": "m", "tools": [IMAGE]}
    with (
        ScriptedEngine(script(ASKS_IMAGE, "There.")) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"image_generation": Painter()}) as client,
    ):
        first = client.responses.create(input="Weather?", **asked)
        last = engine.prompts[1]
        if way == "input":
            given: Any = [{"role": "user", "content": "Weather?"}, *first.output, {"role": "user", "content": "So?"}]
            client.responses.create(input=given, **asked)
        else:
            client.responses.create(input="So?", previous_response_id=first.id, **asked)
        assert engine.prompts[2].startswith(last)
        assert len(engine.requests[1].prompt.media) == len(engine.requests[2].prompt.media) == 1
    assert f"{RESULT}\n{MADE}<image>" in last


def test_an_image_that_openai_has_made_is_read_without_a_hook() -> None:
    item: Any = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": TEXT}
    again: Any = {"role": "user", "content": "So?"}
    for more, shown in (({"revised_prompt": "a dog"}, '{"prompt": "a dog"}'), ({"error": None}, '{"prompt": ""}')):
        with ScriptedEngine(["Hi."]) as engine, LocalOpenAI(engine=engine) as client:
            client.responses.create(model="m", input=[{**item, **more}, again])
            assert shown in engine.prompts[0] and "<image>" in engine.prompts[0]


def test_a_model_that_does_not_see_reads_the_text_only() -> None:
    with LocalOpenAI(hosted_tools={"image_generation": Painter()}) as client:
        response = client.responses.create(
            model="m", input="Draw a cat.", tools=[IMAGE], tool_choice=IMAGE, temperature=0, max_output_tokens=200
        )
    assert response.output[0].type == "image_generation_call" and response.output[0].result == TEXT


def test_images_that_do_not_fit_the_context_are_not_shown_to_the_model() -> None:
    """The call is completed: the user has the image."""
    with ScriptedEngine(script(ASKS_IMAGE, "There.")) as engine:
        ask(engine, "whole", {"image_generation": Painter()}, tools=[IMAGE])
        length = len(engine.requests[1].prompt.tokens)
    context = next(context for context in range(length, 2 * length) if context - context // 16 == length - 1)
    with ScriptedEngine(script(ASKS_IMAGE, "There."), context_length=context) as engine:
        response, _ = ask(engine, "streamed", {"image_generation": Painter()}, tools=[IMAGE])
        made = response.output[0]
        assert (made.status, made.result, made.unseen_images) == ("completed", TEXT, True)
        assert "<image>" not in engine.prompts[1]


def test_images_that_code_has_written_reach_a_model_that_sees() -> None:
    files = [
        {"name": "plot.png", "url": data_url()},
        {"name": "broken.png", "url": "data:image/png;base64,AA=="},
        {"name": "far.png", "url": "https://example.com/far.png"},
    ]
    code: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
    asked: Any = {"model": "m", "tools": [code]}
    with (
        ScriptedEngine(script(call("code_interpreter", {"code": "1"}), "There.")) as engine,
        LocalOpenAI(
            engine=engine, hosted_tools={"code_interpreter": lambda code, container: {"files": files}}
        ) as client,
    ):
        first = client.responses.create(input="Weather?", **asked)
        last = engine.prompts[1]
        given: Any = [{"role": "user", "content": "Weather?"}, *first.output, {"role": "user", "content": "So?"}]
        client.responses.create(input=given, **asked)
        assert last.count("<image>") == 1 and engine.prompts[2].startswith(last)
    assert first.output[0].to_dict()["images"] == [data_url()]
