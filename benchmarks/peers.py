"""Streams that repeat a text: this package, and mlx-lm's and mlx-vlm's servers with what they have for that."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai

from localai_shim import AsyncLocalOpenAI
from localai_shim.builtin import CHECKPOINT
from tests.drafting import split

from .bench import Bench
from .figures import Figure, Section, print_figures, ratios, spread
from .servers import ServerError, started
from .timeline import Run, StreamTimes

STREAMS, NEW_TOKENS = 8, 160
DRAFT_LAYERS = 2  # of the shipped checkpoint's 6
PEOPLE = ("Anna", "Tom", "the baker", "my sister", "an old sailor", "the teacher", "Maria", "a young dog")
PLACES = ("by the river", "in the garden", "at the station", "under the bridge", "near the school")

Runs = list[Run]
Ask = Callable[[], Run]


def texts() -> list[str]:
    """A text for each stream."""
    return [
        " ".join(
            f"{who} was {PLACES[(i + j) % len(PLACES)]} on day {10 * i + j} and saw {j + 2} birds." for j in range(6)
        )
        for i, who in enumerate(PEOPLE)
    ]


def measure(bench: Bench) -> Section:
    """Whole runs, all in turns with each server while that runs."""
    section = Section()
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        whole, small = split(CHECKPOINT, Path(folder), DRAFT_LAYERS, share=1.0)
        servers: dict[str, tuple[str, tuple[str, ...]]] = {
            "mlx_lm.server": ("mlx_lm", ()),
            f"mlx_lm.server, draft model of {DRAFT_LAYERS} layers": ("mlx_lm", ("--draft-model", str(small))),
            "mlx_lm.server, itself as draft model": ("mlx_lm", ("--draft-model", str(whole))),
            "mlx_vlm.server": ("mlx_vlm", ()),  # its drafters are of kinds that this model has none of
        }
        ours = _Ours()
        for name, (server, options) in servers.items():
            try:
                with started(server, whole, *options) as answers:
                    model = answers.model
                    found = _in_turns(ours, lambda: _run_server(answers.url, model), bench.repeats)  # noqa: B023
            except (ServerError, openai.OpenAIError, RuntimeError) as error:
                section.figures.append(Figure(f"peers: {name}", [], None, note=f"not measured: {error}"))
                continue
            rates = {who: [run.whole_rate for run in runs] for who, runs in found.items()}
            section.raw[name] = rates
            print(f"beside {name}: " + "; ".join(f"{who} {spread(r, digits=0)} tok/s" for who, r in rates.items()))
            section.figures += [
                Figure(f"peers: {who}, {STREAMS} streams, whole run tok/s / {name}", ratios(r, rates["server"]), None)
                for who, r in rates.items()
                if who != "server"
            ]
        ours.close()
    print(flush=True)
    print_figures(section.figures)
    return section


class _Ours:
    """Two engines, one of which runs drafts."""

    def __init__(self) -> None:
        with ExitStack() as stack:
            self._off, self._auto = (
                AsyncLocalOpenAI(model=CHECKPOINT, speculation=mode, keep_alive=0)  # type: ignore[arg-type]
                for mode in ("off", "auto")
            )
            stack.pop_all()
        self._said = [text for _, text in asyncio.run(_streams(self._off, "bench", _asked()))]
        self.asks: dict[str, Ask] = {
            "one token per step": lambda: _run(self._off, _asked()),
            "auto": lambda: _run(self._auto, _asked()),
            "auto with predictions": lambda: _run(self._auto, _asked(self._said)),
        }

    def close(self) -> None:
        print(f"drafts: {self._auto.stats().drafts}")
        for client in (self._off, self._auto):
            asyncio.run(client.close())


def _in_turns(ours: _Ours, server: Ask, repeats: int) -> dict[str, Runs]:
    """Runs of each, the first one of each left out."""
    asks = {**ours.asks, "server": server}
    found: dict[str, Runs] = {who: [] for who in asks}
    for number in range(repeats + 1):
        for who, ask in asks.items():
            run = ask()
            if number:
                found[who].append(run)
    return found


def _asked(predictions: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Arguments of each request."""
    made: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": f"Repeat after me: {text}"}]} for text in texts()
    ]
    for fields, text in zip(made, predictions or (), strict=False):
        fields["prediction"] = {"type": "content", "content": text}
    return made


def _run_server(url: str, model: str) -> Run:
    async def main() -> Run:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", timeout=600.0) as client:
            return Run([times for times, _ in await _streams(client, model, _asked())])

    return asyncio.run(main())


def _run(client: AsyncLocalOpenAI, asked: Sequence[dict[str, Any]]) -> Run:
    return Run([times for times, _ in asyncio.run(_streams(client, "bench", asked))])


async def _streams(
    client: openai.AsyncOpenAI, model: str, asked: Sequence[dict[str, Any]]
) -> list[tuple[StreamTimes, str]]:
    return list(await asyncio.gather(*(_stream(client, model, fields) for fields in asked)))


async def _stream(client: openai.AsyncOpenAI, model: str, fields: dict[str, Any]) -> tuple[StreamTimes, str]:
    """One greedy answer to its end, and the tokens that the server says it has."""
    out, text = StreamTimes(time.perf_counter()), ""
    stream: Any = await client.chat.completions.create(
        model=model,
        max_tokens=NEW_TOKENS,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        **fields,
    )
    async for chunk in stream:
        if chunk.usage is not None:
            details = chunk.usage.completion_tokens_details
            rejected = getattr(details, "rejected_prediction_tokens", None) or 0
            out.tokens = chunk.usage.completion_tokens - rejected
        if chunk.choices and (content := chunk.choices[0].delta.content):
            out.times.append(time.perf_counter())
            text += content
    if not out.tokens or not out.times:
        raise RuntimeError("a stream had no text, or did not say how long it was")
    return out, text
