"""The plots of docs/performance.md show what was measured, and the page shows the plots."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks.charts import HEIGHT, SERIES_COLOURS, Chart, draw_charts
from benchmarks.plots import PLOTS, digest, draw_all

DOCS = Path(__file__).parents[1] / "docs"
FOLDER = DOCS / "figures"
DATA = sorted(FOLDER.glob("*.json"))
PAGES = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))


def area(picture: Image.Image, colour: str) -> int:
    """Pixels of a colour."""
    wanted = tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return sum(count for count, found in picture.convert("RGB").getcolors(10**6) or () if found == wanted)


def test_a_bar_is_as_high_as_its_number(tmp_path: Path) -> None:
    chart = Chart("tokens", ["one", "two"], {"a": [100.0, None], "b": [None, 50.0], "c": [25.0, 25.0]})
    draw_charts([chart], str(tmp_path / "chart.png"))
    with Image.open(tmp_path / "chart.png") as picture:
        legend = 21 * 21
        a, b, c = (area(picture, colour) - legend for colour in SERIES_COLOURS[:3])
    assert a == pytest.approx(2 * b, rel=0.02) and b == pytest.approx(c, rel=0.02) and c > 0


def test_charts_stand_below_each_other_and_zeros_can_be_drawn(tmp_path: Path) -> None:
    charts = [Chart("one", ["a"], {"x": [0.0]}), Chart("two", ["a\nb", "c"], {"x": [1.0, 2.0], "y": [None, None]})]
    draw_charts(charts, str(tmp_path / "charts.png"), "below", "of nothing")
    with Image.open(tmp_path / "charts.png") as picture:
        assert picture.width == max(chart.width for chart in charts) and picture.height > 2 * HEIGHT
        assert picture.info["Source"] == "of nothing"


@pytest.mark.parametrize("path", DATA, ids=lambda path: path.stem)
def test_the_pictures_are_drawn_of_the_measurements(path: Path, tmp_path: Path) -> None:
    drawn = draw_all(path, tmp_path)
    assert drawn and {each.name for each in drawn} == {each.name for each in FOLDER.glob(f"{path.stem}-*.png")}
    for each in drawn:
        with Image.open(each) as made, Image.open(FOLDER / each.name) as committed:
            assert made.size == committed.size
            assert made.info["Source"] == committed.info["Source"] == digest(path.read_bytes()), "run `make figures`"


@pytest.mark.parametrize("path", DATA, ids=lambda path: path.stem)
def test_measurements_say_where_and_when(path: Path) -> None:
    parts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for about in (part["about"] for part in parts.values()):
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", about["date"]) and about["machine"] and about["versions"]
    assert path.stat().st_size < 50_000 and not re.search(r"(/home|/tmp|/work|/Users)/", path.read_text())


def test_every_plot_is_on_a_page_and_there_is_one_of_each() -> None:
    shown = set(re.findall(r"\]\(figures/([\w-]+\.png)\)", PAGES))
    assert shown == {path.name for path in FOLDER.glob("*.png")}
    assert {f"cpu-{name}.png" for name in PLOTS} <= shown
