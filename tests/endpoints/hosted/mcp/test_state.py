"""Responses with MCP servers that are stored, continued, sent back, run in the background, and in batches."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.client.batch_lines import answer_lines
from localai_shim.sdk import private as sdk
from localai_shim.testing import ScriptedEngine
from tests.endpoints.hosted.hosting import RESULT, script, types
from tests.endpoints.hosted.mcp.servers import ADD, ADDS, ANSWER, CALLS, Server, ask
from tests.endpoints.responses.legal import check_response, check_stream
from tests.engine.harness import eventually

ASK: dict[str, Any] = {"model": "m", "input": "Weather?", "tools": [CALLS]}
ITEMS = ["mcp_list_tools", "mcp_call", "message"]
AGAIN: Any = {"role": "user", "content": "Weather again?"}


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(script(ADDS, ANSWER)) as made:
        yield made


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def client(engine: ScriptedEngine, server: Server) -> Iterator[LocalOpenAI]:
    with LocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": server}}) as made:
        yield made


WAYS = ["previous_response_id", "conversation", "input", "input and previous_response_id", "references"]


@pytest.mark.parametrize("way", WAYS)
def test_a_server_lists_its_tools_once_in_a_conversation(
    way: str, engine: ScriptedEngine, client: LocalOpenAI, server: Server
) -> None:
    """The later prompt begins with the last round's."""
    more: dict[str, Any] = {"conversation": client.conversations.create().id} if way == "conversation" else {}
    first = client.responses.create(**ASK, **more)
    last = engine.prompts[1]
    assert types(first) == ITEMS and client.responses.retrieve(first.id).output == first.output
    given: list[Any] = [AGAIN]
    if "previous_response_id" in way:
        more["previous_response_id"] = first.id
    if way == "references":
        given = [{"type": "item_reference", "id": item.id} for item in first.output] + given
    elif "input" in way:
        given = [*first.output, *given]
    if not more:
        given = [{"role": "user", "content": "Weather?"}, *given]
    server.tools = ()
    second = client.responses.create(**{**ASK, "input": given}, **more)
    again = engine.prompts[2]
    assert types(second) == ITEMS[1:] and server.lists == 1 and len(server.calls) == 2
    assert again.startswith(last) and again.count(RESULT) == 1


@pytest.mark.parametrize(
    ("allowed", "later", "lists"),
    [(None, ["add"], 1), (["add"], ["add"], 1), (["add"], None, 1), (["add"], ["wipe"], 2), (["gone"], ["add"], 2)],
)
def test_a_list_without_a_tool_that_is_allowed_now_is_made_again(
    allowed: Any, later: Any, lists: int, client: LocalOpenAI, server: Server
) -> None:
    first = client.responses.create(**{**ASK, "tools": [{**CALLS, "allowed_tools": allowed}]})
    tools: Any = [{**CALLS, "allowed_tools": later}]
    second = client.responses.create(**{**ASK, "tools": tools}, previous_response_id=first.id)
    assert server.lists == lists == [*types(first), *types(second)].count("mcp_list_tools")


def test_a_list_that_failed_is_made_again(client: LocalOpenAI, server: Server) -> None:
    server.tools = None
    first = client.responses.create(**ASK)
    server.tools = (ADD,)
    second = client.responses.create(**ASK, previous_response_id=first.id)
    assert (types(first)[0], types(second)[0], server.lists) == ("mcp_list_tools", "mcp_list_tools", 2)


def test_calls_of_one_turn_are_one_turn_again(server: Server) -> None:
    with ScriptedEngine(script(ADDS + ADDS, ADDS, ANSWER)) as more:
        first, _ = ask(more, "whole", server)
        given = [{"role": "user", "content": "Weather?"}, *first.output, AGAIN]
        ask(more, "whole", server, input=given)
        rounds = [prompt for prompt in more.prompts if AGAIN["content"] not in prompt]
        again = next(prompt for prompt in more.prompts if AGAIN["content"] in prompt)
    calls = [part.count("<tool_call>") for part in rounds[-1].split("<|im_start|>assistant")[1:]]
    assert calls == [2, 1, 0] and again.startswith(rounds[-1])


OPENAI_ITEMS: list[tuple[dict[str, Any], str]] = [
    ({"output": "5"}, "5"),
    ({"output": None, "error": "it broke"}, "it broke" if sdk.SERIES < 3 else "Error: it broke"),
    ({"error": {"type": "mcp_protocol_error", "code": -32602, "message": "no"}}, "Error: no"),
    ({"error": {"type": "http_error", "code": 500, "message": "down"}}, "Error: down"),
    (
        {"error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "Cannot divide."}]}},
        "Cannot divide.",
    ),
    ({}, "Error: the result of this call is not available any more."),
]


@pytest.mark.parametrize(("fields", "read"), OPENAI_ITEMS)
def test_items_that_openai_made_are_read(
    fields: Any, read: str, engine: ScriptedEngine, client: LocalOpenAI, server: Server
) -> None:
    tool = {"name": "add", "description": None, "annotations": None, "input_schema": ADD["inputSchema"]}
    given: list[Any] = [
        {"role": "user", "content": "Weather?"},
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "calc", "tools": [tool]},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "calc", "name": "add", "arguments": '{"a": 1}', **fields},
        AGAIN,
    ]
    client.responses.create(**{**ASK, "input": given})
    assert f"<tool_response>\n{read}\n</tool_response>" in engine.prompts[0] and server.lists == 0
    assert '{"name": "calc__add", "arguments": {"a": 1}}' in engine.prompts[0]


def test_a_conversation_lists_items_of_servers(client: LocalOpenAI) -> None:
    conversation = client.conversations.create()
    made = client.responses.create(**ASK, conversation=conversation.id)
    listed = client.conversations.items.list(conversation.id, order="asc").data
    assert [item.type for item in listed] == ["message", *ITEMS]
    assert [item.to_dict() for item in listed[1:]] == [item.to_dict() for item in made.output]


# -- other ways to run ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_in_the_background_calls_servers(stream: bool, client: LocalOpenAI, server: Server) -> None:
    made: Any = client.responses.create(**ASK, background=True, stream=stream)
    if stream:
        events = list(made)
        check_stream(events)
        response = events[-1].response
        check_stream(list(client.responses.retrieve(response.id, stream=True)))
    else:
        assert eventually(lambda: client.responses.retrieve(made.id).status == "completed")
        response = client.responses.retrieve(made.id)
    check_response(response)
    assert types(response) == ITEMS and len(server.calls) == 1


def test_lines_of_a_batch_call_servers(client: LocalOpenAI, server: Server) -> None:
    lines = [json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/responses", "body": ASK}) for i in range(3)]
    bodies = [json.loads(line)["response"]["body"] for line in answer_lines(client, lines)]
    assert [[item["type"] for item in body["output"]] for body in bodies] == [ITEMS] * 3 and len(server.calls) == 3


def test_concurrent_responses_share_a_server(engine: ScriptedEngine, server: Server) -> None:
    async def main() -> list[Any]:
        async with AsyncLocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": server}}) as client:
            return await asyncio.gather(*(client.responses.create(**ASK) for _ in range(8)))

    assert [types(each) for each in asyncio.run(main())] == [ITEMS] * 8 and len(server.calls) == 8


# -- secrets --------------------------------------------------------------------------------------------------------


def test_secrets_are_neither_stored_nor_shown_nor_kept(
    engine: ScriptedEngine, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = "https://tools.example/mcp/secret-path?key=secret-key"
    tool: Any = {**CALLS, "server_url": url, "authorization": "secret-token", "headers": {"X-Key": "secret-header"}}
    path, served = tmp_path / "store.sqlite", {"mcp": {"calc": server}}
    with caplog.at_level(logging.DEBUG), LocalOpenAI(engine=engine, hosted_tools=served, store=path) as client:
        made = client.responses.create(**{**ASK, "tools": [tool]})
        events = list(client.responses.create(**{**ASK, "tools": [tool]}, background=True, stream=True))
        texts = [each.to_json() for each in (made, client.responses.retrieve(made.id), *events)]
        kept = repr(client._runtime.served(engine).field_cache._known.__dict__)
    found: Any = made.tools[0]
    assert (found.server_url, found.headers, found.authorization) == ("https://tools.example/<redacted>", None, None)
    stored = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert made.id.encode() in stored
    for text in (*texts, caplog.text, kept, stored.decode(errors="replace")):
        assert "secret" not in text
