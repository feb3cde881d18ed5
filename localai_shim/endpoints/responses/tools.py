"""The flat forms of the Responses API brought into those of chat.completions, whose readers check them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from ...errors import BadRequest

# What a tool says beside its form: when OpenAI shows it to the model, and what comes back from it.
_HINTS = ("allowed_callers", "defer_loading", "output_schema")
# Paths of the nested form -> those that the caller wrote.
_RENAMED = [
    (re.compile(r"^response_format(\.json_schema)?"), "text.format"),
    (re.compile(r"^(tools\[\d+\](?:\.tools\[\d+\])?)\.(?:function|custom)\.format\.grammar"), r"\1.format"),
    (re.compile(r"^(tools\[\d+\](?:\.tools\[\d+\])?)\.(?:function|custom)"), r"\1"),
    (re.compile(r"^tool_choice\.allowed_tools"), "tool_choice"),
    (re.compile(r"^(tool_choice(?:\.tools\[\d+\])?)\.(?:function|custom)"), r"\1"),
    (re.compile(r"^messages.*"), "input"),
    (re.compile(r"^verbosity$"), "text.verbosity"),
]


@contextlib.contextmanager
def flat_paths(*, effort: bool = False) -> Iterator[None]:
    """Errors name the fields as the Responses API does.

    Args:
        effort: `reasoning_effort` was given as `reasoning.effort`.
    """
    try:
        yield
    except BadRequest as error:
        path = error.param or ""
        if error.code == "unknown_parameter" and path.isidentifier():  # a field of the other API
            raise
        code = error.code
        if path == "response_format" and error.message.startswith("Invalid schema"):
            path, code = "response_format.json_schema.schema", "invalid_json_schema"
        new = path
        for pattern, replacement in _RENAMED:
            new = pattern.sub(replacement, new)
        if effort and path == "reasoning_effort":
            new = "reasoning.effort"
        message = error.message.replace(f"'{path}'", f"'{new}'").replace("'response_format'", "'text.format'")
        if (new, message) == (error.param, error.message):
            raise
        raise BadRequest(message, param=new, code=code) from error.__cause__


def nested_format(format: Any) -> Any:
    """`text.format` as `response_format`."""
    if not isinstance(format, dict) or format.get("type") != "json_schema":
        return format
    inner = {key: value for key, value in format.items() if key != "type"}
    return {"type": "json_schema", "json_schema": inner}


def nested_tools(tools: Any, *, strict: bool) -> Any:
    """`tools` as chat.completions has them.

    Args:
        strict: for functions that do not say whether they are.
    """
    if not isinstance(tools, list | tuple):
        return tools
    return [_nested_tool(tool, strict) for tool in tools]


def _nested_tool(tool: Any, strict: bool) -> Any:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind not in ("function", "custom"):
        return tool
    inner = {key: value for key, value in tool.items() if key != "type" and key not in _HINTS}
    if kind == "function" and inner.get("strict") is None:
        inner["strict"] = strict
    format = inner.get("format")
    if kind == "custom" and isinstance(format, dict) and format.get("type") == "grammar":
        grammar = {key: value for key, value in format.items() if key != "type"}
        inner["format"] = {"type": "grammar", "grammar": grammar}
    return {"type": kind, kind: inner}


def nested_choice(choice: Any) -> Any:
    """`tool_choice` as chat.completions has it."""
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "allowed_tools":
        inner = {key: value for key, value in choice.items() if key != "type"}
        if isinstance(inner.get("tools"), list):
            inner["tools"] = [nested_choice(tool) for tool in inner["tools"]]
        return {"type": kind, kind: inner}
    if kind in ("function", "custom"):
        return {"type": kind, kind: {key: value for key, value in choice.items() if key != "type"}}
    return choice
