"""Times of work, told by what was measured: averages, lines between them, and guesses beyond that are tried."""

from __future__ import annotations

import pytest

from localai_shim.engine.costs.cost_model import (
    DRAFTED_STALE_CHOICES,
    LASTING,
    MAX_RETRIES,
    MIN_PLAIN_STEPS,
    PLAIN_STALE_CHOICES,
    STEP_TOKENS,
    TRIES,
    CostModel,
    step_sizes,
)


def measured(costs: dict[int, float], rows: int = 2) -> CostModel:
    """By tokens of each row, what steps took, after plain ones of a second."""
    out = CostModel()
    for _ in range(MIN_PLAIN_STEPS + 1):
        for tokens, seconds in {1: 1.0, **costs}.items():
            out.note("step", (rows, tokens), seconds)
    return out


def test_a_size_is_known_once_it_was_measured_and_the_first_of_it_does_not_count() -> None:
    costs = CostModel()
    for seconds in (9.0, *[1.0] * (MIN_PLAIN_STEPS - 1)):
        costs.note("step", (4, 1), seconds)
        assert costs.seconds("step", (4, 1)) is None
    costs.note("step", (4, 1), 1.0)
    assert costs.seconds("step", (4, 1)) == 1.0
    for seconds in (500.0, *[8.0] * (TRIES - 1)):
        costs.note("step", (4, 2), seconds)
        assert costs.seconds("step", (4, 2)) == pytest.approx(1.05), "it is tried again"
    costs.note("step", (4, 2), 1.5)
    assert costs.seconds("step", (4, 2)) == 1.5, "the others may have been delayed"


def test_one_slow_step_hardly_counts_and_a_slower_machine_does() -> None:
    costs = measured({})
    costs.note("step", (2, 1), 80.0)
    assert costs.seconds("step", (2, 1)) == pytest.approx(1.25, abs=0.01)
    for _ in range(20):
        costs.note("step", (2, 1), 3.0)
    assert costs.seconds("step", (2, 1)) == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize(
    ("costs", "tokens", "seconds"),
    [
        ({2: 1.2, 5: 1.5}, 3, 1.3),  # on a line between two
        ({2: 1.2, 5: 1.5}, 4, 1.5),  # counts as five
        ({5: 1.8}, 2, 1.2),  # and between one and a plain step
        ({3: 1.5, 5: 1.4}, 3, 1.4),  # fewer tokens take no longer
        ({2: 1.8}, 3, 2.0),  # of one that is dear much may be the same for two
        ({2: 1.2, 5: 1.5}, 9, 1.625),
        ({}, 2, 1.05),  # to be tried
        ({}, 3, None),  # after that
        ({2: 1.2}, 16, None),  # too far from what is known
    ],
)
def test_what_was_not_measured_is_told_by_what_was(costs: dict[int, float], tokens: int, seconds: float | None) -> None:
    assert measured(costs).seconds("step", (2, tokens)) == (None if seconds is None else pytest.approx(seconds))


def test_numbers_of_rows_are_told_by_near_and_surrounding_ones() -> None:
    costs = measured({2: 1.5}, rows=8)
    for _ in range(MIN_PLAIN_STEPS + 1):
        costs.note("step", (16, 1), 2.0)
    assert costs.seconds("step", (12, 1)) == 1.5
    assert costs.seconds("step", (7, 1)) == 1.0 and costs.seconds("step", (4, 1)) is None
    assert costs.seconds("step", (7, 2)) == 1.5
    assert costs.seconds("draft", (8, 1)) is None, "other work"


def test_sizes_that_are_not_measured_get_stale_and_plain_ones_last() -> None:
    costs = measured({2: 8.0})
    for _ in range(DRAFTED_STALE_CHOICES):
        costs.choose()
    assert costs.seconds("step", (2, 2)) == 8.0
    costs.choose()
    assert costs.seconds("step", (2, 2)) == 1.05, "to be tried again"
    for _ in range(PLAIN_STALE_CHOICES):
        costs.choose()
    assert costs.seconds("step", (2, 1)) is None


def choices_until_stale(costs: CostModel) -> int:
    """Number of choices, next to plain steps, until steps of two tokens are tried again."""
    for choices in range(1, 10_000):
        costs.choose()
        costs.note("step", (2, 1), 1.0)
        if costs.seconds("step", (2, 2)) == pytest.approx(1.05):
            return choices
    raise AssertionError("never")


def test_sizes_that_do_not_pay_again_are_tried_ever_more_rarely() -> None:
    costs, waited = measured({2: 8.0}), []
    for _ in range(MAX_RETRIES + 3):
        for _ in range(MIN_PLAIN_STEPS + 1):
            costs.note("step", (2, 1), 1.0)
        waited.append(choices_until_stale(costs))
        for _ in range(TRIES):
            costs.note("step", (2, 2), 8.0)
    assert waited == [DRAFTED_STALE_CHOICES * 2 ** min(n, MAX_RETRIES) + 1 for n in range(MAX_RETRIES + 3)]
    for _ in range(LASTING):
        costs.note("step", (2, 2), 1.1)
    assert choices_until_stale(costs) == DRAFTED_STALE_CHOICES + 1, "it has paid since"


def test_a_pass_that_drafts_counts_once_it_was_measured() -> None:
    costs = CostModel()
    costs.note("draft", (2, 1), 9.0)
    assert costs.seconds("draft", (2, 1)) is None, "the first one is slow"
    costs.note("draft", (2, 1), 0.2)
    assert costs.seconds("draft", (2, 1)) == 0.2


@pytest.mark.parametrize(
    ("jumps", "sizes"),
    [
        ((), STEP_TOKENS),
        ((8,), (1, 2, 3, 5, 8, 16)),
        ((4, 8), (1, 2, 3, 4, 8, 16)),
        ((6, 8), (1, 2, 3, 6, 8, 16)),
        ((2, 8), (1, 2, 3, 5, 8, 16)),
        ((4, 6, 8), (1, 2, 4, 6, 8, 16)),
        ((4, 6, 7, 8), (1, 2, 4, 6, 7, 8, 16)),
    ],
)
def test_sizes_have_a_border_where_the_cost_jumps(jumps: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    assert step_sizes(jumps) == sizes


def test_steps_on_both_sides_of_a_jump_do_not_count_as_the_same() -> None:
    costs = CostModel(sizes=step_sizes((4, 8)))
    for _ in range(MIN_PLAIN_STEPS + 1):
        for tokens in range(1, 17):
            costs.note("step", (2, tokens), 1.0 if tokens <= 4 else 3.0 if tokens <= 8 else 2.5)
    assert [costs.seconds("step", (2, tokens)) for tokens in (4, 5, 8, 9)] == [1.0, 2.5, 2.5, 2.5]
