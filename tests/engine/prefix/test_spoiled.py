"""Rows that turned out to be NaN: no other prompt gets their keys and values, from memory or from a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.cache_contents import Contents, States
from localai_shim.engine.engine import EngineOptions
from localai_shim.types import Prompt, RowError
from tests import inside
from tests.engine.counting import counting, expected, tokens
from tests.engine.folders import LONG, Fake, files, flush
from tests.samples import only
from tests.tiny import CONFIGS

NAN = mx.array(float("nan"))


class Spoiling(Fake):
    """Rows with a token 1 are NaN."""

    def row(self, tokens: Sequence[int], start: int = 0) -> list[Contents]:
        row: list[Any] = super().row(tokens, start)
        if 1 in tokens:
            row = [replace(layer, arrays=tuple(array * NAN for array in layer.arrays)) for layer in row]
        return row


@pytest.fixture(params=[False, True], ids=["cuts anywhere", "with states"])
def model(request: pytest.FixtureRequest) -> Spoiling:
    return Spoiling(states=request.param)


def test_row_that_is_nan_is_not_found_and_not_written(model: Spoiling, tmp_path: Path) -> None:
    cache = model.cache(tmp_path)
    model.insert(cache, [1, *LONG])
    assert model.found(cache, [1, *LONG]) == 0
    model.insert(cache, [2, 1, *LONG])
    flush(cache)
    assert files(tmp_path) == [] and cache.bytes == 0


def test_row_before_the_nan_stays_and_rows_behind_it_go(model: Spoiling, tmp_path: Path) -> None:
    cache = model.cache(tmp_path)
    model.insert(cache, LONG[10:])
    before = cache.bytes
    for row in ([*LONG[10:], 1, *LONG], [*LONG[10:], 1, *LONG, *LONG], [*LONG[10:], 1, *LONG[:20], 9]):
        model.insert(cache, row)
    assert cache.match_prefix(None, [*LONG[10:], 1, *LONG]) == len(LONG[10:])
    assert model.found(cache, [*LONG[10:], 1, *LONG]) == len(LONG[10:])
    assert cache.bytes == before
    model.insert(cache, [*LONG, *LONG])
    assert model.found(cache, [*LONG, *LONG]) == 2 * len(LONG)


def test_snapshot_that_is_nan_goes_and_the_keys_before_it_stay(tmp_path: Path) -> None:
    model = Fake(states=True)
    cache = model.cache(tmp_path)
    model.insert(cache, [*LONG, *LONG])

    def read(start: int) -> list[Contents]:
        keys, state = model.row(LONG, start)
        assert isinstance(state, States)
        return [keys, replace(state, arrays=(NAN,))]

    cache.insert(None, LONG, read)
    assert model.found(cache, LONG) == 0
    assert model.found(cache, [*LONG, *LONG]) == 2 * len(LONG)


# -- models -----------------------------------------------------------------------------------------------------------


def embedding(model: Any) -> Callable[[], None]:
    """Have one token's embedding be NaN, which is in the middle of the prompt; returns what makes it sound again."""
    table = next(module for name, module in model.named_modules() if name.endswith("embed_tokens"))
    weight = table.weight
    table.weight = mx.where(mx.arange(len(weight))[:, None] == tokens(60)[30], NAN.astype(weight.dtype), weight)
    return lambda: setattr(table, "weight", weight)


def last_layer(model: Any) -> Callable[[], None]:
    """Have the last layer's products be NaN."""
    layer = [module for name, module in model.named_modules() if name.rpartition(".")[2] in ("k_proj", "in_proj")][-1]
    weight = layer.weight
    layer.weight = weight * NAN.astype(weight.dtype)
    return lambda: setattr(layer, "weight", weight)


@pytest.mark.parametrize("spoil", [embedding, last_layer])
@pytest.mark.parametrize("kind", only(["qwen3", "gemma3_text", "qwen3_next"], CONFIGS))
def test_prompt_that_was_nan_is_run_again_once_the_model_is_sound(kind: str, spoil: Any, tmp_path: Path) -> None:
    with counting(kind, EngineOptions(cache_dir=str(tmp_path), prefill_chunk=16)) as c:
        prompt, made = tokens(60), list[Callable[[], None]]()
        c.engine._change(lambda: made.append(spoil(inside.network(c.engine.model)))).result()
        with contextlib.suppress(RowError):
            c.ask(Prompt(prompt, boundaries=[20, 50]))
        c.engine._change(made[0]).result()
        said, prefilled = c.ask(prompt)
        assert said == expected(kind, prompt)
        assert prefilled >= 59 - (20 if spoil is embedding else 0)  # of the tokens before the NaN
