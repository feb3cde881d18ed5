"""How long running rows wait for a token while prompts are run and drafts are, too: by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import mlx.core as mx
import pytest

from localai_shim.engine.costs.chunks import STALL_STEPS
from localai_shim.engine.costs.cost_model import MIN_PLAIN_STEPS, STEP_TOKENS
from localai_shim.engine.drafts import draft_model
from localai_shim.engine.drafts.controller import Speculation
from localai_shim.engine.drafts.draft_model import DraftModel
from localai_shim.engine.drafts.sources import Drafter
from localai_shim.engine.ports import PassOutput, StepInput
from localai_shim.engine.row import Row
from localai_shim.engine.sinks import SyncSink
from localai_shim.types import Event, Failure
from tests.engine.harness import request
from tests.engine.recording import Clock, Recording, World

MAX_STALL = 0.05
PREFILL = 0.0005  # seconds per token
LONG = 900  # tokens

StepSeconds = Callable[[int], float]


class Timed(Recording):
    """Whose passes take as long as the test says, by the tokens of each row. Its rows say token 0 for ever."""

    def __init__(self, clock: Clock, per_prompt_token: float, step: StepSeconds) -> None:
        super().__init__(clock, per_prompt_token)
        self._clock: Clock = clock
        self._step, self.sizes = step, []  # type: tuple[StepSeconds, list[int]]

    def forward(self, step: StepInput) -> PassOutput[mx.array]:
        self.sizes.append(step.tokens.shape[1])
        self._clock.now += self._step(step.tokens.shape[1])
        return super().forward(step)


class Right:
    """Knows what rows say."""

    source, trust = "test", 0.97

    def takes(self, row: Row) -> bool:
        return True

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> list[list[int]]:
        return [[0] * n for n in most]


class Stage:
    """A world whose rows have drafts, with a clock that steps move as well."""

    def __init__(self, step: StepSeconds, drafters: Sequence[Drafter] | None) -> None:
        self.world = w = World(max_stall=MAX_STALL, prefix_cache=0)
        self.model = w.model = Timed(w.clock, PREFILL, step)
        self.speculation = speculation = (
            None if drafters is None else Speculation(drafters, max_stall=MAX_STALL, costs=w.costs)
        )
        self.came: dict[Row, list[float]] = {}
        w._emit = self._emit  # type: ignore[method-assign]
        w.prepare(speculation=speculation, max_rows=8)

    def _emit(self, row: Row, event: Event) -> None:
        assert not isinstance(event, Failure)
        self.came.setdefault(row, []).append(self.world.clock.now)

    def ask(self, tokens: int, *, drafts: bool = True) -> Row:
        made = request([5] * tokens, max_tokens=100_000, speculation=drafts)
        row = Row(made, SyncSink(), 0, self.model)
        self.world.rows.add([row])
        return row

    def step(self) -> None:
        self.world.step()

    def longest_gap(self, rows: Sequence[Row], since: float) -> float:
        """Between two times at which any of these rows got tokens, seconds."""
        return max(b - a for row in rows for a, b in pairwise(self.came[row]) if b > since)


def wait_while_prompts_join(stage: Stage) -> tuple[float, list[int]]:
    """The longest gap of four rows, one of which has no drafts, and the tokens of the steps, while prompts join."""
    rows = [stage.ask(3, drafts=i > 0) for i in range(4)]
    for _ in range(60):
        stage.step()
    if stage.speculation is not None:
        assert max(stage.model.sizes[-5:]) > 1, "drafts are run"
    since, before = stage.world.clock.now, len(stage.model.sizes)
    for _ in range(3):
        late = stage.ask(LONG)
        while late not in stage.came:
            stage.step()
    return stage.longest_gap(rows, since), stage.model.sizes[before:]


def limit(step: StepSeconds) -> float:
    """That streams have without drafts: their stall is some steps long, where these are long."""
    return max(2 * (MAX_STALL + step(1)), 1.1 * (STALL_STEPS + 1) * step(1))


@pytest.mark.parametrize("ordinary", [0.002, 0.012, 0.05, 0.1])
@pytest.mark.parametrize("more", [0.01, 0.1, 0.2])
def test_rows_wait_no_longer_than_without_drafts(ordinary: float, more: float) -> None:
    """Each further token of a step costs this share of an ordinary one."""

    def seconds(tokens: int) -> float:
        return ordinary * (1 + more * (tokens - 1))

    plain, _ = wait_while_prompts_join(Stage(seconds, None))
    assert plain <= limit(seconds)
    drafted = Stage(seconds, [Right()])
    longest, sizes = wait_while_prompts_join(drafted)
    assert longest <= limit(seconds)
    assert max(sizes) > 1, "and drafts go on beside the prompt"


@pytest.mark.parametrize("ordinary", [0.005, 0.02, 0.1])
def test_what_a_draft_model_takes_is_part_of_it(ordinary: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its passes take a tenth of a step each, and the prompt runs through it, too."""

    def seconds(tokens: int) -> float:
        return ordinary * (1 + 0.03 * (tokens - 1))

    monkeypatch.setattr(draft_model, "check", lambda model: None)
    monkeypatch.setattr(draft_model, "takes_several", lambda model: 16)
    clock = Clock()
    small = Timed(clock, PREFILL / 3, lambda tokens: ordinary / 10)
    stage = Stage(seconds, [])
    small._clock = stage.world.clock
    assert stage.speculation is not None
    stage.speculation.costly = own = DraftModel(small, 4, stage.model, MAX_STALL, stage.speculation.costs)
    longest, sizes = wait_while_prompts_join(stage)
    unmeasured = 4 * ordinary / 10  # the first drafts for another number of rows
    assert longest <= limit(seconds) + unmeasured
    assert max(sizes) > 1 and small.passes, "drafts go on, and the prompt was run for the drafts that follow"
    own.keep(())


def test_a_step_takes_longer_where_nobody_waits_for_a_prompt() -> None:
    speculation, row = Speculation([Right()], max_stall=MAX_STALL), None
    for tokens in STEP_TOKENS:
        for _ in range(MIN_PLAIN_STEPS + 1):
            speculation.note(1, tokens, 0.1 if tokens == 1 else 0.1 + 0.01 * tokens)
    row = Row(request([5, 6], max_tokens=100), SyncSink(), 0, Recording())
    assert [len(some.tokens) for some in speculation.drafts([row]) or []] == [15]
    assert [len(some.tokens) for some in speculation.drafts([row], beside_prompts=True) or []] == [1]
