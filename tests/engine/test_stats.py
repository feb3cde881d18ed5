"""What an engine says of itself: typed, at any time, from any thread, and it adds up."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import Any, get_type_hints

import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.engine.cache_contents import Quantised
from localai_shim.engine.costs.cost_model import Meter
from localai_shim.engine.engine import EngineOptions
from localai_shim.engine.prefix import sharing
from localai_shim.stats import DraftCounts, EngineStats, Percentiles
from localai_shim.testing import ScriptedEngine
from tests.conftest import MESSAGES
from tests.engine.counting import PER_TOKEN, counting, tokens
from tests.engine.harness import Running, engine_for, eventually, generate, request
from tests.engine.recording import MakeWorld
from tests.samples import only
from tests.tiny import tiny

ASK: dict[str, Any] = {"model": "any", "messages": MESSAGES, "max_tokens": 5}
COUNTERS = ["steps", "prompt_tokens", "prefilled_tokens", "generated_tokens", "refused", "preempted"]
COUNTERS += ["cache_hits", "cache_misses", "cache_tokens"]


def is_typed(stats: EngineStats) -> None:
    """Every field is of the type that it is declared with, and nothing is below nothing."""
    for name, declared in get_type_hints(EngineStats).items():
        value = getattr(stats, name)
        if declared is Percentiles:
            assert isinstance(value, Percentiles) and all(type(x) is float and x >= 0 for x in value), name
            assert value.p50 <= value.p90 <= value.p99 <= value.max
        elif declared is str:
            assert type(value) is str
        elif name == "drafts":
            assert all(0 <= counts.accepted <= counts.drafted for counts in value.values())
        elif name == "plans":
            assert value == ()
        elif name == "modalities":
            assert value == () or (value[0] == "text" and set(value) <= {"text", "image", "video", "audio"})
        else:
            assert type(value) is int or (value is None and name == "kv_budget"), f"{name} is {value!r}"
            assert value is None or value >= 0, name


# -- counters ----------------------------------------------------------------------------------------------------------


def test_each_token_of_a_prompt_is_prefilled_or_reused_or_runs_with_the_batch() -> None:
    with counting("qwen3") as c:
        shared = tokens(100)
        prompts = [shared, *[[*shared, *tokens(5 + i, i)] for i in range(5)], shared, tokens(9, 9)]
        said = generate(c.engine, *[request(p, max_tokens=7 + i) for i, p in enumerate(prompts)])
        assert eventually(lambda: c.engine.stats().running == 0)
        stats = c.engine.stats()
        assert stats.prompt_tokens == sum(map(len, prompts))
        assert stats.prefilled_tokens + stats.cache_tokens + len(prompts) == stats.prompt_tokens
        assert stats.cache_hits + stats.cache_misses == len(prompts)
        assert stats.generated_tokens == sum(map(len, said))


def test_choices_of_one_prompt_are_prefilled_once_and_count_each() -> None:
    with counting("qwen3") as c:
        said = Running(c.engine, [request(tokens(50), max_tokens=6)] * 1 + [request(tokens(8, 2))]).finish()
        one = request(tokens(40, 3), max_tokens=6)
        said += Running(c.engine, [one] * 3).finish()
        stats = c.engine.stats()
        assert stats.prefilled_tokens == 49 + 7 + 39
        assert stats.prompt_tokens == 50 + 8 + 3 * 40
        assert stats.generated_tokens == sum(map(len, said))


def test_a_row_that_is_preempted_counts_its_prompt_once(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    from localai_shim.engine.work import rows as of_rows

    monkeypatch.setattr(of_rows, "RESERVED_TOKENS", 16)
    monkeypatch.setattr(of_rows, "FURTHER_TOKENS", 16)
    w = world(memory=10**12, prefix_cache=0)
    memory = w.rows.room.memory
    assert memory is not None
    rows = [w.ask([i] * 30, max_tokens=2000)[0] for i in range(1, 5)]
    w.step()
    assert len(w.batch) == 4
    memory.budget = memory.batch([1500] * 3)
    w.run()
    assert w.meter.preempted > 0
    assert all(w.served(row) == 2000 for row in rows)
    assert w.meter.prompt_tokens == 4 * 30


def test_counters_only_grow_and_what_runs_and_waits_is_there() -> None:
    engine = engine_for("qwen3", EngineOptions(max_rows=2))
    try:
        engine.wait()
        before = engine.stats()
        running = [Running(engine, request(tokens(20 + i, i), max_tokens=40)) for i in range(6)]
        assert engine.stats().waiting + engine.stats().running <= 6
        while not all(run.sink._queue.qsize() == 40 for run in running):
            now = engine.stats()
            assert now.running <= 2 and now.running + now.waiting <= 6 + 2
            assert all(getattr(now, name) >= getattr(before, name) for name in COUNTERS)
            before = now
        assert eventually(lambda: engine.stats().running + engine.stats().waiting == 0)
        assert engine.stats().kv_bytes == 0 and engine.stats().generated_tokens == 240
    finally:
        engine.close()


def test_tokens_that_rows_share_count_once_while_rows_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MOST_SAVED_TOKENS", 0)
    with counting("qwen3") as c:
        rows = Running(c.engine, [request(tokens(301), max_tokens=150)] * 3)
        assert eventually(lambda: c.engine.stats().generated_tokens >= 3 * 5)
        stats = c.engine.stats()
        assert stats.shared_bytes == 300 * PER_TOKEN
        assert 300 * PER_TOKEN < stats.kv_bytes <= (300 + 3 * 256) * PER_TOKEN
        rows.finish()
        assert eventually(lambda: c.engine.stats().shared_bytes == 0)


# -- times -------------------------------------------------------------------------------------------------------------


def test_percentiles_are_those_of_what_was_measured_last() -> None:
    meter = Meter()
    assert meter.step_seconds() == Percentiles(0.0, 0.0, 0.0, 0.0)
    meter.stepped(3.0)
    assert meter.step_seconds() == Percentiles(3.0, 3.0, 3.0, 3.0)
    for i in range(5000):
        meter.stepped(float(i))
    last = range(5000 - 1024, 5000)
    assert meter.step_seconds() == Percentiles(*(float(last[round(1023 * share)]) for share in (0.5, 0.9, 0.99, 1)))
    assert meter.stall_seconds() == Percentiles()


def test_a_stall_is_how_long_running_rows_waited_for_prompts(world: MakeWorld) -> None:
    w = world(seconds_per_token=0.03, max_stall=1.0)
    w.ask([1] * 30)
    w.step()
    assert w.meter.stall_seconds() == Percentiles(), "nobody ran, so nobody waited"
    w.run()
    w.ask([2, 2], max_tokens=200)
    w.step()
    w.ask([900] * 1001)
    w.run()
    stalls = w.meter.stall_seconds()
    assert 0.8 <= stalls.p50 <= 1.3, "chunks take about `max_stall`"
    assert stalls.max == pytest.approx(64 * 0.03, abs=0.1), "but for the first, whose speed nobody knew"


def test_rows_that_wait_for_room_stall_nobody(world: MakeWorld) -> None:
    w = world(max_rows=1)
    w.ask([1] * 30, max_tokens=50)
    w.ask([2] * 30)
    w.run()
    assert len(w.meter._stalls) == 0


def test_steps_take_time_and_stalls_do_in_an_engine_too() -> None:
    engine = engine_for("qwen3")
    try:
        first = Running(engine, request(tokens(5), max_tokens=300))
        first.read(5)
        generate(engine, request(tokens(400, 2), max_tokens=2))
        first.finish()
        stats = engine.stats()
        assert 0 < stats.step_seconds.p50 <= stats.step_seconds.max < 30
        assert 0 < stats.stall_seconds.max < 30
    finally:
        engine.close()


# -- at any time -------------------------------------------------------------------------------------------------------

LOADS: dict[str, tuple[str, Quantised | None, dict[str, Any]]] = {
    "dense": ("qwen3", None, {}),
    "sliding window": ("gemma3_text", None, {}),
    "recurrent": ("qwen3_next", None, {}),
    "quantised": ("qwen3", Quantised(32, 8), {"head_dim": 32}),
}


@pytest.mark.parametrize("load", only(["sliding window"], LOADS))
def test_stats_may_be_asked_for_from_any_thread_while_the_engine_works(load: str) -> None:
    kind, how, changes = LOADS[load]
    engine = engine_for(kind, EngineOptions(max_rows=6, prefill_chunk=64), how, **changes)
    engine.wait()
    seen: list[EngineStats] = []
    failed, stop = [], threading.Event()

    def hammer() -> None:
        try:
            while not stop.is_set():
                seen.append(engine.stats())
                is_typed(seen[-1])
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=hammer)
    try:
        thread.start()
        prompts = [tokens(3 + 37 * i % 300, i) for i in range(12)]
        running = [Running(engine, request(p, max_tokens=5 + i)) for i, p in enumerate(prompts)]
        for run in running[::5]:
            run.cancel()
        said = [run.finish()[0] for i, run in enumerate(running) if i % 5]
    finally:
        engine.close()
        is_typed(engine.stats())
        stop.set()
        thread.join()
    assert not failed and any(stats.running > 1 for stats in seen)
    undisturbed = engine_for(kind, EngineOptions(max_rows=6, prefill_chunk=64), how, **changes)
    try:
        kept = [request(p, max_tokens=5 + i) for i, p in enumerate(prompts) if i % 5]
        assert said == generate(undisturbed, *kept)
    finally:
        undisturbed.close()


def test_stats_may_be_asked_for_before_the_model_is_there_and_after_it_has_gone() -> None:
    engine = engine_for("qwen3")
    is_typed(engine.stats())
    engine.wait()
    ready = engine.stats()
    assert ready.active_bytes > 0 and ready.backend and ready.kv_budget
    engine.close()
    after = engine.stats()
    is_typed(after)
    assert (after.running, after.waiting, after.kv_bytes, after.cache_bytes) == (0, 0, 0, 0)


# -- towards clients ---------------------------------------------------------------------------------------------------


def test_clients_say_what_their_engine_says() -> None:
    with LocalOpenAI(tiny("qwen3"), max_rows=11) as client:
        is_typed(client.stats())
        answer = client.chat.completions.create(**ASK)
        assert answer.usage is not None
        stats = client.stats()
        is_typed(stats)
        assert stats.prompt_tokens == answer.usage.prompt_tokens
        assert stats.generated_tokens == answer.usage.completion_tokens
        assert client.stats("gpt-4o").prompt_tokens == stats.prompt_tokens, "one model serves every name"
        with pytest.raises(dataclasses.FrozenInstanceError):
            stats.running = 3  # type: ignore[misc]


@pytest.mark.anyio
async def test_asynchronous_clients_too() -> None:
    async with AsyncLocalOpenAI(tiny("qwen3"), max_rows=12) as client:
        before = client.stats().generated_tokens
        answer = await client.chat.completions.create(**ASK)
        assert answer.usage is not None
        assert client.stats().generated_tokens - before == answer.usage.completion_tokens


def test_each_of_several_models_has_its_own_and_others_are_unknown() -> None:
    with LocalOpenAI(models={"one": tiny("qwen3"), "two": tiny("llama")}, max_rows=13) as client:
        client.chat.completions.create(**{**ASK, "model": "two"})
        assert client.stats("two").generated_tokens > 0
        assert client.stats("one").generated_tokens == client.stats().generated_tokens == 0, "the first, unless named"
        with pytest.raises(ValueError, match="no model 'three', only one, two"):
            client.stats("three")


def test_scripted_engines_have_them_too() -> None:
    with ScriptedEngine(["Hello!"]) as engine, LocalOpenAI(engine=engine) as client:
        is_typed(client.stats())
        client.chat.completions.create(**ASK)
        is_typed(client.stats())
        assert (client.stats().running, client.stats().waiting) == (0, 0) and client.stats().steps > 0


# -- how they are shown ----------------------------------------------------------------------------------------------

SHOWN = EngineStats(
    running=3,
    waiting=0,
    steps=12_345,
    max_rows=64,
    cache_bytes=1_500_000_000,
    kv_bytes_per_token=512,
    kv_budget=17_250_000_000,
    active_bytes=999,
    step_seconds=Percentiles(0.001, 0.002, 0.0035, 0.25),
    drafts={"lookup": DraftCounts(10, 7)},
    backend="gpu",
    modalities=("text", "image"),
)


def test_stats_print_as_a_small_table_of_what_there_is_to_say() -> None:
    assert str(SHOWN).splitlines() == [
        "running             3",
        "waiting             0",
        "steps               12,345",
        "max_rows            64",
        "cache_bytes         1.5 GB",
        "kv_bytes_per_token  512 B",
        "kv_budget           17.2 GB",
        "active_bytes        999 B",
        "step_seconds        p50 1.00 ms, p90 2.00 ms, p99 3.50 ms, max 250.00 ms",
        "drafts              lookup: 7 of 10 right",
        "backend             gpu",
        "modalities          text, image",
    ]
    assert len(str(EngineStats(0, 0, 0)).splitlines()) == 3


def test_stats_become_a_dict_that_json_takes_and_that_is_the_callers_own() -> None:
    found = SHOWN.to_dict()
    assert list(found) == [each.name for each in dataclasses.fields(EngineStats)]
    again = json.loads(json.dumps(found))
    assert again == found
    assert again["step_seconds"] == {"p50": 0.001, "p90": 0.002, "p99": 0.0035, "max": 0.25}
    assert again["drafts"] == {"lookup": {"drafted": 10, "accepted": 7}} and again["modalities"] == ["text", "image"]
    found["drafts"].clear()
    assert SHOWN.drafts


def test_the_repr_of_stats_is_what_makes_them_again() -> None:
    assert eval(repr(SHOWN)) == SHOWN


def test_an_engines_own_stats_print_too(client: LocalOpenAI) -> None:
    client.chat.completions.create(**ASK)
    stats = client.stats()
    assert json.loads(json.dumps(stats.to_dict()))["max_rows"] == stats.max_rows
    assert any(line.startswith("step_seconds ") and "p50" in line for line in str(stats).splitlines())


def test_plans_are_there_for_who_asks_for_them() -> None:
    with LocalOpenAI(model=str(tiny("qwen3"))) as client:
        client.chat.completions.create(**ASK)
        assert client.stats().plans == ()
        stats = client.stats(plans=True)
    assert 0 < len(stats.plans) <= 64
    [*_, opened, joined] = [piece for plan in stats.plans for piece in plan["beside"] if piece["kind"] != "chunk"]
    assert (opened["kind"], joined["kind"]) == ("open", "join"), "the prompt's"
    [row] = joined["rows"]
    assert any(plan["decode"] is not None and plan["decode"]["rows"] == (row,) for plan in stats.plans)
    assert json.loads(json.dumps(stats.to_dict()))["plans"] == json.loads(json.dumps(stats.plans))
    assert f"plans {len(stats.plans)}" in " ".join(str(stats).split())
