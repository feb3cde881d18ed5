"""client.vector_stores: what is created can be read, changed, listed, and deleted, and expires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import VectorStoreDeleted

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, http_client
from localai_shim.endpoints.vector_stores import library, stores
from tests.conftest import refused, revalidate
from tests.endpoints.vector_stores.storing import FRUIT, PARIS, HeldEngine, add, ended, names, upload

DAY = 24 * 3600
EXPIRY: Any = {"anchor": "last_active_at", "days": 2}


def test_a_created_store_has_its_fields(client: LocalOpenAI) -> None:
    made = client.vector_stores.create(name="docs", metadata={"team": "red"}, expires_after=EXPIRY)
    revalidate(made)
    assert (made.name, made.metadata, made.object, made.status) == (
        "docs",
        {"team": "red"},
        "vector_store",
        "completed",
    )
    assert made.expires_at == made.created_at + 2 * DAY and made.last_active_at == made.created_at
    assert made.file_counts.total == made.usage_bytes == 0
    assert client.vector_stores.retrieve(made.id) == made
    plain = client.vector_stores.create()
    assert (plain.name, plain.metadata, plain.expires_after, plain.expires_at) == ("", None, None, None)


def test_a_store_of_files_embeds_them(client: LocalOpenAI) -> None:
    files = [upload(client), upload(client, FRUIT, "fruit.txt")]
    made = client.vector_stores.create(file_ids=[*files, files[0]])
    for file in files:
        assert ended(client, made.id, file).status == "completed"
    found = client.vector_stores.retrieve(made.id)
    revalidate(found)
    assert (found.file_counts.total, found.file_counts.completed, found.status) == (2, 2, "completed")
    assert found.usage_bytes > len(PARIS) + len(FRUIT)


def test_a_store_is_in_progress_while_a_file_is_embedded(client: LocalOpenAI, engine: HeldEngine, store: str) -> None:
    engine.hold()
    file = client.vector_stores.files.create(store, file_id=upload(client))
    assert file.status == "in_progress" and file.usage_bytes == 0
    assert engine.reached.wait(60)
    found = client.vector_stores.retrieve(store)
    assert (found.status, found.file_counts.in_progress) == ("in_progress", 1)
    engine.release()
    assert ended(client, store, file.id).status == "completed"
    assert client.vector_stores.retrieve(store).status == "completed"


def test_an_update_changes_what_it_names(client: LocalOpenAI) -> None:
    made = client.vector_stores.create(name="docs", metadata={"team": "red"}, expires_after=EXPIRY)
    changed = client.vector_stores.update(made.id, name="papers")
    revalidate(changed)
    assert (changed.name, changed.metadata, changed.expires_after) == ("papers", made.metadata, made.expires_after)
    changed = client.vector_stores.update(made.id, metadata=None, expires_after=None)
    assert (changed.name, changed.metadata, changed.expires_after, changed.expires_at) == ("papers", None, None, None)


def test_stores_are_listed_in_pages(client: LocalOpenAI) -> None:
    made = [client.vector_stores.create(name=str(i)).id for i in range(5)]
    assert [each.id for each in client.vector_stores.list(limit=2)] == made[::-1]
    page = client.vector_stores.list(limit=2, order="asc", after=made[0])
    assert [each.id for each in page.data] == made[1:3] and page.has_more
    page = client.vector_stores.list(limit=2, order="asc", before=made[3])
    assert [each.id for each in page.data] == made[1:3]
    page = client.vector_stores.list(limit=2, before=made[1])
    assert [each.id for each in page.data] == [made[3], made[2]]
    for start in ("after", "before"):
        with pytest.raises(openai.NotFoundError, match="vs_none") as caught:
            client.vector_stores.list(**{start: "vs_none"})  # type: ignore[arg-type]
        assert caught.value.param == start
    with refused("before", "invalid_value", "one of 'after' and 'before'"):
        client.vector_stores.list(after=made[0], before=made[1])


def test_a_deleted_store_is_gone_and_its_files_stay(client: LocalOpenAI, store: str) -> None:
    file = add(client, store)
    assert client.vector_stores.delete(store) == VectorStoreDeleted(
        id=store, deleted=True, object="vector_store.deleted"
    )
    assert client.files.retrieve(file.id).filename == "paris.md"
    assert client.vector_stores.list().data == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.vector_stores.retrieve("vs_none"),
        lambda client: client.vector_stores.update("vs_none", name="a"),
        lambda client: client.vector_stores.delete("vs_none"),
        lambda client: client.vector_stores.search("vs_none", query="a"),
        lambda client: client.vector_stores.files.list("vs_none"),
        lambda client: client.vector_stores.files.delete("file-1", vector_store_id="vs_none"),
        lambda client: client.vector_stores.files.create("vs_none", file_id=upload(client)),
        lambda client: client.vector_stores.file_batches.create("vs_none", file_ids=[upload(client)]),
        lambda client: client.vector_stores.file_batches.cancel("vsfb_none", vector_store_id="vs_none"),
    ],
)
def test_a_store_that_is_not_there_is_not_found(client: LocalOpenAI, ask: Callable[[LocalOpenAI], Any]) -> None:
    with pytest.raises(openai.NotFoundError, match="Vector store with id 'vs_none' not found"):
        ask(client)


@pytest.mark.parametrize(
    ("fields", "param", "code", "fragment"),
    [
        ({"name": 1}, "name", "invalid_type", "a string"),
        ({"metadata": {"a": 1}}, "metadata.a", "invalid_type", "a string"),
        (
            {"expires_after": {"anchor": "created_at", "days": 1}},
            "expires_after.anchor",
            "invalid_value",
            "last_active_at",
        ),
        (
            {"expires_after": {"anchor": "last_active_at", "days": 0}},
            "expires_after.days",
            "integer_below_min_value",
            "1",
        ),
        ({"expires_after": {"anchor": "last_active_at"}}, "expires_after.days", "missing_required_parameter", "days"),
        ({"file_ids": "file-1"}, "file_ids", "invalid_type", "an array"),
        ({"extra_body": {"colour": "red"}}, "colour", "unknown_parameter", "colour"),
        ({"chunking_strategy": {"type": "other"}}, "chunking_strategy.type", "invalid_value", "'auto' and 'static'"),
    ],
)
def test_wrong_fields_are_refused(client: LocalOpenAI, fields: Any, param: str, code: str, fragment: str) -> None:
    with refused(param, code, fragment):
        client.vector_stores.create(**fields)
    assert client.vector_stores.list().data == []


def test_a_file_that_was_not_uploaded_is_named(client: LocalOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="file-none") as caught:
        client.vector_stores.create(file_ids=[upload(client), "file-none"])
    assert caught.value.param == "file_ids[1]"
    assert client.vector_stores.list().data == []


def test_an_expired_store_has_no_files_and_is_not_searched(
    client: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = client.vector_stores.create(name="docs", expires_after=EXPIRY)
    add(client, made.id)
    assert made.expires_at is not None
    for module in (stores, library):
        monkeypatch.setattr(module, "now", lambda: made.expires_at)
    found = client.vector_stores.retrieve(made.id)
    revalidate(found)
    assert (found.status, found.usage_bytes, found.file_counts.total) == ("expired", 0, 0)
    with refused("vector_store_id", "vector_store_expired", "has expired"):
        client.vector_stores.search(made.id, query="rain")
    with refused("vector_store_id", "vector_store_expired", "has expired"):
        client.vector_stores.files.create(made.id, file_id=upload(client))
    assert client.vector_stores.delete(made.id).deleted


def test_a_search_makes_a_store_expire_later(client: LocalOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    made = client.vector_stores.create(name="docs", expires_after=EXPIRY)
    monkeypatch.setattr(library, "now", lambda: made.created_at + DAY)
    client.vector_stores.search(made.id, query="rain")
    found = client.vector_stores.retrieve(made.id)
    assert (found.last_active_at, found.expires_at) == (made.created_at + DAY, made.created_at + 3 * DAY)


def test_async_clients_do_the_same(engine: HeldEngine) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(engine=engine) as client:
            made = await client.vector_stores.create(name="docs")
            file = await client.vector_stores.files.upload_and_poll(
                vector_store_id=made.id, file=("paris.md", PARIS.encode()), poll_interval_ms=5
            )
            assert file.status == "completed"
            batch = await client.vector_stores.file_batches.upload_and_poll(
                made.id, files=[("fruit.txt", FRUIT.encode())], poll_interval_ms=5
            )
            assert batch.file_counts.completed == 1
            found = await client.vector_stores.search(made.id, query=FRUIT)
            assert names(found)[0] == "fruit.txt"
            assert [each.id async for each in client.vector_stores.list()] == [made.id]

    asyncio.run(main())


def test_the_sdks_own_client_does_the_same(engine: HeldEngine) -> None:
    with openai.OpenAI(api_key="unused", http_client=http_client(engine=engine)) as client:
        made = client.vector_stores.create(name="docs", metadata={"a": "b"})
        file = client.vector_stores.files.upload_and_poll(
            vector_store_id=made.id, file=("paris.md", PARIS.encode()), attributes={"n": 1}, poll_interval_ms=5
        )
        assert file.attributes == {"n": 1}
        assert names(client.vector_stores.search(made.id, query=PARIS)) == ["paris.md"]
        raw = client.vector_stores.files.with_raw_response.content(file.id, vector_store_id=made.id)
        assert raw.headers["content-type"] == "application/json" and raw.parse().data[0].text == PARIS


def test_clients_of_one_file_share_vector_stores(engine: HeldEngine, tmp_path: Path) -> None:
    with LocalOpenAI(engine=engine, store=tmp_path / "state.db") as first:
        store = first.vector_stores.create(name="docs").id
        add(first, store)
        with LocalOpenAI(engine=engine, store=tmp_path / "state.db") as second:
            assert names(second.vector_stores.search(store, query=PARIS)) == ["paris.md"]
            second.vector_stores.files.delete(first.vector_stores.files.list(store).data[0].id, vector_store_id=store)
        assert first.vector_stores.search(store, query=PARIS).data == []
