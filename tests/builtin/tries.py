"""The first requests of newcomers: 300 items of 30 kinds, each with a rule for its answer.

They were written without looking at the data generator in ``training/``, and are not in its data. A rule has some of
these keys, and all of them must hold; text is compared without regard to upper and lower case:

* ``contains``, ``any``, ``lacks``: all of these texts, at least one, or none occurs. An entry of ``any`` may be a list.
* ``equals``: exactly this text, apart from white space around it.
* ``max_words``, ``min_words``, ``upper``, ``lower``, ``starts``, ``ends``.
* ``calls``: exactly these calls, in any order. ``no_calls``: no call. ``any_or_call``: a call satisfies ``any``.
* ``json``: values that the parsed answer has.

Every answer ends by itself, and one with a ``response_format`` follows its schema and has only short strings.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
from PIL import Image, ImageDraw, ImageFont

from localai_shim import AsyncLocalOpenAI, image
from localai_shim.builtin import CHECKPOINT, VISION
from training.excluded import FILE, keys

Json = dict[str, Any]

FOLDER = Path(__file__).with_name("first_tries")
MOST_TOKENS = 400
LONGEST_STRING = 120
MARKS = ".!?\"' "
COLORS = {"orange": "#ff8c00", "purple": "#8c32b4", "pink": "#ff69b4", "brown": "#8b4513", "green": "#00a000"}


def items() -> dict[str, list[Json]]:
    """The items of each kind, by its name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def needs_eyes(item: Json) -> bool:
    """Tell if there is a picture in the messages."""
    return '"type": "picture"' in json.dumps(item["messages"])


def drawn(given: Json) -> Image.Image:
    """The picture that an item describes; places and radii are shares of its width."""
    side = 320
    made = Image.new("RGB", (side, side), COLORS.get(given["background"], given["background"]))
    pen = ImageDraw.Draw(made)
    for color, shape, x, y, radius in given.get("shapes", []):
        paint, at, r = COLORS.get(color, color), (x * side, y * side), radius * side
        box = (at[0] - r, at[1] - r, at[0] + r, at[1] + r)
        if shape == "circle":
            pen.ellipse(box, fill=paint)
        elif shape == "square":
            pen.rectangle(box, fill=paint)
        else:
            points = {"triangle": 3, "star": 5, "diamond": 4}[shape]
            turned = star(at, r, points) if shape == "star" else polygon(at, r, points)
            pen.polygon(turned, fill=paint)
    if given.get("text"):
        text, color = given["text"]
        font = ImageFont.load_default(88)
        left, _, right, _ = pen.textbbox((0, 0), text, font=font)
        where = (
            ((side - (right - left)) / 2, side * 0.62)
            if given.get("shapes")
            else ((side - (right - left)) / 2, side * 0.35)
        )
        pen.text(where, text, fill=COLORS.get(color, color), font=font)
    return made


def polygon(center: tuple[float, float], radius: float, points: int) -> list[tuple[float, float]]:
    """Corners of a regular polygon, one on top."""
    angles = [2 * math.pi * i / points for i in range(points)]
    return [(center[0] + radius * math.sin(a), center[1] - radius * math.cos(a)) for a in angles]


def star(center: tuple[float, float], radius: float, points: int) -> list[tuple[float, float]]:
    """Corners of a star, one tip on top."""
    made = []
    for i in range(2 * points):
        reach, angle = radius * (1 if i % 2 == 0 else 0.45), math.pi * i / points
        made.append((center[0] + reach * math.sin(angle), center[1] - reach * math.cos(angle)))
    return made


def with_pictures(messages: list[Json]) -> list[Json]:
    """The messages with drawn pictures as the SDK's content parts."""
    made = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = [image(drawn(part)) if part["type"] == "picture" else part for part in content]
            message = {**message, "content": content}
        made.append(message)
    return made


async def answered(client: AsyncLocalOpenAI, item: Json, **sampling: Any) -> Json:
    """The answer of the model: ``text``, ``calls``, and the reason why it ended."""
    optional = {name: item[name] for name in ("tools", "response_format") if name in item}
    made = await client.chat.completions.create(
        model="any", messages=with_pictures(item["messages"]), max_tokens=MOST_TOKENS, **optional, **sampling
    )
    choice = made.choices[0]
    calls = [
        {"name": call.function.name, "arguments": json.loads(call.function.arguments)}
        for call in choice.message.tool_calls or []
        if call.type == "function"
    ]
    return {"text": choice.message.content or "", "calls": calls, "ended": choice.finish_reason}


def loosened(value: Any) -> Any:
    """A value of a call in a form that ignores case and end marks of strings."""
    if isinstance(value, str):
        return value.strip(MARKS).lower()
    if isinstance(value, dict):
        return {key: loosened(one) for key, one in value.items()}
    return [loosened(one) for one in value] if isinstance(value, list) else value


def sorted_calls(calls: list[Json]) -> list[str]:
    """Calls in a form that can be compared."""
    return sorted(json.dumps(loosened(call), sort_keys=True) for call in calls)


def strings(value: Any) -> Iterator[str]:
    """All strings of a parsed answer."""
    if isinstance(value, str):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(one)


def faults(item: Json, answer: Json) -> list[str]:
    """The rules that an answer breaks."""
    rule, text, low = item["check"], answer["text"].strip(), answer["text"].strip().lower()
    found: list[str] = []

    def expect(holds: bool, name: str) -> None:
        if not holds:
            found.append(name)

    expect(answer["ended"] in ("stop", "tool_calls"), "ended")
    for name, wanted in rule.items():
        match name:
            case "contains":
                expect(all(one.lower() in low for one in wanted), name)
            case "any":
                groups = [[one] if isinstance(one, str) else one for one in wanted]
                holds = any(all(one.lower() in low for one in group) for group in groups)
                expect(holds or (bool(answer["calls"]) and "any_or_call" in rule), name)
            case "lacks":
                expect(not any(one.lower() in low for one in wanted), name)
            case "equals":
                expect(text == wanted.strip(), name)
            case "max_words":
                expect(len(text.split()) <= wanted, name)
            case "min_words":
                expect(len(text.split()) >= wanted, name)
            case "upper":
                expect(text == text.upper(), name)
            case "lower":
                expect(text == text.lower(), name)
            case "starts":
                expect(low.strip(MARKS).startswith(wanted.lower().strip(MARKS)), name)
            case "ends":
                expect(low.strip(MARKS).endswith(wanted.lower().strip(MARKS)), name)
            case "calls":
                expect(sorted_calls(answer["calls"]) == sorted_calls(wanted), name)
            case "no_calls":
                expect(not answer["calls"], name)
            case "any_or_call":
                pass
            case "json":
                made = parsed(text)
                expect(isinstance(made, dict) and all(made.get(key) == one for key, one in wanted.items()), name)
            case _:
                raise ValueError(f"unknown rule {name}")
    if "response_format" in item:
        made = parsed(text)
        schema = item["response_format"]["json_schema"]["schema"]
        expect(jsonschema.Draft202012Validator(schema).is_valid(made), "schema")
        expect(all(len(one.strip()) > 0 and len(one) <= LONGEST_STRING for one in strings(made)), "strings")
    return found


def parsed(text: str) -> Any:
    """The JSON of a text, or the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


async def tried(text_model: str, vision_model: str, kinds: list[str], **sampling: Any) -> dict[str, list[str]]:
    """A line for each item whose answer breaks its rule, by kind."""
    wrong: dict[str, list[str]] = {}
    chosen = [(kind, item) for kind, given in items().items() for item in given if kind in kinds]
    for eyes, model in ((False, text_model), (True, vision_model)):
        mine = [(kind, item) for kind, item in chosen if needs_eyes(item) == eyes]
        if not mine:
            continue
        async with AsyncLocalOpenAI(model, keep_alive=0) as client:
            answers = await asyncio.gather(*(answered(client, item, **sampling) for _, item in mine))
        for (kind, item), answer in zip(mine, answers, strict=True):
            broken = faults(item, answer)
            wrong.setdefault(kind, [])
            if broken:
                said = answer["calls"] or answer["text"]
                wrong[kind].append(
                    f"{item['messages'][-1]['content']!r:.300} -> {said!r:.300} {broken} {item['check']}"
                )
    return wrong


def said(item: Json) -> list[dict[str, str]]:
    """The messages of an item as training has them, without pictures."""
    made = []
    for message in item["messages"]:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content if part["type"] == "text")
        made.append({"role": message["role"], "content": content})
    return made


def hashes() -> list[str]:
    """The lines of `training/excluded.txt`. Items with pictures are left out: training has other pictures."""
    texts = [item for given in items().values() for item in given if not needs_eyes(item)]
    return sorted({key for item in texts for key in keys(said(item))})


def main() -> None:
    """Print the share of right answers by kind, greedily and at temperature 0.8, and the wrong ones."""
    given = dict(enumerate(sys.argv[1:]))
    text_model, vision_model = given.get(0, str(CHECKPOINT)), given.get(1, str(VISION))
    if text_model == "exclude":
        FILE.write_text("\n".join(hashes()) + "\n", encoding="utf-8")
        return
    kinds = sys.argv[3:] or list(items())
    for sampling in ({"temperature": 0}, {"temperature": 0.8, "seed": 1}):
        wrong = asyncio.run(tried(text_model, vision_model, kinds, **sampling))
        print(sampling)
        for kind, lines in wrong.items():
            print(f"  {kind}: {10 - len(lines)}")
            for line in lines:
                print(f"      {line}")
        print(f"{sum(10 - len(lines) for lines in wrong.values())} of {10 * len(wrong)} right", flush=True)


if __name__ == "__main__":
    main()
