"""Answers of several rounds that are left, or fail, between two of them or in the second one."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import weakref
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.client.batch_lines import answer_lines
from localai_shim.endpoints.turn import Assembler, Turn
from localai_shim.testing import Reply, ScriptedEngine
from localai_shim.types import RowError
from tests.endpoints.turns.asking import ASK, OUTPUT, Door, ask, each_way, ended, final, lines
from tests.endpoints.turns.rounds import ANSWERS, ASKS, FOUND, Searches, SearchingResponse, decide
from tests.engine.harness import eventually
from tests.lost import STREAM_TIMEOUT


def test_a_stream_is_closed_while_its_answer_searches(
    client: LocalOpenAI, door: Door, searches: Searches, submitted: list[list[Any]]
) -> None:
    stream, caught = client.responses.create(**ASK, stream=True), list[BaseException]()

    def read() -> None:
        try:
            list(stream)
        except openai.APIConnectionError as error:
            caught.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    assert door.reached.wait(60)
    stream.close()
    reader.join(60)
    assert not reader.is_alive()
    door.opened.set()
    assert eventually(lambda: FOUND in searches.made)
    assert len(submitted) == 1


def test_a_stream_is_dropped_while_its_answer_searches(
    client: LocalOpenAI, door: Door, searches: Searches, submitted: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, start = list[Any](), Turn.start

    def noted(turn: Turn, *given: Any) -> None:
        turns.append(weakref.ref(turn))
        start(turn, *given)

    monkeypatch.setattr(Turn, "start", noted)
    stream = iter(client.responses.create(**ASK, stream=True))
    while next(stream).type != "response.output_item.done":
        pass
    assert door.reached.wait(60)
    del stream
    gc.collect()
    assert [turn() for turn in turns] == [None]
    door.opened.set()
    assert eventually(lambda: FOUND in searches.made)
    assert len(submitted) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_task_is_cancelled_while_its_answer_searches(
    stream: bool, engine: ScriptedEngine, door: Door, searches: Searches, submitted: list[list[Any]]
) -> None:
    async def read(client: AsyncLocalOpenAI) -> None:
        made: Any = await client.responses.create(**ASK, stream=stream)
        if stream:
            _ = [event async for event in made]

    async def main() -> None:
        async with AsyncLocalOpenAI(engine=engine) as client:
            task = asyncio.create_task(read(client))
            await asyncio.to_thread(door.reached.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            door.opened.set()

    asyncio.run(main())
    assert eventually(lambda: FOUND in searches.made)
    assert len(submitted) == 1


@each_way
def test_the_timeout_holds_while_an_answer_searches(
    how: str, engine: ScriptedEngine, door: Door, submitted: list[list[Any]]
) -> None:
    with pytest.raises((openai.APITimeoutError, STREAM_TIMEOUT)):
        ask(engine, how, timeout=0.2)
    assert len(submitted) == 1


def test_a_second_round_leaves_the_engine_with_its_stream(searches: Searches) -> None:
    """Its answer never ends."""

    def hang(request: Any, prompt: str, before: int) -> Any:
        return Reply(ANSWERS, interval=float("inf")) if FOUND in prompt else ASKS

    with ScriptedEngine(hang) as engine, LocalOpenAI(engine=engine) as client:
        stream = client.responses.create(**ASK, stream=True)
        for event in stream:
            if event.type == "response.web_search_call.completed":
                break
        assert eventually(lambda: engine.stats().running == 1)
        stream.close()
        assert eventually(lambda: engine.stats().running == 0)


def test_a_stream_that_is_closed_while_its_second_round_begins_leaves_the_engine(searches: Searches) -> None:
    """Another thread closes it between the end of the search and the submission."""

    def hang(request: Any, prompt: str, before: int) -> Any:
        return Reply(ANSWERS, interval=float("inf")) if FOUND in prompt else ASKS

    with ScriptedEngine(hang) as engine, LocalOpenAI(engine=engine) as client:
        submit, cancel = engine.submit, engine.cancel
        stream, cancelled = list[Any](), list[Any]()

        def closing(works: Any, sink: Any, ticket: Any = None) -> Any:
            if stream:
                closer = threading.Thread(target=stream[0].close)
                closer.start()
                closer.join()
            cancelled.clear()
            return submit(works, sink, ticket)

        def note(ticket: Any) -> None:
            cancelled.append(ticket)
            cancel(ticket)

        engine.submit, engine.cancel = closing, note  # type: ignore[method-assign]
        stream.append(client.responses.create(**ASK, stream=True))
        assert [event.type for event in stream[0]][-1] != "response.completed"
        assert len(cancelled) == 1
        assert eventually(lambda: engine.stats().running == 0)


# -- failing ------------------------------------------------------------------------------------------------------


def fail() -> str:
    raise ValueError("the almanac is lost")


@each_way
def test_what_fails_between_two_rounds_fails_the_answer(
    how: str, searches: Searches, engine: ScriptedEngine, submitted: list[list[Any]]
) -> None:
    searches.search = fail
    if how.endswith("streamed"):
        events = ask(engine, how)
        assert [event.type for event in events[-2:]] == ["error", "response.failed"]
        assert final(events).error.message == "the almanac is lost"  # type: ignore[union-attr]
        assert final(events).usage is not None
    else:
        with pytest.raises(openai.InternalServerError, match="the almanac is lost"):
            ask(engine, how)
    assert len(submitted) == 1


def test_what_fails_between_two_rounds_fails_a_background_response(client: LocalOpenAI, searches: Searches) -> None:
    searches.search = fail
    failed = ended(client, client.responses.create(**ASK, background=True).id)
    assert (failed.status, failed.error.message) == ("failed", "the almanac is lost")
    searches.search = lambda: FOUND
    assert ended(client, client.responses.create(**ASK, background=True).id).status == "completed"


def test_what_fails_between_two_rounds_fails_a_line(client: LocalOpenAI, searches: Searches) -> None:
    searches.search = fail
    [answer] = map(json.loads, answer_lines(client, lines("a")))
    assert answer["response"]["status_code"] == 500


def test_a_search_that_ends_its_thread_fails_the_answer_alone(client: LocalOpenAI, searches: Searches) -> None:
    def leave() -> str:
        raise SystemExit("done")

    searches.search = leave
    failed = ended(client, client.responses.create(**ASK, background=True).id)
    assert "SystemExit" in failed.error.message
    searches.search = lambda: FOUND
    assert ended(client, client.responses.create(**ASK, background=True).id).status == "completed"


@each_way
def test_a_second_round_that_fails_in_the_engine_fails_the_answer(how: str, searches: Searches) -> None:
    def broken(request: Any, prompt: str, before: int) -> Any:
        return Reply(ANSWERS, error=RuntimeError("NaN"), fail_after=2) if FOUND in prompt else ASKS

    with ScriptedEngine(broken) as engine:
        if how.endswith("streamed"):
            events = ask(engine, how)
            assert events[-1].type == "response.failed"
            assert [item.type for item in final(events).output] == OUTPUT
        else:
            with pytest.raises(openai.InternalServerError):
                ask(engine, how)
        assert eventually(lambda: engine.stats().running == 0)


@each_way
def test_a_sequence_that_fails_in_the_engine_is_an_error_of_the_server(how: str) -> None:
    """Only a grammar that becomes too complex is the request's fault."""

    def broken(request: Any, prompt: str, before: int) -> Any:
        return Reply(ANSWERS, error=RowError("the logits are not finite"), fail_after=2)

    with ScriptedEngine(broken) as engine:
        if how.endswith("streamed"):
            failure = final(ask(engine, how)).error
            assert failure is not None
            assert (failure.code, failure.message) == ("server_error", "the logits are not finite")
        else:
            with pytest.raises(openai.InternalServerError, match="the logits are not finite"):
                ask(engine, how)


@each_way
def test_an_engine_that_closes_while_an_answer_searches_fails_it(how: str, searches: Searches) -> None:
    with ScriptedEngine(decide) as engine:

        def close() -> str:
            engine.close()
            return FOUND

        searches.search = close
        with pytest.raises(openai.APIConnectionError):
            ask(engine, how)


def test_an_answer_whose_round_ends_too_early_fails(client: LocalOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for tokens that never come."""
    monkeypatch.setattr(SearchingResponse, "next_round", Assembler.next_round)
    with pytest.raises(openai.InternalServerError, match="all rows of this request have ended"):
        client.responses.create(**ASK)
