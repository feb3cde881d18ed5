"""Scoring prompts: the logprobs of their own tokens, from all logits, a bounded portion of them at a time."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.costs.cost_model import CostModel, Meter
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.ports import PassOutput, StepInput
from localai_shim.engine.prompts import prefill
from localai_shim.engine.prompts.scores import Scoring
from localai_shim.engine.row import Row
from localai_shim.engine.setup import Setup
from localai_shim.engine.sinks import SyncSink
from localai_shim.engine.work.lane import Parts
from localai_shim.engine.work.rows import Rows
from localai_shim.engine.work.runner import RowRunner
from localai_shim.engine.work.scheduler import Scheduler
from localai_shim.models.text import TextModel
from localai_shim.types import Failure, GenerationRequest, Prompt, SamplingParams, Token, TokenScore
from tests.conftest import Oracle
from tests.engine.harness import GREEDY, Running, decode, engine_for, request
from tests.engine.recording import Alone, Clock, Recording, play_prompts
from tests.samples import only
from tests.tiny import VOCABULARY, tiny


def prompt_of(seed: int, length: int, top: int | None = 2, **more: Any) -> Prompt:
    rng = np.random.default_rng(seed)
    return Prompt(rng.integers(3, 390, length).tolist(), top_logprobs=top, **more)


def check(prompt: Prompt, oracle: Oracle) -> None:
    """The scores are those of direct passes."""
    assert prompt.scores is not None and len(prompt.scores) == len(prompt.tokens) - 1
    for i in range(0, len(prompt.scores), 7):
        expected, token, score = oracle.logprobs(prompt.tokens[: i + 1]), prompt.tokens[i + 1], prompt.scores[i]
        assert score.logprob == pytest.approx(expected[token], abs=1e-4)
        assert score.rank == 1 + (expected > expected[token]).sum()
        assert [value for _, value in score.top] == pytest.approx(np.sort(expected)[::-1][: len(score.top)], abs=1e-4)
        assert len(score.top) == prompt.top_logprobs


@pytest.mark.parametrize("kind", only(["gemma3_text"], ["qwen3", "gemma3_text", "qwen3_next"]))
def test_scores_are_those_of_direct_passes_alone_and_together_beside_undisturbed_rows(kind: str) -> None:
    oracle, engine = Oracle(tiny(kind)), engine_for(kind)
    try:
        beside = Running(engine, request([7, 8, 9, 10], max_tokens=60, ignore_eos=True))
        beside.read(3)
        prompts = [prompt_of(n, n) for n in (1, 2, 9, 11, 12, 100, 200)]
        running = [Running(engine, GenerationRequest(prompt, GREEDY, 4)) for prompt in prompts]
        said = [one.finish()[0] for one in running]
        [undisturbed] = beside.finish()
    finally:
        engine.close()
    for prompt, tokens in zip(prompts, said, strict=True):
        check(prompt, oracle)
        assert tokens == oracle.greedy(prompt.tokens, 4) and prompt.cached_tokens == 0
    ids = [7, 8, 9, 10]
    for token in undisturbed[:12]:
        assert token == int(np.argmax(oracle.logits(ids)))
        ids.append(token)


@pytest.fixture(scope="module")
def engine() -> Any:
    with_cache = engine_for("qwen3")
    yield with_cache
    with_cache.close()


def test_what_the_prefix_cache_has_of_a_scored_prompt_is_run_again(engine: Engine[TextModel], oracle: Oracle) -> None:
    tokens = prompt_of(1, 150).tokens
    Running(engine, request(tokens, max_tokens=2)).finish()
    plain, scored = Prompt(tokens), Prompt(tokens, top_logprobs=1)
    for prompt in (plain, scored):
        Running(engine, GenerationRequest(prompt, GREEDY, 2)).finish()
    assert plain.cached_tokens and plain.scores is None and scored.cached_tokens == 0
    check(scored, oracle)


def test_what_a_scored_prompt_leaves_is_there_for_others(engine: Engine[TextModel]) -> None:
    tokens = prompt_of(2, 150).tokens
    Running(engine, GenerationRequest(Prompt(tokens, top_logprobs=0), GREEDY, 2)).finish()
    after = Prompt([*tokens, 5])
    Running(engine, GenerationRequest(after, GREEDY, 2)).finish()
    assert after.cached_tokens is not None and after.cached_tokens >= 149


def test_choices_of_one_prompt_score_it_once_however_many_run(oracle: Oracle) -> None:
    prompt = prompt_of(3, 120)
    few = engine_for("qwen3", EngineOptions(max_rows=2))
    try:
        before = few.stats().prefilled_tokens
        Running(few, [GenerationRequest(prompt, GREEDY, 3)] * 5).finish()
        ran = few.stats().prefilled_tokens - before
    finally:
        few.close()
    check(prompt, oracle)
    assert ran < 2 * 119


@pytest.mark.parametrize("most", [4 * VOCABULARY, 50 * VOCABULARY])
def test_no_more_logits_are_held_than_a_portion(
    engine: Engine[TextModel], oracle: Oracle, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    sizes: list[int] = []
    made = Scoring.__init__

    def noting(self: Scoring, logits: Any, *args: Any, **more: Any) -> None:
        sizes.append(logits.shape[0] * logits.shape[1])
        made(self, logits, *args, **more)

    monkeypatch.setattr(prefill, "MAX_LOGITS", most)
    monkeypatch.setattr(Scoring, "__init__", noting)
    first = prompt_of(4, 20)
    Running(engine, GenerationRequest(first, GREEDY, 1)).finish()  # the portion is known from the first one on
    sizes.clear()
    prompts = [prompt_of(n, n) for n in (40, 41, 42, 160)]
    for one in [Running(engine, GenerationRequest(prompt, GREEDY, 1)) for prompt in prompts]:
        one.finish()
    assert max(sizes) * VOCABULARY <= most and sum(sizes) >= 279
    for prompt in prompts:
        check(prompt, oracle)


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("top", [0, 3])
def test_host_and_device_read_the_same_of_padded_rows(on_device: bool, top: int) -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((2, 4, 50)).astype(np.float32)
    following = [[3, 4, 5, 6, 7], [8, 9]]
    found = Scoring(mx.array(logits), following, top, on_device=on_device).read()
    assert [len(row) for row in found] == [4, 2]
    for row, (values, targets) in enumerate(zip(found, following, strict=True)):
        for i, score in enumerate(values):
            line = logits[row, i].astype(np.float64)
            line -= np.log(np.exp(line).sum())
            assert score.logprob == pytest.approx(line[targets[i]], abs=1e-5)
            assert score.rank == 1 + (line > line[targets[i]]).sum()
            assert [token for token, _ in score.top] == np.argsort(-line)[:top].tolist()


class Scored(Recording):
    """As `Recording`, with logits that say the token that came in; a token of scores takes ten times as long."""

    def forward(self, step: StepInput) -> PassOutput[mx.array]:
        if step.tokens.shape[1] == 1:
            return super().forward(step)
        assert self._clock is not None
        self.prefill(step)
        self._clock.now += 9 * self._seconds * step.tokens.size
        return PassOutput(mx.zeros((*step.tokens.shape, 16)))


class Stage:
    """Prompts and a batch on the test's own thread and clock."""

    def __init__(self, max_stall: float) -> None:
        self.clock, self.events = Clock(), list[tuple[Row, Any]]()
        self.model = Scored(self.clock, 0.001)
        costs = CostModel(self.clock)
        setup, meter = Setup(None, costs=costs, max_rows=8, max_stall=max_stall), Meter()
        parts = Parts(self.model, setup, meter, Alone(self, setup.costs, meter), self._emit)
        self.rows = Rows(parts)
        self.scheduler, self.runner = Scheduler(self.rows, (), parts), RowRunner(self.rows, parts)
        self.batch = self.rows.batch

    def _emit(self, row: Row, event: Any) -> None:
        self.events.append((row, event))

    def add(self, prompt: Prompt, max_tokens: int) -> Row:
        sampling = SamplingParams(temperature=0.0)
        row = Row(GenerationRequest(prompt, sampling, max_tokens), SyncSink(), 0, self.model)
        self.rows.add([row])
        return row

    def prefill(self) -> None:
        """Run prompts for as long as rows may wait."""
        play_prompts(self.scheduler, self.runner)

    def step(self) -> float:
        """Seconds that running rows waited for prompts."""
        decode(self.batch)
        start = self.clock.now
        self.prefill()
        return self.clock.now - start


def test_running_rows_wait_for_scores_no_longer_than_for_other_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(max_stall=1.0)
    stage.add(Prompt([1, 2, 3]), 10_000)
    stage.prefill()
    prompt = Prompt([i % 16 for i in range(900)], top_logprobs=0)
    stage.add(prompt, 1)
    stalls = []
    while prompt.scores is None:
        stalls.append(stage.step())
    assert len(prompt.scores) == 899
    assert len(stalls) > 5 and max(stalls[2:]) <= 1.2, "a second each, once the pace is known"


def test_a_prompt_whose_scores_fail_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(max_stall=1.0)
    bad = stage.add(Prompt([5, 6, 7], top_logprobs=0), 2)
    good, plain = Prompt([1, 2, 3], top_logprobs=0), Prompt([2, 3, 4])
    rows = [stage.add(good, 2), stage.add(plain, 2)]

    def fail(passed: list[list[int]]) -> None:
        if any(5 in tokens for tokens in passed):
            raise RuntimeError("no memory")

    stage.model.before = fail
    for _ in range(6):
        stage.prefill()
        if len(stage.batch):
            decode(stage.batch)
    ended = dict(stage.events)
    assert isinstance(ended[bad], Failure) and all(isinstance(ended[row], Token) for row in rows)
    assert good.scores is not None and [type(score) for score in good.scores] == [TokenScore] * 2
