"""Values of a request are read as the SDK's own encoder would write them, and refused where it would refuse them."""

from __future__ import annotations

import json
import re
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import numpy as np
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_serializer

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.errors import BadRequest
from localai_shim.sdk import private as sdk
from localai_shim.sdk.requests import read_body
from localai_shim.testing import ScriptedEngine, ScriptedOpenAI
from localai_shim.testing.cassettes.engine import play_cassette
from tests.conftest import refused
from tests.endpoints.batches.batching import CHAT, finished, line, read


class Word(str, Enum):  # noqa: UP042
    """What programs on Python before 3.11 have; `str` of a member is `Word.low`."""

    low = "low"
    auto = "auto"
    disabled = "disabled"
    ada = "Ada ü"
    function = "function"
    user = "user"
    batch = "batch"
    chat = "/v1/chat/completions"
    day = "24h"

    def __str__(self) -> str:
        return f"Word.{self.name}"


class Newer(StrEnum):
    low = "low"


class Number(IntEnum):
    two = 2


class Half(float, Enum):
    half = 0.5


class City(BaseModel):
    name: str = Field(alias="cityName")
    since: datetime | None = None
    left_out: int = 5
    word: Word = Word.low


Pair = namedtuple("Pair", "a b")
NOON = datetime(2026, 5, 9, 12, 30, tzinfo=UTC)
ROME = City(cityName="Rome", since=NOON)
USER: list[Any] = [{"role": "user", "content": "Hi"}]

LEAVES = st.sampled_from(
    [
        None,
        True,
        1,
        0.5,
        "a",
        Word.ada,
        Newer.low,
        Number.two,
        Half.half,
        np.float64(0.25),
        NOON,
        ROME,
        City(cityName="x"),
    ]
)
KEYS = st.sampled_from(["a", "b", Word.low, Newer.low, Number.two, 7, 0.5, True, None, np.str_("c")])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Pair, inner, inner),
        st.dictionaries(KEYS, inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=2).map(OrderedDict),
    ),
    max_leaves=8,
)


def body_of(given: Any, more: Any = None) -> dict[str, Any]:
    return read_body(sdk.RequestOptions.construct(method="post", url="/x", json_data=given, extra_json=more))


def types_in(value: Any) -> set[type]:
    inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return {type(value)}.union(*map(types_in, inside))


@given(st.dictionaries(st.sampled_from(["a", "b", Word.low]), VALUES, max_size=3))
def test_a_body_is_what_the_sdk_would_send(body: dict[Any, Any]) -> None:
    before = repr(body)
    made = body_of(body)
    assert made == json.loads(sdk.openapi_dumps(body))
    assert types_in(made) <= {dict, list, str, int, float, bool, type(None)}
    assert repr(body) == before


def test_plain_json_is_not_copied() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "x"}]}] * 3
    tokens = [[1, 2, 3]]
    made = body_of({"messages": messages, "tokens": tokens})
    assert made["messages"] is messages and made["tokens"] is tokens


def test_what_is_around_a_changed_value_is_copied_and_the_rest_is_not() -> None:
    messages: list[Any] = [{"role": "user", "content": "x"}, {"role": Word.user, "content": "x"}]
    made = body_of({"messages": messages})["messages"]
    assert made[0] is messages[0] and made[1] == {"role": "user", "content": "x"}
    assert type(messages[1]["role"]) is Word


def test_what_was_omitted_is_left_out() -> None:
    assert body_of({"a": 1, "b": openai.omit}, {"c": openai.omit, "a": 2}) == {"a": 2}


NOT_JSON: list[Any] = [
    b"x",
    {1, 2},
    frozenset(),
    date(2026, 5, 9),
    Decimal(1),
    UUID(int=1),
    Path("x"),
    1j,
    float("nan"),
    float("-inf"),
    np.int64(3),
    np.zeros(2),
    range(3),
    object(),
    openai.NOT_GIVEN,
    MappingProxyType({"a": 1}),
    UserDict(a=1),
    "\ud800",
    City,
]


@pytest.mark.parametrize("value", NOT_JSON, ids=lambda value: type(value).__name__)
def test_what_the_sdk_cannot_encode_is_refused_by_its_path(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        sdk.openapi_dumps(value)
    if type(value) is str:  # of which the readers of fields say more
        assert body_of({"a": [value]}) == {"a": [value]}
        return
    with pytest.raises(BadRequest) as caught:
        body_of({"a": [{"b": {"c": (1, value)}}]})
    assert caught.value.param == "a[0].b.c[1]"
    assert caught.value.code == ("invalid_value" if isinstance(value, float) else "invalid_type")
    assert type(value).__name__ in caught.value.message or str(value) in caught.value.message


@pytest.mark.parametrize("key", [(1, 2), b"x", NOON, frozenset()])
def test_a_key_that_the_sdk_cannot_encode_is_refused_by_the_path_of_its_object(key: Any) -> None:
    with pytest.raises(TypeError):
        sdk.openapi_dumps({key: 1})
    with pytest.raises(BadRequest, match="expected keys that are strings") as caught:
        body_of({"a": {"b": {key: 1}}})
    assert caught.value.param == "a.b"
    with pytest.raises(BadRequest) as caught:
        body_of({key: 1})
    assert caught.value.param == "body"


def test_a_serializer_that_raises_fails_that_field() -> None:
    class Broken(BaseModel):
        a: int = 1

        @field_serializer("a")
        def _write(self, value: int) -> int:
            raise KeyError("no such thing")

    with pytest.raises(BadRequest, match="no such thing") as caught:
        body_of({"tools": [Broken(a=1)]})
    assert caught.value.param == "tools[0]"


def test_a_body_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(BadRequest, match=r"'tools'.*nested too deeply"):
        body_of({"tools": endless})


def test_objects_stay_where_a_url_may_be_and_nowhere_else() -> None:
    picture = np.zeros((2, 2, 3), np.uint8)
    part = {"type": "image_url", "image_url": {"url": picture}}
    assert body_of({"messages": [part]})["messages"][0]["image_url"]["url"] is picture
    assert body_of({"input": [{"video_url": [picture]}]})["input"][0]["video_url"][0] is picture
    with pytest.raises(BadRequest) as caught:
        body_of({"messages": [{"type": "text", "text": picture}]})
    assert caught.value.param == "messages[0].text"


# -- through the clients ---------------------------------------------------------------------------------------------

FUNCTION: dict[str, Any] = {
    "name": "look_up",
    "parameters": {
        "type": "object",
        "properties": {"word": {"type": "string", "enum": [Word.low, Word.ada], "default": Word.low}},
        "required": ("word",),
    },
}
METADATA: Any = {Word.low: Word.ada, "at": NOON}
READ_METADATA = {"low": "Ada ü", "at": "2026-05-09T12:30:00+00:00"}


@pytest.fixture
def scripted() -> Iterator[tuple[ScriptedEngine, LocalOpenAI]]:
    with ScriptedEngine(lambda request, prompt, before: "low") as engine, LocalOpenAI(engine=engine) as client:
        yield engine, client


RESPONSES: list[dict[str, Any]] = [
    {"reasoning": {"effort": Word.low, "summary": Word.auto}},
    {"text": {"verbosity": Word.low}},
    {"text": {"format": {"type": "json_schema", "name": Word.low, "schema": {"type": "string", "enum": [Word.low]}}}},
    {"truncation": Word.disabled},
    {"tools": [{"type": Word.function, **FUNCTION}], "tool_choice": Word.auto},
    {"tools": [{"type": "function", **FUNCTION}], "tool_choice": {"type": Word.function, "name": Newer("low")}},
    {"service_tier": Word.auto},
    {"prompt_cache_retention": Word.day},
    {"top_logprobs": Number.two},
    {"temperature": Half.half},
    {"instructions": Word.ada, "user": Word.ada, "metadata": METADATA, "safety_identifier": Word.low},
    {"input": [{"role": Word.user, "content": [{"type": "input_text", "text": Word.ada}]}]},
    {"extra_body": {"reasoning_effort": Word.low}},
]


@pytest.mark.parametrize("fields", RESPONSES, ids=lambda fields: next(iter(fields)))
def test_a_response_takes_members_of_enums(
    scripted: tuple[ScriptedEngine, LocalOpenAI], fields: dict[str, Any]
) -> None:
    _, client = scripted
    plain = json.loads(sdk.openapi_dumps(fields))
    if "name" in str(fields.get("tool_choice")):
        fields["tool_choice"]["name"] = plain["tool_choice"]["name"] = "look_up"
    made = client.responses.create(**{"model": Word.low, "input": "Hi", **fields})
    expected = client.responses.create(**{"model": "low", "input": "Hi", **plain})
    kept = client.responses.retrieve(made.id)
    for answer in (made, kept):
        assert {**answer.to_dict(), **GENERATED} == {**expected.to_dict(), **GENERATED}


GENERATED: dict[str, Any] = dict.fromkeys(["id", "created_at", "completed_at", "output"])


def test_instructions_metadata_and_user_are_stored_as_they_mean(scripted: tuple[ScriptedEngine, LocalOpenAI]) -> None:
    engine, client = scripted
    made = client.responses.create(model="m", input=Word.ada, instructions=Word.low, user=Word.ada, metadata=METADATA)
    kept: Any = client.responses.retrieve(made.id)
    assert (kept.instructions, kept.user, kept.metadata) == ("low", "Ada ü", READ_METADATA)
    assert "Word." not in engine.prompts[-1] and "Ada ü" in engine.prompts[-1]
    [item] = client.responses.input_items.list(made.id)
    assert item.to_dict()["content"] == [{"type": "input_text", "text": "Ada ü"}]


def test_a_chat_takes_members_of_enums_datetimes_and_pydantic_objects(
    scripted: tuple[ScriptedEngine, LocalOpenAI],
) -> None:
    engine, client = scripted
    call = {"id": Word.low, "type": Word.function, "function": {"name": Word.low, "arguments": Word.ada}}
    messages: list[Any] = [
        {"role": Word.user, "content": [{"type": "text", "text": Word.ada}]},
        {"role": "assistant", "tool_calls": (call,)},
        {"role": "tool", "tool_call_id": Word.low, "content": NOON},
    ]
    tool = {"type": "function", "function": {**FUNCTION, "parameters": {"type": "object", "default": ROME}}}
    client.chat.completions.create(
        model=Word.low,
        messages=messages,
        tools=[tool],
        reasoning_effort=Word.low,
        store=True,
        metadata=METADATA,
        logit_bias={Number.two: -1},  # type: ignore[dict-item]
        stop=(Word.ada,),  # type: ignore[arg-type]
        n=Number.two,
    )
    [prompt] = set(engine.prompts)
    assert "2026-05-09T12:30:00+00:00" in prompt and '{"name": "Rome", "since": "2026-05-09T12:30:00Z"}' in prompt
    assert "Word." not in prompt
    [kept] = client.chat.completions.list()
    assert kept.to_dict()["metadata"] == READ_METADATA
    assert "Word" not in kept.to_json() + str(
        [message.to_json() for message in client.chat.completions.messages.list(kept.id)]
    )


def test_completions_and_embeddings_take_members_of_enums(scripted: tuple[ScriptedEngine, LocalOpenAI]) -> None:
    engine, client = scripted
    client.completions.create(model="m", prompt=Word.ada, suffix=None, stop=Word.low)
    assert engine.prompts[-1] == "Ada ü"
    one = client.embeddings.create(model="m", input=Word.ada, user=Word.low).data[0].embedding
    assert client.embeddings.create(model="m", input=["Ada ü"]).data[0].embedding == one


def test_conversations_files_and_batches_take_members_of_enums(scripted: tuple[ScriptedEngine, LocalOpenAI]) -> None:
    _, client = scripted
    conversation = client.conversations.create(metadata=METADATA, items=[{"role": Word.user, "content": Word.ada}])
    assert client.conversations.retrieve(conversation.id).metadata == READ_METADATA
    [item] = client.conversations.items.list(conversation.id, order="asc")
    assert item.to_dict()["content"] == [{"type": "input_text", "text": "Ada ü"}]
    file = client.files.create(file=("in.jsonl", line("a").encode()), purpose=Word.batch)  # type: ignore[arg-type]
    assert file.purpose == "batch" and [each.id for each in client.files.list(purpose=Word.batch)] == [file.id]
    batch = client.batches.create(
        input_file_id=file.id,
        endpoint=Word.chat,  # type: ignore[arg-type]
        completion_window=Word.day,  # type: ignore[arg-type]
        metadata=METADATA,
    )
    done = finished(client, batch.id)
    assert (done.endpoint, done.completion_window, done.metadata) == (CHAT, "24h", READ_METADATA)
    assert list(read(client, done.output_file_id)) == ["a"]


@pytest.mark.anyio
async def test_the_async_client_reads_a_body_as_the_other(scripted: tuple[ScriptedEngine, LocalOpenAI]) -> None:
    engine, _ = scripted
    async with AsyncLocalOpenAI(engine=engine) as client:
        for _ in range(2):  # from the second on it is prepared on the event loop
            made: Any = await client.responses.create(
                model=Word.low, input=Word.ada, instructions=Word.low, metadata=METADATA, reasoning={"effort": Word.low}
            )
            assert (made.instructions, made.metadata, made.reasoning.effort) == ("low", READ_METADATA, "low")
        with pytest.raises(openai.BadRequestError, match=re.escape("'metadata.at'")):
            await client.responses.create(model="m", input="x", metadata={"at": b"x"})  # type: ignore[dict-item]


def test_a_scripted_client_remembers_what_would_have_been_sent() -> None:
    with ScriptedOpenAI() as client:
        client.script("Hello")
        client.chat.completions.create(
            model=Word.low, messages=[{"role": Word.user, "content": Word.ada}], metadata=METADATA, user=Newer.low
        )
        body = client.last_call.body
    assert body["metadata"] == READ_METADATA and (body["model"], body["user"]) == ("low", "low")
    assert types_in(body) == {dict, list, str}


def test_a_cassette_finds_a_request_whose_values_are_members_of_enums(
    scripted: tuple[ScriptedEngine, LocalOpenAI], tmp_path: Path
) -> None:
    _, source = scripted
    tape = tmp_path / "tape.jsonl"
    spoken: list[Any] = [{"role": "user", "content": "Ada ü at 2026-05-09T12:30:00+00:00"}]
    tool: Any = {"type": "function", "function": {**FUNCTION, "description": Word.low}}
    with play_cassette(tape, record_mode="once", source=source) as client:
        client.chat.completions.create(model="low", messages=spoken, tools=json.loads(sdk.openapi_dumps([tool])))
    with play_cassette(tape) as client:
        client.chat.completions.create(model=Word.low, messages=spoken, tools=[tool])


def test_bytes_as_content_are_refused_as_such(scripted: tuple[ScriptedEngine, LocalOpenAI]) -> None:
    """The SDK makes an array of integers of them before anybody else sees them."""
    _, client = scripted
    content: Any = b"Hello"
    with refused("messages[0].content", "invalid_type", "which the SDK makes of bytes. Pass a string"):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": content}])
    with refused("input[0].content", "invalid_type", "which the SDK makes of bytes. Pass a string"):
        client.responses.create(model="m", input=[{"role": "user", "content": content}])
