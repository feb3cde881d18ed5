"""Structured outputs through the SDK's own helpers: `parse`, `stream` and `pydantic_function_tool`."""

from __future__ import annotations

import datetime
import enum
import ipaddress
import itertools
import json
import uuid
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import openai
import pytest
from openai import LengthFinishReasonError
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.conftest import MESSAGES, revalidate
from tests.samples import only
from tests.tiny import TEMPLATE, tiny

CREATE: dict[str, Any] = {"model": "any", "messages": MESSAGES, "temperature": 1.2, "seed": 5, "max_tokens": 700}


def question(text: str, **more: Any) -> dict[str, Any]:
    """For the built-in checkpoint."""
    return {**CREATE, "messages": [{"role": "user", "content": text}], "temperature": 0, **more}


CAPITAL = "What is the capital of France?"
WEATHER = "What is the weather in Paris?"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Step(BaseModel):
    explanation: str = Field(max_length=8, description="What is done")
    done: bool


class Plan(BaseModel):
    model_config = ConfigDict(extra="forbid")
    steps: list[Step] = Field(max_length=3)
    colour: Colour
    mood: Literal["calm", "ż", 3]
    size: int | None = Field(ge=0, le=99)
    note: Step | None = None


class Tree(BaseModel):
    value: Literal[0, 1]
    children: list[Tree] = Field(max_length=1)


@dataclass
class Point:
    x: int = Field(ge=0, le=9)
    y: float = Field(ge=0, le=1)


class Moment(BaseModel):
    day: datetime.date
    time: datetime.time
    at: datetime.datetime


class Address(BaseModel):
    key: uuid.UUID
    host: ipaddress.IPv4Address | ipaddress.IPv6Address


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(gt=0, lt=10)


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str = Field(pattern="^[A-Z][a-z]{2,5}$")


class Zoo(BaseModel):
    star: Annotated[Cat | Dog, Field(discriminator="kind")]
    others: list[Cat | Dog] = Field(min_length=1, max_length=2)
    pair: tuple[bool, Literal["z"]]
    by_name: dict[str, bool] | None = Field(max_length=0)


TYPES: list[Any] = [Plan, Tree, Point, Moment, Address, Zoo]


class Answer(BaseModel):
    answer: str = Field(max_length=30)
    sure: bool


class GetWeather(BaseModel):
    """The weather of a place."""

    city: str = Field(max_length=12)
    days: int = Field(ge=1, le=9)
    unit: Literal["c", "f"]


WEATHER_TOOL = openai.pydantic_function_tool(GetWeather, name="get_weather")

TALKER = (
    "{%- if tools %}<tool_call>{{ tools | tojson }}</tool_call>{# as models of the kind that says tool_call.name #}\n"
    "{% endif -%}" + TEMPLATE + "{%- if add_generation_prompt and enable_thinking %}<think>\n{# </think> #}{% endif -%}"
)
"""Knows tools and thinking."""


@pytest.fixture(scope="module")
def talker() -> Iterator[LocalOpenAI]:
    """Random weights behind a template that knows tools and thinking."""
    with LocalOpenAI(tiny("qwen3", template=TALKER)) as client:
        yield client


# -- parse ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", TYPES)
def test_parse_makes_what_pydantic_accepts_of_an_untrained_model_s_answers(client: LocalOpenAI, wanted: Any) -> None:
    made = client.chat.completions.parse(**CREATE, n=4, response_format=wanted)
    for choice in made.choices:
        assert isinstance(choice.message.parsed, wanted)
        assert choice.message.parsed == TypeAdapter(wanted).validate_json(choice.message.content or "")
        assert choice.message.refusal is None and choice.finish_reason == "stop"


def test_parse_gets_the_text_that_create_gets(client: LocalOpenAI) -> None:
    made = client.chat.completions.parse(**CREATE, response_format=Plan)
    plain = client.chat.completions.create(**CREATE, response_format=format_of(Plan))
    assert made.choices[0].message.content == plain.choices[0].message.content


def format_of(wanted: Any) -> Any:
    """The `response_format` that the SDK makes of a type."""
    from openai.lib._parsing import type_to_response_format_param

    return type_to_response_format_param(wanted)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", only(["trio"], ["asyncio", "trio"]))
async def test_the_async_parse_says_the_same(client: LocalOpenAI, async_client: AsyncLocalOpenAI) -> None:
    made = await async_client.chat.completions.parse(**CREATE, response_format=Plan)
    same = client.chat.completions.parse(**CREATE, response_format=Plan)
    assert isinstance(made.choices[0].message.parsed, Plan) and made.choices == same.choices


def test_the_builtin_checkpoint_answers_in_json(builtin: LocalOpenAI) -> None:
    made = builtin.chat.completions.parse(**question(CAPITAL), response_format=Answer)
    assert isinstance(made.choices[0].message.parsed, Answer)
    cities = [f"The capital of France is {city}." for city in ("London", "Paris", "Rome")]
    chosen = builtin.chat.completions.create(**question(CAPITAL, extra_body={"guided_choice": cities}))
    assert chosen.choices[0].message.content == "The capital of France is Paris."


@pytest.mark.parametrize("most", [1, 5, 12])
def test_parse_raises_when_max_tokens_cut_the_answer(client: LocalOpenAI, most: int) -> None:
    create = {**CREATE, "max_tokens": most}
    with pytest.raises(LengthFinishReasonError) as caught:
        client.chat.completions.parse(**create, response_format=Plan)
    completion = caught.value.completion
    assert completion.choices[0].finish_reason == "length"
    assert completion.usage is not None and completion.usage.completion_tokens == most
    with (
        pytest.raises(LengthFinishReasonError),
        client.chat.completions.stream(**create, response_format=Plan) as stream,
    ):
        stream.until_done()


@pytest.mark.anyio
# The SDK's helper raises inside a loop over a generator of its own, which is collected half read; trio says so.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <async_generator object AsyncStream")
async def test_the_async_parse_raises_alike(async_client: AsyncLocalOpenAI) -> None:
    create = {**CREATE, "max_tokens": 5}
    with pytest.raises(LengthFinishReasonError):
        await async_client.chat.completions.parse(**create, response_format=Plan)
    async with async_client.chat.completions.stream(**create, response_format=Plan) as stream:
        with pytest.raises(LengthFinishReasonError):
            await stream.get_final_completion()


# -- stream -----------------------------------------------------------------------------------------------------------


def check_events(events: list[Any], wanted: type[BaseModel]) -> None:
    """What the SDK's helper promises of a structured answer."""
    deltas = [event for event in events if event.type == "content.delta"]
    [done] = [event for event in events if event.type == "content.done"]
    assert "".join(event.delta for event in deltas) == done.content
    assert isinstance(done.parsed, wanted)
    partial = [event.parsed for event in deltas if event.parsed is not None]
    assert len(partial) > 5 and partial[-1] == json.loads(done.content)
    for before, after in itertools.pairwise(partial):
        assert set(before) <= set(after), "what was there stays"
    assert [event.type for event in events if event.type.startswith("refusal")] == []


def test_the_stream_helper_parses_as_the_answer_grows(client: LocalOpenAI, builtin: LocalOpenAI) -> None:
    asked: list[tuple[LocalOpenAI, dict[str, Any], type[BaseModel]]] = [
        (builtin, question(CAPITAL), Answer),
        (client, CREATE, Plan),
    ]
    for asker, create, wanted in asked:
        whole = asker.chat.completions.parse(**create, response_format=wanted)
        with asker.chat.completions.stream(**create, response_format=wanted) as stream:
            events = list(stream)
            final = stream.get_final_completion()
        check_events(events, wanted)
        assert final.choices[0].message.parsed == whole.choices[0].message.parsed
        assert final.choices[0].message.content == whole.choices[0].message.content


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", only(["trio"], ["asyncio", "trio"]))
async def test_the_async_stream_helper_does_alike(client: LocalOpenAI, async_client: AsyncLocalOpenAI) -> None:
    whole = client.chat.completions.parse(**CREATE, response_format=Plan)
    async with async_client.chat.completions.stream(**CREATE, response_format=Plan) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_completion()
    check_events(events, Plan)
    assert final.choices[0].message.parsed == whole.choices[0].message.parsed


def test_every_choice_of_a_stream_is_parsed(client: LocalOpenAI) -> None:
    whole = client.chat.completions.parse(**CREATE, n=3, response_format=Plan)
    with client.chat.completions.stream(**CREATE, n=3, response_format=Plan) as stream:
        final = stream.get_final_completion()
    assert [c.message.parsed for c in final.choices] == [c.message.parsed for c in whole.choices]


# -- tools ------------------------------------------------------------------------------------------------------------


def test_a_pydantic_tool_s_arguments_are_parsed(builtin: LocalOpenAI, talker: LocalOpenAI) -> None:
    forced = {**CREATE, "tool_choice": "required", "parallel_tool_calls": False, "reasoning_effort": "none"}
    asked: list[tuple[LocalOpenAI, dict[str, Any]]] = [
        (builtin, question(WEATHER)),
        (talker, {**forced, "n": 6}),
    ]
    for asker, create in asked:
        made = asker.chat.completions.parse(**create, tools=[WEATHER_TOOL])
        for choice in made.choices:
            assert choice.finish_reason == "tool_calls" and choice.message.content is None
            [call] = choice.message.tool_calls or []
            assert call.function.name == "get_weather"
            assert isinstance(call.function.parsed_arguments, GetWeather)
            assert json.loads(call.function.arguments) == call.function.parsed_arguments.model_dump()


def test_a_stream_of_a_pydantic_tool_s_arguments_is_parsed(builtin: LocalOpenAI) -> None:
    with builtin.chat.completions.stream(**question(WEATHER), tools=[WEATHER_TOOL]) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    [done] = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert isinstance(done.parsed_arguments, GetWeather)
    [call] = final.choices[0].message.tool_calls or []
    assert call.function.parsed_arguments == done.parsed_arguments


def test_with_tools_and_a_format_the_answer_is_a_call_or_follows_the_format(builtin: LocalOpenAI) -> None:
    calls, answers = (
        builtin.chat.completions.parse(**question(text), tools=[WEATHER_TOOL], response_format=Answer).choices[0]
        for text in (WEATHER, "Turn this into JSON: the answer is Paris, and sure is true.")
    )
    assert calls.finish_reason == "tool_calls" and calls.message.parsed is None
    assert [call.function.name for call in calls.message.tool_calls or []] == ["get_weather"]
    assert answers.finish_reason == "stop" and isinstance(answers.message.parsed, Answer)
    assert answers.message.tool_calls is None


def test_a_call_that_is_forced_needs_no_format(builtin: LocalOpenAI) -> None:
    create = question(CAPITAL, tools=[WEATHER_TOOL], tool_choice="required", response_format=Answer)
    [choice] = builtin.chat.completions.parse(**create).choices
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    assert all(isinstance(call.function.parsed_arguments, GetWeather) for call in choice.message.tool_calls or [])


# -- thinking ---------------------------------------------------------------------------------------------------------


def reasoning(message: Any) -> str:
    """Of a message or a delta."""
    return getattr(message, "reasoning_content", None) or ""


def test_the_grammar_starts_after_the_reasoning(builtin: LocalOpenAI) -> None:
    create = question(CAPITAL, response_format=format_of(Answer), extra_body={"enable_thinking": True})
    made = builtin.chat.completions.create(**create)
    revalidate(made)
    [choice] = made.choices
    assert reasoning(choice.message) and "{" not in reasoning(choice.message)
    assert isinstance(Answer.model_validate_json(choice.message.content or ""), Answer)
    assert made.usage is not None and made.usage.completion_tokens_details is not None
    assert 0 < (made.usage.completion_tokens_details.reasoning_tokens or 0) < made.usage.completion_tokens
    free = builtin.chat.completions.create(**{**create, "response_format": None})
    assert reasoning(free.choices[0].message) == reasoning(choice.message)


def test_a_stream_brings_the_reasoning_first(builtin: LocalOpenAI) -> None:
    create = question(CAPITAL, response_format=format_of(Answer), extra_body={"enable_thinking": True})
    whole = builtin.chat.completions.create(**create).choices[0].message
    deltas = [chunk.choices[0].delta for chunk in builtin.chat.completions.create(**create, stream=True)]
    kinds = ["reasoning" if reasoning(d) else "content" for d in deltas if reasoning(d) or d.content]
    assert kinds == sorted(kinds, reverse=True) and set(kinds) == {"reasoning", "content"}
    assert "".join(reasoning(delta) for delta in deltas) == reasoning(whole)
    assert "".join(delta.content or "" for delta in deltas) == whole.content


def test_parse_and_the_stream_helper_work_while_the_model_thinks(builtin: LocalOpenAI) -> None:
    create = question(CAPITAL, extra_body={"enable_thinking": True})
    whole = builtin.chat.completions.parse(**create, response_format=Answer).choices[0].message
    with builtin.chat.completions.stream(**create, response_format=Answer) as stream:
        events = list(stream)
    check_events(events, Answer)
    assert isinstance(whole.parsed, Answer) and reasoning(whole)


@pytest.mark.parametrize("budget", [1, 12])
def test_reasoning_that_does_not_end_is_closed_and_the_format_follows(talker: LocalOpenAI, budget: int) -> None:
    extra = {"enable_thinking": True, "thinking_budget": budget}
    made = talker.chat.completions.parse(**CREATE, response_format=Plan, n=4, extra_body=extra)
    for choice in made.choices:
        assert isinstance(choice.message.parsed, Plan)
        assert "</think>" not in reasoning(choice.message)
    assert any(reasoning(choice.message) for choice in made.choices)


def test_reasoning_that_max_tokens_cut_leaves_no_content(talker: LocalOpenAI) -> None:
    create = {**CREATE, "max_tokens": 10, "extra_body": {"enable_thinking": True}}
    made = talker.chat.completions.create(**create, response_format=format_of(Plan))
    [choice] = made.choices
    assert choice.finish_reason == "length" and choice.message.content == "" and reasoning(choice.message)
    with pytest.raises(LengthFinishReasonError):
        talker.chat.completions.parse(**create, response_format=Plan)
