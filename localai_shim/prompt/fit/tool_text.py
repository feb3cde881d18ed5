"""Tools, calls and results as plain text, for templates that do not show them.

Each function is a line of JSON, a call stands as the model writes calls, which for most is JSON between `<tool_call>`
markers, and a result between `<tool_response>` markers in a message of the user.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ...formats.description import CallFormat
from ...formats.table import PLAIN
from ...formats.writing import write_calls
from ...types import Json
from ..history import Message
from .roles import Content, joined_contents, split_head

WriteCalls = Callable[[Sequence[tuple[str, Mapping[str, object]]]], str]
"""Names and arguments of calls -> the text that a model writes to make them."""
write_plain: WriteCalls = partial(write_calls, PLAIN)
"""Writes calls in the plain form."""

_EXAMPLE = "function_name", {"parameter": "value"}
_TOOLS = """You can call functions. Each of these lines describes one as JSON, with a schema of its parameters:
{functions}

To call a function, answer with its name and its arguments, exactly like this:
{example}
Write this for each call, and nothing after the last one. The results come back in <tool_response> blocks. \
Where no function helps, answer in words."""


def writer(format: CallFormat | None) -> WriteCalls:
    """The writer of calls in a model's format; None: in the plain form."""
    return write_plain if format is None else partial(write_calls, format)


def with_tools(messages: Sequence[Message], tools: Sequence[Json], write: WriteCalls) -> list[Message]:
    """The conversation with the tools described at the end of its system message, which may be new.

    Args:
        write: writes calls as the model is to write them.
    """
    functions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    text = _TOOLS.format(functions=functions, example=write([_EXAMPLE]))
    head, rest = split_head(messages)
    last = head.pop() if head else {"role": "system", "content": ""}
    return [*head, {**last, "content": joined_contents(last["content"], text)}, *rest]


def calls_as_content(messages: Sequence[Message], write: WriteCalls) -> list[Message]:
    """Calls as the model wrote them, in the content of the assistant's messages."""
    out: list[Message] = []
    for message in messages:
        if calls := message.get("tool_calls"):
            written = write([_name_and_arguments(call["function"]) for call in calls])
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
    start, end = "<tool_response>\n", "\n</tool_response>"
    if isinstance(content, str):
        return f"{start}{content}{end}"
    return [{"type": "text", "text": start}, *content, {"type": "text", "text": end}]
