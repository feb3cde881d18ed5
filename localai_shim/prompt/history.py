"""Tool calls and reasoning of earlier turns, in the forms that chat templates want.

The messages are those that `template_messages` makes: every call has an id and arguments that are an object, or a
string where the model's JSON was broken; reasoning is in `reasoning_content`. Nothing is changed in place.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence

from ..types import Json

Message = Json
Call = Message

_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")
_PYTHONIC = "<|tool_call_start|>"  # LFM2 writes calls in Python: [name(key='value')]


def variants(messages: list[Message]) -> Iterator[list[Message]]:
    """The conversation as it is, and then in every other form that some template insists on.

    In this order, each only where it makes a difference: arguments as JSON text instead of objects (DeepSeek); ids of
    nine alphanumerics (Mistral); malformed arguments within an object (whoever iterates over them); one call per
    assistant message (Llama 3); no content beside reasoning and calls (gpt-oss).
    """
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    malformed = any(isinstance(call["function"]["arguments"], str) for call in calls)
    several = any(len(message.get("tool_calls", ())) > 1 for message in messages)
    beside = any(_has_both(message) for message in messages)
    switches = [(False, True) if wanted else (False,) for wanted in (beside, several, malformed, calls, calls)]
    for joined, single, wrapped, short, text in itertools.product(*switches):
        out = messages
        if joined:
            out = [_join(message) for message in out]
        if single:
            out = one_call_each(out)
        if wrapped or text:
            out = _with_arguments(out, wrapped, text)
        if short:
            out = _with_ids(out, _short_id)
        yield out


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


def calls_as_content(messages: list[Message], start: str, end: str) -> list[Message]:
    """Calls as the model wrote them, for templates that read nothing but content.

    Args:
        messages: the conversation.
        start: what opens a call in the model's output; empty where it is not known.
        end: what closes one.
    """
    out: list[Message] = []
    for message in messages:
        if calls := message.get("tool_calls"):
            written = "\n".join(f"{start}{_write(call['function'], start)}{end}" for call in calls)
            message = {key: value for key, value in message.items() if key != "tool_calls"}
            message["content"] = f"{message['content']}\n{written}" if message["content"] else written
        out.append(message)
    return out


# ---------------------------------------------------------------------------------------------------------------


def _write(function: Message, start: str) -> str:
    name, arguments = function["name"], function["arguments"]
    if start == _PYTHONIC and isinstance(arguments, dict):
        return f"[{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})]"
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


def _has_both(message: Message) -> bool:
    return bool(message.get("tool_calls") and message["content"] and message.get("reasoning_content"))


def _join(message: Message) -> Message:
    if not _has_both(message):
        return message
    return {**message, "reasoning_content": f"{message['reasoning_content']}\n\n{message['content']}", "content": ""}


def _rename_reasoning(message: Message, names: Sequence[str]) -> Message:
    if message["role"] != "assistant" or "reasoning_content" not in message:
        return message
    rest = {key: value for key, value in message.items() if key != "reasoning_content"}
    return rest | dict.fromkeys(names, message["reasoning_content"])


def _with_arguments(messages: list[Message], wrapped: bool, text: bool) -> list[Message]:
    """Arguments as JSON text, or malformed ones as objects, or both."""

    def convert(call: Call) -> Call:
        function = call["function"]
        arguments = function["arguments"]
        if wrapped and isinstance(arguments, str):
            arguments = {"arguments": arguments}
        if text and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        return {**call, "function": {**function, "arguments": arguments}}

    return [
        {**message, "tool_calls": [convert(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]


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
