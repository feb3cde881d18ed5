"""One answer of a model and what the model means by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Call = tuple[str, dict[str, Any]]
"""A function's name and its arguments."""


def _function(name: str, properties: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": f"{name}.", "parameters": parameters}}


OFFERED: tuple[dict[str, Any], ...] = (
    _function(
        "plan_trip",
        {
            "city": {"type": "string"},
            "nights": {"type": "integer"},
            "budget": {"type": "number"},
            "insured": {"type": "boolean"},
        },
        ("city",),
    ),
    _function(
        "store_note",
        {
            "title": {"type": "string"},
            "body": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "meta": {
                "type": "object",
                "properties": {
                    "lang": {"type": "string"},
                    "pages": {"type": "array", "items": {"type": "integer"}},
                    "draft": {"type": "boolean"},
                    "parent": {"type": ["string", "null"]},
                },
            },
        },
        ("title",),
    ),
    _function("set_level", {"level": {"type": ["integer", "null"]}, "label": {"type": ["string", "integer"]}}),
    _function("ring", {}),
)
"""What may be called, in OpenAI's form."""


@dataclass(frozen=True, slots=True)
class Case:
    """An answer, and what is to be read in it.

    Attributes:
        family: by its row in the table of families.
        name: what is peculiar about it.
        text: as the model writes it, from where the prompt ends and without the token that ends the turn.
        content: surrounding whitespace does not count; None: only `kept` is asked for.
        reasoning: likewise.
        calls: those whose arguments are whole, in order.
        broken: those whose arguments are not an object: the name, and a text that stands in the arguments.
        kept: texts that are not lost: each is in the content, in the arguments of a call or in what is reported as
            unreadable.
        unreadable: something is reported as an unreadable call.
        opened: the prompt ended within the reasoning.
        tools: what was offered.
        finish: "length" where the answer was cut.
    """

    family: str
    name: str
    text: str
    content: str | None = ""
    reasoning: str | None = ""
    calls: tuple[Call, ...] = ()
    broken: tuple[tuple[str, str], ...] = ()
    kept: tuple[str, ...] = ()
    unreadable: bool = False
    opened: bool = False
    tools: tuple[dict[str, Any], ...] = OFFERED
    finish: Literal["stop", "length"] = "stop"

    def __str__(self) -> str:
        return f"{self.family}: {self.name}"
