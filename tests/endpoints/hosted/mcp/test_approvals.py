"""Calls of MCP servers that wait for an approval, and what becomes of them in later requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.endpoints.hosted.hosting import ASKS_SAVE, SAVE, each_way, script, types
from tests.endpoints.hosted.mcp.servers import ADDS, ANSWER, ASKS, CALLS, SUM, WIPES, Server, ask, kinds
from tests.endpoints.responses.legal import check_response

ASK: dict[str, Any] = {"model": "m", "input": "Weather?", "tools": [ASKS]}


def answer(request: Any, approve: bool = True, **more: Any) -> Any:
    """The answer to a request for an approval."""
    return {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve, **more}


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


# -- which calls wait -----------------------------------------------------------------------------------------------

ADD_ONLY, READS = {"tool_names": ["add"]}, {"read_only": True}


@pytest.mark.parametrize(
    ("approval", "asking"),
    [
        (None, ["add", "wipe"]),
        ("always", ["add", "wipe"]),
        ("never", []),
        ({}, ["add", "wipe"]),
        ({"never": ADD_ONLY}, ["wipe"]),
        ({"always": ADD_ONLY}, ["add"]),
        ({"never": READS}, ["wipe"]),
        ({"never": {}, "always": {"tool_names": ["wipe"]}}, ["wipe"]),
        ({"never": ADD_ONLY, "always": READS}, ["add", "wipe"]),
    ],
)
def test_calls_wait_for_an_approval_as_the_request_says(approval: Any, asking: list[str]) -> None:
    server = Server()
    with ScriptedEngine(script(ADDS + WIPES, ANSWER)) as engine:
        response, _ = ask(engine, "streamed", server, tools=[{**ASKS, "require_approval": approval}])
    assert [item.name for item in response.output if item.type == "mcp_approval_request"] == asking
    assert [name for name, _ in server.calls] == [name for name in ("add", "wipe") if name not in asking]
    assert (types(response)[-1] == "message") == (not asking) and response.status == "completed"


@each_way
def test_a_response_ends_with_a_request_that_is_whole_when_it_is_added(how: str) -> None:
    server = Server()
    with ScriptedEngine(script("Let me see. " + ADDS, ANSWER)) as engine:
        response, events = ask(engine, how, server, tools=[ASKS])
    assert types(response) == ["mcp_list_tools", "message", "mcp_approval_request"] and not server.calls
    request = response.output[-1]
    assert (request.server_label, request.name, json.loads(request.arguments)) == ("calc", "add", SUM)
    if events:
        assert kinds(events)[-3:] == ["output_item.added", "output_item.done", "completed"]
        assert events[-3].item == request


def test_a_function_of_the_caller_may_be_called_next_to_a_request() -> None:
    server = Server()
    with ScriptedEngine(script(ADDS + ASKS_SAVE, ANSWER)) as engine:
        response, _ = ask(engine, "streamed", server, tools=[ASKS, SAVE])
    assert types(response) == ["mcp_list_tools", "mcp_approval_request", "function_call"]


@pytest.mark.parametrize("most", range(1, 6))
def test_a_request_that_is_cut_off_is_left_out(most: int) -> None:
    with ScriptedEngine(script("Let me see. " + ADDS, ANSWER)) as engine:
        for how in ("whole", "streamed"):
            response, _ = ask(engine, how, Server(), tools=[ASKS], max_output_tokens=most)
            assert response.status == "incomplete" and "mcp_approval_request" not in types(response)


# -- what becomes of them -------------------------------------------------------------------------------------------

WAYS = ["previous_response_id", "conversation", "input", "input and previous_response_id"]


@pytest.mark.parametrize("approve", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_an_answer_continues_the_conversation(
    way: str, approve: bool, engine: ScriptedEngine, client: LocalOpenAI, server: Server
) -> None:
    more: dict[str, Any] = {"conversation": client.conversations.create().id} if way == "conversation" else {}
    first = client.responses.create(**ASK, **more)
    given: list[Any] = [answer(first.output[-1], approve, reason="It is wrong." if not approve else None)]
    if "previous_response_id" in way:
        more["previous_response_id"] = first.id
    if "input" in way:
        given = [*first.output, *given]
    if not more:
        given = [{"role": "user", "content": "Weather?"}, *given]
    second = client.responses.create(**{**ASK, "input": given}, **more)
    check_response(second)
    assert server.lists == 1 and second.output_text == ANSWER
    prompt = engine.prompts[-1]
    assert prompt.startswith(engine.prompts[0]) and prompt.count("<tool_response>") == 1
    if approve:
        assert types(second) == ["mcp_call", "message"] and server.calls == [("add", SUM)]
        called: Any = second.output[0]
        assert (called.approval_request_id, called.output) == (first.output[-1].id, "5")
        assert "<tool_response>\n5\n" in prompt
    else:
        assert types(second) == ["message"] and not server.calls
        assert "Error: the user has denied this call. Reason: It is wrong." in prompt
    if way != "input":
        more = more if way == "conversation" else {"previous_response_id": second.id}
        third = client.responses.create(**{**ASK, "input": "Weather again?"}, **more)
        assert types(third)[0] == "mcp_approval_request" and len(server.calls) == approve
        assert engine.prompts[-1].startswith(prompt)


def test_an_approved_call_is_shown_as_any_other(server: Server) -> None:
    with ScriptedEngine(script(ADDS, ANSWER)) as engine:
        first, _ = ask(engine, "whole", server, tools=[ASKS])
        given: list[Any] = [{"role": "user", "content": "Weather?"}, *first.output, answer(first.output[-1])]
        for how in ("whole", "streamed", "async streamed"):
            second, events = ask(engine, how, server, tools=[ASKS], input=given)
            assert types(second) == ["mcp_call", "message"]
            if events:
                assert kinds(events)[:8] == [
                    *("created", "in_progress", "output_item.added", "mcp_call.in_progress"),
                    *("mcp_call_arguments.delta", "mcp_call_arguments.done", "mcp_call.completed", "output_item.done"),
                ]
    assert server.calls == [("add", SUM)] * 3


def test_requests_of_one_turn_may_have_different_answers(server: Server) -> None:
    with ScriptedEngine(script(ADDS + WIPES, ANSWER)) as engine:
        first, _ = ask(engine, "whole", server, tools=[ASKS])
        add, wipe = first.output[1:]
        given = [{"role": "user", "content": "Weather?"}, *first.output, answer(wipe, False), answer(add)]
        second, _ = ask(engine, "streamed", server, tools=[ASKS], input=given)
        prompt = engine.prompts[-1]
    assert types(second) == ["mcp_call", "message"] and server.calls == [("add", SUM)]
    assert prompt.index("calc__wipe", prompt.index("Weather?")) < prompt.index("<tool_response>\n5\n")
    assert prompt.index("<tool_response>\n5\n") < prompt.index("Error: the user has denied this call.")


def test_a_request_without_an_answer_is_told_to_the_model(engine: ScriptedEngine, client: LocalOpenAI) -> None:
    first = client.responses.create(**ASK)
    client.responses.create(**{**ASK, "input": "Never mind."}, previous_response_id=first.id)
    assert "Error: the user has not approved this call." in engine.prompts[-1]


def test_a_forced_choice_is_over_with_the_answer(server: Server) -> None:
    """The script asks for the call once more, and obeys the grammar."""
    with ScriptedEngine(script(ADDS, ANSWER), obey_constraints=True) as engine:
        fields: Any = {"tools": [ASKS], "tool_choice": "required"}
        first, _ = ask(engine, "whole", server, **fields)
        for approve in (True, False):
            given = [{"role": "user", "content": "Weather?"}, *first.output, answer(first.output[-1], approve)]
            second, _ = ask(engine, "whole", server, **fields, input=given)
            assert types(second)[-1] == "message" and second.output_text == ANSWER


def test_an_approved_call_counts_for_max_tool_calls(server: Server) -> None:
    """An engine that obeys the grammar takes no further call."""
    with ScriptedEngine(script(ADDS, ADDS), obey_constraints=True) as engine:
        first, _ = ask(engine, "whole", server, tools=[ASKS])
        given = [{"role": "user", "content": "Weather?"}, *first.output, answer(first.output[-1])]
        with pytest.raises(openai.InternalServerError, match=r"grammar does not allow: .*<tool_call>"):
            ask(engine, "whole", server, tools=[CALLS], input=given, max_tool_calls=1)
    assert len(server.calls) == 1


def test_an_approved_call_of_a_tool_that_is_gone_fails(server: Server, engine: ScriptedEngine) -> None:
    first, _ = ask(engine, "whole", server, tools=[ASKS])
    given = [{"role": "user", "content": "Weather?"}, *first.output, answer(first.output[-1])]
    second, _ = ask(engine, "streamed", server, tools=[{**ASKS, "allowed_tools": ["wipe"]}], input=given)
    assert second.output[0].status == "failed" and "there is no tool 'add'" in str(second.output[0].error)
    assert "Error: there is no tool 'add'" in engine.prompts[-1] and not server.calls


# -- answers that are wrong -----------------------------------------------------------------------------------------


def test_an_answer_must_fit_a_request(client: LocalOpenAI, server: Server) -> None:
    first = client.responses.create(**ASK)
    [request] = [item for item in first.output if item.type == "mcp_approval_request"]
    unknown = {**answer(request), "approval_request_id": "mcpr_unknown"}
    cases: list[tuple[list[Any], Any, str, str]] = [
        ([unknown], [ASKS], "input[0].approval_request_id", "no approval request with id 'mcpr_unknown'"),
        ([answer(request)] * 2, [ASKS], "input[1].approval_request_id", "has been answered already"),
        ([{**answer(request), "approve": None}], [ASKS], "input[0].approve", "Missing required parameter"),
        ([answer(request)], [SAVE], "input[0].approval_request_id", "needs the MCP server 'calc'"),
    ]
    for given, tools, param, fragment in cases:
        with pytest.raises(openai.BadRequestError, match=fragment) as caught:
            client.responses.create(model="m", previous_response_id=first.id, input=given, tools=tools)
        assert caught.value.param == param
    assert not server.calls


def test_an_approved_call_is_made_once(client: LocalOpenAI, server: Server) -> None:
    first = client.responses.create(**ASK)
    given: Any = [answer(first.output[-1])]
    second = client.responses.create(**{**ASK, "input": given}, previous_response_id=first.id)
    client.responses.create(**{**ASK, "input": "Thanks."}, previous_response_id=second.id)
    assert len(server.calls) == 1
    with pytest.raises(openai.BadRequestError, match="has been answered already"):
        client.responses.create(**{**ASK, "input": given}, previous_response_id=second.id)
