"""Draws what `bench` has measured. With Pillow, which is here anyway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

    from .measure import Level

HEIGHT, MARGIN = 540, 70
BAR_WIDTH, GROUP_GAP = 90, 60
LEAST_WIDTH = 600  # for the legend
OURS, BARE, INK, PAPER = "#2b6cb0", "#cbd5e0", "#1a202c", "#ffffff"
TEXT_SIZE = 18


def draw(levels: Sequence[Level], path: str) -> None:
    """Save bars of tokens per second, by streams, as a picture; its format follows from the file's name.

    Raises:
        OSError, ValueError: the file cannot be written, or its name has no known format.
    """
    from PIL import Image, ImageDraw

    width = MARGIN + len(levels) * (2 * BAR_WIDTH + GROUP_GAP) + MARGIN - GROUP_GAP
    picture = Image.new("RGB", (max(width, LEAST_WIDTH), HEIGHT), PAPER)
    canvas = ImageDraw.Draw(picture)
    _legend(canvas)
    most = max(max(level.rate, level.bare_rate or 0.0) for level in levels)
    for index, level in enumerate(levels):
        left = MARGIN + index * (2 * BAR_WIDTH + GROUP_GAP)
        for place, (rate, colour) in enumerate(((level.rate, OURS), (level.bare_rate, BARE))):
            if rate is not None:
                _bar(canvas, left + place * BAR_WIDTH, rate, most, colour)
        name = "1 stream" if level.streams == 1 else f"{level.streams} streams"
        _text(canvas, left + BAR_WIDTH, HEIGHT - MARGIN + 22, name)
        if level.ratio is not None:
            _text(canvas, left + BAR_WIDTH, HEIGHT - MARGIN + 46, f"{level.ratio:.2f} of the bare step")
    picture.save(path)


def _bar(canvas: ImageDraw, left: int, rate: float, most: float, colour: str) -> None:
    bottom = HEIGHT - MARGIN
    top = bottom - round((HEIGHT - 3 * MARGIN) * rate / most)
    canvas.rectangle((left, top, left + BAR_WIDTH - 6, bottom), fill=colour)
    _text(canvas, left + BAR_WIDTH // 2, top - 14, f"{rate:,.0f}")


def _legend(canvas: ImageDraw) -> None:
    for left, colour, name in ((MARGIN, OURS, "tokens per second"), (MARGIN + 260, BARE, "the model's steps alone")):
        canvas.rectangle((left, 30, left + 20, 50), fill=colour)
        _text(canvas, left + 32, 40, name, anchor="lm")


def _text(canvas: ImageDraw, x: int, y: int, text: str, anchor: str = "mm") -> None:
    from PIL import ImageFont

    canvas.text((x, y), text, fill=INK, anchor=anchor, font=ImageFont.load_default(TEXT_SIZE))
