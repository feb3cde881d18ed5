"""A batch's work in flight between two steps: nothing, a queued sample, logits for the host, or drafts to verify."""

from __future__ import annotations

from collections.abc import Collection

import mlx.core as mx
import pytest

from localai_shim.engine.decode.in_flight import AwaitingHost, Idle, Queued, Verifying
from localai_shim.engine.drafts.controller import Speculation
from localai_shim.engine.pieces import Decode, Draft
from localai_shim.engine.row import Row
from localai_shim.engine.setup import Setup
from localai_shim.engine.work.scheduler import Decoding
from localai_shim.models.loading import load_model
from localai_shim.types import SamplingParams
from tests.engine.constraints import Only, Stepped
from tests.engine.guessing import Ahead, speculate
from tests.engine.harness import GREEDY, decode, request
from tests.tiny import tiny

SAMPLED = SamplingParams(seed=3)
PROMPTS = [[5, 6, 7], [8, 9, 10, 11], [12, 13]]


class Drafting(Stepped):
    """Has drafts from a source that knows what is emitted, and notes the questions and measurements of each step."""

    def __init__(self, drafts: int, after: int = 0) -> None:
        super().__init__(load_model(str(tiny("qwen3")), {}))
        [row] = self.join(request(PROMPTS[0], max_tokens=40))
        while self.batch.rows:
            decode(self.batch)
        self.asked: list[str] = []
        self.measured: list[tuple[int, int]] = []
        self.expected = False
        speculation = _Noting(self, [Ahead(self.tokens(row), drafts, after)] if drafts else [])
        emit = self.batch._emit
        self.batch = type(self.batch)(self.model, emit, Setup(None, speculation=speculation))
        self.decoding = Decoding(self.batch, None, speculation, speculation.costs)

    def step(self) -> None:
        decode(self.batch, self.decoding.next)
        self.decoding.end(alone=True)


class _Noting(Speculation):
    def __init__(self, of: Drafting, drafters: list[Ahead]) -> None:
        super().__init__(drafters)
        self._of = of

    def expects(self, rows: list[Row]) -> bool:  # type: ignore[override]
        self._of.asked.append("expects")
        self._of.expected = super().expects(rows)
        return self._of.expected

    def drafts(self, rows: list[Row], **more: bool) -> tuple[Draft, ...] | None:  # type: ignore[override]
        self._of.asked.append("drafts")
        return super().drafts(rows, **more)

    def note(self, rows: int, tokens: int, seconds: float) -> None:
        assert seconds > 0
        self._of.measured.append((rows, tokens))
        super().note(rows, tokens, seconds)


@pytest.fixture(scope="module")
def stepped() -> Stepped:
    return Stepped(load_model(str(tiny("qwen3")), {}))


@pytest.fixture(scope="module")
def on_host() -> Stepped:
    """As `stepped`, for a model whose rows the host samples, as it does for every model on a CPU."""
    model = load_model(str(tiny("qwen3")), {})
    model.samples_on_device = False
    return Stepped(model)


def joined(stepped: Stepped, sampling: SamplingParams) -> list[Row]:
    """Three rows, beside which no other runs."""
    stepped.batch.drop(list(stepped.batch.rows))
    return stepped.join(*(request(prompt, sampling, 12) for prompt in PROMPTS))


def test_rows_that_have_just_joined_have_nothing_in_flight(stepped: Stepped) -> None:
    joined(stepped, GREEDY)
    assert stepped.batch.in_flight == Idle(joined=True)


def test_the_first_step_of_rows_that_joined_has_nothing_built_behind_it(stepped: Stepped) -> None:
    joined(stepped, GREEDY)
    decode(stepped.batch)
    assert isinstance(stepped.batch.in_flight, Queued) and stepped.batch.in_flight.next is None


def test_greedy_rows_have_the_next_sample_built_behind_the_one_that_runs(stepped: Stepped) -> None:
    joined(stepped, GREEDY)
    decode(stepped.batch)
    decode(stepped.batch)
    assert isinstance(stepped.batch.in_flight, Queued) and stepped.batch.in_flight.next is not None


def test_rows_that_the_host_samples_have_the_next_graph_built_behind_their_logits(on_host: Stepped) -> None:
    joined(on_host, SAMPLED)
    decode(on_host.batch)
    decode(on_host.batch)
    assert isinstance(on_host.batch.in_flight, AwaitingHost) and on_host.batch.in_flight.built is not None


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_nothing_is_built_behind_a_step_that_rows_wait_for(stepped: Stepped, sampling: SamplingParams) -> None:
    joined(stepped, sampling)
    decode(stepped.batch)
    decode(stepped.batch, lambda: Decode(ahead=False))
    flight = stepped.batch.in_flight
    assert (flight.next if isinstance(flight, Queued) else getattr(flight, "built", flight)) is None


def test_nothing_is_built_behind_the_last_tokens_of_all_rows(stepped: Stepped) -> None:
    rows = joined(stepped, GREEDY)
    built = {}
    while stepped.batch.rows:
        decode(stepped.batch)
        if isinstance(stepped.batch.in_flight, Queued):
            built[rows[0].generated] = stepped.batch.in_flight.next is not None
    assert built == {generated: 0 < generated < 11 for generated in range(12)}, "of 12 tokens"
    assert stepped.batch.nbytes == 0


def test_a_row_whose_output_is_asked_for_leaves_nothing_in_flight(stepped: Stepped) -> None:
    rows = joined(stepped, GREEDY)
    decode(stepped.batch)
    decode(stepped.batch)
    assert stepped.batch.take(rows[1]) and stepped.batch.in_flight == Idle()
    assert len(stepped.tokens(rows[1])) == rows[1].generated == 3, "that of the step that was built, too"


def test_the_last_row_that_leaves_takes_what_is_in_flight_with_it(stepped: Stepped) -> None:
    rows = joined(stepped, GREEDY)
    decode(stepped.batch)
    stepped.batch.drop(rows)
    assert stepped.batch.in_flight == Idle()


def test_the_last_row_whose_constraint_fails_leaves_nothing_in_flight(stepped: Stepped) -> None:
    class Fails(Only):
        def mask(self, *_: object) -> bool:
            raise ValueError("no mask")

    stepped.batch.drop(list(stepped.batch.rows))
    stepped.join(request([5, 6], max_tokens=12, constraint=Fails(range(20, 60))))
    decode(stepped.batch)
    assert stepped.batch.in_flight == Idle() and not stepped.batch.rows


@pytest.mark.parametrize("gone", [{0}, {1}, {2}, {0, 2}])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_rows_go_on_with_what_is_in_flight_when_others_leave(
    stepped: Stepped, sampling: SamplingParams, steps: int, gone: Collection[int]
) -> None:
    expected = []
    for prompt in PROMPTS:
        stepped.batch.drop(list(stepped.batch.rows))
        [row] = stepped.join(request(prompt, sampling, 12))
        while row in stepped.batch.rows:
            decode(stepped.batch)
        expected.append(stepped.tokens(row))
    rows = joined(stepped, sampling)
    for _ in range(steps):
        decode(stepped.batch)
    before = type(stepped.batch.in_flight)
    stepped.batch.drop([rows[i] for i in gone])
    assert type(stepped.batch.in_flight) is before
    while stepped.batch.rows:
        decode(stepped.batch)
    stayed = [i for i in range(3) if i not in gone]
    assert [stepped.tokens(rows[i]) for i in stayed] == [expected[i] for i in stayed]


@pytest.mark.parametrize("drafts", [0, 4])
def test_each_step_asks_once_about_drafts(drafts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    speculate(monkeypatch)  # whatever steps cost
    drafting, seen = Drafting(drafts), set[type]()
    drafting.join(request(PROMPTS[0], max_tokens=40))
    while drafting.batch.rows:
        drafting.asked.clear()
        drafting.step()
        seen.add(type(drafting.batch.in_flight))
        assert len(drafting.asked) <= 1
    assert (Verifying in seen) is bool(drafts)


def test_steps_of_rows_that_stay_are_measured_and_the_first_and_last_are_not() -> None:
    drafting = Drafting(0)
    [row] = drafting.join(request(PROMPTS[0], max_tokens=10))
    while drafting.batch.rows:
        drafting.step()
    assert row.generated == 10 and set(drafting.measured) == {(1, 1)}
    assert len(drafting.measured) == 8, "the tenth ends the row"


def test_steps_with_drafts_are_measured_by_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    speculate(monkeypatch)  # whatever they cost
    drafting = Drafting(4)
    drafting.join(request(PROMPTS[0], max_tokens=40))
    while drafting.batch.rows:
        drafting.step()
    assert (1, 5) in drafting.measured


def test_step_behind_which_nothing_is_launched_counts_as_no_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU most of a step's time passes while the one behind it is launched: drafts would seem dear."""
    speculate(monkeypatch)
    drafting, was_expected, seen = Drafting(4, after=12), False, 0
    drafting.join(request(PROMPTS[0], max_tokens=40))
    while drafting.batch.rows:
        drafting.measured.clear()
        drafting.expected = False
        drafting.step()
        assert not (was_expected and drafting.measured)
        seen += was_expected
        was_expected = drafting.expected
    assert seen


def test_waiting_has_the_logits_of_a_step_computed(on_host: Stepped) -> None:
    joined(on_host, SAMPLED)
    decode(on_host.batch)
    on_host.batch.wait()
    flight = on_host.batch.in_flight
    assert isinstance(flight, AwaitingHost) and bool(mx.isfinite(flight.logits).all())
