"""What frameworks send to embed texts: bodies as they were recorded, each with its default settings.

langchain-openai 1.7.3 sends token ids of tiktoken 0.14; llama-index-embeddings-openai 0.7.0, LiteLLM 1.106.2 and
haystack-ai 3.4.0 send texts.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import openai
import pytest

from localai_shim import LocalOpenAI, http_client
from localai_shim.testing import ScriptedOpenAI, patch_openai
from tests.conftest import refused
from tests.embedding_models import tiny_embedder

HELLO, BYE = [72, 101, 108, 108, 111], [66, 121, 101]
TEXTS: dict[str, dict[str, Any]] = {
    "langchain without a check": {"input": ["Hello", "Bye"], "model": "local", "encoding_format": "base64"},
    "llama-index": {"input": ["Hello", "Bye"], "model": "text-embedding-ada-002", "encoding_format": "base64"},
    "litellm": {"model": "text-embedding-3-small", "input": ["Hello", "Bye"]},
    "haystack": {"input": "Hello", "model": "text-embedding-3-small", "encoding_format": "float"},
}
IDS: dict[str, dict[str, Any]] = {
    "langchain": {"input": [HELLO, BYE], "model": "text-embedding-ada-002", "encoding_format": "base64"},
    "langchain, fewer dimensions": {
        "input": [HELLO, BYE],
        "model": "text-embedding-3-small",
        "dimensions": 256,
        "encoding_format": "base64",
    },
}


class Encoding:
    """Stands in for tiktoken's, which cannot be had offline: a token for each letter of ASCII."""

    def decode(self, ids: list[int]) -> str:
        if any(not 0 <= i < 128 for i in ids):
            raise KeyError(f"Invalid token for decoding: {max(ids)}")
        return bytes(ids).decode()


@pytest.fixture
def tiktoken(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where LangChain has loaded it."""
    registry = SimpleNamespace(ENCODINGS={"cl100k_base": Encoding()})
    monkeypatch.setitem(sys.modules, "tiktoken.registry", registry)  # type: ignore[arg-type]


def post(client: openai.OpenAI, body: dict[str, Any]) -> Any:
    return client.post("/embeddings", cast_to=object, body=body)


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_embedded(name: str) -> None:
    with ScriptedOpenAI() as client:
        answer = post(client, TEXTS[name])
        assert client.last_call.texts == np.atleast_1d(TEXTS[name]["input"]).tolist()
    assert [each["index"] for each in answer["data"]] == list(range(len(client.last_call.texts)))
    written = str if TEXTS[name].get("encoding_format") == "base64" else list
    assert all(isinstance(each["embedding"], written) for each in answer["data"])


@pytest.mark.usefixtures("tiktoken")
@pytest.mark.parametrize("name", IDS)
def test_ids_of_openais_tokenizer_are_the_texts_that_they_spell(name: str) -> None:
    body = IDS[name]
    with ScriptedOpenAI() as client, patch_openai(client):
        for each in (
            client,
            openai.OpenAI(),
            openai.OpenAI(api_key="none", http_client=http_client(engine=client.stage)),
        ):
            answer = post(each, body)
            assert client.last_call.texts == ["Hello", "Bye"] and client.last_call.body["input"] == body["input"]
            assert answer["data"] == post(each, {**body, "input": ["Hello", "Bye"]})["data"]


@pytest.mark.usefixtures("tiktoken")
def test_a_real_model_reads_these_texts_with_its_own_tokenizer() -> None:
    with LocalOpenAI(model=tiny_embedder("bert"), keep_alive=0) as client:
        made = client.embeddings.create(model="text-embedding-ada-002", input=[HELLO, BYE])
        assert made.data == client.embeddings.create(model="m", input=["Hello", "Bye"]).data
        assert made.data != client.embeddings.create(model="m", input=[HELLO, BYE]).data  # the model's own
        with refused("input.1", "invalid_value", "not token ids of cl100k_base"):
            client.embeddings.create(model="text-embedding-ada-002", input=[HELLO, [5000]])
        with refused("input.1[0]", "invalid_type", "expected an integer"):
            client.embeddings.create(model="text-embedding-ada-002", input=[HELLO, [True]])


def test_ids_that_nobody_can_read_are_refused_rather_than_misread() -> None:
    with ScriptedOpenAI() as client:
        with refused("input.0", "invalid_value", "check_embedding_ctx_length=False"):
            post(client, IDS["langchain"])
        post(client, {"model": "my-embedder", "input": [HELLO]})
    assert "tiktoken" not in sys.modules
