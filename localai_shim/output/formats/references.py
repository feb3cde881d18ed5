"""Local references in JSON Schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote


def resolve(root: Mapping[str, object], reference: str) -> object:
    """Find what a local `$ref`, a JSON pointer behind `#`, points to.

    Raises:
        KeyError: nothing is there, or it lies outside of the schema.
    """
    if not reference.startswith("#"):
        raise KeyError(reference)
    node: Any = root
    for step in reference[1:].split("/")[1:]:
        step = unquote(step).replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(step) if isinstance(node, list) else step]
        except (LookupError, TypeError, ValueError):
            raise KeyError(reference) from None
    return node
