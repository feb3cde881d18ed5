"""Tools, calls and results in the text of messages, for templates that do not show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...formats.description import RESULT, CallFormat, write_calls, write_tools
from ...types import Json
from ..history import Message
from .roles import Content, joined_contents, split_head


def with_tools(messages: Sequence[Message], tools: Sequence[Json], format: CallFormat) -> list[Message]:
    """The conversation with the tools described at the end of its system message, which may be new."""
    text = write_tools(format, [tool["function"] for tool in tools])
    head, rest = split_head(messages)
    last = head.pop() if head else {"role": "system", "content": ""}
    return [*head, {**last, "content": joined_contents(last["content"], text)}, *rest]


def calls_as_content(messages: Sequence[Message], format: CallFormat) -> list[Message]:
    """Calls as the model wrote them, in the content of the assistant's messages."""
    out: list[Message] = []
    for message in messages:
        if calls := message.get("tool_calls"):
            written = write_calls(format, [_name_and_arguments(call["function"]) for call in calls])
            message = {key: value for key, value in message.items() if key != "tool_calls"}
            message["content"] = f"{message['content']}\n{written}" if message["content"] else written
        out.append(message)
    return out


def results_as_content(messages: Sequence[Message]) -> list[Message]:
    """Results in messages of the user; those that follow each other in one."""
    out: list[Message] = []
    after_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result:
            content = _in_markers(message["content"])
            if after_result:
                content = joined_contents(out.pop()["content"], content, "\n")
            message = {"role": "user", "content": content}
        out.append(message)
        after_result = is_result
    return out


# ---------------------------------------------------------------------------------------------------------------


def _name_and_arguments(function: Json) -> tuple[str, Mapping[str, object]]:
    arguments = function["arguments"]
    return function["name"], arguments if isinstance(arguments, Mapping) else {"arguments": arguments}


def _in_markers(content: Content) -> Content:
    start, end = RESULT
    if isinstance(content, str):
        return f"{start}{content}{end}"
    return [{"type": "text", "text": start}, *content, {"type": "text", "text": end}]
