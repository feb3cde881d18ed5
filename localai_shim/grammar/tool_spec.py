"""Tools as grammars see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from . import TooComplexError
from .compile import check, json_expression, json_schema
from .relax import relaxed
from .schema import Schema, close_objects, takes_no_arguments
from .schema_cost import check_cost


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that may be called.

    Attributes:
        name: of the function.
        parameters: their JSON Schema; None: it takes none.
        strict: calls have to follow the schema in mode "auto", too, and a schema that cannot be followed in full is
            an error; otherwise what a grammar cannot follow is left out.
        custom: for a custom tool: what its one argument, `input`, has to be, and the definition of that.
    """

    name: str
    parameters: Mapping[str, Any] | None = None
    strict: bool = False
    custom: tuple[Literal["text", "lark", "regex"], str] | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """What a call of one tool has to look like.

    Attributes:
        name: of the function.
        schema: of its arguments; None: there are none.
        follows: the arguments follow the schema; otherwise they are what they like.
        lenient: see `grammar.json_schema`.
        lark: the input is a text of this grammar instead.
    """

    name: str
    schema: Schema | None
    follows: bool
    lenient: bool
    lark: str | None = None

    @property
    def parameters(self) -> Schema:
        """The schema that the arguments have to follow."""
        if not self.follows:
            return {"type": "object"}
        return self.schema if self.schema is not None else {"type": "object", "additionalProperties": False}


def call_of(tool: ToolSpec, *, required: bool, closed: bool) -> Call:
    """What a call of a tool has to look like; see `tool_grammar`."""
    if tool.custom is not None:
        kind, definition = tool.custom
        text: dict[str, Any] = {"type": "string"}
        if kind == "regex":
            text["pattern"] = f"^(?:{definition})$"
        schema = {"type": "object", "properties": {"input": text}, "required": ["input"], "additionalProperties": False}
        return Call(tool.name, schema, True, False, definition if kind == "lark" else None)
    follows = required or tool.strict
    if takes_no_arguments(tool.parameters):
        return Call(tool.name, None, follows, not tool.strict)
    assert tool.parameters is not None
    try:
        return Call(tool.name, _parameters(tool, tool.parameters, follows, closed), follows, not tool.strict)
    except RecursionError:
        raise TooComplexError("The schema is nested too deeply.") from None


def _parameters(tool: ToolSpec, schema: Mapping[str, Any], follows: bool, closed: bool) -> dict[str, Any]:
    if not follows:
        return dict(schema)
    if not tool.strict:
        return relaxed(schema, closed=closed)
    check_cost(schema)
    return close_objects(schema) if closed else dict(schema)


def json_arguments(call: Call) -> str:
    """A Lark expression of a call's arguments as JSON.

    Raises:
        GrammarError: their schema is broken, or cannot be followed.
    """
    if call.follows and call.schema is None:
        return '"{}"'
    check(json_schema(call.parameters, lenient=call.lenient))
    return json_expression(call.parameters, lenient=call.lenient)
