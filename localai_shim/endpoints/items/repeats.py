"""Items of a request that repeat stored ones: programs pass `previous_response_id` and send the answer back as well."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ...prompt.items import Item
from ...prompt.messages import parsed_arguments

_CALLED = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")
_DECORATION = frozenset({"id", "status", "annotations", "logprobs", "encrypted_content", "parsed"})
"""Fields that may differ between an item and the same one sent back."""


def without_repeats(items: list[Item], stored: Sequence[Item]) -> list[Item]:
    """The items that are not stored. One that has a stored item's id or `call_id` but says something else stays.

    Args:
        items: checked ones, of the request.
        stored: the items that they follow.
    """
    if not stored:
        return items
    known = {key: item for item in stored for key in _keys(item)}
    return [item for item in items if not any(_same(item, known[key]) for key in _keys(item) if key in known)]


def _keys(item: Item) -> list[Hashable]:
    call = [(item["type"], item["call_id"])] if item["type"] in _CALLED else []
    return [item.get("id"), *call]


def _same(sent: object, stored: object) -> bool:
    """True if two JSON values agree in every field that both have."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        names = sent.keys() & stored.keys() - _DECORATION
        return all(_same(_meaning(name, sent[name]), _meaning(name, stored[name])) for name in names)
    if isinstance(sent, list) and isinstance(stored, list):
        return len(sent) == len(stored) and all(map(_same, sent, stored))
    return sent == stored


def _meaning(name: str, value: object) -> object:
    """A field's value; arguments as what they say, since programs write their JSON again."""
    return parsed_arguments(value) if name == "arguments" and isinstance(value, str) else value
