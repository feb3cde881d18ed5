"""The tools that a request offers and its choice among them, checked as OpenAI's API does.

Shapes follow https://platform.openai.com/docs/api-reference/chat/create (`tools`, `tool_choice`) and its deprecated
`functions` and `function_call`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import BadRequest
from .messages import encodable

MOST_TOOLS = 128
LONGEST_NAME = 64
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_HOSTED = ("web_search", "file_search", "code_interpreter", "mcp", "image_generation", "computer", "tool_search")
_MODES: tuple[Literal["none", "auto", "required"], ...] = ("none", "auto", "required")

Kind = Literal["function", "custom"]


@dataclass(frozen=True, slots=True)
class CustomFormat:
    """What the input of a custom tool looks like."""

    kind: Literal["text", "lark", "regex"] = "text"
    definition: str = ""
    """The grammar; empty for plain text."""

    def describe(self) -> str:
        """The format in words, for the model."""
        if self.kind == "text":
            return "The input, as plain text."
        what = "Lark grammar" if self.kind == "lark" else "regular expression"
        return f"The input, as plain text that matches this {what}:\n{self.definition}"


@dataclass(frozen=True, slots=True)
class Tool:
    """A function, or a custom tool, which takes free text."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """JSON schema of the arguments as it was sent; None where it was not, and for custom tools."""
    strict: bool = False
    """The arguments have to follow the schema exactly."""
    custom: CustomFormat | None = None
    """Set for custom tools only."""

    @property
    def kind(self) -> Kind:
        return "function" if self.custom is None else "custom"

    def template(self) -> dict[str, Any]:
        """The tool as chat templates read it: always a function, with a description and an object of properties.

        A custom tool is a function of one string, `input`.
        """
        parameters = self.parameters or {}
        if self.custom is not None:
            text = {"type": "string", "description": self.custom.describe()}
            parameters = {"type": "object", "properties": {"input": text}, "required": ["input"]}
        elif "properties" not in parameters:  # templates iterate over them unasked
            parameters = {"type": "object", "properties": {}, **parameters}
        function = {"name": self.name, "description": self.description or "", "parameters": parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether tools may or have to be called, and which."""

    mode: Literal["none", "auto", "required"]
    names: frozenset[str] | None = None
    """The tools that may be called; None: all."""


def qualified_name(namespace: str | None, name: str) -> str:
    """What the model calls a tool of a namespace."""
    return name if namespace is None else f"{namespace}__{name}"


def read_tools(tools: Any) -> list[Tool]:
    """Check the `tools` field, untrusted. None gives none.

    Raises:
        BadRequest: with the path of what is wrong, such as `tools[0].function.name`.
    """
    return _read_list(tools, "tools", _tool)


def read_functions(functions: Any) -> list[Tool]:
    """Check the deprecated `functions` field, untrusted. None gives none.

    Raises:
        BadRequest: with the path of what is wrong, such as `functions[0].name`.
    """
    return _read_list(functions, "functions", lambda function, path: _function(function, path, legacy=True))


def read_tool_choice(value: Any, tools: Sequence[Tool]) -> ToolChoice:
    """Check the `tool_choice` field, untrusted. Where it is absent: auto if there are tools, none if not.

    Raises:
        BadRequest: with the path of what is wrong; it names a tool that is not there, or there are no tools.
    """
    if value is None:
        return ToolChoice("auto" if tools else "none")
    if not tools:
        raise _only_with("tool_choice", "tools")
    if isinstance(value, str):
        for mode in _MODES:
            if value == mode:
                return ToolChoice(mode)
        raise _invalid_value(value, _MODES, "tool_choice")
    if not isinstance(value, dict):
        raise BadRequest.wrong_type("tool_choice", "one of a string or an object", value)
    if value.get("type") == "allowed_tools":
        return _allowed_tools(value, tools)
    named = _named_tool(value, "tool_choice", tools, ("function", "custom", "allowed_tools"))
    return ToolChoice("required", frozenset({named}))


def read_function_call(value: Any, functions: Sequence[Tool]) -> ToolChoice:
    """Check the deprecated `function_call` field, untrusted. Where it is absent: auto if there are functions.

    Raises:
        BadRequest: with the path of what is wrong; it names a function that is not there, or there are none.
    """
    if value is None:
        return ToolChoice("auto" if functions else "none")
    if not functions:
        raise _only_with("function_call", "functions")
    if value == "none" or value == "auto":
        return ToolChoice("none" if value == "none" else "auto")
    if isinstance(value, str):
        raise _invalid_value(value, ("none", "auto"), "function_call")
    if not isinstance(value, dict):
        raise BadRequest.wrong_type("function_call", "one of a string or an object", value)
    _only(value, ("name",), "function_call")
    name = _string(value, "name", "function_call")
    if all(function.name != name for function in functions):
        raise _no_such("function_call", "function", name, "functions")
    return ToolChoice("required", frozenset({name}))


# ---------------------------------------------------------------------------------------------------------------


def _read_list(value: Any, field: str, read: Callable[[Any, str], Tool]) -> list[Tool]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequest.wrong_type(field, "an array of objects", value)
    _check_length(value, field)
    tools: list[Tool] = []
    seen: set[str] = set()
    for i, item in enumerate(value):
        tool = read(item, f"{field}[{i}]")
        if tool.name in seen:
            path = f"{field}[{i}].{tool.kind}.name" if field == "tools" else f"{field}[{i}].name"
            raise BadRequest(
                f"Invalid '{path}': there is more than one tool named '{tool.name}'. Names must be unique.",
                param=path,
                code="invalid_value",
            )
        seen.add(tool.name)
        tools.append(tool)
    return tools


def _check_length(value: list[Any], path: str) -> None:
    if not value:
        raise BadRequest(
            f"Invalid '{path}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param=path,
            code="empty_array",
        )
    if len(value) > MOST_TOOLS:
        raise BadRequest(
            f"Invalid '{path}': array too long. Expected an array with maximum length {MOST_TOOLS}, but got an array "
            f"with length {len(value)} instead.",
            param=path,
            code="array_above_max_length",
        )


def _tool(tool: Any, path: str) -> Tool:
    kind = _kind(tool, path, ("function", "custom"))
    return _function(tool["function"], f"{path}.function") if kind == "function" else _custom(tool["custom"], path)


def _kind(value: Any, path: str, kinds: tuple[str, ...]) -> Kind:
    """The `type` of {"type": kind, kind: {...}}, an object of that form with nothing else in it."""
    if not isinstance(value, dict):
        raise BadRequest.wrong_type(path, "an object", value)
    kind = _string(value, "type", path)
    if kind.startswith(_HOSTED):
        raise BadRequest(
            f"Tools of type '{kind}' are hosted by OpenAI; this client never uses the network. Supported values are: "
            f"{_listed(kinds)}.",
            param=f"{path}.type",
            code="unsupported_value",
        )
    if kind not in kinds:
        raise _invalid_value(kind, kinds, f"{path}.type")
    _object(value, kind, path)
    _only(value, ("type", kind), path)
    return "function" if kind == "function" else "custom"


def _function(function: Any, path: str, legacy: bool = False) -> Tool:
    if not isinstance(function, dict):
        raise BadRequest.wrong_type(path, "an object", function)
    name = _name(function, path)
    known = ("name", "description", "parameters")
    _only(function, known if legacy else (*known, "strict"), path)
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise BadRequest.wrong_type(f"{path}.strict", "a boolean", strict)
    parameters = function.get("parameters")
    if parameters is not None:
        _check_schema(parameters, name, f"{path}.parameters")
    return Tool(name, _description(function, path), parameters, bool(strict))


def _check_schema(schema: Any, name: str, path: str) -> None:
    if not isinstance(schema, dict):
        raise BadRequest.wrong_type(path, "an object", schema)
    if schema.get("type", "object") != "object":
        raise BadRequest(
            f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got "
            f"'type: \"{schema['type']}\"'.",
            param=path,
            code="invalid_function_parameters",
        )
    try:
        json.dumps(schema, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(
            f"Invalid schema for function '{name}': it cannot be written as JSON: {error}.",
            param=path,
            code="invalid_function_parameters",
        ) from None


def _custom(custom: dict[str, Any], parent: str) -> Tool:
    path = f"{parent}.custom"
    name = _name(custom, path)
    _only(custom, ("name", "description", "format"), path)
    return Tool(name, _description(custom, path), custom=_custom_format(custom.get("format"), f"{path}.format"))


def _custom_format(value: Any, path: str) -> CustomFormat:
    if value is None:
        return CustomFormat()
    if not isinstance(value, dict):
        raise BadRequest.wrong_type(path, "an object", value)
    kind = _string(value, "type", path)
    if kind == "text":
        _only(value, ("type",), path)
        return CustomFormat()
    if kind != "grammar":
        raise _invalid_value(kind, ("text", "grammar"), f"{path}.type")
    grammar = _object(value, "grammar", path)
    _only(value, ("type", "grammar"), path)
    path = f"{path}.grammar"
    syntax, definition = _string(grammar, "syntax", path), _string(grammar, "definition", path)
    _only(grammar, ("syntax", "definition"), path)
    if syntax != "lark" and syntax != "regex":
        raise _invalid_value(syntax, ("lark", "regex"), f"{path}.syntax")
    return CustomFormat("lark" if syntax == "lark" else "regex", encodable(definition, f"{path}.definition"))


def _allowed_tools(value: dict[str, Any], tools: Sequence[Tool]) -> ToolChoice:
    allowed = _object(value, "allowed_tools", "tool_choice")
    _only(value, ("type", "allowed_tools"), "tool_choice")
    path = "tool_choice.allowed_tools"
    mode = _string(allowed, "mode", path)
    if mode != "auto" and mode != "required":
        raise _invalid_value(mode, ("auto", "required"), f"{path}.mode")
    if allowed.get("tools") is None:
        raise BadRequest.missing(f"{path}.tools")
    _only(allowed, ("mode", "tools"), path)
    path, items = f"{path}.tools", allowed["tools"]
    if not isinstance(items, list):
        raise BadRequest.wrong_type(path, "an array of objects", items)
    _check_length(items, path)
    names = [_named_tool(item, f"{path}[{i}]", tools, ("function", "custom")) for i, item in enumerate(items)]
    return ToolChoice("auto" if mode == "auto" else "required", frozenset(names))


def _named_tool(value: Any, path: str, tools: Sequence[Tool], kinds: tuple[str, ...]) -> str:
    """The name in {"type": kind, kind: {"name": ...}}, which is that of a tool of this kind."""
    kind = _kind(value, path, kinds)
    _only(value[kind], ("name",), f"{path}.{kind}")
    name = _string(value[kind], "name", f"{path}.{kind}")
    if not any(tool.name == name and tool.kind == kind for tool in tools):
        raise _no_such(path, kind, name, "tools")
    return name


def _name(value: dict[str, Any], path: str) -> str:
    name, path = _string(value, "name", path), f"{path}.name"
    if not name:
        what = "empty string. Expected a string with minimum length 1, but got an empty string instead"
        raise BadRequest(f"Invalid '{path}': {what}.", param=path, code="empty_string")
    if len(name) > LONGEST_NAME:
        raise BadRequest(
            f"Invalid '{path}': string too long. Expected a string with maximum length {LONGEST_NAME}, but got a "
            f"string with length {len(name)} instead.",
            param=path,
            code="string_above_max_length",
        )
    if not _NAME.fullmatch(name):
        what = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'"
        raise BadRequest(f"Invalid '{path}': {what}.", param=path, code="invalid_value")
    return name


def _description(value: dict[str, Any], path: str) -> str | None:
    if value.get("description") is None:
        return None
    return encodable(_string(value, "description", path), f"{path}.description")


def _string(value: dict[str, Any], key: str, path: str) -> str:
    found = value.get(key)
    if found is None:
        raise BadRequest.missing(f"{path}.{key}")
    if not isinstance(found, str):
        raise BadRequest.wrong_type(f"{path}.{key}", "a string", found)
    return found


def _object(value: dict[str, Any], key: str, path: str) -> dict[str, Any]:
    found = value.get(key)
    if found is None:
        raise BadRequest.missing(f"{path}.{key}")
    if not isinstance(found, dict):
        raise BadRequest.wrong_type(f"{path}.{key}", "an object", found)
    return found


def _only(value: dict[str, Any], known: Iterable[str], path: str) -> None:
    """Refuse keys that nobody would read."""
    for key, given in value.items():
        if key not in known and given is not None:
            raise BadRequest(f"Unknown parameter: '{path}.{key}'.", param=f"{path}.{key}", code="unknown_parameter")


def _invalid_value(value: str, supported: Sequence[str], path: str) -> BadRequest:
    return BadRequest(
        f"Invalid value: '{value}'. Supported values are: {_listed(supported)}.", param=path, code="invalid_value"
    )


def _only_with(field: str, other: str) -> BadRequest:
    return BadRequest(
        f"Invalid value for '{field}': '{field}' is only allowed when '{other}' are specified.", param=field
    )


def _no_such(path: str, kind: str, name: str, field: str) -> BadRequest:
    what = "function" if kind == "function" else "custom tool"
    return BadRequest(
        f"Invalid value for '{path}': no {what} named '{name}' was specified in the '{field}' parameter.", param=path
    )


def _listed(options: Sequence[str]) -> str:
    quoted = [f"'{option}'" for option in options]
    if len(quoted) < 3:
        return " and ".join(quoted)
    return ", ".join(quoted[:-1]) + f", and {quoted[-1]}"
