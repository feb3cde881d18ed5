"""Reads timelines, and checks them strictly: what Chrome's trace format demands, and that no lane has overlaps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localai_shim.engine.engine import Engine
from localai_shim.telemetry.trace import write_trace
from localai_shim.types.timeline import MAX_ENTRIES, Recorded
from tests import inside

NANOSECONDS = 1000  # of a microsecond
NAMES = {
    "process_name": {"name": str},
    "process_labels": {"labels": str},
    "thread_name": {"name": str},
    "thread_sort_index": {"sort_index": int},
}
"""The format's names of metadata, with their arguments."""


@dataclass
class Span:
    name: str
    start: int
    """Nanoseconds."""
    end: int
    args: dict[str, Any]
    inner: list[Span] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Names of the spans inside it."""
        return [each.name for each in self.inner]

    @property
    def kinds(self) -> list[str]:
        """Their first words, each once where it repeats."""
        words = [name.split()[0] for name in self.names]
        return [word for i, word in enumerate(words) if i == 0 or words[i - 1] != word]

    def sizes(self, kind: str) -> list[int]:
        """Numbers in the names of the spans inside it that begin with this word."""
        return [int(name.split()[1].replace(",", "")) for name in self.names if name.split()[0] == kind]


@dataclass
class Process:
    """An engine in a trace."""

    name: str
    lanes: dict[str, list[Span]]
    """Those of requests, by their names."""
    engine: list[Span]
    counters: dict[str, list[tuple[int, dict[str, int]]]]
    labels: str = ""

    @property
    def calls(self) -> list[Span]:
        """All requests, without the time between them."""
        spans = [span for lane in self.lanes.values() for span in lane if span.name != "between calls"]
        return sorted(spans, key=lambda span: span.start)

    @property
    def steps(self) -> int:
        return sum(span.args["steps"] for span in self.engine if span.name.startswith("decode"))


def read_trace(path: str | Path) -> list[Process]:
    """The engines of a file, which is checked."""
    trace = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse)
    assert trace.keys() == {"displayTimeUnit", "traceEvents", "otherData"} and trace["displayTimeUnit"] == "ms"
    assert trace["otherData"]["producer"].startswith("localai_shim ")
    assert {*Counter(event["ph"] for event in trace["traceEvents"])} <= {"X", "C", "M"}
    numbers = sorted({event["pid"] for event in trace["traceEvents"]})
    assert numbers == list(range(1, len(numbers) + 1))
    return [_process([event for event in trace["traceEvents"] if event["pid"] == number]) for number in numbers]


def read_one(path: str | Path) -> Process:
    """The only engine of a file."""
    [found] = read_trace(path)
    return found


@contextmanager
def recorded(engine: Engine[Any], path: Path, most: int = MAX_ENTRIES) -> Iterator[list[Process]]:
    """Record what an engine does meanwhile: the list has it afterwards."""
    found: list[Process] = []
    recording = engine.record(most)
    try:
        yield found
        inside.end_step(engine)
    finally:
        recording.stop()
    write_trace(path, [recording.read()])
    found += read_trace(path)


def processes(path: Path, *recordings: Recorded) -> list[Process]:
    """What a trace of these recordings shows."""
    write_trace(path, recordings)
    return read_trace(path)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def _process(events: list[dict[str, Any]]) -> Process:
    assert all(type(event["pid"]) is int and type(event["tid"]) is int for event in events)
    names: dict[str, dict[int, Any]] = {}
    for event in events:
        if event["ph"] == "M":
            assert event.keys() == {"name", "ph", "pid", "tid", "args"}
            expected = NAMES[event["name"]]
            assert {name: type(value) for name, value in event["args"].items()} == expected
            assert event["tid"] not in names.setdefault(event["name"], {}), "named twice"
            [names[event["name"]][event["tid"]]] = event["args"].values()
    [name] = names["process_name"].values()
    threads = names["thread_name"]
    assert threads[0] == "engine" and len({*threads.values()}) == len(threads), "lanes have different names"
    assert names["thread_sort_index"] == {thread: thread for thread in threads}
    spans: dict[int, list[dict[str, Any]]] = {thread: [] for thread in threads}
    for event in events:
        if event["ph"] == "X":
            spans[event["tid"]].append(event)
    lanes = {threads[thread]: _nested(some) for thread, some in spans.items()}
    labels = names.get("process_labels", {})
    return Process(name, lanes, lanes.pop("engine"), _counters(events), labels.get(0, ""))


def _nested(events: list[dict[str, Any]]) -> list[Span]:
    """The spans of a lane: in order, each inside the one before it or behind it."""
    top: list[Span] = []
    open: list[Span] = []
    latest = 0
    for event in events:
        assert event.keys() == {"name", "ph", "pid", "tid", "ts", "dur", "args"}
        assert type(event["name"]) is str and event["name"] and type(event["args"]) is dict
        start = round(event["ts"] * NANOSECONDS)
        span = Span(event["name"], start, start + round(event["dur"] * NANOSECONDS), event["args"])
        assert start >= latest >= 0 and span.end >= start, "spans are in order"
        latest = start
        while open and open[-1].end <= start:
            open.pop()
        if open:
            assert span.end <= open[-1].end, f"{span.name} overlaps {open[-1].name}"
        (open[-1].inner if open else top).append(span)
        open.append(span)
    return top


def _counters(events: list[dict[str, Any]]) -> dict[str, list[tuple[int, dict[str, int]]]]:
    found: dict[str, list[tuple[int, dict[str, int]]]] = {}
    for event in events:
        if event["ph"] == "C":
            assert event.keys() == {"name", "ph", "pid", "tid", "ts", "args"}
            assert all(type(value) is int and value >= 0 for value in event["args"].values())
            found.setdefault(event["name"], []).append((round(event["ts"] * NANOSECONDS), event["args"]))
    for values in found.values():
        times = [at for at, _ in values]
        assert times == sorted(times) and len({frozenset(value) for _, value in values}) == 1
    return found
