"""Check the installation, the machine, and whether a model runs. The exit status is 1 if a check fails."""

from __future__ import annotations

import argparse
import glob
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from ..stats import show_bytes
from ..types import VERSION, BackendMissingError
from .bench import measure
from .models import find_models, print_models
from .shared import make_console, open_client, write

if TYPE_CHECKING:
    from ..client.local import LocalOpenAI
    from .listing import LocalModel

LIBRARIES = ("openai", "mlx", "mlx-lm", "mlx-vlm", "transformers", "llguidance")
CHECK_STREAMS, CHECK_SECONDS = 8, 3.0
QUESTION, EXPECTED = "What is your name?", "Shim"  # what the small model was taught
STYLES = {"ok": "green", "note": "yellow", "broken": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    subject: str
    state: Literal["ok", "note", "broken"]
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--report", action="store_true", help="write a report about this machine, to paste into an issue"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check everything, and say what to do."""
    console = make_console()
    if arguments.report:
        from .report import write_report

        return write_report(console)
    broken = False
    found: list[LocalModel] = []
    for check in (_libraries, _backend, _memory, _processes, partial(_models, found), _self_check):
        for finding in _guarded(check):
            broken = broken or finding.state == "broken"
            write(console, f"{finding.state:7}", STYLES[finding.state])
            write(console, f"{finding.subject:13}{finding.text}\n")
        if broken:  # what comes next needs it
            return 1
    write(console, "\n")
    print_models(console, found)
    return 0


def _guarded(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """A check's findings; one that raises has found something broken."""
    try:
        yield from check()
    except Exception as error:
        yield Finding(check.__name__.strip("_").replace("_", "-"), "broken", f"{type(error).__name__}: {error}")


def _libraries() -> Iterator[Finding]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    yield Finding("localai-shim", "ok", f"{VERSION}, Python {platform.python_version()}, {platform.platform()}")
    for name in LIBRARIES:
        try:
            yield Finding(name, "ok", version(name))
        except PackageNotFoundError:
            yield Finding(name, "broken", f"is not installed: pip install {name}")


def _backend() -> Iterator[Finding]:
    from ..backends.blas import blas
    from ..backends.machine import describe_backend, late_blas, on_cuda, require_backend

    try:
        require_backend()
    except BackendMissingError as error:
        yield Finding("back end", "broken", str(error))
        return
    import mlx.core as mx

    on_gpu = mx.default_device() == mx.Device(mx.gpu)
    yield Finding("back end", "ok", f"{'CUDA' if on_cuda() else 'Metal' if on_gpu else 'CPU'}: {describe_backend()}")
    if sys.platform == "linux" and not on_gpu:
        if (fast := blas()) is not None:
            yield Finding("BLAS", "ok", f"{fast}, where localai_shim is imported before mlx and mlx_lm")
        else:
            none = "none that is fast: apt-get install libopenblas0-pthread, or " + _extra("mkl")
            yield Finding("BLAS", "note", late_blas() or none)
        if glob.glob("/dev/nvidia[0-9]*"):
            yield Finding("GPU", "note", f"MLX does not use the NVIDIA GPU: {_extra('cuda13')}")


def _processes() -> Iterator[Finding]:
    """Back ends by which a model can be spread over processes."""
    import mlx.core as mx

    known = {
        "ring": "TCP; waiting keeps a core busy",
        "nccl": "NVIDIA GPUs; a lost process may leave a stuck one behind",
        "jaccl": "RDMA over Thunderbolt; not tried, and MLX never notices a lost peer",
    }
    found = [f"{name} ({what})" for name, what in known.items() if mx.distributed.is_available(name)]
    text = f"tensor_parallel= over {', '.join(found) or 'nothing: MLX has no back end'}"
    yield Finding("processes", "ok", f"{text}. How fast: python -m benchmarks --only parallel, in the repository")


def _extra(name: str) -> str:
    return f"pip install 'localai-shim[{name}]'"


def _memory() -> Iterator[Finding]:
    from ..backends.machine import free_memory, total_memory
    from ..engine.memory import default_limit
    from ..runtime.host import connect

    connect()
    free = free_memory()
    unused = "" if free is None else f", {show_bytes(free)} of it free"
    yield Finding("memory", "ok", f"{show_bytes(total_memory())}{unused}; MLX may use {show_bytes(default_limit())}")


def _models(found: list[LocalModel]) -> Iterator[Finding]:
    """Look for models, and collect them: reading their files takes a while if there are many."""
    from .listing import PACKAGE

    found += find_models()
    others = [model for model in found if model.program != PACKAGE]
    size = show_bytes(sum(model.bytes for model in others))
    text = f"{len(others)} model{'s' * (len(others) != 1)} of other programs, {size} of weights"
    if useless := [model.name for model in others if model.problem]:
        text += f"; these cannot be loaded, see below: {', '.join(useless)}"
    yield Finding("models", "note" if useless else "ok", text)


def _wrong_batch(client: LocalOpenAI) -> str:
    """Compare answers that share a batch with single ones; returns the difference, or an empty string."""
    import asyncio

    from ..client.local import AsyncLocalOpenAI

    async def answers() -> tuple[list[str], list[str]]:
        async with AsyncLocalOpenAI(engine=client._runtime.engine_of("")) as own:

            async def ask(question: str) -> str:
                answer = await own.chat.completions.create(
                    model="local", messages=[{"role": "user", "content": question}], temperature=0, max_tokens=24
                )
                return answer.choices[0].message.content or ""

            return [await ask(question) for question in questions], [*await asyncio.gather(*map(ask, questions))]

    questions = [f"{'Hello! ' * i}{QUESTION}" for i in range(CHECK_STREAMS)]  # of different lengths
    if client.stats().max_rows == 1:
        return "requests run one at a time, because those that share a pass get wrong results"
    for question, alone, together in zip(questions, *asyncio.run(answers()), strict=True):
        if together != alone:
            return f"to '{question}' the small model says '{alone}' by itself, and '{together}' next to others"
    return ""


def _self_check() -> Iterator[Finding]:
    with open_client("doctor", None, {"progress": False}) as client:
        answer = client.chat.completions.create(
            model="local", messages=[{"role": "user", "content": QUESTION}], temperature=0
        )
        applied: Mapping[str, int] = getattr(client._runtime.engine_of("").model, "applied", {})
        counts = [f"{name} ({count} layer{'s' * (count != 1)})" for name, count in applied.items()]
        yield Finding("kernels", "ok", "; ".join(counts) or "no custom kernels: MLX's own are used")
        said = answer.choices[0].message.content or ""
        if EXPECTED not in said:
            text = f"to '{QUESTION}' the small model says '{said}', not that it is {EXPECTED}"
            yield Finding("answers", "broken", text)
            return
        if wrong := _wrong_batch(client):
            yield Finding(
                "batching", "broken", f"{wrong}. MLX's kernels are wrong on this machine: install another mlx"
            )
            return
        [level] = measure(client, [CHECK_STREAMS], CHECK_SECONDS)
    text = f"{CHECK_STREAMS} streams of the small model, {level.rate:,.0f} tok/s"
    yield Finding("self-check", "ok", f"{text}, TTFT {level.first_token_seconds * 1000:.0f} ms")
