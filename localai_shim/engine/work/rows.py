"""The rows of an engine: those that run, and prompts on their way into the batch."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Sequence

from ...types import GenerationRequest, Prompt, Sink
from ...types.timeline import Moved, now
from ..decode.batch import Batch
from ..memory import Memory
from ..prompts.features import Tower
from ..prompts.prefill import Prefiller, PrefillJob
from ..row import Row
from .lane import Parts
from .prompts import PromptJobs
from .room import Room


class Rows:
    """Rows from their arrival to their end, and what runs them.

    Args:
        parts: those of the engine. Prompts wait in the queue.

    Attributes:
        entered: numbers of rows that were queued since the last step.
        left: numbers of rows that were dropped since then.
        blocked: no prompt could be run the last time.
    """

    def __init__(self, parts: Parts) -> None:
        self._model, self._meter = model, meter = parts.model, parts.meter
        setup, emit = parts.setup, parts.emit
        sharing = setup.sharing
        self.batch = batch = Batch(
            model, emit, setup.prefixes, parts.deliver, setup.speculation, setup.runs_built, sharing
        )
        self.tower = Tower(model, setup.features)
        speculation = setup.speculation
        wanted_states = (lambda rows: 0) if speculation is None else speculation.wanted_states
        self.prefiller = Prefiller(
            model, meter, setup.prefixes, batch.wait, setup.ends_prompts, setup.costs, sharing, wanted_states
        )
        self.prompts = PromptJobs(parts.queue, self.prefiller, self.tower, emit, setup.max_rows)
        memory = setup.memory if isinstance(setup.memory, Memory) else None
        self.room = Room(batch, self.prompts, self.tower, setup.max_rows, memory, sharing)
        if sharing is not None:  # which must not hold the model by these rows
            rows = weakref.ref(self)
            sharing.others = lambda: () if (its := rows()) is None else its._sharing_prompts()
        self.entered: list[int] = []
        self.left: list[int] = []
        self.blocked = False

    def __len__(self) -> int:
        """Rows that run and wait."""
        return len(self.batch) + len(self.prompts)

    def _sharing_prompts(self) -> Iterator[Prompt]:
        """Prompts that others may share first tokens with: those of rows that run, and of jobs that have begun."""
        begun = (job.rows[0] for job in (*self.prompts.begun, *self.prompts.joining) if job.rows)
        return (row.request.prompt for row in (*self.batch.rows, *begun) if row.shares)

    def enter(self, work: GenerationRequest, sink: Sink, index: int) -> Row:
        """Make the row of a request."""
        return Row(work, sink, index, self._model)

    def add(self, entries: Sequence[Row]) -> None:
        """Queue rows; those that share a `Prompt` object are prefilled once."""
        self.batch.insert_prompts()  # for these to find
        self.prompts.add(entries)
        self.entered += [row.number for row in entries]
        self.blocked = False

    def drop(self, gone: Collection[Row]) -> None:
        """Drop rows, which may be waiting, running, or gone; no event is sent. If that fails, all that wait fail."""
        self.left += [row.number for row in gone]
        self.batch.drop(gone)
        try:
            self.prompts.drop(gone)
        except BaseException as error:
            self.prompts.fail_all(error)

    def needs(self, job: PrefillJob, digest: int) -> bool:
        """True if a job still needs the features of an item."""
        self.prefiller.estimate(job)
        return digest not in job.features and any(span.media.digest == digest for span in job.spans())

    def preempt(self, number: int) -> None:
        """Return a running row to the queue."""
        [row] = (row for row in self.batch.rows if row.number == number)
        self._meter.preempted += self._take(row)

    def restart(self) -> None:
        """Make every row read its tokens again, those that it has generated too: the model will change."""
        for row in [*self.batch.rows]:
            self._take(row)
        self.prompts.restart()

    def _take(self, row: Row) -> bool:
        """Make a running row wait, with what it has generated; False if it has ended meanwhile."""
        taken = self.batch.take(row)
        if taken:
            for recording in self._meter.recordings:
                recording.add(Moved(now(), (row.number,), joined=False))
            self.prompts.put(PrefillJob([row], row.request.prompt, row.arrival, row.output_tokens))
        return taken
