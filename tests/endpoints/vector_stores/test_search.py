"""client.vector_stores.search: the order of results, their scores, and filters."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.state import schema
from tests.conftest import refused, revalidate
from tests.endpoints.vector_stores.storing import CODE, FRUIT, PARIS, HeldEngine, add, names

YEARS = {
    "old.txt": {"year": 1990, "lang": "en", "draft": True},
    "new.txt": {"year": 2024, "lang": "fr"},
    "none.txt": {},
}


@pytest.fixture
def filled(client: LocalOpenAI, store: str) -> str:
    for name, text in (("paris.md", PARIS), ("fruit.txt", FRUIT), ("parse.py", CODE)):
        add(client, store, text, name)
    return store


def test_the_most_similar_chunk_is_first(client: LocalOpenAI, filled: str) -> None:
    page = client.vector_stores.search(filled, query="Are bananas sweet?", rewrite_query=True)
    assert names(page)[0] == "fruit.txt"
    for result in page.data:
        revalidate(result)
        assert 0 <= result.score <= 1 and result.content[0].type == "text"
    assert page.data[0].content[0].text == FRUIT and page.data[0].attributes == {}
    scores = [result.score for result in page.data]
    assert scores == sorted(scores, reverse=True) and page.object == "vector_store.search_results.page"


def test_a_chunk_that_is_first_by_vector_and_words_has_the_score_1(client: LocalOpenAI, filled: str) -> None:
    found = client.vector_stores.search(filled, query=FRUIT).data
    assert found[0].score == pytest.approx(1) and all(each.score < 1 for each in found[1:])


def test_words_find_what_vectors_do_not(client: LocalOpenAI, filled: str) -> None:
    options: Any = {"hybrid_search": {"embedding_weight": 0, "text_weight": 1}}
    assert names(client.vector_stores.search(filled, query="parse_header", ranking_options=options)) == ["parse.py"]
    assert names(client.vector_stores.search(filled, query='"; DROP * OR (', ranking_options=options)) == []
    options = {"hybrid_search": {"embedding_weight": 1, "text_weight": 0}}
    assert len(client.vector_stores.search(filled, query="parse_header", ranking_options=options).data) == 3


def test_without_a_ranker_the_score_is_the_cosine(client: LocalOpenAI, filled: str) -> None:
    found = client.vector_stores.search(filled, query=PARIS, ranking_options={"ranker": "none"}).data
    assert found[0].filename == "paris.md" and found[0].score == pytest.approx(1, abs=1e-5)
    texts = [each.content[0].text for each in found]
    vectors = [each.embedding for each in client.embeddings.create(model="m", input=[PARIS, *texts]).data]
    for result, vector in zip(found, vectors[1:], strict=True):
        cosine = sum(a * b for a, b in zip(vectors[0], vector, strict=True))
        assert result.score == pytest.approx(max(0, cosine), abs=1e-5)


def test_several_queries_are_one_search(client: LocalOpenAI, filled: str) -> None:
    page = client.vector_stores.search(filled, query=[FRUIT, PARIS], max_num_results=2)
    assert set(names(page)) == {"fruit.txt", "paris.md"}
    assert page.search_query == [FRUIT, PARIS]  # type: ignore[attr-defined]


def test_results_are_limited_by_number_and_score(client: LocalOpenAI, filled: str) -> None:
    assert len(client.vector_stores.search(filled, query=PARIS, max_num_results=1).data) == 1
    options: Any = {"ranker": "none", "score_threshold": 0.99}
    assert names(client.vector_stores.search(filled, query=PARIS, ranking_options=options)) == ["paris.md"]
    options = {"ranker": "default-2024-11-15", "score_threshold": 1.0}
    assert names(client.vector_stores.search(filled, query=PARIS, ranking_options=options)) == ["paris.md"]


@pytest.mark.parametrize(
    ("filter", "kept"),
    [
        ({"type": "eq", "key": "lang", "value": "en"}, "old.txt"),
        ({"type": "ne", "key": "lang", "value": "en"}, "new.txt none.txt"),
        ({"type": "gt", "key": "year", "value": 1990}, "new.txt"),
        ({"type": "gte", "key": "year", "value": 1990.0}, "new.txt old.txt"),
        ({"type": "lt", "key": "year", "value": 2024}, "old.txt"),
        ({"type": "lte", "key": "year", "value": 2024}, "new.txt old.txt"),
        ({"type": "in", "key": "year", "value": [1990, 1991]}, "old.txt"),
        ({"type": "nin", "key": "year", "value": [1990, 1991]}, "new.txt none.txt"),
        ({"type": "eq", "key": "draft", "value": True}, "old.txt"),
        ({"type": "eq", "key": "draft", "value": 1}, ""),
        ({"type": "gt", "key": "lang", "value": 1}, ""),
        ({"type": "gt", "key": "lang", "value": "em"}, "new.txt old.txt"),
        (
            {
                "type": "or",
                "filters": [
                    {"type": "eq", "key": "lang", "value": "fr"},
                    {
                        "type": "and",
                        "filters": [
                            {"type": "eq", "key": "lang", "value": "en"},
                            {"type": "lt", "key": "year", "value": 2000},
                        ],
                    },
                ],
            },
            "new.txt old.txt",
        ),
        ({"type": "and", "filters": [{"type": "eq", "key": "lang", "value": "de"}]}, ""),
    ],
)
def test_filters_select_files_by_their_attributes(client: LocalOpenAI, store: str, filter: Any, kept: str) -> None:
    for name, attributes in YEARS.items():
        add(client, store, PARIS, name, attributes=attributes)
    assert sorted(names(client.vector_stores.search(store, query=PARIS, filters=filter))) == kept.split()


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"query": ""}, "query", "string_below_min_length"),
        ({"query": [" "]}, "query[0]", "string_below_min_length"),
        ({"query": []}, "query", "empty_array"),
        ({"query": 1}, "query", "invalid_type"),
        ({"query": "a" * 4097}, "query", "string_above_max_length"),
        ({"max_num_results": 0}, "max_num_results", "integer_below_min_value"),
        ({"max_num_results": 51}, "max_num_results", "integer_above_max_value"),
        ({"ranking_options": {"ranker": "best"}}, "ranking_options.ranker", "invalid_value"),
        ({"ranking_options": {"score_threshold": 1.1}}, "ranking_options.score_threshold", "decimal_above_max_value"),
        ({"ranking_options": {"colour": 1}}, "ranking_options.colour", "unknown_parameter"),
        (
            {"ranking_options": {"hybrid_search": {"embedding_weight": 0, "text_weight": 0}}},
            "ranking_options.hybrid_search",
            "invalid_value",
        ),
        (
            {"ranking_options": {"hybrid_search": {"embedding_weight": 1}}},
            "ranking_options.hybrid_search.text_weight",
            "missing_required_parameter",
        ),
        ({"filters": {"type": "is", "key": "a", "value": 1}}, "filters.type", "invalid_value"),
        ({"filters": {"type": "eq", "key": "a"}}, "filters.value", "missing_required_parameter"),
        ({"filters": {"type": "eq", "key": "a", "value": {}}}, "filters.value", "invalid_type"),
        ({"filters": {"type": "gt", "key": "a", "value": True}}, "filters.value", "invalid_type"),
        ({"filters": {"type": "in", "key": "a", "value": "b"}}, "filters.value", "invalid_type"),
        ({"filters": {"type": "and", "filters": []}}, "filters.filters", "empty_array"),
        (
            {"filters": {"type": "or", "filters": [{"type": "eq"}]}},
            "filters.filters[0].key",
            "missing_required_parameter",
        ),
    ],
)
def test_wrong_fields_are_refused(client: LocalOpenAI, store: str, fields: Any, param: str, code: str) -> None:
    with refused(param, code, ""):
        client.vector_stores.search(store, **{"query": "rain", **fields})


def test_filters_may_not_be_nested_without_end(client: LocalOpenAI, store: str) -> None:
    filter: Any = {"type": "eq", "key": "a", "value": 1}
    for _ in range(20):
        filter = {"type": "and", "filters": [filter]}
    with pytest.raises(openai.BadRequestError, match="nested 16 levels deep"):
        client.vector_stores.search(store, query="rain", filters=filter)


def test_without_an_index_of_words_vectors_alone_are_searched(
    engine: HeldEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schema, "WORDS", schema.WORDS.replace("fts5", "fts_none"))
    with LocalOpenAI(engine=engine) as client:
        store = client.vector_stores.create().id
        add(client, store), add(client, store, FRUIT, "fruit.txt")
        assert "searched by vectors only" in caplog.text
        found = client.vector_stores.search(store, query=FRUIT).data
        assert [each.filename for each in found] == ["fruit.txt", "paris.md"]
        client.vector_stores.files.delete(found[0].file_id, vector_store_id=store)
        assert names(client.vector_stores.search(store, query=FRUIT)) == ["paris.md"]


def test_an_empty_store_has_no_results(client: LocalOpenAI, store: str) -> None:
    page = client.vector_stores.search(store, query="rain")
    assert page.data == [] and not page.has_next_page()


def test_one_store_has_nothing_of_another(client: LocalOpenAI, filled: str) -> None:
    other = client.vector_stores.create().id
    add(client, other, "Bananas grow in Ecuador.", "ecuador.txt")
    assert names(client.vector_stores.search(other, query=FRUIT)) == ["ecuador.txt"]
    assert "ecuador.txt" not in names(client.vector_stores.search(filled, query=FRUIT))
