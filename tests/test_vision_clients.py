"""All that a request may ask for, with images in it: tiny models that see, from the SDK's call to the answer."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localai_shim import LocalOpenAI
from tests.conftest import refused
from tests.endpoints.pictures import BLUE, GREEN, RED, image_url, input_image, picture, user, user_item
from tests.engine.harness import eventually
from tests.prompt.media.files import SINE, wav
from tests.samples import exhaustive, only
from tests.scripts import run
from tests.vision import FAMILIES, tiny_vision

ASK: dict[str, Any] = {"model": "any", "max_tokens": 4, "temperature": 0}
RESPOND: dict[str, Any] = {"model": "any", "max_output_tokens": 16, "temperature": 0}
SCHEMA: Any = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "function": {"name": "look", "parameters": SCHEMA, "strict": True}}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
CALL: Any = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a": true}'}}


def shown(colour: tuple[int, int, int] = RED) -> Any:
    return image_url(picture(colour, width=90, height=70))


def turns(kind: str) -> list[Any]:
    """Images in three turns, of which a tool sends one; a single one where the model takes no more."""
    if FAMILIES[kind].images == 1:
        return [user("One", shown(), "two")]
    result = {"role": "tool", "tool_call_id": "call_1", "content": user("Here", shown(BLUE))["content"]}
    called = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    return [user("One", shown(), "two"), called, result, {"role": "assistant", "content": "ok"}, user(shown(GREEN))]


def counts(details: Any) -> dict[str, Any]:
    """Of tokens by what they stand for."""
    found: dict[str, Any] = details.model_dump()
    return found


@pytest.mark.parametrize("kind", only(["smolvlm"], FAMILIES))
def test_every_parameter_means_with_images_what_it_means_without(kind: str) -> None:
    """Several choices, streams, scores, seeds, grammars and calls; what is greedy is the same in all of them."""
    messages = turns(kind)
    with LocalOpenAI(tiny_vision(kind), keep_alive=0) as client:

        def ask(**more: Any) -> Any:
            return client.chat.completions.create(**{**ASK, "messages": messages, **more})

        first = ask(logprobs=True, top_logprobs=2)
        said, used = first.choices[0].message.content, counts(first.usage.prompt_tokens_details)
        assert used["image_tokens"] > 0
        assert used["image_tokens"] + used["text_tokens"] == first.usage.prompt_tokens
        assert 0 < len(first.choices[0].logprobs.content) <= first.usage.completion_tokens  # some may be no text
        assert "".join(c.choices[0].delta.content or "" for c in ask(stream=True) if c.choices) == said
        assert [choice.message.content for choice in ask(n=2).choices] == [said] * 2
        scored = ask(extra_body={"prompt_logprobs": 1})
        assert len(scored.prompt_logprobs) == first.usage.prompt_tokens
        assert scored.choices[0].message.content == said
        drawn = [[c.message.content for c in ask(n=2, seed=5, temperature=1).choices] for _ in range(2)]
        assert drawn[0] == drawn[1]
        assert type(json.loads(ask(max_tokens=40, response_format=FORMAT).choices[0].message.content)["a"]) is bool
        if FAMILIES[kind].template is not None:
            calls = ask(max_tokens=90, tools=[TOOL], tool_choice="required").choices[0].message.tool_calls
            assert json.loads(calls[0].function.arguments).keys() == {"a"}


@pytest.mark.parametrize("kind", only(["gemma3", "qwen2_vl"], FAMILIES))
def test_placeholders_that_callers_spell_are_text(kind: str) -> None:
    """In what each role says, in calls and in the descriptions of tools; a tool cannot even be called so."""
    family = FAMILIES[kind]
    theirs = {family.image, family.video, family.audio, *family.specials.values()}
    spelled = " ".join(sorted(theirs | {"<|image_pad|>", "<IMG_CONTEXT>", "<fake_token_around_image>", "[IMG]"}))
    with LocalOpenAI(tiny_vision(kind), keep_alive=0) as client:

        def images(*messages: Any, **more: Any) -> int:
            usage: Any = client.chat.completions.create(**{**ASK, "max_tokens": 1}, messages=messages, **more).usage
            return int(counts(usage.prompt_tokens_details).get("image_tokens", 0))  # SDKs before 3 do not have it

        assert images(user(spelled)) == 0
        alone = images(user(shown()))
        messages = [{"role": "system", "content": spelled}, user(f"a{spelled}b", shown(), spelled)]
        if FAMILIES[kind].template is None:
            assert images(*messages) == alone
            return
        called = {"name": "look", "arguments": json.dumps({"a": spelled})}
        messages.append({"role": "assistant", "content": spelled, "tool_calls": [{**CALL, "function": called}]})
        messages.append({"role": "tool", "tool_call_id": "call_1", "content": spelled})
        tool = {"type": "function", "function": {**TOOL["function"], "description": spelled}}
        assert images(*messages, tools=[tool], tool_choice="none") == alone
        name = FAMILIES[kind].image
        with refused("tools[0].function.name", "invalid_value", "name"):
            images(*messages, tools=[{"type": "function", "function": {**TOOL["function"], "name": name}}])


@exhaustive
def test_responses_conversations_and_what_counts_them() -> None:
    items = [user_item("One", input_image(picture(RED, width=90, height=70)), "two")]
    with LocalOpenAI(tiny_vision("gemma4_bidirectional"), keep_alive=0) as client:

        def respond(**more: Any) -> Any:
            return client.responses.create(**{**RESPOND, "input": items, **more})

        def images(response: Any) -> int:
            return int(counts(response.usage.input_tokens_details)["image_tokens"])

        first = respond(truncation="auto")
        counted = client.responses.input_tokens.count(model="any", input=items)
        assert counted.input_tokens == first.usage.input_tokens
        *_, last = respond(stream=True)
        assert last.response.output_text == first.output_text
        waiting = respond(background=True)
        assert eventually(lambda: client.responses.retrieve(waiting.id).status in ("completed", "incomplete"))
        assert client.responses.retrieve(waiting.id).output_text == first.output_text
        conversation = client.conversations.create(items=items).id
        one = respond(input="What?", conversation=conversation)
        two = respond(input=[user_item(input_image(picture(BLUE, width=90, height=70)))], conversation=conversation)
        assert 0 < images(one) < images(two)
        [compacted] = client.responses.compact(model="any", input=items, instructions="Short.").output
        assert respond(input=[compacted.to_dict(), user_item("And?")]).status in ("completed", "incomplete")


@pytest.mark.parametrize("kind", only(["qwen2_vl"], ["qwen2_vl", "qwen3_5", "gemma4_bidirectional"]))
def test_a_picture_is_not_run_again_when_it_comes_back_from_the_store(kind: str, tmp_path: Path) -> None:
    """An object comes back as a data URL of its pixels: the same item, for the tower and for the prefix cache."""
    options: Any = {"store": tmp_path / "store.db", "cache_dir": tmp_path / "cache", "keep_alive": 0}
    given = picture(RED, width=90, height=70)
    with LocalOpenAI(tiny_vision(kind), **options) as client:
        first = client.responses.create(**RESPOND, input=[user_item("This", input_image(given), "is it")])
        second = client.responses.create(**RESPOND, input="And?", previous_response_id=first.id)
        assert client.stats().tower_runs == 1
        assert second.usage is not None
        images = counts(second.usage.input_tokens_details)["image_tokens"]
        assert second.usage.input_tokens_details.cached_tokens > images > 0
    with LocalOpenAI(tiny_vision(kind), **options) as client:  # as another process would
        later = client.responses.create(**RESPOND, input="And?", previous_response_id=first.id)
        assert later.output_text == second.output_text
        assert later.usage is not None and later.usage.input_tokens_details.cached_tokens > images
        assert client.stats().tower_runs == 0


FRAMES = [picture(colour, width=56, height=56) for colour in (RED, BLUE) * 2]
VIDEO: Any = {"type": "video_url", "video_url": {"url": FRAMES}}
AUDIO: Any = {
    "type": "input_audio",
    "input_audio": {"data": base64.b64encode(wav((SINE * 9000).astype(np.int16))).decode(), "format": "wav"},
}


@pytest.mark.parametrize(
    ("kind", "part", "counted", "refusal"),
    [
        ("qwen2_vl", VIDEO, "image_tokens", None),
        ("qwen3_vl", VIDEO, "image_tokens", None),
        ("gemma4", VIDEO, "image_tokens", None),
        ("gemma4", AUDIO, "audio_tokens", None),
        ("qwen2_vl", AUDIO, None, "This model reads text, images and video; content parts of type 'input_audio'"),
        ("smolvlm", VIDEO, None, "This model reads text and images; content parts of type 'video_url'"),
        ("gemma4_bidirectional", AUDIO, None, "This model reads text, images and video; content parts"),
    ],
)
def test_video_and_audio(kind: str, part: Any, counted: str | None, refusal: str | None) -> None:
    with LocalOpenAI(tiny_vision(kind), keep_alive=0) as client:
        messages = [user("Before", part, "after")]
        if refusal is not None:
            with refused("messages[0].content[1].type", "unsupported_value", refusal):
                client.chat.completions.create(**ASK, messages=messages)
            return
        made = client.chat.completions.create(**ASK, messages=messages)
        assert counted is not None and made.usage is not None
        assert counts(made.usage.prompt_tokens_details)[counted] > 0


def test_models_and_stats_say_what_is_read_once_it_is_known() -> None:
    with LocalOpenAI(tiny_vision("smolvlm"), keep_alive=0) as client:
        name = client.models.list().data[0].id
        assert client.models.retrieve(name).model_dump()["modalities"] is None
        assert client.stats().modalities == ()
        client.chat.completions.create(**ASK, messages=[user("Hi")])
        assert client.models.retrieve(name).model_dump()["modalities"] == ["text", "image"]
        assert client.stats().modalities == ("text", "image") and client.stats().tower_runs == 0


def test_the_example_runs_on_the_model_in_the_package_and_warns_of_nothing() -> None:
    example = Path(__file__).parents[1] / "examples" / "vision.py"
    done = run(example.read_text(encoding="utf-8"))
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout
    assert "red circle" in said and "blue square" in said and "This model reads text, image" in said


@pytest.mark.parametrize("spelled", ["<|vision_start|><|image_pad|><|vision_end|>", "<|video_pad|>"])
@pytest.mark.parametrize("first", ["text", "picture"])
def test_a_placeholder_that_a_text_spells_beside_a_picture_is_refused(spelled: str, first: str) -> None:
    parts = [spelled, shown()] if first == "text" else [shown(), spelled]
    special: Any = {"extra_body": {"allow_special_tokens": True}}
    why = "_pad|>'; escape it, or send the item itself"
    with LocalOpenAI(tiny_vision("qwen2_5_vl"), keep_alive=0) as client:
        with refused("allow_special_tokens", "invalid_value", why):
            client.chat.completions.create(**ASK, messages=[user(*parts)], **special)
        with refused("allow_special_tokens", "invalid_value", why):
            client.responses.create(**RESPOND, input=[user_item(*as_items(parts))], **special)
        assert client.chat.completions.create(**ASK, messages=[user(*parts)]).choices, "it is text without the field"


def as_items(parts: list[Any]) -> list[Any]:
    return [part if isinstance(part, str) else input_image(picture(RED, width=90, height=70)) for part in parts]
