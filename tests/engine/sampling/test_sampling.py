"""The vectorised sampler against a reference that treats one row at a time, on the host and on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.sampling import device
from localai_shim.engine.sampling.sampler import Sampler
from localai_shim.engine.uniform import again, stream_key, uniforms
from localai_shim.types import SamplingParams
from tests.engine.sampled_rows import FakeRow, rows_of
from tests.samples import only

EOS = [2, 5]


class Allowing:
    """A constraint that allows the same tokens all the time."""

    idle = False

    def __init__(self, allowed: list[int], escape: int | None = None) -> None:
        self.allowed, self.escape = allowed, escape

    def mask(self, out: Any) -> bool:
        for token in self.allowed:
            out.view(np.uint32)[token // 32] |= np.uint32(1 << token % 32)
        return True

    def accept(self, token_id: int) -> bool:
        return False

    def limit(self, raw: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """What the engine is to sample from, as `types.GrammarConstraint` and `min_tokens` have it."""
        escapes = np.argmax(raw) == self.escape and np.isfinite(logits[self.escape])
        allowed = [self.escape] if escapes else self.allowed
        limited = np.full(len(logits), -np.inf)
        limited[allowed] = logits[allowed] if np.isfinite(logits[allowed]).any() else raw[allowed]
        return limited


def adjusted(logits: np.ndarray, row: FakeRow) -> np.ndarray:
    """Bias, bans, penalties and then masks as OpenAI's and vLLM's documentation describe them, one entry at a time."""
    out = logits.astype(np.float64).copy()
    p = row.sampling
    for token, bias in p.logit_bias.items():
        out[token] += bias
    if row.sampled < row.min_tokens:
        out[[*EOS, *row.stop_token_ids]] = -np.inf
    if p.allowed_token_ids is not None:
        out[np.setdiff1d(np.arange(len(out)), p.allowed_token_ids)] = -np.inf
    for *before, last in p.bad_words:
        if row.history[len(row.history) - len(before) :] == before:
            out[last] = -np.inf
    for token in range(len(out)):
        count = row.history.count(token)
        if count or token in row.prompt_tokens:
            out[token] = out[token] / p.repetition_penalty if out[token] > 0 else out[token] * p.repetition_penalty
        out[token] -= p.frequency_penalty * count + p.presence_penalty * (count > 0)
    return out if row.constraint is None else row.constraint.limit(logits, out)


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


def reference_sample(logits: np.ndarray, row: FakeRow, on_device: bool) -> tuple[int, float]:
    """(token, distance of the uniform from the nearest boundary between two tokens).

    On the host a nucleus is first tried without being known: the whole distribution is drawn from, and once more, with
    another uniform and from the nucleus alone, where that fell outside of it.
    """
    if row.sampling.temperature == 0:
        values = adjusted(logits, row)
        two = np.sort(values)[-2:]
        return int(np.argmax(values)), float(two[1] - two[0])
    ids, weights = reference_weights(logits, row)
    u = uniforms(np.array([row.key], np.uint64), np.array([row.sampled], np.uint64))
    if on_device or row.sampling.top_p == 1 or 0 < row.sampling.top_k < len(logits):
        return invert(ids, weights, u[0])
    whole = replace(row.sampling, top_p=1.0)
    first, margin = invert(*reference_weights(logits, replace(row, sampling=whole)), u[0])
    if weights[ids == first] > 0:
        return first, margin
    token, second_margin = invert(ids, weights, again(u)[0])
    return token, min(margin, second_margin)


def invert(ids: np.ndarray, weights: np.ndarray, u: float) -> tuple[int, float]:
    """Where a uniform falls in a distribution, and how near to a boundary."""
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
                allowed_token_ids=tuple(range(0, 2000, 2)) if rng.random() < 0.3 else None,
                bad_words=((4,), (0, 8), (8, 0, 8), (1, 8)) if rng.random() < 0.3 else (),
                seed=int(rng.integers(2**62)),
                top_logprobs=int(rng.integers(6)) if rng.random() < 0.4 else None,
            )
        )
    return out


def random_constraint(rng: np.random.Generator, vocabulary: int) -> Allowing | None:
    """None, all tokens, some, one, or ends of sequence only; some with a token that may escape."""
    share = rng.choice([0.0, 0.1, 0.5, 1.0])
    some = np.union1d(np.flatnonzero(rng.random(vocabulary) < share), [rng.integers(vocabulary)]).tolist()
    escape = int(rng.integers(min(vocabulary, 20))) if rng.random() < 0.5 else None
    return [None, Allowing(some, escape), Allowing(some), Allowing(EOS)][rng.choice(4, p=[0.2, 0.3, 0.3, 0.2])]


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("guided", [False, True], ids=["free", "guided"])
@pytest.mark.parametrize("vocabulary", only([11, 3000], [11, 700, 3000]))
def test_every_mixture_of_parameters_draws_what_the_reference_draws(
    vocabulary: int, on_device: bool, guided: bool
) -> None:
    rng = np.random.default_rng(vocabulary)
    rows = rows_of(random_params(rng, 24), min_tokens=2)
    for row in rows:
        row.stop_token_ids = frozenset({0, 3}) if rng.random() < 0.5 else frozenset()
        row.constraint = random_constraint(rng, vocabulary) if guided else None
    sampler = Sampler(rows, EOS, on_device=on_device)
    compared = 0
    for _ in range(6):
        logits = (rng.standard_normal((24, vocabulary)) * rng.choice([0.1, 2.0, 5.0])).astype(np.float32)
        tokens, _ = sampler.sample(mx.array(logits)).read()
        for i, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            row.sampled = len(row.history)
            expected, margin = reference_sample(logits[i], row, on_device)
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
    tokens, details = Sampler(rows_of(params), EOS, on_device=on_device).sample(mx.array(logits)).read()
    raw = logits - np.log(np.exp(logits.astype(np.float64)).sum(axis=-1, keepdims=True))
    assert set(details) == {0, 2}
    assert tokens[0] == 3
    assert details[0][0] == pytest.approx(raw[0, 3], abs=1e-5)
    best = np.argsort(-raw[0])[:4]
    assert [token for token, _ in details[0][1][:4]] == best.tolist()
    assert [value for _, value in details[0][1][:4]] == pytest.approx(raw[0, best].tolist(), abs=1e-5)


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_a_bias_for_a_token_that_the_model_has_no_logit_of_is_of_no_effect(on_device: bool) -> None:
    """Some tokenizers know more tokens than their model: neighbours must not fail with such a request."""
    params = [SamplingParams(temperature=0.0, logit_bias=bias) for bias in ({50: 9.0, 7: 90.0}, {}, {60: 9.0})]
    logits = np.zeros((3, 50), dtype=np.float32)
    logits[:, 3] = 1.0
    assert Sampler(rows_of(params), EOS, on_device=on_device).sample(mx.array(logits)).read()[0] == [7, 3, 3]


def test_a_draw_can_be_narrowed_to_some_rows_before_it_is_read() -> None:
    rng = np.random.default_rng(3)
    params = [SamplingParams(temperature=0.0, top_logprobs=2 if i % 2 else None) for i in range(5)]
    logits = mx.array(rng.standard_normal((5, 40)).astype(np.float32))
    tokens, details = Sampler(rows_of(params), EOS, on_device=True).sample(logits).read()
    some, some_details = Sampler(rows_of(params), EOS, on_device=True).sample(logits).take([1, 2, 3]).read()
    assert some == tokens[1:4]
    assert some_details == {0: details[1], 2: details[3]}


def test_state_survives_a_change_of_neighbours() -> None:
    rng = np.random.default_rng(5)
    params = [SamplingParams(temperature=1.0, presence_penalty=1.5, repetition_penalty=1.2, seed=i) for i in range(3)]
    logits = [rng.standard_normal((3, 60)).astype(np.float32) * 3 for _ in range(8)]

    together = rows_of(params)
    sampler = Sampler(together, EOS, on_device=False)
    expected = [sampler.sample(mx.array(step)).read()[0][1] for step in logits]

    rows = rows_of(params)
    drawn = []
    for step, members in zip(logits, [[0, 1], [0, 1], [1], [1, 2], [2, 1, 0], [1], [1], [1, 0]], strict=True):
        sampler = Sampler([rows[i] for i in members], EOS, on_device=False)
        drawn.append(sampler.sample(mx.array(step[members])).read()[0][members.index(1)])
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
    assert len(set(keys.tolist())) == 2000


def test_second_uniforms_are_uniform_too_also_where_the_first_were_in_a_narrow_range() -> None:
    keys = np.array([stream_key(seed) for seed in range(200_000)], dtype=np.uint64)
    first = uniforms(keys, np.zeros(len(keys), np.uint64))
    second = again(first)
    assert second.min() >= 0 and second.max() < 1
    for some in (second, second[first > 0.9], second[np.argsort(first)[:10_000]]):
        counts, _ = np.histogram(some, bins=100, range=(0, 1))
        assert ((counts - len(some) / 100) ** 2 / (len(some) / 100)).sum() < 160
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.01


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_tokens_of_a_nucleus_come_as_often_as_they_are_likely(on_device: bool) -> None:
    logits = np.log(np.array([0.05, 0.4, 0.15, 0.1, 0.3], dtype=np.float32))
    rows = rows_of([SamplingParams(temperature=1.0, top_p=0.8, seed=seed) for seed in range(200)])
    sampler = Sampler(rows, [], on_device=on_device)
    drawn = np.concatenate([sampler.sample(mx.array(np.tile(logits, (200, 1)))).read()[0] for _ in range(100)])
    share = np.bincount(drawn, minlength=5) / len(drawn)
    assert share[[0, 3]].tolist() == [0, 0]
    assert share[[1, 2, 4]] == pytest.approx(np.array([0.4, 0.15, 0.3]) / 0.85, abs=0.01)  # 3 standard deviations


def test_only_what_some_row_asks_for_is_computed() -> None:
    greedy = Sampler(rows_of([SamplingParams(temperature=0.0)] * 3), EOS, on_device=False)
    assert greedy.queues_ahead
    mixed = Sampler(rows_of([SamplingParams(temperature=0.0), SamplingParams(temperature=1.0)]), EOS, on_device=False)
    assert not mixed.queues_ahead


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("vocabulary", [11, 400, 6000])
def test_free_rows_draw_the_same_bits_beside_guided_ones_and_without(vocabulary: int, on_device: bool) -> None:
    rng = np.random.default_rng(vocabulary)
    params = random_params(rng, 16)
    beside, alone = rows_of(params), rows_of(params[::2])
    for row in beside[1::2]:
        row.constraint = Allowing([int(rng.integers(vocabulary)), 0])
    samplers = Sampler(beside, [], on_device=on_device), Sampler(alone, [], on_device=on_device)
    assert not samplers[0].queues_ahead
    for _ in range(8):
        logits = rng.standard_normal((16, vocabulary)).astype(np.float32) * 3
        tokens, details = samplers[0].sample(mx.array(logits)).read()
        expected, expected_details = samplers[1].sample(mx.array(logits[::2])).read()
        assert tokens[::2] == expected
        free = {i // 2: (logprob, top) for i, (logprob, top) in details.items() if i % 2 == 0}
        asked = max(len(top) for _, top in details.values())
        assert asked
        for i, (logprob, top) in expected_details.items():
            assert free[i][0] == logprob
            assert free[i][1][: len(top)] == top[:asked]
        assert all(token in row.constraint.allowed for row, token in zip(beside[1::2], tokens[1::2], strict=True))


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_an_escape_is_drawn_where_the_model_itself_wants_it_most_and_nowhere_else(
    temperature: float, on_device: bool
) -> None:
    params = [SamplingParams(temperature, seed=i, logit_bias={4: -100.0} if i % 2 else {}) for i in range(4)]
    rows = rows_of(params)
    for row in rows:
        row.constraint = Allowing([1, 2], escape=4)
    sampler = Sampler(rows, EOS, on_device=on_device)
    wanted = np.array([[0.0, 1.0, 1.1, 2.0, 2.5, 0.0]] * 4, dtype=np.float32)
    second = wanted.copy()
    second[:, 3] = 2.6  # not allowed either
    for _ in range(20):
        assert sampler.sample(mx.array(wanted)).read()[0] == [4] * 4
        assert set(sampler.sample(mx.array(second)).read()[0]) <= {1, 2}


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_a_row_that_may_only_end_ends_before_its_min_tokens_with_the_model_s_own_logprob(on_device: bool) -> None:
    for temperature in (0.0, 1.0):
        params = SamplingParams(temperature, top_k=3, top_logprobs=1, seed=3)
        rows = rows_of([params, params], min_tokens=10)
        rows[0].constraint = Allowing(EOS)
        logits = np.full((2, 8), -1.0, dtype=np.float32)
        logits[:, 2] = 40.0  # of the two ends, the one that the model prefers
        logits[:, 6] = 50.0
        tokens, details = Sampler(rows, EOS, on_device=on_device).sample(mx.array(logits)).read()
        assert tokens == [2, 6]
        assert details[0][0] == pytest.approx(-10.0, abs=1e-4)
        logits[:, EOS] = -np.inf  # what the model itself rules out is drawn where nothing else is left
        assert Sampler(rows, EOS, on_device=on_device).sample(mx.array(logits)).read()[0][0] in EOS


def test_no_masked_token_is_drawn_where_a_parallel_sum_grows_over_it() -> None:
    rng = np.random.default_rng(2)
    rows, vocabulary = 64, 100_003
    logits = rng.standard_normal(vocabulary).astype(np.float32)
    logits[rng.random(vocabulary) > 0.01] = -np.inf
    scaled = mx.array(np.tile(logits, (rows, 1)))
    cumulative = np.array(mx.cumsum(mx.exp(scaled - mx.max(scaled, axis=-1, keepdims=True)), axis=-1))[0]
    # A GPU's sum grows by a rounding error at some entries that add nothing: aim there. Elsewhere, aim anywhere.
    grows = np.flatnonzero((np.diff(cumulative) > 0) & np.isinf(logits[1:]))
    aims = np.concatenate([(cumulative[grows] + cumulative[grows + 1]) / 2 / cumulative[-1], rng.random(rows)])
    for u in (aims[:rows], aims[-rows:], np.full(rows, 1.0), np.zeros(rows)):
        tokens = np.array(device.sample_plain(scaled, mx.array(u.astype(np.float32))))
        assert np.isfinite(logits[tokens]).all()


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_bits_behind_the_vocabulary_allow_nothing(on_device: bool) -> None:
    rows = rows_of([SamplingParams(temperature=2.0, seed=i) for i in range(6)])
    for row in rows[:5]:
        row.constraint = Allowing([3, 11, 12, 20, 31])
    rows[5].constraint = Allowing([12, 20, 31])
    sampler = Sampler(rows, EOS, on_device=on_device)
    failures = sampler.prepare(11)
    assert list(failures) == [5] and "grammar" in str(failures[5])
    assert sampler.sample(mx.array(np.zeros((6, 11), np.float32))).read()[0][:5] == [3] * 5
