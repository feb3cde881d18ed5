"""Responses that run without their caller: polled, resumed as a stream, cancelled, and never lost sight of."""

from __future__ import annotations

import gc
import itertools
import math
import random
import subprocess
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.endpoints.responses import background
from localai_shim.state.database import Database
from localai_shim.state.errors import StoreError
from localai_shim.state.store import Store
from localai_shim.testing import Reply, ScriptedEngine
from localai_shim.types import RowError
from tests import inside, machines
from tests.conftest import refused
from tests.endpoints.responses.legal import check_response, check_stream
from tests.engine.harness import eventually
from tests.lost import STREAM_TIMEOUT
from tests.warm import python

ON_ONE_SYSTEM = pytest.mark.skipif(
    machines.ASKED_FOR, reason="the other process says when it began, which this system does not tell"
)

ENDED = ("completed", "incomplete", "failed", "cancelled")
WORDS = "one two three four five six seven eight nine ten"


def start(client: Any, **more: Any) -> Any:
    return client.responses.create(**{"model": "m", "input": "Count", "background": True, **more})


def finished(client: LocalOpenAI, id: str) -> Any:
    """The response, once it has ended."""
    assert eventually(lambda: client.responses.retrieve(id).status in ENDED)
    return client.responses.retrieve(id)


@pytest.fixture
def hanging() -> Iterator[tuple[LocalOpenAI, ScriptedEngine]]:
    """Every answer stops in mid-sentence."""
    engine = ScriptedEngine(lambda request, prompt, before: Reply(WORDS, interval=math.inf))
    with LocalOpenAI(engine=engine) as client:
        yield client, engine
    engine.close()


@pytest.fixture
def counting() -> Iterator[LocalOpenAI]:
    engine = ScriptedEngine(lambda request, prompt, before: WORDS)
    with LocalOpenAI(engine=engine) as client:
        yield client
    engine.close()


def test_a_background_response_is_queued_and_completed_without_anybody(builtin: LocalOpenAI) -> None:
    ask: dict[str, Any] = {"model": "m", "input": "What is the capital of France?", "temperature": 0}
    queued = builtin.responses.create(**ask, background=True)
    assert (queued.status, queued.background, queued.output, queued.usage) == ("queued", True, [], None)
    done = finished(builtin, queued.id)
    check_response(done)
    alone = builtin.responses.create(**ask)
    assert (done.status, done.output_text) == ("completed", alone.output_text)
    assert done.usage is not None and alone.usage is not None
    assert done.usage.output_tokens == alone.usage.output_tokens
    assert [i.type for i in builtin.responses.input_items.list(queued.id)] == ["message"]


def test_a_background_response_that_runs_says_so(hanging: tuple[LocalOpenAI, ScriptedEngine]) -> None:
    client, _ = hanging
    id = start(client).id
    assert eventually(lambda: client.responses.retrieve(id).status == "in_progress")
    assert eventually(lambda: client.responses.retrieve(id).output_text == "one")


def test_a_stream_is_left_and_resumed_anywhere(counting: LocalOpenAI) -> None:
    stream = start(counting, stream=True)
    first = [next(stream) for _ in range(6)]
    stream.close()
    done = finished(counting, first[0].response.id)
    for after in (-1, 0, 5, 9):
        more = {} if after < 0 else {"starting_after": after}
        rest = list(counting.responses.retrieve(done.id, stream=True, **more))
        if after < 0:
            check_stream(rest)
            assert rest[: len(first)] == first
        else:
            check_stream(rest, starting_after=after)
        assert rest[-1].type == "response.completed" and rest[-1].response == done
    assert not list(counting.responses.retrieve(done.id, stream=True, starting_after=10_000))


def test_several_follow_one_that_runs(hanging: tuple[LocalOpenAI, ScriptedEngine]) -> None:
    client, _ = hanging
    id = start(client).id
    assert eventually(lambda: client.responses.retrieve(id).output_text == "one")
    streams = [client.responses.retrieve(id, stream=True, starting_after=after) for after in (0, 2, 4)]
    assert [next(iter(stream)).sequence_number for stream in streams] == [1, 3, 5]
    client.responses.cancel(id)
    rests = [list(stream) for stream in streams]
    assert rests[0][-1] == rests[1][-1] == rests[2][-1]


def test_the_helper_follows_and_resumes(counting: LocalOpenAI) -> None:
    with counting.responses.stream(model="m", input="Count", background=True) as stream:
        id = next(iter(stream)).response.id  # type: ignore[union-attr]
    with counting.responses.stream(response_id=id, starting_after=2) as resumed:
        kinds = [event.type for event in resumed]
        assert resumed.get_final_response().output_text == WORDS
    assert kinds[-1] == "response.completed"


# -- cancelling ------------------------------------------------------------------------------------------------------


def test_cancelling_stops_the_row_and_can_be_repeated(hanging: tuple[LocalOpenAI, ScriptedEngine]) -> None:
    client, engine = hanging
    id = start(client).id
    assert eventually(lambda: engine.stats().running == 1)
    first = client.responses.cancel(id)
    assert first.status == "cancelled"
    assert eventually(lambda: engine.stats().running == 0)
    assert client.responses.cancel(id) == first == client.responses.retrieve(id)
    events = list(client.responses.retrieve(id, stream=True))
    check_stream(events)
    assert events[-1].response == first, "that it was cancelled is the last that is told"


def test_a_response_that_has_ended_stays_as_it_is(counting: LocalOpenAI) -> None:
    done = finished(counting, start(counting).id)
    assert counting.responses.cancel(done.id) == done


def test_a_response_in_the_foreground_cannot_be_cancelled(counting: LocalOpenAI) -> None:
    id = counting.responses.create(model="m", input="Count").id
    with refused("response_id", "response_not_background", "synchronous"):
        counting.responses.cancel(id)


def test_deleting_one_that_runs_stops_it(hanging: tuple[LocalOpenAI, ScriptedEngine]) -> None:
    client, engine = hanging
    id = start(client).id
    client.responses.delete(id)
    assert eventually(lambda: engine.stats().running == 0)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(id)


def test_nothing_goes_on_from_one_that_runs(hanging: tuple[LocalOpenAI, ScriptedEngine]) -> None:
    client, _ = hanging
    id = start(client).id
    with refused("previous_response_id", "previous_response_not_finished", "still"):
        client.responses.create(model="m", input="Go on", previous_response_id=id)


def test_sixty_four_at_once_with_random_cancels_each_end_in_a_legal_state(model_path: Path) -> None:
    rng = random.Random(5)
    with LocalOpenAI(model_path) as client:
        alone = client.responses.create(model="m", input="Go on", temperature=0, max_output_tokens=24)
        ids = [
            start(client, input="Go on", temperature=0, max_output_tokens=24, extra_body={"ignore_eos": True}).id
            for _ in range(64)
        ]
        chosen = set(rng.sample(ids, 32))
        threads = [threading.Thread(target=client.responses.cancel, args=(id,)) for id in chosen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for id in ids:
            made = finished(client, id)
            check_response(made)
            assert made.status in (("cancelled", "incomplete") if id in chosen else ("incomplete",))
            if made.status == "incomplete":
                assert made.output_text.startswith(alone.output_text)
            check_stream(list(client.responses.retrieve(id, stream=True)))
        assert eventually(lambda: client.stats().running == client.stats().waiting == 0)


# -- failures --------------------------------------------------------------------------------------------------------


def test_a_row_that_fails_fails_its_response_only() -> None:
    def decide(request: Any, prompt: str, before: int) -> Any:
        return Reply(WORDS, error=RowError("out of luck"), fail_after=3) if "Fail" in prompt else WORDS

    engine = ScriptedEngine(decide)
    with LocalOpenAI(engine=engine) as client:
        good = [start(client).id for _ in range(3)]
        stream = start(client, input="Fail", stream=True)
        events = list(stream)
        check_stream(events)
        assert [event.type for event in events[-2:]] == ["error", "response.failed"]
        made = client.responses.retrieve(events[0].response.id)
        check_response(made)
        assert made.status == "failed" and made.error is not None and "out of luck" in made.error.message
        assert all(finished(client, id).output_text == WORDS for id in good)
    engine.close()


def test_a_request_that_is_refused_leaves_nothing(counting: LocalOpenAI) -> None:
    with refused("temperature", "decimal_above_max_value", "temperature"):
        start(counting, temperature=3)
    assert not inside.store(counting).owned()


def test_closing_the_client_ends_what_runs(tmp_path: Path) -> None:
    engine = ScriptedEngine(lambda request, prompt, before: Reply(WORDS, interval=math.inf))
    client = LocalOpenAI(engine=engine, store=tmp_path / "state.db")
    id = start(client).id
    stream = client.responses.retrieve(id, stream=True)
    client.close()
    assert list(stream)[-1].type == "response.failed"
    assert eventually(lambda: engine.stats().running == 0)
    with LocalOpenAI(engine=engine, store=tmp_path / "state.db") as again:
        made = again.responses.retrieve(id)
        assert made.status == "failed" and made.error is not None and "closed" in made.error.message
    engine.close()


def test_a_client_that_nobody_has_any_more_lets_them_go() -> None:
    engine = ScriptedEngine(lambda request, prompt, before: Reply(WORDS, interval=math.inf))
    before = set(threading.enumerate())
    client = LocalOpenAI(engine=engine)
    start(client)
    made = [thread for thread in set(threading.enumerate()) - before if "background" in thread.name]
    assert made
    assert eventually(lambda: engine.stats().running == 1)
    del client
    gc.collect()
    assert eventually(lambda: engine.stats().running == 0)
    assert eventually(lambda: not any(thread.is_alive() for thread in made))
    engine.close()


SCRIPT = """
import math, os, sys, time
from localai_shim import LocalOpenAI
from localai_shim.testing import Reply, ScriptedEngine
engine = ScriptedEngine(lambda request, prompt, before: Reply("one two" + " more" * 50_000, interval=INTERVAL))
client = LocalOpenAI(engine=engine, store=sys.argv[1])
made = client.responses.create(model="m", input="Count", background=True)
while not client.responses.retrieve(made.id).output_text.startswith("one"):
    time.sleep(0.001)
print(made.id, flush=True)
"""


def run(script: str, path: Path, interval: str = "math.inf", **more: Any) -> subprocess.Popen[str]:
    command = [
        *python(),
        "-W",
        "error",
        "-c",
        SCRIPT.replace("INTERVAL", interval) + textwrap.dedent(script),
        str(path),
    ]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)


def test_the_end_of_the_process_does_not_wait_for_them(tmp_path: Path) -> None:
    with run("", tmp_path / "state.db", stderr=subprocess.PIPE) as process:
        out, errors = process.communicate(timeout=100)
    assert (process.returncode, errors) == (0, "") and out.startswith("resp_")


@ON_ONE_SYSTEM
def test_responses_of_a_process_that_was_killed_have_failed(tmp_path: Path) -> None:
    with (
        run("input(); os.kill(os.getpid(), 9)", tmp_path / "state.db") as process,
        LocalOpenAI(engine=ScriptedEngine(["-"]), store=tmp_path / "state.db") as client,
    ):
        assert process.stdout is not None
        id = process.stdout.readline().strip()
        assert client.responses.retrieve(id).status == "in_progress", "it runs over there"
        with pytest.raises(openai.BadRequestError, match="another process"):
            client.responses.retrieve(id, stream=True)
        process.communicate("\n")
        made = client.responses.retrieve(id)
        check_response(made)
        assert made.status == "failed" and made.error is not None and "has ended" in made.error.message


def test_a_conversation_that_goes_meanwhile_fails_the_response_and_says_so() -> None:
    engine = ScriptedEngine(lambda request, prompt, before: Reply("one two three", interval=0.5))
    with LocalOpenAI(engine=engine) as client:
        conversation = client.conversations.create()
        id = start(client, conversation=conversation.id).id
        stream = client.responses.retrieve(id, stream=True)
        client.conversations.delete(conversation.id)
        assert "response.completed" not in [event.type for event in stream]
        made = finished(client, id)
        assert made.status == "failed" and made.error is not None and conversation.id in made.error.message
        assert not inside.store(client).owned()
    engine.close()


@ON_ONE_SYSTEM
@pytest.mark.parametrize("interval", ["math.inf", "0.005"], ids=["while it hangs", "while it speaks"])
def test_another_process_can_cancel(tmp_path: Path, interval: str) -> None:
    script = """
    assert client.responses.retrieve(made.id).status == "in_progress"
    print("running", flush=True)
    while engine.stats().running:
        time.sleep(0.001)
    print(client.responses.retrieve(made.id).status, flush=True)
    """
    with (
        run(script, tmp_path / "state.db", interval=interval) as process,
        LocalOpenAI(engine=ScriptedEngine(["-"]), store=tmp_path / "state.db") as client,
    ):
        assert process.stdout is not None
        id, _ = process.stdout.readline().strip(), process.stdout.readline()
        assert client.responses.cancel(id).status == "cancelled"
        out, _ = process.communicate(timeout=100)
        assert out.strip() == "cancelled"
        assert client.responses.retrieve(id).status == "cancelled"


def test_a_response_that_is_being_stored_is_not_taken_for_one_that_another_process_has_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, save = 0, Store.save

    def look(*given: Any) -> None:
        nonlocal looked
        background_look(*given)
        looked += 1

    def slowly(self: Store, *given: Any, **more: Any) -> bool:
        enough = looked + 3  # at the one that hangs, then perhaps at this one
        assert given[0] != "response" or more["owner"] is None or eventually(lambda: looked > enough)
        return save(self, *given, **more)

    background_look = background._look
    engine = ScriptedEngine(lambda request, prompt, before: Reply(WORDS, interval=math.inf if "Hang" in prompt else 0))
    with LocalOpenAI(engine=engine, store=tmp_path / "state.db") as client:
        start(client, input="Hang")
        with monkeypatch.context() as patch:
            patch.setattr(background, "_POLL_SECONDS", 0.001)
            patch.setattr(background, "_look", look)
            start(client, input="Hang")  # whose tokens have the thread look at the clock
            patch.setattr(Store, "save", slowly)
            made = start(client)
        assert finished(client, made.id).output_text == WORDS
    engine.close()


def test_a_client_that_is_closed_while_a_response_is_being_stored_leaves_nothing(
    counting: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, save = inside.store(counting), Store.save

    def closing(self: Store, *given: Any, **more: Any) -> bool:
        inside.runtime(counting).background().close()
        return save(self, *given, **more)

    monkeypatch.setattr(Store, "save", closing)
    with pytest.raises(openai.APIConnectionError, match="Client is closed"):
        start(counting)
    assert not store.owned() and not store.list("response", after=None, limit=1, descending=False).data


# -- event loops -----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_async_callers_poll_follow_and_cancel() -> None:
    engine = ScriptedEngine(lambda request, prompt, before: Reply(WORDS, interval=math.inf if "Hang" in prompt else 0))
    async with AsyncLocalOpenAI(engine=engine) as client:
        events = [event async for event in await start(client, stream=True)]
        check_stream(events)
        id = (await start(client, input="Hang")).id
        stream = await client.responses.retrieve(id, stream=True)
        while (await anext(stream)).type != "response.output_text.delta":
            pass
        assert (await client.responses.cancel(id)).status == "cancelled"
        rest = [event.type async for event in stream]
        assert rest[-1] == "response.failed"
    engine.close()


@pytest.mark.anyio
async def test_a_slow_and_a_gone_follower_hold_nobody_up() -> None:
    engine = ScriptedEngine(lambda request, prompt, before: WORDS)
    async with AsyncLocalOpenAI(engine=engine) as client:
        slow, gone = [await start(client, stream=True) for _ in range(2)]
        await anext(slow)
        await gone.close()
        others = [(await start(client)).id for _ in range(8)]
        for id in others:
            while (await client.responses.retrieve(id)).status not in ENDED:
                await anyio.lowlevel.checkpoint()
        events = [event async for event in slow]
        assert events[-1].type == "response.completed"
    engine.close()


def test_a_timeout_leaves_the_response_alone(hanging: tuple[LocalOpenAI, ScriptedEngine]) -> None:
    client, engine = hanging
    id = start(client).id
    with pytest.raises(STREAM_TIMEOUT):
        for _ in client.with_options(timeout=0.05).responses.retrieve(id, stream=True):
            pass
    assert client.responses.retrieve(id).status == "in_progress" and engine.stats().running == 1


def test_a_response_that_cannot_be_stored_has_failed_for_whoever_asks_and_is_stored_when_it_can_be(
    counting: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction, writes = Database.transaction, itertools.count()

    def refusing(self: Database, *, write: bool) -> Any:
        if write and next(writes):  # the first one stores it as queued
            raise StoreError("database or disk is full")
        return transaction(self, write=write)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "transaction", refusing)
        id = start(counting).id
        made = finished(counting, id)
        assert made.status == "failed" and made.error is not None and "disk is full" in made.error.message
        with pytest.raises(openai.InternalServerError, match="disk is full"):
            start(counting)
        assert dict(inside.store(counting).owned()).keys() == {id}
    assert finished(counting, id).status == "failed" and not inside.store(counting).owned()
    assert finished(counting, start(counting).id).output_text == WORDS


def test_who_has_found_one_before_it_could_not_be_stored_is_told_as_well(
    counting: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, save = [], Store.save

    def refusing(self: Store, kind: Any, id: str, *given: Any, **more: Any) -> None:
        if more["owner"] is None:  # it has ended
            found.append(inside.runtime(counting).background().get(id))
            raise StoreError("database or disk is full")
        save(self, kind, id, *given, **more)

    monkeypatch.setattr(Store, "save", refusing)
    assert finished(counting, start(counting).id).status == "failed"
    assert [run.response().status for run in found] == ["failed"]


def test_where_no_thread_can_be_started_the_request_says_so_and_the_next_one_works(
    counting: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _no_thread)
        with pytest.raises(openai.InternalServerError, match="start new thread"):
            start(counting)
    assert not inside.store(counting).owned()
    assert finished(counting, start(counting).id).output_text == WORDS


def _no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
