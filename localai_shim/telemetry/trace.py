"""Writes timelines of engines as a Chrome trace, which Perfetto and Chrome open."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from ..types import VERSION
from ..types.timeline import Level, Ran, Recorded, Request, Steps, now
from .lanes import Slice, arrange, ran, requests

ENGINE = "engine"
Event = dict[str, object]


def write_trace(path: str | os.PathLike[str], engines: Sequence[Recorded]) -> None:
    """Write a file, which is complete when it appears under its name.

    Args:
        path: of the file. One that exists is replaced.
        engines: the timeline of each.

    Raises:
        OSError: the file cannot be written.
    """
    target = Path(path)
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with open(unfinished, "x", encoding="utf-8") as file:
            _write(file, engines)
        os.replace(unfinished, target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _write(file: TextIO, engines: Sequence[Recorded]) -> None:
    zero = min(map(_first, engines), default=now())
    file.write('{"displayTimeUnit":"ms","traceEvents":[')
    separator = "\n"
    for process, recorded in enumerate(engines, 1):
        for event in _Events(process, zero).all(recorded):
            file.write(separator + json.dumps(event, ensure_ascii=False, separators=(",", ":")))
            separator = ",\n"
    dropped = sum(recorded.dropped for recorded in engines)
    about = {"producer": f"localai_shim {VERSION}", "unix_time": time.time() - (now() - zero), "dropped": dropped}
    file.write(f'\n],"otherData":{json.dumps(about)}}}\n')


def _first(recorded: Recorded) -> float:
    """The time at which the first slice of a timeline begins: requests may be older than the recording."""
    first = recorded.start
    for entry in recorded.entries:
        at = entry.timings.queued if isinstance(entry, Request) else getattr(entry, "start", None)
        first = first if at is None else min(first, at)
    return first


class _Events:
    """Events of one engine.

    Args:
        process: its number in the trace.
        zero: time at which the trace begins.
    """

    def __init__(self, process: int, zero: float) -> None:
        self._process, self._zero = process, zero

    def all(self, recorded: Recorded) -> Iterator[Event]:
        """Yield the engine's names, its own lane, the lanes of requests, and the counters."""
        yield self._named("process_name", 0, name=recorded.name)
        if recorded.dropped:
            yield self._named("process_labels", 0, labels=f"{recorded.dropped:,} older entries were dropped")
        yield from self._lane(0, ENGINE, _engine(recorded))
        found = requests(recorded.entries, recorded.end)
        for thread, lane in enumerate(arrange(found), 1):
            yield from self._lane(thread, lane.name, lane.slices)
        yield from self._counters(recorded)

    def _lane(self, thread: int, name: str, slices: Sequence[Slice]) -> Iterator[Event]:
        yield self._named("thread_name", thread, name=name)
        yield self._named("thread_sort_index", thread, sort_index=thread)
        for slice in slices:
            yield from self._slice(thread, slice)

    def _slice(self, thread: int, slice: Slice) -> Iterator[Event]:
        start, end = self._nanoseconds(slice.start), self._nanoseconds(slice.end)
        times = {"ts": start / 1000, "dur": (end - start) / 1000}
        yield {"name": slice.name, "ph": "X", "pid": self._process, "tid": thread, **times, "args": {**slice.args}}
        for inner in slice.inner:
            yield from self._slice(thread, inner)

    def _counters(self, recorded: Recorded) -> Iterator[Event]:
        levels = [entry for entry in recorded.entries if isinstance(entry, Level)]
        for level in levels:
            yield self._counter(level.at, "rows", {"running": level.running, "waiting": level.waiting})
            yield self._counter(level.at, "bytes", {"KV cache": level.kv_bytes, "prefix cache": level.cache_bytes})

    def _counter(self, at: float, name: str, values: Mapping[str, int]) -> Event:
        ts = self._nanoseconds(at) / 1000
        return {"name": name, "ph": "C", "pid": self._process, "tid": 0, "ts": ts, "args": {**values}}

    def _named(self, kind: str, thread: int, **args: object) -> Event:
        return {"name": kind, "ph": "M", "pid": self._process, "tid": thread, "args": args}

    def _nanoseconds(self, at: float) -> int:
        return max(0, round((at - self._zero) * 1e9))


def _engine(recorded: Recorded) -> list[Slice]:
    """The engine's own lane: its decode steps, and all other work between these."""
    found: list[Slice] = []
    for entry in recorded.entries:
        if isinstance(entry, Steps):
            found.append(_steps(entry))
        elif isinstance(entry, Ran):
            found.append(ran(entry, sum(part.size for part in entry.parts), requests=len(entry.parts)))
    return sorted(found, key=lambda slice: slice.start)


def _steps(entry: Steps) -> Slice:
    rows = "1 row" if entry.rows == 1 else f"{entry.rows} rows"
    args: dict[str, object] = {"steps": entry.steps, "longest_ms": round(entry.longest * 1000, 3)}
    if entry.drafts.drafted:
        args |= {"draft_tokens": entry.drafts.drafted, "accepted_draft_tokens": entry.drafts.accepted}
    return Slice(f"decode {rows}{' with drafts' if entry.drafts.drafted else ''}", entry.start, entry.end, args)
