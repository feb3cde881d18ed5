"""The parts that run rows: the scheduler, which prefills their prompts, and the batch, which decodes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...types import GenerationRequest, Sink
from ..decode.batch import Batch
from ..ports import Model
from ..row import Row
from .scheduler import Scheduler


class Rows:
    """Runs the rows of an engine.

    Args:
        model: what they run on.
        batch: decodes them.
        scheduler: prefills their prompts, and has them join that batch.
    """

    def __init__(self, model: Model, batch: Batch, scheduler: Scheduler) -> None:
        self._model, self.batch, self.scheduler = model, batch, scheduler

    def __len__(self) -> int:
        """Rows that run and wait."""
        return len(self.batch) + len(self.scheduler)

    @property
    def priority(self) -> int | None:
        """Of the most urgent prompts that wait; None: there are none."""
        try:
            return self.scheduler.priority if self.scheduler else None
        except BaseException as error:
            self.scheduler.fail(error)
            return None

    def enter(self, work: GenerationRequest, sink: Sink, index: int) -> Row:
        """Make the row of a request."""
        return Row(work, sink, index, self._model)

    def add(self, entries: Sequence[Row]) -> None:
        """Queue rows; those that share a `Prompt` object are prefilled once."""
        self.scheduler.add(entries)

    def drop(self, gone: Collection[Row]) -> None:
        """Drop rows, which may be waiting, running or gone; no event is sent. Where that fails, all that wait fail."""
        self.batch.drop(gone)
        try:
            self.scheduler.drop(gone)
        except BaseException as error:
            self.scheduler.fail(error)

    def decode(self) -> None:
        """Give every running row its next token."""
        self.scheduler.make_room()
        self.batch.step(ahead=not self.scheduler.will_prefill)
