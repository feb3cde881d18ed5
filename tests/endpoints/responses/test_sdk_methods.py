"""The SDK's own ways to a response: parse, stream helpers, pydantic tools, raw and streamed responses, copies."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, Literal, get_args

import openai
import openai.lib
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import Reply, ScriptedEngine
from tests.endpoints.responses.legal import check_response, check_stream

CREATE: dict[str, Any] = {"model": "m", "input": "Hello there", "max_output_tokens": 8, "temperature": 0}
ANN = "Ann is one year old."


class Person(BaseModel):
    name: Literal["Ann", "Bob"]
    age: Literal[1, 2]


class Weather(BaseModel):
    """Tells the weather in a city."""

    city: Literal["Paris", "Rome"]


WEATHER: Any = {"type": "function", **openai.pydantic_function_tool(Weather)["function"]}
CALL = f"<tool_call>\n{json.dumps({'name': 'Weather', 'arguments': {'city': 'Rome'}})}\n</tool_call>"


def parse_sse(text: str) -> list[dict[str, Any]]:
    """The events of a server-sent stream, each under its own name."""
    events = []
    for block in text.strip().split("\n\n"):
        name, _, data = block.partition("\n")
        if name != "data: [DONE]":
            events.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {events[-1]['type']}"
    return events


@pytest.fixture(scope="module")
def expected(client: LocalOpenAI) -> str:
    """What the tiny model says to the usual request."""
    return str(client.responses.create(**CREATE).output_text)


# -- parse and stream -----------------------------------------------------------------------------------------------


def test_parse_gives_an_object_of_the_class(builtin: LocalOpenAI) -> None:
    made = builtin.responses.parse(model="m", input=ANN, text_format=Person)
    check_response(made)
    assert isinstance(made.output_parsed, Person)
    assert made.output_parsed == Person.model_validate_json(made.output_text)
    assert made.text is not None and made.text.format is not None and made.text.format.type == "json_schema"
    again = builtin.responses.parse(model="m", input="And Bob?", text_format=Person, previous_response_id=made.id)
    assert isinstance(again.output_parsed, Person)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of openai 2, about objects of its own
def test_what_parse_returned_can_be_sent_back(builtin: LocalOpenAI) -> None:
    made = builtin.responses.parse(model="m", input=ANN, text_format=Person, store=False)
    items: Any = [{"role": "user", "content": ANN}, *made.output, {"role": "user", "content": "Thank you."}]
    again = builtin.responses.create(model="m", input=items, max_output_tokens=4)
    assert again.usage is not None and made.usage is not None
    assert again.usage.input_tokens > made.usage.total_tokens


def test_a_cut_object_is_not_parsed(builtin: LocalOpenAI) -> None:
    with pytest.raises(ValueError, match="EOF while parsing"):
        builtin.responses.parse(model="m", input=ANN, text_format=Person, max_output_tokens=2)


def test_parse_takes_a_verbosity(client: LocalOpenAI) -> None:
    for verbosity in ("medium", "high"):
        made = client.responses.create(**CREATE, extra_body={"verbosity": verbosity})  # as `parse` sends it
        assert made.text is not None and made.text.verbosity == verbosity


def test_the_stream_helper_gives_the_object_at_the_end(builtin: LocalOpenAI) -> None:
    with builtin.responses.stream(model="m", input=ANN, text_format=Person) as stream:
        events: list[Any] = list(stream)
        final = stream.get_final_response()
    assert isinstance(final.output_parsed, Person)
    [done] = [event for event in events if event.type == "response.output_text.done"]
    assert done.parsed == final.output_parsed
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert "".join(event.delta for event in deltas) == deltas[-1].snapshot == final.output_text


def test_a_function_made_of_a_class_is_called_and_parsed() -> None:
    with ScriptedEngine([CALL, CALL], obey_constraints=True) as engine:
        client = LocalOpenAI(engine=engine)
        made: Any = client.responses.parse(model="m", input="Rome?", tools=[WEATHER])
        with client.responses.stream(model="m", input="Rome?", tools=[WEATHER]) as stream:
            events: list[Any] = list(stream)
            final: Any = stream.get_final_response()
    for response in (made, final):
        check_response(response)
        [call] = response.output
        assert call.type == "function_call" and call.name == "Weather"
        assert call.parsed_arguments == {"city": "Rome"}
    deltas = [event for event in events if event.type == "response.function_call_arguments.delta"]
    assert deltas[-1].snapshot == final.output[0].arguments
    assert made.tools[0].to_dict()["strict"] is True


def test_a_class_of_the_sdks_tool_is_what_the_arguments_become() -> None:
    make = getattr(openai.lib, "pydantic_responses_function_tool", None)
    if make is None:
        pytest.skip("openai 2 has no such function")
    with ScriptedEngine([CALL, "Sunny."]) as engine:
        client = LocalOpenAI(engine=engine)
        made: Any = client.responses.parse(model="m", input="Rome?", tools=[make(Weather)])
        [call] = made.output
        assert call.parsed_arguments == Weather(city="Rome")
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        items: Any = [{"role": "user", "content": "Rome?"}, call, output]
        assert client.responses.create(model="m", input=items).output_text == "Sunny."
        assert "<tool_response>\nsunny" in engine.prompts[1]


# -- raw ------------------------------------------------------------------------------------------------------------


def test_a_raw_response_has_json_and_headers(client: LocalOpenAI, expected: str) -> None:
    raw = client.responses.with_raw_response.create(**CREATE)
    made = raw.parse()
    check_response(made)
    assert made.output_text == expected and made.to_dict(mode="json") == raw.http_response.json()
    assert raw.headers["content-type"] == "application/json" and raw.headers["x-request-id"]
    again = client.responses.with_raw_response.retrieve(made.id)
    assert again.http_response.json() == raw.http_response.json() and again.parse() == made
    gone = client.responses.with_raw_response.delete(made.id)
    assert gone.http_response.json() == {"id": made.id, "object": "response", "deleted": True}


def test_a_raw_stream_is_events_with_their_names(client: LocalOpenAI, expected: str) -> None:
    raw = client.responses.with_raw_response.create(**CREATE, stream=True)
    assert raw.headers["content-type"].startswith("text/event-stream")
    events: Any = list(raw.parse())
    check_stream(events)
    assert events[-1].response.output_text == expected
    body = client.responses.with_raw_response.create(**CREATE, stream=True).http_response.read().decode()
    assert [event["type"] for event in parse_sse(body)] == [event.type for event in events]


def test_a_streaming_response_is_read_in_every_way(client: LocalOpenAI, expected: str) -> None:
    create = client.responses.with_streaming_response.create
    with create(**CREATE) as response:
        assert response.parse().output_text == expected
    with create(**CREATE) as response:
        assert json.loads("".join(response.iter_text()))["status"] == "incomplete"
    with create(**CREATE, stream=True) as response:
        check_stream(list(response.parse()))
    with create(**CREATE, stream=True) as response:
        lines = list(response.iter_lines())
    assert parse_sse("\n".join(lines))[-1]["response"]["output"][0]["content"][0]["text"] == expected


@pytest.mark.anyio
async def test_the_async_client_does_all_of_it(async_client: AsyncLocalOpenAI, expected: str) -> None:
    made = await async_client.responses.parse(**CREATE)
    assert made.output_text == expected
    raw = await async_client.responses.with_raw_response.create(**CREATE)
    assert raw.parse().output_text == expected
    async with async_client.responses.with_streaming_response.create(**CREATE, stream=True) as response:
        check_stream([event async for event in await response.parse()])
    async with async_client.responses.stream(**CREATE) as stream:
        events = [event async for event in stream]
    assert events[-1].type == "response.incomplete" and events[-1].response.output_text == expected
    items = async_client.responses.input_items.list(made.id)
    assert [item.type async for item in items] == ["message"]
    conversation = await async_client.conversations.create(metadata={"topic": "tests"})
    assert (await async_client.conversations.retrieve(conversation.id)).metadata == {"topic": "tests"}


def test_post_and_get_cast_to_what_is_asked_for(client: LocalOpenAI, expected: str) -> None:
    made = client.post("/responses", cast_to=Response, body=CREATE)
    check_response(made)
    assert made.output_text == expected
    plain: Any = client.get(f"/responses/{made.id}", cast_to=dict[str, Any])
    assert plain == made.to_dict(mode="json")


def test_strict_response_validation_accepts_every_answer(model_path: Any, expected: str) -> None:
    with LocalOpenAI(model_path, _strict_response_validation=True) as strict:
        made = strict.responses.create(**CREATE)
        assert made.output_text == expected and strict.responses.retrieve(made.id) == made
        check_stream(list(strict.responses.create(**CREATE, stream=True)))
        conversation = strict.conversations.create(items=[{"role": "user", "content": "Hello"}])
        [item] = strict.conversations.items.list(conversation.id)
        assert strict.conversations.items.retrieve(str(item.id), conversation_id=conversation.id) == item
        assert strict.responses.input_tokens.count(model="m", input="Hello").input_tokens > 5
        assert [item.type for item in strict.responses.input_items.list(made.id)] == ["message"]


# -- copies ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def original() -> Iterator[LocalOpenAI]:
    """Says how many messages it was sent."""

    def count(request: Any, prompt: str, before: int) -> Reply:
        return Reply(f"{prompt.count('<|im_start|>') - 1} messages.")

    with ScriptedEngine(count) as engine, LocalOpenAI(engine=engine) as client:
        yield client


COPIES: dict[str, Any] = {
    "copy": lambda client: client.copy(),
    "with_options": lambda client: client.with_options(timeout=60, max_retries=0),
    "with_options(http_client)": lambda client: client.with_options(http_client=client._client),
    "copy.copy": copy.copy,
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_shares_what_is_stored(original: LocalOpenAI, name: str) -> None:
    made = COPIES[name](original)
    first = original.responses.create(model="m", input="One")
    second = made.responses.create(model="m", input="Two", previous_response_id=first.id)
    assert (first.output_text, second.output_text) == ("1 messages.", "3 messages.")
    assert original.responses.retrieve(second.id) == second
    conversation = made.conversations.create()
    original.responses.create(model="m", input="Hello", conversation=conversation.id)
    assert len(made.conversations.items.list(conversation.id).data) == 2
    made.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match=first.id):
        original.responses.retrieve(first.id)


def test_another_client_has_a_store_of_its_own(original: LocalOpenAI, client: LocalOpenAI) -> None:
    made = original.responses.create(model="m", input="One")
    with pytest.raises(openai.NotFoundError, match=made.id):
        client.responses.retrieve(made.id)


def test_a_response_in_the_background_is_followed_by_a_copy(original: LocalOpenAI) -> None:
    queued = original.responses.create(model="m", input="One", background=True)
    events: Any = list(original.copy().responses.retrieve(queued.id, stream=True))
    check_stream(events)
    assert events[-1].response.output_text == "1 messages."
    assert original.responses.retrieve(queued.id).status == "completed"


def test_every_event_that_a_stream_makes_is_of_the_sdks_union(original: LocalOpenAI) -> None:
    from openai.types.responses import ResponseStreamEvent

    known = set(get_args(get_args(ResponseStreamEvent)[0]))
    events = list(original.responses.create(model="m", input="One", stream=True))
    assert {type(event) for event in events} <= known
