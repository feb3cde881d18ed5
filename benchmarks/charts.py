"""Draws what was measured, as bars or as lanes over time, with Pillow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

HEIGHT, MARGIN, LEGEND_HEIGHT, LINE = 460, 70, 30, 24
BAR_WIDTH, GROUP_GAP = 90, 60
LEAST_WIDTH = 600  # of a chart, for its legend
SERIES_COLOURS = ("#2b6cb0", "#cbd5e0", "#dd6b20", "#f6ad55", "#718096")
INK, PAPER = "#1a202c", "#ffffff"
TEXT_SIZE = 18
COLOURS = 64  # in the file
LANE, LANES_WIDTH = 16, 1_000


@dataclass(frozen=True, slots=True)
class Chart:
    """Groups of bars with a common scale.

    Attributes:
        title: what the numbers are.
        groups: the names below the bars; each line of a name is a line there.
        series: by the legend's name, a number for each group; None: it has none.
    """

    title: str
    groups: Sequence[str]
    series: Mapping[str, Sequence[float | None]]

    @property
    def width(self) -> int:
        group = len(self.series) * BAR_WIDTH + GROUP_GAP
        return max(LEAST_WIDTH, 2 * MARGIN + len(self.groups) * group - GROUP_GAP)

    @property
    def height(self) -> int:
        return HEIGHT

    @property
    def top(self) -> int:
        """Top of the space for bars: below the title and the legend."""
        return 2 * LINE + LEGEND_HEIGHT * len(self.series) + LINE

    def draw(self, canvas: ImageDraw) -> None:
        _legend(canvas, self.title, list(self.series))
        most = max((value for values in self.series.values() for value in values if value is not None), default=0.0)
        for index, group in enumerate(self.groups):
            start = MARGIN + index * (len(self.series) * BAR_WIDTH + GROUP_GAP)
            for place, values in enumerate(self.series.values()):
                value = values[index]
                if value is not None:
                    _bar(canvas, start + place * BAR_WIDTH, self.top, value, value / most if most else 0.0, place)
            middle = start + len(self.series) * BAR_WIDTH // 2
            for number, line in enumerate(group.split("\n")):
                _text(canvas, middle, HEIGHT - MARGIN + 22 + LINE * number, line)


@dataclass(frozen=True, slots=True)
class Lanes:
    """What several agents do at which time: a lane of colored spans for each.

    Attributes:
        title: whose lanes they are.
        names: what is done, in the order of the colors.
        spans: lane, name, start, and end, in milliseconds.
        end: milliseconds that the picture is wide.
    """

    title: str
    names: Sequence[str]
    spans: Sequence[tuple[int, str, int, int]]
    end: int

    @property
    def width(self) -> int:
        return LANES_WIDTH

    @property
    def top(self) -> int:
        """Top of the first lane."""
        return 2 * LINE + LEGEND_HEIGHT * len(self.names) + LINE // 2

    @property
    def bottom(self) -> int:
        return self.top + LANE * (1 + max((lane for lane, *_ in self.spans), default=0))

    @property
    def height(self) -> int:
        return self.bottom + 2 * LINE

    def draw(self, canvas: ImageDraw) -> None:
        _legend(canvas, self.title, self.names)
        scale = (LANES_WIDTH - 2 * MARGIN) / self.end
        for lane, name, start, end in self.spans:
            left, right = (round(MARGIN + scale * at) for at in (start, end))
            top = self.top + LANE * lane
            color = SERIES_COLOURS[self.names.index(name)]
            canvas.rectangle((left, top, max(left, right - 1), top + LANE - 3), fill=color)
        for second in range(0, self.end // 1000 + 1, max(1, self.end // 10_000)):
            _text(canvas, round(MARGIN + scale * 1000 * second), self.bottom + LINE // 2 + 2, f"{second} s")


def draw_charts(charts: Sequence[Chart | Lanes], path: str, caption: str = "", source: str = "") -> None:
    """Save charts, one below the other, as a picture; its format follows from the file's name.

    Args:
        charts: what is drawn.
        path: of the file.
        caption: stands below.
        source: what a PNG says of itself under `Source`.

    Raises:
        OSError, ValueError: the file cannot be written, or its name has no known format.
    """
    from PIL import Image, ImageDraw
    from PIL.PngImagePlugin import PngInfo

    width, height = max(chart.width for chart in charts), sum(chart.height for chart in charts)
    picture = Image.new("RGB", (width, height + (2 * LINE if caption else 0)), PAPER)
    top = 0
    for chart in charts:
        drawn = Image.new("RGB", (width, chart.height), PAPER)
        chart.draw(ImageDraw.Draw(drawn))
        picture.paste(drawn, (0, top))
        top += chart.height
    _text(ImageDraw.Draw(picture), MARGIN, height + LINE // 2, caption, "lm")
    about = PngInfo()
    about.add_text("Source", source)
    picture.quantize(COLOURS).convert("P" if path.endswith(".png") else "RGB").save(path, pnginfo=about)


def _legend(canvas: ImageDraw, title: str, names: Sequence[str]) -> None:
    _text(canvas, MARGIN, LINE + 6, title, "lm")
    for place, name in enumerate(names):
        at = 2 * LINE + LEGEND_HEIGHT * place
        canvas.rectangle((MARGIN, at, MARGIN + 20, at + 20), fill=SERIES_COLOURS[place])
        _text(canvas, MARGIN + 32, at + 10, name, "lm")


def _bar(canvas: ImageDraw, left: int, top: int, value: float, share: float, place: int) -> None:
    bottom = HEIGHT - MARGIN
    height = bottom - round((bottom - top) * share)
    canvas.rectangle((left, height, left + BAR_WIDTH - 6, bottom), fill=SERIES_COLOURS[place])
    _text(canvas, left + BAR_WIDTH // 2, height - 14, f"{value:,.0f}" if value >= 100 else f"{value:.3g}")


def _text(canvas: ImageDraw, x: int, y: int, text: str, anchor: str = "mm") -> None:
    from PIL import ImageFont

    canvas.text((x, y), text, fill=INK, anchor=anchor, font=ImageFont.load_default(TEXT_SIZE))
