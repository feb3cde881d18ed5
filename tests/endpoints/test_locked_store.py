"""A store that another process locks: `timeout` counts the wait for it, and what comes too late changes nothing."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.state.database import Database
from tests import inside
from tests.conftest import MESSAGES
from tests.endpoints.batches.batching import finished, line
from tests.lost import STREAM_TIMEOUT

TIMEOUT = 0.3
"""Far less than the 30 s that a transaction waits for another process."""
RESPONSE: Any = {"model": "m", "input": "Hi", "max_output_tokens": 2, "temperature": 0}
CHAT: Any = {"model": "m", "messages": MESSAGES, "max_tokens": 2, "temperature": 0, "store": True}
ITEM: Any = [{"role": "user", "content": "More"}]


@contextlib.contextmanager
def locked(path: Path, *, reading: bool = False) -> Iterator[None]:
    """Another program writes to the store, or locks it for readers, too."""
    other = sqlite3.connect(path, isolation_level=None)
    if reading:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("COMMIT")
        other.close()


def content(path: Path) -> list[tuple[object, ...]]:
    """All that is in the store."""
    with contextlib.closing(sqlite3.connect(path)) as other:
        rows = other.execute("SELECT kind, id, deleted FROM objects ORDER BY seq").fetchall()
        return rows + other.execute("SELECT object, part, number, json FROM pieces ORDER BY seq").fetchall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def client(model_path: Path, path: Path) -> Iterator[LocalOpenAI]:
    with LocalOpenAI(model_path, store=path) as made:
        made.responses.create(**RESPONSE, store=False)  # it is loaded
        yield made


class Stored:
    """Ids of what was stored before."""

    def __init__(self, client: LocalOpenAI) -> None:
        self.response = client.responses.create(**RESPONSE).id
        self.chat = client.chat.completions.create(**CHAT).id
        conversation = client.conversations.create(items=ITEM)
        self.conversation = conversation.id
        self.item = client.conversations.items.list(conversation.id).data[0].id
        self.file = client.files.create(file=("in.jsonl", line("a").encode()), purpose="batch").id
        batch = client.batches.create(input_file_id=self.file, endpoint="/v1/chat/completions", completion_window="24h")
        self.batch = finished(client, batch.id).id


Ask = Callable[[Any, Stored], Any]
WRITES: dict[str, Ask] = {
    "response": lambda client, had: client.responses.create(**RESPONSE),
    "response that continues one": lambda client, had: client.responses.create(
        **RESPONSE, previous_response_id=had.response
    ),
    "response in a conversation": lambda client, had: client.responses.create(
        **RESPONSE, conversation=had.conversation
    ),
    "response in the background": lambda client, had: client.responses.create(**RESPONSE, background=True),
    "response that is deleted": lambda client, had: client.responses.delete(had.response),
    "chat": lambda client, had: client.chat.completions.create(**CHAT),
    "chat that is updated": lambda client, had: client.chat.completions.update(had.chat, metadata={"a": "b"}),
    "chat that is deleted": lambda client, had: client.chat.completions.delete(had.chat),
    "conversation": lambda client, had: client.conversations.create(items=ITEM),
    "conversation that is updated": lambda client, had: client.conversations.update(
        had.conversation, metadata={"a": "b"}
    ),
    "conversation that is deleted": lambda client, had: client.conversations.delete(had.conversation),
    "item": lambda client, had: client.conversations.items.create(had.conversation, items=ITEM),
    "item that is deleted": lambda client, had: client.conversations.items.delete(
        had.item, conversation_id=had.conversation
    ),
    "file": lambda client, had: client.files.create(file=line("a").encode(), purpose="batch"),
    "file that is deleted": lambda client, had: client.files.delete(had.file),
    "batch": lambda client, had: client.batches.create(
        input_file_id=had.file, endpoint="/v1/chat/completions", completion_window="24h"
    ),
    "batch that is cancelled": lambda client, had: client.batches.cancel(had.batch),
}
READS: dict[str, Ask] = {
    "response": lambda client, had: client.responses.retrieve(had.response),
    "input of a response": lambda client, had: client.responses.input_items.list(had.response),
    "chat": lambda client, had: client.chat.completions.retrieve(had.chat),
    "chats": lambda client, had: client.chat.completions.list(),
    "conversation": lambda client, had: client.conversations.retrieve(had.conversation),
    "items": lambda client, had: client.conversations.items.list(had.conversation),
    "file": lambda client, had: client.files.content(had.file),
    "files": lambda client, had: client.files.list(),
    "batch": lambda client, had: client.batches.retrieve(had.batch),
    "batches": lambda client, had: client.batches.list(),
    "response that continues one": lambda client, had: client.responses.create(
        **RESPONSE, previous_response_id=had.response, store=False
    ),
}


@pytest.mark.parametrize("ask", WRITES.values(), ids=WRITES)
def test_what_cannot_be_written_in_time_is_a_timeout_and_changes_nothing(
    ask: Ask, client: LocalOpenAI, path: Path
) -> None:
    had, hasty = Stored(client), client.with_options(timeout=TIMEOUT)
    before = content(path)
    with locked(path), pytest.raises(openai.APITimeoutError):
        ask(hasty, had)
    assert client.responses.retrieve(had.response)  # what the request had begun has ended
    assert content(path) == before


@pytest.mark.anyio
@pytest.mark.parametrize("ask", WRITES.values(), ids=WRITES)
async def test_what_tasks_cannot_write_in_time_is_a_timeout_and_changes_nothing(
    ask: Ask, client: LocalOpenAI, model_path: Path, path: Path
) -> None:
    had = Stored(client)
    async with AsyncLocalOpenAI(model_path, store=path) as other:
        await other.responses.create(**RESPONSE, store=False)
        before = content(path)
        with locked(path), pytest.raises(openai.APITimeoutError):
            await ask(other.with_options(timeout=TIMEOUT), had)
        await other.responses.retrieve(had.response)
    assert content(path) == before


@pytest.mark.parametrize("ask", READS.values(), ids=READS)
def test_what_is_only_read_does_not_wait_for_who_writes(ask: Ask, client: LocalOpenAI, path: Path) -> None:
    had = Stored(client)
    with locked(path):
        assert ask(client, had)


@pytest.mark.parametrize("ask", READS.values(), ids=READS)
def test_what_cannot_be_read_in_time_is_a_timeout(ask: Ask, client: LocalOpenAI, model_path: Path, path: Path) -> None:
    had = Stored(client)
    client.close()
    with LocalOpenAI(model_path, store=path) as later:
        later.responses.create(**RESPONSE, store=False)
        inside.store(later)._database._before_fork()  # so that the file is free: it connects again
        with locked(path, reading=True), pytest.raises(openai.APITimeoutError):
            ask(later.with_options(timeout=TIMEOUT), had)


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_the_end_of_a_stream_waits_no_longer_than_a_chunk_may_take(api: str, client: LocalOpenAI, path: Path) -> None:
    before = content(path)
    create: Any = client.responses.create if api == "responses" else client.chat.completions.create
    body = {**(RESPONSE if api == "responses" else CHAT), "stream": True, "timeout": TIMEOUT}
    with locked(path), pytest.raises((openai.APITimeoutError, STREAM_TIMEOUT)):
        list(create(**body))
    assert content(path) == before


@pytest.mark.anyio
async def test_the_end_of_an_async_stream_waits_no_longer_than_a_chunk_may_take(
    client: LocalOpenAI, model_path: Path, path: Path
) -> None:
    async with AsyncLocalOpenAI(model_path, store=path) as other:
        with locked(path), pytest.raises((openai.APITimeoutError, STREAM_TIMEOUT)):
            [_ async for _ in await other.responses.create(**RESPONSE, stream=True, timeout=TIMEOUT)]
    assert not content(path)


def test_who_waits_for_another_process_keeps_no_other_thread_waiting(client: LocalOpenAI, path: Path) -> None:
    had, began = Stored(client), threading.Event()
    waiting = threading.Thread(target=lambda: (began.set(), client.responses.create(**RESPONSE)))
    with locked(path):
        waiting.start()
        began.wait()
        for _ in range(20):
            assert client.with_options(timeout=10).responses.retrieve(had.response)
    waiting.join()


def test_no_event_loop_waits_for_the_store(model_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the fields of a response in the background were read before, so that little is left to do."""
    threads = set[str]()
    transaction = Database.transaction

    def noted(self: Database, *, write: bool) -> Any:
        threads.add(threading.current_thread().name)
        return transaction(self, write=write)

    async def ask() -> None:
        async with AsyncLocalOpenAI(model_path, store=path) as client:
            threads.clear()
            for _ in range(2):
                made = await client.responses.create(**RESPONSE, background=True)
                await client.responses.retrieve(made.id)
                await client.responses.create(**RESPONSE)

    import asyncio

    monkeypatch.setattr(Database, "transaction", noted)
    asyncio.run(ask())
    assert threads and threading.main_thread().name not in threads


# -- constructors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [LocalOpenAI, AsyncLocalOpenAI])
def test_a_client_of_a_store_that_is_written_just_now_is_made_without_waiting(
    make: Any, client: LocalOpenAI, model_path: Path, path: Path
) -> None:
    with locked(path):
        made = make(model_path, store=path, timeout=TIMEOUT)
    inside.runtime(made).close()


@pytest.mark.parametrize("make", [LocalOpenAI, AsyncLocalOpenAI])
def test_a_new_store_that_is_locked_is_waited_for_as_long_as_the_timeout_says(
    make: Any, model_path: Path, path: Path
) -> None:
    with locked(path), pytest.raises(ValueError, match="cannot be used: database is locked"):
        make(model_path, store=path, timeout=TIMEOUT)


def test_batches_are_resumed_once_the_store_is_free(model_path: Path, path: Path) -> None:
    with LocalOpenAI(model_path, store=path) as first:
        file = first.files.create(file=("in.jsonl", line("a")), purpose="batch")
        inside.runtime(first).batches().stop()  # so that another client has to do it
        store = inside.store(first)
        body: Any = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        inside.runtime(first).batches()._crew.is_closed = False
        inside.runtime(first).batches()._run = lambda id: None  # type: ignore[method-assign]
        batch = first.batches.create(**body)
        assert store.owned("batch")
    with locked(path):
        second = LocalOpenAI(model_path, store=path)
    with second:
        assert finished(second, batch.id).status == "completed"
