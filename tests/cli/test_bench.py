"""`bench`: rates of streams beside the model's steps alone, in a table and a picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from localai_shim.cli import bench
from localai_shim.cli.main import main
from localai_shim.cli.measure import BUSY, Level, _rate, _Run, measure
from localai_shim.cli.plot import draw
from localai_shim.models.bare import bare_rate
from localai_shim.models.text import TextModel, load_text_model
from tests.tiny import tiny


def test_the_table_has_a_row_per_number_of_streams_and_the_plot_is_a_picture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "STREAMS", (1, 3))
    assert main(["bench", str(tiny("qwen3")), "--seconds", "0.2", "--plot", str(tmp_path / "plot.png")]) == 0
    head, one, three = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["streams", "TTFT", "tok/s", "per", "stream", "bare", "step", "ratio"]
    assert (one[0], three[0]) == ("1", "3") and len(one) == len(three) == 7  # 'ms' is a word of its own
    with Image.open(tmp_path / "plot.png") as picture:
        assert picture.format == "PNG" and len(picture.getcolors(10**6)) > 3


@pytest.mark.parametrize(
    ("level", "busy"),
    [
        (Level(1, 0.1, 121, 100), True),
        (Level(1, 0.1, 109, 100), False),
        (Level(1, 0.1, 500, None), False),
        (Level(1, 0.1, 500, 100, drafted=True), False),
    ],
)
def test_streams_that_are_faster_than_their_steps_tell_of_a_busy_machine(
    level: Level, busy: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "measure", lambda *_: [Level(8, 0.1, 90, 100), level])
    assert main(["bench"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3 and err == (f"note: {BUSY}\n" if busy else "")


def test_what_was_measured_adds_up() -> None:
    [level] = measure(str(tiny("qwen3")), [2], 0.2, {"max_rows": 4})
    assert level.streams == 2 and level.rate > 0 and level.first_token_seconds > 0
    assert level.bare_rate is not None and level.ratio == level.rate / level.bare_rate


def test_a_model_that_cannot_be_loaded_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    assert main(["bench", str(tmp_path), "--seconds", "0.2"]) == 1
    assert capsys.readouterr().err.startswith("localai-shim bench: The model ")
    assert main(["bench", "--seconds", "0"]) == 1
    assert capsys.readouterr().err == "localai-shim bench: --seconds must be positive, not 0\n"


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text", "qwen3_next"])
def test_the_steps_alone_can_be_measured_for_every_kind_of_cache(kind: str) -> None:
    model = load_text_model(str(tiny(kind)), {})
    for rows in (1, 3):
        rate = bare_rate(model, rows, 0.01)
        assert rate is not None and rate > 0


def test_a_cache_that_upstream_cannot_merge_has_no_bare_step(monkeypatch: pytest.MonkeyPatch) -> None:
    class Alone:
        state = ()

    model = load_text_model(str(tiny("qwen3")), {})
    monkeypatch.setattr(TextModel, "new_cache", lambda self: [Alone()])
    monkeypatch.setattr(TextModel, "prefill", lambda self, step: None)
    assert bare_rate(model, 2, 0.01) is None


def test_a_rate_is_that_of_the_time_in_which_all_streams_ran() -> None:
    first = _Run(0.0, [1.0, 2.0, 3.0, 4.0], tokens=4)
    second = _Run(0.0, [2.0, 3.0, 4.0, 5.0], tokens=8)  # two tokens per chunk
    assert _rate([first, second]) == pytest.approx((1 * 2 + 2 * 2) / 2)


def test_streams_that_never_ran_together_have_the_rate_of_all_of_it() -> None:
    assert _rate([_Run(0.0, [1.0], tokens=4), _Run(1.0, [3.0], tokens=8)]) == pytest.approx(12 / 3)


def test_a_plot_without_bare_steps_can_be_drawn(tmp_path: Path) -> None:
    draw([Level(1, 0.1, 10.0, None)], str(tmp_path / "plot.png"))
    with pytest.raises(ValueError, match="extension"):
        draw([Level(1, 0.1, 10.0, 12.0)], str(tmp_path / "plot.nothing"))
