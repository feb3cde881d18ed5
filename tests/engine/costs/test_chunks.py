"""How many tokens fit into a stall: learned from what passes took, whatever machine that was."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from localai_shim.engine.costs.chunks import MIN_LIMIT_TOKENS, ChunkLimit, Pace, Scores

STALL = 0.05
Machine = Callable[[int], float]


def machine(fixed: float, per_token: float) -> Machine:
    """Seconds that a pass of so many tokens takes."""
    return lambda tokens: fixed + per_token * tokens


def run(pace: Pace, seconds: Machine, passes: int, most: int = 2048) -> list[float]:
    """What chunks that fill a stall take, one after another, each at the beginning of a prompt.

    Between two of them comes the rest of a prompt, which may be of any size.
    """
    rng, out = random.Random(0), []
    for _ in range(passes):
        tokens = min(most, max(16, pace.chunk(STALL)))
        out.append(seconds(tokens))
        pace.note(tokens, out[-1], tokens)
        rest = rng.randint(1, tokens)
        pace.note(rest, seconds(rest), tokens)
    return out


@pytest.mark.parametrize("per_token", [20e-6, 100e-6, 700e-6, 1.5e-3])
@pytest.mark.parametrize("fixed", [0.0, 0.002, 0.01, 0.02])
def test_chunks_soon_take_about_the_stall(fixed: float, per_token: float) -> None:
    pace = Pace(STALL)
    late = run(pace, machine(fixed, per_token), 30)[5:]
    longest, rounding = max(STALL, 3 * fixed), 32 * per_token
    assert all(seconds <= 1.25 * longest + 1e-9 for seconds in late)
    if 2048 * per_token + fixed > longest:
        assert late[-1] >= 0.7 * longest - rounding


def test_a_machine_whose_passes_take_long_in_themselves_gets_no_more_than_two_stalls() -> None:
    pace = Pace(STALL)
    late = run(pace, machine(0.04, 100e-6), 30)[5:]
    assert max(late) <= 2 * STALL * 1.1
    assert max(late) >= 1.5 * STALL


def test_passes_of_one_size_say_nothing_of_what_one_takes_in_itself() -> None:
    pace = Pace(STALL)
    for _ in range(50):
        pace.note(100, 0.03, 100)
    assert 0.8 * STALL <= pace.chunk(STALL) * 0.0003 <= STALL


def test_a_pass_that_something_delayed_is_soon_forgotten() -> None:
    pace = Pace(STALL)
    run(pace, machine(0.005, 300e-6), 20)
    before = pace.chunk(STALL)
    pace.note(before, 2.0, before)
    assert pace.chunk(STALL) >= before / 5
    run(pace, machine(0.005, 300e-6), 10)
    assert pace.chunk(STALL) >= 0.7 * before


def test_noise_does_not_add_up() -> None:
    rng, pace = random.Random(1), Pace(STALL)
    late = run(pace, lambda tokens: (0.004 + 250e-6 * tokens) * rng.choice([1, 1, 1, 1.1, 1.6]), 300)[20:]
    late.sort()
    assert 0.6 * STALL <= late[len(late) // 2] <= 1.2 * STALL
    assert late[-1] <= 3 * STALL


def test_chunks_become_smaller_as_a_prompt_becomes_longer_and_tokens_take_longer() -> None:
    pace, done, late = Pace(STALL), 0, []
    while done < 16_000:
        tokens = max(16, pace.chunk(STALL))
        seconds = 0.003 + tokens * (200e-6 + 50e-9 * done)
        done += tokens
        pace.note(tokens, seconds, done)
        late.append(seconds)
    assert all(0.5 * STALL < seconds < 1.3 * STALL for seconds in late[5:])


def test_a_part_of_a_stall_takes_that_part() -> None:
    pace = Pace(STALL)
    run(pace, machine(0.0, 100e-6), 20)
    assert pace.chunk(STALL / 2) == pytest.approx(pace.chunk(STALL) / 2, abs=32)
    assert pace.chunk(0.0) == 0


def test_chunks_are_of_few_sizes() -> None:
    pace = Pace(STALL)
    run(pace, machine(0.001, 90e-6), 20)
    assert pace.chunk(STALL) % 32 == 0 == pace.chunk(STALL / 3) % 32


def test_a_rest_that_is_hardly_longer_than_an_empty_pass_is_not_used() -> None:
    pace = Pace(STALL)
    assert pace.is_enough(0.02) and not pace.is_enough(0.01)
    for tokens in (16, 200) * 10:
        pace.note(tokens, 0.015 + 1e-4 * tokens, tokens)
    assert not pace.is_enough(0.025) and pace.is_enough(0.04)


def test_halving_lasts_and_ends_at_the_smallest_pass() -> None:
    chunks, sizes = ChunkLimit(2048), []
    while chunks.halve():
        sizes.append(chunks.tokens())
    assert sizes == [1024, 512, 256, 128, 64, MIN_LIMIT_TOKENS]
    assert not chunks.halve() and chunks.tokens() == MIN_LIMIT_TOKENS


def test_a_smaller_limit_of_the_caller_stays() -> None:
    chunks = ChunkLimit(16)
    assert not chunks.halve() and chunks.tokens() == 16


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("heads", [8, 32])
def test_long_contexts_bound_queries_times_keys_times_heads(heads: int, share: float) -> None:
    chunks = ChunkLimit(2048, scores=[Scores(lambda: 2**30, heads)])
    if share < 1:
        chunks.halve()
    sizes = [chunks.tokens(start) for start in range(0, 120_000, 1000)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 2048 * share and sizes[-1] < 2048 * share
    for start, size in zip(range(0, 120_000, 1000), sizes, strict=True):
        assert size % 32 == 0
        assert size * (start + size) * heads <= share * 2**30
        if size < 2048 * share:
            assert (size + 32) * (start + size + 32) * heads > share * 2**30, "no smaller than it has to be"


def test_a_window_bounds_the_keys() -> None:
    chunks = ChunkLimit(2048, scores=[Scores(lambda: 2**26, 32, window=512)])
    assert chunks.tokens(512) == chunks.tokens(100_000) == 1184
    assert 1184 * (512 + 1184) * 32 <= 2**26 < 1216 * (512 + 1216) * 32


def test_the_smallest_pass_runs_however_long_the_context_is_and_a_small_limit_stays_odd() -> None:
    assert ChunkLimit(2048, scores=[Scores(lambda: 1000, 32)]).tokens(10**6) == MIN_LIMIT_TOKENS
    assert ChunkLimit(50).tokens() == 50 == ChunkLimit(50, scores=[Scores(lambda: 2**20, 1)]).tokens(1000)


def test_the_narrowest_of_several_bounds_holds_and_follows_what_changes() -> None:
    left = [2**24]
    chunks = ChunkLimit(2048, scores=[Scores(lambda: 2**30, 32), Scores(lambda: left[0], 64)])
    assert chunks.tokens(1000) == 192
    left[0] = 2**40
    assert chunks.tokens(1000) == 2048
