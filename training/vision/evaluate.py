"""Asks a checkpoint about pictures that training has not seen, through the client, and prints a table by skill."""

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from openai.types.chat import ChatCompletionMessageParam
from PIL import Image

import localai_shim
from localai_shim import AsyncLocalOpenAI
from training.registry import Split
from training.vision.dialogues import IMAGE, Calls, Dialogue
from training.vision.drawing import draw
from training.vision.skills import SKILLS


@dataclass(frozen=True)
class Item:
    """A request's messages and tools, and the right answer."""

    messages: list[ChatCompletionMessageParam]
    answer: str
    tools: tuple[dict[str, Any], ...] = ()


def content(text: str, pictures: list[Image.Image]) -> str | list[Any]:
    """The parts of a question; takes its pictures out of the list."""
    if IMAGE not in text:
        return text
    parts: list[Any] = []
    for i, piece in enumerate(text.split(IMAGE)):
        if i:
            parts.append(localai_shim.image(pictures.pop(0)))
        if piece:
            parts.append({"type": "text", "text": piece})
    return parts


def last_turn(dialogue: Dialogue, pictures: list[Image.Image]) -> Item:
    """The messages up to the last question, with the right answers before it, and its answer."""
    messages: list[Any] = [] if dialogue.system is None else [{"role": "system", "content": dialogue.system}]
    names: list[str] = []
    for at, (question, answer) in enumerate(dialogue.turns):
        if isinstance(question, str):
            messages.append({"role": "user", "content": content(question, pictures)})
        else:
            for name, result in zip(names, question.contents, strict=True):
                messages.append({"role": "tool", "tool_call_id": name, "content": content(result, pictures)})
        if isinstance(answer, Calls):
            names = [f"call_{at}_{i}" for i in range(len(answer.calls))]
            calls = [
                {"id": name, "type": "function", "function": {"name": called, "arguments": json.dumps(arguments)}}
                for name, (called, arguments) in zip(names, answer.calls, strict=True)
            ]
            messages.append({"role": "assistant", "content": answer.text or None, "tool_calls": calls})
        elif answer is not None:
            messages.append({"role": "assistant", "content": answer})
    return Item(messages[:-1], messages[-1]["content"], dialogue.tools)


def items(skill: str, seed: int, count: int, split: Split = Split.HELD_OUT) -> list[Item]:
    """Questions of a skill, the same for a seed."""
    rng = Random(f"{skill}/{seed}")
    made: list[Item] = []
    for _ in range(count):
        dialogue = SKILLS[skill](rng, split)
        made.append(last_turn(dialogue, [draw(rng, scene) for scene in dialogue.scenes]))
    return made


async def answer(client: AsyncLocalOpenAI, item: Item) -> str:
    """The model's answer, greedily."""
    how: dict[str, Any] = {"tools": item.tools} if item.tools else {}
    made = await client.chat.completions.create(
        model="any", messages=item.messages, temperature=0, max_tokens=70, **how
    )
    text: str = made.choices[0].message.content or ""
    return text


async def rate(client: AsyncLocalOpenAI, cases: Sequence[Item], show: int = 0) -> float:
    """Share of the right answers; the first wrong ones are shown."""
    found = await asyncio.gather(*(answer(client, one) for one in cases))
    wrong = [(made, one.answer) for made, one in zip(found, cases, strict=True) if made != one.answer]
    for made, right in wrong[:show]:
        print(f"    {made!r} instead of {right!r}")
    return 1 - len(wrong) / len(cases)


async def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m training.vision.evaluate", description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--count", type=int, default=50, help="questions of each skill (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    parser.add_argument("--show", type=int, default=0, help="wrong answers to show of each skill")
    parser.add_argument("--skill", action="append", choices=sorted(SKILLS), help="(default: all)")
    options = parser.parse_args(arguments)
    async with AsyncLocalOpenAI(options.checkpoint) as client:
        for skill in options.skill or SKILLS:
            right = await rate(client, items(skill, options.seed, options.count), options.show)
            print(f"{skill:24} {right:7.1%}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
