"""Sampling on the host, where its sums are short cuts: rounding, ties, flat rows, rows in portions."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.sampling import host
from localai_shim.engine.sampling.sampler import Sampler
from localai_shim.types import SamplingParams
from tests.engine.sampled_rows import rows_of

LARGEST = 1 - 2.0**-53  # uniform
VOCABULARIES = [5, 127, 128, 129, 6_000]


def roomy(logits: np.ndarray) -> np.ndarray:
    """Logits where the sampler has them."""
    buffer = host.padded(*logits.shape)
    buffer[:, : logits.shape[1]] = logits
    return buffer


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("share", [0.003, 0.2, 1.0])
def test_a_token_without_weight_is_never_sampled_however_sums_round(vocabulary: int, share: float) -> None:
    rng = np.random.default_rng(vocabulary)
    for _ in range(20):
        logits = (rng.standard_normal((50, vocabulary)) * 4).astype(np.float32)
        possible = rng.random(logits.shape) < share
        possible[np.arange(50), rng.integers(vocabulary, size=50)] = True
        logits[~possible] = -np.inf
        u = np.where(rng.random(50) < 0.5, LARGEST, 0.0)
        plain = host.sample_plain(roomy(logits), vocabulary, u)
        assert possible[np.arange(50), plain].all()
        assert (plain[u == 0] == possible[u == 0].argmax(axis=1)).all()
        last = vocabulary - 1 - possible[u > 0][:, ::-1].argmax(axis=1)
        assert (plain[u > 0] <= last).all()
        limits = np.zeros(50, np.int64), np.full(50, 0.7, np.float32), np.zeros(50, np.float32)
        filtered = host.sample_filtered(roomy(logits), vocabulary, *limits, u, u)
        assert possible[np.arange(50), filtered].all()


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_no_token_is_sampled_that_is_less_likely_than_all_of_the_nucleus(vocabulary: int) -> None:
    """A flat row, and one with two levels."""
    u = np.linspace(0, LARGEST, 400)
    flat = np.zeros((400, vocabulary), np.float32)
    levels = flat.copy()
    levels[:, vocabulary // 2 :] = 1.0
    for logits in (flat, levels):
        top_p = np.full(400, 0.6, np.float32)
        limits = np.zeros(400, np.int64), top_p, np.zeros(400, np.float32)
        tokens = host.sample_filtered(roomy(logits), vocabulary, *limits, u, u[::-1].copy())
        weights = np.exp(logits[0].astype(np.float64))
        order = np.lexsort((np.arange(vocabulary), -weights))
        before = np.cumsum(weights[order]) - weights[order]
        # Of equally likely tokens none is heavier than another: the nucleus may end amid them.
        level = weights[order][before < 0.6 * weights.sum()].min()
        assert set(tokens.tolist()) <= set(np.flatnonzero(weights >= level).tolist())


def test_a_flat_row_and_a_steep_one_sample_what_each_samples_alone() -> None:
    """Their sums of likelier tokens are made in two ways."""
    rng = np.random.default_rng(0)
    spread = np.repeat([0.1, 1.0, 3.0, 6.0], 8)[:, None]
    logits = (rng.standard_normal((32, 3_001)) * spread).astype(np.float32)
    u, again = rng.random(32), rng.random(32)
    limits = np.zeros(32, np.int64), np.full(32, 0.5, np.float32), np.zeros(32, np.float32)
    together = host.sample_filtered(roomy(logits), 3_001, *limits, u, again)
    for i in range(32):
        mine = (limit[i : i + 1] for limit in limits)
        (alone,) = host.sample_filtered(roomy(logits[i : i + 1]), 3_001, *mine, u[i : i + 1], again[i : i + 1])
        assert together[i] == alone


@pytest.mark.parametrize("portion", [1, 700 * 5, 2**19])
def test_rows_sample_the_same_in_portions_of_any_size_step_after_step(
    portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    params = [
        SamplingParams(temperature=0.5 + i / 10, top_p=[1.0, 0.7, 0.2][i % 3], top_k=[0, 0, 0, 9][i % 4], seed=i)
        for i in range(13)
    ]
    steps = [mx.array(rng.standard_normal((13, 700)).astype(np.float32) * 3) for _ in range(5)]
    alone: list[list[int]] = [[] for _ in steps]
    for i, one in enumerate(params):
        sampler = Sampler(rows_of([one]), [], on_device=False)
        for said, logits in zip(alone, steps, strict=True):
            said += sampler.sample(logits[i : i + 1]).read()[0]
    monkeypatch.setattr("localai_shim.engine.sampling.sampler.SAMPLE_PORTION_LOGITS", portion)
    sampler = Sampler(rows_of(params), [], on_device=False)
    for said, logits in zip(alone, steps, strict=True):
        sampler.prepare(700)  # what is ready before the logits are there changes nothing
        assert sampler.sample(logits).read()[0] == said


def test_one_place_serves_all_steps_of_a_sampler() -> None:
    """New memory for each step's logits costs as much as their exponentials."""
    sampler = Sampler(rows_of([SamplingParams(seed=i) for i in range(4)]), [], on_device=False)
    logits = mx.zeros((4, 300))
    sampler.sample(logits)
    place = sampler._buffer
    sampler.sample(logits)
    assert place is not None and sampler._buffer is place


def values_of(kind: str, vocabulary: int, rng: np.random.Generator) -> np.ndarray:
    """Logits in which many are alike, hardly any is possible, or none of that."""
    values = (rng.standard_normal(vocabulary) * 3).astype(np.float32)
    if kind == "ties":
        return np.round(values)
    if kind == "few":
        values[rng.random(vocabulary) < 0.98] = -np.inf
        values[0] = 1
    return values


@pytest.mark.parametrize("kind", ["any", "ties", "few"])
@pytest.mark.parametrize("vocabulary", [5, 128, 700, 40_000])
def test_the_likeliest_tokens_are_those_that_a_sort_finds(kind: str, vocabulary: int) -> None:
    rng = np.random.default_rng(vocabulary)
    for count in (1, 2, 40, 300):
        values = values_of(kind, vocabulary, rng)
        expected = np.lexsort((np.arange(vocabulary), -values))[:count]
        assert host.top_ids(values, count).tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ["any", "ties", "few"])
@pytest.mark.parametrize("vocabulary", [5, 700, 40_000])
def test_a_rejected_token_is_replaced_by_one_of_the_smallest_nucleus(kind: str, vocabulary: int) -> None:
    """A uniform of nearly 1 samples the last possible token, outside of most nuclei; the second ones sweep these."""
    rng = np.random.default_rng(vocabulary)
    for top_p in (0.05, 0.5, 0.9):
        values = values_of(kind, vocabulary, rng)
        values[-1] = values[values > -np.inf].min() - 5
        weights = np.exp(values - values.max()).astype(np.float64)
        order = np.lexsort((np.arange(vocabulary), -weights))
        before = np.cumsum(weights[order]) - weights[order]
        nucleus = np.sort(order[(before < top_p * weights.sum()) | (before == 0)])
        cumulative = np.cumsum(weights[nucleus]) / weights[nucleus].sum()
        again = rng.random(50)
        rows = np.tile(values, (50, 1))
        limits = np.zeros(50, np.int64), np.full(50, top_p, np.float32), np.zeros(50, np.float32)
        tokens = host.sample_filtered(roomy(rows), vocabulary, *limits, np.full(50, LARGEST), again)
        margin = np.abs(cumulative - again[:, None]).min(
            axis=1
        )  # nearer to a boundary, float32 may fall on either side
        expected = nucleus[np.searchsorted(cumulative, again, side="right")]
        assert (tokens == expected)[margin > 1e-5].all() and (margin > 1e-5).sum() > 25
