"""The prefix cache's folder has a budget and several users, and is written to when the engine is idle."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine import loop
from localai_shim.engine.cache_contents import States
from localai_shim.engine.engine import EngineOptions
from localai_shim.engine.kv.segments import Segment, Snapshot
from localai_shim.engine.prefix.cache import PrefixCache
from localai_shim.engine.prefix.store import PrefixStore, file_pieces
from tests.engine.asking import answers, asking
from tests.engine.counting import KINDS, PER_TOKEN, counting, expected, tokens
from tests.engine.folders import LONG, Fake, files, flush, insert_and_write, left_by, parts, sizes_now
from tests.engine.harness import Running, eventually, request
from tests.samples import only
from tests.warm import ROOT, python

# -- the budget ------------------------------------------------------------------------------------------------------


def one(model: Fake, folder: Path) -> int:
    """Bytes of a file with a hundred tokens."""
    left_by(model, folder, LONG)
    [path] = files(folder)
    told = path.stat().st_size
    path.unlink()
    return told


def row(seed: int) -> list[int]:
    return [1000 + seed, *LONG[1:]]


def test_what_was_not_used_for_the_longest_time_goes_first(tmp_path: Path) -> None:
    model = Fake()
    budget = 3 * one(model, tmp_path) + 100
    cache = model.cache(tmp_path, folder_budget=budget)
    for seed in (1, 2, 3):
        model.insert(cache, row(seed))
        flush(cache)
    assert model.found(model.cache(tmp_path, folder_budget=budget), row(1)) == 100
    model.insert(cache, row(4))
    flush(cache)
    fresh = model.cache(tmp_path, folder_budget=budget)
    assert [model.found(fresh, row(seed)) for seed in (1, 2, 3, 4)] == [100, 0, 100, 100]
    assert sum(sizes_now(tmp_path)) <= budget


def test_what_others_build_on_goes_after_them(tmp_path: Path) -> None:
    model = Fake()
    budget = 3 * one(model, tmp_path) + 100
    cache = model.cache(tmp_path, folder_budget=budget)
    turns = [row(1) * n for n in (1, 2, 3)]
    for turn in turns:
        model.insert(cache, turn)
        flush(cache)
    model.insert(cache, row(2))
    flush(cache)
    assert model.found(model.cache(tmp_path), turns[2]) == 200


def test_rows_that_come_from_memory_count_as_used(tmp_path: Path) -> None:
    model = Fake()
    budget = 2 * one(model, tmp_path) + 100
    cache = model.cache(tmp_path, folder_budget=budget)
    for seed in (1, 2):
        model.insert(cache, row(seed))
        flush(cache)
    model.found(cache, row(1))
    model.insert(cache, row(3))
    flush(cache)
    fresh = model.cache(tmp_path)
    assert [model.found(fresh, row(seed)) for seed in (1, 2, 3)] == [100, 0, 100]


def test_models_share_the_folder_s_budget(tmp_path: Path) -> None:
    models = [Fake(fingerprint=f"fp_{i}") for i in range(4)]
    budget = 2 * one(models[0], tmp_path) + 100
    for model in models:
        cache = model.cache(tmp_path, folder_budget=budget)
        model.insert(cache, LONG)
        flush(cache)
    assert [len(files(tmp_path / model.fingerprint)) for model in models] == [0, 0, 1, 1]


def test_a_budget_that_became_smaller_is_kept_from_the_start(tmp_path: Path) -> None:
    model = Fake()
    budget = one(model, tmp_path) + 100
    left_by(model, tmp_path, row(1), row(2), row(3))
    model.cache(tmp_path, folder_budget=budget)
    assert len(files(tmp_path)) == 1


def test_a_row_larger_than_the_budget_pushes_nothing_out(tmp_path: Path) -> None:
    model = Fake()
    cache = model.cache(tmp_path, folder_budget=one(model, tmp_path) + 100)
    model.insert(cache, row(1))
    flush(cache)
    before = files(tmp_path)
    model.insert(cache, row(2) * 5)
    flush(cache)
    assert files(tmp_path) == before


def test_more_than_the_memory_budget_is_not_read(tmp_path: Path) -> None:
    model = Fake()
    left_by(model, tmp_path, LONG)
    cache = model.cache(tmp_path, budget=3000)
    model.insert(cache, row(2)[:20])
    before = cache.bytes
    assert model.found(cache, LONG) == 0
    assert model.found(cache, row(2)[:20]) == 20 and cache.bytes == before, "and pushes nothing out"


def test_parts_of_processes_that_died_are_cleared_away(tmp_path: Path) -> None:
    model = Fake()
    (tmp_path / "fp_fake").mkdir()
    old, new = (tmp_path / "fp_fake" / f"{name * 16}.part.safetensors" for name in "ab")
    for path in (old, new):
        path.write_bytes(b"half of it")
    os.utime(old, (time.time() - 7200,) * 2)
    left_by(model, tmp_path, LONG)
    assert parts(tmp_path) == [new]


def test_a_write_that_another_process_cleared_away_fails_nobody(tmp_path: Path, warnings: list[str]) -> None:
    model = Fake()
    cache = model.cache(tmp_path)
    model.insert(cache, LONG)
    cache.save()
    [part] = parts(tmp_path)
    part.unlink()
    model.insert(cache, row(2))
    flush(cache)
    assert model.found(model.cache(tmp_path), row(2)) == 100 and not warnings


@pytest.mark.parametrize(("kind", "rounds"), only([("qwen3", 1)], [("qwen3", 1), *((kind, 3) for kind in KINDS)]))
def test_two_processes_share_a_small_folder(
    kind: str, rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrefixCache, "insert", insert_and_write)
    budget, memory = 400 * PER_TOKEN, 150 * PER_TOKEN  # memories are too small, so that both live on the folder
    prompts = [[*tokens(40), *tokens(20 + 9 * i, i + 2)] for i in range(8)]
    wanted = [expected(kind, prompt) for prompt in prompts]
    other = asking(kind, tmp_path, prompts * rounds, folder_budget=budget, budget=memory, writes_at_once=True)
    largest = 0
    options = EngineOptions(cache_dir=tmp_path, cache_dir_bytes=budget, prefix_cache_bytes=memory)
    with counting(kind, options) as c:
        while other.poll() is None:
            threading.Event().wait(0.05)  # the other one needs the processor, too, above all to start
            for prompt, said in zip(prompts[::-1], wanted[::-1], strict=True):
                assert c.ask(prompt)[0] == said
                sizes = sizes_now(tmp_path)
                largest = max(largest, *sizes, 0)
                assert sum(sizes) <= budget + 2 * largest, "more than the budget and what either is about to count"
        assert c.engine.stats().cache_hits
    told = answers(other)
    assert [said for said, _, _ in told] == wanted * rounds
    assert any(cached for _, _, cached in told)
    assert sum(sizes_now(tmp_path)) <= budget and not parts(tmp_path)


# -- when it is written ----------------------------------------------------------------------------------------------


def test_an_idle_engine_writes_and_a_request_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "QUIET_SECONDS", 0.0)
    happened: list[str] = []
    running: list[Running] = []
    write = PrefixStore.write

    def watched(*args: Any) -> Iterator[None]:
        for i, _ in enumerate(write(*args)):
            if not running:
                running.append(Running(c.engine, request(tokens(20, 9), max_tokens=5)))
            happened.append(f"piece {i} beside {c.engine.stats().running} rows")
            yield
        happened.append("written")

    with counting("qwen3", EngineOptions(cache_dir=tmp_path)) as c:
        prefill = c.engine.model.prefill

        def seen(*args: Any, **more: Any) -> Any:
            happened.append("prefill")
            return prefill(*args, **more)

        c.engine.model.prefill = seen  # type: ignore[method-assign]
        monkeypatch.setattr(PrefixStore, "write", watched)
        c.ask(tokens(50), n=1)
        assert eventually(lambda: bool(running))
        assert running[0].finish() == [expected("qwen3", tokens(20, 9), 5)]
        assert eventually(lambda: happened.count("written") >= 2)
    assert happened[:3] == ["prefill", "piece 0 beside 0 rows", "prefill"], "one piece, then the request"
    assert all("beside 0" in what for what in happened if "piece" in what)
    assert not parts(tmp_path)


def test_pieces_are_small(tmp_path: Path) -> None:
    arrays: Segment = [mx.zeros((1, 2, 3000, 400)), mx.zeros((1, 1, 3000, 1))]
    snapshot = Snapshot(3000, [States((mx.zeros((1, 10)), None))])
    sizes = [len(piece) for piece in file_pieces({}, arrays, snapshot)]
    assert max(sizes) == 4 * 2**20 and sum(sizes) > 9_600_000


def test_a_closing_engine_writes_no_longer_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Fake()
    cache = model.cache(tmp_path)
    model.insert(cache, LONG)
    cache.save()
    assert parts(tmp_path)
    cache.close(0)
    assert not parts(tmp_path) and not files(tmp_path)
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    with counting("qwen3", EngineOptions(cache_dir=tmp_path)) as c:
        c.ask(tokens(50))
    assert not parts(tmp_path) and not files(tmp_path)


def test_a_process_that_is_killed_while_it_writes_leaves_nothing_broken(tmp_path: Path, warnings: list[str]) -> None:
    code = f"""
        import os, pathlib, signal
        from tests.engine.folders import LONG, Fake, flush
        model = Fake()
        cache = model.cache(pathlib.Path({str(tmp_path)!r}))
        model.insert(cache, LONG)
        flush(cache)
        model.insert(cache, LONG * 2)
        cache.save()
        cache.save()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([*python("mlx"), "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    assert len(parts(tmp_path)) == 1
    model = Fake()
    cache = model.cache(tmp_path)
    assert model.found(cache, LONG * 2) == 100
    model.insert(cache, LONG * 2)
    flush(cache)
    assert model.found(model.cache(tmp_path), LONG * 2) == 200 and not warnings
