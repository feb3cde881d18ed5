"""Slices of a timeline for each request, and the lanes of the slices.

The calls of an agent share a lane, and single requests take the lanes that are free.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..types.timeline import Entry, Moved, Ran, Request, Restart
from .timings import between

WAITING, PREFILL, DECODE = "waiting", "prefill", "decode"
MAX_NAME = 24  # characters of an agent's name
_UNITS = {"texts": ""}
"""Kind of work -> what its size counts; tokens for all others."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A span of a timeline, with the spans inside it."""

    name: str
    start: float
    """Seconds, as `types.timeline.now` says."""
    end: float
    args: Mapping[str, object] = field(default_factory=dict[str, object])
    """Details that viewers show of a selected slice."""
    inner: Sequence[Slice] = ()
    """In order, without overlaps."""


Mark = Moved | tuple[Ran, int]
"""A row joined or left the batch, or this many tokens of its prompt ran."""


def requests(entries: Sequence[Entry], end: float) -> Iterator[tuple[str | None, Slice]]:
    """Yield the agent, by its short name, and the slice of each request.

    Args:
        entries: of one engine.
        end: time until which requests in flight are shown.
    """
    marks: dict[int, list[Mark]] = {}
    for entry in entries:
        if isinstance(entry, Restart):
            marks.clear()
        elif isinstance(entry, Moved):
            for number in entry.rows:
                marks.setdefault(number, []).append(entry)
        elif isinstance(entry, Ran):
            for part in entry.parts:
                for number in part.rows:
                    marks.setdefault(number, []).append((entry, part.size))
        elif isinstance(entry, Request) and entry.timings.queued is not None:
            found = marks.pop(entry.number, []) if entry.number else []
            yield _short(entry.agent), _request(entry, entry.timings.queued, found, end)


def ran(entry: Ran, size: int, **args: object) -> Slice:
    """Slice of a piece of work of this size."""
    unit = _UNITS.get(entry.kind, " tokens")
    return Slice(f"{entry.kind} {size:,}{unit}" if entry.parts else entry.kind, entry.start, entry.end, args)


def _request(request: Request, start: float, marks: Sequence[Mark], now: float) -> Slice:
    """Slice of a request that was queued at `start`."""
    timings = request.timings
    end = max(start, now if timings.finished is None else timings.finished)
    moves = [(mark.at, mark.joined) for mark in marks if isinstance(mark, Moved)]
    if timings.prefilled is not None:
        moves.append((timings.prefilled, True))
    inner, since, decodes = list[Slice](), start, False
    for at, joined in sorted(moves):
        if joined is not decodes:  # otherwise it was noted twice
            inner += _phase(request, marks, since, at, decodes)
            since, decodes = at, joined
    inner += _phase(request, marks, since, end, decodes)
    name = _short(request.agent) or (f"request {request.number:,}" if request.number else request.task)
    shown = [each for each in (_within(each, start, end) for each in inner) if each.end > each.start]
    return Slice(name, start, end, _details(request, marks), shown)


def _phase(request: Request, marks: Sequence[Mark], start: float, end: float, decodes: bool) -> list[Slice]:
    """The time in which a row decoded; or the pieces of its prompt, and the time in which it waited for the first."""
    if decodes:
        return [Slice(DECODE, start, end)]
    pieces = [ran(mark[0], mark[1]) for mark in marks if not isinstance(mark, Moved) and start <= mark[0].start < end]
    if pieces:
        return [Slice(WAITING, start, pieces[0].start), *pieces]
    begun, is_first = request.timings.begun, start == request.timings.queued
    if begun is None or not is_first:
        return [Slice(WAITING, start, end)]
    # It began before the recording did, or its pieces were dropped for later entries.
    name = PREFILL if request.task == "generate" else request.task
    return [Slice(WAITING, start, begun), Slice(name, begun, end)]


def _short(agent: str | None) -> str | None:
    """Name of an agent that fits next to a lane."""
    return agent if agent is None or len(agent) <= MAX_NAME else f"{agent[: MAX_NAME - 1]}…"


def _within(slice: Slice, start: float, end: float) -> Slice:
    """A slice cut to these times."""
    if start <= slice.start and slice.end <= end:
        return slice
    return Slice(slice.name, min(max(slice.start, start), end), min(max(slice.end, start), end), slice.args)


def _details(request: Request, marks: Sequence[Mark]) -> dict[str, object]:
    timings = request.timings
    returned = sum(isinstance(mark, Moved) and not mark.joined for mark in marks)
    seconds = {
        "waited_ms": between(timings.queued, timings.begun),
        "first_token_ms": between(timings.queued, timings.first_token),
    }
    found = {
        "agent": request.agent,
        "outcome": request.outcome,
        "input_tokens": request.input.tokens,
        "cached_tokens": request.input.cached,
        "media_tokens": request.input.media,
        "output_tokens": request.output_tokens,
        **{name: None if value is None else round(value * 1000, 3) for name, value in seconds.items()},
        "rows_decoded_together": None if timings.batch_rows is None else round(timings.batch_rows, 2),
        "draft_tokens": timings.drafts.drafted,
        "accepted_draft_tokens": timings.drafts.accepted,
        "preempted": returned,
    }
    return {name: value for name, value in found.items() if value not in (None, 0)}


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
