"""What is kept of a row, in memory and in files, becomes a row of the same library's classes again."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.cache_contents import is_trimmable
from localai_shim.engine.kv import RowCache, copied, read_row
from localai_shim.engine.kv.row import leaves, write_row
from localai_shim.engine.kv.segments import Segment, Snapshot, build_row, take_segment, take_snapshot
from localai_shim.engine.prefix.store import file_pieces, parse_file
from tests.engine.row_caches import CHANGES, KINDS, forward, load, prefilled

PROMPT = [(5 + 7 * i + 11 * i * i) % 390 + 3 for i in range(50)]
MAIN = [kind for kind in KINDS if "unknown" not in kind and "keeps" not in kind]


def stored(segment: Segment, snapshot: Snapshot | None) -> tuple[Segment, Snapshot | None]:
    """After a way through a file."""
    return parse_file(b"".join(map(bytes, file_pieces({}, segment, snapshot))))


def kept(segment: Segment, snapshot: Snapshot | None) -> tuple[Segment, Snapshot | None]:
    return segment, snapshot


def kinds_of(row: RowCache) -> list[Any]:
    return [(type(layer), [type(part) for part in getattr(layer, "caches", ())]) for layer in row]


@pytest.mark.parametrize("way", [kept, stored], ids=["memory", "file"])
@pytest.mark.parametrize("kind", MAIN)
def test_a_row_comes_back_as_it_was(kind: str, way: Any) -> None:
    name, make, _ = KINDS[kind]
    model = load(name, **CHANGES.get(kind, {}))
    row = prefilled(model, make, PROMPT)
    contents = copied(row)
    snapshot = None if all(map(is_trimmable, leaves(contents))) else take_snapshot(contents, len(PROMPT))
    segment, snapshot = way(take_segment(contents, 0, len(PROMPT)), snapshot)
    empty = read_row(make(model))
    rows = [build_row(empty, [segment], snapshot, len(PROMPT), 64) for _ in range(2)]
    assert kinds_of(rows[0]) == kinds_of(row)
    held = [array.tolist() for array in [*segment, *([] if snapshot is None else snapshot.arrays)]]
    for token in PROMPT[:6]:
        expected = forward(model, [token], row)
        for again in rows:
            assert mx.allclose(forward(model, [token], again), expected, rtol=1e-3, atol=2e-3)
    now = [array.tolist() for array in [*segment, *([] if snapshot is None else snapshot.arrays)]]
    assert now == held, "what is kept is not changed by the rows that are made of it"


@pytest.mark.parametrize("kind", [kind for kind in MAIN if KINDS[kind][2]])
def test_a_prefix_is_cut_where_it_is_asked_for(kind: str) -> None:
    name, make, _ = KINDS[kind]
    model = load(name, **CHANGES.get(kind, {}))
    segment = take_segment(copied(prefilled(model, make, PROMPT)), 0, len(PROMPT))
    row = build_row(read_row(make(model)), [segment], None, 21, 64)
    expected = prefilled(model, make, PROMPT[:21])
    assert kinds_of(row) == kinds_of(expected)
    for token in PROMPT[21:25]:
        assert mx.allclose(forward(model, [token], row), forward(model, [token], expected), rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("kind", MAIN)
def test_a_row_that_is_read_and_written_is_of_the_same_classes(kind: str) -> None:
    name, make, _ = KINDS[kind]
    model = load(name, **CHANGES.get(kind, {}))
    for row in (make(model), prefilled(model, make, PROMPT)):
        assert kinds_of(write_row(read_row(row))) == kinds_of(row)
