"""What the prefix cache leaves in a folder is found by whoever comes next, however they cut it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.cache_contents import Contents, KeyValues, Quantised, States
from localai_shim.engine.engine import EngineOptions
from localai_shim.engine.kv import RowCache, copied, read_row
from localai_shim.engine.kv.row import leaves, write_row
from localai_shim.engine.prefix import cache as prefix_cache
from localai_shim.engine.prefix import store as prefix_store
from localai_shim.engine.prefix.cache import PrefixCache
from localai_shim.engine.prefix.store import PrefixStore
from localai_shim.models.loading import load_model
from localai_shim.models.text import TextModel
from localai_shim.types import Prompt
from tests import machines
from tests.engine.asking import answers, asking
from tests.engine.counting import KINDS, Counting, counting, expected, tokens
from tests.engine.folders import LONG, PLENTY, Fake, files, flush, left_by, parts
from tests.engine.harness import engine_for, eventually, quantised_by, step_of
from tests.engine.segments import arrays_of, common_length, random_tokens
from tests.samples import only, sampled
from tests.tiny import tiny

# -- what is found ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(machines.ASKED_FOR, reason="the other process computes on another device")
@pytest.mark.parametrize(
    ("kind", "close"),
    only([("gemma3_text", True), ("qwen3_next", False)], itertools.product(KINDS, [True, False])),
    ids=lambda value: {True: "closed", False: "left to the interpreter's exit"}.get(value, value),
)
def test_another_process_prefills_only_what_is_new(kind: str, close: bool, tmp_path: Path) -> None:
    first = tokens(90)
    [(said, prefilled, cached)] = answers(asking(kind, tmp_path, [first], close=close))
    assert (said, prefilled, cached) == (expected(kind, first), 89, 0)
    assert files(tmp_path) and not parts(tmp_path)
    with counting(kind, EngineOptions(cache_dir=tmp_path)) as c:
        again = Prompt(first)
        assert (c.ask(again), again.cached_tokens) == ((said, 0), 89)
        going_on = Prompt([*first, *said, *tokens(12, 2)])
        more, prefilled = c.ask(going_on)
        assert more == expected(kind, going_on.tokens)
        assert prefilled <= 12 and going_on.cached_tokens == len(going_on.tokens) - 1 - prefilled


def prefilled(model: TextModel, tokens: Sequence[int]) -> RowCache:
    row = model.new_cache()
    model.prefill(step_of(tokens, row))
    return row


def in_dtype(layer: Contents, dtype: Any) -> Contents:
    assert isinstance(layer, KeyValues | States)
    return replace(layer, arrays=tuple(a.astype(dtype) if a.dtype == mx.float32 else a for a in layer.arrays))


@pytest.mark.parametrize("how", [None, Quantised(64, 8), Quantised(32, 8)], ids=["plain", "8 bits/64", "8 bits/32"])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16], ids=["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_from_the_folder_is_the_row_from_memory(
    kind: str, dtype: Any, how: Quantised | None, tmp_path: Path
) -> None:
    model = load_model(str(tiny(kind, head_dim=64)), quantised_by(how))
    prompt = tokens(75)
    # MLX's CPU back end has no experts in half precision, so that the row is converted and not the model.
    row = write_row([in_dtype(layer, dtype) for layer in read_row(prefilled(model, prompt[:60]))])
    make = partial(PrefixCache, model.new_cache(), model.fingerprint, PLENTY, tmp_path, PLENTY)
    memory = make()
    memory.insert(None, prompt[:60], partial(copied, row))
    flush(memory)
    started = [cache.start(None, prompt) for cache in (memory, make())]
    assert [length for _, length in filter(None, started)] == [60, 60]
    here, there = (leaves(read_row(row)) for row, _ in filter(None, started))
    for a, b in zip(here, there, strict=True):
        assert [x.dtype for x in a.arrays] == [x.dtype for x in b.arrays]
        assert all(mx.array_equal(x, y) for x, y in zip(a.arrays, b.arrays, strict=True))
    assert any(x.dtype == dtype for layer in here for x in layer.arrays)


def test_quantised_rows_go_on_from_the_folder(tmp_path: Path) -> None:
    how = Quantised(64, 8)
    prompt = tokens(90)
    said = []
    for options in (EngineOptions(prefix_cache_bytes=0), *[EngineOptions(cache_dir=tmp_path)] * 2):
        engine = engine_for("qwen3", options, kv=how, head_dim=64)
        said.append(Counting(engine).ask(prompt))
        engine.close()
    assert said == [(said[0][0], 89), (said[0][0], 89), (said[0][0], 0)]


def test_an_engine_that_is_idle_writes_what_it_has_kept(tmp_path: Path) -> None:
    with counting("qwen3", EngineOptions(cache_dir=tmp_path)) as c:
        c.ask(tokens(90), n=1)
        assert eventually(lambda: bool(files(tmp_path)) and not parts(tmp_path))


def test_the_files_are_safetensors(tmp_path: Path) -> None:
    left_by(Fake(states=True), tmp_path, LONG)
    [path] = files(tmp_path)
    arrays, metadata = mx.load(str(path), return_metadata=True)  # type: ignore[misc]
    assert metadata["kind"] == "fp_fake" and sorted(arrays) == ["segment0", "segment1", "snapshot0"]
    assert mx.array_equal(arrays["segment0"], arrays_of(LONG)[0]) and arrays["snapshot0"].item() == sum(LONG)


def test_a_window_that_is_not_full_serves_every_beginning(tmp_path: Path) -> None:
    with counting("gemma3_text", EngineOptions(cache_dir=tmp_path)) as c:
        c.ask(tokens(31), n=1)
    with counting("gemma3_text", EngineOptions(cache_dir=tmp_path)) as c:
        branch = [*tokens(31)[:20], *tokens(10, 5)]
        assert c.ask(branch) == (expected("gemma3_text", branch), 9)


@pytest.mark.parametrize("states", [False, True], ids=["rows can be cut", "rows cannot be cut"])
@pytest.mark.parametrize("seed", sampled(range(12), 4))
def test_processes_that_cut_tokens_differently_find_each_other(
    seed: int, states: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setattr(prefix_cache, "MIN_PREFIX_TOKENS", 1)
    generator, model = random.Random(seed), Fake(states=states)
    memory = [PLENTY, 3000, 1500]  # some forget, and write what is below others' nodes
    several = [model.cache(tmp_path, budget) for budget in memory]
    known: list[list[int]] = []
    for _ in range(40):
        cache = generator.choice(several)
        row = random_tokens(generator)
        model.insert(cache, row)
        if generator.random() < 0.5:
            model.found(cache, random_tokens(generator))
        if generator.random() < 0.3:  # a write that is left in the middle, and gone on with later
            cache.save()
        if cache is several[0]:
            known.append(row)
        else:
            flush(cache)
    for cache in several:
        cache.close(60)
    fresh = model.cache(tmp_path)
    for asked in [*known, *(random_tokens(generator) for _ in range(30))]:
        common = [common_length(asked, row) for row in known]
        wanted = [n for n, row in zip(common, known, strict=True) if not states or n == len(row)]
        assert model.found(fresh, asked) >= max(wanted, default=0)
    assert not warnings and not parts(tmp_path)


def test_a_node_that_is_cut_in_memory_is_not_written_again(tmp_path: Path) -> None:
    model = Fake()
    cache = model.cache(tmp_path)
    model.insert(cache, LONG)
    flush(cache)
    before = files(tmp_path)
    branch = [*LONG[:60], *range(200, 230)]
    model.insert(cache, branch)
    flush(cache)
    assert len(files(tmp_path)) == 2 and set(before) < set(files(tmp_path))
    fresh = model.cache(tmp_path)
    assert [model.found(fresh, row) for row in (branch, LONG)] == [90, 100]


def test_what_another_process_has_written_is_not_written_twice(tmp_path: Path) -> None:
    model = Fake(states=True)
    several = [model.cache(tmp_path) for _ in range(3)]
    for cache in several:
        model.insert(cache, LONG)
        flush(cache)
    assert len(files(tmp_path)) == 1


def test_tokens_that_overlap_are_put_together(tmp_path: Path) -> None:
    model = Fake()
    store = PrefixStore(tmp_path, "fp_fake", PLENTY)
    for start, end in ((0, 50), (30, 80), (60, 100), (45, 70)):
        assert len(list(store.write(None, LONG[:end], start, arrays_of(LONG[:end], start), None)))
    assert [(s.start, s.end) for s in store.match_prefix(None, LONG, needs_snapshot=False)[0]] == [
        (0, 50),
        (30, 80),
        (60, 100),
    ]
    assert model.found(model.cache(tmp_path), LONG) == 100


def test_a_snapshot_that_comes_later_is_written_too(tmp_path: Path) -> None:
    model = Fake(states=True)
    cache = model.cache(tmp_path)
    model.insert(cache, LONG)
    flush(cache)
    model.insert(cache, LONG[:50])  # inside a node
    flush(cache)
    fresh = model.cache(tmp_path)
    assert [model.found(fresh, row) for row in (LONG[:60], LONG)] == [50, 100]


def test_parents_that_are_gone_are_written_again_with_their_children(tmp_path: Path) -> None:
    model = Fake()
    cache = model.cache(tmp_path)
    model.insert(cache, LONG)
    flush(cache)
    for path in files(tmp_path):
        path.unlink()
    (tmp_path / "fp_fake").rmdir()
    assert model.found(cache, LONG) == 100
    model.insert(cache, [*LONG, *LONG])
    flush(cache)
    assert model.found(model.cache(tmp_path), [*LONG, *LONG]) == 200


# -- what is not found -----------------------------------------------------------------------------------------------


def test_salts_separate(tmp_path: Path) -> None:
    model = Fake()
    cache = model.cache(tmp_path)
    model.insert(cache, LONG, salt="mine")
    flush(cache)
    fresh = model.cache(tmp_path)
    assert [model.found(fresh, LONG, salt) for salt in ("yours", None, "null", "mine")] == [0, 0, 0, 100]


def test_entries_of_another_model_or_another_kind_of_cache_are_not_read(tmp_path: Path, warnings: list[str]) -> None:
    left_by(Fake(), tmp_path, LONG)
    other = Fake(fingerprint="fp_other")
    assert other.found(other.cache(tmp_path), LONG) == 0
    ways = [None, Quantised(64, 8), Quantised(32, 8), Quantised(64, 4)]
    for i, how in enumerate(ways):
        wide = load_model(str(tiny("qwen3", head_dim=64)), quantised_by(how))
        cache = PrefixCache(wide.new_cache(), wide.fingerprint, PLENTY, tmp_path, PLENTY)
        assert cache.start(None, LONG) is None
        cache.insert(None, LONG, partial(copied, prefilled(wide, LONG)))
        flush(cache)
        assert len(files(tmp_path)) == i + 2
    assert not warnings


@pytest.mark.parametrize("changed", ["format", "model"])
def test_files_of_another_version_or_model_that_lie_in_the_folder_are_ignored(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    model = Fake()
    left_by(model, tmp_path, LONG)
    if changed == "format":
        monkeypatch.setattr(prefix_store, "FORMAT", "localai_shim prefix 999")
    else:
        (tmp_path / "fp_fake").rename(tmp_path / "fp_new")
        model.fingerprint = "fp_new"
    cache = model.cache(tmp_path)
    assert [model.found(cache, LONG) for _ in range(2)] == [0, 0]
    assert len(warnings) == 1 and "another" in warnings[0]
