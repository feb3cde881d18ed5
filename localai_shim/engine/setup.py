"""Parts of an engine: what a trial of its model finds once, and the runners, which are made afresh after an error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..options import EngineOptions
from ..threads.system import sleep
from ..types import Event, Task
from .costs.chunk_limit import MIN_CHUNK_TOKENS, MIN_GPU_CHUNK_TOKENS, WATCHED_SCORES, ChunkLimit, Scores
from .costs.cost_model import CostModel, step_sizes
from .costs.meter import Meter
from .decode.batch import Batch
from .drafts.controller import Speculation, speculation_for
from .kv import can_batch, fits_slots, is_known
from .memory import Memory, Workspace
from .mirror import journal as mirror
from .plan.planner import Planner
from .plan.prompt_runner import PromptRunner
from .plan.rows import Rows
from .ports import Model, host
from .prefix.cache import PrefixCache, default_budget
from .probes import agreement, ends_prompts, runs_built
from .prompts.features import FeatureCache
from .step_plan import Texts
from .texts.lane import PASS_TOKENS, EmbeddingLane
from .tickets import Entry, EntryT, Runner

log = logging.getLogger("localai_shim")

PREFILL_CHUNK_TOKENS = 2048
CACHE_DIR_BYTES = 10 * 2**30
MAX_ROWS = 64
MAX_STALL_SECONDS = 0.05
FEATURES_SHARE = 1 / 8  # of what the prefix cache has: features take about so much of the keys and values that follow

_REFUSALS: dict[Task, str] = {
    "generate": "generates no text",
    "embed": "embeds no texts",
    "rerank": "ranks no documents",
}


# -- found once -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setup:
    """Way in which a model is run, and what is kept for it from one request to the next."""

    memory: Memory | Workspace | None
    together: bool = True
    """Its rows share passes."""
    runs_built: bool = True
    ends_prompts: bool = False
    prefixes: PrefixCache | None = None
    features: FeatureCache = field(default_factory=lambda: FeatureCache(0))
    speculation: Speculation | None = None
    costs: CostModel = field(default_factory=CostModel)
    chunks: ChunkLimit = field(default_factory=lambda: ChunkLimit(PREFILL_CHUNK_TOKENS))

    def forget(self) -> None:
        """Drop what was kept of rows that have all failed."""
        self.features.clear()
        if self.speculation is not None:
            self.speculation.keep(())  # rows hold the model that drafts, and it them

    def halve_passes(self, name: str) -> None:
        """Halve all later passes of a model of this name: the GPU has stopped one that took too long."""
        if self.chunks.halve():
            log.warning(
                "the GPU stopped a pass of '%s' that took too long: passes have at most %d prompt tokens from now on",
                name,
                self.chunks.tokens(),
            )
        else:
            log.warning("the GPU stopped a pass of '%s' that took too long, and passes cannot be smaller", name)

    def renew(self, fingerprint: str) -> None:
        """Drop what was kept for a model that has other weights now; rows use none of it."""
        self.forget()
        if self.prefixes is not None:
            self.prefixes.renew(fingerprint)

    def close(self) -> None:
        """Drop everything, and leave its share of the memory to others."""
        self.forget()
        if self.memory is not None:
            self.memory.close()


def set_up(model: Model, draft: Model | None, options: EngineOptions) -> Setup:
    """Try a model, measure what its rows take, lower its context to what fits, and give the prefix cache its share.

    Args:
        model: what is run; one that generates no text is no more than an `Encoder`.
        draft: drafts for it, if there is one.
        options: the engine's.

    Raises:
        ValueError, MemoryError: see `Memory`.
    """
    if "generate" not in model.tasks:
        chunks = ChunkLimit(options.get("prefill_chunk", PREFILL_CHUNK_TOKENS))
        return Setup(Workspace(model.weight_bytes, options.get("memory_limit")), chunks=chunks)
    found = agreement(model)
    batches = can_batch(model.new_cache())
    if batches and not found.together:
        log.warning("this model's code gives wrong results for several rows at once: it runs one row at a time")
    if not found.in_pieces:
        log.warning("this model's code gives other results when a prompt is run in pieces: no prompt is reused")
    weights = model.weight_bytes + (0 if draft is None else draft.weight_bytes)
    memory = prefixes = None
    if fits_slots(model.new_cache()):
        memory = _plan_memory(model, draft, options)
    if is_known(model.new_cache()) and found.in_pieces:
        prefixes = _prefix_cache(model, weights, memory, options)
    wanted = options.get("vision_cache_bytes")
    features = FeatureCache(int(FEATURES_SHARE * default_budget(weights)) if wanted is None else wanted)
    groups = set() if memory is None else memory.query_groups
    jumps = {jump for group in groups for jump in host().machine.attention_jumps(group)}
    costs = CostModel(sizes=step_sizes(jumps))
    speculation = speculation_for(model, draft, options, max_stall(options), costs)
    built = mirror.journal() is None and runs_built(model)  # followers run what was built in the order of its building
    return Setup(
        memory,
        batches and found.together,
        built,
        ends_prompts(model),
        prefixes,
        features,
        speculation,
        costs,
        _chunk_limit(model, options, memory),
    )


def _prefix_cache(model: Model, weights: int, memory: Memory | None, options: EngineOptions) -> PrefixCache | None:
    """None: it may hold nothing."""
    wanted = options.get("prefix_cache_bytes")
    budget = default_budget(weights if memory is None else memory.weights) if wanted is None else wanted
    if memory is not None:
        budget = min(budget, memory.budget)
    if budget <= 0:
        return None
    most_bytes = options.get("cache_dir_bytes", CACHE_DIR_BYTES)
    return PrefixCache(model.new_cache(), model.fingerprint, budget, options.get("cache_dir"), most_bytes)


def _chunk_limit(model: Model, options: EngineOptions, memory: Memory | None) -> ChunkLimit:
    scores = [Scores(lambda: WATCHED_SCORES, model.query_heads)] if host().machine.is_watched() else []
    if memory is not None:
        scores += [Scores(lambda: memory.scores, score, window) for score, window in memory.unfused]
    least = MIN_GPU_CHUNK_TOKENS if model.samples_on_device else MIN_CHUNK_TOKENS
    return ChunkLimit(options.get("prefill_chunk", PREFILL_CHUNK_TOKENS), least, scores)


def _plan_memory(model: Model, draft: Model | None, options: EngineOptions) -> Memory:
    memory = Memory(model, options.get("memory_limit"), options.get("prefill_chunk", PREFILL_CHUNK_TOKENS), draft)
    longest = memory.longest()
    if longest is not None and (model.context_length is None or longest < model.context_length):
        if model.context_length is not None:
            log.warning("there is memory for %d tokens of the context's %d", longest, model.context_length)
        model.context_length = longest
    return memory


def max_rows(options: EngineOptions, setup: Setup | None) -> int:
    """Most rows that decode together."""
    return (options.get("max_rows") or MAX_ROWS) if setup is None or setup.together else 1


def max_stall(options: EngineOptions) -> float:
    """Seconds for which running rows wait at most for something else."""
    return options.get("max_stall") or MAX_STALL_SECONDS


# -- made afresh after an error -------------------------------------------------------------------------------------


class Parts:
    """Runners of an engine's work, which have none at first, by the kind of work.

    Args:
        model: what they run; without text, it is no more than an `Encoder`.
        setup: how.
        options: the engine's.
        meter: what counts.
        engine: the one whose parts they are.
        emit: takes an entry's event.
        deliver: has events delivered that had better not wait until a step is over.
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
        self.rows: Rows | None = None
        stall, costs = max_stall(options), setup.costs
        batch = prompts = None
        if "generate" in model.tasks:
            batch = Batch(model, emit, setup.prefixes, deliver, setup.speculation, setup.runs_built)
            prompts = PromptRunner(
                model,
                batch,
                emit,
                max_rows=max_rows(options, setup),
                max_stall=stall,
                ends_prompts=setup.ends_prompts,
                chunks=setup.chunks,
                meter=meter,
                costs=costs,
                prefixes=setup.prefixes,
                memory=setup.memory if isinstance(setup.memory, Memory) else None,
                features=setup.features,
            )
        wait = (lambda: None) if batch is None else batch.wait
        most = options.get("prefill_chunk", PASS_TOKENS)
        self.lane = EmbeddingLane(
            model,
            emit,
            wait,
            engine=engine,
            most_tokens=most,
            chunks=setup.chunks,
            max_stall=stall,
            meter=meter,
            costs=costs,
        )
        self.planner = Planner(batch, prompts, self.lane, setup.speculation, costs)
        if batch is not None and prompts is not None:
            self.rows = Rows(model, batch, prompts, self.planner)
        # The key says what a runner takes.
        self._runners: Mapping[Task, Runner[Any, Any]] = {
            task: self.rows if task == "generate" and self.rows is not None else self.lane for task in model.tasks
        }
        self._name, self._meter, self._costs, self._deliver = model.name, meter, costs, deliver

    def __len__(self) -> int:
        """Entries that run and wait."""
        return len(self.lane) + (0 if self.rows is None else len(self.rows))

    @property
    def running(self) -> int:
        """Rows that decode."""
        return 0 if self.rows is None else len(self.rows.batch)

    def runner(self, task: Task) -> Runner[Any, Any]:
        """Runner of a kind of work.

        Raises:
            ValueError: nobody does.
        """
        runner = self._runners.get(task)
        if runner is None:
            raise ValueError(f"the model '{self._name}' {_REFUSALS[task]}")
        return runner

    def by_runner(self, entries: Iterable[EntryT]) -> Mapping[Runner[Any, EntryT], list[EntryT]]:
        """Entries by who runs them."""
        groups: dict[Runner[Any, EntryT], list[EntryT]] = {}
        for entry in entries:
            groups.setdefault(self._runners[entry.request.task], []).append(entry)
        return groups

    def restart(self) -> None:
        """Have all work begin again, with the tokens that rows have generated."""
        if self.rows is not None:
            self.rows.restart()
        self.lane.restart()

    def settle(self) -> None:
        """Finish what was launched or built for rows."""
        if self.rows is not None:
            self.rows.batch.settle()

    def step(self) -> None:
        """Decode one token for all rows, and deliver it; prefill or embed while the rows can wait."""
        if self.rows is not None and (running := self.running):
            watch = self._costs.start()
            self.rows.decode()
            self._deliver()
            seconds = watch.seconds
            self._meter.stepped(seconds, running)
            self.lane.stepped(seconds)
        idle = not self.running
        for piece in self.planner.beside():
            idle = False
            if isinstance(piece, Texts):
                self.lane.run(piece)
            elif self.rows is not None and not self.rows.prompts.run(piece):
                break
        self.planner.end()
        self.lane.note_rows(bool(self.running))
        if idle:
            sleep(self.lane.pause)
