"""What the BLAS that was found is worth: prefill with it and without, in processes of their own.

`python -m benchmarks.blas FOLDER found|bundled` is one such process; it prints its figures as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROUNDS = 2
REPEATS = 3  # of each process in each round
SIZE = "mid"
TARGET = 5.0  # times the tokens per second of MLX's own BLAS


@dataclass(slots=True)
class BlasGain:
    """Prefilled tokens per second, run by run."""

    name: str | None
    """File name of the BLAS that was found."""
    found: list[float] = field(default_factory=list)
    bundled: list[float] = field(default_factory=list)


def measure() -> BlasGain:
    """Both kinds of process in turn, so that a busy machine slows both down; `bundled` is empty if none was found."""
    from .models import SIZES, make_model

    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        make_model(Path(folder), SIZES[SIZE], SIZES[SIZE].vocabulary)
        gain = BlasGain(None)
        for _ in range(ROUNDS):
            figures = _child(folder, "found")
            gain.name = figures["blas"]
            gain.found += figures["rates"]
            if gain.name is None:
                break
            gain.bundled += _child(folder, "bundled")["rates"]
    return gain


def show(gain: BlasGain) -> None:
    """Print the comparison."""
    from .figures import Figure, print_figures, spread
    from .report import cores

    if gain.name is None:
        print(f"No BLAS besides the one that MLX came with was found: prefill {spread(gain.found, digits=0)} tok/s")
        return
    rates = f"{spread(gain.found, digits=0)}, with MLX's own {spread(gain.bundled, digits=0)}"
    print(f"Prefill of the {SIZE} model on {cores()} cores, tok/s, with {gain.name}: {rates}")
    gains = [found / bundled for found, bundled in zip(gain.found, gain.bundled, strict=True)]
    print_figures([Figure(f"BLAS: prefill of the {SIZE} model / MLX's own", gains, TARGET, digits=1)])


def _child(folder: str, which: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.blas", folder, which]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _run(folder: str, which: str) -> dict[str, Any]:
    """Prefill in this process. MLX's calls are bound at its import: to its own BLAS if nothing was loaded before."""
    if which == "bundled":
        import mlx.core  # noqa: F401
    from localai_shim.backends.blas import blas
    from localai_shim.backends.machine import require_backend

    require_backend()
    import time

    import mlx_lm

    from .bare import BareModel
    from .models import SIZES
    from .workload import Prompts

    model, tokenizer = mlx_lm.load(folder)[:2]
    bare, length = BareModel(model), SIZES[SIZE].prompt_tokens
    prompts = Prompts(tokenizer, length)
    rates = []
    for prompt in prompts.take(REPEATS + 1):
        start = time.perf_counter()
        bare.prefill([prompt])
        rates.append((length - 1) / (time.perf_counter() - start))
    return {"blas": blas(), "rates": rates[1:]}  # the first one warms up


if __name__ == "__main__":
    print(json.dumps(_run(*sys.argv[1:])))
