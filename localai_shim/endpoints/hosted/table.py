"""The kinds of hosted tools that hooks can serve."""

from __future__ import annotations

from collections.abc import Mapping

from .code_interpreter import CodeInterpreter
from .file_search import FileSearch
from .image_generation import ImageGeneration
from .kind import Kind
from .web_search import WebSearch

KINDS: tuple[Kind, ...] = (WebSearch(), FileSearch(), CodeInterpreter(), ImageGeneration())
BY_TYPE: Mapping[str, Kind] = {type: kind for kind in KINDS for type in kind.types}
"""Kinds by the types of entries in `tools`."""
BY_ITEM: Mapping[str, Kind] = {kind.names.item: kind for kind in KINDS}
"""Kinds by the types of their items."""
BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}
"""Kinds by the names of their hooks."""


def shown_choice(choice: object) -> object:
    """A `tool_choice` that was read, as the response shows it."""
    if not isinstance(choice, Mapping) or choice.get("type") not in BY_TYPE:
        return choice
    kind = str(choice["type"])
    return {**choice, "type": BY_TYPE[kind].shown_types.get(kind, kind)}
