"""Tools of MCP servers: lists, calls, choices, and limits."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.endpoints.functions import call
from tests.endpoints.hosted.hosting import ASKS_SAVE, ASKS_SEARCH, SAVE, SEARCH, Hooks, each_way, script, types
from tests.endpoints.hosted.hosting import ask as ask_hosted
from tests.endpoints.hosted.mcp.servers import (
    ADD,
    ADDS,
    ANSWER,
    CALLS,
    SUM,
    WIPE,
    WIPES,
    AsyncServer,
    Server,
    ask,
    kinds,
    text,
)

EVENTS = [
    *("created", "in_progress"),
    *("output_item.added", "mcp_list_tools.in_progress", "mcp_list_tools.completed", "output_item.done"),
    *("output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done"),
    *("mcp_call.completed", "output_item.done"),
    *("output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done"),
    *("output_item.done", "completed"),
]


@each_way
@pytest.mark.parametrize("kind", [Server, AsyncServer])
def test_the_model_calls_a_tool_of_a_server_and_the_same_response_continues(how: str, kind: type[Server]) -> None:
    server = kind()
    with ScriptedEngine(script(ADDS, ANSWER)) as engine:
        response, events = ask(engine, how, server)
        prompts = engine.prompts
    listing, called, message = response.output
    assert [tool.name for tool in listing.tools] == ["add", "wipe"] and listing.server_label == "calc"
    assert listing.tools[0].input_schema == ADD["inputSchema"] and listing.tools[0].annotations == ADD["annotations"]
    assert (called.server_label, called.name, json.loads(called.arguments)) == ("calc", "add", SUM)
    assert (called.status, called.output, called.error) == ("completed", "5", None)
    assert (message.content[0].text, response.status) == (ANSWER, "completed")
    assert (server.lists, server.calls) == (1, [("add", SUM)])
    assert '"name": "calc__add", "description": "Add two numbers."' in prompts[0]
    assert "<tool_response>\n5\n</tool_response>" in prompts[1] and prompts[1].startswith(prompts[0])
    assert response.usage.input_tokens == sum(len(request.prompt.tokens) for request in engine.requests)
    if events:
        assert kinds(events) == EVENTS


def test_tools_of_two_servers_may_have_the_same_name() -> None:
    first, second = Server(), Server(result=text("six"))
    other = {**CALLS, "server_label": "other"}
    with ScriptedEngine(script(ADDS + call("other__add", SUM), ANSWER)) as engine:
        response, _ = ask(engine, "streamed", {"calc": first, "other": second}, tools=[CALLS, other])
    found = [(item.server_label, item.output) for item in response.output if item.type == "mcp_call"]
    assert found == [("calc", "5"), ("other", "six")]
    assert types(response)[:2] == ["mcp_list_tools", "mcp_list_tools"]
    assert (first.calls, second.calls) == ([("add", SUM)], [("add", SUM)])


@each_way
def test_calls_of_servers_hooks_and_functions_of_the_caller_may_come_in_one_turn(how: str) -> None:
    server, hooks = Server(), Hooks()
    tools = [SEARCH, CALLS, SAVE]
    with ScriptedEngine(script(ASKS_SEARCH + ADDS + ASKS_SAVE, ANSWER)) as engine:
        response, _ = ask_hosted(engine, how, {**hooks.all, "mcp": {"calc": server}}, tools=tools)
    assert types(response) == ["mcp_list_tools", "web_search_call", "mcp_call", "function_call"]
    assert len(hooks.calls) == len(server.calls) == 1 and response.output[2].output == "5"


LONG = "x" * 70
NAMES: list[tuple[str, str, str]] = [
    ("calc", "get.sum", "calc__get_sum_"),
    ("my__calc", "add", "my__calc__add_"),
    ("calc", "_add", "calc___add_"),
    (LONG[:64], LONG, f"{LONG[:64]}__{LONG[:53]}_"),
]


@pytest.mark.parametrize(("label", "name", "beginning"), NAMES)
def test_names_that_a_function_cannot_have_are_changed_for_the_model(label: str, name: str, beginning: str) -> None:
    server, seen = Server(({**WIPE, "name": name},)), list[str]()

    def decide(request: Any, prompt: str, before: int) -> str:
        named = json.loads(prompt.partition("<tools>\n")[2].partition("\n")[0])["function"]["name"]
        seen.append(named)
        return script(call(named, {}), ANSWER)(request, prompt, before)

    with ScriptedEngine(decide) as engine:
        response, _ = ask(engine, "whole", {label: server}, tools=[{**CALLS, "server_label": label}])
    assert response.output[1].name == name and server.calls == [(name, {})]
    assert seen[0].startswith(beginning) and len(seen[0]) <= 128 and set(seen) == {seen[0]}


def test_the_description_of_a_server_is_part_of_its_tools() -> None:
    with ScriptedEngine(script(ANSWER)) as engine:
        ask(engine, "whole", Server(), tools=[{**CALLS, "server_description": "Works with integers."}])
        prompt = engine.prompts[0]
    assert '"description": "Add two numbers.\\ncalc: Works with integers."' in prompt
    assert '"description": "calc: Works with integers."' in prompt


# -- choices and limits ---------------------------------------------------------------------------------------------


CHOICES: list[Any] = [
    "required",
    {"type": "mcp", "server_label": "calc"},
    {"type": "mcp", "server_label": "calc", "name": "add"},
    {"type": "allowed_tools", "mode": "required", "tools": [{"type": "mcp", "server_label": "calc"}]},
    {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "mcp", "server_label": "calc", "name": "add"}, {"type": "web_search"}],
    },
]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_forced_call_is_made_once_and_then_the_model_answers(choice: Any) -> None:
    """The script asks for another tool at first, and obeys the grammar."""
    server, hooks = Server(), Hooks()
    tools = [CALLS] if choice == "required" else [SAVE, CALLS, SEARCH]
    served = {**hooks.all, "mcp": {"calc": server}}
    with ScriptedEngine(script(ADDS, ANSWER), obey_constraints=True) as engine:
        response, _ = ask_hosted(engine, "streamed", served, tools=tools, tool_choice=choice)
    assert types(response) == ["mcp_list_tools", "mcp_call", "message"] and len(server.calls) == 1


def test_a_choice_of_one_tool_bars_the_others_of_its_server() -> None:
    """An engine that obeys the grammar takes no other."""
    server, choice = Server(), {"type": "mcp", "server_label": "calc", "name": "wipe"}
    with (
        ScriptedEngine(script(ADDS, ANSWER), obey_constraints=True) as engine,
        pytest.raises(openai.InternalServerError, match=r"grammar does not allow: .*calc__add"),
    ):
        ask(engine, "whole", server, tools=[CALLS, SAVE], tool_choice=choice)
    with ScriptedEngine(script(WIPES, ANSWER), obey_constraints=True) as engine:
        ask(engine, "whole", server, tools=[CALLS, SAVE], tool_choice=choice)
    assert [name for name, _ in server.calls] == ["wipe"]


@pytest.mark.parametrize("name", ["divide", "add"])
def test_a_choice_of_a_tool_that_the_model_may_not_call_is_refused(name: str) -> None:
    choice = {"type": "mcp", "server_label": "calc", "name": name}
    tools = [{**CALLS, "allowed_tools": ["wipe"]}, SAVE]
    with ScriptedEngine(script(ANSWER)) as engine:
        for how in ("whole", "streamed"):
            with pytest.raises(openai.BadRequestError, match=f"no tool '{name}' of an MCP server 'calc'") as caught:
                ask(engine, how, Server(), tools=tools, tool_choice=choice)
            assert caught.value.param == "tool_choice"
        with pytest.raises(openai.BadRequestError, match="no MCP server 'other'"):
            ask(engine, "whole", Server(), tools=tools, tool_choice={"type": "mcp", "server_label": "other"})


READS = {"read_only": True}


@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        (["add"], ["add"]),
        ([], []),
        ({"tool_names": ["wipe", "gone"]}, ["wipe"]),
        (READS, ["add"]),
        ({"read_only": False}, ["wipe"]),
        ({"tool_names": ["wipe"], **READS}, []),
    ],
)
def test_allowed_tools_are_the_only_ones_that_the_model_sees(allowed: Any, names: list[str]) -> None:
    with ScriptedEngine(script(ANSWER)) as engine:
        response, _ = ask(engine, "whole", Server(), tools=[{**CALLS, "allowed_tools": allowed}])
        prompt = engine.prompts[0]
    assert [tool.name for tool in response.output[0].tools] == names
    assert [name for name in ("add", "wipe") if f"calc__{name}" in prompt] == names
    assert response.output_text == ANSWER


@pytest.mark.parametrize(("most", "calls"), [(0, 0), (1, 1), (2, 2)])
def test_max_tool_calls_counts_calls_of_servers(most: int, calls: int) -> None:
    server = Server()

    with ScriptedEngine(script(ADDS + ADDS + WIPES, ANSWER)) as engine:
        response, _ = ask(engine, "streamed", server, max_tool_calls=most)
    assert len(server.calls) == calls and response.status == "completed"


def test_counting_tokens_counts_the_tools_of_servers() -> None:
    server = Server()
    with (
        ScriptedEngine(script(ANSWER)) as engine,
        LocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": server}}) as client,
    ):
        fields: Any = {"model": "m", "input": "Weather?", "tools": [CALLS]}
        counted = client.responses.input_tokens.count(**fields)
        response = client.responses.create(**fields)
    assert response.usage is not None and counted.input_tokens == response.usage.input_tokens
    assert server.lists == 2
