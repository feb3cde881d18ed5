"""Progress of loading: a bar on a terminal, a line in the log elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub.utils.tqdm import are_progress_bars_disabled
from huggingface_hub.utils.tqdm import tqdm as hub_bar

if TYPE_CHECKING:
    import mlx.core as mx

log = logging.getLogger("localai_shim")

BAR_DELAY_SECONDS = 0.5  # what takes less shows no bar
PIECE_BYTES = 256 * 2**20  # of weights, read between two updates of the bar


class Bar(hub_bar):
    """The hub's bar; it disappears when it is full, and starts no thread.

    `snapshot_download` makes three of its class: one counts files, one what came over the network, and one what is on
    disk, which is shown.
    """

    monitor_interval = 0
    shown: bool | None = None
    """None: on a terminal."""

    def __init__(self, *args: object, **options: object) -> None:
        if "unit" not in options or str(options.get("name")).endswith(".transfer"):
            options["disable"] = True
        elif self.shown is not None:
            options["disable"] = not self.shown
        super().__init__(*args, **{"delay": BAR_DELAY_SECONDS, "leave": False, **options})  # type: ignore[no-untyped-call]


def bar_class(progress: bool | None) -> type[Bar]:
    """The bar for downloads; `progress` as the client's option."""
    return Bar if progress is None else type(Bar.__name__, (Bar,), {"shown": progress})


def shows_bars(progress: bool | None = None) -> bool:
    """True if a bar is wanted, or else stderr is a terminal, and bars are not switched off
    (`HF_HUB_DISABLE_PROGRESS_BARS`).
    """
    stream = sys.stderr
    if stream is None or are_progress_bars_disabled():
        return False
    return stream.isatty() if progress is None else progress


def announce(name: str, path_or_id: str, progress: bool | None = None) -> None:
    """Log what is being loaded, unless a bar shows it."""
    if shows_bars(progress):
        return
    folder = Path(path_or_id)
    if not folder.exists():
        log.info("loading '%s' from the Hugging Face hub or its cache", path_or_id)
        return
    files = [folder] if folder.is_file() else [file for file in folder.glob("*.safetensors") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    log.info("loading '%s': %.1f GB of weights", name, size / 1e9)


def read_weights(name: str, arrays: Sequence[mx.array], progress: bool | None = None) -> None:
    """Evaluate a model's lazy weights: together, or in pieces with a bar, which take no longer.

    Args:
        name: of the model.
        arrays: the weights.
        progress: whether a bar is shown; None: on a terminal.
    """
    import mlx.core as mx

    if not shows_bars(progress):
        mx.eval(arrays)
        return
    total = sum(array.nbytes for array in arrays)
    with bar_class(progress)(desc=f"Loading {name}", total=total, unit="B", unit_scale=True) as bar:
        first = size = 0
        for end, array in enumerate(arrays, 1):
            size += array.nbytes
            if size >= PIECE_BYTES or end == len(arrays):
                mx.eval(arrays[first:end])
                bar.update(size)
                first, size = end, 0


def make_bar(name: str) -> Callable[[int, int], None]:
    """Make a bar of how many of a batch's lines are done, of how many, on a terminal; elsewhere nothing."""
    bar: Bar | None = None

    def show(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            how = {"unit": " lines", "delay": 0, "leave": True, "disable": not shows_bars()}
            bar = Bar(desc=name, total=total, initial=done, **how)
        bar.update(done - bar.n)
        if done >= total:
            bar.close()

    return show
