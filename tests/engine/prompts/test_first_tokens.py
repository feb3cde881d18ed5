"""Where no row decodes, the pass that ends a prompt gives its first token: no step runs its last token once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.ports import PassOutput, StepInput
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel
from localai_shim.types import Event, Failure, GenerationRequest, Prompt, RowError, SamplingParams, Token
from tests.engine.constraints import Only
from tests.engine.counting import KINDS, expected, tokens
from tests.engine.harness import Running, generate, request, tokens_of
from tests.engine.recording import MakeWorld, play_prompts
from tests.tiny import tiny

LENGTHS = (2, 3, 17, 40, 70)


class Passes:
    """What a model was asked to run, in order: ("prompt", rows, tokens of each) and ("step", rows, 1)."""

    def __init__(self, model: Any) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self._prefill, self._forward = model.prefill, model.forward
        model.prefill, model.forward = self.prefill, self.forward

    def prefill(self, step: StepInput, *, wait: bool = True) -> PassOutput[mx.array | None]:
        self.calls.append(("prompt", *step.tokens.shape))
        return self._prefill(step, wait=wait)  # type: ignore[no-any-return]

    def forward(self, step: StepInput) -> PassOutput[mx.array]:
        self.calls.append(("step", *step.tokens.shape))
        return self._forward(step)  # type: ignore[no-any-return]


@contextmanager
def engine_of(kind: str, *, ends: bool = True, **options: Any) -> Iterator[Engine[TextModel]]:
    """An engine; `ends=False`: its model gives no logits of prompts, as if that had been found wrong."""

    def load() -> TextModel:
        model = load_model(str(tiny(kind)), LoadOptions())
        if not ends:
            model.end_tokens = 0
            model.fingerprint += "-whole"  # what is known of it is another's
        return model

    with closing(Engine(load, EngineOptions(**options))) as engine:
        yield engine


@contextmanager
def counted(kind: str, **options: Any) -> Iterator[tuple[Engine[TextModel], list[tuple[str, int, int]]]]:
    with engine_of(kind, speculation="off", **options) as engine:
        yield engine, Passes(engine.model).calls


# -- how many passes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_of_one_token_takes_one_pass(kind: str) -> None:
    with counted(kind, prefix_cache_bytes=0) as (engine, calls):
        for length in LENGTHS:
            assert generate(engine, request(tokens(length), max_tokens=1)) == [expected(kind, tokens(length), 1)]
        assert calls == [("prompt", 1, length) for length in LENGTHS]


def test_each_token_after_the_first_takes_a_step() -> None:
    with counted("qwen3") as (engine, calls):
        assert generate(engine, request(tokens(40), max_tokens=5)) == [expected("qwen3", tokens(40), 5)]
        assert calls == [("prompt", 1, 40), *[("step", 1, 1)] * 4]


def test_the_last_piece_of_a_long_prompt_has_its_last_token() -> None:
    with counted("qwen3", prefill_chunk=64) as (engine, calls):
        assert generate(engine, request(tokens(150), max_tokens=1)) == [expected("qwen3", tokens(150), 1)]
        assert calls == [("prompt", 1, 64), ("prompt", 1, 64), ("prompt", 1, 22)]


def test_a_pass_has_no_more_tokens_than_it_may() -> None:
    with counted("qwen3", prefill_chunk=64) as (engine, calls):
        assert generate(engine, request(tokens(129), max_tokens=1)) == [expected("qwen3", tokens(129), 1)]
        assert calls == [("prompt", 1, 64), ("prompt", 1, 64), ("step", 1, 1)]


def test_what_follows_a_cached_prefix_takes_one_pass() -> None:
    with counted("qwen3") as (engine, calls):
        [said] = generate(engine, request(tokens(40), max_tokens=3))
        turn = [*tokens(40), *said, *tokens(20, 2)]
        calls.clear()
        assert generate(engine, request(turn, max_tokens=1)) == [expected("qwen3", turn, 1)]
        assert calls == [("prompt", 1, 21)], "the answer's last token was not run"


def test_a_prompt_that_the_prefix_cache_has_takes_a_step_for_its_last_token() -> None:
    with counted("qwen3") as (engine, calls):
        generate(engine, request(tokens(40), max_tokens=1))
        calls.clear()
        assert generate(engine, request(tokens(40), max_tokens=1)) == [expected("qwen3", tokens(40), 1)]
        assert calls == [("step", 1, 1)]


def test_short_prompts_that_come_together_share_the_pass_that_gives_their_first_tokens() -> None:
    prompts = [tokens(length, 3 + i) for i, length in enumerate((20, 24, 31, 33))]
    with counted("qwen3") as (engine, calls):
        together = Running(engine, [request(prompt, max_tokens=4) for prompt in prompts])
        assert together.finish() == [expected("qwen3", prompt, 4) for prompt in prompts]
        assert calls == [("prompt", 4, 33), *[("step", 4, 1)] * 3]


def test_beside_running_rows_a_prompt_joins_with_its_last_token() -> None:
    with counted("qwen3", max_stall=60.0) as (engine, calls):
        busy = Running(engine, request(tokens(30), max_tokens=500))
        busy.read(3)
        calls.clear()
        assert generate(engine, request(tokens(40, 2), max_tokens=3)) == [expected("qwen3", tokens(40, 2), 3)]
        assert ("prompt", 1, 39) in calls and ("prompt", 1, 40) not in calls
        busy.cancel()


def test_a_model_that_gives_other_logits_so_runs_the_last_token_by_itself() -> None:
    with engine_of("qwen3", ends=False) as engine:
        calls = Passes(engine.model).calls
        assert generate(engine, request(tokens(40), max_tokens=1)) == [expected("qwen3", tokens(40), 1)]
        assert calls == [("prompt", 1, 39), ("step", 1, 1)]


# -- what cannot be cut back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "length"), [("qwen3_next", 40), ("gemma3_text", 100)])
def test_a_snapshot_is_of_all_but_the_last_token_so_that_the_same_prompt_finds_it(kind: str, length: int) -> None:
    with counted(kind) as (engine, calls):
        for passes in ([("prompt", 1, length - 1), ("step", 1, 1)], [("step", 1, 1)]):
            assert generate(engine, request(tokens(length), max_tokens=1)) == [expected(kind, tokens(length), 1)]
            assert calls == passes
            calls.clear()


@pytest.mark.parametrize("kind", ["qwen3_next", "gemma3_text"])
def test_from_a_snapshot_near_the_end_one_pass_runs_the_rest(kind: str) -> None:
    with counted(kind) as (engine, calls):
        for passes in ([("prompt", 1, 96), ("prompt", 1, 4)], [("prompt", 1, 4)]):
            made = GenerationRequest(Prompt(tokens(100), boundaries=[96]), SamplingParams(temperature=0.0), 1)
            assert generate(engine, made) == [expected(kind, tokens(100), 1)]
            assert calls == passes
            calls.clear()


# -- what is sampled --------------------------------------------------------------------------------------------------

SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0),
    "sampled": SamplingParams(temperature=1.3, seed=5),
    "filtered": SamplingParams(temperature=0.9, top_p=0.7, top_k=30, seed=6),
    "logprobs": SamplingParams(temperature=0.8, seed=7, top_logprobs=3),
    "penalties": SamplingParams(temperature=0.0, repetition_penalty=1.4, presence_penalty=0.5, frequency_penalty=0.3),
    "bias": SamplingParams(temperature=0.0, logit_bias={9: 30.0}),
    "bans": SamplingParams(temperature=0.0, allowed_token_ids=tuple(range(20, 60))),
}


def details(events: Sequence[Event]) -> list[tuple[int, float | None, list[tuple[int, float]]]]:
    return [(event.id, event.logprob, list(event.top)) for event in events if isinstance(event, Token)]


def all_details(ends: bool, make: Callable[[SamplingParams], list[GenerationRequest]]) -> list[Any]:
    with engine_of("qwen3", ends=ends, prefix_cache_bytes=0) as engine:
        out = []
        for sampling in SAMPLINGS.values():
            running = Running(engine, make(sampling))
            running.finish()
            out.append([details(events) for events in running.events])
        return out


@pytest.mark.parametrize("n", [1, 3])
def test_everything_is_sampled_as_from_a_step_of_the_last_token(n: int) -> None:
    def make(sampling: SamplingParams) -> list[GenerationRequest]:
        prompt = Prompt(tokens(30))
        return [GenerationRequest(prompt, sampling, 6, min_tokens=2) for _ in range(n)]

    for now, before in zip(all_details(True, make), all_details(False, make), strict=True):
        for row, other in zip(now, before, strict=True):
            assert [token for token, *_ in row] == [token for token, *_ in other]
            for (_, logprob, top), (_, its, its_top) in zip(row, other, strict=True):
                assert logprob == pytest.approx(its, abs=1e-4)
                assert [token for token, _ in top] == [token for token, _ in its_top]


def test_choices_share_the_pass_and_each_has_its_own_seed() -> None:
    prompt = Prompt(tokens(30))
    seeded = [GenerationRequest(prompt, SamplingParams(temperature=1.5, seed=seed), 4) for seed in (1, 2, 3)]
    with counted("qwen3", prefix_cache_bytes=0) as (engine, calls):
        together = Running(engine, seeded).finish()
        assert calls == [("prompt", 1, 30), *[("step", 3, 1)] * 3]
        alone = generate(engine, *(GenerationRequest(Prompt(tokens(30)), one.sampling, 4) for one in seeded))
    assert together == alone and len({tuple(row) for row in together}) > 1


def test_a_seed_gives_the_same_alone_and_in_company() -> None:
    one = request(tokens(30), SamplingParams(temperature=1.5, seed=11), max_tokens=8)
    with engine_of("qwen3") as engine:
        alone = generate(engine, one)
        busy = Running(engine, request(tokens(20, 2), max_tokens=400))
        busy.read(2)
        assert generate(engine, request(tokens(30), one.sampling, max_tokens=8)) == alone
        busy.cancel()


def test_the_first_token_follows_a_grammar() -> None:
    constraint = Only([50, 51])
    with counted("qwen3") as (engine, calls):
        [said] = generate(engine, request(tokens(30), max_tokens=3, constraint=constraint))
        assert len(said) == 3 and set(said) <= {50, 51} and constraint.taken == said
        assert constraint.asked == 3 and calls[0] == ("prompt", 1, 30)


# -- what happens between the pass and the first token ----------------------------------------------------------------


def test_a_row_that_joins_meanwhile_with_its_last_token_is_a_step_behind(world: MakeWorld) -> None:
    w = world(ends_prompts=True)
    w.ask([30] * 40)  # the prefix cache has this one, so that no pass gives its logits
    w.run()
    steps = len(w.model.steps)
    [first], [second] = w.ask([7] * 40, max_tokens=3), w.ask([30] * 40, max_tokens=3)
    play_prompts(w.scheduler, w.runner)
    assert (w.served(first), w.served(second)) == (1, 0)
    w.run()
    assert (w.served(first), w.served(second)) == (3, 3)
    assert [step.tokens.shape for step in w.model.steps[steps:][:3]] == [(1, 40), (2, 1), (2, 1)]


def test_a_row_that_is_cancelled_meanwhile_gets_nothing(world: MakeWorld) -> None:
    w = world(ends_prompts=True)
    rows = w.ask([7] * 40, max_tokens=3, n=3)
    play_prompts(w.scheduler, w.runner)
    w.cancel(rows[1])
    w.run()
    assert [w.served(row) for row in rows] == [3, 0, 3]
    [last] = w.ask([8] * 40, max_tokens=3)
    play_prompts(w.scheduler, w.runner)
    w.cancel(last)
    assert not len(w.batch) and not w.served(last)
    [after] = w.ask([9] * 40, max_tokens=2)
    w.run()
    assert w.served(after) == 2


def test_a_row_that_is_preempted_meanwhile_goes_on_later(world: MakeWorld) -> None:
    w = world(ends_prompts=True, max_rows=1)
    [row] = w.ask([7] * 40, max_tokens=4)
    play_prompts(w.scheduler, w.runner)
    [urgent] = w.ask([8] * 20, max_tokens=2, priority=-1)
    w.run()
    assert (w.served(urgent), w.served(row)) == (2, 4)


def test_what_it_holds_is_cached_once_its_first_token_is_out(world: MakeWorld) -> None:
    w = world(ends_prompts=True)
    w.ask([7] * 40)
    w.run()
    assert w.prefixes is not None and w.prefixes.match_prefix(None, [7] * 60) == 40


@pytest.mark.parametrize("lazily", [False, True])
def test_a_pass_that_fails_fails_its_rows_and_the_next_request_is_served(lazily: bool) -> None:
    with engine_of("qwen3", prefix_cache_bytes=0) as engine:
        prefill = engine.model.prefill

        def failing(step: StepInput, *, wait: bool = True) -> mx.array | None:
            logits = prefill(step, wait=wait)
            if 13 not in step.tokens.tolist()[0]:
                return logits
            if not lazily:
                raise RuntimeError("device lost")
            assert logits is not None
            return logits[:, :, None, None]  # a shape that only the sampler trips over

        engine.model.prefill = failing  # type: ignore[method-assign]
        running = Running(engine, [request([13, *tokens(20)], max_tokens=3)] * 2)
        for index in (0, 1):
            with pytest.raises(RowError):
                Running(engine, request([13, *tokens(20, index)], max_tokens=3)).finish()
        with pytest.raises(RowError):
            running.finish()
        assert generate(engine, request(tokens(30), max_tokens=3)) == [expected("qwen3", tokens(30), 3)]


def test_a_prompt_that_fails_beside_another_fails_alone() -> None:
    with engine_of("qwen3", max_rows=2) as engine:
        prefill = engine.model.prefill

        def failing(step: StepInput, *, wait: bool = True) -> mx.array | None:
            if any(13 in row for row in step.tokens.tolist()):
                raise RuntimeError("bad prompt")
            return prefill(step, wait=wait)

        engine.model.prefill = failing  # type: ignore[method-assign]
        running = Running(engine, [request(prompt, max_tokens=3) for prompt in ([13] * 20, tokens(20, 2))])
        while not running.events[0] or len(running.events[1]) < 3:
            running.read(1)
        assert isinstance(running.events[0][0], Failure)
        assert tokens_of(running.events[1]) == expected("qwen3", tokens(20, 2), 3)
