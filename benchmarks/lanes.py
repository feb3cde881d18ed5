"""Twenty agents under a memory limit, which share a system prompt or hold copies of it: what each does when."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from mlx.utils import tree_flatten

from localai_shim import AsyncLocalOpenAI

from .bench import Bench
from .streams import ask
from .swarm import COPIES, SHARED, Agents, client_of, copies
from .workload import Prompt

AGENTS, TOKENS, OWN_TOKENS, TURNS, NEW_TOKENS = 20, 2_000, 60, 2, 96
TOOL_SECONDS = 0.3  # of an agent's tool, between two of its calls
FITTING = 6  # agents that the memory holds with copies
WAITING, PREFILL, DECODE, TOOL = "waits", "prefill", "decode", "its tool runs"
_PHASES = {"waiting": WAITING, "between calls": TOOL, "decode": DECODE}
"""By the names in a timeline; all others are pieces of prompts."""

Span = tuple[int, str, int, int]
"""An agent, what it does, and the start and the end, in milliseconds from the first request."""


def measure(bench: Bench) -> dict[str, list[Span]]:
    """What each agent does, with copies and with sharing."""
    with client_of(bench.folder) as client:
        stats = client.stats()
    room = FITTING * 1.25 * (TOKENS + 256) * stats.kv_bytes_per_token
    weights = sum(array.nbytes for _, array in tree_flatten(bench.model.parameters()))
    limit = int(weights + room / 0.9)
    found = {}
    for kind in (COPIES, SHARED):
        with ExitStack() as stack:
            with copies() if kind == COPIES else nullcontext():
                client = stack.enter_context(client_of(bench.folder, memory_limit=limit))
            agents = Agents(bench.tokenizer, OWN_TOKENS)
            asyncio.run(_play(client, agents.take(AGENTS, TOKENS)))  # the first passes take longer
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-"))) / "run.json"
            with client.record_timeline(path):
                asyncio.run(_play(client, agents.take(AGENTS, TOKENS)))
            found[kind] = spans(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])
    return found


async def _play(client: AsyncLocalOpenAI, prompts: Sequence[Prompt]) -> None:
    await asyncio.gather(*(_agent(client, number, prompt) for number, prompt in enumerate(prompts)))


async def _agent(client: AsyncLocalOpenAI, number: int, prompt: Prompt) -> None:
    """Call the model, run a tool, and call it again with the answer."""
    messages: list[Any] = [*prompt.messages]
    for turn in range(TURNS):
        if turn:
            await asyncio.sleep(TOOL_SECONDS)
        answer = await ask(client, messages, NEW_TOKENS, prompt_cache_key=f"agent {number}")
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "Go on."}]


def spans(events: Sequence[Mapping[str, Any]]) -> list[Span]:
    """What a trace says of agents, the one that came first at the top."""
    lanes = [event["tid"] for event in events if event["name"] == "thread_name" and "agent" in event["args"]["name"]]
    first = min(event["ts"] for event in events if event["ph"] == "X" and event["tid"] in lanes)
    return list(_merged((lanes.index(e["tid"]), e, first) for e in events if e["ph"] == "X" and e["tid"] in lanes))


def _merged(found: Iterator[tuple[int, Mapping[str, Any], float]]) -> Iterator[Span]:
    """Spans of phases, of which several that follow each other are one. A call's own span is left out."""
    last: Span | None = None
    for agent, event, first in found:
        if event["name"].startswith("agent"):
            continue
        name = _PHASES.get(event["name"], PREFILL)
        start, end = (round((at - first) / 1e3) for at in (event["ts"], event["ts"] + event["dur"]))
        if last is not None and last[:2] == (agent, name) and start - last[3] <= 100:
            last = (agent, name, last[2], end)
            continue
        if last is not None:
            yield last
        last = (agent, name, start, end)
    if last is not None:
        yield last
