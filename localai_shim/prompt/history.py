"""Tool calls and reasoning of earlier turns, in the forms that chat templates want.

The messages are those that `template_messages` makes: every call has an id and arguments that are an object, or a
string where the model's JSON was broken; reasoning is in `reasoning_content`. Nothing is changed in place.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Sequence

from ..types import Json

Message = Json
Call = Message
Arguments = Json | str
"""Of a call; a string if they are malformed."""

_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")


def without(message: Message, key: str) -> Message:
    """A message that does not have a key."""
    return {name: value for name, value in message.items() if name != key}


def name_reasoning(messages: list[Message], names: Sequence[str]) -> list[Message]:
    """The reasoning of earlier turns under the names that a template reads, which may be none."""
    if tuple(names) == ("reasoning_content",):
        return messages
    return [_rename_reasoning(message, names) for message in messages]


def reasoning_apart(message: Message, start: str, end: str) -> Message:
    """An answer whose content begins with a block of reasoning, as one with `reasoning_content`.

    Args:
        start: what opens a block.
        end: what closes one.
    """
    if message["role"] != "assistant" or "reasoning_content" in message:
        return message
    content = message["content"].lstrip()
    if not content.startswith(start) or end not in content:
        return message
    reasoning, _, rest = content.removeprefix(start).partition(end)
    return {**message, "reasoning_content": reasoning.strip("\n"), "content": rest.lstrip("\n")}


def with_parts(messages: list[Message]) -> list[Message]:
    """Every text as a list of one part, for templates that look for parts and pass over the text of a string."""
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}] if message["content"] else []}
        if isinstance(message["content"], str)
        else message
        for message in messages
    ]


def number_ids(messages: list[Message]) -> list[Message]:
    """Ids as Kimi K2 was trained on them: `functions.NAME:INDEX`, counted through the conversation."""
    count = itertools.count()
    return _with_ids(messages, lambda call: f"functions.{call['function']['name']}:{next(count)}")


def one_call_each(messages: list[Message]) -> list[Message]:
    """Parallel calls one after the other, each followed by its result, in the order of the results."""
    out: list[Message] = []
    turn: Message = {}
    waiting: dict[str, Call] = {}
    for message in messages:
        calls = message.get("tool_calls", ())
        if len(calls) > 1:
            turn, waiting = message, {call["id"]: call for call in calls}
        elif (answered := waiting.pop(message.get("tool_call_id", ""), None)) is not None:
            out += [{**turn, "tool_calls": [answered]}, message]
            turn = {"role": "assistant", "content": ""}  # text and reasoning came before the first call
        else:
            out.append(message)
    return out


def with_short_ids(messages: list[Message]) -> list[Message]:
    """Ids of nine alphanumerics; those that are such stay."""
    return _with_ids(messages, _short_id)


def with_arguments(messages: list[Message], change: Callable[[Arguments], object]) -> list[Message]:
    """The arguments of every call as `change` makes them: of an object, or of a string where they are malformed."""

    def changed(call: Call) -> Call:
        function = call["function"]
        return {**call, "function": {**function, "arguments": change(function["arguments"])}}

    return [
        {**message, "tool_calls": [changed(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]


def as_text(arguments: object) -> str:
    """Arguments as JSON text; malformed ones as they are."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def wrapped(arguments: Arguments) -> Json:
    """Arguments as an object; malformed ones within one."""
    return {"arguments": arguments} if isinstance(arguments, str) else arguments


def with_values(write: Callable[[object], str], arguments: Arguments) -> Arguments:
    """Arguments whose values are strings, as `write` makes them; malformed ones as they are."""
    return arguments if isinstance(arguments, str) else {key: write(value) for key, value in arguments.items()}


def with_blank_content(messages: list[Message], blank: str | None) -> list[Message]:
    """Calls without a text of the message, with this content."""
    return [
        {**message, "content": blank} if message.get("tool_calls") and not message["content"] else message
        for message in messages
    ]


def text_apart(messages: list[Message]) -> list[Message]:
    """Text next to calls in a separate message before them, with the reasoning."""
    out: list[Message] = []
    for message in messages:
        if message.get("tool_calls") and message["content"]:
            out.append(without(message, "tool_calls"))
            message = without(message, "reasoning_content") | {"content": ""}
        out.append(message)
    return out


def text_as_reasoning(messages: list[Message]) -> list[Message]:
    """The text next to reasoning and calls at the end of the reasoning."""
    return [
        {**message, "reasoning_content": f"{message['reasoning_content']}\n\n{message['content']}", "content": ""}
        if message.get("tool_calls") and message["content"] and message.get("reasoning_content")
        else message
        for message in messages
    ]


# ---------------------------------------------------------------------------------------------------------------


def _rename_reasoning(message: Message, names: Sequence[str]) -> Message:
    if message["role"] != "assistant" or "reasoning_content" not in message:
        return message
    return without(message, "reasoning_content") | dict.fromkeys(names, message["reasoning_content"])


def _with_ids(messages: list[Message], new_id: Callable[[Call], str]) -> list[Message]:
    """Other ids, the same for a call and its result. An id that comes again means the latest call that has it."""
    out: list[Message] = []
    new: dict[str, str] = {}
    for message in messages:
        if calls := message.get("tool_calls"):
            renamed = [{**call, "id": new_id(call)} for call in calls]
            new.update((old["id"], call["id"]) for old, call in zip(calls, renamed, strict=True))
            message = {**message, "tool_calls": renamed}
        elif message.get("tool_call_id") in new:
            message = {**message, "tool_call_id": new[message["tool_call_id"]]}
        out.append(message)
    return out


def _short_id(call: Call) -> str:
    found: str = call["id"]
    return found if _SHORT_ID.fullmatch(found) else hashlib.sha256(found.encode()).hexdigest()[:9]
