"""Values that are nested deeply, wherever a request may hold one: answered or refused, and never a fault.

How deep Python's parsers, writers and own functions go differs from version to version, and with the caller's stack.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.formats.values import MAX_NESTING, json_or_text
from localai_shim.prompt.messages import template_messages
from localai_shim.testing import ScriptedEngine

DEPTHS = (40, 90, 120, 140, 200, 300, 450, 900, 2000, 9000, 20_000)
ASKED: list[Any] = [{"role": "user", "content": "Hi"}]


def objects(depth: int) -> Any:
    made: Any = 1
    for _ in range(depth):
        made = {"a": made}
    return made


def arrays(depth: int) -> Any:
    made: Any = 1
    for _ in range(depth):
        made = [made]
    return made


def schema(depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        made = {"type": "object", "properties": {"a": made}, "required": ["a"], "additionalProperties": False}
    return made


def written(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def history(arguments: object) -> list[Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "c", "content": "1"}
    return [*ASKED, {"role": "assistant", "tool_calls": [call]}, result]


def items(arguments: str, output: object = "1") -> list[Any]:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}
    return [{"role": "user", "content": "Hi"}, call, {"type": "function_call_output", "call_id": "c", "output": output}]


def function(parameters: object, **more: Any) -> list[Any]:
    return [{"type": "function", "function": {"name": "f", "parameters": parameters, **more}}]


def flat(parameters: object, **more: Any) -> list[Any]:
    return [{"type": "function", "name": "f", "parameters": parameters, **more}]


def chat(**fields: Callable[[int], Any]) -> Callable[[LocalOpenAI, int], Any]:
    def ask(client: LocalOpenAI, depth: int) -> Any:
        made = {name: make(depth) for name, make in fields.items()}
        return client.chat.completions.create(**{"model": "m", "messages": ASKED, **made})

    return ask


def responses(**fields: Callable[[int], Any]) -> Callable[[LocalOpenAI, int], Any]:
    def ask(client: LocalOpenAI, depth: int) -> Any:
        return client.responses.create(
            **{"model": "m", "input": "Hi", **{name: make(depth) for name, make in fields.items()}}
        )

    return ask


def form(depth: int, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema(depth), **more}}


PLACES: dict[str, Callable[[LocalOpenAI, int], Any]] = {
    "arguments": chat(messages=lambda depth: history(written(depth))),
    "arguments as an object": chat(messages=lambda depth: history(objects(depth))),
    "content": chat(messages=lambda depth: [{"role": "user", "content": arrays(depth)}]),
    "parameters": chat(tools=lambda depth: function(schema(depth))),
    "parameters that are no schema": chat(
        tools=lambda depth: function({"type": "object", "properties": objects(depth)})
    ),
    "strict parameters": chat(tools=lambda depth: function(schema(depth), strict=True)),
    "parameters of a forced call": chat(
        tools=lambda depth: function(schema(depth)), tool_choice=lambda _: "required", max_tokens=lambda _: 1
    ),
    "response_format": chat(response_format=form),
    "strict response_format": chat(response_format=lambda depth: form(depth, strict=True)),
    "metadata": chat(metadata=objects),
    "stop": chat(stop=arrays),
    "template variables": chat(extra_body=lambda depth: {"chat_template_kwargs": objects(depth)}),
    "an unknown field": chat(extra_body=lambda depth: {"else": objects(depth)}),
    "responses: arguments": responses(input=lambda depth: items(written(depth))),
    "responses: output": responses(input=lambda depth: items("{}", arrays(depth))),
    "responses: input": responses(input=arrays),
    "responses: parameters": responses(tools=lambda depth: flat(schema(depth))),
    "responses: lax parameters": responses(tools=lambda depth: flat(schema(depth), strict=False)),
    "responses: text.format": responses(
        text=lambda depth: {"format": {"type": "json_schema", "name": "x", "schema": schema(depth)}}
    ),
    "responses: metadata": responses(metadata=objects),
    "completions: prompt": lambda client, depth: client.completions.create(model="m", prompt=arrays(depth)),
    "embeddings: input": lambda client, depth: client.embeddings.create(model="m", input=arrays(depth)),
    "rerank": lambda client, depth: client.post(
        "/rerank", cast_to=object, body={"model": "m", "query": "a", "documents": arrays(depth)}
    ),
}


@pytest.fixture(scope="module")
def scripted() -> Iterator[LocalOpenAI]:
    with ScriptedEngine(lambda request, prompt, before: "ok") as engine, LocalOpenAI(engine=engine) as client:
        yield client


@pytest.mark.parametrize("place", PLACES)
def test_a_value_of_any_depth_is_answered_or_refused(scripted: LocalOpenAI, place: str) -> None:
    for depth in DEPTHS:
        try:
            PLACES[place](scripted, depth)
        except openai.BadRequestError:
            pass
        except openai.InternalServerError as error:
            if "grammar does not allow" not in str(error):  # what the script says is no such value
                raise


@pytest.mark.parametrize(("depth", "is_read"), [(MAX_NESTING, True), (MAX_NESTING + 1, False), (50_000, False)])
def test_arguments_are_read_as_far_as_a_bound_of_our_own(depth: int, is_read: bool) -> None:
    text = written(depth)
    assert (json_or_text(text) != text) == is_read
    [_, called, _] = template_messages(history(text))
    assert called["tool_calls"][0]["function"]["arguments"] == (objects(depth) if is_read else text)


def test_wide_arguments_are_read_whole() -> None:
    wide = [{"a": [number]} for number in range(1000)]
    assert json_or_text(json.dumps(wide)) == wide


def test_arguments_as_an_object_that_hold_themselves_are_refused(scripted: LocalOpenAI) -> None:
    endless: dict[str, Any] = {}
    endless["a"] = [endless, endless]
    with pytest.raises(openai.BadRequestError, match=r"'messages'.*nested too deeply"):
        scripted.chat.completions.create(model="m", messages=history(endless))


@pytest.mark.parametrize("called", ['<tool_call>\n{{"name": "f", "arguments": {}}}\n</tool_call>', "[f(x={})]"])
@pytest.mark.parametrize("depth", DEPTHS)
def test_a_call_of_any_depth_that_a_model_makes_is_delivered(called: str, depth: int) -> None:
    """Deliver a call or a text, and a stream says the same."""
    said = called.format(written(depth))
    tools = function({"type": "object", "properties": {"a": {"type": "object"}, "x": {"type": "object"}}})
    with ScriptedEngine([said, said]) as engine, LocalOpenAI(engine=engine) as client:
        whole = client.chat.completions.create(model="m", messages=ASKED, tools=tools).choices[0].message
        chunks = list(client.chat.completions.create(model="m", messages=ASKED, tools=tools, stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    pieces = [call.function for delta in deltas for call in delta.tool_calls or [] if call.function]
    assert "".join(delta.content or "" for delta in deltas) == (whole.content or "")
    assert "".join(piece.arguments or "" for piece in pieces) == "".join(
        call.function.arguments for call in whole.tool_calls or [] if call.type == "function"
    )
    assert pieces or whole.content
