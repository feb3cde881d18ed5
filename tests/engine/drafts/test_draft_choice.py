"""Which drafts are run: those that are measured to pay, by sources that were right."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from random import Random

import pytest

from localai_shim.engine.costs.cost_model import (
    DRAFTED_STALE_CHOICES,
    MIN_PLAIN_STEPS,
    PLAIN_STALE_CHOICES,
    STEP_TOKENS,
    CostModel,
    step_sizes,
)
from localai_shim.engine.drafts.acceptance import MAX_SURE_WAIT_TOKENS, MAX_WAIT_TOKENS
from localai_shim.engine.drafts.controller import Speculation
from localai_shim.engine.drafts.sources import ForcedTokens, PredictedText, PromptLookup
from localai_shim.engine.pieces import Draft
from localai_shim.engine.row import Row
from localai_shim.engine.sinks import SyncSink
from localai_shim.output.prediction import Prediction
from localai_shim.types import SamplingParams
from tests.architectures import text_model
from tests.engine.constraints import Only
from tests.engine.harness import request


def row(tokens: Sequence[int], output: Sequence[int] = (), max_tokens: int = 100, **more: object) -> Row:
    made = Row(request(tokens, SamplingParams(), max_tokens, **more), SyncSink(), 0, text_model("qwen3"))
    for token in output:
        made.count_token(token, frozenset())
    return made


def tokens(drafts: Sequence[Draft] | None) -> list[list[int]] | None:
    """Those of each row's draft."""
    return None if drafts is None else [list(draft.tokens) for draft in drafts]


def measured(rows: int, costs: dict[int, float]) -> CostModel:
    """A model that has seen steps of so many rows: by their tokens, in steps of one token."""
    out = CostModel()
    for _ in range(MIN_PLAIN_STEPS + 1):
        out.note("step", (rows, 1), 1.0)
        for tokens, cost in costs.items():
            out.note("step", (rows, tokens), cost)
    return out


class Says:
    """Always has these drafts."""

    source = "test"

    def __init__(self, trust: float, tokens: Sequence[int] = (7,) * 15) -> None:
        self.trust, self.tokens, self.asked = trust, list(tokens), 0

    def takes(self, row: Row) -> bool:
        return True

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> list[list[int]]:
        self.asked += len(rows)
        return [self.tokens[:n] for n in most]


def test_nothing_is_run_before_ordinary_steps_were_measured() -> None:
    speculation, rows = Speculation([Says(0.99)]), [row([5, 6])]
    assert tokens(speculation.drafts(rows)) is None and not speculation.expects(rows)
    for _ in range(MIN_PLAIN_STEPS + 1):
        speculation.note(1, 1, 0.01)
    assert speculation.expects(rows) and tokens(speculation.drafts(rows))


@pytest.mark.parametrize(
    ("trust", "costs", "drafts"),
    [
        (0.95, {2: 1.0, 3: 1.0, 5: 1.1, 9: 1.2, 16: 1.3}, 15),
        (0.6, {2: 1.0, 3: 1.05, 5: 1.3, 9: 2.0, 16: 3.0}, 2),
        (0.1, {2: 1.1, 3: 1.2, 5: 1.3, 9: 2.0, 16: 3.0}, 0),
        (0.9, {2: 2.5, 3: 3.5, 5: 6.0, 9: 11.0, 16: 19.0}, 0),
    ],
)
def test_as_many_are_run_as_give_most_tokens_per_second(trust: float, costs: dict[int, float], drafts: int) -> None:
    speculation = Speculation([Says(trust)], costs=measured(1, costs))
    chosen = tokens(speculation.drafts([row([5, 6])]))
    assert len(chosen[0] if chosen else []) == drafts


def test_rows_without_drafts_do_not_wait_for_long() -> None:
    costs = measured(2, dict.fromkeys((2, 3, 5, 9, 16), 5.0))
    lone, both = Says(0.99), [row([5, 6]), row([5, 6], speculation=False)]
    assert tokens(Speculation([lone], costs=costs).drafts(both)) is None
    assert tokens(Speculation([lone], costs=costs).drafts([row([5, 6]), row([8, 9])])) is not None


def test_a_source_that_was_wrong_is_not_run_any_more_until_it_is_right() -> None:
    says, one = Says(0.9), row([5, 6], max_tokens=300)
    speculation = Speculation([says], costs=measured(1, {2: 1.1, 3: 1.2, 5: 1.4, 9: 1.8, 16: 2.5}))
    for _ in range(40):
        speculation.expects([one])
        one.count_token(3, frozenset())
    assert not speculation.expects([one])
    asked = says.asked
    for _ in range(10):
        speculation.expects([one])
        one.count_token(3, frozenset())
    assert says.asked < asked + 5, "nor is it asked each time"
    for _ in range(60):
        speculation.expects([one])
        one.count_token(7, frozenset())
    assert speculation.expects([one])


def test_a_row_without_guesses_is_asked_ever_more_rarely_and_one_with_a_sure_source_sooner() -> None:
    unsure, sure = Says(0.25, ()), Says(0.9, ())
    speculation, one = Speculation([sure, unsure], costs=measured(1, {2: 1.1})), row([5, 6], max_tokens=300)
    for i in range(80):
        assert not speculation.expects([one])
        one.count_token(3 + i, frozenset())
    assert unsure.asked == sure.asked <= 80 // MAX_SURE_WAIT_TOKENS + 2
    alone = Says(0.25, ())
    speculation, one = Speculation([alone], costs=measured(1, {2: 1.1})), row([5, 6], max_tokens=300)
    for i in range(80):
        assert not speculation.expects([one])
        one.count_token(3 + i, frozenset())
    assert 8 <= alone.asked <= 80 // MAX_WAIT_TOKENS + 4


def test_looking_takes_few_calls_where_nothing_repeats() -> None:
    """Of eight rows: a step takes milliseconds, and a call of a function less than a microsecond."""
    speculation = Speculation([ForcedTokens(), PredictedText(), PromptLookup()], costs=measured(8, {2: 1.1}))
    rows, calls, steps = [row([5, 6, 7 + i], max_tokens=300) for i in range(8)], 0, 128

    def counting(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    for step in range(steps):
        sys.setprofile(counting)
        try:
            assert not speculation.expects(rows)
        finally:
            sys.setprofile(None)
        for i, one in enumerate(rows):
            one.count_token(10 + (7 * step * step + 3 * i) % 380, frozenset())
    assert calls / steps < 80


def test_a_source_that_a_row_has_nothing_for_is_never_asked() -> None:
    class Others(Says):
        def takes(self, row: Row) -> bool:
            return False

    others, one = Others(0.9), row([5, 6])
    speculation = Speculation([others], costs=measured(1, {2: 1.1}))
    for _ in range(9):
        assert not speculation.expects([one]) and tokens(speculation.drafts([one])) is None
        one.count_token(7, frozenset())
    assert not others.asked


def test_a_guess_that_may_well_be_wrong_does_not_keep_a_step_from_being_built_ahead() -> None:
    says, one = Says(0.3), row([5, 6])
    speculation = Speculation([says], costs=measured(1, dict.fromkeys((2, 3, 5, 9, 16), 1.05)))
    assert not speculation.expects([one]) and tokens(speculation.drafts([one]))


def test_one_draft_that_does_not_pay_does_not_keep_more_from_being_tried() -> None:
    """Steps with drafts cost something, however many these are: few rows gain by more of them."""
    speculation, rows = Speculation([Says(0.7)], costs=measured(2, {2: 1.74})), [row([5, 6]), row([5, 6])]
    tried = []
    for _ in range(30):
        chosen = tokens(speculation.drafts(rows))
        drafts = len(chosen[0]) if chosen else 0
        tried.append(drafts)
        for _ in range(2):
            speculation.note(2, drafts + 1, 1.0 if not drafts else 1.7 + 0.04 * drafts)
    assert tried[0] > 1 and tried[-1] >= 4


def test_rows_that_end_one_by_one_go_on_with_drafts() -> None:
    """What steps of some rows take is told by those of a few more and fewer: it is not measured for each number."""
    costs = measured(32, dict.fromkeys((2, 3, 5, 9, 16), 1.2))
    says = Says(0.95)
    for count in (32, 31, 26):
        assert tokens(Speculation([says], costs=costs).drafts([row([5, 6]) for _ in range(count)])) is not None
    assert tokens(Speculation([says], costs=costs).drafts([row([5, 6]) for _ in range(20)])) is None, "too far from 32"
    for _ in range(MIN_PLAIN_STEPS + 1):
        costs.note("step", (16, 1), 0.6)
    assert costs.seconds("step", (20, 1)) == pytest.approx(0.7)
    assert tokens(Speculation([says], costs=costs).drafts([row([5, 6]) for _ in range(20)])) is not None


@pytest.mark.parametrize(("jumps", "drafts"), [((8,), 7), ((4, 8), 3), ((6, 8), 5)])
def test_drafts_stop_where_attention_leaves_its_kernel(jumps: tuple[int, ...], drafts: int) -> None:
    """A GPU's steps, which are of few sizes: up to the jump they cost hardly more, beyond it three times as much."""
    costs = CostModel(sizes=step_sizes(jumps))
    for _ in range(MIN_PLAIN_STEPS + 1):
        for size in costs.sizes:
            costs.note("step", (1, size), 1 + 0.01 * size if size <= jumps[0] else 3.0)
    speculation = Speculation([Says(0.9)], few_sizes=True, costs=costs)
    [[*found]] = tokens(speculation.drafts([row([5, 6])])) or [[]]
    assert len(found) == drafts


def test_costs_that_spoke_against_drafts_are_measured_anew() -> None:
    speculation = Speculation([Says(0.9)], costs=measured(1, dict.fromkeys(STEP_TOKENS[1:], 30.0)))
    one, refused = row([5, 6], max_tokens=10**6), []
    while all(refused):
        refused.append(tokens(speculation.drafts([one])) is None)
        one.count_token(7, frozenset())
    assert len(refused) == DRAFTED_STALE_CHOICES + 2, "the last one is run"


STEPS = {1: 1.0, 2: 1.2, 3: 1.35, 5: 1.6, 9: 2.4, 16: 3.6}
"""What steps take of a machine, by their tokens."""


def steps_with_drafts(slow: Callable[[int], float], count: int) -> list[bool]:
    """Which steps of four rows have drafts, 0.7 of them right, on a machine that is so many times as slow at each."""
    speculation, rows, out = Speculation([Says(0.7, (7,) * 8)]), [row([5, 6], max_tokens=10**6) for _ in range(4)], []
    random = Random(1)
    for step in range(count):
        waits = speculation.expects(rows)
        drafts = tokens(speculation.drafts(rows)) if waits or not step else None
        size = 1 if drafts is None else 1 + max(map(len, drafts))
        if drafts is not None or not waits:
            speculation.note(4, size, STEPS[size] * slow(step))
        for one in rows:
            for _ in range(size):
                right = random.random() < 0.7
                one.count_token(7 if right else 3, frozenset())
                if not right:
                    break
        if any(one.max_tokens - one.generated < 20 for one in rows):
            rows = [row([5, 6], max_tokens=10**6) for _ in range(4)]
        out.append(drafts is not None)
    return out


@pytest.mark.parametrize(
    "slow",
    [
        lambda step: 3.0 if 100 <= step < 115 else 1.0,
        lambda step: 1.6 if step >= 100 else 1.0,
        lambda step: 2.0 if 100 <= step < 200 else 1.0,
        lambda step: 2.5 if 5 <= step < 25 else 1.0,
    ],
    ids=["for a moment", "from now on", "for a while", "where drafts were first measured"],
)
def test_drafts_come_back_after_the_machine_was_slow(slow: Callable[[int], float]) -> None:
    """Steps with drafts were measured then, and ordinary ones before: these drafts seem not to pay."""
    have = steps_with_drafts(slow, 500)
    longest = max(len(list(steps)) for drafts, steps in groupby(have) if not drafts)
    assert longest < 60
    assert sum(have) > 350
    assert sum(have[-100:]) > 75


def test_plain_steps_are_measured_again_while_drafts_go_on() -> None:
    """The first ones of an engine may have been slow: drafts would seem to pay for ever."""
    speculation, rows = Speculation([Says(0.9, (7,) * 4)], costs=measured(1, {2: 1.0, 3: 1.0, 5: 1.0})), [row([5, 6])]
    drafted = 0
    while tokens(speculation.drafts(rows)):
        speculation.note(1, 5, 1.0)
        drafted += 1
    assert drafted == PLAIN_STALE_CHOICES + 1
    speculation.note(1, 0, 0.1)  # not built ahead: no measurement
    assert tokens(speculation.drafts(rows)) is None
    for _ in range(8):
        speculation.note(1, 1, 0.25)
    chosen = tokens(speculation.drafts(rows))
    assert chosen is None or len(chosen[0]) < 4, "five tokens in four plain steps"


def test_drafts_end_where_the_row_does() -> None:
    speculation = Speculation([Says(0.99)], costs=measured(1, {2: 1.0}))
    assert tokens(speculation.drafts([row([5, 6], max_tokens=4)])) == [[7, 7, 7]]
    assert tokens(speculation.drafts([row([5, 6], max_tokens=1)])) is None


def test_few_sizes_are_those_that_were_weighed() -> None:
    speculation = Speculation([Says(0.99, (7,) * 6)], few_sizes=True, costs=measured(1, {16: 1.0}))
    assert tokens(speculation.drafts([row([5, 6])])) == [[7] * 4]


@pytest.mark.parametrize(("few_sizes", "better", "size"), [(True, 1.1, 4), (True, 1.3, 8), (False, 1.1, 8)])
def test_steps_stay_as_large_as_the_one_that_was_built_ahead(few_sizes: bool, better: float, size: int) -> None:
    """On a GPU, another size must be 15 % better."""
    costs = measured(1, {2: 3.0, 3: 3.0, 5: 3.0, 9: 9.0, 16: 30.0})
    speculation, one = Speculation([Says(0.98)], few_sizes=few_sizes, costs=costs), row([5, 6])
    assert tokens(speculation.drafts([one])) == [[7] * 4]
    for _ in range(30):
        costs.note("step", (1, 9), 3.0 * 9 / 5 / better)
    assert tokens(speculation.drafts([one])) == [[7] * size]


def test_the_source_that_was_right_most_often_goes_first() -> None:
    sources, one = [Says(0.9, (4, 4)), Says(0.99, ()), Says(0.7, (9, 9))], row([5, 6])
    speculation = Speculation(sources, costs=measured(1, {2: 1.0, 3: 1.0}))
    assert tokens(speculation.drafts([one])) == [[4, 4]]
    for _ in range(6):
        one.count_token(9, frozenset())
        chosen = tokens(speculation.drafts([one]))
    assert chosen == [[9, 9]]


def test_lookup_says_what_followed_the_last_tokens() -> None:
    lookup = PromptLookup()
    one = row([1, 2, 3, 4, 5, 6, 9, 1, 2, 3])
    assert lookup.draft([one], [4]) == [[4, 5, 6, 9]]
    one.count_token(4, frozenset())
    one.count_token(8, frozenset())
    assert lookup.draft([one], [4]) == [()]
    for token in (2, 3, 4):
        one.count_token(token, frozenset())
    assert list(lookup.draft([one], [3])[0]) == [8, 2, 3], "the latest place counts, and the output is a place"


def test_of_several_places_lookup_takes_the_one_behind_most_of_the_last_tokens() -> None:
    said = [8, 1, 2, 3, 4, 9, 1, 2, 3, 5, 7, 1, 2, 3, 6]
    assert list(PromptLookup().draft([row([*said, 9, 1, 2, 3])], [1])[0]) == [5]
    assert list(PromptLookup().draft([row([*said, 8, 1, 2, 3])], [1])[0]) == [4]
    assert list(PromptLookup().draft([row([*said, 0, 1, 2, 3])], [1])[0]) == [6], "the latest of equal ones"


def test_lookup_goes_on_with_what_repeats_itself() -> None:
    assert list(PromptLookup().draft([row([1, 2, 1, 2, 1, 2])], [5])[0]) == [1, 2, 1, 2, 1]


def test_predictions_and_grammars_have_drafts_for_rows_that_have_them() -> None:
    class Forcing(Only):
        def forced(self) -> list[int]:
            return [8, 9]

    rows = [row([5], prediction=Prediction((1, 2, 3)).follow), row([5], constraint=Forcing([8])), row([5])]
    assert [list(some) for some in PredictedText().draft(rows, [2, 2, 2])] == [[1, 2], [], []]
    assert [list(some) for some in ForcedTokens().draft(rows, [1, 1, 1])] == [[], [8], []]


def test_tokens_that_the_model_does_not_have_are_no_drafts() -> None:
    speculation = Speculation([Says(0.9, (4, 400)), Says(0.9, (5,))], vocabulary=400, costs=measured(1, {2: 1.0}))
    assert tokens(speculation.drafts([row([5, 6])])) == [[5]]


class Costly(Says):
    """As long as its passes take this share of a step."""

    most, nbytes = 4, 0

    def __init__(self, trust: float, share: float) -> None:
        super().__init__(trust)
        self.share = share

    def takes(self, row: Row) -> bool:
        return row.request.prediction is None

    def seconds(self, rows: int, drafts: int, plain: float) -> float:
        return self.share * drafts * plain

    def keep(self, rows: Sequence[Row]) -> None:
        raise AssertionError("the batch says who runs")


CHEAP_STEPS = {2: 1.0, 3: 1.0, 5: 1.05}


@pytest.mark.parametrize(
    ("trust", "share", "drafts"), [(0.9, 0.05, 4), (0.7, 0.2, 2), (0.8, 0.9, 0), (0.3, 0.1, 1), (0.1, 0.1, 0)]
)
def test_a_source_that_takes_time_is_asked_for_as_many_as_pay(trust: float, share: float, drafts: int) -> None:
    costly, one = Costly(trust, share), row([5, 6], [8])
    speculation = Speculation([], costs=measured(1, CHEAP_STEPS), costly=costly)
    assert speculation.expects([one]) is (drafts > 0)
    assert costly.asked == 0, "not before they are run"
    chosen = tokens(speculation.drafts([one]))
    assert len(chosen[0] if chosen else []) == drafts
    assert costly.asked == (drafts > 0)


def test_a_costly_source_is_asked_for_rows_that_it_takes_and_where_no_other_is_trusted_more() -> None:
    rows = [row([5, 6], [8]), row([5, 6], [8], prediction=Prediction((1,)).follow), row([5, 6], [8], speculation=False)]
    costs = measured(3, CHEAP_STEPS)
    assert tokens(Speculation([], costs=costs, costly=Costly(0.9, 0.1)).drafts(rows)) == [[7] * 4, [], []]
    sure, unsure, costly = Says(0.97, (3, 3)), Says(0.3, (3, 3)), Costly(0.9, 0.1)
    for source, drafts in ((sure, [3, 3]), (unsure, [7] * 4)):
        alike = [row([5, 6], [8]) for _ in range(3)]
        assert tokens(Speculation([source], costs=costs, costly=costly).drafts(alike)) == [drafts] * 3
        assert costly.asked == (3 if source is unsure else 0)


def test_the_time_of_a_costly_source_is_no_part_of_what_steps_cost() -> None:
    clock, costs = iter([10.0, 12.5]), measured(1, CHEAP_STEPS)
    costs.now = lambda: next(clock)
    speculation = Speculation([], costs=costs, costly=Costly(0.9, 0.1))
    tokens(speculation.drafts([row([5, 6], [8])]))
    assert speculation.spent == 2.5


def test_a_costly_source_that_was_wrong_is_tried_again_after_a_while() -> None:
    costly, one = Costly(0.9, 0.1), row([5, 6], [8], max_tokens=2_000)
    speculation = Speculation([], costs=measured(1, CHEAP_STEPS), costly=costly)
    asked = []
    for _ in range(600):
        tokens(speculation.drafts([one]))
        asked.append(costly.asked)
        one.count_token(3, frozenset())
    assert asked[200] - asked[60] < 140 / 20, "hardly, as long as it was wrong"
    assert asked[200] < asked[-1] < 60


def test_new_rows_expect_of_a_costly_source_what_it_was_for_others_of_their_kind() -> None:
    """Rows with a grammar count separately. A source that was wrong is tried again after some hundred steps."""
    costly, drafted = Costly(0.9, 0.1), list[bool]()
    speculation = Speculation([], costs=measured(1, CHEAP_STEPS), costly=costly)
    for _ in range(600):
        one = row([5, 6], [8])
        drafted.append(tokens(speculation.drafts([one])) is not None)
        one.count_token(3, frozenset())
        speculation.expects([one])
        for size in (1, *CHEAP_STEPS):
            speculation.note(1, size, 1.0)
    assert all(drafted[:20]) and not all(drafted[:100])
    assert 1 <= sum(drafted[200:]) <= 400 / 4
    assert tokens(speculation.drafts([row([5, 6], [8], constraint=Only([3]))])) == [[7] * 4]


def test_a_costly_source_is_asked_for_no_more_drafts_than_are_run() -> None:
    """A GPU's steps have 5 or 9 tokens: seven drafts would fill neither."""
    costly, most = Costly(0.95, 0.01), list[int]()
    costly.most, draft = 7, costly.draft
    costly.draft = lambda rows, wanted: (most.extend(wanted), draft(rows, wanted))[1]  # type: ignore[method-assign]
    costs = measured(1, dict.fromkeys(STEP_TOKENS[1:], 1.0))
    assert tokens(Speculation([], few_sizes=True, costs=costs, costly=costly).drafts([row([5, 6], [8])])) == [[7] * 4]
    assert most == [4]


def test_a_row_expects_what_a_costly_source_was_for_itself() -> None:
    speculation = Speculation([], costs=measured(1, CHEAP_STEPS), costly=Costly(0.9, 0.1))
    wrong, other = row([5, 6], [8]), row([5, 6], [8])
    for _ in range(14):
        speculation.drafts([wrong])
        wrong.count_token(3, frozenset())
    assert tokens(speculation.drafts([wrong])) is None and tokens(speculation.drafts([other])) is not None
