"""Responses with hosted tools that are stored, continued, sent back, run in the background, and in batches."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, http_client
from localai_shim.client.batch_lines import answer_lines
from localai_shim.testing import ScriptedEngine
from tests.endpoints.hosted.hosting import (
    ANSWER,
    ASKS_CODE,
    ASKS_SEARCH,
    CODE,
    PAGE,
    RAN,
    RESULT,
    SEARCH,
    URL,
    Door,
    Hooks,
    ask,
    each_way,
    script,
    types,
)
from tests.endpoints.responses.legal import check_response, check_stream
from tests.engine.harness import eventually

ASK: dict[str, Any] = {"model": "m", "input": "Weather?", "tools": [SEARCH, CODE]}
ITEMS = ["web_search_call", "code_interpreter_call", "message"]
AGAIN: Any = {"role": "user", "content": "Weather again?"}


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(script(ASKS_SEARCH, ASKS_CODE, ANSWER)) as made:
        yield made


@pytest.fixture
def client(engine: ScriptedEngine) -> Iterator[LocalOpenAI]:
    with LocalOpenAI(engine=engine, hosted_tools=Hooks().all) as made:
        yield made


def replayed(engine: ScriptedEngine) -> str:
    """The first prompt that asks again."""
    return next(prompt for prompt in engine.prompts if AGAIN["content"] in prompt)


# -- stored and sent back -------------------------------------------------------------------------------------------


def test_a_stored_response_has_its_items(client: LocalOpenAI) -> None:
    made = client.responses.create(**ASK, include=["code_interpreter_call.outputs"])
    assert types(made) == ITEMS
    stored = client.responses.retrieve(made.id)
    assert stored.output == made.output and stored.usage == made.usage


WAYS = ["previous_response_id", "conversation", "input", "input and previous_response_id", "references"]


@pytest.mark.parametrize("way", WAYS)
def test_a_later_request_reads_what_the_model_has_read(way: str, engine: ScriptedEngine, client: LocalOpenAI) -> None:
    """The later prompt begins with the last round's."""
    more: dict[str, Any] = {}
    if way == "conversation":
        more["conversation"] = client.conversations.create().id
    first = client.responses.create(**ASK, **more)
    last = engine.prompts[2]
    given: list[Any] = [AGAIN]
    if "previous_response_id" in way:
        more["previous_response_id"] = first.id
    if way == "references":
        given = [{"type": "item_reference", "id": item.id} for item in first.output] + given
    elif "input" in way:
        given = [*first.output, *given]
    if not more:
        given = [{"role": "user", "content": "Weather?"}, *given]
    client.responses.create(**{**ASK, "input": given}, **more)
    again = replayed(engine)
    assert again.startswith(last) and again.count(RESULT) == 2


def test_a_conversation_lists_items_of_hosted_tools(client: LocalOpenAI) -> None:
    conversation = client.conversations.create()
    made = client.responses.create(**ASK, conversation=conversation.id)
    listed = client.conversations.items.list(conversation.id, order="asc").data
    assert [item.type for item in listed] == ["message", *ITEMS]
    assert [item.to_dict() for item in listed[1:]] == [item.to_dict() for item in made.output]


OPENAI_ITEMS: list[tuple[dict[str, Any], str, str]] = [
    (
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "rain"}},
        '{"query": "rain"}',
        "The results of this search are not available any more.",
    ),
    (
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "queries": ["rain"], "sources": [{"type": "url", "url": URL}]},
        },
        '{"query": "rain"}',
        json.dumps([{"type": "url", "url": URL}]),
    ),
    (
        {"type": "web_search_call", "id": "ws_1", "status": "failed", "action": {"type": "open_page", "url": URL}},
        f'{{"query": "{URL}"}}',
        "The results of this search are not available any more.",
    ),
    (
        {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "container_id": "c", "code": "1"},
        '{"code": "1"}',
        "The code has printed nothing.",
    ),
    (
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "status": "completed",
            "container_id": "c",
            "code": None,
            "outputs": [{"type": "logs", "logs": "1\n"}, {"type": "image", "url": "data:,"}],
        },
        '{"code": ""}',
        "1\n",
    ),
]


@pytest.mark.parametrize(("item", "arguments", "output"), OPENAI_ITEMS)
def test_items_that_openai_has_made_are_read_without_a_hook(item: dict[str, Any], arguments: str, output: str) -> None:
    with ScriptedEngine(["Hi."]) as engine, LocalOpenAI(engine=engine) as client:
        client.responses.create(model="m", input=[{"role": "user", "content": "Weather?"}, item, AGAIN])
        prompt = engine.prompts[0]
    assert arguments in prompt and f"{RESULT}\n{output}" in prompt


# -- in other ways --------------------------------------------------------------------------------------------------


def ended(client: LocalOpenAI, id: str) -> Any:
    assert eventually(lambda: client.responses.retrieve(id).status not in ("queued", "in_progress"))
    return client.responses.retrieve(id)


def test_a_background_response_calls_hooks(client: LocalOpenAI) -> None:
    response = ended(client, client.responses.create(**ASK, background=True).id)
    check_response(response)
    assert types(response) == ITEMS


def test_a_background_response_shows_a_hook_at_work(engine: ScriptedEngine) -> None:
    door = Door()
    with LocalOpenAI(engine=engine, hosted_tools={**Hooks().all, "web_search": door}) as client:
        made = client.responses.create(**ASK, background=True)
        assert door.reached.wait(60)
        [search] = client.responses.retrieve(made.id).output
        assert search.status == "searching"
        door.opened.set()
        assert types(ended(client, made.id)) == ITEMS


def test_a_stream_with_hosted_tools_is_resumed_at_any_event(client: LocalOpenAI) -> None:
    events = list(client.responses.create(**ASK, background=True, stream=True))
    check_stream(events)
    for after in range(0, len(events), 5):
        again = client.responses.retrieve(events[-1].response.id, stream=True, starting_after=after)
        assert [event.to_dict() for event in again] == [event.to_dict() for event in events[after + 1 :]]


def test_lines_of_a_batch_call_hooks(client: LocalOpenAI) -> None:
    lines = [json.dumps({"custom_id": id, "method": "POST", "url": "/v1/responses", "body": ASK}) for id in "ab"]
    bodies = [json.loads(line)["response"]["body"] for line in answer_lines(client, lines)]
    assert [[item["type"] for item in body["output"]] for body in bodies] == [ITEMS, ITEMS]


def test_the_sdk_gathers_a_stream_with_hosted_tools(client: LocalOpenAI) -> None:
    with client.responses.stream(**ASK) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert types(final) == ITEMS and final.output_text == ANSWER
    assert final.output[1].code == RAN
    assert kinds.count("response.output_item.done") == 3


class Forecast(pydantic.BaseModel):
    rain: bool


def test_an_answer_behind_a_search_has_the_format_that_is_asked_for() -> None:
    with (
        ScriptedEngine(script(ASKS_SEARCH, '{"rain": true}'), obey_constraints=True) as engine,
        LocalOpenAI(engine=engine, hosted_tools=Hooks().all) as client,
    ):
        parsed = client.responses.parse(model="m", input="Weather?", tools=[SEARCH], text_format=Forecast)
    assert parsed.output_parsed == Forecast(rain=True)


@each_way
def test_hooks_may_be_async(how: str, engine: ScriptedEngine) -> None:
    """Each runs in an event loop of another thread than its caller's."""
    loops = set()

    async def search(query: str, **options: Any) -> Any:
        loops.add(id(asyncio.get_running_loop()))
        await asyncio.sleep(0)
        return [PAGE]

    async def run(code: str, container: str) -> Any:
        await asyncio.sleep(0.1)
        return "ok"

    response, _ = ask(engine, how, {"web_search": search, "code_interpreter": run}, tools=[SEARCH, CODE])
    assert types(response) == ITEMS and len(loops) == 1


def test_copies_of_a_client_have_its_hooks(client: LocalOpenAI) -> None:
    assert types(client.with_options(timeout=30).responses.create(**ASK)) == ITEMS


def test_a_stock_client_gets_items_over_its_http_client(engine: ScriptedEngine) -> None:
    with openai.OpenAI(api_key="x", http_client=http_client(engine=engine, hosted_tools=Hooks().all)) as client:
        assert types(client.responses.create(**ASK)) == ITEMS
        events = list(client.responses.create(**ASK, stream=True))
    check_stream(events)
    assert types(events[-1].response) == ITEMS


def test_responses_with_hooks_run_concurrently() -> None:
    """Two hooks wait for each other."""
    barrier = threading.Barrier(2, timeout=60)

    async def main() -> list[Any]:
        def search(query: str, **options: Any) -> Any:
            barrier.wait()
            return [PAGE]

        with ScriptedEngine(script(ASKS_SEARCH, ANSWER)) as engine:
            async with AsyncLocalOpenAI(engine=engine, hosted_tools={"web_search": search}) as client:
                asked = [client.responses.create(model="m", input="Weather?", tools=[SEARCH]) for _ in range(2)]
                return await asyncio.gather(*asked)

    assert [response.output_text for response in asyncio.run(main())] == [ANSWER, ANSWER]
