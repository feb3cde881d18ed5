"""What loading says: a bar on a terminal, a line in the log elsewhere, and never anything on a plain stderr."""

from __future__ import annotations

import importlib
import inspect
import io
import logging
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import huggingface_hub
import mlx.core as mx
import mlx_lm.utils
import pytest
from huggingface_hub import _snapshot_download as hub_download
from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

from localai_shim import LocalOpenAI
from localai_shim.models import progress
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions
from tests import inside
from tests.tiny import tiny

hub = importlib.import_module("huggingface_hub.utils.tqdm")  # the package has a class of that name


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def attach_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Errors go to a terminal from here on, and everything takes long enough to be worth a bar.

    Called by tests and not a fixture: pytest sets `sys.stderr` anew after these.
    """
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "BAR_DELAY_SECONDS", 0)
    return terminal


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "localai_shim")


def load(**options: Any) -> Any:
    return load_model(str(tiny("qwen3")), LoadOptions(), "its-name", **options)


def test_a_terminal_gets_a_bar_that_goes_away_and_the_log_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = attach_terminal(monkeypatch)
    monkeypatch.setattr(progress, "PIECE_BYTES", 2**16)
    threads = threading.active_count()
    load()
    shown = terminal.getvalue().split("\r")
    total = "/501k ["  # bytes of tiny weights
    assert any(line.startswith("Loading its-name:   0%|") and total in line for line in shown)
    assert shown[-1].strip() == "" and "\n" not in terminal.getvalue()
    assert not caplog.records and threading.active_count() <= threads


def test_elsewhere_there_is_one_line_in_the_log_and_nothing_on_stderr(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    load()
    [record] = caplog.records
    assert (record.name, record.levelno, record.message) == (
        "localai_shim",
        logging.INFO,
        "loading 'its-name': 0.0 GB of weights",
    )
    out, err = capfd.readouterr()
    assert "its-name" not in out + err


def test_what_is_quick_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "BAR_DELAY_SECONDS", 3600)
    load()
    assert terminal.getvalue().strip() == ""


def test_who_has_switched_the_hubs_bars_off_gets_the_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    terminal = attach_terminal(monkeypatch)
    disable_progress_bars()
    try:
        load()
    finally:
        enable_progress_bars()
    assert terminal.getvalue() == "" and len(caplog.records) == 1


@pytest.mark.parametrize("stderr", [None, io.StringIO()], ids=["none", "plain"])
def test_a_program_without_a_terminal_can_load(monkeypatch: pytest.MonkeyPatch, stderr: Any) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    load()
    assert stderr is None or stderr.getvalue() == ""


def test_weights_are_read_whole_and_in_pieces_that_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = attach_terminal(monkeypatch)

    class Array:
        nbytes = 100 * 2**20

    for shown, sizes in ((True, [3, 3, 1]), (False, [7])):
        pieces: list[list[Any]] = []
        if not shown:
            terminal.isatty = lambda: False  # type: ignore[method-assign]
        arrays: Any = [Array() for _ in range(7)]
        monkeypatch.setattr(mx, "eval", pieces.append)
        progress.read_weights("m", arrays)
        assert [len(piece) for piece in pieces] == sizes
        assert [array for piece in pieces for array in piece] == arrays


def test_a_model_without_weights_of_its_own_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    attach_terminal(monkeypatch)
    progress.read_weights("m", [])


# -- downloads -------------------------------------------------------------------------------------------------------


def test_a_download_is_one_bar_of_the_bytes_on_disk(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The hub makes three bars of the class that it is given, as its `snapshot_download` does here."""
    terminal = attach_terminal(monkeypatch)
    told: dict[str, Any] = {}

    def download(path: str, *, revision: str | None, allow_patterns: list[str], tqdm_class: type[Any]) -> str:
        told.update(path=path, patterns=allow_patterns, revision=revision)
        make = hub._create_progress_bar
        name, level = "huggingface_hub.snapshot_download", logging.WARNING
        bytes_bar: dict[str, Any] = {"total": 100, "unit": "B", "unit_scale": True}
        bars = [
            make(cls=tqdm_class, log_level=level, name=f"{name}.transfer", desc="Network", **bytes_bar),
            make(cls=tqdm_class, log_level=level, name=name, desc="Disk", **bytes_bar),
            tqdm_class(desc="Fetching 3 files", total=3),
        ]
        for bar in bars:
            bar.update(1)
            bar.refresh()
            bar.close()
        return str(tiny("qwen3"))

    monkeypatch.setattr(mlx_lm.utils, "snapshot_download", download)
    model = load_model("somebody/something", LoadOptions())
    shown = terminal.getvalue()
    assert "Disk:" in shown and "Network" not in shown and "Fetching" not in shown and "\n" not in shown
    assert told["path"] == "somebody/something" and {*mlx_lm.utils.DEFAULT_ALLOW_PATTERNS} <= {*told["patterns"]}
    assert model.name == "somebody/something"
    assert not caplog.records


def test_the_hub_names_its_bars_as_they_are_told_apart_here() -> None:
    source = inspect.getsource(hub_download)
    assert 'name="huggingface_hub.snapshot_download.transfer"' in source and 'unit="B"' in source
    assert "tqdm_class" in inspect.signature(huggingface_hub.snapshot_download).parameters


# -- the client's option --------------------------------------------------------------------------------------------


def test_a_bar_that_is_wanted_shows_where_there_is_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = shutil.copytree(tiny("qwen3"), tmp_path / "model")  # which no other test has loaded
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    monkeypatch.setattr(progress, "BAR_DELAY_SECONDS", 0)
    with LocalOpenAI(path, progress=True, keep_alive=0) as client:
        assert inside.engine(client).model
    assert "Loading " in plain.getvalue() and not caplog.records


def test_a_bar_that_is_not_wanted_does_not_show_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = shutil.copytree(tiny("qwen3"), tmp_path / "model")
    terminal = attach_terminal(monkeypatch)
    with LocalOpenAI(path, progress=False, keep_alive=0) as client:
        assert inside.engine(client).model
    assert terminal.getvalue() == "" and [record.message for record in caplog.records if "loading" in record.message]


@pytest.mark.parametrize(("wanted", "shown"), [(True, True), (False, False), (None, False)])
def test_a_download_shows_as_wanted(monkeypatch: pytest.MonkeyPatch, wanted: bool | None, shown: bool) -> None:
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    monkeypatch.setattr(progress, "BAR_DELAY_SECONDS", 0)
    options: dict[str, Any] = {"total": 100, "unit": "B", "desc": "Disk", "name": "huggingface_hub.snapshot_download"}
    with hub._create_progress_bar(cls=progress.bar_class(wanted), log_level=logging.WARNING, **options) as bar:
        bar.update(1)
        bar.refresh()
    assert ("Disk" in plain.getvalue()) is shown


def test_clients_that_differ_in_it_share_an_engine() -> None:
    with LocalOpenAI(tiny("qwen3"), keep_alive=0) as one, LocalOpenAI(tiny("qwen3"), progress=False) as other:
        assert inside.engine(one) is inside.engine(other)


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(ValueError, match="`progress` must be True, False or None, not 'yes'"):
        LocalOpenAI(tiny("qwen3"), progress="yes")  # type: ignore[arg-type]
