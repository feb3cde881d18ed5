"""Arguments of formats that write values without quotes, as the types that their JSON schema asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from .references import resolve

MAX_REFERENCE_DEPTH = 16  # references that lead to references


def typed_arguments(
    arguments: Mapping[str, object], parameters: Mapping[str, object], otherwise: Mapping[str, object] | None = None
) -> dict[str, object]:
    """What each argument that is text means: the text itself where its schema takes it, else what it spells as JSON.

    Args:
        arguments: some of them text, as it was written.
        parameters: the function's JSON schema.
        otherwise: how upstream's parser reads those that are neither, such as Python's `True`; None: they stay text.

    Raises:
        KeyError: one is neither, and upstream's parser could not read it.
    """
    properties = parameters.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    out: dict[str, object] = {}
    for key, value in arguments.items():
        if isinstance(value, str) and key in properties and not _takes_text(properties[key], value, parameters):
            try:
                value = json.loads(value)
            except ValueError:
                value = value if otherwise is None else otherwise[key]
        out[key] = value
    return out


def _takes_text(schema: object, text: str, root: Mapping[str, object], depth: int = 0) -> bool:
    """Whether a string is a value of the schema; what is not understood takes any."""
    if not isinstance(schema, Mapping):
        return schema is not False
    if depth > MAX_REFERENCE_DEPTH:
        return True
    if isinstance(reference := schema.get("$ref"), str):
        try:
            return _takes_text(resolve(root, reference), text, root, depth + 1)
        except KeyError:
            return True
    if "enum" in schema:
        return text in schema["enum"]
    if "const" in schema:
        return bool(text == schema["const"])
    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list):
            return any(_takes_text(option, text, root, depth + 1) for option in options)
    types = schema.get("type", "string")
    if "string" not in (types if isinstance(types, list) else [types]):
        return False
    try:
        fits = schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text))
        return bool(fits and ("pattern" not in schema or re.search(schema["pattern"], text)))
    except (TypeError, re.error):
        return True


def json_or_text(text: str) -> object:
    """What a text spells as JSON; the text itself where that is nothing."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
