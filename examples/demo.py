"""Chats, an agent with two tools, a schema, and a picture, on the two checkpoints that ship with the package.

The bundled models have 6 and 4 million parameters. They are for demos and tests: load a real one for anything else.
"""

import asyncio
import json
import time
from collections.abc import Callable

from openai.types.chat import ChatCompletionMessageParam
from PIL import Image, ImageDraw, ImageFont
from pydantic import BaseModel

from localai_shim import AsyncLocalOpenAI, image

QUESTIONS = [
    "What is your name?",
    "Count from 4 to 12",
    "I have 7 apples and buy 5 more. How many apples do I have?",
    "Repeat after me: the little red boat",
    "Tell me a short story.",
    "List five colours.",
    "What is the capital of France?",
    "Tom: 31, Ann: 28, Leo: 45. How old is Ann?",
]
TASKS = [
    "What is the weather in Oslo?",
    "Convert 20 EUR to USD.",
    "What's the weather in Rome and in Paris?",
]
LETTER = "Anna Berg is 31 years old. She lives in Oslo and works as a nurse."
ABOUT_THE_PICTURE = [
    "What is in this picture?",
    "How many shapes are there?",
    "What is left of the blue square?",
    "What number is printed?",
]


def get_weather(city: str) -> str:
    weather = {"Oslo": "4 degrees and snow", "Rome": "21 degrees and sunny"}
    return f"{weather.get(city, '15 degrees and cloudy')} in {city}"


def convert_currency(
    amount: float, from_currency: str, to_currency: str
) -> str:
    result = round(amount * 1.08, 2)
    return json.dumps({"amount": result, "currency": to_currency})


FUNCTIONS: dict[str, Callable[..., str]] = {
    "get_weather": get_weather,
    "convert_currency": convert_currency,
}


def described(
    name: str, description: str, parameters: dict[str, str]
) -> dict[str, object]:
    """A function as requests describe it, with the JSON type of each parameter."""
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": schema,
        },
    }


TOOLS = [
    described("get_weather", "Get the weather in a city.", {"city": "string"}),
    described(
        "convert_currency",
        "Convert an amount of money.",
        {
            "amount": "number",
            "from_currency": "string",
            "to_currency": "string",
        },
    ),
]


class Person(BaseModel):
    name: str
    age: int
    city: str
    job: str


async def chat(client: AsyncLocalOpenAI, question: str) -> tuple[str, int]:
    """One streamed answer, and its number of tokens."""
    stream = await client.chat.completions.create(
        model="gpt-4o",  # any name: the loaded model serves them all
        messages=[{"role": "user", "content": question}],
        temperature=0,
        max_tokens=120,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, tokens = "", 0
    async for chunk in stream:
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        if chunk.usage is not None:
            tokens = chunk.usage.completion_tokens
    return text, tokens


async def agent(client: AsyncLocalOpenAI, task: str) -> list[str]:
    """The calls of an agent with their results, and its answer."""
    messages: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": task}
    ]
    lines = []
    for _ in range(4):
        made = await client.chat.completions.create(
            model="gpt-4o", messages=messages, tools=TOOLS, temperature=0
        )
        message = made.choices[0].message
        if not message.tool_calls:
            return [*lines, message.content or ""]
        messages.append(message)  # type: ignore[arg-type]
        for call in message.tool_calls:
            function = call.function
            result = FUNCTIONS[function.name](**json.loads(function.arguments))
            lines.append(f"{function.name} {function.arguments} -> {result}")
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": result}
            )
    return [*lines, "no answer after four rounds"]


async def extract(client: AsyncLocalOpenAI, text: str) -> Person | None:
    """The facts of a text, in a schema."""
    made = await client.chat.completions.parse(
        model="gpt-4o",
        messages=[{"role": "user", "content": text}],
        response_format=Person,
        temperature=0,
    )
    return made.choices[0].message.parsed


def draw() -> Image.Image:
    """A red circle, right of it a blue square, and a number below them."""
    picture = Image.new("RGB", (384, 256), "white")
    pen = ImageDraw.Draw(picture)
    pen.ellipse((40, 30, 120, 110), fill="red")
    pen.rectangle((250, 30, 330, 110), fill="blue")
    pen.text((130, 150), "472", fill="black", font=ImageFont.load_default(72))
    return picture


async def look(
    client: AsyncLocalOpenAI, picture: Image.Image, question: str
) -> str:
    """One answer about a picture."""
    content = [image(picture), {"type": "text", "text": question}]
    answer = await client.chat.completions.create(
        model="gpt-4o",
        messages=[{"role": "user", "content": content}],
        temperature=0,
    )
    return answer.choices[0].message.content or ""


async def words(client: AsyncLocalOpenAI) -> None:
    """Chats, agents, and a schema."""
    print(f"{len(QUESTIONS)} chats, streamed from one batch:\n")
    start = time.perf_counter()
    answers = await asyncio.gather(*(chat(client, q) for q in QUESTIONS))
    seconds = time.perf_counter() - start
    for question, (answer, _) in zip(QUESTIONS, answers, strict=True):
        shown = answer.strip().replace("\n", "\n    ")
        print(f"  {question}\n    {shown}\n")
    tokens = sum(count for _, count in answers)
    print(
        f"{tokens} tokens in {seconds:.2f} s, with the time to load the model"
    )
    print("\nAgents with two tools, at the same time:\n")
    runs = await asyncio.gather(*(agent(client, task) for task in TASKS))
    for task, lines in zip(TASKS, runs, strict=True):
        print(f"  {task}\n" + "".join(f"    {line}\n" for line in lines))
    print(f"A schema, filled from a text:\n\n  {LETTER}")
    print(f"    {await extract(client, LETTER)!r}\n")


async def pictures(client: AsyncLocalOpenAI) -> None:
    """Questions about a picture."""
    print(
        "A picture, drawn by this program: a red circle, right of it a blue"
        " square, and 472 below them:\n"
    )
    picture = draw()
    answers = await asyncio.gather(
        *(look(client, picture, question) for question in ABOUT_THE_PICTURE)
    )
    for question, answer in zip(ABOUT_THE_PICTURE, answers, strict=True):
        print(f"  {question}\n    {answer}\n")


async def main() -> None:
    async with AsyncLocalOpenAI() as client:
        await words(client)
    async with AsyncLocalOpenAI("builtin:vision") as client:
        await pictures(client)


if __name__ == "__main__":
    asyncio.run(main())
