"""Llama 4's attention in chunks gives each row of a batch the logits that upstream's code gives it alone."""

from __future__ import annotations

import numpy as np
import pytest

from localai_shim.engine import kv
from localai_shim.engine.cache_contents import Ring
from localai_shim.engine.kv.step import Step
from tests.architectures import WINDOW as CHUNK
from tests.models.attention.by_row import Family, families, hold_pieces

LENGTH, STEPS = 2 * CHUNK + 9, CHUNK + 4

both = families("mlx-lm llama4", "mlx-vlm llama4")


@both
def test_upstreams_own_caches_hold_one_row(family: Family) -> None:
    model = family.make(corrected=False)
    assert not kv.can_batch(family.cache(model))


@both
@pytest.mark.parametrize("piece", [1, 7, CHUNK, 100])
def test_a_row_alone_gets_upstreams_logits_however_its_prompt_is_cut(family: Family, piece: int) -> None:
    hold_pieces(family, LENGTH, STEPS, piece)


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
