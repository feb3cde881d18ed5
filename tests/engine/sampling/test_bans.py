"""Bad words and allowed tokens of rows whose neighbours come and go, on the host and on the device."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.noise import stream_key
from localai_shim.engine.sampling.adjustments import Bans
from localai_shim.engine.sampling.parameters import LOGIT_FLOOR
from localai_shim.engine.sampling.sampler import Sampler
from localai_shim.types import SamplingParams
from tests.engine.sampled_rows import FakeRow

EOS = (1, 2)
GREEDY = SamplingParams(temperature=0.0)


def greedy(**more: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, **more)


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_bad_words_are_known_across_changes_of_neighbours(on_device: bool) -> None:
    """Rows with words of one, two and four tokens: how far back a sampler looks depends on who is there."""
    rng = np.random.default_rng(7)
    words: list[Any] = [((3,),), ((5, 6), (6, 6), (7, 8)), ((5, 6, 7, 8), (6, 5)), ()]
    rows = [FakeRow(greedy(bad_words=w)) for w in words]
    members = [[0, 1, 2, 3], [1, 2], [1], [1, 0], [2, 1, 3], [3, 2], [0, 1, 2]] * 4
    for there in members:
        sampler = Sampler([rows[i] for i in there], EOS, on_device=on_device)
        for _ in range(int(rng.integers(1, 4))):
            logits = rng.standard_normal((len(there), 12)).astype(np.float32)
            logits[:, 5:9] += 2.0  # so that words begin
            drawn, _ = sampler.sample(mx.array(logits)).read()
            for at, i in enumerate(there):
                expected, history = logits[at].copy(), rows[i].history
                for *before, last in words[i]:
                    if history[len(history) - len(before) :] == before:
                        expected[last] = -np.inf
                assert drawn[at] == int(np.argmax(expected)), (i, history)
                history.append(drawn[at])
        sampler.retire()
    assert min(len(row.history) for row in rows) > 20


@pytest.mark.parametrize("xp", [np, mx], ids=["host", "device"])
def test_words_of_a_row_that_end_alike_are_banned_if_one_of_them_would_be_complete(xp: Any) -> None:
    rows = [FakeRow(greedy(bad_words=((5, 9), (6, 9), (7, 9)))), FakeRow(greedy(bad_words=((6, 9), (4,))))]
    bans = Bans(rows, EOS, xp)
    for drawn in (5, 6, 8):
        bans.note(xp.array([drawn, drawn]))
        logits = np.array(bans.apply(xp.zeros((2, 10), dtype=xp.float32), np.zeros(2, np.uint64)))
        assert [np.flatnonzero(row == LOGIT_FLOOR).tolist() for row in logits] == [
            [9] if drawn != 8 else [],
            [4, 9] if drawn == 6 else [4],
        ]


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_tokens_that_the_logits_do_not_have_are_nobody_s_concern(on_device: bool, temperature: float) -> None:
    """A tokenizer may know more tokens than the model, which has sixteen."""
    params = SamplingParams(temperature, allowed_token_ids=(3, 4, 16, 50_000), bad_words=((4,), (3, 50_000)), seed=1)
    row = FakeRow(params, key=stream_key(1))
    sampler = Sampler([row], EOS, on_device=on_device)
    for _ in range(5):
        assert sampler.sample(mx.zeros((1, 16))).read()[0] == [3]
    stops = FakeRow(params, key=1, min_tokens=3, stop_token_ids=frozenset({50_000, 3}))
    others = FakeRow(SamplingParams(temperature, allowed_token_ids=(50_000,)), key=2)
    sampler = Sampler([stops, others], EOS, on_device=on_device)
    assert sampler.sample(mx.zeros((2, 16))).read()[0][0] in (3, 4), "all that is allowed is banned"


def test_rows_without_bans_have_none_gathered() -> None:
    assert not Bans([FakeRow(GREEDY), FakeRow(greedy(logit_bias={3: 1.0}))], EOS, np)
