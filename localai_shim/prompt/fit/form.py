"""The form in which one chat template takes conversations and tools: what is changed before it sees them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal

from ...formats.description import CallFormat
from ...types import Json
from .. import history
from ..history import Message
from . import changes

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
            out = changes.calls_as_content(out, format)
        if self.results == "user":
            out = changes.results_as_content(out)
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
        head, rest = changes.split_head(messages)
        if not self.late_system:
            rest = changes.late_as_user(rest)
        if self.results == "parts":
            rest = [history.with_parts([m])[0] if m["role"] == "tool" else m for m in rest]
        if self.answers_results:
            rest = changes.answered_results(rest)
        if self.one_system and len(head) > 1:
            head = [changes.joined(head)]
        last = rest[-1]["role"] if rest else "user"
        if self.system == "user" or (self.system != "own" and last != "user"):
            head, rest = [], changes.head_as_user(head, rest)
        missing = not any(message["role"] == "user" for message in rest)
        if (self.needs_user and missing) or (self.user_first and rest and rest[0]["role"] != "user"):
            rest.insert(0, {"role": "user", "content": ""})
        for role in ("user", "assistant"):
            if role not in self.repeats:
                rest = changes.joined_neighbours(rest, role, with_calls=self.text_beside == "shown")
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
