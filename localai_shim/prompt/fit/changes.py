"""Changes of conversations to forms that chat templates take: roles in another order, tools and calls as text.

Nothing is changed in place, and no text is lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ...formats.description import RESULT, CallFormat, write_calls, write_tools
from ...types import Json
from ..history import Message, without, wrapped

Content = str | list[Json]
"""A text, or parts of which some are not text."""
HEAD = ("system", "developer")
"""Roles of instructions."""


def joined_contents(first: Content, second: Content, between: str = "\n\n") -> Content:
    """One content of two; parts stay parts."""
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}{between}{second}"
    return [*_parts(first), *_parts(between), *_parts(second)]


def split_head(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """The instructions that a conversation begins with, and the rest."""
    head = list(itertools.takewhile(lambda message: message["role"] in HEAD, messages))
    return head, list(messages[len(head) :])


def joined(messages: Sequence[Message]) -> Message:
    """One message with the contents and the reasoning of all, in the role of the first, and what else the last has."""
    out = dict(messages[-1]) | {"role": messages[0]["role"]}
    for key in ("content", "reasoning_content"):
        contents = [message[key] for message in messages if message.get(key)]
        if contents:
            out[key] = contents[0]
        for content in contents[1:]:
            out[key] = joined_contents(out[key], content)
    return out


def head_as_user(head: Sequence[Message], rest: Sequence[Message]) -> list[Message]:
    """The instructions before the text of the user's first message, or in a new one if another role begins."""
    if not head:
        return list(rest)
    first = {"role": "user", "content": joined(head)["content"]}
    if rest and rest[0]["role"] == "user":
        return [{**rest[0], "content": joined_contents(first["content"], rest[0]["content"])}, *rest[1:]]
    return [first, *rest]


def late_as_user(rest: Sequence[Message]) -> list[Message]:
    """Instructions in the middle of the conversation as messages of the user."""
    return [{"role": "user", "content": m["content"]} if m["role"] in HEAD else m for m in rest]


def joined_neighbours(messages: Sequence[Message], role: str, *, with_calls: bool) -> list[Message]:
    """Messages of this role that follow each other, as one; an assistant's calls end its message.

    Args:
        with_calls: messages with calls are joined to the text before them.
    """
    out: list[Message] = []
    for message in messages:
        follows = bool(out) and out[-1]["role"] == message["role"] == role and not out[-1].get("tool_calls")
        if follows and (with_calls or not message.get("tool_calls")):
            out[-1] = joined([out[-1], message])
        else:
            out.append(message)
    return out


def answered_results(messages: Sequence[Message]) -> list[Message]:
    """An empty answer of the assistant between results and what the user says next."""
    out: list[Message] = []
    for message in messages:
        if out and out[-1]["role"] == "tool" and message["role"] == "user":
            out.append({"role": "assistant", "content": ""})
        out.append(message)
    return out


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
            written = write_calls(
                format, [(call["function"]["name"], wrapped(call["function"]["arguments"])) for call in calls]
            )
            content = f"{message['content']}\n{written}" if message["content"] else written
            message = {**without(message, "tool_calls"), "content": content}
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


def _in_markers(content: Content) -> Content:
    start, end = RESULT
    return f"{start}{content}{end}" if isinstance(content, str) else [*_parts(start), *content, *_parts(end)]


def _parts(content: Content) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
