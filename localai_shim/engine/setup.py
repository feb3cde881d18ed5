"""Trials of a model before its first request: which rows may share a pass, and the memory for them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..options import EngineOptions
from .kv import can_batch, fits_slots
from .memory import Memory
from .ports import Model
from .prefix.cache import PrefixCache, default_budget
from .probes import agreement, ends_prompts, runs_built

log = logging.getLogger("localai_shim")

PREFILL_CHUNK_TOKENS = 2048
CACHE_DIR_BYTES = 10 * 2**30


@dataclass(frozen=True, slots=True)
class Setup:
    """Way in which a model that generates text is run."""

    together: bool
    """Its rows share passes."""
    runs_built: bool
    ends_prompts: bool
    memory: Memory | None
    prefixes: PrefixCache | None


def set_up(model: Model, draft: Model | None, options: EngineOptions) -> Setup:
    """Try a model, measure what its rows take, lower its context to what fits, and give the prefix cache its share.

    Raises:
        ValueError, MemoryError: see `Memory`.
    """
    found = agreement(model)
    if can_batch(model.new_cache()) and not found.together:
        log.warning("this model's code gives wrong results for several rows at once: it runs one row at a time")
    if not found.in_pieces:
        log.warning("this model's code gives other results when a prompt is run in pieces: no prompt is reused")
    memory = prefixes = None
    if fits_slots(model.new_cache()):
        memory = _plan_memory(model, draft, options)
        wanted = options.get("prefix_cache_bytes")
        budget = min(default_budget(memory.weights) if wanted is None else wanted, memory.budget)
        if budget > 0 and found.in_pieces:
            row, folder = model.new_cache(), options.get("cache_dir")
            most_bytes = options.get("cache_dir_bytes", CACHE_DIR_BYTES)
            prefixes = PrefixCache(row, model.fingerprint, budget, folder, most_bytes)
    return Setup(found.together, runs_built(model), ends_prompts(model), memory, prefixes)


def _plan_memory(model: Model, draft: Model | None, options: EngineOptions) -> Memory:
    memory = Memory(model, options.get("memory_limit"), options.get("prefill_chunk", PREFILL_CHUNK_TOKENS), draft)
    longest = memory.longest()
    if longest is not None and (model.context_length is None or longest < model.context_length):
        if model.context_length is not None:
            log.warning("there is memory for %d tokens of the context's %d", longest, model.context_length)
        model.context_length = longest
    return memory
