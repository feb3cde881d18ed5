"""Chunks of prompts next to running rows on machines of several speeds, by a clock that the test moves."""

from __future__ import annotations

from itertools import pairwise

import mlx.core as mx
import pytest

from localai_shim.engine.costs.chunks import MIN_CHUNK_TOKENS, MIN_GPU_CHUNK_TOKENS, STALL_STEPS, ChunkLimit, Scores
from localai_shim.engine.costs.cost_model import MIN_STEPS, CostModel
from localai_shim.engine.ports import PassOutput, StepInput
from localai_shim.engine.row import Row
from localai_shim.types import Event
from tests.engine.recording import Clock, Recording, World, running

MAX_STALL = 0.05


class Machine(Recording):
    """Whose passes read the weights, which takes `step` seconds, and then take `per_token` more for each token."""

    def __init__(self, clock: Clock, step: float, per_token: float) -> None:
        super().__init__(clock, per_token)
        self._step, self._moved = step, clock

    def prefill(self, step: StepInput, *, wait: bool = True) -> PassOutput[mx.array | None]:
        self._moved.now += self._step
        return super().prefill(step, wait=wait)

    def forward(self, step: StepInput) -> PassOutput[mx.array]:
        self._moved.now += self._step
        return super().forward(step)


class Chunked(World):
    """One row decodes, and knows when its tokens came."""

    def __init__(self, step: float, per_token: float, least: int) -> None:
        self.came: list[float] = []
        super().__init__(max_stall=MAX_STALL, prefix_cache=0)
        machine = Machine(self.clock, step, per_token)
        self.model = self.batch._model = self.rows.prefiller.model = machine
        self.chunks.least = least
        [self.row] = running(self)
        self.came.append(self.clock.now)

    def _emit(self, row: Row, event: Event) -> None:
        super()._emit(row, event)
        if row is getattr(self, "row", None):
            self.came.append(self.clock.now)

    def read(self, tokens: int) -> tuple[float, float]:
        """Run a prompt: seconds until its first token, and the longest time between two tokens of the other row."""
        start, before = self.clock.now, len(self.came)
        [row] = self.ask([60] * tokens)
        while not self.is_done(row):
            self.step()
        return self.clock.now - start, max(b - a for a, b in pairwise(self.came[before - 1 :]))

    def sizes(self) -> list[int]:
        return [len(row) for rows in self.model.passes for row in rows]


# An 8B model in 4 bits: seconds of a decode step, by the memory's bandwidth, and of each token of a prompt.
M1, M4, M3_MAX = (0.075, 5.37e-3), (0.041, 3.57e-3), (0.0125, 1.37e-3)


@pytest.mark.parametrize(
    ("chip", "seconds", "gap"), [(M1, 15.8, 0.5), (M4, 9.9, 0.32), (M3_MAX, 3.6, 0.115)], ids=["M1", "M4", "M3 Max"]
)
def test_a_chunk_does_not_mostly_read_the_weights_once_more(
    chip: tuple[float, float], seconds: float, gap: float
) -> None:
    """With chunks of 16 tokens, as 50 ms allow, it took 30.2, 17.2 and 4.7 s."""
    w = Chunked(*chip, MIN_GPU_CHUNK_TOKENS)
    for _ in range(3):
        took, longest = w.read(2048)
        assert took == pytest.approx(seconds, rel=0.03)
        assert longest <= gap
    assert {*w.sizes()[1:]} == {64, 2047 % 64}, "multiples of 32, to the end"


@pytest.mark.parametrize("step", [0.02, 0.1, 0.3])
def test_a_stall_is_some_steps_long_where_these_are_long(step: float) -> None:
    w = Chunked(step, step / 200, MIN_CHUNK_TOKENS)
    w.read(2048)
    _, longest = w.read(2048)
    stall = max(MAX_STALL, STALL_STEPS * step)
    assert 0.7 * stall <= longest - step <= 1.25 * stall


def test_short_steps_leave_the_stall_as_it_was_asked_for() -> None:
    w = Chunked(0.004, 1e-4, MIN_GPU_CHUNK_TOKENS)
    w.read(2048)
    _, longest = w.read(4096)
    assert 0.7 * MAX_STALL <= longest <= 1.2 * MAX_STALL


def test_a_slow_step_among_others_does_not_stretch_the_stall() -> None:
    costs = CostModel(Clock())
    pace = costs.pace("prompts", MAX_STALL)
    costs.note_step(20.0)
    assert pace.stall == MAX_STALL
    for seconds in [0.1] * MIN_STEPS:
        costs.note_step(seconds)
    costs.note_step(20.0)
    assert pace.stall == pytest.approx(STALL_STEPS * 0.1)
    assert costs.pace("draft model", MAX_STALL).stall == MAX_STALL, "comes with the step, not beside it"


def test_a_step_that_nobody_waited_for_is_not_measured() -> None:
    clock = Clock()
    costs = CostModel(clock)
    for _ in range(MIN_STEPS):
        costs.begin_step()
        costs.forget_step()
        clock.now += 9
        costs.end_step()
    assert costs.pace("prompts", MAX_STALL).stall == MAX_STALL


def test_chunks_shrink_as_the_context_grows_and_all_of_the_prompt_runs() -> None:
    w = World(prefix_cache=0)
    w.chunks = ChunkLimit(512, scores=[Scores(lambda: 2**18, 1)])
    w.prepare(chunks=w.chunks)
    [row] = w.ask([60] * 3000)
    w.run()
    lengths = [len(row) for rows in w.model.passes for row in rows]
    assert w.is_done(row) and sum(lengths) == 2999
    done = 0
    for length in lengths[:-1]:
        assert length == w.chunks.tokens(done) and length * (done + length) <= 2**18
        done += length
    assert lengths[0] == 512 and lengths[-2] < 128
