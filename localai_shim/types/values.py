"""JSON values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
"""An object of JSON."""


def map_texts(value: Any, change: Callable[[str], Any]) -> Any:
    """A copy of a JSON value with what `change` makes of its strings, other than keys, in their place."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: map_texts(item, change) for key, item in value.items()}
    return [map_texts(item, change) for item in value] if isinstance(value, list | tuple) else value
