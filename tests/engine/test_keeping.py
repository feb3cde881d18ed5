"""When the prefix cache gets what rows hold: nobody's tokens wait for that, and nothing is lost meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from localai_shim.engine.prefix.cache import PrefixCache
from localai_shim.types import Failure, SamplingParams
from tests.engine.harness import GREEDY, Running, engine_for, request
from tests.engine.recording import MakeWorld, World

SAMPLED = SamplingParams(temperature=1.0, seed=3)
PROMPT = list(range(1, 101))


def begun(world: MakeWorld, *, n: int = 1, max_tokens: int = 50) -> tuple[World, list[Any]]:
    """A prompt that has been prefilled and has joined the batch; its first step has not been launched."""
    w = world()
    rows = w.ask(PROMPT, max_tokens, n=n)
    w.step()
    assert len(w.batch) == n and w.prefixes is not None
    return w, rows


def known(w: World) -> int:
    assert w.prefixes is not None
    return w.prefixes.match_prefix(None, PROMPT)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_first_and_last_tokens_are_there_before_the_row_is_kept(
    sampling: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived: dict[int, threading.Event] = {1: threading.Event(), 6: threading.Event()}
    in_time: list[tuple[int, bool]] = []
    insert = PrefixCache.insert

    def late(cache: PrefixCache, salt: str | None, tokens: Any, read: Any) -> None:
        number = 1 if len(tokens) == 20 else 6
        in_time.append((len(tokens), arrived[number].wait(20)))
        insert(cache, salt, tokens, read)

    monkeypatch.setattr(PrefixCache, "insert", late)
    engine = engine_for("qwen3")
    try:
        row = Running(engine, request(range(5, 25), sampling, max_tokens=6, ignore_eos=True))
        row.read(1)
        arrived[1].set()
        row.finish()
        arrived[6].set()
        Running(engine, request([1, 2, 3], max_tokens=1)).finish()
        assert in_time[:2] == [(20, True), (25, True)]
    finally:
        engine.close()


def test_a_prompt_is_kept_once_its_row_has_a_token(world: MakeWorld) -> None:
    w, [row] = begun(world)
    assert known(w) == 0
    w.step()
    w.step()
    assert w.served(row) == 1 and known(w) == 100
    [layer] = w.batch._cache.read(w.batch._places[0])
    assert layer.arrays[0].flatten().tolist()[:101] == [*PROMPT, 0], "and the row goes on"  # type: ignore[union-attr]


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_who_comes_before_that_finds_it_all_the_same(steps: int, world: MakeWorld) -> None:
    w, _ = begun(world)
    for _ in range(steps):
        w.step()
    [late] = w.ask([*PROMPT, *range(200, 230)])
    w.run()
    assert w.meter.prefilled_tokens == 99 + 29 + (steps == 0), "the last token of the prompt, before it was run"
    assert w.is_done(late)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_row_that_is_cancelled_before_its_first_token_leaves_its_prompt(steps: int, world: MakeWorld) -> None:
    w, rows = begun(world)
    for _ in range(steps):
        w.step()
    w.cancel(*rows)
    assert not len(w.batch) and known(w) == 99 + steps


def test_choices_of_one_prompt_keep_it_once_whichever_goes_first(world: MakeWorld) -> None:
    w, rows = begun(world, n=3)
    w.cancel(rows[0])
    w.step()
    w.cancel(rows[1])
    w.run()
    assert w.served(rows[2]) == 50 and w.prefixes is not None
    assert w.prefixes.bytes == (100 + 49) * 8


def test_when_others_wait_a_prompt_is_kept_at_once(world: MakeWorld) -> None:
    """They may begin alike, if only for a few tokens."""
    w = world(chunk=200)
    w.ask([*[50] * 30, *[1] * 150], 9)
    w.ask([*[50] * 30, *[2] * 150], 9)
    w.run()
    assert w.prefilled(50) == 30


def test_a_failing_cache_costs_a_row_nothing(world: MakeWorld) -> None:
    w = world()
    assert w.prefixes is not None

    def broken(*_: Any) -> None:
        raise MemoryError("no room for a copy")

    [row] = w.ask(PROMPT, 5)
    w.prefixes._tree.covers = broken  # type: ignore[method-assign]
    w.run()
    assert w.served(row) == 5 and not any(isinstance(event, Failure) for event in w.events[row])


def test_an_event_loop_that_ends_while_a_row_is_kept_takes_its_rows_along(world: MakeWorld) -> None:
    """Delivering may drop rows in the middle of a step: those that ended with it, and their neighbours."""
    w = world()
    ending = w.ask(PROMPT, 3)[0]
    others = [w.ask([i] * 40, 9)[0] for i in (2, 3)]
    while w.served(ending) < 2:
        w.step()
    gone = [ending, others[0]]
    w.batch._deliver = lambda: w.cancel(*gone) if w.is_done(ending) else None
    w.run()
    assert w.is_done(others[1]) and w.served(others[1]) == 9
    assert w.served(others[0]) < 9
