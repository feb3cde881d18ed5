"""client.vector_stores.files: each file has its state, text, and attributes, and one that is removed is not found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from tests.conftest import refused, revalidate
from tests.documents.files import pdf
from tests.endpoints.vector_stores.storing import CODE, FRUIT, PARIS, POLL, HeldEngine, add, ended, names, upload

AUTO = {"type": "static", "static": {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 400}}
LONG = "".join(f"The train {i} leaves at {i} o'clock from platform {i}.\n" for i in range(40))


def static(size: Any, overlap: Any) -> Any:
    return {"type": "static", "static": {"max_chunk_size_tokens": size, "chunk_overlap_tokens": overlap}}


def test_a_file_has_its_fields(client: LocalOpenAI, store: str) -> None:
    file = add(client, store, attributes={"year": 2024, "draft": False, "lang": "en", "weight": 0.5})
    revalidate(file)
    assert (file.status, file.last_error, file.vector_store_id) == ("completed", None, store)
    assert file.attributes == {"year": 2024, "draft": False, "lang": "en", "weight": 0.5}
    assert file.chunking_strategy is not None and file.chunking_strategy.model_dump() == AUTO
    assert file.usage_bytes > len(PARIS)
    assert client.vector_stores.files.retrieve(file.id, vector_store_id=store) == file


@pytest.mark.parametrize(
    ("name", "content", "fragment"),
    [
        ("notes.txt", PARIS, "capital"),
        ("notes.md", f"# Notes\n\n{PARIS}", "# Notes"),
        ("page.html", f"<html><body><script>x = 1</script><p>{PARIS}</p></body></html>", "capital of France"),
        ("data.json", '{"city": "Paris"}', '"city"'),
        ("data.csv", "city,rain\nParis,yes\n", "Paris,yes"),
        ("parse.py", CODE, "parse_header"),
        ("paper.pdf", pdf("Paris in May", "It rains"), "It rains"),
    ],
)
def test_files_of_many_kinds_are_read(client: LocalOpenAI, store: str, name: str, content: Any, fragment: str) -> None:
    file = add(client, store, content, name)
    assert (file.last_error, file.status) == (None, "completed")
    [piece] = client.vector_stores.files.content(file.id, vector_store_id=store).data
    assert piece.type == "text" and piece.text is not None and fragment in piece.text
    assert "x = 1" not in piece.text
    [result] = client.vector_stores.search(store, query=fragment).data
    assert result.content[0].text == piece.text


@pytest.mark.parametrize(
    ("content", "code", "fragment"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", "unsupported_file", "it is an image"),
        (b"\x81\x82 text", "unsupported_file", "'in.bin' cannot be read"),
        (b"%PDF-1.4 broken", "unsupported_file", "cannot be read"),
        (b"", "invalid_file", "empty"),
        (b" \n\t", "invalid_file", "has no text"),
    ],
)
def test_a_file_that_cannot_be_read_fails_alone(
    client: LocalOpenAI, store: str, content: bytes, code: str, fragment: str
) -> None:
    good = client.vector_stores.files.create(store, file_id=upload(client))
    file = add(client, store, content, "in.bin")
    revalidate(file)
    assert file.status == "failed" and file.usage_bytes == 0 and file.last_error is not None
    assert file.last_error.code == code and fragment in file.last_error.message
    assert ended(client, store, good.id).status == "completed"
    counts = client.vector_stores.retrieve(store).file_counts
    assert (counts.completed, counts.failed, counts.total) == (1, 1, 2)
    assert names(client.vector_stores.search(store, query=PARIS)) == ["paris.md"]


def test_a_long_file_has_chunks_that_overlap_and_content_that_does_not(client: LocalOpenAI, store: str) -> None:
    file = add(client, store, LONG, "trains.txt", chunking_strategy=static(100, 50))
    assert file.chunking_strategy is not None and file.chunking_strategy.model_dump() == static(100, 50)
    texts = [piece.text or "" for piece in client.vector_stores.files.content(file.id, vector_store_id=store).data]
    assert len(texts) > 10 and "".join(texts) == LONG
    found = client.vector_stores.search(store, query="train", max_num_results=50).data
    chunks = [each.content[0].text for each in found]
    assert all(chunk in LONG for chunk in chunks) and sum(map(len, chunks)) > 1.8 * len(LONG)


@pytest.mark.parametrize(
    ("strategy", "param", "code"),
    [
        (static(99, 0), "static.max_chunk_size_tokens", "integer_below_min_value"),
        (static(4097, 0), "static.max_chunk_size_tokens", "integer_above_max_value"),
        (static(100, 51), "static.chunk_overlap_tokens", "integer_above_max_value"),
        (static(100, -1), "static.chunk_overlap_tokens", "integer_below_min_value"),
        (static("100", 0), "static.max_chunk_size_tokens", "invalid_type"),
        ({"type": "static"}, "static", "missing_required_parameter"),
        (
            {"type": "static", "static": {"max_chunk_size_tokens": 100}},
            "static.chunk_overlap_tokens",
            "missing_required_parameter",
        ),
        ({"type": "auto", "static": {}}, "static", "unknown_parameter"),
    ],
)
def test_chunks_have_openais_limits(client: LocalOpenAI, store: str, strategy: Any, param: str, code: str) -> None:
    file = upload(client)
    with pytest.raises(openai.BadRequestError) as caught:
        client.vector_stores.files.create(store, file_id=file, chunking_strategy=strategy)
    assert (caught.value.param, caught.value.code) == (f"chunking_strategy.{param}", code)
    client.vector_stores.files.create(store, file_id=file, chunking_strategy=static(100, 50))


@pytest.mark.parametrize(
    ("attributes", "param", "fragment"),
    [
        ({"a": [1]}, "attributes.a", "a string, a number, or a boolean"),
        ({"a": None}, "attributes.a", "a string"),
        ({"a": float("nan")}, "attributes.a", "a finite one"),
        ({"a" * 65: "b"}, "attributes", "maximum length 64"),
        ({"a": "b" * 513}, "attributes", "maximum length 512"),
        ({str(i): i for i in range(17)}, "attributes", "16 properties"),
        ("a", "attributes", "an object"),
    ],
)
def test_attributes_have_openais_limits(
    client: LocalOpenAI, store: str, attributes: Any, param: str, fragment: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=fragment) as caught:
        client.vector_stores.files.create(store, file_id=upload(client), attributes=attributes)
    assert caught.value.param == param and f"'{param}'" in str(caught.value)
    assert client.vector_stores.files.list(store).data == []


def test_attributes_can_be_replaced(client: LocalOpenAI, store: str) -> None:
    file = add(client, store, attributes={"a": 1, "b": "x"})
    changed = client.vector_stores.files.update(file.id, vector_store_id=store, attributes={"a": 2})
    revalidate(changed)
    assert changed.attributes == {"a": 2} and changed.status == "completed"
    assert client.vector_stores.search(store, query=PARIS).data[0].attributes == {"a": 2}
    assert client.vector_stores.files.update(file.id, vector_store_id=store, attributes=None).attributes == {}


def test_files_are_listed_in_pages_and_by_status(client: LocalOpenAI, store: str) -> None:
    made = [add(client, store, text, f"{i}.txt").id for i, text in enumerate([PARIS, b"\0", FRUIT, CODE])]
    assert [each.id for each in client.vector_stores.files.list(store, limit=2)] == made[::-1]
    listed = client.vector_stores.files.list(store, filter="failed")
    assert [each.id for each in listed] == [made[1]]
    listed = client.vector_stores.files.list(store, filter="completed", order="asc", after=made[0])
    assert [each.id for each in listed] == made[2:]
    with refused("filter", "invalid_value", "'in_progress', 'completed', 'cancelled', and 'failed'"):
        client.vector_stores.files.list(store, filter="done")  # type: ignore[arg-type]


def test_a_removed_file_is_not_found_any_more(client: LocalOpenAI, store: str) -> None:
    file, other = add(client, store), add(client, store, FRUIT, "fruit.txt")
    assert client.vector_stores.files.delete(file.id, vector_store_id=store).deleted
    assert names(client.vector_stores.search(store, query=PARIS)) == ["fruit.txt"]
    assert [each.id for each in client.vector_stores.files.list(store)] == [other.id]
    assert client.files.retrieve(file.id).filename == "paris.md"


def test_a_deleted_file_leaves_all_vector_stores(client: LocalOpenAI, store: str) -> None:
    file, second = add(client, store), client.vector_stores.create(name="second").id
    client.vector_stores.files.create_and_poll(file.id, vector_store_id=second, **POLL)
    client.files.delete(file.id)
    for each in (store, second):
        assert client.vector_stores.files.list(each).data == []
        assert client.vector_stores.search(each, query=PARIS).data == []


def test_a_file_that_is_added_again_is_embedded_again(client: LocalOpenAI, store: str) -> None:
    file = add(client, store, attributes={"a": 1})
    again = client.vector_stores.files.create_and_poll(
        file.id, vector_store_id=store, chunking_strategy=static(100, 0), **POLL
    )
    assert (again.id, again.attributes) == (file.id, {})
    assert client.vector_stores.retrieve(store).file_counts.total == 1
    assert len(client.vector_stores.search(store, query=PARIS).data) == 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda files, store: files.retrieve("file-none", vector_store_id=store),
        lambda files, store: files.update("file-none", vector_store_id=store, attributes={}),
        lambda files, store: files.delete("file-none", vector_store_id=store),
        lambda files, store: files.content("file-none", vector_store_id=store),
        lambda files, store: files.create(store, file_id="file-none"),
        lambda files, store: files.list(store, after="file-none"),
    ],
)
def test_a_file_that_is_not_there_is_not_found(client: LocalOpenAI, store: str, ask: Callable[[Any, str], Any]) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client.vector_stores.files, store)
    assert caught.value.code == "file_not_found"


def test_the_content_of_a_file_in_progress_is_empty(client: LocalOpenAI, engine: HeldEngine, store: str) -> None:
    engine.hold()
    file = client.vector_stores.files.create(store, file_id=upload(client))
    assert engine.reached.wait(60)
    assert client.vector_stores.files.content(file.id, vector_store_id=store).data == []
    assert client.vector_stores.search(store, query=PARIS).data == []
    engine.release()
    assert ended(client, store, file.id).status == "completed"
