"""Parts of tests with replicas: waiting for what other processes do, their process ids, and many kinds of requests."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import openai
import ray
from pydantic import BaseModel, Field

from localai_shim.ray import AsyncRayOpenAI, RayOpenAI
from localai_shim.scale.ray.transport import AsyncRayHttpClient

PATIENCE = 60.0  # seconds


def until(condition: Callable[[], bool]) -> None:
    """Ask again and again; each answer takes a replica's time."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it does not come to that"


def process_ids(client: Any) -> dict[str, int]:
    """The process of each replica."""
    return {name: ray.get(member.control("load")()) for name, member in client._pool._members.items()}


def busy(client: Any) -> list[str]:
    """The replicas that have requests of a client's."""
    return [name for name, each in client._pool._router._replicas.items() if each.running]


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def wait_for_end(process: int) -> None:
    """Wait until another's child has ended."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return
    assert select.select([handle], [], [], PATIENCE)[0], f"process {process} lives on"
    os.close(handle)


def asynchronous(client: RayOpenAI, **options: Any) -> AsyncRayOpenAI:
    """An async client of the same replicas."""
    return AsyncRayOpenAI(http_client=AsyncRayHttpClient(client._pool, 60), **options)


def message(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def long_stream(client: Any, tokens: int = 2000) -> Any:
    """A stream that goes on until it has so many tokens."""
    return client.chat.completions.create(
        model="any",
        messages=message("Tell me a story."),
        max_tokens=tokens,
        stream=True,
        extra_body={"ignore_eos": True},
    )


# -- requests of many kinds ------------------------------------------------------------------------------------------


class Answer(BaseModel):
    name: str = Field(max_length=12)
    count: int


TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


async def chat(client: openai.AsyncOpenAI, number: int) -> Any:
    answer = await client.chat.completions.create(
        model="any", messages=message(f"What is {number} + 3?"), temperature=0, logprobs=True, max_tokens=12, n=2
    )
    return [[token.token for token in each.logprobs.content] for each in answer.choices if each.logprobs]


async def chat_stream(client: openai.AsyncOpenAI, number: int) -> Any:
    stream = await client.chat.completions.create(
        model="any", messages=message(f"Story {number}"), seed=number, max_tokens=24, stream=True
    )
    return [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]


async def response_stream(client: openai.AsyncOpenAI, number: int) -> Any:
    async with client.responses.stream(
        model="any", input=f"What is {number} + 4?", temperature=0, max_output_tokens=16
    ) as stream:
        kinds = [event.type async for event in stream]
        return kinds, (await stream.get_final_response()).output_text


async def tool_call(client: openai.AsyncOpenAI, number: int) -> Any:
    answer = await client.chat.completions.create(
        model="any",
        messages=message(f"Weather in city {number}?"),
        tools=[TOOL],
        tool_choice="required",
        temperature=0,
        max_tokens=60,
    )
    return [call.function.arguments for call in answer.choices[0].message.tool_calls or [] if call.type == "function"]


async def structured(client: openai.AsyncOpenAI, number: int) -> Any:
    answer = await client.responses.parse(
        model="any", input=f"Count {number}", text_format=Answer, temperature=0, max_output_tokens=60
    )
    return answer.output_text


async def completion(client: openai.AsyncOpenAI, number: int) -> Any:
    stream = await client.completions.create(
        model="any", prompt=f"Once {number}", seed=number, max_tokens=16, stream=True
    )
    return [chunk.choices[0].text async for chunk in stream]


class Vectors(list[list[float]]):
    """Embeddings, equal to those that another batch gave: their last digits differ."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vectors) and np.allclose(self, other, atol=1e-3)


async def vectors(client: openai.AsyncOpenAI, number: int) -> Any:
    answer = await client.embeddings.create(model="any", input=[f"text {number}", "another"])
    return Vectors(each.embedding for each in answer.data)


async def raw(client: openai.AsyncOpenAI, number: int) -> Any:
    response = await client.responses.with_raw_response.create(
        model="any", input=f"What is {number} + 5?", temperature=0, max_output_tokens=12
    )
    assert response.headers["x-request-id"].startswith("req_")
    return response.status_code, (response.parse()).output_text


KINDS: list[Callable[[openai.AsyncOpenAI, int], Awaitable[Any]]] = [
    chat,
    chat_stream,
    response_stream,
    tool_call,
    structured,
    completion,
    vectors,
    raw,
]
