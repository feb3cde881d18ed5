"""Agents with a common beginning: bytes of their keys and values, decode rate, first tokens, and peak memory."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx

from localai_shim import AsyncLocalOpenAI
from localai_shim.engine import setup
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.kv.slots import capacity_for, slots_for
from localai_shim.models.loading import load_model
from localai_shim.models.text import TextModel

from . import gpu, streams
from .bench import Bench
from .figures import Figure, Section, print_figures, print_table
from .timeline import Run, StreamTimes
from .workload import GREEDY, Prompt, Prompts, common_length, render

SHORT, SHARED, COPIES = "short prompts", "shared", "copies"
AGENTS, TOKENS = 16, 2_000
OWN_TOKENS, NEW_TOKENS, CHOICE_TOKENS = 100, 128, 230  # a row's own ones fill nine tenths of a slot of 256 tokens
BYTES_TARGET, RATE_TARGET = 1.15, 1.0
GPU_CASES, GPU_OWN_TOKENS, GPU_NEW_TOKENS = ((16, 8_000), (24, 16_000)), 32, 256
TINY_CASES, TINY_NEW_TOKENS = ((4, 300), (6, 600)), 24  # for a CPU, where they show that it works
GPU_RUN_TARGET, GPU_RATE_TARGET, GPU_PEAK_TARGET = 1.6, 0.85, 32e9
_LOOK_SECONDS = 0.02
_setup: Any = setup  # whose names are not all public


@dataclass(slots=True)
class Swarm:
    """One run of agents, or of several answers to one prompt."""

    agents: int
    shared: int
    """Tokens that all their prompts begin with."""
    seconds: float
    """From the first request to the last token."""
    first_token: float
    """Median seconds to an agent's first token."""
    rate: float
    """Tokens per second of all agents while all run; 0 if that was too short to tell."""
    kv_bytes: int
    """Most bytes of the running rows' caches, shared ones included."""
    unique_bytes: int
    """Bytes of all tokens that differ, each counted once."""
    slot_bytes: int
    """The same if each row's own tokens take a whole slot, which has places for a multiple of 256."""
    peak: int
    """Most bytes that MLX held, weights included, less those that the prefix cache had before the run: if it drops some
    of these during the run, the true peak of a client that has just started is higher by as many."""


@contextmanager
def copies() -> Iterator[None]:
    """Models that are loaded meanwhile run rows that hold copies of what they share."""
    before, _setup._sharing = _setup._sharing, lambda model, prefixes: None
    try:
        yield
    finally:
        _setup._sharing = before


class Agents:
    """Makes prompts that have not been asked before.

    Args:
        tokenizer: mlx-lm's wrapper.
        own: tokens of each agent's question.
    """

    def __init__(self, tokenizer: Any, own: int) -> None:
        self._tokenizer, self._own, self._words = tokenizer, own, Prompts(tokenizer, own + 32, seed=21)

    def take(self, agents: int, shared: int) -> list[Prompt]:
        """Prompts that begin with this number of equal tokens; 0: with the template's."""
        system = self._words.words(shared) + "\n" if shared else ""
        texts = [system + self._words.words(self._own) for _ in range(agents)]
        return [Prompt(text, tuple(render(self._tokenizer, [{"role": "user", "content": text}]))) for text in texts]


def run(client: AsyncLocalOpenAI, prompts: Sequence[Prompt], new_tokens: int) -> Swarm:
    """Run agents together."""
    first, common = prompts[0].tokens, len(prompts[0].tokens)
    for prompt in prompts[1:]:
        common = min(common, common_length(first, prompt.tokens))
    own = [len(prompt.tokens) - common + new_tokens for prompt in prompts]
    settings = [GREEDY] * len(prompts)
    return _watched(client, lambda: streams.run(client, "bench", prompts, settings, new_tokens), common, own)


def run_choices(client: AsyncLocalOpenAI, prompt: Prompt, count: int, new_tokens: int) -> Swarm:
    """Run one request for several answers."""
    own = [new_tokens] * count
    return _watched(client, lambda: asyncio.run(_choices(client, prompt, count, new_tokens)), len(prompt.tokens), own)


async def _choices(client: AsyncLocalOpenAI, prompt: Prompt, count: int, new_tokens: int) -> Run:
    started = time.perf_counter()
    made = [StreamTimes(started, tokens=new_tokens, prompt_tokens=len(prompt.tokens)) for _ in range(count)]
    stream = await client.chat.completions.create(
        model="bench", messages=prompt.messages, max_tokens=new_tokens, n=count, stream=True, **GREEDY.fields()
    )
    async for chunk in stream:
        for choice in chunk.choices:
            if choice.delta.content:
                made[choice.index].times.append(time.perf_counter())
    return Run(made)


def _watched(client: AsyncLocalOpenAI, play: Callable[[], Run], common: int, own: Sequence[int]) -> Swarm:
    """Play a run, and look at the client's memory meanwhile."""
    most, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_SECONDS):
            most[0] = max(most[0], client.stats().kv_bytes)

    before, per_token = client.stats().cache_bytes, client.stats().kv_bytes_per_token
    mx.reset_peak_memory()
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        made = play()
    finally:
        ended.set()
        watcher.join()
    first = median(made.first_token_seconds())
    unique = (common + sum(own)) * per_token
    whole = (common + slots_for(len(own)) * capacity_for(max(own))) * per_token
    peak = mx.get_peak_memory() - before
    return Swarm(len(own), common, made.seconds, first, made.decode_rate, most[0], unique, whole, peak)


Runs = dict[str, list[Swarm]]
"""By kind: in turns, so that those of one number belong together."""


def _in_turns(kinds: dict[str, Callable[[], Swarm]], repeats: int) -> Runs:
    """Run each kind in turn; the first run of each does not count."""
    found: Runs = {kind: [] for kind in kinds}
    for number in range(repeats + 1):
        for kind, play in kinds.items():
            swarm = play()
            if number:
                found[kind].append(swarm)
    return found


def _ratios(runs: Runs, kind: str, other: str, of: Callable[[Swarm], float]) -> list[float]:
    """Run by run, of those that could be measured."""
    pairs = [(of(a), of(b)) for a, b in zip(runs[kind], runs[other], strict=True)]
    return [a / b for a, b in pairs if a and b]


def _print(cases: dict[str, Runs]) -> None:
    """A line for each kind of run: medians."""
    head = ["medians", "run", "first token", "decode", "KV", "KV / unique", "KV / whole slots", "peak"]
    rows = []
    for case, runs in cases.items():
        for kind, its in runs.items():
            kv, unique, slots = (
                median(getattr(swarm, name) for swarm in its) for name in ("kv_bytes", "unique_bytes", "slot_bytes")
            )
            run_seconds, first = median(s.seconds for s in its), median(s.first_token for s in its)
            rate, peak = median(s.rate for s in its), median(s.peak for s in its)
            row = [
                f"{case}, {kind}",
                f"{run_seconds:.2f} s",
                f"{first:.2f} s",
                f"{rate:.0f} tok/s",
                f"{kv / 1e6:.0f} MB",
            ]
            rows.append([*row, f"{kv / unique:.2f}", f"{kv / slots:.2f}", f"{peak / 1e9:.2f} GB"])
    print_table(head, rows)


def _raw(cases: dict[str, Runs]) -> dict[str, Any]:
    return {
        case: {kind: [asdict(swarm) for swarm in its] for kind, its in runs.items()} for case, runs in cases.items()
    }


# -- on a CPU ----------------------------------------------------------------------------------------------------------


def measure(bench: Bench) -> Section:
    """The part `swarm`: agents over one prompt, and answers to one prompt, with sharing and with copies in turns."""
    agents = Agents(bench.tokenizer, OWN_TOKENS)
    with _clients(bench) as clients:
        plays: dict[str, Callable[[AsyncLocalOpenAI], Swarm]] = {
            f"{AGENTS} agents": lambda client: run(client, agents.take(AGENTS, TOKENS), NEW_TOKENS),
            f"n={AGENTS}": lambda client: run_choices(client, agents.take(1, TOKENS)[0], AGENTS, CHOICE_TOKENS),
        }
        cases = {
            f"{name}, {TOKENS:,} tokens": _in_turns(_played(clients, play), bench.repeats)
            for name, play in plays.items()
        }
    _print(cases)
    section = Section(raw=_raw(cases))
    for case, runs in cases.items():
        kept = [swarm.kv_bytes / swarm.unique_bytes for swarm in runs[SHARED]]
        rate = _ratios(runs, SHARED, COPIES, lambda swarm: swarm.rate)
        name = f"swarm: {case}"
        section.figures.append(Figure(f"{name}, KV bytes / unique bytes", kept, BYTES_TARGET, at_least=False))
        section.figures.append(Figure(f"{name}, decode with sharing / with copies", rate, RATE_TARGET))
    print_figures(section.figures)
    return section


def compare(bench: Bench, count: int) -> Runs:
    """Agents over one prompt, with sharing and with copies in turns."""
    agents = Agents(bench.tokenizer, OWN_TOKENS)
    with _clients(bench) as clients:
        return _in_turns(
            _played(clients, lambda client: run(client, agents.take(count, TOKENS), NEW_TOKENS)), bench.repeats
        )


@contextmanager
def _clients(bench: Bench) -> Iterator[dict[str, AsyncLocalOpenAI]]:
    """A client whose rows share, and one whose rows hold copies."""
    with ExitStack() as stack:
        shared = stack.enter_context(client_of(bench.folder))
        with copies():
            yield {SHARED: shared, COPIES: stack.enter_context(client_of(bench.folder))}


def _played(
    clients: dict[str, AsyncLocalOpenAI], play: Callable[[AsyncLocalOpenAI], Swarm]
) -> dict[str, Callable[[], Swarm]]:
    return {kind: partial(play, client) for kind, client in clients.items()}


@contextmanager
def client_of(folder: Path, **options: Any) -> Iterator[AsyncLocalOpenAI]:
    """A client with its own engine: clients with equal options would share one."""

    def load() -> TextModel:
        model = load_model(str(folder), {})
        assert isinstance(model, TextModel)
        return model

    engine = Engine(load, EngineOptions(speculation="off", **options))  # steps of one token
    try:
        engine.wait()
        yield AsyncLocalOpenAI(engine=engine)
    finally:
        engine.close()


# -- on a GPU ----------------------------------------------------------------------------------------------------------


def measure_gpu(name: str, repeats: int, quick: bool) -> Section:
    """Agents with shared prompts, and with short ones, in turns: an 8B-shaped model in bfloat16.

    Args:
        name: one of `gpu.SIZES`; the 8B shape is measured on a GPU only, others get prompts that a CPU can run.
        repeats: runs of each kind.
        quick: shorter answers.
    """
    if name == "8b" and mx.default_device() != mx.Device(mx.gpu):
        print("There is no GPU here; --gpu-size runs another shape on the CPU.")
        return Section()
    sizes, new_tokens = (GPU_CASES, GPU_NEW_TOKENS) if name == "8b" else (TINY_CASES, TINY_NEW_TOKENS)
    new_tokens = min(64, new_tokens) if quick else new_tokens
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as root:
        model, tokenizer, config = gpu.make(Path(root), gpu.SIZES[name])
        agents = Agents(tokenizer, GPU_OWN_TOKENS)
        with gpu.client(Path(root), model, tokenizer, config, None) as client:

            def kinds(count: int, shared: int) -> dict[str, Callable[[], Swarm]]:
                return {
                    SHORT: lambda: run(client, agents.take(count, 0), new_tokens),
                    SHARED: lambda: run(client, agents.take(count, shared), new_tokens),
                }

            cases = {f"{n} x {shared:,}": _in_turns(kinds(n, shared), repeats) for n, shared in sizes}
    _print(cases)
    section = Section(_gpu_figures(cases), _raw(cases))
    print_figures(section.figures)
    return section


def _gpu_figures(cases: dict[str, Runs]) -> list[Figure]:
    """The first case has a target for its rate, the second one for the time and the peak memory."""
    figures = []
    for number, (case, runs) in enumerate(cases.items()):
        name, last = f"gpu swarm, {case}", number == len(cases) - 1
        seconds = _ratios(runs, SHARED, SHORT, lambda swarm: swarm.seconds)
        rate = _ratios(runs, SHARED, SHORT, lambda swarm: swarm.rate)
        kept = [swarm.kv_bytes / swarm.unique_bytes for swarm in runs[SHARED]]
        peak = [float(swarm.peak) for swarm in runs[SHARED]]
        figures += [
            Figure(f"{name}: run / with short prompts", seconds, GPU_RUN_TARGET if last else None, at_least=False),
            Figure(f"{name}: decode / of short prompts", rate, None if last else GPU_RATE_TARGET),
            Figure(f"{name}: KV bytes / unique bytes", kept, None, at_least=False),
            Figure(
                f"{name}: peak memory", peak, GPU_PEAK_TARGET if last else None, at_least=False, unit=" GB", scale=1e-9
            ),
        ]
    return figures
