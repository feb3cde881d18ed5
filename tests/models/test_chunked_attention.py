"""Llama 4's attention in chunks gives each row of a batch the logits that upstream's code gives it alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import cache as mlx_lm_caches
from mlx_vlm.models import cache as mlx_vlm_caches

from localai_shim.engine import kv
from localai_shim.engine.cache_contents import Ring
from localai_shim.engine.kv.step import Step
from localai_shim.models.misreading_layers import batch_attention
from tests import architectures, vlm_architectures
from tests.architectures import WINDOW as CHUNK
from tests.engine.turns import tokens

LENGTHS = [3, CHUNK - 2, CHUNK, CHUNK + 5, 2 * CHUNK + 9]
STEPS = CHUNK + 4  # every row begins a chunk in them

libraries = pytest.mark.parametrize(
    ("make", "caches"),
    [(architectures.make, mlx_lm_caches), (vlm_architectures.make, mlx_vlm_caches)],
    ids=["mlx-lm", "mlx-vlm"],
)


def run(model: Any, cache: list[Any], ids: list[list[int]]) -> Any:
    out = model(mx.array(ids), cache=cache)
    return np.array(getattr(out, "logits", out))


def expected_of(make: Callable[..., Any], caches: Any, prompts: list[list[int]], steps: list[list[int]]) -> list[Any]:
    """Logits of each row's steps, `[steps, vocabulary]`, by upstream's code as it is."""
    model, out = make("llama4"), []
    for prompt, its in zip(prompts, steps, strict=True):
        cache = caches.make_prompt_cache(model)
        run(model, cache, [prompt])
        out.append(np.concatenate([run(model, cache, [[token]])[0] for token in its]))
    return out


def corrected(make: Callable[..., Any]) -> Any:
    model = make("llama4")
    assert batch_attention(model) > len(model.layers)
    return model


@libraries
def test_upstream_takes_one_row_at_a_time(make: Callable[..., Any], caches: Any) -> None:
    assert not kv.can_batch(caches.make_prompt_cache(make("llama4")))


@libraries
@pytest.mark.parametrize("piece", [1, 7, CHUNK, 100])
def test_a_row_alone_gets_upstreams_logits_however_its_prompt_is_cut(
    make: Callable[..., Any], caches: Any, piece: int
) -> None:
    prompt, steps = tokens(2 * CHUNK + 9, 3), tokens(STEPS, 4)
    [expected] = expected_of(make, caches, [prompt], [steps])
    model = corrected(make)
    cache = caches.make_prompt_cache(model)
    for start in range(0, len(prompt), piece):
        run(model, cache, [prompt[start : start + piece]])
    made = np.concatenate([run(model, cache, [[token]])[0] for token in steps])
    assert np.allclose(made, expected, atol=1e-3)


@libraries
def test_rows_in_slots_get_upstreams_logits(make: Callable[..., Any], caches: Any) -> None:
    prompts = [tokens(length, 3 + i) for i, length in enumerate(LENGTHS)]
    steps = [tokens(STEPS, 20 + i) for i in range(len(LENGTHS))]
    expected = expected_of(make, caches, prompts, steps)
    model = corrected(make)
    rows = [caches.make_prompt_cache(model) for _ in prompts]
    for row, prompt in zip(rows, prompts, strict=True):
        run(model, row, [prompt])
    batch, _ = kv.join(None, rows)
    for i in range(STEPS):
        made = run(model, batch.advance(), [[its[i]] for its in steps])[:, 0]
        assert np.allclose(made, [its[i] for its in expected], atol=1e-3), i


@libraries
def test_rows_in_slots_take_several_tokens_and_give_some_back(make: Callable[..., Any], caches: Any) -> None:
    prompts = [tokens(length, 3 + i) for i, length in enumerate(LENGTHS)]
    steps = [tokens(STEPS, 20 + i) for i in range(len(LENGTHS))]
    expected = expected_of(make, caches, prompts, steps)
    model = corrected(make)
    rows = [caches.make_prompt_cache(model) for _ in prompts]
    for row, prompt in zip(rows, prompts, strict=True):
        run(model, row, [prompt])
    batch, slots = kv.join(None, rows, spare=3)
    done = [0] * len(rows)
    while max(done) < STEPS - 4:
        kept = {slot: 1 + (slot + done[slot]) % 4 for slot in slots}
        layers = batch.advance(dict.fromkeys(slots, 4))
        fed = [[*its[n : n + kept[slot]], 9, 9, 9][:4] for slot, its, n in zip(slots, steps, done, strict=True)]
        made = run(model, layers, fed)
        batch.settle(kept)
        for slot in slots:
            right = expected[slot][done[slot] : done[slot] + kept[slot]]
            assert np.allclose(made[slot, : kept[slot]], right, atol=1e-3), (slot, done)
            done[slot] += kept[slot]


@pytest.mark.parametrize(("tokens", "spare"), [(1, 0), (1, 3), (4, 3)])
def test_each_token_sees_its_own_chunk(tokens: int, spare: int) -> None:
    lengths, ring = np.array([3, 14, 15, 16, 17, 40]), Ring(16, 0)
    step = Step(lengths, False, tokens, spare)
    mask = step.mask(ring.size + spare, ring, None, ring.size)
    assert mask is not None
    places = ring.size + spare
    for row, length in enumerate(lengths.tolist()):
        position = {at % places: at for at in range(length + tokens)}  # whatever was written last
        for token in range(tokens):
            last = length + token
            seen = {position[place] for place in np.flatnonzero(np.array(mask)[row, 0, token]).tolist()}
            assert seen == set(range(last - last % ring.size, last + 1))


def test_rows_within_their_first_chunk_are_read_without_a_mask_as_in_a_plain_cache() -> None:
    assert Step(np.array([7, 7]), False).mask(256, Ring(16, 0), None, 16) is None
