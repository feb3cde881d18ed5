"""Rows that each have a LoRA adapter of their own, beside rows without: what a step takes, and one engine for each."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import linear_to_lora_layers
from mlx_lm.utils import load_tokenizer

from localai_shim import AsyncLocalOpenAI

from . import gpu, gpu_parallel, models, streams
from .bench import Bench
from .figures import Figure, Section, print_figures, ratios, spread
from .models import Size
from .workload import GREEDY, Prompts

CPU = Size(512, 8, 1_536, 8, 4, 64, 6_000, 64, 64), 8, 4, 8  # shape, rows, adapters, rank
GPU_ROWS = 32, 8, 16
TARGETS = {"cpu": 1.25, "gpu": 1.3}


def measure(bench: Bench) -> Section:
    """On a CPU: 8 rows over 4 adapters of rank 8, around all products."""
    size, rows, count, rank = CPU
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        models.make_model(Path(folder), size, size.vocabulary)
        return _measure("cpu", Path(folder), size, rows, count, rank, bench.repeats)


def measure_gpu(name: str, repeats: int, quick: bool = False) -> Section:
    """On a GPU: 32 rows over 8 adapters of rank 16, around all products of an 8B-shaped model in bfloat16.

    Args:
        quick: changes nothing.
    """
    if name == "8b" and mx.default_device() != mx.Device(mx.gpu):
        print("There is no GPU here; --gpu-size runs another shape on the CPU.")
        return Section()
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        gpu_parallel.save(Path(folder), gpu.SIZES[name], None)
        return _measure("gpu", Path(folder), gpu.SIZES[name], *GPU_ROWS, repeats)


def _measure(label: str, folder: Path, size: Size, rows: int, count: int, rank: int, repeats: int) -> Section:
    names = [f"adapter-{i}" for i in range(count)]
    config = json.loads((folder / "config.json").read_text())
    for i, name in enumerate(names):
        make_adapter(folder / name, config, rank, seed=i)
    options: Any = {"keep_alive": 0, "speculation": "off"}  # steps of one token
    client = AsyncLocalOpenAI(model=folder, adapters={name: str(folder / name) for name in names}, **options)
    prompts = Prompts(load_tokenizer(folder), size.prompt_tokens)
    cases: dict[str, Sequence[str | None]] = {
        "none": [None] * rows,
        f"{count} adapters": [names[i % count] for i in range(rows)],
        "the same one": [names[0]] * rows,
    }
    rates: dict[str, list[float]] = {}

    def run(case: str, some: Sequence[str | None], new_tokens: int) -> float:
        chosen = [replace(GREEDY, adapter=name) for name in some]
        return streams.run(client, "bench", prompts.take(len(some)), chosen, new_tokens).decode_rate

    try:
        for case, some in cases.items():
            run(case, some, 8)
        for _ in range(repeats):
            for case, some in cases.items():
                rates.setdefault(case, []).append(run(case, some, size.new_tokens))
        start = time.perf_counter()
        for name in names[: rows // count]:
            run(name, [name] * (rows // count), size.new_tokens)
        alone = count * (time.perf_counter() - start) / max(1, len(names[: rows // count]))
        start = time.perf_counter()
        run("together", cases[f"{count} adapters"], size.new_tokens)
        together = time.perf_counter() - start
    finally:
        asyncio.run(client.close())
    for case, values in rates.items():
        print(f"{label}, {rows} rows, {case}: {spread(values, digits=0)} tok/s")
    figures = [
        Figure(
            f"adapters, {label}: step of {rows} rows, {case} / none",
            ratios(rates["none"], rates[case]),
            TARGETS[label] if case == f"{count} adapters" else None,
            at_least=False,
        )
        for case in list(cases)[1:]
    ]
    figures.append(Figure(f"adapters, {label}: one adapter after another / all together", [alone / together], None))
    print_figures(figures)
    return Section(figures, {**rates, "alone": alone, "together": together})


def make_adapter(folder: Path, config: dict[str, Any], rank: int, *, seed: int) -> None:
    """Save random adapters around all products of a model's layers, in mlx-lm's form."""
    model = models.new_model(config)
    model.freeze()
    parameters: dict[str, Any] = {"rank": rank, "scale": 2.0, "dropout": 0.0}
    linear_to_lora_layers(model, len(model.layers), parameters)
    mx.random.seed(seed)
    named = tree_flatten(model.trainable_parameters())
    weights = {name: mx.random.normal(array.shape, mx.float32) * 0.01 for name, array in named}
    folder.mkdir(parents=True)
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    about = {"fine_tune_type": "lora", "num_layers": len(model.layers), "lora_parameters": parameters}
    (folder / "adapter_config.json").write_text(json.dumps(about))
