"""Vectors of 512 texts: against mlx-vlm's model and its server, in turns, and what they leave of running streams."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import openai

from localai_shim import AsyncLocalOpenAI
from tests.embedding_models import tiny_embedder

from . import servers, stalls
from .bench import Bench
from .figures import Figure, Section, print_figures, ratios, spread

TEXTS, LEAST_TOKENS, MOST_TOKENS = 512, 20, 400
BATCH = 32
"""Texts of one padded batch, and of one request to the server."""
MODEL_TARGET, SERVER_TARGET, STREAMS_TARGET = 1.0, 2.0, 0.8
STREAMS = 8
_SECONDS = 2.0  # for which streams are watched at a time
_TURNS = (
    3  # of texts beside them, with streams alone before, between and after: their steps grow longer with their rows
)
_SHAPE = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
_WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "are", "you"]

Vectors = npt.NDArray[np.float32]


def measure(bench: Bench) -> Section:
    """In turns, with new texts each time, and the same requests to the client and to the server."""
    folder = tiny_embedder("bert", max_position_embeddings=512, **_SHAPE)
    tokenizer = folder / "tokenizer_config.json"  # the server cuts texts as this says
    tokenizer.write_text(json.dumps({**json.loads(tokenizer.read_text()), "model_max_length": 512}))
    rng = random.Random(1)
    count = TEXTS // 8 if bench.quick else TEXTS
    work = [[_text(rng) for _ in range(count)] for _ in range(bench.repeats)]
    first = [_text(rng) for _ in range(BATCH)]
    figures, raw = list[Figure](), dict[str, Any]()
    with closing_client(folder) as client:
        figures += _compared(client, folder, first, work, raw)
    figures += [_beside(bench, folder, first), _beside(bench, bench.folder, first)]
    print_figures(figures)
    return Section(figures, raw)


def _text(rng: random.Random) -> str:
    """Each word is one token, and two more are put around them."""
    return " ".join(rng.choices(_WORDS, k=rng.randint(LEAST_TOKENS, MOST_TOKENS) - 2))


@contextmanager
def closing_client(*folders: Path) -> Iterator[AsyncLocalOpenAI]:
    """A client of models named by their place: "0", "1", ..."""
    client = AsyncLocalOpenAI(models={str(i): folder for i, folder in enumerate(folders)}, keep_alive=0)
    try:
        yield client
    finally:
        asyncio.run(client.close())


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _compared(
    client: AsyncLocalOpenAI, folder: Path, first: Sequence[str], work: Sequence[Sequence[str]], raw: dict[str, Any]
) -> list[Figure]:
    """How many times as fast the client is; `first` are texts that nobody counts."""
    model = _padded(folder)
    _compare(client, model, first)
    figures = [
        Figure(f"embeddings: {len(work[0])} texts / mlx-vlm's model, batches of {BATCH}", [], MODEL_TARGET),
        Figure(f"embeddings: {len(work[0])} texts, requests of {BATCH} / mlx_vlm.server", [], SERVER_TARGET),
    ]
    runs: dict[str, Callable[[Sequence[str]], object]] = {
        "client": lambda texts: asyncio.run(_requests(client, "0", texts)),
        "model": model,
    }
    with ExitStack() as stack:
        try:
            server = stack.enter_context(servers.started("mlx_vlm", folder, embeds=True))
            asyncio.run(_ask(server, first))
            runs["server"] = lambda texts: asyncio.run(_ask(server, texts))
            figures[1].note = "with the client's BLAS" if server.preloaded else "the server runs MLX's own BLAS"
        except (servers.ServerError, openai.OpenAIError) as error:
            figures[1].target, figures[1].note = None, f"not measured: {error}"
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for texts in work:
            for name, run in runs.items():
                seconds[name].append(_timed(partial(run, texts)))
    raw["seconds"] = seconds
    for figure, name in zip(figures, ("model", "server"), strict=True):
        figure.values = ratios(seconds[name], seconds["client"]) if name in seconds else []
    rates = {name: spread([len(work[0]) / s for s in taken], digits=0) for name, taken in seconds.items()}
    print(f"{len(work[0])} texts, texts/s: " + ", ".join(f"{name} {rate}" for name, rate in rates.items()), flush=True)
    return figures


# -- the three ways -------------------------------------------------------------------------------------------------


def _ours(client: AsyncLocalOpenAI, texts: Sequence[str]) -> Vectors:
    """One request."""
    made = asyncio.run(client.embeddings.create(model="0", input=list(texts)))
    return np.array([each.embedding for each in made.data], np.float32)


def _padded(folder: Path) -> Callable[[Sequence[str]], Vectors]:
    """mlx-vlm's model on one padded batch after another."""
    from mlx_vlm.embedding_loader import load_embedding_model
    from transformers import AutoTokenizer

    model, tokenizer = load_embedding_model(folder), AutoTokenizer.from_pretrained(folder)

    def run(texts: Sequence[str]) -> Vectors:
        made = []
        for start in range(0, len(texts), BATCH):
            batch = tokenizer(list(texts[start : start + BATCH]), padding=True, return_tensors="np")
            out = model(mx.array(batch["input_ids"]), attention_mask=mx.array(batch["attention_mask"]))
            made.append(np.array(out.text_embeds))
        return np.concatenate(made)

    return run


async def _requests(client: openai.AsyncOpenAI, model: str, texts: Sequence[str]) -> None:
    """All texts at once, in requests of `BATCH`."""
    batches = [list(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
    await asyncio.gather(*(client.embeddings.create(model=model, input=batch) for batch in batches))


def _compare(client: AsyncLocalOpenAI, theirs: Callable[[Sequence[str]], Vectors], texts: Sequence[str]) -> None:
    """Both make the same vectors, as far as the device's float32 goes."""
    cosine = (_ours(client, texts) * theirs(texts)).sum(axis=1).min()
    if cosine < 0.999:
        raise RuntimeError(f"a cosine of two vectors of one text is {cosine}")


async def _ask(server: servers.Server, texts: Sequence[str]) -> None:
    async with openai.AsyncOpenAI(base_url=server.url, api_key="none", timeout=600.0) as client:
        await _requests(client, server.model, texts)


# -- beside streams -------------------------------------------------------------------------------------------------


def _beside(bench: Bench, folder: Path, texts: Sequence[str]) -> Figure:
    """Tokens per second of running streams while texts are embedded without end, by another model or by their own."""
    own = folder == bench.folder
    shares, embedded = [], []
    with closing_client(bench.folder, folder) as client:
        for _ in range(1 if bench.quick else bench.repeats):
            found, rates = asyncio.run(_watch(client, bench, "0" if own else "1", texts))
            shares += found
            embedded += rates
    by = "the same model" if own else "another model"
    print(
        f"{STREAMS} streams beside texts that {by} embeds: {spread(embedded, digits=1)} texts/s meanwhile", flush=True
    )
    return Figure(f"embeddings by {by}: tok/s of {STREAMS} streams / alone", shares, STREAMS_TARGET)


async def _watch(
    client: AsyncLocalOpenAI, bench: Bench, model: str, texts: Sequence[str]
) -> tuple[list[float], list[float]]:
    """Of each turn (tok/s beside texts / tok/s alone before and after, texts/s beside streams)."""
    await client.embeddings.create(model=model, input=list(texts[:BATCH]))
    prompts = bench.prompts.take(STREAMS)
    times: list[list[float]] = [[] for _ in prompts]
    streams = [asyncio.create_task(stalls.endless(client, p, t, "0")) for p, t in zip(prompts, times, strict=True)]
    await stalls.until(streams, times, [8] * STREAMS)
    alone, beside, embedded = [await _rate(times)], list[float](), list[float]()
    for _ in range(_TURNS):
        before = client.stats(model).embedded_texts
        load = asyncio.create_task(_load(client, model, texts))
        beside.append(await _rate(times))
        embedded.append((client.stats(model).embedded_texts - before) / _SECONDS)
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
        alone.append(await _rate(times))
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    return ratios(beside, [(a + b) / 2 for a, b in pairwise(alone)]), embedded


async def _rate(times: Sequence[Sequence[float]]) -> float:
    """Tokens per second of all streams, from now on."""
    start, before = time.perf_counter(), sum(map(len, times))
    await asyncio.sleep(_SECONDS)
    return (sum(map(len, times)) - before) / (time.perf_counter() - start)


async def _load(client: AsyncLocalOpenAI, model: str, texts: Sequence[str]) -> None:
    while True:
        await _requests(client, model, texts)
