"""Prompts go on from what earlier ones left, and say what they would say without."""

from __future__ import annotations

import logging
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.engine import EngineOptions
from localai_shim.engine.kv.row import OneRow
from localai_shim.engine.prefix import cache as prefix_cache
from localai_shim.types import Prompt, SamplingParams
from tests.engine.counting import KINDS, PER_TOKEN, counting, expected, tokens
from tests.engine.harness import GREEDY, Gate, Running, eventually, generate, prefilling, request
from tests.samples import only
from tests.tiny import CONFIGS, WIDE

ON_THE_HOST = SamplingParams(temperature=1.0, top_k=1)
"""As greedy, by the way that draws each token before the next step is launched."""


# -- what is reused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", only(["qwen3_next", *WIDE], [*KINDS, *WIDE]))
def test_a_prompt_that_was_seen_before_is_not_prefilled_again(kind: str) -> None:
    with counting(kind) as c:
        prompt = tokens(90)
        assert c.ask(prompt) == (expected(kind, prompt), 89)
        again = Prompt(prompt)
        assert c.ask(again) == (expected(kind, prompt), 0)
        assert again.cached_tokens == 89
        stats = c.engine.stats()
        assert (stats.cache_hits, stats.cache_misses, stats.cache_tokens) == (1, 1, 89)


@pytest.mark.parametrize("sampling", [GREEDY, ON_THE_HOST], ids=["queued ahead", "drawn on the host"])
@pytest.mark.parametrize("kind", only(["gemma3_text", "qwen3_next", *WIDE], CONFIGS | WIDE))
def test_a_turn_prefills_only_what_is_new_since_the_one_before(kind: str, sampling: SamplingParams) -> None:
    with counting(kind) as c:
        conversation = tokens(40)
        for turn in range(5):
            said, prefilled = c.ask(conversation, 9, sampling)
            assert said == expected(kind, conversation, 9)
            assert turn == 0 or prefilled <= 12 + 1  # the last token of an answer may not have been run
            conversation = [*conversation, *said, *tokens(12, turn + 2)]


@pytest.mark.parametrize("kind", only(["qwen3_next", *WIDE], [*KINDS, *WIDE]))
def test_rows_of_a_batch_leave_what_they_would_leave_alone(kind: str) -> None:
    with counting(kind) as c:
        prompts = [tokens(length, length) for length in (20, 33, 50, 71)]
        running = [Running(c.engine, request(p, max_tokens=5 + 4 * i)) for i, p in enumerate(prompts)]
        for i, (prompt, run) in enumerate(zip(prompts, running, strict=True)):
            assert run.finish() == [expected(kind, prompt, 5 + 4 * i)]
        for i, prompt in enumerate(prompts):
            going_on = [*prompt, *expected(kind, prompt, 5 + 4 * i), *tokens(8, 99)]
            said, prefilled = c.ask(going_on)
            assert (said, prefilled <= 8 + 1) == (expected(kind, going_on), True)


@pytest.mark.parametrize("length", only([16, 33, 64, 100], [16, 17, 31, 32, 33, 63, 64, 100]))
def test_a_dense_row_serves_every_beginning_of_itself(length: int) -> None:
    with counting("qwen3") as c:
        known = tokens(120)
        c.ask(known)
        branch = [*known[:length], *tokens(10, 5)]
        assert c.ask(branch) == (expected("qwen3", branch), 9)


@pytest.mark.parametrize(("known", "length", "reused"), [(30, 20, 20), (32, 31, 31), (33, 20, 0), (60, 40, 0)])
def test_a_sliding_window_can_be_cut_until_it_is_full(known: int, length: int, reused: int) -> None:
    with counting("gemma3_text") as c:
        first = tokens(known + 1)
        c.ask(first, n=1)
        branch = [*first[:length], *tokens(10, 5)]
        assert c.ask(branch) == (expected("gemma3_text", branch), len(branch) - 1 - reused)


@pytest.mark.parametrize("kind", ["gemma3_text", "qwen3_next"])
@pytest.mark.parametrize("chunk", [32, 2048])
def test_rows_that_cannot_be_cut_are_kept_at_the_boundaries_of_their_prompt(kind: str, chunk: int) -> None:
    with counting(kind, EngineOptions(prefill_chunk=chunk)) as c:
        first = Prompt(tokens(150), boundaries=[50, 120])
        assert c.ask(first) == (expected(kind, first.tokens), 149)
        for at in (50, 120):
            branch = [*first.tokens[:at], *tokens(20, at)]
            assert c.ask(branch) == (expected(kind, branch), 19)
        between = [*first.tokens[:80], *tokens(20, 7)]
        assert c.ask(between) == (expected(kind, between), 99 - 50)


def test_snapshots_are_not_taken_side_by_side() -> None:
    with counting("qwen3_next") as c:
        c.ask(Prompt(tokens(100), boundaries=[90]), n=1)
        assert c.ask(tokens(100), n=1)[1] == 9


def test_a_row_that_can_be_cut_is_prefilled_in_one_piece() -> None:
    with counting("qwen3") as c:
        sizes: list[int] = []
        prefill = c.engine.model.prefill
        c.engine.model.prefill = lambda step, **more: (  # type: ignore[method-assign]
            sizes.append(step.tokens.size),
            prefill(step, **more),
        )[1]
        c.ask(Prompt(tokens(100), boundaries=[30, 60]))
        assert sizes == [100]


# -- forks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", only(["qwen3_next"], KINDS))
def test_prompts_that_come_together_prefill_what_they_share_once(kind: str) -> None:
    with counting(kind) as c:
        shared = tokens(200)
        prompts = [[*shared, *tokens(10 + i, i + 3)] for i in range(8)]
        results = Running(c.engine, [request(p, max_tokens=8) for p in prompts]).finish()
        assert results == [expected(kind, p, 8) for p in prompts]
        assert c.prefilled == len(shared) + sum(10 + i - 1 for i in range(8))


@pytest.mark.parametrize("kind", only(["qwen3_next"], KINDS))
def test_forks_of_one_row_do_not_disturb_each_other(kind: str) -> None:
    with counting(kind) as c:
        known = tokens(60)
        said, _ = c.ask(known, 10)
        base = [*known, *said]
        branches = [[*base, *tokens(5, i)] for i in range(4)] * 2
        assert generate(c.engine, *[request(b, max_tokens=20) for b in branches]) == [
            expected(kind, b, 20) for b in branches
        ]
        going_on = [*base, *tokens(30, 77)]
        assert c.ask(going_on)[0] == expected(kind, going_on)


def test_choices_beyond_the_batch_are_prefilled_once() -> None:
    with counting("qwen3", EngineOptions(max_rows=2)) as c:
        one = request(tokens(50), max_tokens=5)
        assert Running(c.engine, [one] * 5).finish() == [expected("qwen3", tokens(50), 5)] * 5
        assert (c.prefilled, one.prompt.cached_tokens) == (49, 0)


# -- what is not reused ----------------------------------------------------------------------------------------------


def test_salts_separate() -> None:
    with counting("qwen3") as c:
        prompt = tokens(50)
        assert [c.ask(Prompt(prompt, salt=salt))[1] for salt in ("a", "b", None, "a", "b", None)] == [49] * 3 + [0] * 3


def test_a_few_tokens_in_common_are_not_worth_it() -> None:
    with counting("qwen3") as c:
        c.ask(tokens(50))
        short = Prompt([*tokens(50)[:15], *tokens(50, 4)])
        assert c.ask(short)[1] == 64 and short.cached_tokens == 0


def test_a_row_that_is_cancelled_while_its_prompt_is_prefilled_leaves_nothing() -> None:
    with counting("qwen3", EngineOptions(prefill_chunk=16, max_stall=1e-4)) as c:
        neighbour = Running(c.engine, request(tokens(5), max_tokens=900))
        neighbour.read(2)
        before, before_prefill = c.engine.stats().cache_bytes, c.prefilled
        gate = Gate(lambda: c.prefilled > before_prefill + 40)
        with prefilling(c.engine, gate):
            cancelled = Running(c.engine, request(tokens(800), max_tokens=5))
            gate.wait()
            cancelled.cancel()
            gate.open()
        assert eventually(lambda: c.engine.stats().waiting == 0)
        assert c.engine.stats().cache_bytes == before and not cancelled.sink._queue.qsize()
        neighbour.cancel()
        assert c.ask(tokens(800), 1)[1] == 799


def test_a_row_that_fails_leaves_its_prompt_only() -> None:
    class Throws:
        def feed(self, token_id: int) -> bool:
            raise ValueError("no")

    with counting("qwen3") as c:
        prompt = tokens(40)
        with pytest.raises(Exception, match="stop check"):
            Running(c.engine, request(prompt, stop=Throws())).finish()
        going_on = [*prompt, *expected("qwen3", prompt, 1), 9]
        assert c.ask(going_on) == (expected("qwen3", going_on), 1)


def test_a_budget_of_nothing_turns_it_off() -> None:
    with counting("qwen3", EngineOptions(prefix_cache_bytes=0)) as c:
        prompts = [Prompt(tokens(50)) for _ in range(2)]
        assert [c.ask(p)[1] for p in prompts] == [49, 49]
        assert [p.cached_tokens for p in prompts] == [None, None]
        assert c.engine.stats().cache_bytes == 0


# -- memory ----------------------------------------------------------------------------------------------------------


def test_the_bytes_are_those_of_the_tokens() -> None:
    with counting("qwen3") as c:
        shared = tokens(100)
        c.ask([*shared, *tokens(11, 2)], n=1)
        c.ask([*shared, *tokens(21, 3)], n=1)
        assert eventually(lambda: c.engine.stats().cache_bytes == (100 + 11 + 21) * PER_TOKEN)


@pytest.mark.parametrize("kind", only(["qwen3_next"], KINDS))
def test_what_is_kept_holds_no_more_memory_than_is_counted(kind: str) -> None:
    with counting(kind) as c:
        c.ask(tokens(10), n=1)
        before = mx.get_active_memory(), c.engine.stats().cache_bytes
        shared = tokens(500)
        Running(c.engine, [request([*shared, *tokens(100, i)], max_tokens=20 + i) for i in range(6)]).finish()
        c.ask([*shared[:300], *tokens(50, 9)])
        assert eventually(lambda: c.engine.stats().running == 0)
        counted = c.engine.stats().cache_bytes - before[1]
        assert counted > 500 * PER_TOKEN // 2
        # A step that was launched ahead may hold the batch's buffers a little longer; views would hold them for ever.
        assert eventually(lambda: mx.get_active_memory() - before[0] <= 1.25 * counted)


@pytest.mark.parametrize("kind", only(["qwen3_next"], KINDS))
def test_a_small_budget_is_kept_and_nothing_else_suffers(kind: str) -> None:
    budget = 250 * PER_TOKEN
    with counting(kind, EngineOptions(prefix_cache_bytes=budget)) as c:
        prompts = [tokens(60 + 5 * i, i + 1) for i in range(8)]
        for prompt in [*prompts, *prompts[::-1], [*prompts[0], *tokens(30, 3)]]:
            assert c.ask(prompt)[0] == expected(kind, prompt)
            assert c.engine.stats().cache_bytes <= budget
        assert c.engine.stats().cache_hits >= 2


def test_what_was_not_used_for_the_longest_time_goes_first() -> None:
    with counting("qwen3", EngineOptions(prefix_cache_bytes=200 * PER_TOKEN)) as c:
        first, second, third = (tokens(81, i) for i in (1, 2, 3))
        for prompt in (first, second, first, third):
            c.ask(prompt, n=1)
        assert [c.ask(prompt, n=1)[1] for prompt in (first, third, second)] == [0, 0, 80]


def test_a_row_larger_than_the_budget_pushes_nothing_out() -> None:
    with counting("qwen3", EngineOptions(prefix_cache_bytes=100 * PER_TOKEN)) as c:
        c.ask(tokens(50), n=1)
        c.ask(tokens(300, 2), n=1)
        assert c.ask(tokens(50), n=1)[1] == 0


# -- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["take_segment", "build_row", "take_snapshot"])
@pytest.mark.parametrize("kind", only(["qwen3_next"], KINDS))
def test_a_prefix_cache_that_fails_ends_nobody(
    kind: str, what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with counting(kind) as c, caplog.at_level(logging.WARNING, "localai_shim"):
        c.ask(tokens(50))

        def fails(*args: Any) -> Any:
            raise MemoryError("no room")

        monkeypatch.setattr(prefix_cache, what, fails)
        going_on = [*tokens(50), *expected(kind, tokens(50)), *tokens(30, 2)]
        results = generate(c.engine, *[request(p, max_tokens=8) for p in (going_on, tokens(70, 4), going_on)])
        assert results == [expected(kind, p, 8) for p in (going_on, tokens(70, 4), going_on)]
        told = [record for record in caplog.records if "prefix cache" in record.message]
        assert len(told) == (0 if what == "take_snapshot" and kind == "qwen3" else 1), "it is said once"
        monkeypatch.undo()
        assert c.ask(tokens(60, 9))[0] == expected(kind, tokens(60, 9))
        assert c.ask(tokens(60, 9)) == (expected(kind, tokens(60, 9)), 0), "and it goes on afterwards"


def test_a_row_whose_cache_cannot_be_handed_over_ends_as_it_should(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counting("qwen3") as c:

        def fails(cache: Any, slot: int, start: int = 0) -> Any:
            raise RuntimeError("no such row")

        monkeypatch.setattr(OneRow, "read", fails)
        assert c.ask(tokens(40))[0] == expected("qwen3", tokens(40))
        assert "the prefix cache failed" in caplog.text
