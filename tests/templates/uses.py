"""The 17 uses that every chat template has to serve, and what has to hold of each.

A random model cannot be judged by what it writes, but for what a grammar holds: prompts are, which have to show all
that the caller said, and forced calls, which have to be as their schemas say, whole and streamed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jsonschema

from localai_shim import LocalOpenAI
from tests import inside

Body = dict[str, Any]


def function(name: str, description: str, properties: Body, required: Sequence[str]) -> Body:
    """A tool as chat.completions takes it."""
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


WEATHER = function(
    "get_weather",
    "Looks outside.",
    {
        "city": {"type": "string", "enum": ["Oslo", "Bergen"], "description": "A town."},
        "days": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many."},
    },
    ["city"],
)
MOVE = function(
    "move_robot",
    "Moves it by steps.",
    {
        "steps": {"type": "integer", "minimum": -9, "maximum": 9, "description": "Forwards."},
        "fast": {"type": "boolean", "description": "In a hurry."},
    },
    ["steps", "fast"],
)
NOTE = function("write_note", "Keeps a text.", {"text": {"type": "string", "description": "The words."}}, ["text"])
"""A random model seldom ends a free string."""

SCHEMA: Body = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}

SYSTEM = "Speak gently."
QUESTION = "Shall I take an umbrella?"
ANSWER = "Better do."
NEXT = "And on Sunday?"
BEGUN = "You had better"
RESULT = "18 degrees"
MOVED = "robot stands still"


def _said(role: str, content: str | None, **more: Any) -> Body:
    return {"role": role, "content": content, **more}


def _call(call_id: str, name: str, **arguments: Any) -> Body:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def _result(call_id: str, content: str) -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _strict(tool: Body) -> Body:
    parameters = tool["function"]["parameters"]
    closed = {**parameters, "required": list(parameters["properties"]), "additionalProperties": False}
    return {**tool, "function": {**tool["function"], "parameters": closed, "strict": True}}


_FIRST, _SECOND = "call_abc123def", "call_xyz789ghi"
_ASKED = _said("user", QUESTION)
_CALLED = _said("assistant", None, tool_calls=[_call(_FIRST, "get_weather", city="Oslo")])
_BOTH = _said(
    "assistant",
    None,
    tool_calls=[_call(_FIRST, "get_weather", city="Oslo"), _call(_SECOND, "move_robot", steps=4711, fast=True)],
)


@dataclass(frozen=True, slots=True)
class Use:
    """A request, and what has to come of it.

    Attributes:
        body: of the request.
        shown: texts that its prompt has, in this order.
        anywhere: texts that its prompt has somewhere.
        ends: how its prompt ends.
        calls: schemas of the functions one of which has to be called; the empty mapping: no call has to be made.
        follows: the schema of the answer.
        streams: asked again as a stream it is answered alike.
        may_be_cut: a random model's free string does not end.
    """

    body: Body
    shown: tuple[str, ...] = ()
    anywhere: tuple[str, ...] = ()
    ends: str = ""
    calls: Body = field(default_factory=dict)
    follows: Body | None = None
    streams: bool = False
    may_be_cut: bool = False


def _parameters(*tools: Body) -> Body:
    return {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}


def _offered(*tools: Body) -> tuple[str, ...]:
    """What a prompt shows of tools."""
    shown: list[str] = []
    for tool in tools:
        made = tool["function"]
        shown += [made["name"], made["description"], *made["parameters"]["properties"]]
    return tuple(shown)


_FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
_STRICT = _strict(WEATHER)
_HISTORY = (QUESTION, "get_weather", "Oslo", RESULT)

USES = {
    "plain": Use({"messages": [_ASKED]}, (QUESTION,)),
    "system": Use({"messages": [_said("system", SYSTEM), _ASKED]}, (QUESTION,), (SYSTEM,)),
    "developer": Use({"messages": [_said("developer", SYSTEM), _ASKED]}, (QUESTION,), (SYSTEM,)),
    "turns": Use(
        {"messages": [_said("system", SYSTEM), _ASKED, _said("assistant", ANSWER), _said("user", NEXT)]},
        (QUESTION, ANSWER, NEXT),
        (SYSTEM,),
    ),
    "reasoning_history": Use(
        {"messages": [_ASKED, _said("assistant", ANSWER, reasoning_content="It drips."), _said("user", NEXT)]},
        (QUESTION, ANSWER, NEXT),
    ),
    "two_users": Use({"messages": [_ASKED, _said("user", NEXT)]}, (QUESTION, NEXT)),
    "late_system": Use(
        {"messages": [_ASKED, _said("assistant", ANSWER), _said("system", SYSTEM), _said("user", NEXT)]},
        (QUESTION, ANSWER, NEXT),
        (SYSTEM,),
    ),
    "prefill": Use(
        {"messages": [_ASKED, _said("assistant", BEGUN)], "extra_body": {"continue_final_message": True}},
        (QUESTION, BEGUN),
        ends=BEGUN,
    ),
    "schema": Use({"messages": [_ASKED], "response_format": _FORMAT, "max_tokens": 120}, (QUESTION,), follows=SCHEMA),
    "tools": Use(
        {"messages": [_said("system", SYSTEM), _ASKED], "tools": [WEATHER, MOVE], "max_tokens": 24},
        anywhere=(SYSTEM, QUESTION, *_offered(WEATHER, MOVE)),
        streams=True,
    ),
    "tools_none": Use({"messages": [_ASKED], "tools": [WEATHER], "tool_choice": "none"}, (QUESTION,)),
    "tools_history": Use(
        {"messages": [_ASKED, _CALLED, _result(_FIRST, RESULT)], "tools": [WEATHER]}, _HISTORY, _offered(WEATHER)
    ),
    "tools_parallel_history": Use(
        {
            "messages": [_ASKED, _BOTH, _result(_FIRST, RESULT), _result(_SECOND, MOVED)],
            "tools": [WEATHER, MOVE],
        },
        (QUESTION, "Oslo", RESULT, MOVED),
        ("move_robot", "4711", *_offered(WEATHER, MOVE)),
    ),
    "tools_strict": Use(
        {"messages": [_ASKED], "tools": [_STRICT], "tool_choice": "required", "max_tokens": 700},
        anywhere=(QUESTION, *_offered(WEATHER)),
        calls=_parameters(_STRICT),
        streams=True,
    ),
    "tools_required": Use(
        {"messages": [_ASKED], "tools": [WEATHER, MOVE], "tool_choice": "required", "max_tokens": 700},
        anywhere=(QUESTION, *_offered(WEATHER, MOVE)),
        calls=_parameters(WEATHER, MOVE),
        streams=True,
    ),
    "tools_named": Use(
        {
            "messages": [_ASKED],
            "tools": [WEATHER, NOTE],
            "tool_choice": {"type": "function", "function": {"name": "write_note"}},
            "max_tokens": 150,
        },
        anywhere=(QUESTION, *_offered(WEATHER, NOTE)),
        calls=_parameters(NOTE),
        streams=True,
        may_be_cut=True,
    ),
    "history_without_tools": Use({"messages": [_ASKED, _CALLED, _result(_FIRST, RESULT)]}, _HISTORY),
}

WRITTEN_WRONGLY = ('\\"city\\"', "{'city'", "None")
"""What a prompt has where arguments are encoded twice, or are Python's repr, and where a null is."""


def ask(client: LocalOpenAI, use: Use, **more: Any) -> Any:
    """An answer, with the ids of its prompt. A thought ends soon, since what is asked for comes behind it."""
    extra = {"return_token_ids": True, "thinking_budget": 2, **use.body.get("extra_body", {})}
    return client.chat.completions.create(
        model="m", **{"max_tokens": 4, "temperature": 0, **use.body, **more, "extra_body": extra}
    )


def prompt_of(client: LocalOpenAI, made: Any) -> str:
    """The text of an answer's prompt, with all its markers."""
    ids = made.model_extra["prompt_token_ids"]
    return str(inside.engine(client).model.tokenizer.decode(ids))


def check_prompt(use: Use, prompt: str) -> None:
    """The prompt shows what the caller said."""
    assert [text for text in (*use.shown, *use.anywhere) if text not in prompt] == []
    after = 0
    for text in use.shown:
        # What is shown last of all is what counts: instructions about tools may come first, and give names.
        after = prompt.find(text, after)
        assert after >= 0, f"{text!r} comes too early"
    assert prompt.rstrip().endswith(use.ends)
    if any("tool_calls" in message for message in use.body["messages"]):
        said = prompt[prompt.index(QUESTION) :]
        assert [text for text in WRITTEN_WRONGLY if text in said] == []


def check_answer(use: Use, choice: Any) -> None:
    """The answer is of the kind that was asked for."""
    message, calls = choice.message, choice.message.tool_calls or []
    if choice.finish_reason == "length" and message.reasoning_content and not (calls or message.content):
        return  # a random model's thought that does not end
    if use.follows is not None:
        assert choice.finish_reason == "stop" and not calls
        jsonschema.validate(json.loads(message.content), use.follows)
    elif use.calls:
        cut = use.may_be_cut and choice.finish_reason == "length"
        assert choice.finish_reason == "tool_calls" or cut
        assert calls and {call.function.name for call in calls} <= set(use.calls)
        assert message.content is None
        for call in calls[: len(calls) - cut]:
            jsonschema.validate(json.loads(call.function.arguments), use.calls[call.function.name])
    elif "tools" not in use.body or use.body.get("tool_choice") == "none":
        assert not calls
        assert choice.finish_reason in ("stop", "length")
    offered = {tool["function"]["name"] for tool in use.body.get("tools", ())}
    assert {call.function.name for call in calls} <= offered


Collected = tuple[str, str, list[tuple[str, str]], str | None]
"""Content, reasoning, names and arguments of calls, and how an answer ended."""


def collect(made: Any) -> Collected:
    """What a whole choice says, or the chunks of a stream say together."""
    if hasattr(made, "message"):
        message = made.message
        called = [(call.function.name, call.function.arguments) for call in message.tool_calls or []]
        return message.content or "", message.reasoning_content or "", called, made.finish_reason
    content = reasoning = ""
    calls: list[list[str]] = []
    finish = None
    for chunk in made:
        for each in chunk.choices:
            content += each.delta.content or ""
            reasoning += getattr(each.delta, "reasoning_content", None) or ""
            for part in each.delta.tool_calls or []:
                if part.index == len(calls):
                    calls.append(["", ""])
                calls[part.index][0] += part.function.name or ""
                calls[part.index][1] += part.function.arguments or ""
            finish = each.finish_reason or finish
    return content, reasoning, [(name, arguments) for name, arguments in calls], finish


def check(client: LocalOpenAI, name: str) -> None:
    """What has to hold of a use."""
    use = USES[name]
    made = ask(client, use)
    check_prompt(use, prompt_of(client, made))
    check_answer(use, made.choices[0])
    if use.streams:
        assert collect(ask(client, use, stream=True)) == collect(made.choices[0])
