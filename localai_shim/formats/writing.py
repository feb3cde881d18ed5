"""Writing calls as the models of a family do: for prompts whose template cannot, and for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count

from .description import CallFormat
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
        "ARGUMENTS": format.arguments.write(arguments),
        "INDEX": str(number),
        "ID": str(number).rjust(_ID_LETTERS, "0"),
    }
    return layout(format.call).write(holes)
