"""Streams with pictures: what they cost beside the bare model and tower, and against mlx-vlm's server."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import mlx.core as mx
import numpy as np
import openai
from mlx_lm.utils import load_tokenizer

from localai_shim import AsyncLocalOpenAI
from localai_shim.backends.forms import forms
from localai_shim.backends.x86.activations import at_once

from . import servers, stalls, streams
from .bench import Bench
from .figures import Figure, Section, print_figures, ratios, spread
from .streams import ask
from .timeline import Run, StreamTimes
from .vision_models import SIZES, PicturePrompt, VisionSize, data_url, make_vision_model, picture
from .workload import GREEDY, Prompt, Prompts

SHARING, MIXED, ARRIVING, SERVED = 16, 8, 8, 8
MAX_STALL = 0.05  # seconds
DECODE_TARGET, STALL_TARGET, SERVER_TARGET = 0.90, 1.0, 1.5
LEAST_TURNS = 5  # of what has a target and differs by a fifth from one turn to the next: the mean of two says little
_NEW = 32  # tokens of a second turn
_async_eval: Callable[..., None] = mx.async_eval


class BareVision:
    """mlx-vlm's model called by this thread with nothing around it, in the forms of the client's model."""

    def __init__(self, folder: Path) -> None:
        from mlx_vlm import load

        self._model, self._processor = load(str(folder), trust_remote_code=False)
        forms().prepare(self._model)
        self.tokenizer = load_tokenizer(folder)

    def tower_seconds(self, side: int, seed: int) -> float:
        """Seconds from a picture's patches to its rows."""
        text = "<|vision_start|><|image_pad|><|vision_end|>"
        made = {k: mx.array(np.array(v)) for k, v in self._processor(images=[picture(side, seed)], text=[text]).items()}
        mx.eval(list(made.values()))
        start = time.perf_counter()
        grid = {"image_grid_thw": made["image_grid_thw"]}
        with at_once():
            embeddings = self._model.get_input_embeddings(made["input_ids"], made["pixel_values"], **grid)
        mx.eval(embeddings.inputs_embeds)
        return time.perf_counter() - start

    def prefill(self, tokens: int, cache: list[Any] | None = None) -> list[Any]:
        """Run so many tokens into a cache, on top of what it holds."""
        from mlx_vlm.models.cache import make_prompt_cache

        cache = cache or make_prompt_cache(self._model.language_model)
        with at_once():
            self._step(mx.array([[100] * tokens]), cache, np.array([cache[0].offset]))
        mx.eval([layer.state for layer in cache])
        return cache

    def turn_seconds(self, held: int, new: int) -> float:
        """Seconds from `new` tokens on `held` ones to the first greedy token."""
        cache = self.prefill(held)
        start = time.perf_counter()
        self.prefill(new - 1, cache)
        mx.eval(mx.argmax(self._step(mx.array([[100]]), cache, np.array([held + new - 1])), -1))
        return time.perf_counter() - start

    def decode(self, lengths: Sequence[int], steps: int) -> Run:
        """Greedy steps of rows of these lengths, each launched before the one before it is waited for."""
        rows = [self.prefill(length) for length in lengths]
        cache = [type(layers[0]).merge(list(layers)) for layers in zip(*rows, strict=True)]
        mx.eval([layer.state for layer in cache])
        at, times, started = np.array(lengths), list[float](), time.perf_counter()
        tokens = mx.array([[100]] * len(rows))
        for step in range(steps):
            following = mx.argmax(self._step(tokens, cache, at + step), axis=-1)
            _async_eval(following)
            if step:
                mx.eval(tokens)
                times.append(time.perf_counter())
            tokens = following
        mx.eval(tokens)
        times.append(time.perf_counter())
        return Run([StreamTimes(started, times, steps) for _ in rows])

    def whole_rate(self, lengths: Sequence[int], side: int, new_tokens: int, seed: int) -> float:
        """Tokens per second of rows of these lengths with a picture each, from the patches to the last token."""
        towers = sum(self.tower_seconds(side, seed + i) for i in range(len(lengths)))
        start = time.perf_counter()
        self.decode(lengths, new_tokens)
        return len(lengths) * new_tokens / (towers + time.perf_counter() - start)

    def _step(self, tokens: mx.array, cache: list[Any], starts: Any) -> mx.array:
        """Logits of the last tokens `[rows, 1, vocabulary]`; rows begin at these positions."""
        positions = mx.array((starts[:, None] + np.arange(tokens.shape[1])).astype(np.int32))
        stacked = mx.broadcast_to(positions[None], (3, *positions.shape))
        logits: mx.array = self._model.language_model(tokens, cache=cache, position_ids=stacked).logits
        return logits[:, -1:]


class Pictures:
    """Makes prompts with pictures that nobody has seen."""

    def __init__(self, prompts: Prompts, side: int) -> None:
        self._prompts, self.side = prompts, side
        self._seeds = itertools.count(1)

    def urls(self) -> Iterator[str]:
        while True:
            yield data_url(picture(self.side, next(self._seeds)))

    def take(self, count: int, *, shared: bool = False) -> list[PicturePrompt]:
        """Each with a picture of its own, or all with the same new one."""
        urls = itertools.repeat(next(self.urls())) if shared else self.urls()
        return [PicturePrompt(p.text, p.tokens, url) for p, url in zip(self._prompts.take(count), urls, strict=False)]

    def text(self, count: int) -> list[Prompt]:
        return self._prompts.take(count)

    def words(self, count: int) -> str:
        return self._prompts.words(count)


def measure(bench: Bench) -> Section:
    """The part `vision`: it makes a model of its own."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as root:
        folder = Path(root) / "model"
        return _measure(folder, SIZES[bench.vision_size], bench.new_tokens, bench.repeats)


def _measure(folder: Path, size: VisionSize, new_tokens: int, repeats: int) -> Section:
    make_vision_model(folder, size)
    bare = BareVision(folder)
    pictures = Pictures(Prompts(bare.tokenizer, size.text.prompt_tokens, seed=11), size.side)
    client = AsyncLocalOpenAI(model=folder, keep_alive=0, max_stall=MAX_STALL)
    section = Section()
    try:
        _shared(section, client, pictures, new_tokens, repeats)
        tower = _tower(section, bare, size.side, repeats)
        _second_turn(section, client, bare, pictures, repeats)
        _mixed(section, client, bare, pictures, new_tokens, repeats)
        _arrivals(section, client, pictures, tower, repeats)
        _alone(section, client, pictures, new_tokens, repeats)
        _against_server(section, client, bare, folder, pictures, new_tokens, repeats)
    finally:
        asyncio.run(client.close())
    print_figures(section.figures)
    return section


def _tower(section: Section, bare: BareVision, side: int, repeats: int) -> float:
    seconds = [bare.tower_seconds(side, seed) for seed in range(repeats + 1)][1:]
    section.figures.append(Figure(f"vision: tower, {side} x {side} pixels", seconds, None, unit=" ms", scale=1e3))
    return median(seconds)


def _play(client: openai.AsyncOpenAI, prompts: Sequence[Prompt], new_tokens: int, model: str = "bench") -> Run:
    return streams.run(client, model, prompts, [GREEDY] * len(prompts), new_tokens)


def _shared(section: Section, client: AsyncLocalOpenAI, pictures: Pictures, new_tokens: int, repeats: int) -> None:
    """16 streams that share one new picture, 16 with one each, and 16 of text."""
    kinds: dict[str, Callable[[], Sequence[Prompt]]] = {
        "text": lambda: pictures.text(SHARING),
        "one picture": lambda: pictures.take(SHARING, shared=True),
        "own pictures": lambda: pictures.take(SHARING),
    }
    runs: dict[str, list[Run]] = {kind: [] for kind in kinds}
    for number in range(repeats + 1):
        for kind, take in kinds.items():
            run = _play(client, take(), new_tokens)
            if number:
                runs[kind].append(run)
    for kind, its in runs.items():
        first = [median(run.first_token_seconds()) for run in its]
        print(
            f"{SHARING} streams, {kind}: TTFT p50 {spread(first, 1e3, 0)} ms, whole run "
            f"{spread([run.whole_rate for run in its], digits=0)} tok/s, prompts of {its[0].streams[0].prompt_tokens}"
        )
        section.raw[kind] = {"first_token_seconds": first, "whole_rates": [run.whole_rate for run in its]}
    text = [run.whole_rate for run in runs["text"]]
    for kind in ("one picture", "own pictures"):
        values = ratios([run.whole_rate for run in runs[kind]], text)
        section.figures.append(Figure(f"vision: {SHARING} streams with {kind} / without, whole run", values, None))


def _alone(section: Section, client: AsyncLocalOpenAI, pictures: Pictures, new_tokens: int, repeats: int) -> None:
    """What one stream and what 16 get, each with a new picture."""
    for count in (1, SHARING):
        runs = [_play(client, pictures.take(count), new_tokens) for _ in range(repeats + 1)][1:]
        first = [median(run.first_token_seconds()) for run in runs]
        rates = [run.decode_rate for run in runs if run.decode_rate]
        name = f"vision: {count} streams with own pictures"
        section.figures.append(Figure(f"{name}, TTFT p50", first, None, unit=" ms", scale=1e3, digits=0))
        section.figures.append(Figure(f"{name}, decode", rates, None, unit=" tok/s", digits=0))


def _second_turn(
    section: Section, client: AsyncLocalOpenAI, bare: BareVision, pictures: Pictures, repeats: int
) -> None:
    ours: list[float] = []
    limit: list[float] = []
    for number in range(repeats + 1):
        (prompt,) = pictures.take(1)
        first = asyncio.run(ask(client, prompt.messages, 8))
        messages = [
            *prompt.messages,
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": pictures.words(_NEW)},
        ]
        turn = asyncio.run(ask(client, messages, 2))
        around = [bare.turn_seconds(turn.cached_tokens, turn.prefilled) for _ in range(2)]
        if number:
            ours.append(turn.first_token)
            limit.append(mean(around))
    name = "vision: TTFT of a second turn / bare prefill of what is new"
    section.figures.append(Figure(name, ratios(ours, limit), None, at_least=False))
    section.raw["second turn"] = {"client_seconds": ours, "bare_seconds": limit}


def _mixed(
    section: Section, client: AsyncLocalOpenAI, bare: BareVision, pictures: Pictures, new_tokens: int, repeats: int
) -> None:
    values: list[float] = []
    for number in range(max(repeats, LEAST_TURNS) + 1):
        prompts = [*pictures.take(MIXED), *pictures.text(MIXED)]
        run = _play(client, prompts, new_tokens)
        lengths = [stream.prompt_tokens for stream in run.streams]
        limit = [bare.decode(lengths, new_tokens).decode_rate for _ in range(2)]
        if number and run.decode_rate:
            values.append(run.decode_rate / mean(limit))
    name = f"vision: decode, {MIXED} streams with pictures and {MIXED} of text / bare step"
    section.figures.append(Figure(name, values, DECODE_TARGET))


def _arrivals(section: Section, client: AsyncLocalOpenAI, pictures: Pictures, tower: float, repeats: int) -> None:
    """The longest gap of running streams of text while new pictures arrive, all at once."""
    longest: list[float] = []
    limits: list[float] = []
    for number in range(repeats + 1):
        running, arriving = pictures.text(stalls.STREAMS), pictures.take(ARRIVING)
        gaps = asyncio.run(stalls.gaps_beside(client, running, [p.messages for p in arriving]))
        if number:
            longest.append(gaps.joining[0])
            limits.append(tower + 2 * (MAX_STALL + gaps.step))
    print(f"{ARRIVING} pictures join {stalls.STREAMS} streams: longest gap {spread(longest, 1e3, 0)} ms")
    name = f"vision: longest gap, {ARRIVING} new pictures join / (tower + 2 x (max_stall + step))"
    section.figures.append(Figure(name, ratios(longest, limits), STALL_TARGET, at_least=False))
    section.raw["arrivals"] = {"longest_gap_seconds": longest, "limit_seconds": limits}


def _against_server(
    section: Section,
    client: AsyncLocalOpenAI,
    bare: BareVision,
    folder: Path,
    pictures: Pictures,
    new_tokens: int,
    repeats: int,
) -> None:
    """Whole runs. The bare model's says what any client can reach: no figure beside the server's is above it."""
    name = f"vision: {SERVED} streams with pictures, whole run"
    figure, limit = Figure(f"{name} / mlx_vlm.server", [], SERVER_TARGET), Figure(f"{name} / bare model", [], None)
    section.figures += [figure, limit]
    most: list[float] = []
    try:
        with servers.started("mlx_vlm", folder) as server:
            for number in range(max(repeats, LEAST_TURNS) + 1):
                ours = _play(client, pictures.take(SERVED), new_tokens)
                theirs = server.run(pictures.take(SERVED), [GREEDY] * SERVED, new_tokens)
                lengths = [stream.prompt_tokens for stream in ours.streams]
                alone = bare.whole_rate(lengths, pictures.side, new_tokens, seed=10_000 * (number + 1))
                if number:
                    figure.values.append(ours.whole_rate / theirs.whole_rate)
                    limit.values.append(ours.whole_rate / alone)
                    most.append(alone / theirs.whole_rate)
        figure.note = f"the bare model alone would be at {median(most):.2f}"
    except (servers.ServerError, openai.OpenAIError, RuntimeError) as error:
        figure.target = None
        figure.note = f"not measured: {error}"
