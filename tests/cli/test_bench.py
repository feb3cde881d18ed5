"""`bench`: rates of concurrent streams, in a table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from localai_shim import LocalOpenAI
from localai_shim.cli import bench
from localai_shim.cli.bench import Run, measure, rate
from localai_shim.cli.main import main
from tests.embedding_models import tiny_embedder
from tests.tiny import tiny


def test_the_table_has_a_row_per_number_of_streams(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "STREAMS", (1, 3))
    assert main(["bench", str(tiny("qwen3")), "--seconds", "0.2"]) == 0
    head, one, three = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["streams", "TTFT", "tok/s", "per", "stream"]
    assert (one[0], three[0]) == ("1", "3") and len(one) == len(three) == 5  # 'ms' is a word of its own


def test_measured_rates_are_those_of_all_streams_together() -> None:
    with LocalOpenAI(str(tiny("qwen3")), max_rows=4, keep_alive=0) as client:
        [level] = measure(client, [2], 0.2)
        assert client.stats().generated_tokens >= 2 * 8
    assert level.streams == 2 and level.rate > 0 and level.first_token_seconds > 0


def test_a_model_that_cannot_be_loaded_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    assert main(["bench", str(tmp_path), "--seconds", "0.2"]) == 1
    assert capsys.readouterr().err.startswith("localai-shim bench: The model ")
    assert main(["bench", "--seconds", "0"]) == 1
    assert capsys.readouterr().err == "localai-shim bench: --seconds must be > 0, got 0\n"


def test_a_model_that_generates_no_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(tiny_embedder()), "--seconds", "0.2"]) == 1
    assert re.match(r"localai-shim bench: The model '\S+' cannot generate text", capsys.readouterr().err)


def test_a_rate_is_that_of_the_time_in_which_all_streams_ran() -> None:
    first = Run(0.0, [1.0, 2.0, 3.0, 4.0], tokens=4)
    second = Run(0.0, [2.0, 3.0, 4.0, 5.0], tokens=8)  # two tokens per chunk
    assert rate([first, second]) == pytest.approx((1 * 2 + 2 * 2) / 2)


def test_streams_that_never_ran_together_have_the_rate_of_all_of_it() -> None:
    assert rate([Run(0.0, [1.0], tokens=4), Run(1.0, [3.0], tokens=8)]) == pytest.approx(12 / 3)
