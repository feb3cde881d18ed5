"""Entries of an engine's timeline, which say what it did and when, and the bounded recording that holds them.

All times are seconds, as `now` says: the clock of `RowTimings`.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..stats import NO_DRAFTS, DraftCounts, InputCounts, RowTimings

MAX_ENTRIES = 65_536
MERGED_SECONDS = 0.05  # of decode steps of the same rows that become one entry
MAX_GAP_SECONDS = 0.001  # between two of these
LEVEL_SECONDS = 0.05  # between two levels, unless rows have joined or left

now = time.monotonic


class Steps(NamedTuple):
    """Decode steps of the same rows, one after the other."""

    start: float
    end: float
    rows: int
    longest: float
    """Seconds of the longest one."""
    steps: int = 1
    drafts: DraftCounts = NO_DRAFTS
    """Draft tokens whose results are known since these steps."""


class Part(NamedTuple):
    """The part of a piece of work that was for one request, or for several that share a prompt."""

    rows: tuple[int, ...]
    """Their numbers."""
    size: int
    """Tokens; of a pass of texts, the number of texts."""


class Ran(NamedTuple):
    """A piece of work that was no decode step."""

    kind: str
    """"prefill", "cached" (found in the prefix cache), "image", "video", "audio", "texts", or another kind of pass."""
    start: float
    end: float
    parts: tuple[Part, ...] = ()


class Moved(NamedTuple):
    """Rows have joined the batch, or have returned to the queue."""

    at: float
    rows: tuple[int, ...]
    joined: bool


class Level(NamedTuple):
    """Rows of an engine and bytes of its caches at one time."""

    at: float
    running: int
    waiting: int
    kv_bytes: int
    """Of the rows that decode."""
    cache_bytes: int
    """In the prefix cache."""


class Request(NamedTuple):
    """One piece of work that has ended, or is in flight."""

    number: int
    """Its name in other entries; 0: none has it."""
    agent: str | None
    """See `GenerationRequest.agent`."""
    task: str
    timings: RowTimings
    """A copy without the tokens."""
    outcome: str
    """The finish reason, "failed", "canceled", or "running"."""
    input: InputCounts
    output_tokens: int


class Restart(NamedTuple):
    """The engine has started afresh: the numbers of later rows begin at 1 again."""


Entry = Steps | Ran | Moved | Level | Request | Restart


class Recorded(NamedTuple):
    """A recording as it was at one time."""

    name: str
    """The model's."""
    start: float
    end: float
    entries: Sequence[Entry]
    dropped: int
    """Entries that were dropped for later ones."""


class Recording:
    """The last entries of an engine's timeline. The engine's thread adds them; any thread may read.

    Args:
        name: of the model.
        in_flight: what runs and waits now.
        stopped: called once, when the recording stops.
        most: number of entries that are kept.
    """

    def __init__(
        self,
        name: str,
        in_flight: Callable[[], Sequence[Request]],
        stopped: Callable[[Recording], None],
        most: int = MAX_ENTRIES,
    ) -> None:
        self.name = name
        self._in_flight, self._stopped = in_flight, stopped
        self._entries: deque[Entry] = deque(maxlen=most)
        self._added = 0
        self._steps: Steps | None = None
        """The latest ones, to which the next one may be added."""
        self._level: Level | None = None
        self._start = now()
        self._result: Recorded | None = None
        """The entries, once the recording has stopped."""

    def add(self, entry: Entry) -> None:
        """Add an entry; of too many, the oldest is dropped."""
        self._end_steps()
        self._append(entry)

    def add_step(self, step: Steps) -> None:
        """Add a decode step to the steps before it, or as an entry."""
        last = self._steps
        if last is not None and _continues(step, last):
            drafts = last.drafts.plus(*step.drafts)
            longest = max(last.longest, step.longest)
            self._steps = Steps(last.start, step.end, last.rows, longest, last.steps + step.steps, drafts)
            return
        self._end_steps()
        self._steps = step

    def wants_level(self, at: float, running: int) -> bool:
        """True if the engine's level is worth an entry."""
        last = self._level
        return last is None or at - last.at >= LEVEL_SECONDS or running != last.running

    def add_level(self, level: Level) -> None:
        """Add a level. It does not end the steps before it."""
        self._level = level
        self._append(level)

    def read(self) -> Recorded:
        """The entries so far."""
        if self._result is not None:
            return self._result
        # The steps are read first: the engine's thread may add them to the entries at any time.
        steps, running, entries = self._steps, self._in_flight(), list[Entry](self._entries.copy())
        if steps is not None and not any(type(each) is Steps and each.start == steps.start for each in entries):
            entries.append(steps)
        ended = {(each.number, each.timings.queued) for each in entries if type(each) is Request}
        entries += [each for each in running if (each.number, each.timings.queued) not in ended]
        return Recorded(self.name, self._start, now(), entries, max(0, self._added - len(self._entries)))

    def stop(self) -> None:
        """Stop recording. The entries can still be read."""
        if self._result is None:
            with contextlib.suppress(ValueError):  # another thread has stopped it
                self._stopped(self)
            result = self.read()
            self._result = self._result or result
            self._in_flight = tuple
            self._entries.clear()

    def _end_steps(self) -> None:
        steps, self._steps = self._steps, None
        if steps is not None:
            self._append(steps)

    def _append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._added += 1


def _continues(step: Steps, last: Steps) -> bool:
    """True if a step and those before it are shown as one."""
    alike = step.rows == last.rows and bool(step.drafts.drafted) == bool(last.drafts.drafted)
    return alike and step.start - last.end <= MAX_GAP_SECONDS and step.end - last.start <= MERGED_SECONDS
