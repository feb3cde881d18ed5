"""Hosted tools in scripts and cassettes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine, play_cassette, scripted, tool_call
from tests.endpoints.functions import call
from tests.endpoints.hosted.hosting import (
    ANSWER,
    ASKS_CODE,
    ASKS_SAVE,
    ASKS_SEARCH,
    CODE,
    SAVE,
    SEARCH,
    URL,
    Hooks,
    script,
    types,
)
from tests.endpoints.hosted.mcp.servers import CALLS, Server
from tests.endpoints.pictures import png
from tests.endpoints.responses.legal import check_response, check_stream

ASK: dict[str, Any] = {"model": "m", "input": "Weather?", "tools": [SEARCH, CODE, SAVE]}
IMAGE: Any = {"type": "image_generation"}
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Weather?"}],
    "web_search_options": {},
}


# -- scripts --------------------------------------------------------------------------------------------------------


def test_a_scripted_call_calls_the_hook_and_the_next_reply_answers() -> None:
    hooks = Hooks()
    search = tool_call("web_search", query="rain")
    with scripted(search, "Rain.", search, ANSWER, client={"hosted_tools": hooks.all}) as client:
        response = client.responses.create(**ASK)
        assert types(response) == ["web_search_call", "message"] and response.output_text == "Rain."
        completion = client.chat.completions.create(**CHAT)
        assert completion.choices[0].message.content == ANSWER
        client.assert_tool_called("web_search", query="rain")
        assert len(client.calls) == 4 and client.calls[3].tool_names == ["web_search"]
    assert [query for query, _ in hooks.calls] == ["rain", "rain"]


def test_a_script_without_a_hook_is_told_to_pass_one() -> None:
    with scripted("x", assert_complete=False) as client, pytest.raises(openai.BadRequestError, match="hosted_tools="):
        client.responses.create(**ASK)


def test_a_generated_answer_may_search() -> None:
    """Nothing is scripted: an answer that has to search does."""
    hooks = Hooks()
    with scripted(client={"hosted_tools": hooks.all}) as client:
        response = client.responses.create(**ASK, tool_choice={"type": "web_search"})
    assert types(response)[0] == "web_search_call" and len(hooks.calls) == 1


def test_a_generated_answer_makes_a_required_call_once() -> None:
    hooks, server = Hooks(), Server()
    with scripted(client={"hosted_tools": {**hooks.all, "mcp": {"calc": server}}}) as client:
        search = client.responses.create(model="m", input="Weather?", tools=[SEARCH], tool_choice="required")
        add = client.responses.create(model="m", input="Weather?", tools=[CALLS], tool_choice="required")
    assert types(search) == ["web_search_call", "message"] and len(hooks.calls) == 1
    assert types(add)[:2] == ["mcp_list_tools", "mcp_call"] and types(add)[-1] == "message"


def test_a_script_calls_a_tool_of_an_mcp_server() -> None:
    server = Server()
    add = tool_call("calc__add", a=2, b=3)
    with scripted(add, "It is 5.", client={"hosted_tools": {"mcp": {"calc": server}}}) as client:
        response = client.responses.create(model="m", input="Weather?", tools=[CALLS])
        client.assert_tool_called("calc__add", a=2, b=3)
    assert types(response) == ["mcp_list_tools", "mcp_call", "message"] and server.calls == [("add", {"a": 2, "b": 3})]


def test_a_script_that_calls_a_tool_of_another_server_is_told() -> None:
    """The request has no server of this label."""
    reply = tool_call("other__add", a=2)
    with (
        pytest.raises(AssertionError, match="calls 'other__add'"),
        scripted(reply, client={"hosted_tools": {"mcp": {"calc": Server()}}}) as client,
    ):
        client.responses.create(model="m", input="Weather?", tools=[CALLS])


# -- cassettes ------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cassette.jsonl"


@pytest.fixture
def hooks() -> Hooks:
    return Hooks(ran={"logs": "é\n", "files": [{"name": "a.txt"}]})


@pytest.fixture
def source(hooks: Hooks) -> Iterator[LocalOpenAI]:
    replies = script("Let me see." + ASKS_SEARCH + ASKS_CODE, "And?" + ASKS_SEARCH, ANSWER)
    with ScriptedEngine(replies) as engine:
        every = {**hooks.all, "image_generation": lambda prompt: png()}
        with LocalOpenAI(engine=engine, hosted_tools=every) as client:
            yield client


def said(response: Any) -> Any:
    """A response without what differs from run to run."""
    made = response.to_dict()
    for name in ("id", "created_at", "completed_at"):
        made.pop(name)
    made["output"] = [{**item, "id": None} for item in made["output"]]
    return made


INCLUDED = [
    {},
    {"include": ["web_search_call.results", "web_search_call.action.sources", "code_interpreter_call.outputs"]},
]


@pytest.mark.parametrize("more", INCLUDED)
def test_a_cassette_plays_hosted_calls_without_hooks(more: Any, path: Path, source: LocalOpenAI, hooks: Hooks) -> None:
    asked = {**ASK, **more}
    expected = source.responses.create(**asked)
    with play_cassette(path, record_mode="once", source=source) as client:
        recorded = client.responses.create(**asked)
    called = len(hooks.calls)
    assert called == 6  # asked twice
    with play_cassette(path) as client:
        played = client.responses.create(**asked)
    with play_cassette(path) as client:
        events = list(client.responses.create(**asked, stream=True))
    check_response(played)
    check_stream(events)
    assert len(hooks.calls) == called
    kinds = ["message", "web_search_call", "code_interpreter_call", "message", "web_search_call", "message"]
    assert types(expected) == types(recorded) == types(played) == types(events[-1].response) == kinds
    assert said(recorded)["output"] == said(played)["output"] == said(events[-1].response)["output"]
    assert recorded.usage == played.usage == events[-1].response.usage
    assert played.output[-1].content[0].annotations[0].url == URL
    for mine, theirs in zip(said(played)["output"], said(expected)["output"], strict=True):
        assert {**mine, "container_id": None} == {**theirs, "container_id": None}


def test_a_cassette_plays_a_turn_with_functions_of_the_caller(path: Path) -> None:
    with (
        ScriptedEngine(script(ASKS_SEARCH + ASKS_SAVE + ASKS_SEARCH)) as engine,
        LocalOpenAI(engine=engine, hosted_tools=Hooks().all) as source,
        play_cassette(path, record_mode="once", source=source) as client,
    ):
        recorded = client.responses.create(**ASK)
    with play_cassette(path) as client:
        played = client.responses.create(**ASK)
    assert types(recorded) == types(played) == ["web_search_call", "function_call", "web_search_call"]
    assert played.usage == recorded.usage


def test_a_cassette_plays_failed_calls_and_images(path: Path) -> None:
    def broken(query: str) -> Any:
        raise ValueError("no network")

    asks_image = '<tool_call>\n{"name": "image_generation", "arguments": {"prompt": "a cat"}}\n</tool_call>'
    asked = {**ASK, "tools": [SEARCH, IMAGE]}
    with (
        ScriptedEngine(script(ASKS_SEARCH + asks_image, "Hm.")) as engine,
        LocalOpenAI(
            engine=engine, hosted_tools={"web_search": broken, "image_generation": lambda prompt: png()}
        ) as source,
        play_cassette(path, record_mode="once", source=source) as client,
    ):
        recorded = client.responses.create(**asked)
    with play_cassette(path) as client:
        played = client.responses.create(**asked)
    assert said(recorded)["output"] == said(played)["output"]
    assert [item.status for item in played.output] == ["failed", "completed", "completed"]


def test_a_chain_is_played_behind_hosted_calls(path: Path, source: LocalOpenAI) -> None:
    def run(client: LocalOpenAI) -> str:
        first = client.responses.create(**ASK)
        return client.responses.create(model="m", input="So?", previous_response_id=first.id).output_text

    with play_cassette(path, record_mode="once", source=source) as client:
        recorded = run(client)
    with play_cassette(path) as client:
        assert run(client) == recorded


@pytest.mark.parametrize("streamed", [False, True])
def test_a_cassette_plays_a_chat_that_searched(path: Path, streamed: bool) -> None:
    hooks = Hooks()

    def run(client: LocalOpenAI) -> Any:
        if not streamed:
            return client.chat.completions.create(**CHAT).choices[0].message.to_dict()
        chunks = list(client.chat.completions.create(**CHAT, stream=True))
        deltas = [choice.delta.to_dict() for chunk in chunks for choice in chunk.choices]
        text = "".join(str(delta.get("content") or "") for delta in deltas)
        return text, [delta["annotations"] for delta in deltas if "annotations" in delta]

    with (
        ScriptedEngine(script(ASKS_SEARCH, ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools=hooks.all) as source,
        play_cassette(path, record_mode="once", source=source) as client,
    ):
        recorded = run(client)
    with play_cassette(path) as client:
        assert run(client) == recorded
    assert URL in json.dumps(recorded) and len(hooks.calls) == 1


RECORDED = [
    {"request": {"model": "gpt-4o", "input": "Weather?", "tools": [{"type": "web_search"}]}, "api": "responses"},
    {"at": 0.1, "call": 0, "name": "web_search"},
    {
        "at": 0.2,
        "call": 0,
        "item": {
            "id": "ws_1",
            "type": "web_search_call",
            "status": "completed",
            "action": {"type": "search", "query": "rain", "sources": [{"type": "url", "url": URL}]},
        },
    },
    {"at": 0.3, "call": 1, "name": "web_search"},
    {
        "at": 0.4,
        "call": 1,
        "item": {
            "id": "ws_2",
            "type": "web_search_call",
            "status": "completed",
            "action": {"type": "open_page", "url": URL},
        },
    },
    {"at": 0.5, "content": "It rains."},
    {
        "at": 0.6,
        "annotations": [
            {"type": "url_citation", "url": URL, "title": "Almanac", "start_index": 3, "end_index": 8},
        ],
    },
    {"at": 0.7, "end": "stop"},
    {"model": "gpt-4o-2024-08-06", "fingerprint": None, "usage": None},
]


def test_what_openai_has_answered_is_played(path: Path) -> None:
    """Its model opens pages, and cites a source without its URL."""
    path.write_text("".join(json.dumps(line) + "\n" for line in RECORDED))
    with play_cassette(path) as client:
        response: Any = client.responses.create(model="gpt-4o", input="Weather?", tools=[SEARCH])
    assert [item.action.type for item in response.output[:2]] == ["search", "open_page"]
    assert response.output[0].action.sources[0].url == URL
    [annotation] = response.output[2].content[0].annotations
    assert (annotation.url, annotation.start_index, response.output_text) == (URL, 3, "It rains.")


def test_a_cassette_plays_a_search_in_files_without_the_vector_store(path: Path) -> None:
    with (
        ScriptedEngine(script(call("file_search", {"query": "rain"}), "Found.")) as engine,
        LocalOpenAI(engine=engine) as source,
    ):
        asked: Any = {"type": "file_search", "vector_store_ids": [source.vector_stores.create().id]}
        with play_cassette(path, record_mode="once", source=source) as client:
            recorded = client.responses.create(model="m", input="Find.", tools=[asked])
    with play_cassette(path) as client:
        played = client.responses.create(model="m", input="Find.", tools=[asked])
    assert said(recorded)["output"] == said(played)["output"]
    assert [item.type for item in played.output] == ["file_search_call", "message"]
