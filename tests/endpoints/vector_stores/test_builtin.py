"""Vector stores with vectors of real models: the bundled one, and another one for embedding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.state.vector_search import searched_files
from tests import inside
from tests.embedding_models import tiny_classifier, tiny_embedder
from tests.endpoints.responses.legal import check_response
from tests.endpoints.vector_stores.storing import FRUIT, PARIS, POLL, add, names, upload

RETURNS = "Shoes can be returned within 30 days of their purchase."


def test_the_bundled_model_embeds_finds_and_answers() -> None:
    with LocalOpenAI() as client:
        store = client.vector_stores.create(name="Support").id
        files = [("returns.md", RETURNS.encode()), ("fruit.txt", FRUIT.encode())]
        batch = client.vector_stores.file_batches.upload_and_poll(store, files=files, **POLL)
        assert batch.file_counts.completed == 2
        page = client.vector_stores.search(store, query="How do I return shoes?")
        assert names(page) == ["returns.md", "fruit.txt"]
        tool: Any = {"type": "file_search", "vector_store_ids": [store]}
        answer: Any = client.responses.create(
            model="gpt-4o",
            input="How long can I return shoes?",
            tools=[tool],
            tool_choice={"type": "file_search"},
            include=["file_search_call.results"],
            temperature=0,
        )
        check_response(answer)
        assert answer.output[0].queries and answer.output[0].results[0].filename in ("returns.md", "fruit.txt")
        assert answer.output[-1].type == "message" and answer.status == "completed"
        assert inside.engine(client).stats().embedded_texts >= 4


@pytest.fixture(scope="module")
def embedder() -> Path:
    """A model that embeds texts of up to 128 tokens, with prompts."""
    return tiny_embedder("bert", prompts=(("query", "query: "), ("document", "passage: ")))


@pytest.mark.parametrize("given", ["another model", "a name", "by default"])
def test_another_model_embeds(embedder: Path, given: str, tmp_path: Path) -> None:
    options: Any = {
        "another model": {"embedding_model": embedder},
        "a name": {"models": {"chat": None, "vectors": embedder}, "embedding_model": "vectors"},
        "by default": {"models": {"chat": None, "vectors": embedder}},
    }[given]
    with LocalOpenAI(store=tmp_path / "state.db", **options) as client:
        store = client.vector_stores.create().id
        engine = inside.runtime(client).embedding_engine()  # which clients of the same model share
        before = engine.stats().embedded_texts
        file = add(client, store, " ".join([PARIS] * 40))
        assert (file.status, file.last_error) == ("completed", None)
        library = inside.runtime(client).library()
        [known] = searched_files(library.vectors, [store]).values()
        assert known.model == f"{embedder.name}, 32 dimensions"
        pieces = client.vector_stores.files.content(file.id, vector_store_id=store).data
        assert len(pieces) > 5 and "".join(piece.text or "" for piece in pieces) == " ".join([PARIS] * 40)
        assert engine.stats().embedded_texts - before == len(pieces)
        [found, *_] = client.vector_stores.search(store, query=PARIS, ranking_options={"ranker": "none"}).data
        ask: Any = {"model": "vectors", "extra_body": {"prompt_name": "query"}}
        if given != "another model":
            document: Any = {**ask, "extra_body": {"prompt_name": "document"}}
            query = client.embeddings.create(input=PARIS, **ask).data[0].embedding
            chunk = client.embeddings.create(input=found.content[0].text, **document).data[0].embedding
            assert found.score == pytest.approx(sum(a * b for a, b in zip(query, chunk, strict=True)), abs=1e-4)


def test_a_model_that_is_not_there_is_refused_when_the_client_is_made() -> None:
    with pytest.raises(FileNotFoundError, match="`embedding_model`"):
        LocalOpenAI(embedding_model="/nowhere/model")
    with pytest.raises(ValueError, match="`embedding_model` must be"):
        LocalOpenAI(embedding_model=5)  # type: ignore[arg-type]


def test_a_model_that_cannot_embed_says_so() -> None:
    with LocalOpenAI(embedding_model=tiny_classifier()) as client:
        store = client.vector_stores.create().id
        file = add(client, store)
        assert file.status == "failed" and "cannot embed texts" in file.last_error.message


def test_a_stream_continues_while_files_are_embedded() -> None:
    with LocalOpenAI() as client:
        store = client.vector_stores.create().id
        messages: Any = [{"role": "user", "content": "Tell me a story."}]
        create: Any = {"model": "m", "messages": messages, "max_tokens": 60, "temperature": 0}
        alone = client.chat.completions.create(**create).choices[0].message.content
        ids = [upload(client, " ".join([PARIS, str(i)] * 60), f"{i}.txt") for i in range(4)]
        batch = client.vector_stores.file_batches.create(store, file_ids=ids)
        chunks = client.chat.completions.create(**create, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == alone
        batch = client.vector_stores.file_batches.poll(batch.id, vector_store_id=store, poll_interval_ms=20)
        assert batch.file_counts.completed == 4
