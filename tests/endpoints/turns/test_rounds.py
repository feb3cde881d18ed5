"""Answers of several rounds: whole and streamed, sync and async, in the background and in batches."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.client.batch_lines import BATCH_PRIORITY, answer_lines
from localai_shim.testing import ScriptedEngine, ScriptedOpenAI
from localai_shim.types import QueueFullError
from tests.endpoints.turns.asking import ASK, OUTPUT, Door, ask, check, each_way, ended, final, lines
from tests.endpoints.turns.rounds import ANSWERS, ASKS, FOUND, Searches
from tests.engine.harness import eventually


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


def test_a_background_response_has_two_rounds(client: LocalOpenAI, submitted: list[list[Any]]) -> None:
    check(ended(client, client.responses.create(**ASK, background=True).id), submitted)


def test_a_background_response_of_two_rounds_is_followed(client: LocalOpenAI, submitted: list[list[Any]]) -> None:
    events = list(client.responses.create(**ASK, background=True, stream=True))
    check(final(events), submitted)
    again = list(client.responses.retrieve(final(events).id, stream=True, starting_after=4))
    assert [event.sequence_number for event in again] == list(range(5, len(events)))


def test_background_responses_continue_while_another_one_searches(client: LocalOpenAI, door: Door) -> None:
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


def test_lines_are_answered_while_another_one_searches(client: LocalOpenAI, searches: Searches, door: Door) -> None:
    chat = {"custom_id": "other", "method": "POST", "url": "/v1/completions", "body": {"model": "m", "prompt": "x"}}
    answers = answer_lines(client, [*lines("a"), json.dumps(chat)])
    assert json.loads(next(answers))["custom_id"] == "other"
    assert door.reached.wait(60)
    door.opened.set()
    assert [json.loads(each)["custom_id"] for each in answers] == ["a"]


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
