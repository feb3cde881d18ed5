"""An agent that answers questions about the weather: what somebody would ship, and knows nothing of its tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import openai
from pydantic import BaseModel

TOOLS: list[Any] = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "The weather in a city, now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    }
]
MAX_TURNS = 5
# Amid a stream openai 2 raises httpx's own exceptions.
BROKEN: tuple[type[Exception], ...] = (openai.APIConnectionError,)
if find_spec("httpx"):
    BROKEN = (*BROKEN, import_module("httpx").TransportError)


class Report(BaseModel):
    """What the weather is."""

    city: str
    degrees: int


def answer(
    client: openai.OpenAI, question: str, get_weather: Callable[[str], str]
) -> str:
    """Answer a question, asking for the weather as often as the model wants."""
    items: list[Any] = [{"role": "user", "content": question}]
    for _ in range(MAX_TURNS):
        response = client.responses.create(
            model="gpt-4o", instructions="Be brief.", input=items, tools=TOOLS
        )
        calls = [
            item for item in response.output if item.type == "function_call"
        ]
        if not calls:
            return response.output_text
        items += response.output
        for call in calls:
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": _run(call, get_weather),
                }
            )
    return "I could not find out."


def _run(call: Any, get_weather: Callable[[str], str]) -> str:
    try:
        return get_weather(json.loads(call.arguments)["city"])
    except (ValueError, KeyError) as error:
        return f"These arguments cannot be read: {error}"


def report(client: openai.OpenAI, text: str) -> Report | None:
    """What a text says about the weather; None where the model refuses."""
    messages: list[Any] = [{"role": "user", "content": text}]
    parsed = client.chat.completions.parse(
        model="gpt-4o", messages=messages, response_format=Report
    )
    return parsed.choices[0].message.parsed


def tell(client: openai.OpenAI, city: str) -> Iterator[str]:
    """A story about a city's weather, piece by piece; it says so when the connection breaks."""
    messages: list[Any] = [
        {"role": "user", "content": f"The weather in {city}, as a story."}
    ]
    try:
        for chunk in client.chat.completions.create(
            model="gpt-4o", messages=messages, stream=True
        ):
            yield chunk.choices[0].delta.content or ""
    except BROKEN:
        yield " ... (the connection broke)"


async def answer_all(
    client: openai.AsyncOpenAI, questions: list[str]
) -> list[str]:
    """Answer several questions at once."""
    import asyncio

    responses = await asyncio.gather(
        *(
            client.responses.create(model="gpt-4o", input=each)
            for each in questions
        )
    )
    return [response.output_text for response in responses]
