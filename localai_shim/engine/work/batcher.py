"""The batcher: queue, scheduler, and runners of one engine, without work at first. It is made again after an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...types import Event, Task
from ..costs.meter import Meter
from ..ports import Model
from ..setup import Setup
from .queue import Queue
from .rows import Rows
from .runner import Runner
from .scheduler import Scheduler
from .texts import TextJobs
from .tickets import Entry, EntryT, Lane

_REFUSALS: dict[Task, str] = {
    "generate": "generates no text",
    "embed": "embeds no texts",
    "rerank": "ranks no documents",
}


class Batcher:
    """Runs the work of an engine, of all kinds.

    Args:
        model: what runs it; without text, it is no more than an `Encoder`.
        setup: how.
        meter: what counts.
        engine: the one whose work it is.
        emit: takes an entry's event.
        deliver: delivers events that had better not wait until a step is over.
    """

    def __init__(
        self,
        model: Model,
        setup: Setup,
        meter: Meter,
        engine: object,
        emit: Callable[[Entry, Event], None],
        deliver: Callable[[], None],
    ) -> None:
        queue = Queue()
        self.rows = rows = Rows(model, setup, queue, meter, emit, deliver) if "generate" in model.tasks else None
        self.texts = TextJobs(queue, emit, setup, meter, engine)
        self.scheduler = Scheduler(rows, self.texts, setup, meter)
        self.runner = Runner(model, rows, self.texts, setup, meter, emit, deliver)
        # The key says what a lane takes.
        self._lanes: Mapping[Task, Lane[Any, Any]] = {
            task: rows if task == "generate" and rows is not None else self.texts for task in model.tasks
        }
        self._name = model.name

    def __len__(self) -> int:
        """Entries that run and wait."""
        return len(self.texts) + (0 if self.rows is None else len(self.rows))

    def step(self) -> None:
        """Decode one token for all rows, and deliver it; prefill or embed while the rows can wait."""
        while (piece := self.scheduler.next()) is not None:
            try:
                self.runner.run(piece)
            except BaseException as error:
                self.scheduler.failed(piece, error)

    def lane(self, task: Task) -> Lane[Any, Any]:
        """Lane of a kind of work.

        Raises:
            ValueError: nothing does.
        """
        lane = self._lanes.get(task)
        if lane is None:
            raise ValueError(f"the model '{self._name}' {_REFUSALS[task]}")
        return lane

    def by_lane(self, entries: Iterable[EntryT]) -> Mapping[Lane[Any, EntryT], list[EntryT]]:
        """Entries by what has taken them."""
        groups: dict[Lane[Any, EntryT], list[EntryT]] = {}
        for entry in entries:
            groups.setdefault(self._lanes[entry.request.task], []).append(entry)
        return groups

    def restart(self) -> None:
        """Make all work begin again, with the tokens that rows have generated."""
        if self.rows is not None:
            self.rows.restart()
        self.texts.restart()
