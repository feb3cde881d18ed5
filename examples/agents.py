"""Async agents with tools, whose concurrent calls share one batch.

python examples/agents.py
"""

import asyncio
import json
from typing import Any

from localai_shim import AsyncLocalOpenAI

CITIES = [
    "Paris",
    "Rome",
    "Oslo",
    "Madrid",
    "Berlin",
    "Lisbon",
    "Vienna",
    "Athens",
]
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather in a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]


async def get_weather(city: str) -> str:
    """A tool; a real one would look it up."""
    await asyncio.sleep(0.01)
    return f"{len(city) * 3} degrees in {city}, sunny"


async def run_agent(
    client: AsyncLocalOpenAI, question: str, max_turns: int = 4
) -> str:
    """Ask, run the called tools, and ask again until there is an answer."""
    messages: list[Any] = [{"role": "user", "content": question}]
    for _ in range(max_turns):
        answer = await client.chat.completions.create(
            model="gpt-4o", messages=messages, tools=TOOLS, temperature=0
        )
        message = answer.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message)
        for call in message.tool_calls:
            result = await get_weather(**json.loads(call.function.arguments))
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": result}
            )
    return "(no answer within the turns)"


async def main() -> None:
    async with AsyncLocalOpenAI() as client:
        questions = [f"What is the weather in {city}?" for city in CITIES]
        answers = await asyncio.gather(
            *(run_agent(client, question) for question in questions)
        )
    for question, answer in zip(questions, answers, strict=True):
        print(f"{question}  {answer}")


if __name__ == "__main__":
    asyncio.run(main())
