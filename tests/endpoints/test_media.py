"""Images in requests: where they stand in the prompt, that each is read once, what is refused, and what is counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.completion_usage import PromptTokensDetails

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.endpoints.served import make_prompt
from localai_shim.prompt.messages import template_messages
from localai_shim.prompt.template import Conversation
from localai_shim.testing import ScriptedEngine
from tests import inside
from tests.conftest import refused
from tests.endpoints.pictures import BLUE, GREEN, RED, data_url, image_url, input_image, png, user, user_item
from tests.endpoints.seeing import SeeingModel, seeing
from tests.engine.harness import eventually
from tests.tiny import tiny

CALL: Any = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
AUDIO: Any = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LocalOpenAI, ScriptedEngine, SeeingModel]]:
    engine, model = seeing(monkeypatch)
    with engine, LocalOpenAI(engine=engine) as client:
        yield client, engine, model


Seen = tuple[LocalOpenAI, ScriptedEngine, SeeingModel]


def ask(client: Any, *messages: Any, **more: Any) -> Any:
    return client.chat.completions.create(model="any", messages=messages, **more)


def respond(client: Any, *items: Any, **more: Any) -> Any:
    return client.responses.create(model="any", input=items, **more)


def shown(engine: ScriptedEngine) -> str:
    """The last prompt, with each run of placeholders as one."""
    text = engine.prompts[-1]
    while "<image><image>" in text:
        text = text.replace("<image><image>", "<image>")
    return text


def colours(engine: ScriptedEngine) -> list[tuple[int, ...]]:
    """Those of the pictures in the last prompt, in their order."""
    spans = engine.requests[-1].prompt.media
    return [tuple(int(x) for x in span.media.inputs["pixels"][0, 0]) for span in spans]


# -- order and place ---------------------------------------------------------------------------------------------------


def test_images_stand_where_they_were_sent(seen: Seen) -> None:
    client, engine, _ = seen
    ask(
        client,
        {"role": "system", "content": "Look."},
        user("One", image_url(data_url(RED)), "two", image_url(data_url(BLUE)), image_url(data_url(GREEN)), "three"),
        {"role": "assistant", "content": "I see."},
        user(image_url(data_url(GREEN))),
    )
    turns = (
        "user\nOne<image>two<image>three<|im_end|>\n<|im_start|>assistant\nI see.<|im_end|>\n<|im_start|>user\n<image>"
    )
    assert turns in shown(engine)
    assert colours(engine) == [RED, BLUE, GREEN, GREEN]


def test_images_stand_where_items_have_them(seen: Seen) -> None:
    client, engine, _ = seen
    respond(client, user_item("One", input_image(data_url(RED)), "two", input_image(data_url(BLUE))))
    assert "user\nOne<image>two<image><|im_end|>" in shown(engine)
    assert colours(engine) == [RED, BLUE]


def test_a_tool_may_answer_with_an_image(seen: Seen) -> None:
    client, engine, _ = seen
    result = {"role": "tool", "tool_call_id": "call_1", "content": user("Here:", image_url(data_url(BLUE)))["content"]}
    ask(client, user("Look"), {"role": "assistant", "content": None, "tool_calls": [CALL]}, result)
    assert "<tool_response>\nHere:<image>\n</tool_response>" in shown(engine)


@pytest.mark.parametrize("kind", ["function", "custom_tool"])
def test_a_call_may_have_an_image_for_its_output(seen: Seen, kind: str) -> None:
    """Results come behind their calls, whatever their order: so do their images."""
    client, engine, _ = seen
    text = {"arguments": "{}"} if kind == "function" else {"input": "x"}
    calls = [
        {"type": f"{kind}_call" if kind == "function" else "custom_tool_call", "call_id": c, "name": "look", **text}
        for c in "ab"
    ]
    outputs = [
        {
            "type": calls[0]["type"] + "_output",
            "call_id": c,
            "output": user_item(c, input_image(data_url(colour)))["content"],
        }
        for c, colour in (("b", BLUE), ("a", RED))
    ]
    respond(client, user_item("Look"), *calls, *outputs)
    assert colours(engine) == [RED, BLUE]
    text = shown(engine)
    assert text.index("\na<image>\n") < text.index("\nb<image>\n")


@pytest.mark.parametrize("how", ["previous_response_id", "conversation"])
def test_images_of_earlier_turns_are_there_and_not_read_again(seen: Seen, how: str) -> None:
    client, engine, model = seen
    more: Any = {"conversation": client.conversations.create().id} if how == "conversation" else {}
    first = respond(client, user_item("This", input_image(data_url(RED))), **more)
    if how == "previous_response_id":
        more = {"previous_response_id": first.id}
    respond(client, user_item("and this", input_image(data_url(BLUE))), **more)
    assert colours(engine) == [RED, BLUE]
    assert model.seen == [RED, BLUE], "the first was read once"


def test_text_that_spells_a_placeholder_is_text(seen: Seen) -> None:
    client, engine, _ = seen
    ask(client, user("An <image> is", image_url(data_url(RED)), "this <image>"))
    [span] = engine.requests[-1].prompt.media
    assert len(span.places) == 8
    assert engine.prompts[-1].count("<image>") == 8 + 2


def test_a_conversation_without_images_is_as_ever(seen: Seen) -> None:
    client, engine, _ = seen
    ask(client, user("a", "b"))
    assert "user\nab<|im_end|>" in engine.prompts[-1]
    prompt = engine.requests[-1].prompt
    assert prompt.media == () and prompt.keys is prompt.tokens


# -- what the engine gets ----------------------------------------------------------------------------------------------


def test_keys_are_the_same_for_the_same_picture_and_others_for_another(seen: Seen) -> None:
    client, engine, _ = seen
    for colour in (RED, RED, BLUE):
        ask(client, user("See", image_url(data_url(colour)), "this"))
    same, again, other = (request.prompt for request in engine.requests)
    assert same.tokens == again.tokens == other.tokens
    assert same.keys == again.keys != other.keys
    [span] = same.media
    changed = [i for i, (a, b) in enumerate(zip(same.keys, other.keys, strict=True)) if a != b]
    assert changed == span.places.tolist()
    assert all(same.keys[i] < 0 for i in changed)


def test_boundaries_do_not_fall_into_an_image(seen: Seen) -> None:
    client, engine, _ = seen
    served = inside.runtime(client).served(engine)
    messages = template_messages([user("x", image_url(data_url(RED)), "y")], read_part=served.media_reader())
    tokens = served.tokenizer.render(Conversation(messages))
    [span] = served.tokenizer.spans(tokens, messages)
    at = span.start

    def boundaries(*given: int) -> tuple[int, ...]:
        return make_prompt(tokens, messages, served, boundaries=given, salt=None).boundaries

    assert boundaries(at - 1, at, at + 8, at + 9) == (at - 1, at, at + 8, at + 9)
    assert boundaries(at + 1, at + 3, at + 7, at + 9) == (at, at + 9)


def test_choices_share_one_prompt_and_its_images(seen: Seen) -> None:
    client, engine, model = seen
    ask(client, user(image_url(data_url(RED))), n=3)
    assert len({id(request.prompt) for request in engine.requests}) == 1
    assert model.seen == [RED]


# -- once --------------------------------------------------------------------------------------------------------------


def test_a_picture_is_read_once_for_requests_that_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, model = seeing(monkeypatch)
    model.gate = threading.Event()
    with engine, LocalOpenAI(engine=engine) as client, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, client, user(str(i), image_url(data_url(RED)))) for i in range(8)]
        assert eventually(lambda: bool(model.seen))
        model.gate.set()
        for each in asked:
            each.result()
    assert model.seen == [RED]


def test_detail_makes_it_another_one(seen: Seen) -> None:
    client, _, model = seen
    for detail in ("low", "high", "low"):
        ask(client, user(image_url(data_url(RED), detail=detail)))
    assert len(model.seen) == 2


def test_what_one_client_may_read_another_may_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Clients of one engine share what was read; a file that is known is refused where files are."""
    (tmp_path / "red.png").write_bytes(png(RED))
    engine, model = seeing(monkeypatch)
    with engine, LocalOpenAI(engine=engine, allow_local_files=tmp_path) as may, LocalOpenAI(engine=engine) as other:
        for url in ("red.png", str(tmp_path / "red.png"), (tmp_path / "red.png").as_uri()):
            ask(may, user(image_url(url)))
            with refused("messages[0].content[0].image_url.url", "invalid_image_url", "allow_local_files"):
                ask(other, user(image_url(url)))
        respond(may, user_item(input_image((tmp_path / "red.png").as_uri())))
    assert model.seen == [RED]


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "param", "code", "fragment"),
    [
        (image_url("data:image/png;base64,!!"), ".image_url.url", "invalid_base64_image", "base64"),
        (image_url("https://example.com/a.png"), ".image_url.url", "invalid_image_url", "allow_remote_images"),
        (image_url(data_url(), detail="huge"), ".image_url.detail", "invalid_value", "'huge'"),
        (image_url(5), ".image_url.url", "invalid_type", "an integer"),
        ({"type": "image_url"}, ".image_url", "missing_required_parameter", "image_url"),
        (image_url(data_url(width=4, height=1)), ".image_url.url", "invalid_image", "it is one pixel high"),
        (
            AUDIO,
            ".type",
            "unsupported_value",
            "reads text and images; content parts of type 'input_audio' need a model",
        ),
        ({"type": "file", "file": {}}, ".file.file_data", "missing_required_parameter", "file_data"),
        ({"type": "smell"}, ".type", "invalid_value", "'smell'. Supported values are: 'text'"),
    ],
)
def test_a_wrong_part_is_refused_by_its_path(seen: Seen, part: Any, param: str, code: str, fragment: str) -> None:
    client, engine, _ = seen
    with refused(f"messages[1].content[1]{param}", code, fragment):
        ask(client, user("x"), user("y", part))
    ask(client, user("and the next one is served"))
    assert len(engine.requests) == 1


def test_a_wrong_part_of_an_item_is_refused_by_its_path(seen: Seen) -> None:
    client, _, _ = seen
    with refused("input[0].content[0].image_url", "invalid_image", "it is one pixel high"):
        respond(client, user_item(input_image(data_url(width=4, height=1))))
    with refused("input[0].content[0].file_data", "invalid_file", "'a.pdf' cannot be read: it is not text"):
        respond(client, user_item({"type": "input_file", "file_data": "AAAA", "filename": "a.pdf"}))


def test_uploaded_images_are_read_by_their_ids(seen: Seen) -> None:
    client, engine, _ = seen
    file = client.files.create(file=("red.png", png(RED)), purpose="vision")
    respond(client, user_item({"type": "input_image", "file_id": file.id, "detail": "low"}))
    assert colours(engine) == [RED]
    with pytest.raises(openai.NotFoundError) as caught:
        respond(client, user_item({"type": "input_image", "file_id": "file_1"}))
    assert (caught.value.param, caught.value.code) == ("input[0].content[0].file_id", "file_not_found")


def test_what_is_wrong_is_said_each_time(seen: Seen) -> None:
    """Nothing is kept of a picture that could not be read, and each request is told its own path."""
    client, _, model = seen
    part = image_url(data_url(width=4, height=1))
    for i in range(3):
        with refused(f"messages[0].content[{i}].image_url.url", "invalid_image", "one pixel high"):
            ask(client, user(*"x" * i, part))
    assert len(model.seen) == 3


def test_a_template_that_leaves_an_image_out_is_said(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _, model = seen

    def blind(*_: Any) -> Any:
        return [1, 2, 3]

    monkeypatch.setattr(model, "apply_chat_template", blind)
    with refused("messages[0].content[0]", "invalid_image", "the template left one out"):
        ask(client, user(image_url(data_url())))


@pytest.mark.parametrize(
    ("part", "need"), [(image_url(data_url()), "images"), (AUDIO, "audio"), ({"type": "video_url"}, "video")]
)
def test_a_model_of_text_says_so(part: Any, need: str) -> None:
    with LocalOpenAI(tiny("qwen3")) as client:
        fragment = f"This model reads text only; content parts of type '{part['type']}' need a model that reads {need}."
        fragment += " Load one, such as 'mlx-community/" if need == "images" else ""
        with refused("messages[0].content[1].type", "unsupported_value", fragment):
            ask(client, user("x", part))


def test_an_assistant_sends_no_images(seen: Seen) -> None:
    client, _, _ = seen
    with refused("messages[1].content[0].type", "invalid_value", "'text' and 'refusal'"):
        ask(client, user("x"), {"role": "assistant", "content": [image_url(data_url())]}, user("y"))


# -- truncation --------------------------------------------------------------------------------------------------------


def turns(*colours: tuple[int, int, int]) -> list[Any]:
    made: list[Any] = [{"role": "system", "content": "Be brief."}]
    for colour in colours:
        made += [user("What is this?", image_url(data_url(colour, width=40))), {"role": "assistant", "content": "A"}]
    return made[:-1]


def test_whole_turns_are_left_out_where_images_would_be_cut(seen: Seen) -> None:
    client, engine, _ = seen
    ask(client, *turns(RED, GREEN, BLUE))
    whole = len(engine.requests[-1].prompt.tokens)
    for most, left in ((whole, [RED, GREEN, BLUE]), (whole - 1, [GREEN, BLUE]), (whole - 100, [BLUE])):
        answer = ask(client, *turns(RED, GREEN, BLUE), extra_body={"truncate_prompt_tokens": most})
        assert answer.usage.prompt_tokens <= most
        assert colours(engine) == left
        assert "system\nBe brief." in engine.prompts[-1]


@pytest.mark.parametrize(
    "more", [{"truncate_prompt_tokens": 20}, {"truncate_prompt_tokens": 150, "truncation_side": "right"}]
)
def test_what_cannot_be_truncated_whole_is_refused(seen: Seen, more: Any) -> None:
    client, _, _ = seen
    with refused("truncate_prompt_tokens", "invalid_value", "not cut in two"):
        ask(client, *turns(RED, GREEN, BLUE), extra_body=more)


def test_truncated_responses_keep_images_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, model = seeing(monkeypatch, context_length=220)
    with engine, LocalOpenAI(engine=engine) as client:
        items = [user_item(f"{i}?", input_image(data_url((i, 0, 0), width=40))) for i in range(6)]
        respond(client, *items, truncation="auto")
        kept = [colour[0] for colour in colours(engine)]
        assert 0 < len(kept) < 6 and kept == list(range(6))[-len(kept) :]
        assert len(model.seen) == 6, "however often it was rendered"
        with pytest.raises(openai.BadRequestError) as caught:
            respond(client, *items)
        assert caught.value.code == "context_length_exceeded"


# -- counts, and what models say ---------------------------------------------------------------------------------------


def test_usage_says_what_tokens_stand_for(seen: Seen) -> None:
    client, _, _ = seen
    usage = ask(client, user("x", image_url(data_url(width=20)), image_url(data_url(width=5)))).usage
    details = usage.prompt_tokens_details.model_dump()
    assert details["image_tokens"] == 25 and details["audio_tokens"] == 0
    assert details["text_tokens"] == usage.prompt_tokens - 25
    usage = respond(client, user_item("x", input_image(data_url(width=20)))).usage
    assert usage.input_tokens_details.model_dump()["image_tokens"] == 20
    plain = ask(client, user("x")).usage
    if "image_tokens" in PromptTokensDetails.model_fields:
        assert plain.prompt_tokens_details.model_dump()["image_tokens"] == 0
        assert plain.prompt_tokens_details.model_dump()["text_tokens"] == plain.prompt_tokens
    count = client.responses.input_tokens.count(model="any", input=[user_item("x", input_image(data_url(width=20)))])
    assert count.input_tokens == usage.input_tokens


def test_models_say_what_they_read(seen: Seen) -> None:
    client, _, _ = seen
    assert client.models.retrieve("seeing").model_dump()["modalities"] == ["text", "image"]
    assert client.stats().modalities == ("text", "image")
    with LocalOpenAI(tiny("qwen3")) as blind:
        ask(blind, user("x"), max_tokens=1)
        assert blind.models.list().data[0].model_dump()["modalities"] == ["text"]
        assert blind.stats().modalities == ("text",)


# -- async -------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_async_clients_send_images_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, model = seeing(monkeypatch)
    with engine:
        async with AsyncLocalOpenAI(engine=engine) as client:
            await ask(client, user("x", image_url(data_url(RED))))
            stream = await ask(client, user("x", image_url(data_url(BLUE))), stream=True)
            assert [chunk async for chunk in stream]
            await respond(client, user_item("x", input_image(data_url(RED))))
    assert model.seen == [RED, BLUE]
