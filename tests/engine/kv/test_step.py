"""How many places of each slot a step reads, and when a GPU begins with it."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.cache_contents import Ring
from localai_shim.engine.kv import step as of_steps
from localai_shim.engine.kv.step import Step

ON_CPU = not mx.is_available(mx.gpu)


def columns(*lengths: int, capacity: int = 1024, ring: Ring | None = None) -> int:
    return Step(np.array(lengths), has_free=False).columns(capacity, ring)


def test_even_rows_are_read_as_far_as_they_go() -> None:
    assert columns(196, 196) == 197


@pytest.mark.skipif(not ON_CPU, reason="what a CPU does")
@pytest.mark.parametrize(("longest", "read"), [(196, 200), (199, 200), (200, 208), (1020, 1024)])
def test_on_a_cpu_others_are_read_a_few_places_further_than_the_longest(longest: int, read: int) -> None:
    """A place that is read takes its time there, and a new shape takes none."""
    assert columns(longest, 128) == read


def test_on_a_gpu_lengths_come_from_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_steps, "_masked_columns", lambda: of_steps.MASKED_COLUMNS)
    assert {columns(length, 128) for length in range(192, 255)} == {256}
    assert columns(1020, 128, capacity=1022) == 1022


def test_what_no_row_has_is_masked() -> None:
    step = Step(np.array([9, 3]), has_free=False)
    mask = step.mask(256, None, None)
    assert mask is not None and mask.shape == (2, 1, 1, step.columns(256, None))
    assert np.array(mask)[:, 0, 0].sum(axis=1).tolist() == [10, 4]


@pytest.mark.parametrize(("tokens", "on_gpu", "begun"), [(1, True, []), (3, False, []), (3, True, [8, 16])])
def test_a_gpu_begins_with_a_step_of_several_tokens_while_it_is_built(
    tokens: int, on_gpu: bool, begun: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is in flight then; a step of one token is built while the one before it runs."""
    evaluated: list[mx.array] = []
    monkeypatch.setattr(of_steps, "_on_gpu", lambda: on_gpu)
    monkeypatch.setattr(of_steps, "_async_eval", lambda *arrays: evaluated.extend(arrays))
    step = Step(np.array([9, 3]), has_free=False, tokens=tokens)
    layers = [mx.array(layer) for layer in range(1, 21)]
    for layer in layers:
        step.wrote([layer])
    assert [array.item() for array in evaluated] == begun
