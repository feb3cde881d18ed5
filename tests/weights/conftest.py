"""Where the checkpoints are that `make test-weights` has fetched. Nothing of this room runs without."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from localai_shim import LocalOpenAI

if "WEIGHTS" not in os.environ:
    raise pytest.UsageError("WEIGHTS is not set: run `make test-weights`, which fetches what these tests read")


@pytest.fixture(scope="session")
def weights() -> Path:
    return Path(os.environ["WEIGHTS"])


@pytest.fixture(scope="session")
def smollm(weights: Path) -> Path:
    """SmolLM2-135M-Instruct in 4 bits."""
    return weights / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def gemma(weights: Path) -> Path:
    """Gemma 3 270M in Q4_K_M: Q5_0, Q4_K, Q8_0, and Q6_K, since few of its rows are multiples of 256."""
    return weights / "gemma-3-270m.Q4_K_M.gguf"


@pytest.fixture(scope="session")
def client(smollm: Path) -> Iterator[LocalOpenAI]:
    with LocalOpenAI(model=smollm) as client:
        yield client
