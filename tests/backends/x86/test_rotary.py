"""Rotary embeddings of a CPU: MLX's results, from cosines that a pass's layers share."""

from __future__ import annotations

import threading
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.rope_utils import initialize_rope

from localai_shim.backends.own_forms import OwnForms
from localai_shim.backends.x86 import forms, rotary
from localai_shim.backends.x86.forms import CpuForms
from localai_shim.backends.x86.rotary import rope, turned_from, use_shared_turns
from localai_shim.engine import kv
from localai_shim.engine.ports import Model, StepInput
from localai_shim.models.loading import load_model
from tests.graphs import operations
from tests.machine_forms import use_forms
from tests.tiny import tiny

DIM = 32
FREQS = 1e4 ** (mx.arange(0, DIM, 2) / DIM)
SCALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0},
    "llama3": {"factor": 8.0, "original_max_position_embeddings": 512},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 512, "mscale": 0.7},
    "longrope": {"original_max_position_embeddings": 512, "short_factor": [1.0] * 16, "long_factor": [1.5] * 16},
    "proportional": {"partial_rotary_factor": 0.5},
}
KINDS: dict[str, dict[str, Any]] = {
    "halves": {"dims": DIM},
    "pairs": {"dims": DIM, "traditional": True},
    "half of the numbers": {"dims": DIM // 2, "base": 5e5},
    "pairs of half of the numbers": {"dims": DIM // 2, "traditional": True},
    "slower": {"dims": DIM, "scale": 0.25},
    "frequencies": {"dims": DIM, "base": None, "freqs": FREQS},
    "frequencies of pairs": {"dims": DIM, "traditional": True, "base": None, "freqs": 3 * FREQS},
}


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    """Forget cosines of other tests: graphs would not have them."""
    vars(rotary._thread).clear()


def options(kind: str) -> dict[str, Any]:
    return {"traditional": False, "base": 1e4, "scale": 1.0, **KINDS[kind]}


def vectors(rows: int, tokens: int, seed: int = 0) -> mx.array:
    return mx.random.normal((rows, 4, tokens, DIM), key=mx.random.key(seed))


def assert_same(ours: mx.array, theirs: mx.array) -> None:
    np.testing.assert_allclose(np.array(ours), np.array(theirs), atol=3e-4)  # angles of 1,500 radians in float32


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("offset", [0, 1500, [3, 700, 1500]], ids=str)
def test_vectors_turn_as_mlx_turns_them(kind: str, tokens: int, offset: int | list[int]) -> None:
    x, starts = vectors(3, tokens), offset if isinstance(offset, int) else mx.array(offset)
    with turned_from(starts):
        turned = rope(x, offset=starts, **options(kind))
        again = rope(2 * x, offset=starts, **options(kind))
    assert operations(turned, again)["Cos"] == 1, "shared"
    assert_same(turned, mx.fast.rope(x, offset=starts, **options(kind)))
    assert_same(again / 2, turned)


@pytest.mark.parametrize("kind", SCALINGS)
def test_each_layer_of_mlx_lm_turns_as_before(kind: str) -> None:
    class Layer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.rope = initialize_rope(DIM, 1e4, False, {"type": kind, **SCALINGS[kind]}, 2048)

    layer, x = Layer(), vectors(2, 3)
    theirs = layer.rope(x, offset=90)
    assert use_shared_turns(layer) == 1 and use_shared_turns(layer) == 0
    first, second = layer.rope(x, offset=90), layer.rope(x + 1, offset=90)
    assert operations(first, second)["Cos"] == 1, "shared"
    assert_same(first, theirs)


@pytest.mark.parametrize("other", [vectors(2, 1).astype(mx.float16), vectors(2, 1)[0]], ids=["float16", "3 dimensions"])
def test_vectors_of_other_types_and_shapes_turn_by_mlx(other: mx.array) -> None:
    theirs = mx.fast.rope(other, offset=7, **options("halves"))
    assert np.array_equal(np.array(rope(other, offset=7, **options("halves"))), np.array(theirs))


def test_positions_that_are_counted_in_place_are_not_shared() -> None:
    x, offset = vectors(2, 1), mx.array([3, 40])
    for _ in range(3):
        assert_same(rope(x, offset=offset, **options("halves")), mx.fast.rope(x, offset=offset, **options("halves")))
        offset += 1  # as mlx-lm's caches of several rows do


def test_positions_of_an_outer_pass_return_behind_an_inner_one() -> None:
    x, outer = vectors(2, 1), mx.array([3, 40])
    with turned_from(outer):
        before = rope(x, offset=outer, **options("halves"))
        with turned_from(None):
            alone = rope(x, offset=outer, **options("halves"))
        after = rope(x, offset=outer, **options("halves"))
    assert operations(before, after)["Cos"] == 1 and operations(before, alone)["Cos"] == 2


def test_a_few_positions_are_kept() -> None:
    for offset in range(5 * rotary.MAX_TURNS):
        rope(vectors(1, 1), offset=offset, **options("halves"))
    assert rotary._thread.turns.used == rotary.MAX_TURNS


def test_threads_share_no_arrays() -> None:
    x, found = vectors(1, 1), list[mx.array]()
    mx.eval(x)
    rope(x, offset=77, **options("halves"))  # not computed: its cosines belong to this thread

    def run() -> None:
        made = rope(x, offset=77, **options("halves"))
        mx.eval(made)
        found.append(made)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert_same(found[0], mx.fast.rope(x, offset=77, **options("halves")))


@pytest.mark.parametrize("lengths", [[9, 9], [4, 9, 17]], ids=["equal", "ragged"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_all_layers_of_a_step_share_cosines(lengths: list[int], tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use_forms(monkeypatch, OwnForms())
    model = load_model(str(tiny("qwen3")), {})
    theirs = np.array(step_logits(model, lengths, tokens))
    monkeypatch.setattr(forms, "on_x86_cpu", lambda: True)
    use_forms(monkeypatch, CpuForms())
    model = load_model(str(tiny("qwen3")), {})
    made = step_logits(model, lengths, tokens)
    assert operations(made)["Cos"] == 1 or tokens > 1, "of all layers"
    np.testing.assert_allclose(np.array(made), theirs, atol=1e-4)


def step_logits(model: Model, lengths: list[int], tokens: int) -> mx.array:
    """Logits of a step of rows of these lengths."""
    cache = kv.Buckets(model.weight_bytes, most_tokens=tokens)
    rows = []
    for length in lengths:
        row = model.new_cache()
        model.prefill(StepInput(mx.arange(5, 5 + length)[None], row))
        rows.append(row)
    places = cache.join(rows)
    [step] = cache.advance(places) if tokens == 1 else cache.advance_several(dict.fromkeys(places, tokens))
    its = mx.arange(40, 40 + len(lengths) * tokens).reshape(len(lengths), tokens)
    return model.forward(StepInput(its, step.layers, starts=step.starts)).logits
