"""Writing calls as the models of a family do: for prompts whose template cannot, and for tests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import count

from .description import Arguments, CallFormat, JsonArguments, MarkedArguments, Parameters
from .layout import layout

Call = tuple[str, Mapping[str, object]]
"""A function's name and its arguments."""
_ID_LETTERS = 9  # of an id that a model makes up


def write_calls(format: CallFormat, calls: Sequence[Call]) -> str:
    """The calls of one turn, markers included."""
    numbers = count(format.first_index)
    written = [_call(format, name, arguments, next(numbers)) for name, arguments in calls]
    before, behind = format.inside
    start = format.start if not format.bare else ""
    if format.each:
        return format.between.join(f"{start}{before}{call}{behind}{format.end}" for call in written)
    return f"{start}{before}{format.between.join(written)}{behind}{format.end}"


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
        return _json(arguments)
    if isinstance(kind, Parameters):
        return "".join(_parameter(kind, key, value) for key, value in arguments.items())
    if isinstance(kind, MarkedArguments):
        return ",".join(f"{key}:{_marked(kind, value)}" for key, value in arguments.items())
    return ", ".join(f"{key}={_python(value)}" for key, value in arguments.items())


def _parameter(kind: Parameters, key: str, value: object) -> str:
    types = kind.types if len(kind.types) > 1 else kind.types * 5
    type = kind.text_type if isinstance(value, str) else _type(value, types)
    holes = {"KEY": escape(key) if kind.escaped else key, "VALUE": _value(kind, value), "TYPE": type}
    return layout(kind.layout).write(holes)


def _type(value: object, types: Sequence[str]) -> str:
    """What a model calls the type of a value that is no text: of a number, a boolean, null, an array, an object."""
    if not types:
        return ""
    if isinstance(value, bool) or value is None:
        return types[2] if value is None else types[1]
    return types[0] if isinstance(value, int | float) else types[3] if isinstance(value, list | tuple) else types[4]


def _value(kind: Parameters, value: object) -> str:
    if kind.element is not None and isinstance(value, dict):
        return "".join(_element(kind.element, str(key), item) for key, item in value.items())
    if kind.element is not None and isinstance(value, list | tuple):
        return "".join(_element(kind.element, "item", item) for item in value)
    text = value if isinstance(value, str) else _json(value)
    return f"<![CDATA[{text}]]>" if kind.cdata and re.search(r"[<&\s]", text) else text


def _element(mark: str, key: str, value: object) -> str:
    inner = _value(Parameters("", element=mark), value)
    return f"{mark}<{key}>{inner}{mark}</{key}>"


def _marked(kind: MarkedArguments, value: object) -> str:
    if isinstance(value, str):
        return f"{kind.quote}{value}{kind.quote}"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{_marked(kind, item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(_marked(kind, item) for item in value)}]"
    return _json(value)


def _python(value: object) -> str:
    return repr(list(value) if isinstance(value, tuple) else value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
