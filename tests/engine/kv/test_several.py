"""Rows that take several tokens in a step compute what they compute one by one, whatever is taken back of them."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.kv import read_row, slots
from localai_shim.engine.kv import step as of_steps
from tests.engine.kv.several import World
from tests.engine.row_caches import KINDS, QUICK
from tests.samples import only

MISREAD = ("unknown", "mlx-vlm's: unknown", "mlx-vlm's: two caches per layer")
"""Kinds that take one token at a time, and a model whose code does not look at how many tokens count."""


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capacity in steps of 16 tokens, so that it grows often."""
    monkeypatch.setattr(slots, "SLOT_STEP_TOKENS", 16)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("kind", only(QUICK, [kind for kind in KINDS if kind not in MISREAD]))
def test_rows_keep_any_number_of_a_steps_tokens(kind: str) -> None:
    world = World.of(kind, seed=7)
    world.join(3, 1, 30)
    for i in range(14):
        if i in (4, 9):
            world.join(world.random.choice([5, 18, 23, 41]))
        if i in (6, 7, 11):
            world.leave(world.random.choice(sorted(world.alone)))
        if world.cache.wants_compaction:
            world.compact()
        if i % 4 == 3 and not any(world.replay.values()):
            world.one_each()
        else:
            world.several()
    assert world.full
    assert bool(world.replayed) == kind.endswith(("recurrent and dense", "two caches per layer"))


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("kind", only(QUICK, [kind for kind in KINDS if kind not in MISREAD]))
def test_steps_are_built_before_it_is_known_what_their_rows_hold(kind: str) -> None:
    """Rows leave and join meanwhile, and ordinary steps come between: what was built for others is not run."""
    world = World.of(kind, seed=11, builds_ahead=True)
    world.join(3, 1, 14)
    for i in range(18):
        if i == 9:
            world.join(8)
        if i in (5, 12):
            world.leave(world.random.choice(sorted(world.alone)))
        if world.cache.wants_compaction:
            world.compact()
        if i in (3, 15) and not any(world.replay.values()):
            world.one_each()
        world.several()
    if kind.endswith(("recurrent and dense", "two caches per layer")):
        assert not world.begun, "they need the states from before the step"
    else:
        assert world.begun > 4 and world.passed > 2


@pytest.mark.usefixtures("small_steps")
def test_a_row_that_is_alone_has_slots_where_steps_are_built_ahead() -> None:
    world = World.of("dense", seed=4, builds_ahead=True)
    world.join(22)
    for _ in range(8):
        world.several()
    assert world.begun


@pytest.mark.parametrize(
    ("built", "tokens", "runs"), [(4, 4, True), (4, 2, True), (5, 2, False), (6, 1, False), (2, 3, False)]
)
def test_a_step_that_was_built_for_far_more_tokens_or_for_fewer_is_not_run(built: int, tokens: int, runs: bool) -> None:
    world = World.of("dense", seed=4, builds_ahead=True)
    world.join(20, 9)
    places = sorted(world.alone)
    steps = world.cache.advance_several(dict.fromkeys(places, built))
    mx.eval(world.model(mx.full((2, built), 5, mx.int32), cache=steps[0].layers))
    with world.cache.build({places[0][0]: steps[0]}) as made:
        assert made is not None
        world.model(mx.full((2, built), 5, mx.int32), cache=made.steps[0].layers)
    world.cache.settle(dict.fromkeys(places, 1))
    begun = world.cache.begin_built(made, {places[0]: tokens, places[1]: 1})
    assert (begun is not None) is runs


@pytest.mark.parametrize("how", ["dropped", "in use"])
def test_a_step_that_was_built_is_no_other_holder_of_buffers(how: str) -> None:
    """Who else holds a buffer has MLX copy the whole of it for each token."""
    world = World.of("dense", seed=4, builds_ahead=True)
    world.join(*[20] * 8)
    world.several()
    layer: Any = world.cache._buckets[0]._layers[0]  # type: ignore[attr-defined]
    before = np.array(layer.arrays()[0], copy=False).ctypes.data
    if how == "dropped":
        world.built = None
    begun = world.begun
    world.several()
    assert world.begun == begun + (how == "in use")
    assert np.array(layer.arrays()[0], copy=False).ctypes.data == before


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("kind", ["dense", "sliding window", "ring that keeps its first tokens", "recurrent and dense"])
def test_a_row_that_is_alone_takes_several_too(kind: str) -> None:
    world = World.of(kind, seed=3)
    world.join(22)
    for i in range(12):
        if i % 3 == 0 and not any(world.replay.values()):
            world.one_each()
        world.several()


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("kind", ["dense", "sliding window", "recurrent and dense"])
def test_layers_that_a_gpu_computes_while_the_others_are_built(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[mx.array] = []
    monkeypatch.setattr(of_steps, "_on_gpu", lambda: True)
    monkeypatch.setattr(of_steps, "LAYERS_AT_ONCE", 1)
    monkeypatch.setattr(of_steps, "_async_eval", lambda *arrays: mx.async_eval(*arrays) or begun.extend(arrays))
    world = World.of(kind, seed=9)
    world.join(3, 1, 30)
    for _ in range(5):
        world.several()
    assert begun


@pytest.mark.usefixtures("small_steps")
def test_a_row_that_is_taken_out_of_a_ring_with_places_to_spare_is_whole() -> None:
    world = World.of("sliding window", seed=5)
    world.join(30, 34)
    for _ in range(7):
        world.several()
        for place, alone in world.alone.items():
            ours = world.cache.read(place)
            for mine, theirs in zip(ours, read_row(alone), strict=True):
                assert mine.length == theirs.length  # type: ignore[union-attr]
                for a, b in zip(mine.arrays, theirs.arrays, strict=True):  # type: ignore[union-attr]
                    assert mx.allclose(a, b, rtol=1e-3, atol=2e-3)


def test_kinds_that_slots_cannot_hold_take_one_token_at_a_time() -> None:
    world = World.of("unknown", seed=1)
    world.join(4, 6)
    with pytest.raises(ValueError, match="one token per row"):
        world.several()
