"""The batcher: queue, scheduler, and runners of one engine, without work at first. It is made again after an error."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ...options import EngineOptions
from ...threads.system import sleep
from ...types import Event, GenerationRequest, Sink, Task
from ..costs.chunk_limit import ChunkLimit
from ..costs.cost_model import CostModel
from ..costs.meter import Meter
from ..decode.batch import Batch
from ..drafts.controller import Speculation
from ..memory import Memory
from ..pieces import Piece, Rest, Texts
from ..ports import Model
from ..prefix.cache import PrefixCache
from ..prompts.features import FeatureCache, Tower
from ..prompts.prefill import Prefiller
from ..row import Emit, Row
from ..setup import Setup, max_rows, max_stall
from ..tickets import Entry, EntryT, Lane
from .prefill import Prefill
from .prompts import PromptJobs
from .queue import Queue
from .room import Room
from .runner import RowRunner, TextRunner
from .scheduler import Decoding, Scheduler
from .texts import PASS_TOKENS, TextJobs

_REFUSALS: dict[Task, str] = {
    "generate": "generates no text",
    "embed": "embeds no texts",
    "rerank": "ranks no documents",
}


class Rows:
    """The rows of an engine, from their arrival to their end.

    Args:
        model: runs them.
        queue: their prompts wait in it.
        emit: takes each event.
        deliver: delivers events that had better not wait until a step is over.
        max_rows: most rows that decode together.
        max_stall: seconds that prefill may take between two tokens of the running rows.
        chunks: limits of prompts' passes.
        meter: what counts.
        costs: what passes and steps take.
        prefixes: what prompts start from, and are inserted into.
        memory: the budget for rows; None: no limit is known.
        features: what keeps what the model's tower makes; None: it is kept while prompts need it.
        speculation: has drafts; None: there are none.
        runs_built: see `Batch`.
        ends_prompts: the model can give the logits of prompts' last tokens, and gives the right ones.
    """

    def __init__(
        self,
        model: Model,
        queue: Queue,
        emit: Emit,
        deliver: Callable[[], None] = lambda: None,
        *,
        max_rows: int,
        max_stall: float,
        chunks: ChunkLimit,
        meter: Meter,
        costs: CostModel,
        prefixes: PrefixCache | None = None,
        memory: Memory | None = None,
        features: FeatureCache | None = None,
        speculation: Speculation | None = None,
        runs_built: bool = True,
        ends_prompts: bool = False,
    ) -> None:
        self._model = model
        self.batch = batch = Batch(model, emit, prefixes, deliver, speculation, runs_built)
        tower = Tower(model, features or FeatureCache(0))
        prefiller = Prefiller(model, meter, prefixes, batch.wait, ends_prompts, costs)
        self.prompts = prompts = PromptJobs(queue, prefiller, tower, emit, max_rows)
        room = Room(batch, prompts, tower, max_rows, memory)
        self.prefill = Prefill(batch, prompts, room, prefiller, tower, max_stall, chunks, meter, costs)
        self.decoding = Decoding(batch, self.prefill, speculation, costs)
        self.runner = RowRunner(
            batch,
            prompts,
            prefiller,
            tower,
            room,
            emit,
            deliver,
            max_stall=max_stall,
            meter=meter,
            costs=costs,
            prefixes=prefixes,
        )

    def __len__(self) -> int:
        """Rows that run and wait."""
        return len(self.batch) + len(self.prompts)

    def enter(self, work: GenerationRequest, sink: Sink, index: int) -> Row:
        """Make the row of a request."""
        return Row(work, sink, index, self._model)

    def add(self, entries: Sequence[Row]) -> None:
        """Queue rows; those that share a `Prompt` object are prefilled once."""
        self.batch.insert_prompts()  # for these to find
        self.prompts.add(entries)
        self.prefill.added(entries)

    def drop(self, gone: Collection[Row]) -> None:
        """Drop rows, which may be waiting, running or gone; no event is sent. If that fails, all that wait fail."""
        self.prefill.left(gone)
        self.batch.drop(gone)
        try:
            self.prompts.drop(gone)
        except BaseException as error:
            self.prefill.fail(error)

    def restart(self) -> None:
        """Make every row read its tokens again, those that it has generated too: the model will change."""
        for row in [*self.batch.rows]:
            self.runner.take(row)
        self.prompts.restart()


class Batcher:
    """Runs the work of an engine, of all kinds.

    Args:
        model: what runs it; without text, it is no more than an `Encoder`.
        setup: how.
        options: the engine's.
        meter: what counts.
        engine: the one whose work it is.
        emit: takes an entry's event.
        deliver: delivers events that had better not wait until a step is over.
    """

    def __init__(
        self,
        model: Model,
        setup: Setup,
        options: EngineOptions,
        meter: Meter,
        engine: object,
        emit: Callable[[Entry, Event], None],
        deliver: Callable[[], None],
    ) -> None:
        queue, stall, costs, rows = Queue(), max_stall(options), setup.costs, None
        if "generate" in model.tasks:
            rows = Rows(
                model,
                queue,
                emit,
                deliver,
                max_rows=max_rows(options, setup),
                max_stall=stall,
                chunks=setup.chunks,
                meter=meter,
                costs=costs,
                prefixes=setup.prefixes,
                memory=setup.memory if isinstance(setup.memory, Memory) else None,
                features=setup.features,
                speculation=setup.speculation,
                runs_built=setup.runs_built,
                ends_prompts=setup.ends_prompts,
            )
        self.rows = rows
        self.texts = TextJobs(
            queue,
            emit,
            engine=engine,
            most_tokens=options.get("prefill_chunk", PASS_TOKENS),
            chunks=setup.chunks,
            max_stall=stall,
            meter=meter,
            costs=costs,
        )
        wait = (lambda: None) if rows is None else rows.batch.wait
        self._text_runner = TextRunner(model, self.texts, emit, wait, chunks=setup.chunks, meter=meter, costs=costs)
        decoding, prefill = (None, None) if rows is None else (rows.decoding, rows.prefill)
        self.scheduler = Scheduler(decoding, prefill, self.texts, meter, costs)
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
                self._run(piece)
            except BaseException as error:
                self.scheduler.failed(piece, error)

    def _run(self, piece: Piece) -> None:
        if isinstance(piece, Texts):
            self._text_runner.run(piece)
        elif isinstance(piece, Rest):
            sleep(piece.seconds)
        elif self.rows is not None:
            self.rows.runner.run(piece)

    def lane(self, task: Task) -> Lane[Any, Any]:
        """What takes a kind of work.

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

    def settle(self) -> None:
        """Finish what was launched or built for rows."""
        if self.rows is not None:
            self.rows.batch.settle()
