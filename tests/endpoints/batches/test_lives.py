"""Batches that are cancelled, whose client or process ends, whose file is deleted, and that others go on with."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.client.batch_lines import answer_lines
from localai_shim.endpoints.batches import stored
from localai_shim.state.errors import StoreError
from localai_shim.state.store import Store
from localai_shim.testing import Reply, ScriptedEngine
from tests import inside
from tests.endpoints.batches.batching import CHAT, finished, line, read, start, upload
from tests.engine.harness import eventually
from tests.warm import python

THREADS = "localai_shim:batches"


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == THREADS]


def running(client: Any, id: str, completed: int) -> bool:
    """So many lines are answered."""
    return eventually(lambda: client.batches.retrieve(id).request_counts.completed == completed)


class Halting:
    """A script whose answers hang, but for those to messages of certain words.

    Attributes:
        free: what is answered.
    """

    def __init__(self, *free: str) -> None:
        self.free = set(free)
        self.asked: list[str] = []

    def __call__(self, request: Any, prompt: str, before: Any) -> Any:
        said = prompt.rpartition("Say ")[2].partition("<")[0].strip()
        self.asked.append(said)
        return "Done." if said in self.free else Reply("Wait", interval=math.inf)


Make = Callable[..., tuple[LocalOpenAI, Halting, ScriptedEngine]]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Clients with a store in one file, each with an engine of its own."""
    made: list[Any] = []

    def make(*free: str, name: str = "scripted", store: bool = True) -> tuple[LocalOpenAI, Halting, ScriptedEngine]:
        script = Halting(*free)
        engine = ScriptedEngine(script, name=name)
        client = LocalOpenAI(engine=engine, store=tmp_path / "state.db" if store else None)
        made.extend([client, engine])
        return client, script, engine

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("store", [False, True])
def test_a_batch_is_cancelled_amid_its_lines(make: Make, store: bool) -> None:
    client, _, engine = make("a", "b", store=store)
    batch = start(client, [line("a"), line("x"), line("b"), line("y")])
    assert running(client, batch.id, 2)
    assert client.batches.cancel(batch.id).status == "cancelling"
    done = finished(client, batch.id)
    assert done.status == "cancelled" and done.cancelling_at and done.cancelled_at
    assert (done.request_counts.completed, done.request_counts.total) == (2, 4)
    assert list(read(client, done.output_file_id)) == ["a", "b"]
    left = read(client, done.error_file_id)
    assert {id: (each["response"], each["error"]["code"]) for id, each in left.items()} == {
        "x": (None, "batch_cancelled"),
        "y": (None, "batch_cancelled"),
    }
    assert eventually(lambda: engine.stats().running == 0)
    assert client.batches.cancel(batch.id).status == "cancelled"


def test_what_another_client_cancels_stops(make: Make) -> None:
    client, _, _ = make()
    other, _, _ = make()
    batch = start(client, [line("x")])
    assert eventually(lambda: other.batches.retrieve(batch.id).status == "in_progress")
    other.batches.cancel(batch.id)
    assert finished(other, batch.id).status == "cancelled"


def test_closing_a_client_leaves_no_thread_and_no_row(make: Make) -> None:
    client, _, engine = make("a", store=False)
    batch = start(client, [line("a"), line("x")])
    assert running(client, batch.id, 1) and threads()
    client.close()
    assert not threads() and eventually(lambda: engine.stats().running == 0)
    with pytest.raises(openai.APIConnectionError):
        client.batches.retrieve(batch.id)


def test_the_next_client_answers_what_is_left_and_nothing_twice(make: Make) -> None:
    client, _, _ = make("a", "c")
    batch = start(client, [line(id) for id in "abcd"])
    assert running(client, batch.id, 2)
    client.close()
    other, again, _ = make(*"abcd")
    done = finished(other, batch.id)  # it was taken up as the client was made
    assert (done.status, list(read(other, done.output_file_id))) == ("completed", list("abcd"))
    assert (sorted(again.asked), done.request_counts.completed) == (["b", "d"], 4)


def test_a_client_that_looks_at_what_another_one_left_does_not_run_it_but_may_cancel_it(make: Make) -> None:
    client, _, _ = make()
    other, script, _ = make("x")
    batch = start(client, [line("x")])
    assert eventually(lambda: other.batches.retrieve(batch.id).status == "in_progress")
    client.close()
    assert other.batches.retrieve(batch.id).status == "in_progress"
    assert [each.status for each in other.batches.list()] == ["in_progress"]
    other.batches.cancel(batch.id)
    assert finished(other, batch.id).status == "cancelled" and not script.asked


def test_a_client_of_another_model_does_not_go_on_but_cancels(make: Make) -> None:
    client, _, _ = make()
    batch = start(client, [line("x")])
    assert eventually(lambda: client.batches.retrieve(batch.id).status == "in_progress")
    client.close()
    other, script, _ = make("x", name="another")
    assert other.batches.retrieve(batch.id).status == "in_progress" and not script.asked
    other.batches.cancel(batch.id)
    assert finished(other, batch.id).status == "cancelled" and not script.asked


@pytest.mark.parametrize("is_open", [True, False])
def test_what_is_not_done_in_time_expires(make: Make, monkeypatch: pytest.MonkeyPatch, is_open: bool) -> None:
    monkeypatch.setattr(stored, "_WINDOW_SECONDS", 3)  # enough for one answer on a busy machine
    client, _, _ = make("a")
    batch = start(client, [line("a"), line("x")])
    if not is_open:
        assert running(client, batch.id, 1)
        client.close()
        assert eventually(lambda: batch.expires_at <= time.time())
        client, _, _ = make(name="another")
    done = finished(client, batch.id)
    assert done.status == "expired" and done.expired_at and done.finalizing_at
    assert list(read(client, done.output_file_id)) == ["a"]
    assert read(client, done.error_file_id)["x"]["error"]["code"] == "batch_expired"


def test_a_batch_s_file_may_be_deleted_meanwhile(make: Make) -> None:
    client, _, _ = make("a")
    file = upload(client, [line("a"), line("x")])
    batch = client.batches.create(input_file_id=file, endpoint=CHAT, completion_window="24h")
    assert running(client, batch.id, 1)
    client.files.delete(file)
    client.close()
    other, _, _ = make("x")
    assert finished(other, batch.id).status == "completed"


def test_several_batches_run_side_by_side(make: Make) -> None:
    client, _, _ = make("z", store=False)
    first, second = start(client, [line("x")]), start(client, [line("z")])
    assert finished(client, second.id).status == "completed"
    assert client.batches.retrieve(first.id).status == "in_progress"
    many = [start(client, [line("x")]) for _ in range(8)]
    last = start(client, [line("z")])
    assert client.batches.retrieve(last.id).status == "validating"  # it waits for those
    for batch in [first, *many]:
        client.batches.cancel(batch.id)
    assert finished(client, last.id).status == "completed"


def test_an_engine_that_ends_fails_the_batch(make: Make) -> None:
    client, _, engine = make("a", store=False)
    batch = start(client, [line("a"), line("x")])
    assert running(client, batch.id, 1)
    engine.close()
    done = finished(client, batch.id)
    assert done.status == "failed" and "closed" in done.errors.data[0].message


def test_a_full_queue_is_waited_for(model_path: Path) -> None:
    with LocalOpenAI(model_path, max_rows=2, max_queue=0, keep_alive=0) as client:
        done = finished(client, start(client, [line(str(i)) for i in range(12)]).id)
        assert (done.status, done.request_counts.completed) == ("completed", 12)


def test_everybody_else_goes_first(model_path: Path) -> None:
    """A batch has all rows, and yet a request need not wait until one of its lines has ended; they end as ever."""
    lines = [line(str(i), seed=i, temperature=1, max_tokens=120, ignore_eos=True) for i in range(4)]
    with LocalOpenAI(model_path, max_rows=2, keep_alive=0) as client:
        undisturbed = [json.loads(answer) for answer in answer_lines(client, lines)]
        batch = start(client, lines)
        assert eventually(lambda: client.stats().running == 2)
        for _ in range(3):
            client.completions.create(model="m", prompt="Hi", max_tokens=4, temperature=0)
        assert client.stats().preempted >= 1
        output = read(client, finished(client, batch.id).output_file_id)
        for each in undisturbed:
            assert output[each["custom_id"]]["response"]["body"]["choices"] == each["response"]["body"]["choices"]


# -- processes --------------------------------------------------------------------------------------------------------

PROGRAM = """
    import json, math, os, signal, sys, time
    from localai_shim import LocalOpenAI
    from localai_shim.testing import Reply, ScriptedEngine
    answer = lambda request, prompt, before: "Done." if "short" in prompt else Reply("Wait", interval=math.inf)
    if sys.argv[2] == "real":
        client = LocalOpenAI(sys.argv[3], store=sys.argv[1])
    else:
        client = LocalOpenAI(engine=ScriptedEngine(answer), store=sys.argv[1])
    def line(id, **more):
        body = {"model": "m", "messages": [{"role": "user", "content": id}], "max_tokens": 4, **more}
        return json.dumps({"method": "POST", "url": "/v1/chat/completions", "custom_id": id, "body": body})
    lines = [line(f"short {i}") for i in range(3)] + [line(f"long {i}", max_tokens=150, ignore_eos=True) for i in "ab"]
    file = client.files.create(file="\\n".join(lines).encode(), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    while client.batches.retrieve(batch.id).request_counts.completed < 3:
        time.sleep(0.01)
    print(batch.id, flush=True)
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*python("mlx" if "real" in arguments else "sdk"), "-c", textwrap.dedent(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize("how", ["real", "scripted", "killed"])
def test_what_a_process_leaves_is_taken_up(tmp_path: Path, model_path: Path, how: str) -> None:
    """Whether it ends by itself, with the batch running, or is killed."""
    path = tmp_path / "state.db"
    made = run(PROGRAM, str(path), how, str(model_path))
    assert made.returncode == (-signal.SIGKILL if how == "killed" else 0), made.stderr
    engine = ScriptedEngine(lambda *_: "Done.")
    with LocalOpenAI(model_path, store=path) if how == "real" else LocalOpenAI(engine=engine, store=path) as client:
        found = finished(client, made.stdout.strip())
        assert (found.status, found.request_counts.completed) == ("completed", 5)
        assert [id.split()[0] for id in read(client, found.output_file_id)] == ["short"] * 3 + ["long"] * 2
    engine.close()


SECOND = """
    import sys
    from localai_shim import LocalOpenAI
    from localai_shim.testing import ScriptedEngine
    asked = []
    engine = ScriptedEngine(lambda request, *_: asked.append(request) or "Done.")
    with LocalOpenAI(engine=engine, store=sys.argv[1]) as client:
        [batch] = client.batches.list()
        assert batch.status == client.batches.retrieve(batch.id).status == "in_progress"
        assert client.batches.cancel(batch.id).status == "cancelling"
    assert not asked
    engine.close()
"""


def test_another_process_leaves_what_this_one_runs_alone_and_may_cancel_it(make: Make, tmp_path: Path) -> None:
    client, _, _ = make("a")
    batch = start(client, [line("a"), line("x")])
    assert running(client, batch.id, 1)
    other = run(SECOND, str(tmp_path / "state.db"))
    assert other.returncode == 0, other.stderr
    done = finished(client, batch.id)
    assert (done.status, list(read(client, done.output_file_id))) == ("cancelled", ["a"])


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="there is no /proc")
def test_a_process_that_has_got_the_id_of_one_that_ended_does_not_run_its_batches(make: Make) -> None:
    client, _, _ = make()
    batch = start(client, [line("x")])
    assert eventually(lambda: client.batches.retrieve(batch.id).status == "in_progress")
    client.close()
    store = inside.store(make(name="another")[0])
    store.claim("batch", f"{os.getppid()}:0:0", lambda *_: True)  # alive, and began at another time
    assert finished(make("x")[0], batch.id).status == "completed"


FORKING = """
    import json, os, sys, threading
    from localai_shim import LocalOpenAI
    from localai_shim.testing import Reply, ScriptedEngine
    import math, openai
    engine = ScriptedEngine(lambda *_: Reply("Wait", interval=math.inf))
    client = LocalOpenAI(engine=engine, store=sys.argv[1])
    body = {"model": "m", "messages": [{"role": "user", "content": "Count"}]}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    file = client.files.create(file=json.dumps(line).encode(), purpose="batch")
    make = lambda: client.batches.create(input_file_id=file.id, endpoint=line["url"], completion_window="24h")
    batch = make()
    while client.batches.retrieve(batch.id).status != "in_progress":
        pass
    child = os.fork()
    if not child:
        assert client.batches.retrieve(batch.id).status == "in_progress"
        try:
            make()
        except openai.APIConnectionError as error:
            assert "forked" in str(error)
        else:
            os._exit(2)
        client.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert client.batches.retrieve(batch.id).status == "in_progress"
    client.batches.cancel(batch.id)
    while client.batches.retrieve(batch.id).status != "cancelled":
        pass
    client.close()
    engine.close()
    assert [t for t in threading.enumerate() if t.name not in ('MainThread', 'localai_shim:idle')] == []
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_looks_and_leaves_the_batch_alone(tmp_path: Path) -> None:
    made = run(FORKING, str(tmp_path / "state.db"))
    assert made.returncode == 0, made.stderr


def test_a_batch_is_found_whole_whatever_was_going_on_when_it_was_left(make: Make) -> None:
    """A process may end amid finalizing: what it began is done once more, under the same ids."""
    client, _, _ = make("a")
    batch = start(client, [line("a"), line("x")])
    assert running(client, batch.id, 1)
    client.close()
    holding, _, _ = make(name="another")  # does not go on, and so holds still
    store = inside.store(holding)

    def leave(body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "status": "finalizing", "localai_shim": {**body["localai_shim"], "end": "completed"}}

    store.update("batch", batch.id, leave)
    other, _, _ = make("x", name="another")
    done = finished(other, batch.id)
    assert (done.status, list(read(other, done.output_file_id))) == ("completed", ["a"])
    assert json.loads(other.files.content(done.output_file_id).text)["custom_id"] == "a"
    assert [each.filename for each in other.files.list(purpose="batch_output")] == [f"{batch.id}_output.jsonl"]


def test_a_batch_that_cannot_be_stored_has_failed_for_whoever_asks_and_is_stored_when_it_can_be(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _, _ = make("a", "b")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "update", _full)
        made = finished(client, start(client, [line("a")]).id)
        assert made.status == "failed" and "disk is full" in made.errors.data[0].message
        assert inside.store(client).get("batch", made.id)["status"] == "validating"  # type: ignore[index]
    assert client.batches.retrieve(made.id).status == "failed"
    assert inside.store(client).get("batch", made.id)["status"] == "failed"  # type: ignore[index]
    assert finished(client, start(client, [line("b")]).id).status == "completed"


def _full(*_: object, **__: object) -> None:
    raise StoreError("database or disk is full")


def test_where_no_thread_can_be_started_a_batch_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _, _ = make("a")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    file = upload(client, [line("a")])
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(openai.InternalServerError, match="start new thread"):
            client.batches.create(input_file_id=file, endpoint=CHAT, completion_window="24h")
    assert not client.batches.list().data
    assert finished(client, start(client, [line("a")]).id).status == "completed"
