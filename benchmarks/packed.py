"""4-bit weights on a CPU beside the same ones in float32: a long prompt, and decoding, in turns."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import mlx_lm

from localai_shim import AsyncLocalOpenAI
from localai_shim.backends.x86 import unpacking

from .bench import Bench
from .figures import Figure, Section, print_figures, ratios, spread
from .models import SIZES, make_model
from .streams import ask
from .workload import Prompt, Prompts

SIZE = "mid"  # some 100 million parameters
TOKENS, NEW_TOKENS = 512, 32
PROMPT_TARGET, DECODE_TARGET = 1.3, 1.0
NEVER = 10**9  # rows
FORMS = {
    "4 bits": None,
    "4 bits, unpacked for wide passes": unpacking.Trial(False, 8),
    "4 bits, as MLX multiplies them": unpacking.Trial(False, NEVER),
}
FLOAT, OURS, UNPACKED, UPSTREAM = "float32", *FORMS


def measure(bench: Bench) -> Section:
    """Each form in a model of its own: what a trial at load chooses, and what that chooses from."""
    if mx.default_device() != mx.Device(mx.cpu):
        print("Packed weights: only on a CPU")
        return Section()
    with TemporaryDirectory(prefix="benchmarks-") as home:
        folders = _models(Path(home))
        prompts = Prompts(mlx_lm.utils.load_tokenizer(folders[FLOAT]), TOKENS, seed=9)
        clients = {name: _client(folder, FORMS.get(name)) for name, folder in folders.items()}
        try:
            return _compare(clients, prompts, 2 if bench.quick else 2 * bench.repeats)
        finally:
            for client in clients.values():
                asyncio.run(client.close())


def _compare(clients: dict[str, AsyncLocalOpenAI], prompts: Prompts, repeats: int) -> Section:
    first: dict[str, list[float]] = {name: [] for name in clients if name != UPSTREAM}
    step: dict[str, list[float]] = {name: [] for name in clients}
    for _ in range(repeats):
        for name, client in clients.items():
            if name in first:  # MLX's own products would take minutes
                first[name].append(_run(client, prompts.take(1)[0], 1)[0])
            step[name].append(_run(client, _short(prompts.take(1)[0]), NEW_TOKENS)[1])
    for name, seconds in step.items():
        prompt = f"{TOKENS} tokens of prompt {spread(first[name])} s, " if name in first else ""
        print(f"{name}: {prompt}a step of one row {spread(seconds, 1000, 1)} ms")
    figures = [
        Figure(f"packed: {TOKENS} tokens of prompt, {name} / float32", ratios(first[name], first[FLOAT]), target, False)
        for name, target in ((OURS, PROMPT_TARGET), (UNPACKED, PROMPT_TARGET))
    ]
    figures += [
        Figure("packed: a step of one row / MLX's product", ratios(step[OURS], step[UPSTREAM]), DECODE_TARGET, False),
        Figure("packed: a step of one row, 4 bits / float32", ratios(step[OURS], step[FLOAT]), None, False),
    ]
    print_figures(figures)
    return Section(figures, {"prompt": first, "step": step})


def _models(home: Path) -> dict[str, Path]:
    """Folders of the same weights, one for each form: clients of one folder share an engine."""
    make_model(home / FLOAT, SIZES[SIZE], SIZES[SIZE].vocabulary)
    mlx_lm.convert(str(home / FLOAT), str(home / OURS), quantize=True, q_bits=4, q_group_size=64)
    for name in (UNPACKED, UPSTREAM):
        shutil.copytree(home / OURS, home / name)
    return {name: home / name for name in (FLOAT, *FORMS)}


def _client(folder: Path, form: unpacking.Trial | None) -> AsyncLocalOpenAI:
    """A client whose model is loaded, in this form; None leaves it to the trial."""
    options: Any = {"speculation": "off", "prefix_cache_bytes": 0}
    client = AsyncLocalOpenAI(model=folder, keep_alive=0, progress=False, **options)
    with _found(form):
        asyncio.run(client.completions.create(model="any", prompt=[5, 6], max_tokens=2))
    return client


@contextmanager
def _found(form: unpacking.Trial | None) -> Iterator[None]:
    """Have models that are loaded meanwhile take this form."""
    before = unpacking.measure
    if form is not None:
        unpacking.measure = lambda how, layers: form
    try:
        yield
    finally:
        unpacking.measure = before


def _short(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt.messages[-1]["content"][:20]}]


def _run(client: AsyncLocalOpenAI, prompt: Any, new_tokens: int) -> tuple[float, float]:
    """Seconds to the first token, and for each of the others."""
    messages = prompt.messages if isinstance(prompt, Prompt) else prompt
    start = time.perf_counter()
    answer = asyncio.run(ask(client, messages, new_tokens))
    rest = time.perf_counter() - start - answer.first_token
    return answer.first_token, rest / max(1, answer.completion_tokens - 1)
