"""Lanes of a timeline: the calls of an agent share one, and single requests take the lanes that are free."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .phases import Slice

BETWEEN = "between calls"
SHARED = "requests"
MAX_OWN = 256  # lanes that belong to agents; if more are needed, all lanes are reused


@dataclass(slots=True)
class Lane:
    """Slices that do not overlap, in order."""

    name: str
    slices: list[Slice] = field(default_factory=list[Slice])


def arrange(requests: Iterable[tuple[str | None, Slice]]) -> list[Lane]:
    """Arrange the slices of requests, each with its agent, in as few lanes as show them well."""
    agents: dict[str, list[Slice]] = {}
    tracks: list[list[Slice]] = []
    for agent, slice in requests:
        if agent is None:
            tracks.append([slice])
        else:
            agents.setdefault(agent, []).append(slice)
    tracks += [calls for calls in agents.values() if len(calls) == 1]
    own = [lane for agent, calls in agents.items() if len(calls) > 1 for lane in _lanes_of(agent, calls)]
    if len(own) > MAX_OWN:
        tracks += [lane.slices for lane in own]
        own = []
    return sorted([*own, *_packed(SHARED, tracks)], key=lambda lane: _order(lane.slices[0]))


def _lanes_of(agent: str, calls: Sequence[Slice]) -> list[Lane]:
    """The lanes of an agent's calls: one, unless calls overlap. It also shows when no call was in flight."""
    lanes = _packed(agent, [[call] for call in calls])
    busy_until = lanes[0].slices[0].end
    for call in sorted(calls, key=_order):
        if call.start > busy_until:
            lanes[0].slices.append(Slice(BETWEEN, busy_until, call.start))
        busy_until = max(busy_until, call.end)
    lanes[0].slices.sort(key=_order)
    return lanes


def _packed(name: str, tracks: Iterable[list[Slice]]) -> list[Lane]:
    """Lanes of this name for tracks of slices that must stay together: each takes the first lane that is free."""
    lanes: list[Lane] = []
    free, busy = list[int](), list[tuple[float, int]]()
    for track in sorted(tracks, key=lambda track: _order(track[0])):
        while busy and busy[0][0] <= track[0].start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            place = heapq.heappop(free)
        else:
            place = len(lanes)
            lanes.append(Lane(name if not place else f"{name} {place + 1}"))
        lanes[place].slices += track
        heapq.heappush(busy, (track[-1].end, place))
    return lanes


def _order(slice: Slice) -> tuple[float, float]:
    return slice.start, slice.end
