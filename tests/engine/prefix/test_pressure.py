"""The prefix cache while the system is short of memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from localai_shim.backends import machine
from localai_shim.engine import loop
from localai_shim.engine.engine import Engine
from localai_shim.engine.prefix import cache as caches
from localai_shim.engine.prefix.cache import PrefixCache, Pressure
from localai_shim.models.text import TextModel
from tests import inside
from tests.engine.counting import tokens
from tests.engine.harness import engine_for, eventually, generate, request


class System:
    """Says how short of memory it is, and how often it was asked."""

    def __init__(self) -> None:
        self.level, self.asked = "normal", 0

    def memory_pressure(self) -> str:
        self.asked += 1
        return self.level


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    system = System()
    monkeypatch.setattr(machine, "memory_pressure", system.memory_pressure)
    return system


@pytest.fixture
def engine(system: System, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine[TextModel]]:
    """An engine that looks before each step."""
    monkeypatch.setattr(caches, "LOOK_SECONDS", 0.0)
    made = engine_for("qwen3")
    yield made
    made.close()


def prefixes(engine: Engine[TextModel]) -> PrefixCache:
    setup = inside.setup(engine)
    assert setup is not None and setup.prefixes is not None
    return setup.prefixes


def fill(engine: Engine[TextModel], first: int, count: int = 8) -> None:
    for seed in range(first, first + count):
        generate(engine, request(tokens(60, seed), max_tokens=4))


def test_at_a_warning_half_stays_at_worse_none_and_then_it_grows_again(
    engine: Engine[TextModel], system: System, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    expected = generate(engine, request(tokens(60, 0), max_tokens=4))
    fill(engine, 0)
    held = prefixes(engine).bytes
    assert held
    system.level = "warning"
    fill(engine, 20)
    assert 0.25 * held < prefixes(engine).bytes <= 0.51 * held  # half of the budget, which `held` may be a bit below
    system.level = "critical"
    assert generate(engine, request(tokens(60, 0), max_tokens=4)) == expected
    assert prefixes(engine).bytes == 0
    system.level = "warning"
    fill(engine, 40)
    assert 0 < prefixes(engine).bytes <= held / 2, "of what it was before"
    system.level = "normal"
    fill(engine, 60, 12)
    assert prefixes(engine).bytes > held
    lines = [record.getMessage() for record in caplog.records if "memory" in record.getMessage()]
    assert len(lines) == 4, "one for each change"
    assert "(warning): the prefix cache shrinks" in lines[0] and "to 0 B" in lines[1] and "may grow" in lines[3]


def test_rows_that_need_room_and_pressure_limit_the_cache_together() -> None:
    cache = PrefixCache([], "", 1000)
    cache.limit(900)
    cache.shrink(0.5)
    assert cache._limit == 0, "nothing was held"
    cache.shrink(None)
    assert cache._limit == 900
    cache.limit(2000)
    assert cache._limit == 1000


def test_memory_that_was_freed_is_returned_when_the_engine_rests(
    engine: Engine[TextModel], system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(engine, 0)
    cleared: list[bool] = []
    memory = loop.host().memory
    rest = memory.rest
    monkeypatch.setattr(memory, "rest", lambda *args, **more: (cleared.append(more["clear"]), rest(*args, **more)))
    system.level = "critical"
    fill(engine, 0, 2)
    assert eventually(lambda: cleared.count(True) == 1)
    fill(engine, 2, 2)
    assert cleared.count(True) == 1


def test_an_engine_that_rests_returns_free_buffers_every_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CLEAR_STEPS", 2)
    engine = engine_for("qwen3")
    engine.wait()
    rests: list[tuple[int, bool]] = []
    memory = loop.host().memory
    rest = memory.rest

    def noting(who: object, **more: Any) -> None:
        if who is inside.loop(engine):
            rests.append((engine.stats().steps, more["clear"]))
        rest(who, **more)

    monkeypatch.setattr(memory, "rest", noting)
    for seed in range(8):
        generate(engine, request(tokens(9, seed), max_tokens=1))
    engine.close()
    due, when_due = 2, 0
    for steps, cleared in rests:
        assert cleared is (steps >= due)
        when_due += steps == due
        due = steps + 2 if cleared else due
    assert when_due


def test_an_idle_engine_looks_once_more_before_it_sleeps(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SLEEP_SECONDS", 0.2)
    monkeypatch.setattr(caches, "LOOK_SECONDS", 1e6)
    engine = engine_for("qwen3")
    fill(engine, 0)
    assert prefixes(engine).bytes and system.asked == 1
    system.level = "critical"
    assert inside.loop(engine)._pressure is not None
    inside.loop(engine)._pressure._next_look = 0.0
    assert eventually(lambda: prefixes(engine).bytes == 0)
    engine.close()


def test_the_system_is_asked_at_most_once_a_second(system: System) -> None:
    now = [100.0]
    looks = Pressure(PrefixCache([], "", 1000), lambda: now[0])
    for _ in range(1000):
        looks.look()
    assert system.asked == 1
    now[0] += 0.99
    looks.look()
    assert system.asked == 1
    now[0] += 0.02
    looks.look()
    assert system.asked == 2
