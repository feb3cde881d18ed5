"""The tools of one request, as an answer's readers see them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..grammar.subschemas import Schema
from .values import argument_schema


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of one request.

    Attributes:
        functions: as chat templates and parsers read them; a custom tool is a function of one string, `input`.
        custom: names of the custom tools among them.
    """

    functions: Sequence[dict[str, Any]] = ()
    custom: Collection[str] = ()
    _read: dict[str, Schema] = field(default_factory=dict[str, Schema], compare=False, repr=False)

    @property
    def names(self) -> list[str]:
        """Names of the tools that may be called."""
        return [tool["function"]["name"] for tool in self.functions]

    def parameters(self, name: str) -> Schema:
        """The JSON schema of a function's arguments, as `argument_schema` writes it; {} if there is none."""
        if name not in self._read:
            functions = (tool["function"] for tool in self.functions)
            schema: Schema | None = next((each.get("parameters") for each in functions if each["name"] == name), None)
            self._read[name] = argument_schema(schema or {})
        return self._read[name]
