"""Copies of validated objects are what validation would make, and share nothing that can be changed."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

from localai_shim import LocalOpenAI
from localai_shim.endpoints.chat.assembler import Original
from tests.conftest import MESSAGES, revalidate


def validated(text: str, **more: object) -> ChatCompletionChunk:
    delta = {"reasoning_content": None, "content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": None}
    fields = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}
    return ChatCompletionChunk.model_validate(fields)


def copied(original: ChatCompletionChunk, text: str) -> ChatCompletionChunk:
    return Original(original, "choices", "delta").copy({"content": text})


def parts(chunk: ChatCompletionChunk) -> list[Any]:
    return [chunk, chunk.choices[0], chunk.choices[0].delta]


@pytest.mark.parametrize("more", [{}, {"usage": None}, {"service_tier": "default", "beyond": 3}])
def test_a_copy_is_what_validation_makes(more: dict[str, object]) -> None:
    made, wanted = copied(validated("first", **more), "second"), validated("second", **more)
    assert made == wanted and repr(made) == repr(wanted)
    for mine, theirs in zip(parts(made), parts(wanted), strict=True):
        assert type(mine) is type(theirs)
        assert mine.model_fields_set == theirs.model_fields_set
        assert mine.model_extra == theirs.model_extra
        assert list(mine.__dict__) == list(theirs.__dict__)
        assert mine.__pydantic_private__ == theirs.__pydantic_private__
    assert made.to_json() == wanted.to_json() and made.to_dict() == wanted.to_dict()
    assert made.model_dump(exclude_unset=False) == wanted.model_dump(exclude_unset=False)
    revalidate(made)


def test_a_copy_can_be_copied_pickled_and_changed() -> None:
    made = copied(validated("first"), "second")
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), made.model_copy(deep=True)):
        assert again == made
    made.usage = None
    made.choices[0].delta.content = "third"
    made.choices[0].delta.mine = 1  # type: ignore[attr-defined]
    assert "usage" in made.model_fields_set
    assert made.to_dict()["choices"][0]["delta"] == {"reasoning_content": None, "content": "third", "mine": 1}  # type: ignore[index]


def test_copies_change_neither_each_other_nor_those_that_come() -> None:
    original = validated("first")
    one, other = copied(original, "second"), copied(original, "second")
    for part in parts(one):
        part.model_fields_set.clear()
        part.__dict__.clear()
        part.model_extra["more"] = 1
    assert other == copied(original, "second") == validated("second")


def _stream(client: LocalOpenAI, **fields: Any) -> list[ChatCompletionChunk]:
    return list(client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=12, stream=True, **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 3},
        {"stream_options": {"include_usage": True}},
        {"store": True},
        {"stop": ["never said"]},
        {"prediction": {"type": "content", "content": "Hello"}},
    ],
)
def test_every_chunk_of_a_stream_is_as_its_own_class_makes_it(client: LocalOpenAI, fields: dict[str, Any]) -> None:
    chunks = _stream(client, temperature=0, **fields)
    texts = [c for c in chunks if c.choices and c.choices[0].delta.content]
    assert len(texts) > 3
    for chunk in texts:
        again = ChatCompletionChunk.model_validate(chunk.to_dict())
        assert again == chunk
        for mine, theirs in zip(parts(chunk), parts(again), strict=True):
            assert mine.model_fields_set == theirs.model_fields_set and mine.model_extra == theirs.model_extra
    spoken = {i: "".join(c.choices[0].delta.content for c in texts if c.choices[0].index == i) for i in range(3)}  # type: ignore[misc]
    whole: Any = client.chat.completions.create(
        model="m",
        messages=MESSAGES,
        max_tokens=12,
        temperature=0,
        **{k: v for k, v in fields.items() if k != "stream_options"},
    )
    assert [spoken[choice.index] for choice in whole.choices] == [choice.message.content for choice in whole.choices]


def test_a_caller_who_changes_chunks_changes_no_later_ones(client: LocalOpenAI) -> None:
    wanted = [c.choices[0].delta.content for c in _stream(client, temperature=0)]
    found = []
    for chunk in client.chat.completions.create(
        model="m", messages=MESSAGES, max_tokens=12, stream=True, temperature=0
    ):
        found.append(chunk.choices[0].delta.content)
        chunk.choices[0].delta.content = "mine"
        chunk.choices[0].delta.model_fields_set.add("role")
        chunk.choices.clear()
        chunk.__dict__["id"] = "mine"
    assert found == wanted
