"""client.vector_stores.file_batches: files that are added together, and canceled together."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from tests.conftest import refused, revalidate
from tests.endpoints.vector_stores.storing import CODE, FRUIT, PARIS, POLL, HeldEngine, names, upload

SMALL: Any = {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 0}}


def test_a_batch_counts_its_files(client: LocalOpenAI, store: str) -> None:
    files = [upload(client), upload(client, FRUIT, "fruit.txt"), upload(client, b"\0", "in.bin")]
    batch = client.vector_stores.file_batches.create_and_poll(store, file_ids=files, attributes={"a": 1}, **POLL)
    revalidate(batch)
    assert (batch.object, batch.status, batch.vector_store_id) == ("vector_store.files_batch", "completed", store)
    counts = batch.file_counts
    assert (counts.completed, counts.failed, counts.cancelled, counts.in_progress, counts.total) == (2, 1, 0, 0, 3)
    listed = client.vector_stores.file_batches.list_files(batch.id, vector_store_id=store, order="asc").data
    assert [each.id for each in listed] == files and all(each.attributes == {"a": 1} for each in listed)
    listed = client.vector_stores.file_batches.list_files(batch.id, vector_store_id=store, filter="failed").data
    assert [each.id for each in listed] == files[2:]


def test_files_of_a_batch_can_have_their_own_attributes_and_chunks(client: LocalOpenAI, store: str) -> None:
    first, second = upload(client), upload(client, FRUIT, "fruit.txt")
    entries: Any = [{"file_id": first, "attributes": {"a": 1}}, {"file_id": second, "chunking_strategy": SMALL}]
    batch = client.vector_stores.file_batches.create_and_poll(store, files=entries, **POLL)
    assert batch.file_counts.completed == 2
    files = {each.id: each for each in client.vector_stores.files.list(store)}
    assert files[first].attributes == {"a": 1} and files[second].attributes == {}
    assert files[second].chunking_strategy is not None and files[second].chunking_strategy.model_dump() == SMALL


def test_files_are_uploaded_for_a_batch(client: LocalOpenAI, store: str) -> None:
    before = upload(client, CODE, "parse.py")
    batch = client.vector_stores.file_batches.upload_and_poll(
        store, files=[("a.txt", PARIS.encode()), ("b.txt", FRUIT.encode())], file_ids=[before], **POLL
    )
    assert batch.file_counts.completed == 3
    assert names(client.vector_stores.search(store, query=FRUIT))[0] == "b.txt"


def test_a_batch_whose_files_all_fail_has_failed(client: LocalOpenAI, store: str) -> None:
    batch = client.vector_stores.file_batches.create_and_poll(store, file_ids=[upload(client, b"\0")], **POLL)
    assert batch.status == "failed"


def test_a_canceled_batch_keeps_what_is_embedded(client: LocalOpenAI, engine: HeldEngine, store: str) -> None:
    done = upload(client)
    client.vector_stores.files.create_and_poll(done, vector_store_id=store, **POLL)
    engine.hold()
    waiting = [upload(client, FRUIT, f"{i}.txt") for i in range(8)]
    batch = client.vector_stores.file_batches.create(store, file_ids=waiting)
    assert batch.status == "in_progress" and batch.file_counts.in_progress == 8
    assert engine.reached.wait(60)
    for _ in range(2):
        canceled = client.vector_stores.file_batches.cancel(batch.id, vector_store_id=store)
        revalidate(canceled)
        assert (canceled.status, canceled.file_counts.cancelled, canceled.file_counts.total) == ("cancelled", 8, 8)
    engine.release()
    after = client.vector_stores.files.create_and_poll(upload(client, CODE, "parse.py"), vector_store_id=store, **POLL)
    assert after.status == "completed"
    assert client.vector_stores.file_batches.retrieve(batch.id, vector_store_id=store) == canceled
    assert set(names(client.vector_stores.search(store, query="sweet bananas"))) == {"paris.md", "parse.py"}
    assert [each.id for each in client.vector_stores.files.list(store, filter="cancelled", order="asc")] == waiting


def test_canceling_an_ended_batch_changes_nothing(client: LocalOpenAI, store: str) -> None:
    batch = client.vector_stores.file_batches.create_and_poll(store, file_ids=[upload(client)], **POLL)
    assert client.vector_stores.file_batches.cancel(batch.id, vector_store_id=store) == batch


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({}, "file_ids", "missing_required_parameter"),
        ({"file_ids": []}, "file_ids", "empty_array"),
        ({"files": []}, "files", "empty_array"),
        ({"file_ids": ["file-1"], "files": [{"file_id": "file-1"}]}, "files", "invalid_value"),
        ({"file_ids": ["file-1"] * 2001}, "file_ids", "array_above_max_length"),
        ({"files": [{"attributes": {}}]}, "files[0].file_id", "missing_required_parameter"),
        ({"files": [{"file_id": "file-1", "attributes": {"a": []}}]}, "files[0].attributes.a", "invalid_type"),
        ({"files": [{"file_id": "file-1", "colour": "red"}]}, "files[0].colour", "unknown_parameter"),
    ],
)
def test_wrong_fields_are_refused(client: LocalOpenAI, store: str, fields: Any, param: str, code: str) -> None:
    with refused(param, code, ""):
        client.vector_stores.file_batches.create(store, **fields)


def test_batches_that_are_not_there_are_not_found(client: LocalOpenAI, store: str) -> None:
    other = client.vector_stores.create().id
    batch = client.vector_stores.file_batches.create_and_poll(store, file_ids=[upload(client)], **POLL)
    batches = client.vector_stores.file_batches
    for id, holder in ((batch.id, other), ("vsfb_none", store)):
        for call in (batches.retrieve, batches.cancel, batches.list_files):
            with pytest.raises(openai.NotFoundError, match=f"No file batch found with id '{id}'"):
                call(id, vector_store_id=holder)
