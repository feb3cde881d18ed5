"""The models that serve a soak, their clients, and the same models with nothing on, for one request at a time."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.embedding_models import tiny_classifier, tiny_embedder
from tests.lora import make_adapter
from tests.tiny import AGENT_TURNS, make_model

MEMORY_LIMIT = 7 << 20  # bytes: for some eight rows, and less where one is long
VISION_LIMIT = 30 << 20  # of which the weights take 16, and a context of 2,048 tokens 12
NOISE = 0.02  # by which the model that drafts differs from the one that is asked
CONTEXT = 1_000
CHURNED: dict[str, Any] = {"keep_alive": 0, "max_rows": 2, "max_queue": 2}
"""Of the model that comes and goes: few may wait for it, so that others are refused."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Clients of one model."""

    sync: LocalOpenAI
    async_: AsyncLocalOpenAI


@dataclass(frozen=True, slots=True)
class Setting:
    """Arguments of each model's clients."""

    spare: Path
    """The folder of an adapter that is loaded and unloaded meanwhile."""
    shared: Mapping[str, dict[str, Any]]
    """While all run."""
    alone: Mapping[str, dict[str, Any]]


def make_setting(root: Path) -> Setting:
    """Make the models' folders, and say how each is asked."""
    text = make_model(root / "text", "qwen3", template=AGENT_TURNS + "{% endif -%}")
    draft = _disturbed(text, root / "draft")
    adapters = {name: make_adapter(root / name, text, seed=i, rank=2 + i) for i, name in enumerate("abc")}
    spare = adapters.pop("c")
    base: dict[str, Any] = {"model": text, "adapters": adapters, "context_length": CONTEXT}
    plain: dict[str, Any] = {"speculation": "off", "prefix_cache_bytes": 0, "keep_alive": 0}
    texts = {"embedder": {"model": tiny_embedder("bert")}, "judge": {"model": tiny_classifier("bert")}}
    store = root / "store.sqlite"
    shared: dict[str, dict[str, Any]] = {
        "text": {
            **base,
            "draft_model": draft,
            "memory_limit": MEMORY_LIMIT,
            "cache_dir": root / "cache",
            "store": store,
        },
        "vision": {"model": "builtin:vision", "memory_limit": VISION_LIMIT, "store": store},
        "churned": CHURNED,
        **texts,
    }
    alone = {
        "text": {**base, **plain},
        "vision": {"model": "builtin:vision", "vision_cache_bytes": 0, **plain},
        "churned": plain,
        **{name: {**options, "max_stall": 0.2, "keep_alive": 0} for name, options in texts.items()},
    }
    return Setting(spare, {name: {"keep_alive": 0, **options} for name, options in shared.items()}, alone)


def _disturbed(source: Path, folder: Path) -> Path:
    """A copy of a model whose weights are a little off, so that most of what it guesses is right."""
    import mlx.core as mx

    shutil.copytree(source, folder)
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    mx.random.seed(9)
    moved = {name: array + NOISE * mx.random.normal(array.shape) for name, array in weights.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), moved, metadata={"format": "mlx"})
    return folder


@contextlib.contextmanager
def opened(options: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Pair]]:
    """Clients of all models, closed at the end."""
    pairs = {name: open_pair(given) for name, given in options.items()}
    try:
        yield pairs
    finally:
        for pair in pairs.values():
            close_pair(pair)


def open_pair(options: dict[str, Any]) -> Pair:
    return Pair(LocalOpenAI(**options), AsyncLocalOpenAI(**options))


def close_pair(pair: Pair) -> None:
    """Close both; an async client has no other way outside of a loop that is not a coroutine."""
    import anyio

    pair.sync.close()
    anyio.run(pair.async_.close)
