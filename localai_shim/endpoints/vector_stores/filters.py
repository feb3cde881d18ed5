"""Filters on the attributes of files: https://platform.openai.com/docs/guides/retrieval#attribute-filtering."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import BadRequest
from ..fields import Fields, as_array

Attributes = Mapping[str, object]
Filter = Callable[[Attributes], bool]

MAX_DEPTH = 16
"""Filters inside of each other."""
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_TYPES = ("eq", "ne", *_ORDERS, "in", "nin", "and", "or")


def read_filter(value: object, path: str, depth: int = MAX_DEPTH) -> Filter:
    """A filter, from the JSON of OpenAI's API.

    A file without the attribute passes `ne` and `nin` only. Values of different types are never equal, and `gt`, `gte`,
    `lt`, and `lte` compare numbers with numbers and strings with strings.

    Raises:
        BadRequest: with the path of what is wrong.
    """
    if depth == 0:
        raise BadRequest.refused(path, f"filters may be nested {MAX_DEPTH} levels deep")
    fields = Fields(value, path)
    kind = fields.option("type", _TYPES)
    if kind in ("and", "or"):
        inner = as_array(fields.at("filters"), fields.require("filters"), empty=False)
        fields.finish()
        parts = [read_filter(each, f"{path}.filters[{i}]", depth - 1) for i, each in enumerate(inner)]
        holds = all if kind == "and" else any
        return lambda attributes: holds(part(attributes) for part in parts)
    name, wanted = fields.word("key"), fields.require("value")
    fields.finish()
    if kind in ("in", "nin"):
        values = [_plain(each, f"{path}.value[{i}]") for i, each in enumerate(as_array(f"{path}.value", wanted))]
        return lambda attributes: any(_equal(attributes.get(name), each) for each in values) is (kind == "in")
    plain = _plain(wanted, f"{path}.value")
    if kind in ("eq", "ne"):
        return lambda attributes: _equal(attributes.get(name), plain) is (kind == "eq")
    if isinstance(plain, bool):
        raise BadRequest.wrong_type(f"{path}.value", "one of a string or a number", plain)
    compare = _ORDERS[kind]
    return lambda attributes: _kind(attributes.get(name)) is _kind(plain) and compare(attributes[name], plain)


def _plain(value: object, path: str) -> object:
    if not isinstance(value, str | bool | int | float):
        raise BadRequest.wrong_type(path, "one of a string, a number, or a boolean", value)
    return value


def _kind(value: object) -> type:
    """Type of a value; all numbers have one."""
    return float if type(value) is int else type(value)


def _equal(value: object, wanted: object) -> bool:
    return _kind(value) is _kind(wanted) and value == wanted
