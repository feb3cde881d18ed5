"""The tools that a request offers and its choice among them, checked as OpenAI's API does.

chat.completions nests what a tool, a choice or a format says under the name of its kind ("nested"), Responses does not
("flat"), and the deprecated `functions` of chat.completions have no kind. Shapes follow
https://platform.openai.com/docs/api-reference/chat/create and https://platform.openai.com/docs/api-reference/responses/create
(`tools`, `tool_choice`, `functions`, `function_call`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ...errors import BadRequest, listed
from ...formats.values import MAX_NESTING, nests_too_deeply
from ...grammar.tool import CustomFormat, Tool
from ...prompt.items import qualified_name
from ..fields import Fields, as_array
from ..hosted.kind import CalledTool, HostedTool
from ..hosted.mcp.entry import TYPE as MCP
from ..hosted.mcp.entry import McpTool, ServerEntry, read_server
from ..hosted.table import BY_TYPE

MAX_TOOLS = 128
Form = Literal["nested", "flat", "legacy"]
MAX_NAME_LENGTH: dict[Form, int] = {"nested": 64, "flat": 128, "legacy": 64}
MAX_NAMESPACE_LENGTH = 64
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_HOSTED = ("web_search", "file_search", "code_interpreter", "mcp", "image_generation", "computer", "tool_search")
Mode = Literal["none", "auto", "required"]
_KINDS = ("function", "custom")
_FLAGS = ("async", "async_", "defer_loading")
"""Flags of flat tools without an effect: their output may come later (in the SDK's two spellings), or they are shown to
the model only when it looks for tools."""
_MODES: tuple[Mode, ...] = ("none", "auto", "required")
_FIELDS: dict[Form, tuple[str, str, tuple[Mode, ...]]] = {
    "nested": ("tools", "tool_choice", _MODES),
    "flat": ("tools", "tool_choice", _MODES),
    "legacy": ("functions", "function_call", _MODES[:2]),
}
"""Names of the fields of tools and of the choice, and the choices that are words."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Choice between tools: if they may or have to be called, and which."""

    mode: Mode
    names: frozenset[str] | None = None
    """The tools that may be called; None: all."""

    def among(self, tools: Sequence[Tool]) -> list[Tool]:
        """The tools among these that may be called."""
        return [tool for tool in tools if self.names is None or tool.name in self.names]

    def later(self, names: Collection[str]) -> ToolChoice:
        """The choice among tools of these names behind a call: no further one has to be made."""
        left = frozenset(names) if self.names is None else self.names & frozenset(names)
        return ToolChoice("auto" if left and self.mode != "none" else "none", left)


def read_tools(value: object, form: Form = "nested") -> list[Tool]:
    """Check the `tools` field, or the deprecated `functions`, untrusted. None gives none.

    Raises:
        BadRequest: with the path of what is wrong, such as `tools[0].function.name`.
    """
    field = _FIELDS[form][0]
    tools = [tool for item, path in _items(value, field) for tool in _tools(item, path, form)]
    as_array(field, tools, most=MAX_TOOLS)  # in all their namespaces
    check_names(tools)
    return tools


def read_tool_choice(value: object, tools: Sequence[Tool], form: Form = "nested") -> ToolChoice:
    """Check the `tool_choice` field, or the deprecated `function_call`, untrusted. Where it is absent: auto if there
    are tools, none if not.

    Raises:
        BadRequest: with the path of what is wrong; it names a tool that is not there, or there are no tools.
    """
    offered, field, modes = _FIELDS[form]
    if value is None:
        return ToolChoice("auto" if tools else "none")
    if not tools:
        raise BadRequest(
            f"Invalid value for '{field}': '{field}' is only allowed when '{offered}' are specified.", param=field
        )
    if isinstance(value, str):
        for mode in modes:
            if value == mode:
                return ToolChoice(mode)
        raise BadRequest.unknown_value(field, value, modes)
    if not isinstance(value, dict):
        raise BadRequest.wrong_type(field, "one of a string or an object", value)
    kind, fields = _open(value, field, (*_KINDS, "allowed_tools"), form)
    if kind == "allowed_tools":
        return _allowed_tools(fields, tools, form)
    return ToolChoice("required", _names(kind, fields, field, tools, form))


# -- Tools ------------------------------------------------------------------------------------------------------------


def _items(value: object, path: str) -> Iterator[tuple[object, str]]:
    """The items of an array that is not empty, each with its path; none where the array is absent."""
    if value is None:
        return
    for i, item in enumerate(as_array(path, value, empty=False, most=MAX_TOOLS)):
        yield item, f"{path}[{i}]"


def check_names(tools: Sequence[Tool]) -> None:
    """Refuse tools of which two share a name."""
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            is_server = isinstance(tool, ServerEntry)
            path, what = (f"{tool.path}.server_label", "server") if is_server else (f"{tool.path}.name", "tool")
            name = tool.label if isinstance(tool, ServerEntry) else tool.name
            raise BadRequest.refused(path, f"there is more than one {what} named '{name}'. Names must be unique")
        seen.add(tool.name)


def _tools(value: object, path: str, form: Form) -> list[Tool]:
    """One tool, or those of a namespace."""
    if form == "flat" and isinstance(value, dict) and value.get("type") == "namespace":
        return _namespace(Fields(value, path))
    kind, fields = _open(value, path, _KINDS, form)
    if kind == MCP:
        return [read_server(fields)]
    return [BY_TYPE[kind].tool(fields) if kind in BY_TYPE else _tool(kind, fields, form)]


def _namespace(fields: Fields) -> list[Tool]:
    """Tools under a common name; the model sees each as a separate tool, such as `crm__list_orders`."""
    fields.option("type", ("namespace",))
    namespace = fields.text("name"), fields.text("description")
    _check_name(namespace[0], fields.at("name"), MAX_NAMESPACE_LENGTH)
    tools: list[Tool] = []
    for item, path in _items(fields.array("tools"), fields.at("tools")):
        inner = Fields(item, path)
        tools.append(_tool(inner.option("type", _KINDS), inner, "flat", namespace))
    fields.finish()
    return tools


def _open(value: object, path: str, kinds: Sequence[str], form: Form) -> tuple[str, Fields]:
    """The `type` of an object, and what says the rest; functions are all that there was once."""
    fields = Fields(value, path)
    if form == "legacy":
        return "function", fields
    kind = fields.text("type")
    if form == "flat" and (kind in BY_TYPE or kind == MCP):
        return kind, fields
    if kind.startswith(_HOSTED):
        raise BadRequest.unsupported_value(
            f"{path}.type",
            f"Tools of type '{kind}' are hosted by OpenAI and are not available locally. Supported values are: "
            f"{listed(kinds)}.",
        )
    fields.option("type", kinds)
    return kind, _nested(fields, kind, form)


def _nested(fields: Fields, name: str, form: Form) -> Fields:
    """The object under this name, the only field left of the outer one; in the flat form the outer one itself."""
    if form == "flat":
        return fields
    inner = Fields(fields.require(name), fields.at(name))
    fields.finish()
    return inner


def _tool(kind: str, fields: Fields, form: Form, namespace: tuple[str, str] | None = None) -> Tool:
    """A function or a custom tool.

    Args:
        namespace: the name and the description of the one that it is in.
    """
    own, description = fields.text("name"), fields.string("description")
    name = qualified_name(namespace and namespace[0], own)
    _check_name(own, fields.at("name"), MAX_NAME_LENGTH[form])
    if namespace is not None and namespace[1]:
        description = "\n".join(filter(None, (description, ": ".join(namespace))))
    strict = fields.boolean("strict") if kind == "function" and form != "legacy" else False
    tool = Tool(
        name,
        parameters=_parameters(fields, name) if kind == "function" else None,
        strict=bool(strict) if form == "nested" else strict,
        custom=_custom_format(fields, form) if kind == "custom" else None,
        description=description,
        namespace=None if namespace is None else (namespace[0], own),
        path=fields.path,
    )
    if form == "flat":
        for flag in _FLAGS:
            fields.boolean(flag)
        fields.get("allowed_callers")
        fields.mapping("output_schema")
    fields.finish()
    return tool


def _check_name(name: str, path: str, most: int) -> None:
    if not name:
        what = "empty string. Expected a string with minimum length 1, but got an empty string instead"
        raise BadRequest.refused(path, what, "empty_string")
    if len(name) > most:
        raise BadRequest.long_string(path, most, len(name))
    if not _NAME.fullmatch(name):
        what = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'"
        raise BadRequest.refused(path, what)


def _parameters(fields: Fields, name: str) -> Mapping[str, object] | None:
    path = fields.at("parameters")
    schema = fields.mapping("parameters")
    if schema is None:
        return None
    if nests_too_deeply(schema):
        why = f"it is nested too deeply: more than {MAX_NESTING} objects and arrays stand in each other"
    elif schema.get("type", "object") != "object":
        why = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{schema['type']}\"'"
    else:
        try:
            json.dumps(schema, ensure_ascii=False, allow_nan=False).encode()
            return schema
        except (TypeError, ValueError, RecursionError) as error:
            why = f"it cannot be written as JSON: {error}"
    raise bad_schema(name, path, f"{why}.")


def bad_schema(name: str, path: str, why: str) -> BadRequest:
    """The error for a function whose parameters cannot be followed."""
    text = f"Invalid schema for function '{name}': {why}"
    return BadRequest(text, param=path, code="invalid_function_parameters")


def _custom_format(fields: Fields, form: Form) -> CustomFormat:
    if not fields.has("format"):
        return CustomFormat()
    format = fields.inner("format")
    if format.option("type", ("text", "grammar")) == "text":
        format.finish()
        return CustomFormat()
    grammar = _nested(format, "grammar", form)
    syntax, definition = grammar.option("syntax", ("lark", "regex")), grammar.text("definition")
    grammar.finish()
    return CustomFormat("lark" if syntax == "lark" else "regex", definition, grammar.at("definition"))


# -- Choices ----------------------------------------------------------------------------------------------------------


def _allowed_tools(fields: Fields, tools: Sequence[Tool], form: Form) -> ToolChoice:
    mode = fields.option("mode", ("auto", "required"))
    items = list(_items(fields.array("tools"), fields.at("tools")))
    fields.finish()
    names = (_names(*_open(item, path, _KINDS, form), path, tools, form) for item, path in items)
    return ToolChoice("auto" if mode == "auto" else "required", frozenset().union(*names))


def _names(kind: str, fields: Fields, path: str, tools: Sequence[Tool], form: Form) -> frozenset[str]:
    """Names that the model has for a function, a custom or hosted tool, or tools of an MCP server."""
    if kind == MCP:
        return _server_names(fields, path, tools)
    return frozenset(
        {_hosted_name(kind, fields, path, tools) if kind in BY_TYPE else _named_tool(kind, fields, path, tools, form)}
    )


def _hosted_name(kind: str, fields: Fields, path: str, tools: Sequence[Tool]) -> str:
    """Name that the model has for the hosted tool of a type."""
    fields.get("type")
    fields.finish()
    for tool in tools:
        if isinstance(tool, HostedTool) and kind in tool.hosted.types:
            return tool.name
    raise BadRequest(
        f"Invalid value for '{path}': no tool of type '{kind}' was specified in the 'tools' parameter.", param=path
    )


def _server_names(fields: Fields, path: str, tools: Sequence[Tool]) -> frozenset[str]:
    """Names that the model has for the tools of an MCP server, or for one of them.

    Before the server has listed its tools, this is the name of its entry.
    """
    fields.get("type")
    label, name = fields.word("server_label"), fields.string("name")
    fields.finish()
    entries = [tool for tool in tools if isinstance(tool, ServerEntry) and tool.label == label]
    found = [tool for tool in tools if isinstance(tool, McpTool) and tool.server.label == label]
    names = {tool.name for tool in found if name in (None, tool.own_name)} | {tool.name for tool in entries}
    if names:
        return frozenset(names)
    what = f"MCP server '{label}'" if name is None else f"tool '{name}' of an MCP server '{label}'"
    raise BadRequest(f"Invalid value for '{path}': there is no {what} that the model may call.", param=path)


def _named_tool(kind: str, fields: Fields, path: str, tools: Sequence[Tool], form: Form) -> str:
    """Name that the model has for the named tool of this kind; one of a namespace may be named `crm.list_orders`."""
    fields.get("name")
    namespace = fields.string("namespace") if form == "flat" else None
    fields.finish()
    name = fields.text("name")
    for tool in tools:
        names: set[tuple[str | None, str]] = {(None, tool.name)}
        if tool.namespace is not None:
            names |= {tool.namespace, (None, ".".join(tool.namespace))}
        is_own = not isinstance(tool, CalledTool | ServerEntry)
        if tool.kind == kind and is_own and (namespace, name) in names:
            return tool.name
    what, offered = "function" if kind == "function" else "custom tool", _FIELDS[form][0]
    raise BadRequest(
        f"Invalid value for '{path}': no {what} named '{name}' was specified in the '{offered}' parameter.", param=path
    )
