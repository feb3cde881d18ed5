"""Lanes of a timeline: an agent's calls share one, and thousands of requests need no more than ran concurrently."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from localai_shim.telemetry.lanes import MAX_OWN, Lane, Slice, arrange

Calls = Sequence[tuple[str | None, float, float]]
"""Agent, start, and end."""


def lanes(calls: Calls) -> list[Lane]:
    """Their lanes, which have each call once, and no overlaps."""
    found = arrange((agent, Slice(f"call {i}", start, end)) for i, (agent, start, end) in enumerate(calls))
    for lane in found:
        for before, after in zip(lane.slices, lane.slices[1:], strict=False):
            assert before.end <= after.start, lane.name
    shown = [slice.name for lane in found for slice in lane.slices if slice.name != "between calls"]
    assert sorted(shown) == sorted(f"call {i}" for i in range(len(calls)))
    assert len({lane.name for lane in found}) == len(found)
    return found


def spans(lane: Lane) -> list[tuple[str, float, float]]:
    return [(slice.name, slice.start, slice.end) for slice in lane.slices]


def test_an_agent_has_one_lane_with_the_time_between_its_calls() -> None:
    [first, second] = lanes([("a", 0, 1), ("b", 0.5, 2), ("a", 3, 4), ("b", 2, 3), ("a", 4, 5)])
    assert first.name == "a" and second.name == "b"
    assert spans(first) == [("call 0", 0, 1), ("between calls", 1, 3), ("call 2", 3, 4), ("call 4", 4, 5)]
    assert spans(second) == [("call 1", 0.5, 2), ("call 3", 2, 3)]


def test_calls_of_one_agent_that_overlap_have_further_lanes() -> None:
    [first, second] = lanes([("a", 0, 5), ("a", 1, 3), ("a", 3, 4), ("a", 8, 9)])
    assert (first.name, second.name) == ("a", "a 2")
    assert spans(first) == [("call 0", 0, 5), ("between calls", 5, 8), ("call 3", 8, 9)]
    assert spans(second) == [("call 1", 1, 3), ("call 2", 3, 4)]


def test_requests_without_an_agent_take_lanes_that_are_free() -> None:
    [first, second] = lanes([(None, 0, 2), (None, 1, 3), (None, 2, 4), ("once", 3, 5)])
    assert (first.name, second.name) == ("requests", "requests 2")
    assert spans(first) == [("call 0", 0, 2), ("call 2", 2, 4)]
    assert spans(second) == [("call 1", 1, 3), ("call 3", 3, 5)]


def test_nothing_has_no_lanes() -> None:
    assert lanes([]) == []


@pytest.mark.parametrize("several", [1, 3], ids=["single calls", "agents"])
def test_ten_thousand_requests_need_few_more_lanes_than_run_concurrently(several: int) -> None:
    dice, calls = random.Random(several), list[tuple[str | None, float, float]]()
    for i in range(10_000 // several):
        start = i + dice.random()
        for _ in range(several):
            end = start + dice.random() * 20
            calls.append((f"agent {i}" if several > 1 else None, start, end))
            start = end + dice.random()
    found = lanes(calls)
    times = sorted([(start, 1) for _, start, _ in calls] + [(end, -1) for _, _, end in calls])
    running = most = 0
    for _, change in times:
        running += change
        most = max(most, running)
    assert most <= len(found) <= 2 * most < 100


def test_as_many_agents_as_fit_on_a_screen_have_their_own_lanes_one_after_the_other() -> None:
    found = lanes([(f"agent {i}", 10 * i + j, 10 * i + j + 1) for i in range(MAX_OWN) for j in (0, 5)])
    assert [lane.name for lane in found] == [f"agent {i}" for i in range(MAX_OWN)]
    more = lanes([(f"agent {i}", 10 * i + j, 10 * i + j + 1) for i in range(MAX_OWN + 1) for j in (0, 5)])
    assert [lane.name for lane in more] == ["requests"]
