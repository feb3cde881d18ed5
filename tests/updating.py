"""Checkpoints with other weights, and streams that run while a model gets them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
from mlx_lm.generate import generate_step

from localai_shim import LocalOpenAI
from tests import inside


def arrays(folder: Path) -> dict[str, mx.array]:
    """A checkpoint's tensors."""
    made: dict[str, mx.array] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        made.update(mx.load(str(file)))  # type: ignore[arg-type]
    return made


def changed(folder: Path, made: Path, seed: int = 0) -> Path:
    """A checkpoint like another one with other weights; norms stay."""
    shutil.copytree(folder, made)
    mx.random.seed(seed)
    weights = {
        name: array + 0.05 * mx.random.normal(array.shape).astype(array.dtype) if array.ndim == 2 else array
        for name, array in arrays(folder).items()
    }
    [file] = made.glob("model*.safetensors")
    mx.save_safetensors(str(file), weights, {"format": "mlx"})
    return made


def tokens_of(chunks: Any) -> list[int]:
    """The tokens of a stream's chunks."""
    return [token for chunk in chunks for token in chunk.choices[0].token_ids or ()]


def begin(client: LocalOpenAI, prompt: tuple[int, ...], max_tokens: int, *, priority: int = 0) -> Any:
    """A greedy stream that ends at its limit."""
    extra = {"return_token_ids": True, "ignore_eos": True, "priority": priority}
    return client.completions.create(
        model="any", prompt=list(prompt), max_tokens=max_tokens, temperature=0, stream=True, extra_body=extra
    )


def outputs(client: LocalOpenAI) -> dict[tuple[int, ...], list[int]]:
    """What each row that waits has generated, by the keys of its prompt. For the engine's thread."""
    engine: Any = inside.engine(client)
    rows = [row for job in inside.rows(engine).prompts for row in job.rows]
    return {tuple(row.request.prompt.keys): [*row.output_tokens] for row in rows}


def greedy(folder: Path, prompt: list[int], count: int) -> list[int]:
    """Tokens that mlx-lm generates by itself, whatever they are."""
    model, _ = mlx_lm.load(str(folder))
    steps = generate_step(mx.array(prompt), model, max_tokens=count)
    return [int(token) for token, _ in steps]
