"""`return_token_ids` of responses: what was sampled, thoughts and calls included, with the logprob of each token."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import reasoning, scripted, tool_call
from tests import inside
from tests.conftest import revalidate
from tests.tiny import tiny

ASK: dict[str, Any] = {"model": "any", "input": "Hello", "max_output_tokens": 24, "temperature": 1.0}
ALL: dict[str, Any] = {"return_token_ids": True, "seed": 5}
LOGPROBS: Any = ["message.output_text.logprobs"]


def fields(response: Any) -> tuple[list[int], list[int], list[float]]:
    return response.prompt_token_ids, response.token_ids, response.token_logprobs


def test_sampled_tokens_are_those_of_chat_and_have_mlx_lms_logprobs(tmp_path: Path) -> None:
    folder: Path = tiny("llama")
    with LocalOpenAI(folder) as client:
        made = client.responses.create(**ASK, include=LOGPROBS, extra_body=ALL)
        revalidate(made)
        prompt, tokens, logprobs = fields(made)
        chat = client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "Hello"}], max_tokens=24, temperature=1.0, seed=5,
            extra_body={"return_token_ids": True},
        )  # fmt: skip
        assert chat.choices[0].token_ids == tokens and chat.prompt_token_ids == prompt  # type: ignore[attr-defined]
        assert made.usage is not None and len(tokens) == made.usage.output_tokens == len(logprobs)
        *_, last = client.responses.create(**ASK, include=LOGPROBS, extra_body=ALL, stream=True)
        assert fields(last.response) == (prompt, tokens, pytest.approx(logprobs, abs=1e-4))  # type: ignore[union-attr]
        assert fields(client.responses.retrieve(made.id)) == (prompt, tokens, logprobs)
        only = client.responses.create(**ASK, extra_body=ALL)
        assert only.token_ids == tokens and not hasattr(only, "token_logprobs")  # type: ignore[attr-defined]
        assert not hasattr(client.responses.create(**ASK), "token_ids")
        queued = client.responses.create(**ASK, include=LOGPROBS, extra_body=ALL, background=True)
        limit = time.monotonic() + 60
        while (done := client.responses.retrieve(queued.id)).status in ("queued", "in_progress"):
            assert time.monotonic() < limit
        assert fields(done)[:2] == (prompt, tokens)
    model, _ = mlx_lm.load(str(folder))
    logits = model(mx.array([[*prompt, *tokens]]))[0, len(prompt) - 1 : -1].astype(mx.float32)
    expected = np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))[range(len(tokens)), tokens]
    np.testing.assert_allclose(logprobs, expected, atol=1e-3)


def test_thoughts_and_calls_are_among_them() -> None:
    tool: Any = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}, "strict": False}
    with scripted([reasoning("I have to add."), tool_call("add", {})]) as client:
        made = client.responses.create(
            model="any", input="Hi", tools=[tool], include=LOGPROBS, extra_body={"return_token_ids": True}
        )
        assert [item.type for item in made.output] == ["reasoning", "function_call"]
        _, tokens, logprobs = fields(made)
        assert made.usage is not None and len(tokens) == len(logprobs) == made.usage.output_tokens
        text = inside.engine(client).model.tokenizer.decode(tokens)
    assert "I have to add." in text and "add" in text.split("I have to add.")[1]
