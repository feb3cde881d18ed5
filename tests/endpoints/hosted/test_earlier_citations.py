"""Texts that name what an earlier response of the conversation has found."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import ScriptedEngine, play_cassette
from tests.endpoints.hosted.hosting import ANSWER, ASKS_SEARCH, PAGE, SEARCH, URL, Hooks, script, types
from tests.endpoints.responses.legal import check_response, check_stream

OTHER = "https://almanac.example/oslo"
ASK: dict[str, Any] = {"model": "m", "tools": [SEARCH]}


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    """A model that searches once, and names the page in each later answer."""
    with ScriptedEngine(
        lambda request, prompt, before: ASKS_SEARCH if "<tool_response>" not in prompt else ANSWER
    ) as made:
        yield made


@pytest.fixture
def client(engine: ScriptedEngine) -> Iterator[LocalOpenAI]:
    with LocalOpenAI(engine=engine, hosted_tools=Hooks().all) as made:
        yield made


def cited(response: Any) -> list[tuple[str, str, str]]:
    """Type, URL, and title of the annotations of the last message; each names the URL's place."""
    part = response.output[-1].content[0]
    for each in part.annotations:
        assert part.text[each.start_index : each.end_index] == each.url
    return [(each.type, each.url, each.title) for each in part.annotations]


EXPECTED = [("url_citation", URL, PAGE["title"])]


@pytest.mark.parametrize("tools", [[SEARCH], []])
@pytest.mark.parametrize("way", ["previous_response_id", "conversation", "input", "stored items"])
def test_a_page_of_an_earlier_response_is_cited(way: str, tools: Any, client: LocalOpenAI) -> None:
    """Also if the later request has no tools."""
    more: dict[str, Any] = {"conversation": client.conversations.create().id} if way == "conversation" else {}
    first = client.responses.create(input="Weather?", **ASK, **more)
    assert types(first) == ["web_search_call", "message"] and cited(first) == EXPECTED
    given: Any = "And the source?"
    if way == "previous_response_id":
        more["previous_response_id"] = first.id
    elif way != "conversation":
        items: list[Any] = [*first.output]
        if way == "stored items":
            items = [{"type": "item_reference", "id": item.id} for item in first.output]
        given = [{"role": "user", "content": "Weather?"}, *items, {"role": "user", "content": "And the source?"}]
    asked: Any = {"model": "m", "input": given, "tools": tools}
    second = client.responses.create(**asked, **more)
    check_response(second)
    assert types(second) == ["message"] and cited(second) == EXPECTED


def test_a_stream_has_the_events_of_such_a_citation(client: LocalOpenAI) -> None:
    first = client.responses.create(input="Weather?", **ASK)
    events: Any = list(client.responses.create(model="m", input="So?", previous_response_id=first.id, stream=True))
    check_stream(events)
    added = [event.annotation for event in events if event.type == "response.output_text.annotation.added"]
    assert len(added) == 1 and cited(events[-1].response) == EXPECTED


def test_an_async_client_cites_earlier_pages(engine: ScriptedEngine) -> None:
    async def main() -> Any:
        async with AsyncLocalOpenAI(engine=engine, hosted_tools=Hooks().all) as client:
            first = await client.responses.create(input="Weather?", **ASK)
            chains = (client.responses.create(model="m", input="So?", previous_response_id=first.id) for _ in range(2))
            return await asyncio.gather(*chains, client.responses.create(model="m", input="Weather?", tools=[]))

    *chained, alone = asyncio.run(main())
    assert [cited(each) for each in chained] == [EXPECTED] * 2 and cited(alone) == []


def test_the_latest_title_of_a_page_counts() -> None:
    hooks = Hooks()
    with (
        ScriptedEngine(script(ASKS_SEARCH, ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools=hooks.all) as client,
    ):
        previous: Any = None
        for title in ("first", "second"):
            hooks.pages = [{**PAGE, "title": title}]
            previous = client.responses.create(
                input="Weather?", **ASK, previous_response_id=None if previous is None else previous.id
            )
            assert cited(previous) == [("url_citation", URL, title)]


def test_sources_that_openai_has_found_are_cited(engine: ScriptedEngine) -> None:
    """Its items have URLs without titles, and no output."""
    action = {"type": "search", "query": "rain", "sources": [{"type": "url", "url": URL}]}
    item: Any = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    with LocalOpenAI(engine=engine) as client:
        given: Any = [{"role": "user", "content": "Weather?"}, item, {"role": "user", "content": "So?"}]
        response = client.responses.create(model="m", input=given)
    assert cited(response) == [("url_citation", URL, "")]


@pytest.mark.parametrize(
    "output", ["Error: ValueError: no network", "5", "{}", '[5, {"url": 5}, {"title": "x"}]', "[" * 5000]
)
def test_a_search_that_found_nothing_is_not_cited(output: str, engine: ScriptedEngine) -> None:
    item: Any = {"type": "web_search_call", "id": "ws_1", "status": "failed", "output": output}
    with LocalOpenAI(engine=engine) as client:
        given: Any = [{"role": "user", "content": "Weather?"}, item, {"role": "user", "content": "So?"}]
        response = client.responses.create(model="m", input=given)
    assert response.output_text == ANSWER and cited(response) == []


def test_a_cassette_plays_such_a_citation(engine: ScriptedEngine, tmp_path: Path) -> None:
    def run(client: LocalOpenAI) -> Any:
        first = client.responses.create(input="Weather?", **ASK)
        return cited(client.responses.create(model="m", input="So?", previous_response_id=first.id))

    path = tmp_path / "cassette.jsonl"
    with (
        LocalOpenAI(engine=engine, hosted_tools=Hooks().all) as source,
        play_cassette(path, record_mode="once", source=source) as client,
    ):
        assert run(client) == EXPECTED
    with play_cassette(path) as client:
        assert run(client) == EXPECTED
