"""The vectorised sampler against a reference that treats one row at a time, on the host and on the device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.core import SamplingParams
from localai_shim.engine.sampling import Sampler
from localai_shim.engine.uniform import stream_key, uniforms

EOS = [2, 5]


@dataclass(eq=False)
class FakeRow:
    sampling: SamplingParams
    key: int = 0
    drawn: int = 0
    min_tokens: int = 0
    prompt_tokens: tuple[int, ...] = (1, 3, 3, 7)
    counts: Any = None
    history: list[int] = field(default_factory=list)


def rows_of(params: list[SamplingParams], **more: Any) -> list[FakeRow]:
    return [FakeRow(p, stream_key(p.seed), **more) for p in params]


def adjusted(logits: np.ndarray, row: FakeRow) -> np.ndarray:
    """Bias, bans and penalties as OpenAI's and vLLM's documentation describe them, one entry at a time."""
    out = logits.astype(np.float64).copy()
    p = row.sampling
    for token, bias in p.logit_bias.items():
        out[token] += bias
    if row.drawn < row.min_tokens:
        out[EOS] = -np.inf
    for token in range(len(out)):
        count = row.history.count(token)
        if count or token in row.prompt_tokens:
            out[token] = out[token] / p.repetition_penalty if out[token] > 0 else out[token] * p.repetition_penalty
        out[token] -= p.frequency_penalty * count + p.presence_penalty * (count > 0)
    return out


def reference_weights(logits: np.ndarray, row: FakeRow) -> tuple[np.ndarray, np.ndarray]:
    """(token ids, in drawing order: ascending; weights) of what the filters keep."""
    p = row.sampling
    scaled = adjusted(logits, row) / p.temperature
    weights = np.exp(scaled - scaled.max())
    ids = np.arange(len(weights))
    if p.top_p == 1 and p.top_k == 0 and p.min_p == 0:
        return ids, weights
    ids = np.lexsort((ids, -weights))
    weights = weights[ids]
    weights[weights < p.min_p] = 0
    if p.top_k:
        weights[p.top_k :] = 0
    before = np.cumsum(weights) - weights
    keep = before < p.top_p * weights.sum()
    keep[0] = True
    order = np.argsort(ids)
    return ids[order], np.where(keep, weights, 0)[order]


def reference_draw(logits: np.ndarray, row: FakeRow) -> tuple[int, float]:
    """(token, distance of the uniform from the nearest boundary between two tokens)."""
    if row.sampling.temperature == 0:
        values = adjusted(logits, row)
        two = np.sort(values)[-2:]
        return int(np.argmax(values)), float(two[1] - two[0])
    ids, weights = reference_weights(logits, row)
    u = uniforms(np.array([row.key], np.uint64), np.array([row.drawn], np.uint64))[0]
    cumulative = np.cumsum(weights) / weights.sum()
    return int(ids[np.searchsorted(cumulative, u, side="right")]), float(np.abs(cumulative - u).min())


def random_params(rng: np.random.Generator, n: int) -> list[SamplingParams]:
    out = []
    for _ in range(n):
        out.append(
            SamplingParams(
                temperature=float(rng.choice([0.0, 0.3, 1.0, 1.7])),
                top_p=float(rng.choice([1.0, 0.05, 0.5, 0.9, 0.99])),
                top_k=int(rng.choice([0, 1, 7, 200])),
                min_p=float(rng.choice([0.0, 0.02, 0.3])),
                repetition_penalty=float(rng.choice([1.0, 1.3])),
                presence_penalty=float(rng.choice([0.0, 0.8, -0.5])),
                frequency_penalty=float(rng.choice([0.0, 0.4])),
                logit_bias={4: 3.0, 9: -100.0} if rng.random() < 0.3 else {},
                seed=int(rng.integers(2**62)),
                top_logprobs=int(rng.integers(6)) if rng.random() < 0.4 else None,
            )
        )
    return out


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("vocabulary", [11, 700, 3000])
def test_every_mixture_of_parameters_draws_what_the_reference_draws(vocabulary: int, on_device: bool) -> None:
    rng = np.random.default_rng(vocabulary)
    rows = rows_of(random_params(rng, 24), min_tokens=2)
    sampler = Sampler(rows, EOS, on_device=on_device)
    compared = 0
    for _ in range(6):
        logits = (rng.standard_normal((24, vocabulary)) * rng.choice([0.1, 2.0, 5.0])).astype(np.float32)
        tokens, _ = sampler.draw(mx.array(logits)).read()
        for i, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            row.drawn = len(row.history)
            expected, margin = reference_draw(logits[i], row)
            if margin > 1e-5:  # nearer to a boundary, float32 may fall on either side
                assert token == expected, (i, row.sampling)
                compared += 1
            row.history.append(token)
    assert compared > 120


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_logprobs_are_those_of_the_raw_distribution_best_first(on_device: bool) -> None:
    rng = np.random.default_rng(0)
    params = [
        SamplingParams(temperature=0.5, logit_bias={3: 50.0}, top_logprobs=4, seed=1),
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.0, top_logprobs=0),
    ]
    logits = rng.standard_normal((3, 50)).astype(np.float32)
    tokens, details = Sampler(rows_of(params), EOS, on_device=on_device).draw(mx.array(logits)).read()
    raw = logits - np.log(np.exp(logits.astype(np.float64)).sum(axis=-1, keepdims=True))
    assert set(details) == {0, 2}
    assert tokens[0] == 3
    assert details[0][0] == pytest.approx(raw[0, 3], abs=1e-5)
    best = np.argsort(-raw[0])[:4]
    assert [token for token, _ in details[0][1][:4]] == best.tolist()
    assert [value for _, value in details[0][1][:4]] == pytest.approx(raw[0, best].tolist(), abs=1e-5)


def test_a_draw_can_be_narrowed_to_some_rows_before_it_is_read() -> None:
    rng = np.random.default_rng(3)
    params = [SamplingParams(temperature=0.0, top_logprobs=2 if i % 2 else None) for i in range(5)]
    logits = mx.array(rng.standard_normal((5, 40)).astype(np.float32))
    tokens, details = Sampler(rows_of(params), EOS, on_device=True).draw(logits).read()
    some, some_details = Sampler(rows_of(params), EOS, on_device=True).draw(logits).take([1, 2, 3]).read()
    assert some == tokens[1:4]
    assert some_details == {0: details[1], 2: details[3]}


def test_state_survives_a_change_of_neighbours() -> None:
    rng = np.random.default_rng(5)
    params = [SamplingParams(temperature=1.0, presence_penalty=1.5, repetition_penalty=1.2, seed=i) for i in range(3)]
    logits = [rng.standard_normal((3, 60)).astype(np.float32) * 3 for _ in range(8)]

    together = rows_of(params)
    sampler = Sampler(together, EOS, on_device=False)
    expected = [sampler.draw(mx.array(step)).read()[0][1] for step in logits]

    rows = rows_of(params)
    drawn = []
    for step, members in zip(logits, [[0, 1], [0, 1], [1], [1, 2], [2, 1, 0], [1], [1], [1, 0]], strict=True):
        sampler = Sampler([rows[i] for i in members], EOS, on_device=False)
        drawn.append(sampler.draw(mx.array(step[members])).read()[0][members.index(1)])
        sampler.retire()
    assert drawn == expected


def test_uniforms_are_uniform_and_independent_across_seeds_and_positions() -> None:
    keys = np.array([stream_key(seed) for seed in range(2000)], dtype=np.uint64)
    table = np.stack([uniforms(keys, np.full(2000, position, np.uint64)) for position in range(50)])
    assert table.min() >= 0 and table.max() < 1
    counts, _ = np.histogram(table, bins=100)
    chi2 = ((counts - table.size / 100) ** 2 / (table.size / 100)).sum()
    assert chi2 < 160  # 99 degrees of freedom: exceeded once in 10,000
    for shifted in (np.roll(table, 1, axis=0), np.roll(table, 1, axis=1)):
        assert abs(np.corrcoef(table.ravel(), shifted.ravel())[0, 1]) < 0.015
    assert len({stream_key(1, choice) for choice in range(1000)}) == 1000


def test_only_what_some_row_asks_for_is_computed() -> None:
    greedy = Sampler(rows_of([SamplingParams(temperature=0.0)] * 3), EOS, on_device=False)
    assert greedy.queues_ahead
    mixed = Sampler(rows_of([SamplingParams(temperature=0.0), SamplingParams(temperature=1.0)]), EOS, on_device=False)
    assert not mixed.queues_ahead
