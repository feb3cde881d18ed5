"""Engines whose model is spread over processes of this machine, and tiny models for them."""

from __future__ import annotations

import functools
import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localai_shim.engine.engine import Engine
from localai_shim.options import ModelOptions
from localai_shim.runtime.sources import ModelSource
from localai_shim.runtime.starting import start_engine
from localai_shim.types import GenerationRequest, SamplingParams
from tests.architectures import config_of
from tests.engine.harness import GREEDY, Running, request
from tests.tiny import make_tokenizer, make_weights

BEGINNING = [9 + i % 90 for i in range(70)]


@functools.cache
def folder_of(kind: str, **changes: Any) -> Path:
    """The folder of a random model of any architecture of mlx-lm; made once per test session."""
    folder = Path(tempfile.mkdtemp(prefix="localai_shim-sharded-")) / kind
    folder.mkdir()
    config = config_of(kind, **changes)
    make_tokenizer(folder, vocabulary=config["vocab_size"])
    tokens = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    end = next(token["id"] for token in tokens if token["content"] == "<|im_end|>")
    return make_weights(folder, {**config, "eos_token_id": end})


@contextmanager
def running(folder: Path, processes: int = 1, **options: Any) -> Iterator[Engine[Any]]:
    """An engine on so many processes; closed at the end."""
    given = ModelOptions(**options)
    if processes > 1:
        given["tensor_parallel"] = processes
    engine = start_engine(ModelSource(str(folder), given))
    try:
        _ = engine.model
        yield engine
    finally:
        engine.close()


def followers(parent: int) -> list[int]:
    """Numbers of the processes that follow this one."""
    listed = subprocess.run(
        ["pgrep", "-P", str(parent), "-f", "localai_shim.scale.parallel.follower"],
        capture_output=True,
        text=True,
        check=False,
    )
    return [int(line) for line in listed.stdout.split()]


def asked() -> list[GenerationRequest]:
    """Requests whose prompts share a beginning: greedy, sampled and penalised ones, long and short answers."""
    ways = (GREEDY, SamplingParams(seed=5), SamplingParams(seed=6, presence_penalty=0.7))
    lengths = (0, 70, 40, 70, 0, 70)
    most = (10, 4, 14, 6, 9, 8)
    return [
        request([*BEGINNING[: lengths[i]], *range(100 + 9 * i, 104 + 12 * i)], ways[i % 3], most[i]) for i in range(6)
    ]


def mixed(engine: Engine[Any]) -> list[list[int]]:
    """Tokens of these requests where they join each other's steps; one more comes and leaves meanwhile."""
    first = [Running(engine, each) for each in asked()[:3]]
    first[0].read(2)
    gone = Running(engine, request([*BEGINNING, 3], GREEDY, 200))
    later = [Running(engine, each) for each in asked()[3:]]
    gone.read(4)
    gone.cancel()
    return [each.finish()[0] for each in (*first, *later)]


def one_by_one(engine: Engine[Any], requests: Sequence[GenerationRequest]) -> list[list[int]]:
    """Tokens of requests, each alone."""
    return [Running(engine, each).finish()[0] for each in requests]
