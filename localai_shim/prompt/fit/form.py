"""The form in which one chat template takes conversations and tools, and the changes that bring them into it.

Nothing is changed in place, and no text is lost.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal

from ...formats.description import RESULT, CallFormat, write_calls, write_tools
from ...types import Json
from .. import history
from ..history import Message

Content = str | list[Json]
"""A text, or parts of which some are not text."""
_HEAD = ("system", "developer")
"""Roles of instructions."""
ToolsIn = Literal["tools", "xml_tools", "functions"]
"""The variable in which a template looks for tools."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of one template. A form made without arguments changes nothing.

    Attributes:
        empty: variables that the template needs as a list even if there is nothing in it.
        tools_in: where the template looks for tools.
        describes: every property of a tool has a description.
        opens: the template shows tools in the system message only, so there is always one.
        developer: the template knows this role.
        system: the system message goes into the user's first message: always, or if the last message is not the user's,
            or never.
        one_system: only one system message at the head.
        late_system: the template takes system messages in the middle of the conversation.
        repeats: roles that may come twice in a row.
        user_first: the first message must be the user's.
        needs_user: at least one message must be the user's.
        calls: the template shows calls; otherwise they are written as content.
        results: the template shows results, as they are or as parts; otherwise they are messages of the user.
        answers_results: an answer must come between results and a message of the user.
        arguments: how arguments are given.
        ids: which ids of calls the template takes.
        blank: the content of a message with calls and without text.
        one_call: no more than one call in a message.
        text_beside: text next to calls is shown, or must be in its own message, or is dropped.
        text_as_reasoning: text next to reasoning and calls is moved into the reasoning.
        wraps: malformed arguments are wrapped in an object.
        values: the values of arguments must be strings that contain JSON or Python.
    """

    empty: tuple[str, ...] = ()
    tools_in: ToolsIn = "tools"
    describes: bool = False
    opens: bool = False
    developer: bool = False
    system: Literal["own", "own if the user is last", "user"] = "own"
    one_system: bool = False
    late_system: bool = True
    repeats: frozenset[str] = frozenset({"user", "assistant"})
    user_first: bool = False
    needs_user: bool = False
    calls: bool = True
    results: Literal["tool", "parts", "user"] = "tool"
    answers_results: bool = False
    arguments: Literal["object", "string"] = "object"
    ids: Literal["any", "short", "numbered"] = "any"
    blank: str | None = ""
    one_call: bool = False
    text_beside: Literal["shown", "apart", "dropped"] = "shown"
    text_as_reasoning: bool = False
    wraps: bool = False
    values: Literal["any", "json", "python"] = "any"

    def fit(self, messages: Sequence[Message], format: CallFormat) -> list[Message]:
        """The conversation in this form.

        Args:
            format: how the model writes calls.
        """
        out = list(messages)
        if any(message["role"] in ("assistant", "tool") for message in out):
            out = self._with_calls(out, format)
        return self._with_roles(out)

    @property
    def plainest(self) -> Form:
        """A form that every template takes: messages of user and assistant in turn, which are text."""
        return replace(
            self,
            system="user",
            late_system=False,
            repeats=frozenset(),
            user_first=True,
            needs_user=True,
            calls=False,
            results="user",
        )

    def variables(
        self, tools: list[Json] | None, *, simple: bool = False
    ) -> tuple[dict[str, object], list[Json] | None]:
        """Variables that the template reads for tools other than `tools`, and the list that it gets as `tools`.

        Args:
            simple: describe their parameters only in ways that every template surely knows.
        """
        if tools:
            change = _simple if simple else _described if self.describes else None
            tools = [_with_properties(tool, change) for tool in tools] if change else tools
        out: dict[str, object] = {name: [] for name in self.empty if name != "tools"}
        if self.tools_in == "functions":
            given = [tool["function"] for tool in tools or ()]
            today = datetime.now().strftime("%Y-%m-%d")
            out |= {"functions": json.dumps(given, indent=4, ensure_ascii=False), "datetime": today}
        elif self.tools_in == "xml_tools" and tools:
            out["xml_tools"] = [tool["function"] for tool in tools]
        if self.tools_in != "tools" or not tools:
            return out, [] if "tools" in self.empty else None
        return out, tools

    # -----------------------------------------------------------------------------------------------------------

    def _with_calls(self, out: list[Message], format: CallFormat) -> list[Message]:
        if not self.calls:
            out = calls_as_content(out, format)
        if self.results == "user":
            out = results_as_content(out)
        if not any(message.get("tool_calls") for message in out):
            return out
        if self.text_as_reasoning:
            out = history.text_as_reasoning(out)
        if self.text_beside == "apart":
            out = history.text_apart(out)
        if self.one_call:
            out = history.one_call_each(out)
        for wanted, change in (
            (self.wraps, history.wrapped),
            (self.values == "json", partial(history.with_values, history.as_text)),
            (self.values == "python", partial(history.with_values, repr)),
            (self.arguments == "string", history.as_text),
        ):
            if wanted:
                out = history.with_arguments(out, change)
        if self.ids != "any":
            out = (history.number_ids if self.ids == "numbered" else history.with_short_ids)(out)
        return out if self.blank == "" else history.with_blank_content(out, self.blank)

    def _with_roles(self, messages: list[Message]) -> list[Message]:
        head, rest = split_head(messages)
        if not self.late_system:
            rest = [{"role": "user", "content": m["content"]} if m["role"] in _HEAD else m for m in rest]
        if self.results == "parts":
            rest = [history.with_parts([m])[0] if m["role"] == "tool" else m for m in rest]
        if self.answers_results:
            rest = answered_results(rest)
        if self.one_system and len(head) > 1:
            head = [joined(head)]
        last = rest[-1]["role"] if rest else "user"
        if self.system == "user" or (self.system != "own" and last != "user"):
            head, rest = [], head_as_user(head, rest)
        missing = not any(message["role"] == "user" for message in rest)
        if (self.needs_user and missing) or (self.user_first and rest and rest[0]["role"] != "user"):
            rest.insert(0, {"role": "user", "content": ""})
        for role in ("user", "assistant"):
            if role not in self.repeats:
                rest = joined_neighbours(rest, role, with_calls=self.text_beside == "shown")
        if self.opens and not head:
            head = [{"role": "system", "content": ""}]
        return [*head, *rest]


# ---------------------------------------------------------------------------------------------------------------


def _with_properties(tool: Json, change: Callable[[object], Json]) -> Json:
    function = tool["function"]
    parameters = function["parameters"]
    properties = {name: change(schema) for name, schema in parameters["properties"].items()}
    return {**tool, "function": {**function, "parameters": {**parameters, "properties": properties}}}


def _described(schema: object) -> Json:
    """A schema with a description."""
    return {"description": "", **schema} if isinstance(schema, dict) else {"description": ""}


def _simple(schema: object) -> Json:
    """A schema's type, description, values and items: of several types the first that is not null."""
    given: Json = schema if isinstance(schema, dict) else {}
    options = [given, *(option for name in ("anyOf", "oneOf", "allOf") for option in given.get(name) or ())]
    types = [option.get("type") for option in options if isinstance(option, dict)]
    flat = [kind for found in types for kind in (found if isinstance(found, list) else [found])]
    kind = next((kind for kind in flat if isinstance(kind, str) and kind != "null"), "object")
    out: Json = {"type": kind, "description": str(given.get("description") or given.get("title") or "")}
    if kind == "array":
        out["items"] = _simple(given.get("items"))
    elif kind == "object":
        out["additionalProperties"] = {"type": "string"}
    return out | {name: given[name] for name in ("enum", "properties") if name in given}


def joined_contents(first: Content, second: Content, between: str = "\n\n") -> Content:
    """One content of two; parts stay parts."""
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}{between}{second}"
    return [*_parts(first), *_parts(between), *_parts(second)]


def split_head(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """The instructions that a conversation begins with, and the rest."""
    head = list(itertools.takewhile(lambda message: message["role"] in _HEAD, messages))
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
                format, [(call["function"]["name"], history.wrapped(call["function"]["arguments"])) for call in calls]
            )
            content = f"{message['content']}\n{written}" if message["content"] else written
            message = {**history.without(message, "tool_calls"), "content": content}
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
