"""POST /rerank and localai_shim.rerank: what they take, what they refuse, and what comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import anyio
import numpy as np
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, async_http_client, http_client, rerank
from localai_shim.contrib.reranking import RerankResponse
from localai_shim.testing import ScriptedEngine
from localai_shim.vectors import Reranking
from tests.conftest import revalidate

QUERY = "capital of France"
DOCUMENTS = ["Berlin is the capital of Germany", "Paris is the capital of France", "Bananas", "France"]
BEST_FIRST = [1, 3, 0, 2]
_MISSING = "missing_required_parameter"


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(context_length=60) as engine:
        yield engine


@pytest.fixture
def scripted(engine: ScriptedEngine) -> LocalOpenAI:
    return LocalOpenAI(engine=engine)


def post(client: LocalOpenAI, **body: Any) -> Any:
    return client.post("/rerank", cast_to=object, body={"query": QUERY, "documents": DOCUMENTS, **body})


def refused(client: LocalOpenAI, **body: Any) -> openai.BadRequestError:
    with pytest.raises(openai.BadRequestError) as caught:
        post(client, **body)
    return caught.value


# -- answers --------------------------------------------------------------------------------------------------------


def test_documents_come_by_their_relevance(scripted: LocalOpenAI) -> None:
    response = rerank(scripted, QUERY, DOCUMENTS)
    revalidate(response)
    assert [result.index for result in response.results] == BEST_FIRST
    scores = [result.relevance_score for result in response.results]
    assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)
    assert (response.object, response.model) == ("list", "scripted") and response.id
    assert [result.document for result in response.results] == [{"text": DOCUMENTS[i]} for i in BEST_FIRST]


def test_equal_ones_stay_in_their_order(scripted: LocalOpenAI) -> None:
    assert [r.index for r in rerank(scripted, "x", ["b", "a", "x", "c", "d"]).results] == [2, 0, 1, 3, 4]


def test_the_query_is_counted_with_each_document(scripted: LocalOpenAI) -> None:
    usage = rerank(scripted, "abc", ["de", "f"]).usage
    assert usage is not None
    assert usage.prompt_tokens == usage.total_tokens == 2 * len("abc") + len("de") + len("f") + 2


def test_the_body_is_that_of_cohere_and_jina(scripted: LocalOpenAI) -> None:
    body = post(scripted, model="any", top_n=2, user="somebody", priority=3)
    used = body["usage"]["total_tokens"]
    assert [set(result) for result in body["results"]] == [{"index", "relevance_score", "document"}] * 2
    assert body["results"][0]["document"] == {"text": DOCUMENTS[1]}
    assert body["meta"] == {"tokens": {"input_tokens": used, "output_tokens": 0}}
    assert post(scripted, top_n=2, return_documents=True)["results"] == body["results"]


def test_who_wants_no_documents_back_gets_none(scripted: LocalOpenAI) -> None:
    results = post(scripted, return_documents=False)["results"]
    assert [set(result) for result in results] == [{"index", "relevance_score"}] * 4
    assert all(each.document is None for each in rerank(scripted, QUERY, DOCUMENTS, return_documents=False).results)


def test_an_object_is_returned_as_it_came(scripted: LocalOpenAI) -> None:
    given = {"text": "France", "source": {"page": 3}}
    [result] = rerank(scripted, QUERY, [given]).results
    assert result.document == given


def test_more_results_than_documents_are_all_of_them(scripted: LocalOpenAI) -> None:
    assert len(rerank(scripted, QUERY, DOCUMENTS, top_n=100).results) == len(DOCUMENTS)


def test_the_query_may_spell_whatever_it_likes(scripted: LocalOpenAI) -> None:
    assert [r.index for r in rerank(scripted, "<|im_end|> b", ["a", "b"]).results] == [1, 0]


@pytest.mark.anyio
async def test_the_async_client_answers_alike(engine: ScriptedEngine, scripted: LocalOpenAI) -> None:
    client = AsyncLocalOpenAI(engine=engine)
    found: dict[int, RerankResponse] = {}

    async def ask(i: int) -> None:
        found[i] = await rerank(client, QUERY, DOCUMENTS, top_n=i + 1)

    async with anyio.create_task_group() as tasks:
        for i in range(4):
            tasks.start_soon(ask, i)
    assert [[result.index for result in found[i].results] for i in range(4)] == [BEST_FIRST[: i + 1] for i in range(4)]
    raw = await client.post("/rerank", cast_to=RerankResponse, body={"query": QUERY, "documents": DOCUMENTS})
    assert raw.results == rerank(scripted, QUERY, DOCUMENTS).results


def test_a_stock_client_gets_it_over_the_transport(engine: ScriptedEngine, scripted: LocalOpenAI) -> None:
    stock = openai.OpenAI(http_client=http_client(engine=engine), api_key="none", base_url="https://example.com/v1")
    assert rerank(stock, QUERY, DOCUMENTS).results == rerank(scripted, QUERY, DOCUMENTS).results


def test_the_engine_gets_the_whole_request_at_once(scripted: LocalOpenAI, engine: ScriptedEngine) -> None:
    rerank(scripted, QUERY, DOCUMENTS)
    assert [len(request.texts) for request in engine.embedded] == [len(DOCUMENTS)]
    assert engine.requests == []


def test_cohere_s_rank_fields_are_what_is_read_of_objects(scripted: LocalOpenAI, engine: ScriptedEngine) -> None:
    given = [{"text": QUERY, "title": "Bananas", "body": "are yellow"}, {"title": "the capital of France"}, QUERY]
    found = rerank(scripted, QUERY, given, rank_fields=["body", "title"])
    read = [engine.tokenizer.decode(pair).removeprefix(f"{QUERY}<|im_end|>") for pair in engine.embedded[-1].texts]
    assert read == ["are yellow\nBananas", "the capital of France", QUERY]
    assert [(r.index, r.document) for r in found.results] == [(2, {"text": QUERY}), (1, given[1]), (0, given[0])]


def test_cohere_s_max_tokens_per_doc_cuts_each_document(scripted: LocalOpenAI, engine: ScriptedEngine) -> None:
    rerank(scripted, "abc", ["x" * 100, "y", "z" * 7], max_tokens_per_doc=5)
    assert [len(pair) - len("abc") - 1 for pair in engine.embedded[-1].texts] == [5, 1, 5]
    rerank(scripted, "a" * 50, ["x" * 100], max_tokens_per_doc=50, truncate=True)
    assert [len(pair) for pair in engine.embedded[-1].texts] == [60], "the model's own limit holds as well"


def test_vllm_s_zeros_are_no_limits(scripted: LocalOpenAI, engine: ScriptedEngine) -> None:
    found = rerank(scripted, "abc", ["x" * 40, "y"], max_tokens_per_doc=0, top_n=0)
    assert [len(pair) - len("abc") - 1 for pair in engine.embedded[-1].texts] == [40, 1]
    assert len(found.results) == 2


# -- models that embed ----------------------------------------------------------------------------------------------


@pytest.fixture
def embedder(engine: ScriptedEngine) -> LocalOpenAI:
    engine.model.tasks = ("embed",)
    return LocalOpenAI(engine=engine)


def test_a_model_that_embeds_ranks_by_the_cosine_of_its_vectors(embedder: LocalOpenAI, engine: ScriptedEngine) -> None:
    vectors = [
        np.array(each.embedding) for each in embedder.embeddings.create(model="m", input=[QUERY, *DOCUMENTS]).data
    ]
    query, *documents = [each / np.linalg.norm(each) for each in vectors]
    found = rerank(embedder, QUERY, DOCUMENTS)
    revalidate(found)
    scores = {each.index: each.relevance_score for each in found.results}
    assert [scores[i] for i in range(4)] == pytest.approx([float(query @ each) for each in documents], abs=1e-6)
    assert [each.relevance_score for each in found.results] == sorted(scores.values(), reverse=True)
    assert [each.document for each in found.results] == [{"text": DOCUMENTS[each.index]} for each in found.results]
    assert [len(request.texts) for request in engine.embedded] == [5, 5], "the query is read once"


def test_the_query_of_a_model_that_embeds_is_counted_with_each_document_too(embedder: LocalOpenAI) -> None:
    found = rerank(embedder, "abc", ["de", "f"])
    read = embedder.embeddings.create(model="m", input=["abc", "abc", "de", "f"]).usage
    assert found.usage is not None and found.usage.prompt_tokens == found.usage.total_tokens == read.prompt_tokens
    assert found.meta == {"tokens": {"input_tokens": read.prompt_tokens, "output_tokens": 0}}


def test_documents_are_cut_and_refused_for_a_model_that_embeds(embedder: LocalOpenAI, engine: ScriptedEngine) -> None:
    rerank(embedder, "abc", ["x" * 50, "y", "z" * 7], max_tokens_per_doc=5)
    assert [len(text) for text in engine.embedded[-1].texts[1:]] == [5, 1, 5]
    rerank(embedder, "abc", ["x" * 100], truncate=True)
    assert [len(text) for text in engine.embedded[-1].texts] == [3, 60]
    for query, documents, param in (("a", ["b", "c" * 61], "documents.1"), ("a" * 61, ["b"], "query")):
        error = refused(embedder, query=query, documents=documents)
        assert (error.param, error.code) == (param, "context_length_exceeded")
    error = refused(embedder, instruction="Find the capital")
    assert (error.param, error.code) == ("instruction", "unsupported_parameter")


@pytest.mark.anyio
async def test_async_clients_and_transports_rank_by_cosine(embedder: LocalOpenAI, engine: ScriptedEngine) -> None:
    expected = rerank(embedder, QUERY, DOCUMENTS, top_n=2).results
    stock = openai.AsyncOpenAI(api_key="x", http_client=async_http_client(engine=engine))
    for client in (AsyncLocalOpenAI(engine=engine), stock):
        assert (await rerank(client, QUERY, DOCUMENTS, top_n=2)).results == expected


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"query": None}, "query", "missing_required_parameter"),
        ({"query": " "}, "query", "string_below_min_length"),
        ({"query": ["a"]}, "query", "invalid_type"),
        ({"documents": None}, "documents", "missing_required_parameter"),
        ({"documents": []}, "documents", "empty_array"),
        ({"documents": "a"}, "documents", "invalid_type"),
        ({"documents": ["a"] * 2049}, "documents", "array_above_max_length"),
        ({"documents": ["a", 3]}, "documents.1", "invalid_type"),
        ({"documents": ["a", ""]}, "documents.1", "string_below_min_length"),
        ({"documents": ["a\ud800"]}, "documents.0", "invalid_value"),
        ({"documents": [{"image": "data:,"}]}, "documents.0.text", "missing_required_parameter"),
        ({"documents": [{"text": 3}]}, "documents.0.text", "invalid_type"),
        ({"rank_fields": "title"}, "rank_fields", "invalid_type"),
        ({"rank_fields": []}, "rank_fields", "empty_array"),
        ({"rank_fields": ["title", 3]}, "rank_fields.1", "invalid_type"),
        ({"rank_fields": ["title"], "documents": ["a", {"text": "b"}]}, "documents.1.title", _MISSING),
        ({"rank_fields": ["a", "b"], "documents": [{"a": "x", "b": 3}]}, "documents.0.b", "invalid_type"),
        ({"max_tokens_per_doc": -1}, "max_tokens_per_doc", "integer_below_min_value"),
        ({"max_tokens_per_doc": 5.0}, "max_tokens_per_doc", "invalid_type"),
        ({"top_n": -1}, "top_n", "integer_below_min_value"),
        ({"top_n": "3"}, "top_n", "invalid_type"),
        ({"return_documents": "yes"}, "return_documents", "invalid_type"),
        ({"truncate": 1}, "truncate", "invalid_type"),
        ({"instruction": " "}, "instruction", "string_below_min_length"),
        ({"top_k": 3}, "top_k", "unknown_parameter"),
        ({"documents": ["a", "b" * 60]}, "documents.1", "context_length_exceeded"),
    ],
)
def test_what_is_wrong_is_refused_by_its_place(
    scripted: LocalOpenAI, body: Mapping[str, Any], param: str, code: str
) -> None:
    error = refused(scripted, **body)
    assert (error.param, error.code) == (param, code)


def test_documents_are_cut_where_the_caller_says_so(scripted: LocalOpenAI, engine: ScriptedEngine) -> None:
    long = "France " * 20
    assert "truncate" in str(refused(scripted, documents=[long]))
    assert post(scripted, documents=[long, "France"], truncate=True)["usage"]["total_tokens"] == 60 + 24
    assert engine.tokenizer.decode(engine.embedded[-1].texts[0]).endswith(long[: 60 - len(QUERY) - 1])


def test_a_query_that_leaves_no_room_is_refused_all_the_same(scripted: LocalOpenAI) -> None:
    error = refused(scripted, query="x" * 60, truncate=True)
    assert (error.param, error.code) == ("query", "context_length_exceeded")


def test_a_model_that_reads_no_instruction_says_so(engine: ScriptedEngine, scripted: LocalOpenAI) -> None:
    post(scripted, instruction="Find the capital")
    reranking = engine.model.settings["rerank"]
    assert isinstance(reranking, Reranking)
    with ScriptedEngine() as other:
        other.model.settings = {"rerank": Reranking(reranking.encode)}
        error = refused(LocalOpenAI(engine=other), instruction="Find the capital")
    assert (error.param, error.code) == ("instruction", "unsupported_parameter")


def test_a_model_that_is_no_reranker_says_which_are() -> None:
    with ScriptedEngine() as other:
        other.model.tasks = ("generate",)
        error = refused(LocalOpenAI(engine=other))
    assert (error.param, error.code) == ("model", "unsupported_model")
    assert all(kind in str(error) for kind in ("bert", "modernbert", "xlm-roberta", "one label", "Qwen3-Reranker"))


def test_errors_are_the_sdks_own_with_a_body(scripted: LocalOpenAI) -> None:
    error = refused(scripted, documents=[])
    assert error.response.json()["error"]["param"] == "documents"
    assert json.loads(error.response.request.content or b"{}") in ({}, {"query": QUERY, "documents": []})
