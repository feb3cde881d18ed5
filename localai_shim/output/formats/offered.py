"""The tools of one request, as an answer's readers see them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of one request.

    Attributes:
        functions: as chat templates and parsers read them; a custom tool is a function of one string, `input`.
        custom: names of the custom tools among them.
    """

    functions: Sequence[dict[str, Any]] = ()
    custom: Collection[str] = ()

    @property
    def names(self) -> list[str]:
        """Names of the tools that may be called."""
        return [tool["function"]["name"] for tool in self.functions]

    def parameters(self, name: str) -> Mapping[str, object]:
        """A function's JSON schema, or {}."""
        schemas = (tool["function"].get("parameters") for tool in self.functions if tool["function"]["name"] == name)
        return next(schemas, None) or {}
