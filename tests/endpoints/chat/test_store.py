"""Chat completions that are stored: asked for whole or as a stream, found again, listed, changed, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.endpoints.functions import TOOLS, call


@pytest.fixture
def client() -> Iterator[LocalOpenAI]:
    engine = ScriptedEngine(
        lambda request, prompt, before: call("ping", {}) if "Ping" in prompt else f"answer {before}"
    )
    with LocalOpenAI(engine=engine) as made:
        yield made
    engine.close()


def ask(client: LocalOpenAI, text: str = "Hello", **more: Any) -> Any:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    return client.chat.completions.create(**{"model": "m", "messages": messages, **more})


def test_what_is_stored_is_found_again(client: LocalOpenAI) -> None:
    made = ask(client, store=True, metadata={"topic": "tests"}, n=2)
    found = client.chat.completions.retrieve(made.id)
    assert found.choices == made.choices and found.usage == made.usage
    assert found.to_dict()["metadata"] == {"topic": "tests"}
    messages = list(client.chat.completions.messages.list(made.id))
    assert [(message.role, message.content) for message in messages] == [("system", "Be brief."), ("user", "Hello")]


@pytest.mark.parametrize("text", ["Hello", "Ping"])
def test_a_stream_is_stored_as_it_would_be_whole(client: LocalOpenAI, text: str) -> None:
    chunks = list(ask(client, text, store=True, stream=True, tools=TOOLS, logprobs=True))
    found = client.chat.completions.retrieve(chunks[0].id)
    [choice] = found.choices
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert (choice.message.content or "") == said
    assert choice.finish_reason == chunks[-1].choices[0].finish_reason
    assert bool(choice.message.tool_calls) == (text == "Ping")
    assert found.usage is not None and found.usage.completion_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_only_reasoning_is_stored_with_an_empty_content(stream: bool) -> None:
    with ScriptedEngine(["<think>Hm, let me"]) as engine, LocalOpenAI(engine=engine) as client:
        made = ask(client, store=True, stream=stream)
        id = next(iter(list(made))).id if stream else made.id
        message: Any = client.chat.completions.retrieve(id).choices[0].message
        assert (message.content, message.reasoning_content) == ("", "Hm, let me")


def test_a_stream_that_is_left_is_not_stored(client: LocalOpenAI) -> None:
    stream = ask(client, store=True, stream=True)
    id = next(stream).id
    stream.close()
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.retrieve(id)


def test_completions_that_do_not_ask_for_it_are_not_stored(client: LocalOpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.retrieve(ask(client).id)


def test_stored_completions_are_listed_changed_and_deleted(client: LocalOpenAI) -> None:
    made = [ask(client, store=True, metadata={"number": str(i)}) for i in range(5)]
    listed = list(client.chat.completions.list(limit=2))
    assert [one.id for one in listed] == [one.id for one in made]
    [third] = client.chat.completions.list(metadata={"number": "2"})
    assert third.id == made[2].id
    changed = client.chat.completions.update(third.id, metadata={"number": "9"})
    assert changed.id == third.id and not list(client.chat.completions.list(metadata={"number": "2"}))
    assert client.chat.completions.delete(third.id).deleted
    assert [one.id for one in client.chat.completions.list(order="desc")] == [
        one.id for one in reversed(made) if one.id != third.id
    ]
