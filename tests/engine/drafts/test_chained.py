"""Drafts one behind the other: what each pass runs, and when it is built."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.drafts.rows import chained
from localai_shim.engine.sampling.sampler import Sampler
from localai_shim.types import SamplingParams
from tests.engine.harness import GREEDY
from tests.engine.sampled_rows import rows_of
from tests.tiny import VOCABULARY

TABLE = 3 * mx.random.normal((VOCABULARY, VOCABULARY), key=mx.random.key(1))
"""The logits behind each token."""
FIRST = [5, 40, 77]
SAMPLED = [SamplingParams(temperature=0.8, seed=1), SamplingParams(temperature=1.1, top_p=0.8, seed=2), GREEDY]


def sampler_for(params: list[SamplingParams], on_device: bool) -> Sampler:
    return Sampler(rows_of(params), [], on_device=on_device, ahead=[0] * len(params))  # type: ignore[arg-type]


def one_by_one(params: list[SamplingParams], on_device: bool, count: int) -> list[list[int]]:
    """Drafts, each of which is known before the next pass begins."""
    sampler, tokens, made = sampler_for(params, on_device), FIRST, list[list[int]]()
    for _ in range(count):
        tokens = sampler.sample(TABLE[mx.array(tokens)]).read()[0]
        made.append(tokens)
    return [list(its) for its in zip(*made, strict=True)]


@pytest.mark.parametrize("params", [SAMPLED, [GREEDY] * 3], ids=["sampled", "greedy"])
@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("count", [1, 2, 6])
def test_each_pass_runs_the_drafts_of_the_pass_before(
    params: list[SamplingParams], on_device: bool, count: int
) -> None:
    passes: list[mx.array] = []

    def following(tokens: mx.array) -> mx.array:
        passes.append(tokens)
        return TABLE[tokens]

    drafts = chained(sampler_for(params, on_device), TABLE[mx.array(FIRST)], following, count)
    assert drafts == one_by_one(params, on_device, count)
    assert [tokens.tolist() for tokens in passes] == [[its[i] for its in drafts] for i in range(count - 1)]


def test_a_pass_is_built_before_the_host_samples_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    sample = Sampler.sample
    monkeypatch.setattr(Sampler, "sample", lambda self, logits: order.append("sample") or sample(self, logits))
    chained(
        sampler_for(SAMPLED, False),
        TABLE[mx.array(FIRST)],
        lambda tokens: (order.append("build"), TABLE[tokens])[1],
        3,
    )
    assert order == ["build", "sample", "build", "sample", "sample"]


def test_a_row_without_a_finite_logit_drafts_some_token() -> None:
    logits = mx.array(np.full((3, VOCABULARY), np.nan, np.float32))
    assert chained(sampler_for(SAMPLED, False), logits, lambda tokens: TABLE[tokens], 2)[0][0] == 0
