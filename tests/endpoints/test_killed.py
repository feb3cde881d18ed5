"""A process that is killed between two of its transactions, whichever, leaves nothing that is half there."""

from __future__ import annotations

import json
import signal
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests import inside
from tests.endpoints.batches.batching import finished, line, read, start
from tests.warm import python

PRELUDE = """
    import contextlib, math, os, signal, sys
    from localai_shim import LocalOpenAI
    from localai_shim.state.database import Database
    from localai_shim.testing import Reply, ScriptedEngine

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

    Database.transaction = counted
    waits = "cancel" in sys.argv
    answer = lambda _, prompt, __: Reply("Wait", interval=math.inf) if waits and "Say b" in prompt else "Done."
    client = LocalOpenAI(engine=ScriptedEngine(answer), store=sys.argv[1])
"""
UPLOAD = """
    client.files.create(file=("large", b"0123456789" * 60_000), purpose="batch")
"""
BATCH = """
    import threading
    file = client.files.create(file=sys.argv[3].encode(), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    if "cancel" in sys.argv:
        client.batches.cancel(batch.id)
    if "delete" in sys.argv:
        client.files.delete(file.id)
    for thread in [each for each in threading.enumerate() if each.name == "localai_shim:batches"]:
        thread.join()
"""
RESPONSES = """
    conversation = client.conversations.create(metadata={"n": "1"})
    job = client.responses.create(model="m", input="One", background=True, conversation=conversation.id)
    *_, last = client.responses.retrieve(job.id, stream=True)
    assert last.type == "response.completed"
    client.responses.create(model="m", input="Two", conversation=conversation.id)
"""
LINES = [line("a"), line("wrong", temperature=9), line("b")]


def killed_after_each_transaction(path: Path, program: str, *arguments: str) -> Iterator[Path]:
    """Stores of processes that were killed behind their first transaction, behind the second and so on."""
    script = textwrap.dedent(PRELUDE) + textwrap.dedent(program)
    for number in range(1, 99):
        store = path / f"{number}.db"
        command = [*python(), "-c", script, str(store), str(number), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        yield store
        if not done.returncode:
            assert number > 1
            return


@pytest.fixture(scope="module")
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(lambda *_: "Done.") as engine:
        yield engine


def opened(engine: ScriptedEngine, path: Path) -> LocalOpenAI:
    return LocalOpenAI(engine=engine, store=path)


def rows(client: LocalOpenAI, query: str) -> list[Any]:
    """Contents of the database."""
    with inside.store(client)._database.transaction(write=False) as connection:
        return connection.execute(query).fetchall()


def test_a_file_is_listed_with_all_of_its_content_or_not_at_all(tmp_path: Path, engine: ScriptedEngine) -> None:
    listed = []
    for path in killed_after_each_transaction(tmp_path, UPLOAD):
        with opened(engine, path) as client:
            found = [(each.bytes, len(client.files.content(each.id).content)) for each in client.files.list()]
            assert found in ([], [(600_000, 600_000)])
            listed += found
    assert listed


@pytest.mark.parametrize("what", ["complete", "cancel", "delete"])
def test_a_batch_ends_with_the_counts_and_the_usage_of_its_lines(
    tmp_path: Path, engine: ScriptedEngine, what: str
) -> None:
    with opened(engine, tmp_path / "whole.db") as client:
        whole = finished(client, start(client, LINES).id)
        per_line = whole.usage.total_tokens // 2
    ends = set()
    for path in killed_after_each_transaction(tmp_path, BATCH, "\n".join(LINES), what):
        with opened(engine, path) as client:
            for id in [batch.id for batch in client.batches.list()]:
                done = finished(client, id)
                ends.add(done.status)
                output, errors = read(client, done.output_file_id), read(client, done.error_file_id)
                counts = done.request_counts
                failed = [id for id, each in errors.items() if each["response"] is not None]
                assert (counts.total, counts.completed, counts.failed) == (3, len(output), len(failed))
                assert {*output, *errors} == {"a", "wrong", "b"}
                assert (done.usage.total_tokens if done.usage else 0) == per_line * len(output)
                if done.status == "completed":
                    assert (done.usage, counts) == (whole.usage, whole.request_counts)
            assert rows(client, "SELECT id FROM objects WHERE owner IS NOT NULL") == []
            kept = "SELECT part FROM pieces JOIN objects ON objects.seq = object WHERE kind = 'batch' AND part != ''"
            assert rows(client, kept) == []
            assert len(list(client.files.list(purpose="batch_output"))) <= 2
            for file in client.files.list(purpose="batch"):
                assert len(client.files.content(file.id).content) == file.bytes
    assert ends == ({"completed", "cancelled"} if what == "cancel" else {"completed"})


def test_a_response_of_the_background_has_ended_with_all_of_its_events_or_failed(
    tmp_path: Path, engine: ScriptedEngine
) -> None:
    ends = set()
    for path in killed_after_each_transaction(tmp_path, RESPONSES):
        with opened(engine, path) as client:
            ids = [json.loads(f'"{id}"') for (id,) in rows(client, "SELECT id FROM objects WHERE kind = 'response'")]
            items = 0
            for id in ids:
                made = client.responses.retrieve(id)
                ends.add(made.status)
                if made.status == "failed":
                    assert made.error is not None and "process" in made.error.message
                    continue
                assert (made.status, made.output_text) == ("completed", "Done.")
                items += 2
                if made.background:
                    *_, last = client.responses.retrieve(id, stream=True)
                    assert last.type == "response.completed"
            for (id,) in rows(client, "SELECT id FROM objects WHERE kind = 'conversation'"):
                assert len(client.conversations.items.list(id).data) == items
            assert rows(client, "SELECT id FROM objects WHERE owner IS NOT NULL") == []
    assert ends == {"completed", "failed"}
