"""Requests of every kind at once, guided and not: each gets what it would get alone."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.endpoints.answer.tool_formats import EOS, GUEST, HERMES, PROMPT, check_calls, custom, named
from tests.endpoints.scripting import ask, calls, check_stream, gathered, marked_model, said, token_id
from tests.samples import only


@functools.cache
def thinking_model() -> Path:
    """Hermes calls, and a template that opens a block of reasoning where it is told to."""
    template = f"{{#- <tool_call> tool_call.name -#}}{PROMPT}{{% if enable_thinking %}}<think>{{% endif %}}"
    return marked_model(template, *HERMES.markers, "<think>", "</think>")


def asked(i: int) -> dict[str, Any]:
    """The i-th of 32 requests of which no two ask for the same."""
    names = list(HERMES.schemas)
    name = names[i % len(names)]
    more: dict[str, Any] = {
        "messages": [{"role": "user", "content": f"Question {i}"}],
        "seed": i,
        "temperature": 0.5 + i / 32,
        "max_tokens": 200,
    }
    tools, ends = HERMES.tools(strict=False), {token_id(thinking_model(), EOS): 100}
    thinks = {"enable_thinking": True, "thinking_budget": i % 7}
    kinds: list[dict[str, Any]] = [
        {"tools": tools, "tool_choice": named(name), "logit_bias": ends},
        {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": tools, "tool_choice": named(name), "logit_bias": ends, "extra_body": thinks},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "guest", "schema": GUEST}}},
        {"extra_body": {"guided_regex": f"[a-z]{{{i}}}", **thinks}},
        {"functions": [{"name": name, "parameters": HERMES.schemas[name]}], "function_call": {"name": name}},
        {"tools": [custom("phone", "regex", f"[0-9]{{{i}}}")], "tool_choice": "required", "logit_bias": ends},
        {"max_tokens": 20 + i, "extra_body": {"ignore_eos": True}},
    ]
    return {**more, **kinds[i % 8]}


def check_answer(i: int, choice: Any) -> None:
    """What came is what the i-th request asked for."""
    message, kind = choice.message, i % 8
    names = list(HERMES.schemas)
    name = names[i % len(names)]
    if kind in (0, 1, 2):
        check_calls(choice, HERMES.schemas if kind == 1 else {name: HERMES.schemas[name]}, single=kind == 1)
    elif kind == 3:
        jsonschema.validate(json.loads(message.content), GUEST)
    elif kind == 4:
        assert re.fullmatch(f"[a-z]{{{i}}}", message.content)
    elif kind == 5:
        assert message.function_call.name == name and choice.finish_reason == "function_call"
        jsonschema.validate(json.loads(message.function_call.arguments), HERMES.schemas[name])
    elif kind == 6:
        assert all(re.fullmatch(f"[0-9]{{{i}}}", text) for _, text in calls(message)) and message.tool_calls
    else:
        assert choice.finish_reason == "length" and message.content


@pytest.fixture(scope="module")
def alone() -> Iterator[Callable[[int], list[dict[str, Any]]]]:
    """What the i-th request is answered with when it is made alone."""
    with LocalOpenAI(thinking_model()) as client:

        @functools.cache
        def answer(i: int) -> list[dict[str, Any]]:
            completion = ask(client, **asked(i))
            check_answer(i, completion.choices[0])
            return said(completion)

        yield answer


async def streamed(client: AsyncLocalOpenAI, i: int) -> list[dict[str, Any]]:
    chunks = [chunk async for chunk in await ask(client, stream=True, **asked(i))]
    check_stream(chunks)
    return said(gathered(chunks))


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", only([], ["asyncio", "trio"]))
async def test_thirty_two_neighbours_get_what_each_asked_for_as_if_alone(alone: Callable[[int], Any]) -> None:
    made: list[Any] = [None] * 32

    async def one(client: AsyncLocalOpenAI, i: int) -> None:
        made[i] = said(await ask(client, **asked(i))) if i % 3 else await streamed(client, i)

    async with AsyncLocalOpenAI(thinking_model()) as client, anyio.create_task_group() as group:
        for i in range(32):
            group.start_soon(one, client, i)
    assert made == [alone(i) for i in range(32)]


@pytest.mark.anyio
@pytest.mark.parametrize(("anyio_backend", "rows"), only([("trio", 16)], [("asyncio", 32), ("trio", 16)]))
async def test_guided_rows_that_are_cancelled_leave_the_others_as_they_were(
    alone: Callable[[int], Any], rows: int
) -> None:
    made: dict[int, Any] = {}

    async def stay(client: AsyncLocalOpenAI, i: int) -> None:
        made[i] = await streamed(client, i)

    async def leave(client: AsyncLocalOpenAI, i: int) -> None:
        stream = await ask(client, stream=True, **asked(i))
        for _ in range(2 + i % 5):
            if await anext(stream, None) is None:
                break
        await stream.close()

    async with AsyncLocalOpenAI(thinking_model()) as client, anyio.create_task_group() as group:
        for i in range(rows):
            group.start_soon(leave if i % 2 == (i // 8) % 2 else stay, client, i)
    assert len(made) == rows // 2
    assert {i: alone(i) for i in made} == made
