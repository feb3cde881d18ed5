"""The batcher: queue, scheduler, and runners of one engine, without work at first. It is made again after an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ...threads.system import sleep
from ...types import Event, Task
from ..costs.cost_model import Meter
from ..pieces import Pass, Piece, Rest
from ..ports import Model
from ..setup import Setup
from .alone.jobs import Alone, AloneRunner
from .lane import AnyLane, Entry, Kind, Parts, Runner, Share
from .recorder import Recorder
from .rows import Rows
from .runner import RowRunner, TextRunner
from .scheduler import Scheduler
from .texts import TextJobs

KINDS: dict[Task, Kind] = {
    "generate": Kind("generates no text", Rows, RowRunner),
    "embed": Kind("embeds no texts", TextJobs, TextRunner),
    "rerank": Kind("ranks no documents", TextJobs, TextRunner),
    "transcribe": Kind("transcribes no speech", Rows, RowRunner),
    "align": Kind("aligns no words with speech", Alone, AloneRunner),
    "speak": Kind("speaks no texts", Alone, AloneRunner),
    "recognize": Kind("writes down no speech", Alone, AloneRunner),
}
"""The kinds of work that an engine runs: one entry for each."""


class Batcher:
    """Runs the work of an engine, of all kinds that its model serves.

    Args:
        model: what runs it; without text, it is no more than an `Encoder`.
        setup: how.
        meter: what counts.
        engine: the one whose work it is.
        emit: takes an entry's event.
        deliver: delivers events that had better not wait until a step is over.

    Attributes:
        rows: the lane of what generates text, whose decode steps come first; None: the model generates none.
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
        self._share, self._name, self._meter = Share(engine, setup.costs, meter), model.name, meter
        parts = Parts(model, setup, meter, self._share, emit, deliver)
        lanes: dict[Any, Any] = {}
        self._runners: dict[type[Piece], Runner] = {}
        for kind in (KINDS[task] for task in model.tasks):
            if kind.lane not in lanes:
                lane = lanes[kind.lane] = kind.lane(parts)
                runner = kind.runner(lane, parts)
                self._runners |= dict.fromkeys(runner.pieces, runner)
        self._lanes: Mapping[Task, AnyLane] = {task: lanes[KINDS[task].lane] for task in model.tasks}
        self._all = [*lanes.values()]
        self.rows: Rows | None = lanes.pop(Rows, None)
        self.scheduler = Scheduler(self.rows, [*lanes.values()], parts)
        self._recorder = Recorder(self.rows, setup, meter)

    def __len__(self) -> int:
        """Entries that run and wait."""
        return sum(map(len, self._all))

    def step(self) -> None:
        """Decode one token for all rows, and deliver it; prefill or run a pass while the rows can wait."""
        run = partial(self._recorder.run, run=self._run) if self._meter.recordings else self._run
        while (piece := self.scheduler.next()) is not None:
            try:
                run(piece)
            except BaseException as error:
                self.scheduler.failed(piece, error)
        self.record_level()

    def record_level(self) -> None:
        """Record how many rows there are, and the bytes of the caches, if anything is recorded."""
        if self._meter.recordings:
            self._recorder.note_level(len(self))

    def _run(self, piece: Piece) -> None:
        if isinstance(piece, Rest):
            sleep(piece.seconds)
            return
        if self.rows is not None and isinstance(piece, Pass):
            self.rows.batch.wait()
        self._runners[type(piece)].run(piece)

    def lane(self, task: Task) -> AnyLane:
        """Lane of a kind of work.

        Raises:
            ValueError: the model does not serve it.
        """
        lane = self._lanes.get(task)
        if lane is None:
            raise ValueError(f"the model '{self._name}' {KINDS[task].refusal}")
        return lane

    def by_lane(self, entries: Iterable[Entry]) -> Mapping[AnyLane, list[Entry]]:
        """Entries by what has taken them."""
        groups: dict[AnyLane, list[Entry]] = {}
        for entry in entries:
            groups.setdefault(self._lanes[entry.request.task], []).append(entry)
        return groups

    def restart(self) -> None:
        """Make all work begin again, with the tokens that rows have generated."""
        for lane in self._all:
            lane.restart()

    def close(self) -> None:
        """The engine has no work any more."""
        self._share.close()
