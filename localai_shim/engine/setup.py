"""Setup of an engine: what a trial of its model finds once, and what is kept from one request to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..options import EngineOptions
from ..types import log
from .costs.chunks import MIN_CHUNK_TOKENS, MIN_GPU_CHUNK_TOKENS, WATCHED_SCORES, ChunkLimit, Scores
from .costs.cost_model import CostModel, step_sizes
from .drafts.controller import Speculation, speculation_for
from .drafts.ports import Drafting
from .kv import can_batch, fits_slots, is_known
from .memory import Memory, Workspace
from .mirror import journal as mirror
from .ports import Model, host
from .prefix.cache import PrefixCache, default_budget
from .prefix.sharing import Sharing
from .probes import agreement, ends_prompts, least_shared, runs_built
from .prompts.features import FeatureCache

PREFILL_CHUNK_TOKENS = 2048
CACHE_DIR_BYTES = 10 * 2**30
TEXT_TOKENS = 16_384  # GPUs run small models no slower for more
MAX_ROWS = 64
MAX_STALL_SECONDS = 0.05
TASKS_OF_ROWS = ("generate", "transcribe")
FEATURES_SHARE = 1 / 8  # of what the prefix cache has: features take about so much of the keys and values that follow


@dataclass(frozen=True, slots=True)
class Setup:
    """Way in which a model is run, and what is kept for it from one request to the next."""

    memory: Memory | Workspace | None
    runs_built: bool = True
    ends_prompts: bool = False
    prefixes: PrefixCache | None = None
    features: FeatureCache = field(default_factory=lambda: FeatureCache(0))
    speculation: Speculation | None = None
    costs: CostModel = field(default_factory=CostModel)
    chunks: ChunkLimit = field(default_factory=lambda: ChunkLimit(PREFILL_CHUNK_TOKENS))
    max_rows: int = MAX_ROWS
    """Most rows that decode together."""
    text_tokens: int = TEXT_TOKENS
    """Most tokens of a pass of several texts, padding included."""
    max_stall: float = MAX_STALL_SECONDS
    """Seconds for which running rows wait at most for something else."""
    sharing: Sharing | None = None

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
        """Drop what was kept for a model with other weights; rows use none of it."""
        self.forget()
        if self.speculation is not None:
            self.speculation.renew()
        if self.prefixes is not None:
            self.prefixes.renew(fingerprint)

    def close(self) -> None:
        """Drop everything, and leave its share of the memory to others."""
        self.forget()
        if self.memory is not None:
            self.memory.close()


def set_up(model: Model, draft: Drafting | None, options: EngineOptions) -> Setup:
    """Try a model, measure what its rows take, lower its context to what fits, and give the prefix cache its share.

    Args:
        model: what is run; one without rows is no more than an `Encoder`.
        draft: drafts for it, if there is one.
        options: the engine's.

    Raises:
        ValueError, MemoryError: see `Memory`.
    """
    rows, stall = options.get("max_rows") or MAX_ROWS, options.get("max_stall") or MAX_STALL_SECONDS
    texts = options.get("prefill_chunk", TEXT_TOKENS)
    if not any(task in TASKS_OF_ROWS for task in model.tasks):
        chunks = ChunkLimit(options.get("prefill_chunk", PREFILL_CHUNK_TOKENS))
        workspace = Workspace(model.weight_bytes, options.get("memory_limit"))
        return Setup(workspace, chunks=chunks, max_rows=rows, text_tokens=texts, max_stall=stall)
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
    keeps = "generate" in model.tasks  # prompts of windows have only features in common, which are kept
    if keeps and is_known(model.new_cache()) and found.in_pieces:
        prefixes = _prefix_cache(model, weights, memory, options)
    wanted = options.get("vision_cache_bytes")
    features = FeatureCache(int(FEATURES_SHARE * default_budget(weights)) if wanted is None else wanted)
    groups = set() if memory is None else memory.query_groups
    jumps = {jump for group in groups for jump in host().machine.step_jumps(group)}
    costs = CostModel(sizes=step_sizes(jumps))
    speculation = speculation_for(model, draft, options, stall, costs, prefixes)
    built = mirror.journal() is None and runs_built(model)  # followers run what was built in the order of its building
    return Setup(
        memory,
        built,
        ends_prompts(model),
        prefixes,
        features,
        speculation,
        costs,
        _chunk_limit(model, options, memory),
        rows if batches and found.together else 1,
        texts,
        stall,
        _sharing(model, prefixes) if keeps and batches and found.together else None,
    )


def _sharing(model: Model, prefixes: PrefixCache | None) -> Sharing | None:
    """None: rows cannot share what their first tokens left; followers of a group of processes have copies, too."""
    least = None if mirror.journal() is not None else least_shared(model)
    return None if least is None else Sharing(prefixes, least)


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


def _plan_memory(model: Model, draft: Drafting | None, options: EngineOptions) -> Memory:
    memory = Memory(model, options.get("memory_limit"), options.get("prefill_chunk", PREFILL_CHUNK_TOKENS), draft)
    longest = memory.longest()
    if longest is not None and (model.context_length is None or longest < model.context_length):
        if model.context_length is not None:
            log.warning("there is memory for %d tokens of the context's %d", longest, model.context_length)
        model.context_length = longest
    return memory
