"""Files are embedded whatever happens meanwhile to their neighbors, their store, the client, and the process."""

from __future__ import annotations

import signal
import subprocess
import textwrap
import threading
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.endpoints.vector_stores import ingestion
from localai_shim.state import vectors
from localai_shim.testing import ScriptedEngine
from localai_shim.types import EmbeddingRequest, Sink, Ticket, Work
from tests import inside
from tests.endpoints.vector_stores.storing import CODE, FRUIT, PARIS, POLL, HeldEngine, add, ended, names, upload
from tests.engine.harness import eventually
from tests.warm import python

POISON = "poison"


class PoisonedEngine(ScriptedEngine):
    """Fails for texts with a certain word."""

    def submit(self, works: Any, sink: Sink, ticket: Ticket | None = None) -> Ticket:
        work: Work = works[0]
        texts = work.texts if isinstance(work, EmbeddingRequest) else ()
        if any(POISON in self.tokenizer.decode(list(text)) for text in texts):
            raise ArithmeticError("no vector")
        return super().submit(works, sink, ticket)


def start(client: LocalOpenAI, engine: HeldEngine, store: str, text: str = PARIS) -> str:
    """The ID of a file that is being embedded."""
    engine.hold()
    file = client.vector_stores.files.create(store, file_id=upload(client, text))
    assert engine.reached.wait(60)
    return file.id


def idle(client: LocalOpenAI) -> bool:
    """True if no file is embedded any more."""
    return not inside.runtime(client).library().ingestion._crew._threads


def test_a_file_whose_embedding_fails_leaves_its_neighbors_alone(caplog: pytest.LogCaptureFixture) -> None:
    with PoisonedEngine() as engine, LocalOpenAI(engine=engine) as client:
        store = client.vector_stores.create().id
        files = [upload(client, text, f"{i}.txt") for i, text in enumerate([PARIS, POISON, FRUIT])]
        batch = client.vector_stores.file_batches.create_and_poll(store, file_ids=files, **POLL)
        assert (batch.file_counts.completed, batch.file_counts.failed) == (2, 1)
        failed = client.vector_stores.files.retrieve(files[1], vector_store_id=store)
        assert failed.last_error is not None and failed.last_error.code == "server_error"
        assert "no vector" in failed.last_error.message and "could not be embedded" in caplog.text
        assert sorted(names(client.vector_stores.search(store, query=FRUIT))) == ["0.txt", "2.txt"]


def test_a_file_removed_while_it_is_embedded_stays_removed(client: LocalOpenAI, engine: HeldEngine, store: str) -> None:
    file = start(client, engine, store)
    client.vector_stores.files.delete(file, vector_store_id=store)
    engine.release()
    assert eventually(lambda: idle(client))
    assert client.vector_stores.retrieve(store).file_counts.total == 0
    assert client.vector_stores.search(store, query=PARIS).data == []
    assert add(client, store).status == "completed"


def test_a_store_deleted_while_its_file_is_embedded_stays_deleted(
    client: LocalOpenAI, engine: HeldEngine, store: str
) -> None:
    start(client, engine, store)
    client.vector_stores.delete(store)
    engine.release()
    assert eventually(lambda: idle(client))
    with pytest.raises(openai.NotFoundError):
        client.vector_stores.retrieve(store)
    assert add(client, client.vector_stores.create().id).status == "completed"


def test_a_file_added_again_while_it_is_embedded_is_embedded_once(
    client: LocalOpenAI, engine: HeldEngine, store: str
) -> None:
    file = start(client, engine, store)
    client.vector_stores.files.create(store, file_id=file, attributes={"a": 1})
    engine.release()
    assert ended(client, store, file).attributes == {"a": 1}
    assert eventually(lambda: idle(client))
    assert len(client.vector_stores.search(store, query=PARIS).data) == 1


def test_an_upload_deleted_while_it_waits_is_gone(client: LocalOpenAI, engine: HeldEngine, store: str) -> None:
    engine.hold()
    files = [client.vector_stores.files.create(store, file_id=upload(client)).id for _ in range(8)]
    client.files.delete(files[-1])
    engine.release()
    for file in files[:-1]:
        assert ended(client, store, file).status == "completed"
    assert client.vector_stores.retrieve(store).file_counts.total == 7


def test_closing_a_client_does_not_wait_for_vectors(engine: HeldEngine, tmp_path: Path) -> None:
    with LocalOpenAI(engine=engine, store=tmp_path / "state.db") as client:
        store = client.vector_stores.create().id
        file = start(client, engine, store)
        waiting = [client.vector_stores.files.create(store, file_id=upload(client, FRUIT)).id for _ in range(6)]
    assert not [each for each in threading.enumerate() if each.name == "localai_shim:vector_stores"]
    engine.release()
    with LocalOpenAI(engine=engine, store=tmp_path / "state.db") as client:
        for each in (file, *waiting):
            assert ended(client, store, each).status == "completed"
        assert len(client.vector_stores.search(store, query=PARIS).data) == 7


def test_a_client_of_the_same_file_leaves_work_to_the_one_that_does_it(engine: HeldEngine, tmp_path: Path) -> None:
    with LocalOpenAI(engine=engine, store=tmp_path / "state.db") as first:
        store = first.vector_stores.create().id
        file = start(first, engine, store)
        with LocalOpenAI(engine=engine, store=tmp_path / "state.db") as second:
            assert second.vector_stores.files.retrieve(file, vector_store_id=store).status == "in_progress"
            assert idle(second)
            engine.release()
            assert ended(second, store, file).status == "completed"


def test_work_left_for_another_model_has_failed(engine: HeldEngine, tmp_path: Path) -> None:
    with LocalOpenAI(engine=engine, store=tmp_path / "state.db") as client:
        store = client.vector_stores.create().id
        file = start(client, engine, store)
    with ScriptedEngine(name="other") as other, LocalOpenAI(engine=other, store=tmp_path / "state.db") as client:
        failed = ended(client, store, file)
        assert failed.status == "failed" and "Add the file again" in failed.last_error.message


def test_vectors_of_another_model_are_not_searched(engine: HeldEngine, tmp_path: Path) -> None:
    with LocalOpenAI(engine=engine, store=tmp_path / "state.db") as client:
        store = client.vector_stores.create().id
        file = add(client, store)
    with ScriptedEngine(name="other") as other, LocalOpenAI(engine=other, store=tmp_path / "state.db") as client:
        with pytest.raises(openai.BadRequestError, match="embedded by another model") as caught:
            client.vector_stores.search(store, query=PARIS)
        assert caught.value.code == "embedding_model_mismatch"
        client.vector_stores.files.create_and_poll(file.id, vector_store_id=store, **POLL)
        assert names(client.vector_stores.search(store, query=PARIS)) == ["paris.md"]


def test_a_full_store_in_memory_fails_the_file_that_does_not_fit(
    engine: HeldEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalOpenAI(engine=engine) as client:
        store = client.vector_stores.create().id
        add(client, store)
        monkeypatch.setattr(vectors, "MEMORY_SHARE", 1e-5)
        file = add(client, store, FRUIT * 100, "fruit.txt")
        assert file.status == "failed" and file.usage_bytes == 0
        assert "store in memory" in file.last_error.message and "Pass `store=PATH`" in file.last_error.message
        assert names(client.vector_stores.search(store, query=PARIS)) == ["paris.md"]


def test_vector_stores_are_not_evicted_from_memory(engine: HeldEngine) -> None:
    with LocalOpenAI(engine=engine) as client:
        store = client.vector_stores.create().id
        add(client, store)
        inside.store(client).limit = 2**20
        for _ in range(40):
            client.conversations.create(items=[{"type": "message", "role": "user", "content": "x" * 100_000}])
        assert names(client.vector_stores.search(store, query=PARIS)) == ["paris.md"]


def test_chunks_are_embedded_a_few_at_a_time(
    client: LocalOpenAI, engine: HeldEngine, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "CHUNKS", 3)
    strategy: Any = {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 0}}
    add(client, store, "a" * 1000, "long.txt", chunking_strategy=strategy)
    assert [len(work.texts) for work in engine.embedded] == [3, 3, 3, 1]
    assert all(work.priority > 0 for work in engine.embedded)


def test_a_forked_child_refuses_to_embed(client: LocalOpenAI, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = upload(client)
    monkeypatch.setattr(inside.runtime(client).library().ingestion._crew, "_pid", 1)
    with pytest.raises(openai.APIConnectionError, match="forked"):
        client.vector_stores.files.create(store, file_id=file)


def test_chats_are_answered_while_files_wait_for_vectors(client: LocalOpenAI, engine: HeldEngine, store: str) -> None:
    file = start(client, engine, store, CODE)
    answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hello"}])
    assert answer.choices[0].message.content == "Hi"
    engine.release()
    assert ended(client, store, file).status == "completed"


KILLED = """
    import contextlib, os, signal, sys
    from localai_shim import LocalOpenAI
    from localai_shim.state.database import Database
    from localai_shim.testing import ScriptedEngine

    transaction, left = Database.transaction, int(sys.argv[2])

    @contextlib.contextmanager
    def counted(self, *, write):
        global left
        with self._lock, transaction(self, write=write) as connection:
            yield connection
            if write:
                connection.execute("COMMIT")
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
                connection.execute("BEGIN")  # which the real one ends

    client = LocalOpenAI(engine=ScriptedEngine(), store=sys.argv[1])
    store = client.vector_stores.create(name="docs").id
    file = client.files.create(file=("long.txt", b"The train leaves. " * 500), purpose="assistants").id
    Database.transaction = counted
    client.vector_stores.files.create_and_poll(
        file, vector_store_id=store, poll_interval_ms=5,
        chunking_strategy={"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 0}},
    )
"""


@pytest.mark.parametrize("transactions", [1, 2, 3, 4, 5, 6])
def test_a_file_is_embedded_whenever_its_process_is_killed(transactions: int, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    command = [*python(), "-c", textwrap.dedent(KILLED), str(path), str(transactions)]
    assert subprocess.run(command, timeout=120).returncode == -signal.SIGKILL
    with ScriptedEngine() as engine, LocalOpenAI(engine=engine, store=path) as client:
        [store] = client.vector_stores.list().data
        [file] = client.vector_stores.files.list(store.id).data
        assert ended(client, store.id, file.id).status == "completed"
        pieces = client.vector_stores.files.content(file.id, vector_store_id=store.id).data
        assert "".join(piece.text or "" for piece in pieces) == "The train leaves. " * 500
        found = client.vector_stores.search(store.id, query="train", max_num_results=50).data
        assert len(found) == 50
