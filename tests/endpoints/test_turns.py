"""Answers of several rounds: whole and streamed, sync and async, in the background and in batches."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.client.batch_lines import BATCH_PRIORITY, answer_lines
from localai_shim.endpoints.turn import Turn
from localai_shim.testing import Reply, ScriptedEngine, ScriptedOpenAI
from localai_shim.types import QueueFullError
from tests.endpoints.rounds import ANSWERS, ASKS, FOUND, Searches, decide, install
from tests.engine.harness import eventually

ASK: dict[str, Any] = {"model": "m", "input": "What will the weather be?"}
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Weather?"}]}
OUTPUT = ["message", "web_search_call", "message"]
ENDED = ("completed", "failed", "cancelled")


class Door:
    """A search that waits until it is let through."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.reached.set()
        assert self.opened.wait(60)
        return FOUND


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Searches]:
    made = Searches()
    install(monkeypatch, made)
    yield made
    if isinstance(made.search, Door):
        made.search.opened.set()


@pytest.fixture
def door(searches: Searches) -> Door:
    searches.search = made = Door()
    return made


@pytest.fixture
def submitted() -> list[list[Any]]:
    """The works of each submission to `engine`."""
    return []


@pytest.fixture
def engine(submitted: list[list[Any]]) -> Iterator[ScriptedEngine]:
    with ScriptedEngine(decide) as made:
        submit = made.submit

        def note(works: Any, sink: Any, ticket: Any = None) -> Any:
            submitted.append(list(works))
            return submit(works, sink, ticket)

        made.submit = note  # type: ignore[method-assign]
        yield made
        assert eventually(lambda: made.stats().running == 0)


@pytest.fixture
def client(searches: Searches, engine: ScriptedEngine) -> Iterator[LocalOpenAI]:
    with LocalOpenAI(engine=engine) as made:
        yield made


def ask(engine: ScriptedEngine, how: str, *, chat: bool = False, **more: Any) -> list[Any]:
    """The events of an answer, or the whole one, from a sync or an async client."""
    streamed = how.endswith("streamed")

    async def ask_async() -> list[Any]:
        async with AsyncLocalOpenAI(engine=engine) as client:
            create: Any = client.chat.completions.create if chat else client.responses.create
            made = await create(**{**(CHAT if chat else ASK), **more}, stream=streamed)
            return [event async for event in made] if streamed else [made]

    if how.startswith("async"):
        return asyncio.run(ask_async())
    with LocalOpenAI(engine=engine) as client:
        create: Any = client.chat.completions.create if chat else client.responses.create
        made = create(**{**(CHAT if chat else ASK), **more}, stream=streamed)
        return list(made) if streamed else [made]


each_way = pytest.mark.parametrize("how", ["whole", "streamed", "async whole", "async streamed"])


def final(events: list[Any]) -> Response:
    """The response of the last event."""
    found: Response = getattr(events[-1], "response", events[-1])
    return found


def check(response: Any, submitted: list[list[Any]]) -> None:
    """A response of two rounds: its items, and the tokens of both."""
    assert [item.type for item in response.output] == OUTPUT
    assert response.output_text == ASKS + ANSWERS
    [[first], [second]] = submitted
    assert second.prompt.tokens != first.prompt.tokens
    assert response.usage.input_tokens == len(first.prompt.tokens) + len(second.prompt.tokens)
    assert response.usage.output_tokens == len(first.timings.output) + len(second.timings.output)


@each_way
def test_a_response_continues_with_a_second_round(
    how: str, searches: Searches, engine: ScriptedEngine, submitted: list[list[Any]]
) -> None:
    events = ask(engine, how)
    check(final(events), submitted)
    assert searches.made == ["started", FOUND]
    if how.endswith("streamed"):
        assert {event.response.id for event in events if hasattr(event, "response")} == {final(events).id}
        assert [event.sequence_number for event in events] == list(range(len(events)))
        types = [event.type for event in events]
        assert types.count("response.created") == types.count("response.completed") == 1
        assert types.index("response.web_search_call.completed") < types.index("response.output_text.delta", 12)


@each_way
def test_steps_between_two_rounds_are_taken_one_after_the_other(
    how: str, searches: Searches, engine: ScriptedEngine, submitted: list[list[Any]]
) -> None:
    searches.steps = 4
    check(final(ask(engine, how)), submitted)


@each_way
def test_events_of_a_search_come_before_it_is_made(
    how: str, searches: Searches, engine: ScriptedEngine, door: Door
) -> None:
    """A reader does not wait for the search to hear that it runs."""
    searches.steps = 2
    if not how.endswith("streamed"):
        door.opened.set()
        ask(engine, how)
        return
    client = LocalOpenAI(engine=engine)
    for event in client.responses.create(**ASK, stream=True):
        if event.type == "response.web_search_call.in_progress":
            assert not door.opened.is_set()
            door.opened.set()
    assert event.type == "response.completed"
    client.close()


def test_the_sdk_gathers_a_stream_of_two_rounds(client: LocalOpenAI, submitted: list[list[Any]]) -> None:
    with client.responses.stream(**ASK) as stream:
        check(stream.get_final_response(), submitted)


def test_a_response_of_two_rounds_is_stored_whole(client: LocalOpenAI) -> None:
    made = client.responses.create(**ASK)
    stored = client.responses.retrieve(made.id)
    assert stored.output == made.output
    assert stored.usage == made.usage


@each_way
def test_choices_of_a_completion_have_as_many_rounds_as_each_needs(
    how: str, searches: Searches, engine: ScriptedEngine, submitted: list[list[Any]]
) -> None:
    """Of three choices the first and the last one search."""
    streamed = how.endswith("streamed")
    more = {"stream_options": {"include_usage": True}} if streamed else {}
    events = ask(engine, how, chat=True, n=3, **more)
    texts = ["", "", ""]
    for event in events:
        for choice in event.choices:
            texts[choice.index] += (choice.delta if streamed else choice.message).content or ""
    assert texts == [ASKS + ANSWERS, ASKS, ASKS + ANSWERS]
    assert len({event.id for event in events}) == 1
    first, second = submitted
    assert (len(first), len(second)) == (3, 2)
    usage = events[-1].usage
    assert usage.completion_tokens == sum(len(work.timings.output) for work in (*first, *second))
    assert usage.prompt_tokens == sum(len(work.prompt.tokens) for work in (first[0], *second))


# -- the background, and batches ----------------------------------------------------------------------------------


def ended(client: LocalOpenAI, id: str) -> Any:
    assert eventually(lambda: client.responses.retrieve(id).status in ENDED)
    return client.responses.retrieve(id)


def test_a_background_response_has_two_rounds(client: LocalOpenAI, submitted: list[list[Any]]) -> None:
    check(ended(client, client.responses.create(**ASK, background=True).id), submitted)


def test_a_background_response_of_two_rounds_is_followed(client: LocalOpenAI, submitted: list[list[Any]]) -> None:
    events = list(client.responses.create(**ASK, background=True, stream=True))
    check(final(events), submitted)
    again = list(client.responses.retrieve(final(events).id, stream=True, starting_after=4))
    assert [event.sequence_number for event in again] == list(range(5, len(events)))


def test_other_background_responses_go_on_while_one_searches(client: LocalOpenAI, door: Door) -> None:
    waiting = client.responses.create(**ASK, background=True)
    assert door.reached.wait(60)
    other = client.responses.create(model="m", input=FOUND, background=True)
    assert eventually(lambda: "Rain" not in client.responses.retrieve(other.id).output_text)
    assert client.responses.retrieve(waiting.id).status == "in_progress"
    door.opened.set()
    assert ended(client, waiting.id).status == "completed"
    assert ended(client, other.id).status == "completed"


def test_a_background_response_is_cancelled_while_it_searches(
    client: LocalOpenAI, door: Door, submitted: list[list[Any]], searches: Searches
) -> None:
    made = client.responses.create(**ASK, background=True)
    assert door.reached.wait(60)
    assert client.responses.cancel(made.id).status == "cancelled"
    door.opened.set()
    assert eventually(lambda: FOUND in searches.made)
    assert client.responses.retrieve(made.id).status == "cancelled"
    assert len(submitted) == 1


def test_the_client_is_closed_while_a_background_response_searches(
    engine: ScriptedEngine, searches: Searches, door: Door, submitted: list[list[Any]]
) -> None:
    client = LocalOpenAI(engine=engine)
    client.responses.create(**ASK, background=True)
    assert door.reached.wait(60)
    client.close()
    door.opened.set()
    assert eventually(lambda: FOUND in searches.made)
    assert len(submitted) == 1


def lines(*ids: str) -> list[str]:
    return [json.dumps({"custom_id": id, "method": "POST", "url": "/v1/responses", "body": ASK}) for id in ids]


def test_lines_of_a_batch_have_two_rounds(client: LocalOpenAI, submitted: list[list[Any]]) -> None:
    answers = [json.loads(line) for line in answer_lines(client, lines("a", "b"))]
    assert sorted(answer["custom_id"] for answer in answers) == ["a", "b"]
    for answer in answers:
        assert [item["type"] for item in answer["response"]["body"]["output"]] == OUTPUT
    assert len(submitted) == 4
    assert all(work.priority == BATCH_PRIORITY for works in submitted for work in works)


def test_a_line_waits_where_the_engine_has_no_room_for_its_second_round(
    client: LocalOpenAI, engine: ScriptedEngine
) -> None:
    submit, refused = engine.submit, list[Any]()

    def full(works: Any, sink: Any, ticket: Any = None) -> Any:
        if FOUND in engine.tokenizer.decode(works[0].prompt.tokens) and len(refused) < 3:
            refused.append(works)
            raise QueueFullError("too many requests wait")
        return submit(works, sink, ticket)

    engine.submit = full  # type: ignore[method-assign]
    [answer] = map(json.loads, answer_lines(client, lines("a")))
    assert answer["response"]["status_code"] == 200
    assert len(refused) == 3
    assert refused[0][0].priority == BATCH_PRIORITY


def test_other_lines_are_answered_while_one_searches(client: LocalOpenAI, searches: Searches, door: Door) -> None:
    chat = {"custom_id": "other", "method": "POST", "url": "/v1/completions", "body": {"model": "m", "prompt": "x"}}
    answers = answer_lines(client, [*lines("a"), json.dumps(chat)])
    assert json.loads(next(answers))["custom_id"] == "other"
    assert door.reached.wait(60)
    door.opened.set()
    assert [json.loads(each)["custom_id"] for each in answers] == ["a"]


# -- leaving ------------------------------------------------------------------------------------------------------


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
    with pytest.raises((openai.APITimeoutError, TimeoutError)):
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
def test_an_engine_that_closes_while_an_answer_searches_fails_it(how: str, searches: Searches, door: Door) -> None:
    with ScriptedEngine(decide) as engine:

        def close() -> str:
            engine.close()
            return FOUND

        searches.search = close
        with pytest.raises(openai.APIConnectionError):
            ask(engine, how)


def test_an_answer_whose_round_ends_too_early_fails(client: LocalOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for tokens that never come."""
    from localai_shim.endpoints.assembler import Assembler
    from tests.endpoints.rounds import SearchingResponse

    monkeypatch.setattr(SearchingResponse, "next_round", Assembler.next_round)
    with pytest.raises(openai.InternalServerError, match="all rows of this request have ended"):
        client.responses.create(**ASK)


# -- what sees a turn ---------------------------------------------------------------------------------------------


def test_the_log_counts_the_tokens_of_all_rounds(
    client: LocalOpenAI, submitted: list[list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="localai_shim"):
        made: Any = client.responses.create(**ASK)
    check(made, submitted)
    [line] = [line for line in caplog.messages if "/responses" in line]
    assert f" in={made.usage.input_tokens} " in line
    assert f" out={made.usage.output_tokens} " in line


def test_scripts_reply_to_each_round(searches: Searches) -> None:
    with ScriptedOpenAI() as client:
        client.script(ASKS, ANSWERS)
        made: Any = client.responses.create(**ASK)
        assert made.output_text == ASKS + ANSWERS
        assert FOUND in client.calls[1].prompt
        client.assert_complete()


def test_a_second_round_prefills_only_what_is_new(builtin: LocalOpenAI, searches: Searches) -> None:
    """The bundled model, whose prefix cache has the first round's prompt."""
    made: Any = builtin.responses.create(**{**ASK, "input": "What is the capital of France?" * 20})
    first = made.usage.input_tokens_details.cached_tokens
    assert first > 100
