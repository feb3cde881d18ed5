"""Lists, calls, approvals, and errors of MCP servers in cassettes: recorded without secrets, played without servers."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import ScriptedEngine, play_cassette
from localai_shim.testing.cassettes.cassette import Cassette
from localai_shim.testing.cassettes.engine import CassetteEngine
from tests.endpoints.functions import call
from tests.endpoints.hosted.hosting import ASKS_SAVE, ASKS_SEARCH, SAVE, SEARCH, Hooks, script, types
from tests.endpoints.hosted.mcp.servers import ADDS, ANSWER, ASKS, CALLS, SUM, WIPES, Server, text
from tests.endpoints.pictures import png
from tests.endpoints.responses.legal import check_response, check_stream

ASK: dict[str, Any] = {"model": "m", "input": "Weather?", "tools": [CALLS]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cassette.jsonl"


def said(response: Any) -> Any:
    """The output without ids, which differ from run to run."""
    return [{**item, "id": None, "approval_request_id": None} for item in response.to_dict()["output"]]


def recorded(path: Path, replies: Any, servers: Any, body: Any = ASK, hooks: Any = None) -> Any:
    """The response while it is recorded, of a client with these servers."""
    with (
        ScriptedEngine(script(*replies)) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"mcp": servers, **(hooks or {})}) as source,
        play_cassette(path, record_mode="once", source=source) as client,
    ):
        return client.responses.create(**body)


def played(path: Path, body: Any = ASK, how: str = "whole") -> Any:
    """The response of the cassette alone."""
    if how == "whole":
        with play_cassette(path) as client:
            response = client.responses.create(**body)
    elif how == "streamed":
        with play_cassette(path) as client:
            events = list(client.responses.create(**body, stream=True))
        check_stream(events)
        response = events[-1].response
    else:
        response = asyncio.run(_played_async(path, body, how))
    check_response(response)
    return response


async def _played_async(path: Path, body: Any, how: str) -> Any:
    with CassetteEngine(Cassette(path)) as engine:
        async with AsyncLocalOpenAI(engine=engine) as client:
            if how == "background":
                made = await client.responses.create(**body, background=True)
                events = [event async for event in await client.responses.retrieve(made.id, stream=True)]
                return events[-1].response
            return await client.responses.create(**body)


each_play = pytest.mark.parametrize("how", ["whole", "streamed", "async", "background"])


def raising(error: Exception) -> Any:
    def result() -> Any:
        raise error

    return result


# -- what is played -------------------------------------------------------------------------------------------------


@each_play
def test_a_list_and_calls_of_several_rounds_are_played(how: str, path: Path) -> None:
    server = Server()
    made = recorded(path, ["Let me see." + ADDS + WIPES, "And?" + ADDS, ANSWER], {"calc": server})
    assert (server.lists, len(server.calls)) == (1, 3)
    again = played(path, how=how)
    assert types(again) == ["mcp_list_tools", "message", *["mcp_call"] * 2, "message", "mcp_call", "message"]
    assert said(again) == said(made) and again.usage == made.usage
    assert (server.lists, len(server.calls)) == (1, 3), "no server is asked"


@each_play
def test_errors_of_lists_and_calls_are_played(how: str, path: Path) -> None:
    """One server lists nothing, a tool of another raises, and one returns an error."""
    raises, fails = call("raises__add", SUM), call("fails__add", SUM)
    servers = {
        "down": Server(raising(OSError("no route"))),
        "raises": Server(result=raising(ValueError("no paper"))),
        "fails": Server(result=text("Cannot add.", isError=True)),
    }
    body = {**ASK, "tools": [{**CALLS, "server_label": label} for label in servers]}
    made = recorded(path, [raises + fails + call("raises__add", [1]), ANSWER], servers, body)
    again = played(path, body, how)
    assert said(again) == said(made)
    assert "no route" in again.output[0].error
    assert [item.status for item in again.output if item.type == "mcp_call"] == ["failed"] * 3


def test_calls_of_servers_hooks_and_functions_of_one_turn_are_played(path: Path) -> None:
    body = {**ASK, "tools": [SEARCH, CALLS, SAVE]}
    hooks = Hooks()
    made = recorded(path, [ASKS_SEARCH + ADDS + ASKS_SAVE + ADDS], {"calc": Server()}, body, hooks.all)
    assert types(made) == ["mcp_list_tools", "web_search_call", "mcp_call", "function_call", "mcp_call"]
    assert said(played(path, body))[:3] == said(made)[:3] and types(played(path, body)) == types(made)
    assert len(hooks.calls) == 1


def test_results_of_calls_that_end_in_another_order_are_played_in_their_place(path: Path) -> None:
    second = threading.Event()

    class Waiting(Server):
        def call_tool(self, name: str, arguments: Any) -> Any:
            if arguments["a"] == 1:
                assert second.wait(60)
            else:
                second.set()
            return str(arguments["a"])

    adds = [call("calc__add", {"a": a, "b": 0}) for a in (1, 2)]
    made = recorded(path, ["".join(adds), ANSWER], {"calc": Waiting()})
    assert [item.output for item in made.output[1:3]] == ["1", "2"]
    assert said(played(path)) == said(made)


def test_images_of_results_are_played(path: Path) -> None:
    image = {"type": "image", "data": base64.b64encode(png()).decode(), "mimeType": "image/png"}
    made = recorded(path, [ADDS, ANSWER], {"calc": Server(result={"content": [image]})})
    again = played(path)
    assert said(again) == said(made) and again.output[1].images


def test_a_request_that_was_not_recorded_fails_the_test(path: Path) -> None:
    recorded(path, [ADDS, ANSWER], {"calc": Server()})
    cassette = Cassette(path)
    with (
        CassetteEngine(cassette) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": Server()}}) as client,
        pytest.raises(openai.BadRequestError, match=r"server_label: recorded 'calc', now 'other'"),
    ):
        client.responses.create(**{**ASK, "tools": [{**CALLS, "server_label": "other"}]})
    assert cassette.misses


# -- approvals ------------------------------------------------------------------------------------------------------


def conversation(client: LocalOpenAI, approve: bool) -> Iterator[Any]:
    """The responses of two requests: one that asks for approvals, and one that has the answers."""
    asked: Any = {"model": "m", "tools": [ASKS]}
    first = client.responses.create(input="Weather?", **asked)
    yield first
    requests = [item for item in first.output if item.type == "mcp_approval_request"]
    answers: list[Any] = [
        {"type": "mcp_approval_response", "approval_request_id": each.id, "approve": approve} for each in requests
    ]
    yield client.responses.create(input=answers, previous_response_id=first.id, **asked)


@pytest.mark.parametrize("approve", [True, False])
def test_a_chain_with_approvals_is_played(approve: bool, path: Path) -> None:
    """Calls of the same tool that were approved together have their own results."""

    class Counting(Server):
        def call_tool(self, name: str, arguments: Any) -> Any:
            super().call_tool(name, arguments)
            return str(arguments["a"])

    server = Counting()
    adds = [call("calc__add", {"a": a, "b": 0}) for a in (1, 2)]
    with (
        ScriptedEngine(script("".join(adds), ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": server}}) as source,
        play_cassette(path, record_mode="once", source=source) as client,
    ):
        made = [said(response) for response in conversation(client, approve)]
    assert len(server.calls) == 2 * approve and server.lists == 1
    with play_cassette(path) as client:
        again = list(conversation(client, approve))
    assert [said(response) for response in again] == made
    assert [item.output for item in again[1].output if item.type == "mcp_call"] == ["1", "2"] * approve
    assert len(server.calls) == 2 * approve and server.lists == 1


# -- secrets --------------------------------------------------------------------------------------------------------


def test_a_cassette_contains_no_secrets_and_is_played_with_others(path: Path) -> None:
    secret: Any = {
        "headers": {"X-Key": "hunter2"},
        "authorization": "hunter3",
        "server_url": "https://x.example/hunter4",
    }
    server = Server(raising(OSError("refused https://x.example/hunter4 with hunter2 and hunter3")))
    made = recorded(path, [ANSWER], {"calc": server}, {**ASK, "tools": [{**CALLS, **secret}]})
    assert "hunter" not in path.read_text() and "x.example" in path.read_text()
    other = {**secret, "headers": None, "authorization": "another", "server_url": "https://x.example/elsewhere"}
    for entry in (secret, other):
        assert said(played(path, {**ASK, "tools": [{**CALLS, **entry}]})) == said(made)
    with pytest.raises(openai.BadRequestError, match="server_url"):
        played(path, {**ASK, "tools": [{**CALLS, **secret, "server_url": "https://y.example/hunter4"}]})


# -- recordings of the service --------------------------------------------------------------------------------------

LISTED = {
    "type": "mcp_list_tools",
    "id": "mcpl_1",
    "server_label": "dice",
    "tools": [{"name": "roll", "input_schema": {"type": "object", "properties": {}}, "annotations": None}],
}
CALLED = {
    "type": "mcp_call",
    "id": "mcp_1",
    "status": "completed",
    "server_label": "dice",
    "name": "roll",
    "arguments": "{}",
    "output": "4",
}
RECORDED = [
    {
        "request": {"model": "gpt-4o", "input": "Roll.", "tools": [{**CALLS, "server_label": "dice"}]},
        "api": "responses",
    },
    {"at": 0.1, "call": 0, "item": LISTED},
    {"at": 0.2, "call": 1, "name": "dice__roll"},
    {"at": 0.3, "call": 1, "item": CALLED},
    {"at": 0.4, "content": "You rolled a 4."},
    {"at": 0.5, "end": "stop"},
    {"model": "gpt-4o-2024-08-06", "fingerprint": None, "usage": None},
]


def test_an_answer_of_the_service_is_played(path: Path) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in RECORDED))
    tool = {**CALLS, "server_label": "dice"}
    response = played(path, {"model": "gpt-4o", "input": "Roll.", "tools": [tool]})
    assert types(response) == ["mcp_list_tools", "mcp_call", "message"]
    assert (response.output[1].output, response.output_text) == ("4", "You rolled a 4.")
