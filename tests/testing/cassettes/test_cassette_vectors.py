"""Embeddings and rerankings are recorded in a compact form, and come again without the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI, rerank
from localai_shim.testing import ScriptedEngine, ScriptedOpenAI, embedding, relevance
from localai_shim.testing.cassettes.engine import play_cassette
from localai_shim.testing.cassettes.matching import differences, meaning

ASK: dict[str, Any] = {"model": "text-embedding-3-small", "input": ["Hello", "Good bye"]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tape.jsonl"


@pytest.fixture
def source() -> Iterator[LocalOpenAI]:
    with ScriptedEngine(name="some-embedder", dimensions=8) as engine, LocalOpenAI(engine=engine) as client:
        yield client


def same(answer: openai.BaseModel) -> dict[str, object]:
    return {name: value for name, value in answer.to_dict().items() if name != "id"}


def test_vectors_come_again_to_the_last_bit(source: LocalOpenAI, path: Path) -> None:
    said = source.embeddings.create(**ASK)
    with play_cassette(path, record_mode="once", source=source) as client:
        assert client.embeddings.create(**ASK) == said
    with play_cassette(path) as client:
        played = client.embeddings.create(**ASK)
    assert played == said and played.model == "some-embedder"


def test_the_file_has_a_line_for_each_vector(path: Path) -> None:
    with ScriptedOpenAI() as source:
        source.script(embedding([0.5, -2.0], [1.0, 0.0]))
        with play_cassette(path, record_mode="once", source=source) as client:
            client.embeddings.create(**ASK)
    first, *vectors, last = map(json.loads, path.read_text().splitlines())
    assert first == {"request": ASK, "api": "embeddings"}
    assert [each["vector"] for each in vectors] == ["AAAAPwAAAMA=", "AACAPwAAAAA="]
    assert last == {"model": "scripted", "fingerprint": None, "usage": {"prompt_tokens": 13, "total_tokens": 13}}


def test_numbers_and_base64_are_the_same_recording(source: LocalOpenAI, path: Path) -> None:
    with play_cassette(path, record_mode="once", source=source) as client:
        client.embeddings.create(**ASK, encoding_format="float")
    with play_cassette(path) as client:
        raw = client.embeddings.with_raw_response.create(**ASK).http_response.json()
    assert isinstance(raw["data"][0]["embedding"], str)


def test_vectors_of_any_size_are_played_whole(path: Path) -> None:
    large = [float(i) for i in range(4096)]
    with ScriptedOpenAI() as source:
        source.script(embedding(large))
        with play_cassette(path, record_mode="once", source=source) as client:
            client.embeddings.create(model="m", input="a")
    with play_cassette(path) as client:
        assert client.embeddings.create(model="m", input="a").data[0].embedding == large


def test_a_shorter_form_is_another_request(source: LocalOpenAI, path: Path) -> None:
    with play_cassette(path, record_mode="new_episodes", source=source) as client:
        whole, cut = client.embeddings.create(**ASK), client.embeddings.create(**ASK, dimensions=4)
    assert [len(answer.data[0].embedding) for answer in (whole, cut)] == [8, 4]
    with play_cassette(path) as client:
        assert client.embeddings.create(**ASK, dimensions=4) == cut
        with pytest.raises(openai.BadRequestError, match="dimensions: recorded 4, now 2"):
            client.embeddings.create(**ASK, dimensions=2)


def test_token_ids_are_recorded_too(source: LocalOpenAI, path: Path) -> None:
    with play_cassette(path, record_mode="once", source=source) as client:
        said = client.embeddings.create(model="m", input=[[1, 2, 3], [4]])
    with play_cassette(path) as client:
        assert client.embeddings.create(model="m", input=[[1, 2, 3], [4]]) == said


def test_a_reranking_is_played_for_any_number_of_results(path: Path) -> None:
    documents = ["a", "b", "c"]
    with ScriptedOpenAI() as source:
        source.script(relevance(0.25, 0.75, 0.5))
        with play_cassette(path, record_mode="once", source=source) as client:
            said = rerank(client, "q", documents, top_n=1)
    assert [(each.index, each.relevance_score) for each in said.results] == [(1, 0.75)]
    with play_cassette(path) as client:
        played = rerank(client, "q", documents, top_n=2, return_documents=True)
        assert [(each.index, each.document) for each in played.results] == [(1, {"text": "b"}), (2, {"text": "c"})]
        assert played.usage == said.usage
        with pytest.raises(openai.BadRequestError, match=r"documents\[1\]: recorded 'b', now 'x'"):
            rerank(client, "q", ["a", "x", "c"])


def test_an_error_is_not_recorded(path: Path) -> None:
    with ScriptedOpenAI(max_retries=0) as source:
        source.script(openai.OpenAIError("broken"))
        with (
            play_cassette(path, record_mode="once", source=source) as client,
            pytest.raises(openai.OpenAIError, match="broken"),
        ):
            client.embeddings.create(**ASK)
    assert not path.exists()


def test_what_means_the_same() -> None:
    assert meaning("embeddings", {**ASK, "encoding_format": "base64", "user": "me"}) == meaning("embeddings", ASK)
    assert meaning("embeddings", {"input": "a"}) == meaning("embeddings", {"input": ["a"]})
    other = meaning("embeddings", {**ASK, "input": ["Hello", "Good by"]})
    assert differences(meaning("embeddings", ASK), other) == ["input[1]: recorded 'Good bye', now 'Good by'"]
