"""Models of the shape of 8B ones on a GPU, against mlx-lm's BatchGenerator and the bare step in the same run."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.utils import load_tokenizer

from localai_shim import AsyncLocalOpenAI
from localai_shim.backends.forms import forms
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.probes import agreement, takes_several
from localai_shim.models.checkpoint.files import Checkpoint
from localai_shim.models.mtp.head import MTPHead
from localai_shim.models.text import LoadOptions, TextModel

from . import batch_generator, gpu_drafts, gpu_heads, gpu_shapes, models, report, throughput
from .bare import BareModel
from .figures import Figure, Section, print_figures, ratios, spread
from .models import Size
from .prefill import generate_step_seconds
from .streams import ask
from .throughput import BATCHER_GREEDY, BATCHER_SAMPLED, CLIENT_GREEDY, CLIENT_SAMPLED
from .workload import Prompt, Prompts

SIZES = {
    "8b": Size(4_096, 36, 12_288, 32, 8, 128, 151_936, 128, 128),  # Qwen3-8B
    "tiny": Size(128, 2, 256, 8, 2, 16, 1_000, 32, 24),
    **models.SIZES,
}
PREFILL = 4_096
STREAMS = (1, 32)
DECODE_TARGETS = {("bf16", 1): 1.0, ("bf16", 32): 1.0, ("4-bit", 32): 4.0}  # times BatchGenerator
PREFILL_TARGETS = {"bf16": 1.8}
_TRIAL_SHARE = 0.02  # of what layers add: sums of random ones round too differently for a trial
_quantize: Any = nn.quantize


class _Test(NamedTuple):
    """What is measured: a model bare, and the same behind a client."""

    kind: str
    label: str
    model: Any
    client: AsyncLocalOpenAI


def measure(name: str, repeats: int, quick: bool) -> Section:
    """bf16 and 4-bit: decoding at 1 and 32 streams, and the prefill of a long prompt.

    Args:
        name: one of `SIZES`; the 8B shape is measured on a GPU only.
        repeats: runs of each method.
        quick: shorter streams.
    """
    on_gpu, section, size = mx.default_device() == mx.Device(mx.gpu), Section(), SIZES[name]
    for folder, kind, bits, model, tokenizer, config in _models(name):
        for key, value in report.machine_facts(model, config).items():
            print(f"{key}: {value}")
        with client(folder, model, tokenizer, config, bits) as ours:
            prompts = Prompts(tokenizer, size.prompt_tokens)
            new_tokens = min(64, size.new_tokens) if quick else size.new_tokens
            label = kind if on_gpu else f"{kind} (float32 on this CPU)" if bits is None else kind
            under = _Test(kind, label, model, ours)
            _decode(section, under, prompts, new_tokens, repeats)
            length = min(PREFILL, 8 * size.prompt_tokens) if name == "tiny" else PREFILL
            _prefill(section, under, Prompts(tokenizer, length, seed=9), length, repeats)
            gpu_shapes.new_lengths(section, label, ours, tokenizer)
        if on_gpu:
            gpu_shapes.uneven_rows(section, label, adapted(folder, model, tokenizer, config, bits), repeats)
    print_figures(section.figures)
    return section


def measure_drafts(name: str, repeats: int, quick: bool) -> Section:
    """bf16 and 4-bit: several tokens per step. `quick` changes nothing."""
    section = Section()
    for folder, kind, bits, model, tokenizer, config in _models(name, gpu_drafts.forget_context):
        clients = partial(client, folder, model, tokenizer, config, bits)
        gpu_drafts.measure(section, kind, clients, tokenizer, repeats)
        gpu_drafts.step_seconds(section, kind, adapted(folder, model, tokenizer, config, bits))
    print_figures(section.figures)
    return section


def measure_heads(name: str, repeats: int, quick: bool) -> Section:
    """bf16 and 4-bit: one sampled stream, then 1 and 8 streams with an MTP head. `quick` changes nothing."""
    section, own = Section(), gpu_heads.config(SIZES[name])
    for folder, kind, bits, model, tokenizer, config in _models(name, gpu_drafts.forget_context, own):
        with client(folder, model, tokenizer, config, bits) as ours:
            gpu_heads.measure_sampled(section, kind, ours, tokenizer, repeats)
        clients = partial(client, folder, model, tokenizer, config, bits)
        share = gpu_heads.agree(model, bits, clients, tokenizer)
        head = gpu_heads.save_head(folder / f"head-{kind}", model, bits)
        gpu_heads.measure(section, kind, clients, head, tokenizer, repeats, share)
    print_figures(section.figures)
    return section


def _models(
    name: str, prepare: Callable[[Any], None] | None = None, own: dict[str, Any] | None = None
) -> Iterator[tuple[Path, str, int | None, Any, Any, dict[str, Any]]]:
    """A model in bfloat16, then packed in 4 bits: its folder, kind, bits, itself, its tokenizer, and its config.

    Args:
        name: one of `SIZES`; there is none of the 8B shape without a GPU.
        prepare: makes it forget its context, after the trials of what it can run.
        own: its config; None: Qwen3's.
    """
    if name == "8b" and mx.default_device() != mx.Device(mx.gpu):
        print("There is no GPU here; --gpu-size runs another shape on the CPU.")
        return
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as root:
        folder = Path(root)
        model, tokenizer, config = make(folder, SIZES[name], own)
        if prepare is not None:
            gpu_drafts.forget_context(model, _TRIAL_SHARE)
            tried = adapted(folder, model, tokenizer, config, None)
            for trial in (agreement, takes_several):  # remembered; they compare rows that differ
                trial(tried)
            prepare(model)
        yield folder, "bf16", None, model, tokenizer, config
        _quantize(model, group_size=gpu_heads.PACKED, bits=4)
        mx.eval(model.parameters())
        yield folder, "4-bit", 4, model, tokenizer, config


def make(folder: Path, size: Size, config: dict[str, Any] | None = None) -> tuple[Any, Any, dict[str, Any]]:
    """Make a model with random weights, bfloat16 on a GPU: mlx-lm's, its tokenizer, and its config. The folder gets the
    tokenizer only.

    Args:
        config: without its end of sequence; None: Qwen3's.
    """
    quiet, end = models.make_tokenizer(folder, size.vocabulary)
    config = {**(config or models.qwen3_config(size, size.vocabulary)), "eos_token_id": end}
    model = models.new_model(config)
    on_gpu = mx.default_device() == mx.Device(mx.gpu)
    models.randomise(model, size.vocabulary, quiet, mx.bfloat16 if on_gpu else mx.float32)
    return model, load_tokenizer(folder), config


@contextmanager
def client(
    folder: Path,
    model: Any,
    tokenizer: Any,
    config: dict[str, Any],
    bits: int | None,
    options: EngineOptions | None = None,
    load_draft: Callable[[TextModel], MTPHead | None] | None = None,
) -> Iterator[AsyncLocalOpenAI]:
    """A client whose engine has a model of its own with the same weights: engines change the layers of theirs."""

    def load() -> TextModel:
        loaded = adapted(folder, model, tokenizer, config, bits)
        loaded.warm_up()
        return loaded

    # It is compared with steps of one token.
    engine = Engine(load, options or EngineOptions(speculation="off"), load_draft=load_draft)
    try:
        engine.wait()
        yield AsyncLocalOpenAI(engine=engine)
    finally:
        engine.close()


def adapted(folder: Path, model: Any, tokenizer: Any, config: dict[str, Any], bits: int | None) -> TextModel:
    """Our adapter's model with the weights of mlx-lm's."""
    ours = models.new_model(config)
    if bits is not None:
        _quantize(ours, group_size=gpu_heads.PACKED, bits=bits)
    ours.update(model.parameters())  # arrays are shared, and nothing of what they replace was computed
    forms().prepare(ours)
    return TextModel(Checkpoint("bench", ours, tokenizer, config, folder, LoadOptions()))


def _decode(section: Section, under: _Test, prompts: Prompts, new_tokens: int, repeats: int) -> None:
    kind, label, model, client = under
    comparisons: list[throughput.Comparison] = []
    for count in STREAMS:
        chosen = throughput.methods(count, client, model, None)
        comparisons += throughput.compare(count, chosen, BareModel(model), prompts, new_tokens, repeats)
    report.print_comparisons(comparisons)
    by_name = {(c.method, c.streams): c for c in comparisons}
    for count in STREAMS:
        for ours, theirs in ((CLIENT_GREEDY, BATCHER_GREEDY), (CLIENT_SAMPLED, BATCHER_SAMPLED)):
            a, b = by_name[ours, count], by_name[theirs, count]
            pairs = [(x.decode_rate, y.decode_rate) for x, y in zip(a.runs, b.runs, strict=True)]
            values = [x / y for x, y in pairs if x and y]
            target = DECODE_TARGETS.get((kind, count))
            section.figures.append(Figure(f"gpu, {label}: {ours}, {count} streams / {theirs}", values, target))
            section.figures.append(Figure(f"gpu, {label}: {ours}, {count} streams / bare greedy step", a.ratios, None))
    section.raw[f"{kind} decode"] = [report.comparison_json(c) for c in comparisons]


def _prefill(section: Section, under: _Test, prompts: Prompts, length: int, repeats: int) -> None:
    """Each timed run follows one of its own kind that is not."""
    kind, label, model, client = under
    methods: dict[str, Callable[[Prompt], float]] = {
        "client": lambda prompt: asyncio.run(ask(client, prompt.messages, 1)).first_token,
        "BatchGenerator": lambda prompt: batch_generator.run(model, [prompt], 1).first_token_seconds()[0],
        "generate_step": lambda prompt: generate_step_seconds(model, prompt),
    }
    rates: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(repeats):
        for name, run in methods.items():
            run(*prompts.take(1))
            rates[name].append(length / run(*prompts.take(1)))
    figures = ", ".join(f"{name} {spread(values, digits=0)}" for name, values in rates.items())
    print(f"Prefill of {length} tokens, {label}, tok/s: {figures}\n", flush=True)
    for other, target in (("BatchGenerator", PREFILL_TARGETS.get(kind)), ("generate_step", None)):
        name = f"gpu, {label}: prefill of {length} tokens / {other}"
        section.figures.append(Figure(name, ratios(rates["client"], rates[other]), target))
    section.raw[f"{kind} prefill"] = rates
