"""Clocks that jump by an hour amid requests: nobody waits for that hour, and no answer changes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.soak.setting import close_pair, open_pair
from localai_shim.engine.costs.cost_model import CostModel, Stopwatch
from localai_shim.engine.work import lane as lanes
from tests.soak.faults.load import Load
from tests.soak.faults.places import find

HOUR = 3600.0
MOST_OWED = 60.0  # seconds for which texts may have to leave the time to rows
KINDS = ("chat", "schema", "background", "batch", "picture", "embeddings")
AMID = {
    "engine.work.runner:TextRunner.run": "embeddings",
    "engine.prompts.prefill:Prefiller._timed": "chat",
    "models.text:TextModel.forward": "chat",
    "models.vision.model:VisionModel.embed": "picture",
    "engine.work.scheduler:Scheduler.next": "stream",
    "engine.sampling.sampler:Sampler.sample": "seeded",
}
"""Work that is timed, and requests that have it done."""


class Clock:
    """A clock that goes on by an hour when it is told to."""

    def __init__(self, real: Callable[[], float]) -> None:
        self._real, self.ahead = real, 0.0

    def __call__(self) -> float:
        return self._real() + self.ahead

    def jump_amid(self, patch: pytest.MonkeyPatch, place: str) -> None:
        """Jump in the next call of a function."""
        owner, name = find(place)
        original, waits = getattr(owner, name), [True]

        def jumping(*given: Any, **more: Any) -> Any:
            if waits:
                waits.clear()
                self.ahead += HOUR
            return original(*given, **more)

        patch.setattr(owner, name, jumping)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of engines that are made from now on."""
    made = Clock(time.monotonic)
    monkeypatch.setattr(lanes._turns, "resumes", lanes._turns.resumes)  # which is of all engines, and set back
    defaults = CostModel.__init__.__defaults__
    assert defaults is not None
    monkeypatch.setattr(CostModel.__init__, "__defaults__", (made, *defaults[1:]))
    monkeypatch.setattr(Stopwatch.__init__, "__defaults__", (made,))
    return made


@pytest.fixture
def afresh(load: Load, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """The clients of engines of their own, whose clock it is."""
    others = {name: open_pair({**options, "keep_alive": 0, **OTHER}) for name, options in load.options.items()}
    monkeypatch.setattr(load, "pairs", others)
    yield load
    for pair in others.values():
        close_pair(pair)


OTHER: dict[str, Any] = {"progress": False, "max_queue": 100}
"""Makes them others than those that run already."""


def test_an_engine_s_clock_jumps_ahead_amid_each_kind_of_work(afresh: Load, clock: Clock) -> None:
    for place, kind in AMID.items():
        before = clock.ahead
        with pytest.MonkeyPatch.context() as patch, afresh.busy("text", "vision") as beside:
            clock.jump_amid(patch, place)
            assert afresh.is_right(kind, afresh.play(kind))
            assert lanes._turns.resumes - clock() < MOST_OWED, place
        assert clock.ahead == before + HOUR, place
        assert all(each.is_right and each.error is None for each in beside)
        assert afresh.is_right(kind, afresh.play(kind, timeout=MOST_OWED)), place


@pytest.mark.parametrize("hours", [-1, 1])
def test_the_time_of_day_jumps(load: Load, hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real, real_ns, ahead = time.time, time.time_ns, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + ahead[0])
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(ahead[0] * 1e9))
    with load.busy("text") as beside:
        for kind, jump in zip(KINDS, itertools.cycle((0.0, hours * HOUR)), strict=False):
            ahead[0] = jump
            assert load.is_right(kind, load.play(kind))
    assert all(each.is_right and each.error is None for each in beside)
    assert not load.left()
