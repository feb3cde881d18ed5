"""The shipped checkpoint that sees: its size, form and held-out accuracy by skill, through the client."""

import asyncio
import json
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, image
from localai_shim.builtin import VISION
from tests.builtin.digest import RECORD, is_recorded, when_changed
from tests.samples import exhaustive
from training.vision.evaluate import items, rate
from training.vision.tokens import save_tokenizer

SIZE_LIMIT = 8_000_000  # bytes
FLOORS = {
    "plain colour": 0.9,
    "description": 0.8,
    "counting all": 0.8,
    "counting some": 0.8,
    "colour": 0.9,
    "shape": 0.9,
    "presence": 0.8,
    "place": 0.8,
    "at a place": 0.8,
    "beside": 0.8,
    "background": 0.8,
    "relation": 0.8,
    "extreme": 0.8,
    "size": 0.8,
    "larger of two": 0.8,
    "about texts": 0.8,
    "numbers": 0.8,
    "words": 0.8,
    "follow-up": 0.8,
    "two pictures": 0.8,
    "small talk": 0.8,
    "missing": 0.8,
    "presence and more": 0.8,
    "pictures at once": 0.8,
    "pictures in turns": 0.8,
    "pictures in tool results": 0.8,
    "out of depth": 0.8,
}
CASES = 30  # held-out questions of each skill: their prints are in the fonts that the machine has


def picture() -> Image.Image:
    """A red circle, right of it a blue square, and a number in Pillow's own font."""
    made = Image.new("RGB", (256, 256), "white")
    pen = ImageDraw.Draw(made)
    pen.ellipse((24, 40, 104, 120), fill="red")
    pen.rectangle((150, 40, 230, 120), fill="blue")
    pen.text((70, 160), "472", fill="black", font=ImageFont.load_default(64))
    return made


def test_size() -> None:
    assert sum(path.stat().st_size for path in VISION.iterdir()) <= SIZE_LIMIT
    assert [path.name for path in VISION.glob("*.safetensors")] == ["model.safetensors"]


def vocabulary(folder: Path) -> dict[str, int]:
    entries: dict[str, int] = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return entries


def test_tokenizer_and_template_are_those_of_the_training(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        assert (VISION / name).read_bytes() == (tmp_path / name).read_bytes(), name
    shipped, made = vocabulary(VISION), vocabulary(tmp_path)
    letters = [entry for entry in made if len(entry) == 1]
    assert {entry: shipped.get(entry) for entry in letters} == {entry: made[entry] for entry in letters}
    # Whole words are those of a sample of questions, which change with the programs; others are spelt.
    assert len(shipped.keys() & made.keys()) >= 0.9 * max(len(shipped), len(made))
    assert json.loads((VISION / "config.json").read_text(encoding="utf-8"))["model_type"] == "smolvlm"


def test_a_picture_that_pillow_draws_is_seen() -> None:
    with LocalOpenAI("builtin:vision", keep_alive=0) as client:

        def ask(question: str) -> str:
            content = [image(picture()), {"type": "text", "text": question}]
            made = client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": content}], temperature=0, max_tokens=40
            )
            return (made.choices[0].message.content or "").lower()

        assert "red" in ask("What colour is the circle?")
        assert "2" in ask("How many shapes are there?")
        assert "472" in ask("What number is printed?")


@when_changed("vision")
def test_held_out_accuracy() -> None:
    async def measured() -> dict[str, float]:
        async with AsyncLocalOpenAI("builtin:vision", keep_alive=0) as client:
            return {skill: await rate(client, items(skill, 7, CASES)) for skill in FLOORS}

    found = asyncio.run(measured())
    assert {skill: right for skill, right in found.items() if right < FLOORS[skill]} == {}


@exhaustive
def test_what_was_tested_is_recorded() -> None:
    assert is_recorded("vision"), f"run the tests of this file, then: {RECORD} vision"
