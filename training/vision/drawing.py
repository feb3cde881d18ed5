"""Pictures of scenes, drawn with Pillow."""

import math
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from training.vision.scenes import RGB, Print, Scene, Thing, another, shade

SIDE: Final = 128
"""Of what the model sees, in pixels."""
FOLDERS: Final = ("/usr/share/fonts/truetype/dejavu", "/usr/share/fonts/truetype/liberation")
FACES: Final = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSansCondensed", "DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSerif",
    "DejaVuSerif-Bold", "LiberationSans-Regular", "LiberationSans-Bold", "LiberationSans-Italic",
    "LiberationSansNarrow-Regular", "LiberationSerif-Regular", "LiberationSerif-Bold", "LiberationMono-Regular",
    "LiberationMono-Bold",
)  # fmt: skip
Pixels = npt.NDArray[np.uint8]


@cache
def faces(folder: str = "") -> tuple[str, ...]:
    """Files of the fonts that are found; an empty name is Pillow's own, which is always there."""
    folders = (folder,) if folder else FOLDERS
    found = [str(Path(one) / f"{name}.ttf") for one in folders for name in FACES]
    return ("", "", "", "", "", *(name for name in found if Path(name).exists()))


@cache
def font(face: str, size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """A font at a size in pixels."""
    return ImageFont.truetype(face, size) if face else ImageFont.load_default(size)


def canvas(rng: Random) -> tuple[int, int]:
    """Width and height of a picture before the model's processor resizes it."""
    if rng.random() < 0.35:
        return SIDE, SIDE
    height = rng.choice((96, 128, 160, 200, 224, 256, 320))
    return round(height * rng.choice((1, 1, 1, 0.75, 0.9, 1.15, 1.33))), height


def draw(rng: Random, scene: Scene, fonts: str = "", size: tuple[int, int] | None = None) -> Image.Image:
    """A picture of a scene; things of one colour have one shade."""
    width, height = size or canvas(rng)
    shades: dict[str, RGB] = {}

    def paint(colour: str) -> RGB:
        return shades.setdefault(colour, shade(rng, colour))

    picture = Image.new("RGB", (width, height), paint(scene.background))
    pen = ImageDraw.Draw(picture)
    edge = None
    if rng.random() < 0.08:
        edge = paint(another(rng, scene.background)) if rng.random() < 0.3 else paint("black")
    for thing in scene.things:
        _thing(pen, rng, thing, (width, height), paint(thing.colour), edge)
    for line in scene.prints:
        _print(picture, pen, rng, line, paint(line.colour), fonts)
    return picture


def shown(picture: Image.Image) -> Pixels:
    """Pixels as the model's processor resizes them."""
    if picture.size != (SIDE, SIDE):
        picture = picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.asarray(picture)


def _print(picture: Image.Image, pen: ImageDraw.ImageDraw, rng: Random, line: Print, colour: RGB, fonts: str) -> None:
    """Write a line as large as its box allows, within what is legible once it is resized."""
    width, height = picture.size
    face = "" if line.simple else rng.choice(faces(fonts))
    across, down = line.width * width, line.height * height
    box = font(face, 40).getbbox(line.text)
    size = min(across / max(1, box[2] - box[0]), down / max(1, box[3] - box[1])) * 40
    least = max(9, math.ceil(0.1 * height), math.ceil(0.1 * width))
    made = font(face, min(int(size), 160) if size > least else least)
    left, top, right, bottom = made.getbbox(line.text)
    x = min(line.x * width, width - 2 - (right - left)) - left
    y = min(line.y * height, height - 2 - (bottom - top)) - top
    pen.text((max(-left, x), y), line.text, font=made, fill=colour)


def _thing(
    pen: ImageDraw.ImageDraw, rng: Random, thing: Thing, size: tuple[int, int], colour: RGB, edge: RGB | None
) -> None:
    width, height = size
    x, y, r = thing.x * width, thing.y * height, thing.radius * min(size)
    line = max(1, round(r / 9))
    if thing.shape == "circle":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=colour, outline=edge, width=line)
    elif thing.shape == "ring":
        pen.ellipse((x - r, y - r, x + r, y + r), outline=colour, width=max(2, round(r * rng.uniform(0.22, 0.4))))
    else:
        turn = rng.uniform(-0.14, 0.14) if rng.random() < 0.3 else 0.0
        corners = OUTLINES[thing.shape]
        cosine, sine = r * math.cos(turn), r * math.sin(turn)
        points = [(x + a * cosine - b * sine, y + a * sine + b * cosine) for a, b in corners]
        pen.polygon(points, fill=colour, outline=edge, width=line if edge else 1)


def _star() -> list[tuple[float, float]]:
    spikes = [(1.0 if i % 2 == 0 else 0.42, math.pi * (i / 5 - 0.5)) for i in range(10)]
    return [(r * math.cos(angle), r * math.sin(angle)) for r, angle in spikes]


def _heart() -> list[tuple[float, float]]:
    steps = [2 * math.pi * i / 28 for i in range(28)]
    return [
        (
            math.sin(t) ** 3,
            -(13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 16 - 0.08,
        )
        for t in steps
    ]


_ARM: Final = 0.34
OUTLINES: Final[dict[str, list[tuple[float, float]]]] = {
    "square": [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
    "triangle": [(0, -0.95), (0.95, 0.75), (-0.95, 0.75)],
    "diamond": [(0, -1), (0.78, 0), (0, 1), (-0.78, 0)],
    "star": _star(),
    "heart": _heart(),
    "cross": [
        (-_ARM, -1), (_ARM, -1), (_ARM, -_ARM), (1, -_ARM), (1, _ARM), (_ARM, _ARM), (_ARM, 1), (-_ARM, 1),
        (-_ARM, _ARM), (-1, _ARM), (-1, -_ARM), (-_ARM, -_ARM),
    ],
}  # fmt: skip
"""Corners around a centre at a radius of one."""
