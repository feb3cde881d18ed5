"""Sampling on the host, which finds filters' limits without sorting: ties, flat rows, rows in portions."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.noise import BLOCK_TOKENS, Noise, stream_key
from localai_shim.engine.sampling import device, host
from localai_shim.engine.sampling.parameters import Limits
from localai_shim.engine.sampling.sampler import Sampler
from localai_shim.types import SamplingParams
from tests.engine.sampled_rows import rows_of

VOCABULARIES = [5, 127, 128, 129, 6_000]


def roomy(logits: np.ndarray) -> np.ndarray:
    """Logits where the sampler has them."""
    buffer = host.padded(*logits.shape)
    buffer[:, : logits.shape[1]] = logits
    return buffer


def noise_of(rows: int, vocabulary: int, position: int = 0) -> Noise:
    keys = np.array([stream_key(seed) for seed in range(rows)], np.uint64)
    return Noise(keys, np.full(rows, position, np.uint64), -(-vocabulary // BLOCK_TOKENS))


def nucleus(rows: int, top_p: float) -> Limits:
    return Limits(None, np.full(rows, top_p, np.float32), None)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("share", [0.003, 0.2, 1.0])
def test_a_token_without_weight_is_never_sampled(vocabulary: int, share: float) -> None:
    rng = np.random.default_rng(vocabulary)
    for position in range(20):
        logits = (rng.standard_normal((50, vocabulary)) * 4).astype(np.float32)
        possible = rng.random(logits.shape) < share
        possible[np.arange(50), rng.integers(vocabulary, size=50)] = True
        logits[~possible] = -np.inf
        noise = noise_of(50, vocabulary, position)
        plain = host.sample_plain(roomy(logits), vocabulary, noise)
        assert possible[np.arange(50), plain].all()
        filtered = host.sample_filtered(roomy(logits), vocabulary, nucleus(50, 0.7), noise)
        assert possible[np.arange(50), filtered].all()


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_no_token_is_sampled_that_is_less_likely_than_all_of_the_nucleus(vocabulary: int) -> None:
    """A flat row, and one with two levels."""
    flat = np.zeros((400, vocabulary), np.float32)
    levels = flat.copy()
    levels[:, vocabulary // 2 :] = 1.0
    for logits in (flat, levels):
        tokens = host.sample_filtered(roomy(logits), vocabulary, nucleus(400, 0.6), noise_of(400, vocabulary))
        weights = np.exp(logits[0].astype(np.float64))
        order = np.lexsort((np.arange(vocabulary), -weights))
        before = np.cumsum(weights[order]) - weights[order]
        # Of equally likely tokens none is heavier than another: the nucleus may end amid them.
        level = weights[order][before < 0.6 * weights.sum()].min()
        assert set(tokens.tolist()) <= set(np.flatnonzero(weights >= level).tolist())


def test_flat_rows_and_steep_ones_sample_what_each_samples_alone() -> None:
    """Some are known to be inside their nuclei, some are tested, and some sample again."""
    rng = np.random.default_rng(0)
    spread = np.repeat([0.1, 1.0, 3.0, 6.0], 8)[:, None]
    logits = (rng.standard_normal((32, 3_001)) * spread).astype(np.float32)
    top_k, top_p = rng.choice([5, 60, 3_001], 32), rng.choice([0.5, 0.9, 1.0], 32).astype(np.float32)
    min_p = rng.choice([0, 0.01], 32).astype(np.float32)
    noise = noise_of(32, 3_001)
    together = host.sample_filtered(roomy(logits), 3_001, Limits(top_k, top_p, min_p), noise)
    for i in range(32):
        mine = slice(i, i + 1)
        limits = Limits(top_k[mine] if top_k[i] < 3_001 else None, top_p[mine], min_p[mine])
        (alone,) = host.sample_filtered(roomy(logits[mine]), 3_001, limits, noise.take(mine))
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
@pytest.mark.parametrize("vocabulary", [5, 128, 700, 40_000])
def test_top_k_keeps_the_k_likeliest_tokens_and_those_as_likely_as_the_last_one(kind: str, vocabulary: int) -> None:
    rng = np.random.default_rng(vocabulary)
    for count in (k for k in (1, 2, 40, 300, 5_000) if k < vocabulary):
        rows = np.stack([values_of(kind, vocabulary, rng) for _ in range(3)])
        weights = np.exp(rows - rows.max(axis=1, keepdims=True))
        falling = -np.sort(-weights, axis=1)
        expected = falling[np.arange(2), [count - 1, 0]]
        filled = host.padded(3, vocabulary)
        filled[:, :vocabulary] = weights
        found = host._top(filled, vocabulary, np.array([count, 1, vocabulary]))
        assert found.tolist() == [*expected.tolist(), 0]


@pytest.mark.parametrize("kind", ["any", "ties", "few"])
@pytest.mark.parametrize("vocabulary", [5, 700, 40_000])
def test_the_nucleus_has_the_fewest_tokens_of_its_weight(kind: str, vocabulary: int) -> None:
    rng = np.random.default_rng(vocabulary)
    for top_p in (0.05, 0.5, 0.9):
        values = values_of(kind, vocabulary, rng)
        weights = np.exp(values - values.max())
        falling = -np.sort(-weights)
        before = np.cumsum(falling, dtype=np.float64) - falling
        limit = top_p * float(weights.sum(dtype=np.float64))
        expected = falling[before < limit][-1]
        for floor in (0.0, falling[-1], expected * 0.9):
            assert host._least_inside(weights, np.float32(floor), np.float32(limit)) == expected


@pytest.mark.parametrize("place", ["host", "device"])
def test_presence_and_frequency_penalties_concern_the_output_and_repetition_the_prompt_too(place: str) -> None:
    """Token 0 is in neither, 1 in the prompt, 2 once and 3 twice in the output, 4 in both."""
    counts = np.array([[0, 0, 1, 2, 1]], np.float32)
    seen = np.array([[False, True, False, False, True]])
    logits = np.array([[1.0, 1.0, 1.0, -1.0, 1.0]], np.float32)
    repetition, presence, frequency = (np.array([[each]], np.float32) for each in (2.0, 0.25, 0.125))
    if place == "host":
        made = host.penalise(logits, repetition, presence, frequency, counts=counts, seen=seen)
    else:
        arrays = [mx.array(each) for each in (logits, repetition, presence, frequency)]
        made = np.array(device.penalise(*arrays, counts=mx.array(counts), seen=mx.array(seen)))
    assert made.tolist() == [[1.0, 0.5, 0.5 - 0.375, -2.0 - 0.5, 0.5 - 0.375]]
