"""Asks a checkpoint about pictures that training has not seen, through the client, and prints a table by skill."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from openai.types.chat import ChatCompletionMessageParam
from PIL import Image

import localai_shim
from localai_shim import AsyncLocalOpenAI
from training.registry import Split
from training.vision.dialogues import IMAGE, SKILLS, Dialogue
from training.vision.drawing import draw

Turn = tuple[list[ChatCompletionMessageParam], str]


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


def last_turn(dialogue: Dialogue, pictures: list[Image.Image]) -> Turn:
    """The messages up to the last question, with the right answers before it, and its answer."""
    messages: list[Any] = [] if dialogue.system is None else [{"role": "system", "content": dialogue.system}]
    for question, answer in dialogue.turns:
        messages.append({"role": "user", "content": content(question, pictures)})
        messages.append({"role": "assistant", "content": answer})
    return messages[:-1], dialogue.turns[-1][1]


def items(skill: str, seed: int, count: int, split: Split = Split.HELD_OUT) -> list[Turn]:
    """Questions of a skill, the same for a seed."""
    rng = Random(f"{skill}/{seed}")
    made: list[Turn] = []
    for _ in range(count):
        dialogue = SKILLS[skill](rng, split)
        made.append(last_turn(dialogue, [draw(rng, scene) for scene in dialogue.scenes]))
    return made


async def answer(client: AsyncLocalOpenAI, messages: list[ChatCompletionMessageParam]) -> str:
    """The model's answer, greedily."""
    made = await client.chat.completions.create(model="any", messages=messages, temperature=0, max_tokens=60)
    return made.choices[0].message.content or ""


async def rate(client: AsyncLocalOpenAI, turns: Sequence[Turn], show: int = 0) -> float:
    """Share of the right answers; the first wrong ones are shown."""
    found = await asyncio.gather(*(answer(client, messages) for messages, _ in turns))
    wrong = [(made, right) for made, (_, right) in zip(found, turns, strict=True) if made != right]
    for made, right in wrong[:show]:
        print(f"    {made!r} instead of {right!r}")
    return 1 - len(wrong) / len(turns)


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
            print(f"{skill:16} {right:7.1%}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
