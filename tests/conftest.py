"""Fixtures that the tests of the clients share: one tiny model, clients of it, and mlx-lm alone as the oracle."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.tiny import tiny

MESSAGES: list[Any] = [{"role": "user", "content": "Hello there"}]

Adjust = Callable[[np.ndarray, list[int]], np.ndarray]
"""(logits of the next token, tokens generated so far) -> logits to draw from."""


class Oracle:
    """mlx-lm's own model, one request at a time, recomputed from the start for every token."""

    def __init__(self, path: Path) -> None:
        import mlx_lm

        self._model, self.tokenizer = mlx_lm.load(str(path))

    def prompt(self, messages: list[Any] = MESSAGES) -> list[int]:
        """Prompt tokens of a conversation."""
        return list(self.tokenizer.apply_chat_template(messages, add_generation_prompt=True))

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """`[vocabulary]` float64: the logits of the token after these."""
        import mlx.core as mx

        out = self._model(mx.array([list(ids)]))[0, -1].astype(mx.float32)
        return np.array(out).astype(np.float64)

    def logprobs(self, ids: Sequence[int]) -> np.ndarray:
        """Natural log-softmax of `logits`."""
        logits = self.logits(ids)
        return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())

    def greedy(self, prompt: Sequence[int], n: int, adjust: Adjust | None = None) -> list[int]:
        """Up to n tokens after a prompt, the first end of sequence included."""
        out: list[int] = []
        while len(out) < n and not (out and out[-1] in self.tokenizer.eos_token_ids):
            logits = self.logits([*prompt, *out])
            out.append(int(np.argmax(logits if adjust is None else adjust(logits, out))))
        return out

    def text(self, ids: Sequence[int]) -> str:
        """What the tokens say, without an end of sequence."""
        return str(self.tokenizer.decode([i for i in ids if i not in self.tokenizer.eos_token_ids]))


@contextlib.contextmanager
def refused(param: str | None, code: str | None, fragment: str) -> Iterator[None]:
    """A 400 that names the field, with OpenAI's code and a piece of the message."""
    with pytest.raises(openai.BadRequestError) as caught:
        yield
    error = caught.value
    assert (error.param, error.code) == (param, code)
    assert isinstance(error.body, dict)
    assert fragment in error.body["message"]


def revalidate(made: Any) -> None:
    """The object is what its own class demands, whole: every required field is there and of the right type."""
    again = type(made).model_validate(made.model_dump(), strict=True)
    assert again == made


@pytest.fixture(scope="session")
def model_path() -> Path:
    """A tiny dense model with random weights."""
    return tiny("qwen3")


@pytest.fixture(scope="session")
def oracle(model_path: Path) -> Oracle:
    return Oracle(model_path)


@pytest.fixture(scope="session")
def client(model_path: Path) -> Iterator[LocalOpenAI]:
    """Serves every model name with the tiny model."""
    with LocalOpenAI(model_path) as client:
        yield client


@pytest.fixture(scope="session")
def builtin() -> Iterator[LocalOpenAI]:
    """The checkpoint that ships with the package, which answers in sentences and ends its turns."""
    with LocalOpenAI() as client:
        yield client


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Tests marked `anyio` run on both event loops."""
    return str(request.param)


@pytest.fixture
async def async_client(model_path: Path, client: LocalOpenAI) -> AsyncIterator[AsyncLocalOpenAI]:
    """As `client`, of which it shares the engine; made on the test's own event loop."""
    async with AsyncLocalOpenAI(model_path) as made:
        yield made
