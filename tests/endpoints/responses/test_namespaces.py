"""Responses tools of type `namespace`, which group functions of the caller's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.conftest import refused
from tests.endpoints.functions import call
from tests.endpoints.responses.legal import check_response

WHO: dict[str, Any] = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}
LIST: dict[str, Any] = {"type": "function", "name": "list_orders", "description": "Lists.", "parameters": WHO}
NOTE: dict[str, Any] = {"type": "custom", "name": "note"}
CRM = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [LIST, NOTE]}
SHOP = {"type": "namespace", "name": "shop", "description": "", "tools": [LIST]}
PLAIN = {**LIST, "name": "ping"}
TOOLS: Any = [PLAIN, CRM, SHOP]
ANN = {"who": "Ann"}


def ask(client: LocalOpenAI, **more: Any) -> Any:
    return client.responses.create(**{"model": "m", "input": "Orders of Ann?", "tools": TOOLS, **more})


def calls(response: Any) -> list[tuple[str | None, str, Any]]:
    made = [item for item in response.output if item.type.endswith("_call")]
    return [(item.namespace, item.name, json.loads(getattr(item, "arguments", "null"))) for item in made]


def test_a_call_says_its_namespace_and_name() -> None:
    replies = [call("crm__list_orders", ANN), call("shop__list_orders", ANN), call("ping", ANN)]
    with ScriptedEngine(replies, obey_constraints=True) as engine:
        made = [ask(LocalOpenAI(engine=engine)) for _ in replies]
    for response in made:
        check_response(response)
    assert [calls(response) for response in made] == [
        [("crm", "list_orders", ANN)],
        [("shop", "list_orders", ANN)],
        [(None, "ping", ANN)],
    ]


def test_a_custom_tool_may_be_in_one() -> None:
    with ScriptedEngine([call("crm__note", {"input": "Ann called."})], obey_constraints=True) as engine:
        [item] = ask(LocalOpenAI(engine=engine)).output
    assert (item.type, item.namespace, item.name, item.input) == ("custom_tool_call", "crm", "note", "Ann called.")


def test_a_stream_says_them_in_its_items() -> None:
    with ScriptedEngine([call("crm__list_orders", ANN)]) as engine:
        events: list[Any] = list(ask(LocalOpenAI(engine=engine), stream=True))
    items = [event.item for event in events if event.type.startswith("response.output_item")]
    assert [(item.namespace, item.name) for item in items] == [("crm", "list_orders")] * 2
    [done] = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert done.name == "list_orders"


def test_the_response_shows_the_tools_as_they_were_sent() -> None:
    with ScriptedEngine(["Hi."]) as engine:
        response = ask(LocalOpenAI(engine=engine))
    plain, crm, shop = response.tools
    assert (plain.type, crm.type, shop.name) == ("function", "namespace", "shop")
    assert [(tool.type, tool.name, tool.description) for tool in crm.tools] == [
        ("function", "list_orders", "Lists."),
        ("custom", "note", None),
    ]
    assert crm.tools[0].strict is True, "as functions that do not say so are"


@pytest.mark.parametrize("own", [True, False])
def test_the_response_shows_that_the_output_of_a_tool_may_come_later(own: bool) -> None:
    """Also where a program sends the SDK's own objects back, which write the flag in another way."""
    tools: Any = [{**PLAIN, "async": True}, {**NOTE, "async": False}, {**CRM, "tools": [{**LIST, "async": True}]}]
    with ScriptedEngine(["Hi.", "Hi."]) as engine:
        client = LocalOpenAI(engine=engine)
        response = ask(client, tools=tools)
        if own:
            response = ask(client, tools=[tool.model_dump(exclude_none=True) for tool in response.tools])
    plain, note, crm = response.to_dict(mode="json")["tools"]
    assert [each.get("async") for each in (plain, note, crm["tools"][0])] == [True, False, True]
    assert not any("async_" in each for each in (plain, note, crm["tools"][0]))


@pytest.mark.parametrize("length", [64, 128])
def test_a_long_name_in_a_long_namespace_is_called(length: int) -> None:
    tools: Any = [{**CRM, "name": "n" * 64, "tools": [{**LIST, "name": "f" * length}]}]
    reply = call(f"{'n' * 64}__{'f' * length}", ANN)
    with ScriptedEngine([reply], obey_constraints=True) as engine:
        made = ask(LocalOpenAI(engine=engine), tools=tools, tool_choice="required")
    assert calls(made) == [("n" * 64, "f" * length, ANN)]


@pytest.mark.parametrize(
    ("name", "code"),
    [("", "empty_string"), ("n" * 65, "string_above_max_length"), ("a b", "invalid_value"), (5, "invalid_type")],
)
def test_a_wrong_name_of_a_namespace_is_refused(name: Any, code: str) -> None:
    with ScriptedEngine([]) as engine, refused("tools[0].name", code, "tools[0].name"):
        ask(LocalOpenAI(engine=engine), tools=[{**CRM, "name": name}])


@pytest.mark.parametrize("stored", [True, False])
def test_the_next_turn_knows_the_call_by_the_name_that_the_model_gave_it(stored: bool) -> None:
    with ScriptedEngine([call("crm__list_orders", ANN), "None."]) as engine:
        client = LocalOpenAI(engine=engine)
        first = ask(client)
        [made] = first.output
        result: Any = {"type": "function_call_output", "call_id": made.call_id, "output": "none"}
        if stored:
            second = ask(client, input=[result], previous_response_id=first.id)
        else:
            second = ask(client, input=[{"role": "user", "content": "Orders of Ann?"}, made.to_dict(), result])
        prompt = client.responses.input_tokens.count(model="m", tools=TOOLS, input=[made.to_dict(), result])
        other = {**made.to_dict(), "namespace": None, "name": "crm__list_orders"}
        same = client.responses.input_tokens.count(model="m", tools=TOOLS, input=[other, result])
    assert second.output_text == "None."
    assert prompt.input_tokens == same.input_tokens


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "name": "crm.list_orders"},
        {"type": "function", "namespace": "crm", "name": "list_orders"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "crm.list_orders"}]},
    ],
    ids=str,
)
def test_a_choice_names_a_function_with_its_namespace(choice: Any) -> None:
    with ScriptedEngine([call("crm__list_orders", ANN), call("ping", ANN)], obey_constraints=True) as engine:
        client = LocalOpenAI(engine=engine)
        response = ask(client, tool_choice=choice)
        assert calls(response) == [("crm", "list_orders", ANN)]
        with pytest.raises(Exception, match="grammar does not allow"):
            ask(client, tool_choice=choice)


WRONG: list[tuple[dict[str, Any], str, str, str]] = [
    ({"name": None}, "tools[1].name", "missing_required_parameter", "tools[1].name"),
    ({"description": None}, "tools[1].description", "missing_required_parameter", "tools[1].description"),
    ({"tools": []}, "tools[1].tools", "empty_array", "empty array"),
    ({"tools": [{"type": "web_search"}]}, "tools[1].tools[0].type", "invalid_value", "'function' and 'custom'"),
    ({"tools": [LIST, CRM]}, "tools[1].tools[1].type", "invalid_value", "'function' and 'custom'"),
    ({"tools": [LIST, LIST]}, "tools[1].tools[1].name", "invalid_value", "more than one tool named"),
    ({"name": "c m"}, "tools[1].name", "invalid_value", "does not match pattern"),
    ({"tools": [{**LIST, "parameters": 5}]}, "tools[1].tools[0].parameters", "invalid_type", "expected an object"),
    ({"colour": "red"}, "tools[1].colour", "unknown_parameter", "tools[1].colour"),
]


@pytest.mark.parametrize(("change", "param", "code", "why"), WRONG, ids=str)
def test_what_is_wrong_with_one_is_named_by_its_path(change: dict[str, Any], param: str, code: str, why: str) -> None:
    with ScriptedEngine([]) as engine, refused(param, code, why):
        ask(LocalOpenAI(engine=engine), tools=[PLAIN, {**CRM, **change}])
