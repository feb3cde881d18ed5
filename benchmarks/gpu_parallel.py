"""On two GPUs: an 8B-shaped model in two processes against one, and a model that no GPU here has the memory for."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import load_tokenizer

from localai_shim import AsyncLocalOpenAI

from . import gpu, models, parallel
from .figures import Section, print_figures
from .models import Size
from .parallel import PROCESSES
from .workload import Prompts

COUNTS = (1, 8, 32)
HUGE = Size(8_192, 52, 28_672, 64, 8, 128, 32_000, 128, 64)  # 45 billion weights: 90 GB in bfloat16
_GROUP, _SMALL_GROUP = 64, 32  # each process has whole groups, of small models, too
_MEMORY = Path("/dev/shm")  # files of these sizes are read from memory, where there is such a folder
_quantize: Any = nn.quantize


def measure(name: str, repeats: int, quick: bool, only: Sequence[str] = ("bf16", "4-bit", "huge")) -> Section:
    """Decoding at 1, 8 and 32 streams, and the prefill of a long prompt.

    Args:
        name: of `gpu.SIZES`; the 8B shape, and the huge one beside it, are measured on GPUs only.
        repeats: runs of each.
        quick: shorter streams.
        only: which models.
    """
    section, size = Section(), gpu.SIZES[name]
    on_gpu = mx.default_device() == mx.Device(mx.gpu)
    cases = {"bf16": (size, None), "4-bit": (size, 4)}
    if on_gpu and name == "8b":
        cases["huge"] = (HUGE, None)
    elif name == "8b":
        print("There is no GPU here; --gpu-size runs another shape on the CPU.")
        return section
    for label in only:
        if label in cases:
            with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
                _measure(section, label, Path(folder), *cases[label], repeats, quick)
    print_figures(section.figures)
    return section


def _measure(
    section: Section, label: str, folder: Path, size: Size, bits: int | None, repeats: int, quick: bool
) -> None:
    start = time.perf_counter()
    save(folder, size, bits)
    stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    print(f"{label}: {stored / 1e9:.1f} GB, made in {time.perf_counter() - start:.0f} s", flush=True)
    given: dict[str, Any] = {} if size is HUGE else {"one": {}}
    given[f"{PROCESSES} processes"] = {"tensor_parallel": PROCESSES}
    tokenizer = load_tokenizer(folder)
    length = min(gpu.PREFILL, 8 * size.prompt_tokens) if size.hidden < 1_024 else gpu.PREFILL
    prompts = Prompts(tokenizer, size.prompt_tokens), Prompts(tokenizer, length, seed=9)
    new_tokens = min(64, size.new_tokens) if quick else size.new_tokens
    rates: parallel.Rates = {}
    for (
        name,
        more,
    ) in given.items():  # one after the other: they share the first GPU
        client = AsyncLocalOpenAI(model=folder, keep_alive=0, speculation="off", **more)  # steps of one token
        try:
            for _ in range(repeats):
                parallel.run(rates, name, client, *prompts, COUNTS, new_tokens)
        finally:
            asyncio.run(client.close())
    section.figures += parallel.report(rates, f"gpu parallel, {label}")
    section.raw[label] = dict(rates)


def save(folder: Path, size: Size, bits: int | None) -> None:
    """Save a qwen3 model, all of whose layers have the same random weights: one layer at a time is in memory."""
    quiet, end = models.make_tokenizer(folder, size.vocabulary)
    config = {**models.qwen3_config(size, size.vocabulary), "eos_token_id": end}
    model = models.new_model(models.qwen3_config(replace(size, layers=1), size.vocabulary))
    dtype = mx.bfloat16 if mx.is_available(mx.gpu) else mx.float32
    models.randomise(model, size.vocabulary, quiet, dtype)
    if bits is not None:
        group = _GROUP if size.hidden >= 1_024 else _SMALL_GROUP
        _quantize(model, group_size=group, bits=bits)
        config["quantization"] = {"group_size": group, "bits": bits}
    (folder / "config.json").write_text(json.dumps(config))
    weights = dict(tree_flatten(model.parameters()))
    layer = {name: array for name, array in weights.items() if name.startswith("model.layers.0.")}
    others = {name: array for name, array in weights.items() if name not in layer}
    mx.save_safetensors(str(folder / "model-other.safetensors"), others, metadata={"format": "mlx"})
    first = folder / "model-0.safetensors"
    mx.save_safetensors(str(first), layer, metadata={"format": "mlx"})
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for _ in pool.map(lambda i: _repeat(first, folder / f"model-{i}.safetensors", i), range(1, size.layers)):
            pass


def _repeat(first: Path, to: Path, layer: int) -> None:
    """Copy a layer's file, and give its tensors the names of another layer."""
    with first.open("rb") as source, to.open("wb") as target:
        header = source.read(int.from_bytes(source.read(8), "little"))
        named = header.replace(b'"model.layers.0.', b'"model.layers.%d.' % layer)
        named += b" " * (-len(named) % 8)
        target.write(len(named).to_bytes(8, "little") + named)
        shutil.copyfileobj(source, target, 1 << 24)
