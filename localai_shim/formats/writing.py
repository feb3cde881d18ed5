"""Writing calls as the models of a family do: for prompts whose template cannot, and for tests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import count

from ..grammar.subschemas import json_type
from .description import CDATA, Arguments, CallFormat, JsonArguments, MarkedArguments, Parameters
from .layout import layout

Call = tuple[str, Mapping[str, object]]
"""A function's name and its arguments."""
_ID_LETTERS = 9  # of an id that a model makes up
RESULT = ("<tool_response>\n", "\n</tool_response>")
"""Around a result, for templates that do not show results."""
_TOOLS = """You can call functions. Each of these lines describes one as JSON, with a schema of its parameters:
{functions}

To call a function, answer with its name and its arguments, exactly like this:
{example}
Write this for each call, and nothing after the last one. The results come back in <tool_response> blocks. \
Where no function helps, answer in words."""


def write_calls(format: CallFormat, calls: Sequence[Call]) -> str:
    """The calls of one turn, markers included."""
    numbers = count(format.first_index)
    written = [_call(format, name, arguments, next(numbers)) for name, arguments in calls]
    before, behind = format.inside
    start = format.start if not format.bare else ""
    if format.each:
        return format.between.join(f"{start}{before}{call}{behind}{format.end}" for call in written)
    return f"{start}{before}{format.between.join(written)}{behind}{format.end}"


def write_tools(format: CallFormat, functions: Sequence[Mapping[str, object]]) -> str:
    """Functions, and how to call them, for a template that does not show tools."""
    lines = "\n".join(json.dumps(function, ensure_ascii=False) for function in functions)
    example = write_calls(format, [("function_name", {"parameter": "value"})])
    return _TOOLS.format(functions=lines, example=example)


def _call(format: CallFormat, name: str, arguments: Mapping[str, object], number: int) -> str:
    holes = {
        "NAME": name,
        "ARGUMENTS": write_arguments(format.arguments, arguments),
        "INDEX": str(number),
        "ID": str(number).rjust(_ID_LETTERS, "0"),
    }
    return layout(format.call).write(holes)


def write_arguments(kind: Arguments, arguments: Mapping[str, object]) -> str:
    """Arguments as they stand in a call."""
    if isinstance(kind, JsonArguments):
        return dumps(arguments)
    if isinstance(kind, Parameters):
        return "".join(_parameter(kind, key, value) for key, value in arguments.items())
    if isinstance(kind, MarkedArguments):
        return ",".join(f"{key}:{marked_value(kind, value)}" for key, value in arguments.items())
    return ", ".join(f"{key}={python_value(value)}" for key, value in arguments.items())


def _parameter(kind: Parameters, key: str, value: object) -> str:
    type = kind.type_name(json_type(value))
    holes = {"KEY": escape(key) if kind.escaped else key, "VALUE": _value(kind, value), "TYPE": type}
    return layout(kind.layout).write(holes)


def _value(kind: Parameters, value: object) -> str:
    if kind.element is not None and isinstance(value, dict):
        return "".join(_element(kind.element, str(key), item) for key, item in value.items())
    if kind.element is not None and isinstance(value, list | tuple):
        return "".join(_element(kind.element, "item", item) for item in value)
    text = value if isinstance(value, str) else dumps(value)
    return text.join(CDATA) if kind.cdata and re.search(r"[<&\s]", text) else text


def _element(mark: str, key: str, value: object) -> str:
    inner = _value(Parameters("", element=mark), value)
    return f"{mark}<{key}>{inner}{mark}</{key}>"


def marked_value(kind: MarkedArguments, value: object) -> str:
    """A value between marks."""
    if isinstance(value, str):
        return f"{kind.quote}{value}{kind.quote}"
    if isinstance(value, dict | list | tuple) and not kind.nests:
        return f"{kind.quote}{dumps_without(value, kind.quote)}{kind.quote}"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{marked_value(kind, item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(marked_value(kind, item) for item in value)}]"
    return dumps(value)


def python_value(value: object) -> str:
    """A Python literal. Its strings are as in JSON, which Python reads alike."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{dumps(str(key))}: {python_value(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(python_value, value))}]"
    return dumps(value) if isinstance(value, str) else repr(value)


def dumps_without(value: object, *markers: str) -> str:
    """JSON in which no string holds a marker; these begin with `<`, which JSON does not need."""
    text = dumps(value)
    return text.replace("<", "\\u003c") if any(marker in text for marker in markers) else text


def dumps(value: object) -> str:
    """JSON, with characters as they are but for lone surrogates."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text
