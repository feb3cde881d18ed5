"""Sampled tokens come as often as they are likely, on the host and on the device, and similar models sample alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.sampling.sampler import Sampler
from localai_shim.types import SamplingParams
from tests.engine.sampled_rows import FakeRow, rows_of
from tests.engine.sampling.reference import EOS, Allowing, reference_weights

VOCABULARY = 300  # three blocks, the last one in part
ROWS, STEPS = 1_000, 8
OUTPUT = [7, 7, 7, 150, 290]  # that rows with penalties have sampled before
HOST_AND_DEVICE = pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])


@dataclass(frozen=True)
class Case:
    """One way to sample, and which tokens a grammar allows."""

    sampling: SamplingParams
    allowed: Sequence[int] | None = None


ANY = SamplingParams()
CASES = {
    "temperature 1": Case(ANY),
    "temperature 0.5": Case(replace(ANY, temperature=0.5)),
    "temperature 1.8": Case(replace(ANY, temperature=1.8)),
    "top_p 0.9": Case(replace(ANY, top_p=0.9)),
    "top_p 0.3": Case(replace(ANY, temperature=1.5, top_p=0.3)),
    "top_k 20": Case(replace(ANY, top_k=20)),
    "min_p 0.05": Case(replace(ANY, min_p=0.05)),
    "all filters": Case(replace(ANY, temperature=1.4, min_p=0.01, top_k=60, top_p=0.8)),
    "penalties": Case(replace(ANY, presence_penalty=0.7, frequency_penalty=0.5, repetition_penalty=1.3)),
    "bias": Case(replace(ANY, logit_bias={5: 2.0, 200: 1.0}, top_p=0.95)),
    "mask": Case(ANY, range(100, 280, 3)),
    "mask and top_p": Case(replace(ANY, temperature=0.7, top_p=0.9), range(100, 280, 3)),
}


def spread(seed: int = 0, vocabulary: int = VOCABULARY) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(vocabulary) * 1.5).astype(np.float32)


def rows_with(case: Case, on_device: bool) -> list[FakeRow]:
    rows = rows_of([replace(case.sampling, seed=seed) for seed in range(ROWS)])
    counts = np.bincount(OUTPUT, minlength=VOCABULARY).astype(np.float32)
    for row in rows:
        row.history, row.counts = OUTPUT, mx.array(counts) if on_device else counts
        row.constraint = None if case.allowed is None else Allowing([*case.allowed])
    return rows


@HOST_AND_DEVICE
@pytest.mark.parametrize("name", CASES)
def test_tokens_come_as_often_as_they_are_likely(name: str, on_device: bool) -> None:
    case, logits = CASES[name], spread()
    rows = rows_with(case, on_device)
    counts = np.zeros(VOCABULARY)
    tiled = mx.array(np.tile(logits, (ROWS, 1)))
    for step in range(STEPS):
        for row in rows:
            row.sampled = 1 + step  # made anew for each step: what has been sampled would change penalties
        sampler = Sampler(rows, EOS, on_device=on_device)  # type: ignore[arg-type]
        tokens, _ = sampler.sample(tiled).read()
        counts += np.bincount(tokens, minlength=VOCABULARY)
    _, weights = reference_weights(logits, rows[0])
    expected = weights / weights.sum() * ROWS * STEPS
    assert counts[expected == 0].sum() == 0
    often = expected >= 5
    rare = np.array([expected[~often].sum()]), np.array([counts[~often].sum()])
    expected, counts = np.append(expected[often], rare[0]), np.append(counts[often], rare[1])
    there = expected > 0
    chi_square = ((counts - expected)[there] ** 2 / expected[there]).sum()
    free = there.sum() - 1
    assert chi_square < free + 4 * np.sqrt(2 * free), "exceeded once in 10,000 or less"


@HOST_AND_DEVICE
def test_tokens_of_one_row_come_as_often_as_they_are_likely_position_by_position(on_device: bool) -> None:
    """One seed: as random as many."""
    logits = np.log(np.array([0.05, 0.4, 0.15, 0.1, 0.3], dtype=np.float32))
    sampler = Sampler(rows_of([replace(ANY, top_p=0.8, seed=9)]), EOS, on_device=on_device)  # type: ignore[arg-type]
    row = mx.array(logits[None])
    tokens = [sampler.sample(row).read()[0][0] for _ in range(4_000)]
    share = np.bincount(tokens, minlength=5) / len(tokens)
    assert share[[0, 3]].tolist() == [0, 0]
    assert share[[1, 2, 4]] == pytest.approx(np.array([0.4, 0.15, 0.3]) / 0.85, abs=0.035)
    again = [a == b for a, b in pairwise(tokens)]
    assert np.mean(again) == pytest.approx((share**2).sum(), abs=0.035)


FILTERS: list[dict[str, Any]] = [{}, {"top_p": 0.9}, {"top_p": 0.05}, {"top_k": 7}, {"min_p": 0.1}]
FILTERS += [{"top_k": 40, "top_p": 0.5}, {"top_k": 200, "min_p": 0.02, "top_p": 0.99}]


@pytest.mark.parametrize("vocabulary", [5, 127, 128, 129, 6_000])
@pytest.mark.parametrize("device_noise", [False, True], ids=["the host's noise", "its own noise"])
def test_the_host_and_the_device_sample_the_same_tokens(
    vocabulary: int, device_noise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localai_shim.engine.sampling.device.MAX_HOST_NUMBERS", 0 if device_noise else 2**30)
    rng = np.random.default_rng(vocabulary)
    params = [SamplingParams(temperature=0.4 + 0.1 * i, seed=i, **FILTERS[i % len(FILTERS)]) for i in range(28)]
    samplers = [Sampler(rows_of(params), EOS, on_device=on_device) for on_device in (False, True)]  # type: ignore[arg-type]
    differ = 0
    for _ in range(25):
        logits = mx.array((rng.standard_normal((28, vocabulary)) * rng.choice([0.1, 2, 5])).astype(np.float32))
        host, device = (np.array(sampler.sample(logits).read()[0]) for sampler in samplers)
        differ += int((host != device).sum())
    assert differ <= 1  # of 700: float32 rounds differently in each


def agreement(target: np.ndarray, draft: np.ndarray, params: list[SamplingParams]) -> float:
    """How often two models' rows with one seed sample the same token."""
    both = [
        Sampler(rows_of(params), EOS, on_device=False).sample(mx.array(np.tile(logits, (len(params), 1)))).read()[0]  # type: ignore[arg-type]
        for logits in (target, draft)
    ]
    return float(np.mean(np.array(both[0]) == np.array(both[1])))


@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}, {"top_k": 50}], ids=str)
@pytest.mark.parametrize("vocabulary", [300, 6_000])
def test_two_similar_models_sample_the_same_token_almost_as_often_as_is_possible(
    vocabulary: int, filters: dict[str, Any]
) -> None:
    rng = np.random.default_rng(vocabulary)
    target = -2.0 * np.log(np.arange(1, vocabulary + 1)).astype(np.float32)[rng.permutation(vocabulary)]
    draft = target + (rng.standard_normal(vocabulary) * 0.25).astype(np.float32)
    params = [SamplingParams(seed=seed, **filters) for seed in range(3_000)]
    p, q = (reference_weights(logits, rows_of(params[:1])[0])[1] for logits in (target, draft))
    p, q = p / p.sum(), q / q.sum()
    possible = np.minimum(p, q).sum()
    greedy, alike = p[q.argmax()], agreement(target, draft, params)
    assert greedy + 0.15 < alike < possible + 0.02
    assert 1 - alike < 2.2 * (1 - possible), "Gumbel noise misses at most twice as often as is possible"
