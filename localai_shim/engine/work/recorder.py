"""Notes what pieces of work did, for the timelines that are being recorded. Decides nothing."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...stats import NO_DRAFTS, DraftCounts
from ...types.timeline import Level, Moved, Part, Ran, Recording, Request, Restart, Steps, now
from ..costs.cost_model import Meter
from ..pieces import Chunk, Collect, Decode, Deliver, Item, Join, Open, Pass, Piece, Texts
from ..prompts.prefill import PrefillJob
from ..setup import Setup

if TYPE_CHECKING:
    from .lane import Entry
    from .rows import Rows

_Begun = tuple[PrefillJob, tuple[int, ...], int]
"""A prompt that a piece is for, with the numbers of its rows and the tokens that had been prefilled before."""


class Recorder:
    """Runs an engine's pieces while something is recorded, and notes when they ran and how much they did.

    Args:
        rows: those of the engine; None: the model generates no text.
        setup: has the caches and the drafts.
        meter: has the recordings.
    """

    def __init__(self, rows: Rows | None, setup: Setup, meter: Meter) -> None:
        self._rows, self._setup, self._meter = rows, setup, meter
        self._began = (0.0, 0, NO_DRAFTS)
        """Time at which this decode step began, its rows, and the counts of draft tokens before it."""
        for recording in meter.recordings:
            recording.add(Restart())

    def run(self, piece: Piece, run: Callable[[Piece], None]) -> None:
        """Run a piece. Raises what it does."""
        if isinstance(piece, Collect | Decode):
            if isinstance(piece, Collect) and self._rows is not None:
                self._began = (now(), len(self._rows.batch), self._drafts())
            run(piece)
            return
        begun = [(job, _numbers(job), job.done) for job in self._jobs(piece)]
        start = now()
        try:
            run(piece)
        finally:
            self._note(piece, begun, start)

    def note_level(self, entries: int) -> None:
        """Add the engine's level to the recordings that want it.

        Args:
            entries: that run and wait.
        """
        at, running = now(), 0 if self._rows is None else len(self._rows.batch)
        wanting = [recording for recording in self._meter.recordings if recording.wants_level(at, running)]
        if not wanting:
            return
        kv = 0 if self._rows is None else self._rows.batch.nbytes
        cached = 0 if self._setup.prefixes is None else self._setup.prefixes.bytes
        level = Level(at, running, max(0, entries - running), kv, cached)
        for recording in wanting:
            recording.add_level(level)

    def _note(self, piece: Piece, begun: Sequence[_Begun], start: float) -> None:
        entry: Ran | Moved | None = None
        match piece:
            case Deliver():
                self._note_step()
            case Chunk():
                parts = tuple(Part(rows, job.done - before) for job, rows, before in begun)
                entry = Ran("prefill", start, now(), parts)
            case Open():
                parts = tuple(Part(_numbers(job), job.done) for job, *_ in begun if job.begun and job.done)
                entry = Ran("cached", start, now(), parts) if parts else None
            case Item(digest=digest):
                spans = [(rows, span) for job, rows, _ in begun for span in job.prompt.media]
                rows, span = next((rows, span) for rows, span in spans if span.media.digest == digest)
                entry = Ran(span.media.kind, start, now(), (Part(rows, len(span.places)),))
            case Join(rows):
                entry = Moved(now(), rows, joined=True)
            case Texts(texts):
                counts = Counter(number for number, _ in texts)
                entry = Ran("texts", start, now(), tuple(Part((number,), n) for number, n in counts.items()))
            case Pass():
                entry = Ran(type(piece).__name__.lower(), start, now())
        if entry is not None:
            for recording in self._meter.recordings:
                recording.add(entry)

    def _note_step(self) -> None:
        (start, rows, before), end, drafts = self._began, now(), self._drafts()
        new = DraftCounts(drafts.drafted - before.drafted, drafts.accepted - before.accepted)
        for recording in self._meter.recordings:
            recording.add_step(Steps(start, end, rows, end - start, drafts=new))

    def _jobs(self, piece: Piece) -> list[PrefillJob]:
        """The prompts that a piece is for, before it changes them."""
        if self._rows is None or not isinstance(piece, Chunk | Open | Item):
            return []
        numbers = piece.prompts if isinstance(piece, Chunk) else (piece.prompt,)
        with contextlib.suppress(KeyError):  # running the piece says so
            return [self._rows.prompts.job(number) for number in numbers]
        return []

    def _drafts(self) -> DraftCounts:
        """Draft tokens so far."""
        speculation = self._setup.speculation
        if speculation is None:
            return NO_DRAFTS
        counts = speculation.counts.values()
        return DraftCounts(sum(each.drafted for each in counts), sum(each.accepted for each in counts))


def _numbers(job: PrefillJob) -> tuple[int, ...]:
    return tuple(row.number for row in job.rows)


def request_of(entry: Entry, outcome: str) -> Request:
    """Entry of a timeline for work that has ended, or is in flight, which has a number then."""
    work = entry.request
    timings = replace(work.timings, output=())
    if outcome != "running" and timings.finished is None:
        timings.finished = now()
    number: int = getattr(entry, "number", 0)
    agent: str | None = getattr(work, "agent", None)
    output = len(work.timings.output) if work.emits_tokens else 0
    return Request(number, agent, work.task, timings, outcome, work.input.counts(), output)


def start_recording(name: str, meter: Meter, running: Callable[[], Sequence[Request]], most: int) -> Recording:
    """Start a recording of what a meter counts.

    Takes no lock, and neither does stopping it, which finalizers do, too: these may run on a thread that holds any.

    Args:
        name, running: see `Recording`.
        most: number of entries that are kept.
    """
    made = Recording(name, running, meter.recordings.remove, most)
    meter.recordings.append(made)
    return made
