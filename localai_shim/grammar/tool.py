"""Tools, as chat templates and as grammars see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .compile import check, json_expression, json_schema
from .relax import relaxed, strict_form
from .schema import objects_only, takes_no_arguments
from .subschemas import Schema


@dataclass(frozen=True, slots=True)
class CustomFormat:
    """Format of the input of a custom tool."""

    kind: Literal["text", "lark", "regex"] = "text"
    definition: str = ""
    """The grammar; empty for plain text."""
    path: str = field(default="", compare=False)
    """Path of the definition in the request, for errors."""

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
    """Name that the model calls; for a tool of a namespace this is not the caller's own name."""
    parameters: Mapping[str, object] | None = None
    """JSON schema of the arguments as it was sent; None where it was not, and for custom tools."""
    strict: bool | None = False
    """Arguments follow all of the schema, whether or not a call is forced, and a schema that no grammar can follow is
    an error; otherwise such parts of it are left out. None: the request does not say, and it is not decided yet."""
    custom: CustomFormat | None = None
    """Set for custom tools only."""
    description: str | None = None
    namespace: tuple[str, str] | None = None
    """Namespace and own name of a tool that is in one."""
    path: str = field(default="", compare=False)
    """Path in the request of the object with the tool's name, for errors."""

    @property
    def kind(self) -> Literal["function", "custom"]:
        return "function" if self.custom is None else "custom"

    def template(self) -> dict[str, object]:
        """The tool as chat templates read it: always a function, with a description and an object of properties.

        A custom tool is a function of one string, `input`.
        """
        parameters: dict[str, object] = {"type": "object", "properties": {}}  # templates iterate over them unasked
        if self.custom is not None:
            text = {"type": "string", "description": self.custom.describe()}
            parameters = {"type": "object", "properties": {"input": text}, "required": ["input"]}
        elif self.parameters is not None:
            parameters = dict(self.parameters) if "properties" in self.parameters else {**parameters, **self.parameters}
        function = {"name": self.name, "description": self.description or "", "parameters": parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Call:
    """Form that a call of one tool must have.

    Attributes:
        name: of the function.
        schema: of its arguments; None: there are none.
        follows: the arguments follow the schema; otherwise they are any object.
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


def call_of(tool: Tool, *, required: bool) -> Call:
    """Form that a call of a tool must have; see `answer_with_calls`."""
    if tool.custom is not None:
        text = {"type": "string"}
        if tool.custom.kind == "regex":
            text["pattern"] = f"^(?:{tool.custom.definition})$"
        schema = {"type": "object", "properties": {"input": text}, "required": ["input"], "additionalProperties": False}
        return Call(tool.name, schema, True, False, tool.custom.definition if tool.custom.kind == "lark" else None)
    follows = required or bool(tool.strict)
    if takes_no_arguments(tool.parameters):
        return Call(tool.name, None, follows, not tool.strict)
    assert tool.parameters is not None
    parameters: Schema = tool.parameters
    if follows:
        parameters = objects_only(parameters)
        parameters = strict_form(parameters) if tool.strict else relaxed(parameters)
    return Call(tool.name, parameters, follows, not tool.strict)


def json_arguments(call: Call) -> str:
    """A Lark expression of a call's arguments as JSON.

    Raises:
        GrammarError: their schema is broken, or cannot be followed.
    """
    if call.follows and call.schema is None:
        return '"{}"'
    check(json_schema(call.parameters, lenient=call.lenient))
    return json_expression(call.parameters, lenient=call.lenient)
