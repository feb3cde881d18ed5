"""The vectorised sampler against a reference that treats one row at a time, on the host and on the device."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.noise import BLOCK_TOKENS, factors
from localai_shim.engine.sampling.sampler import Sampler
from localai_shim.types import SamplingParams
from tests.engine.sampled_rows import FakeRow, rows_of
from tests.engine.sampling.reference import EOS, Allowing, adjusted, reference_weights
from tests.samples import only


def reference_sample(logits: np.ndarray, row: FakeRow) -> tuple[int, float]:
    """(token, how little would have to change for another one)."""
    if row.sampling.temperature == 0:
        values = adjusted(logits, row)
        return int(np.argmax(values)), lead(values)
    whole, inside = reference_weights(logits, row)
    token, margin = two_levels(whole, row, 0)
    if row.sampling.top_p < 1:
        heavier = whole[whole > whole[token]].sum() / whole.sum()
        margin = min(margin, abs(heavier - row.sampling.top_p))
        if not inside[token]:
            token, second = two_levels(inside, row, 1)
            margin = min(margin, second)
    return token, margin


def two_levels(weights: np.ndarray, row: FakeRow, attempt: int) -> tuple[int, float]:
    """The block with the greatest log(mass) + noise, and in it the token with the greatest log(weight) + noise."""
    blocks = -(-len(weights) // BLOCK_TOKENS)
    given = factors(np.array([row.key], np.uint64), np.array([row.sampled], np.uint64), blocks, attempt)[0]
    noise = np.log(given.astype(np.float64))
    padded = np.concatenate([weights, np.zeros(blocks * BLOCK_TOKENS - len(weights))]).reshape(blocks, -1)
    with np.errstate(divide="ignore"):
        masses = np.log(padded.sum(axis=1)) + noise[BLOCK_TOKENS:]
        tokens = np.log(padded[masses.argmax()]) + noise[:BLOCK_TOKENS]
    return int(masses.argmax() * BLOCK_TOKENS + tokens.argmax()), min(lead(masses), lead(tokens))


def lead(values: np.ndarray) -> float:
    """How much greater the greatest is than the next one."""
    if len(values) == 1:
        return math.inf
    *_, second, first = np.sort(values)
    return float(first - second)


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
                group_from=int(rng.choice([0, 5, 900, 1990])) if rng.random() < 0.3 else None,
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
            expected, margin = reference_sample(logits[i], row)
            if margin > 2e-5:  # of less, float32 may make another token's
                assert token == expected, (i, row.sampling)
                compared += 1
            row.history.append(token)
    assert compared > 120


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("others", [0, 1], ids=["all rows", "all rows but one"])
@pytest.mark.parametrize(
    "penalties",
    [
        {"presence_penalty": 1.0},
        {"frequency_penalty": 1.0},
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 1.3, "frequency_penalty": -0.5},
    ],
    ids=lambda its: " and ".join(its),
)
def test_penalties_that_all_rows_have_or_none_draw_what_the_reference_draws(
    penalties: dict[str, float], others: int, on_device: bool
) -> None:
    rng = np.random.default_rng(5)
    params = [SamplingParams(seed=i, temperature=0.7 * (i % 2), **penalties) for i in range(4)]  # type: ignore[arg-type]
    rows = rows_of([*params, *[SamplingParams(temperature=0.0)] * others])
    sampler = Sampler(rows, EOS, on_device=on_device)
    compared = repeated = 0
    for _ in range(12):
        logits = rng.standard_normal((len(rows), 9)).astype(np.float32) * np.float32(0.5)
        tokens, _ = sampler.sample(mx.array(logits)).read()
        for i, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            row.sampled = len(row.history)
            expected, margin = reference_sample(logits[i], row)
            if margin > 2e-5:
                assert token == expected, (i, row.sampling)
                compared += 1
            repeated += token in row.history
            row.history.append(token)
    assert compared > 40 and repeated > 4


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
