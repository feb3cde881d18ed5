"""What it takes to let a long row into the decode batch's caches and out of them, against copying that row."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from localai_shim.engine import kv

from .bench import Bench
from .figures import Figure, Section, print_figures, print_table, ratios, spread
from .models import SIZES

ROWS, FEW, TOKENS = 16, 2, 4_096
TARGET = 1.2
_FRESH, _IN_USE, _GROWING = "copy to fresh memory", "copy to memory in use", "join, buffers grow"

Row = list[Any]
Seconds = dict[str, list[float]]


def measure(bench: Bench) -> Section:
    """Rows of the small model's shape, whatever the model is; copies and joins in turns."""
    repeats = 5 if bench.quick else 15
    many, few = _timed(ROWS, repeats), _timed(FEW, repeats)
    print(f"A row of {TOKENS} tokens ({_bytes(_row()) / 1e6:.0f} MB), milliseconds")
    head = ["", f"{ROWS} rows in the batch", f"{FEW} rows"]
    print_table(head, [[name, spread(many[name], 1e3), spread(few[name], 1e3)] for name in many])
    figures = []
    for name, target in (("join", TARGET), ("leave", TARGET), ("close the slot", None)):
        for copy in (_FRESH, _IN_USE):
            label = f"joins: {name}, {ROWS} rows of {TOKENS} / {copy}"
            figures.append(Figure(label, ratios(many[name], many[copy]), target, at_least=False))
    # Each in units of the copies beside it: the two were measured one after the other.
    independent = [median(ratios(many["join"], many[_IN_USE])) / median(ratios(few["join"], few[_IN_USE]))]
    figures.append(Figure(f"joins: join beside {ROWS} rows / beside {FEW}", independent, TARGET, at_least=False))
    grown = [seconds / median(many[_FRESH]) for seconds in many[_GROWING]]
    figures.append(Figure(f"joins: {_GROWING}, {ROWS} rows / {_FRESH}", grown, None))
    print_figures(figures)
    return Section(figures, {f"{ROWS} rows": many, f"{FEW} rows": few})


def _timed(others: int, repeats: int) -> Seconds:
    """Beside so many other rows."""
    row, target = _row(), _row()
    out: Seconds = {}

    def timed(name: str, run: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = run()
        out.setdefault(name, []).append(time.perf_counter() - start)
        return result

    for _ in range(2 + repeats // 5):
        small, _ = kv.join(None, [_row() for _ in range(others)])
        start = time.perf_counter()
        kv.join(small, [row])
        out.setdefault(_GROWING, []).append(time.perf_counter() - start)
        del small
    cache, slots = kv.join(None, [_row() for _ in range(others + 1)])
    cache.leave(slots[-1:])
    for _ in range(repeats + 1):
        mx.clear_cache()
        timed(_FRESH, lambda: _copy(row))
        timed(_IN_USE, lambda: _overwrite(target, row))
        _, (slot,) = timed("join", lambda: kv.join(cache, [row]))
        timed("leave", lambda: cache.leave([0]))
        timed("close the slot", cache.compact)  # by moving the last row there
        if cache.width != others:
            raise RuntimeError(f"slot {slot} was not closed")
    return {name: seconds[1:] for name, seconds in out.items()}  # the first ones warm up


def _row() -> Row:
    """A prefilled row's cache, with the spare room that prefilling leaves."""
    size = SIZES["small"]
    row = []
    for _ in range(size.layers):
        cache = KVCache()
        shape = (1, size.kv_heads, TOKENS, size.head_dim)
        cache.update_and_fetch(mx.random.normal(shape), mx.random.normal(shape))
        one = (1, size.kv_heads, 1, size.head_dim)
        cache.update_and_fetch(mx.zeros(one), mx.zeros(one))
        cache.trim(1)
        mx.eval(cache.keys, cache.values)
        row.append(cache)
    return row


def _arrays(row: Row) -> list[Any]:
    return [array for layer in row for array in (layer.keys, layer.values)]


def _bytes(row: Row) -> int:
    return sum(array[:, :, :TOKENS].nbytes for array in _arrays(row))


def _copy(row: Row) -> None:
    mx.eval([mx.contiguous(array[:, :, :TOKENS]) for array in _arrays(row)])


def _overwrite(target: Row, row: Row) -> None:
    """A copy into buffers that are there already; each has one holder at the time, so that MLX writes in place."""
    for into, layer in zip(target, row, strict=True):
        into.keys[:, :, :TOKENS] = layer.keys[:, :, :TOKENS]
        into.values[:, :, :TOKENS] = layer.values[:, :, :TOKENS]
    _eval_all(_arrays(target))


def _eval_all(arrays: Sequence[Any]) -> None:
    mx.eval(list(arrays))
