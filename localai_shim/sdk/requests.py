"""Bodies of requests, as the SDK's own encoder would write them, and the request that a raw response shows.

Requests never become JSON here, but callers pass what the SDK can encode: members of string enums, datetimes, pydantic
objects, tuples. Endpoints get what a server would read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import openai

from ..errors import BadRequest
from ..prompt.objects import FIELDS, holds_objects, is_object, with_data_urls
from . import private as sdk

if TYPE_CHECKING:
    import httpx2 as httpx
else:
    httpx = sdk.httpx

_SCALARS = frozenset({str, int, bool, type(None)})


class _NotJsonError(Exception):
    """A value, or an object's key, that the SDK cannot encode; `path` is collected on the way out, from the inside."""

    expected = "a string, number, boolean, object, array or null"

    def __init__(self, value: object) -> None:
        self.value, self.path = value, list[str | int]()


def read_body(options: sdk.RequestOptions) -> dict[str, object]:
    """The fields of a request; files of a multipart request are as they were given.

    Raises:
        BadRequest: the body is not an object, or holds what the SDK cannot encode.
    """
    body: dict[str, object] = {}
    for part in (options.json_data, options.extra_json):
        if part is None:
            continue
        if not isinstance(part, Mapping):
            raise BadRequest.wrong_type("body", "an object", part)
        body.update(_plain_fields(part))
    return body


def _plain_fields(given: Mapping[object, object]) -> dict[str, object]:
    fields: dict[str, object] = {}
    name = "body"
    try:
        for key, value in given.items():
            if isinstance(value, openai.Omit):
                continue
            name = key if type(key) is str else _key(key)
            # Numbers that JSON does not have are left to what reads the field, and says which it takes.
            fields[name] = value if type(value) in _SCALARS or type(value) is float else _plain(value, name)
    except _NotJsonError as error:
        raise _not_json(name, error) from error.__cause__
    except RecursionError:
        raise BadRequest.refused(name, "objects and arrays in it are nested too deeply to be sent") from None
    return fields


def _plain(value: Any, name: str) -> Any:
    """The value as JSON has it: itself if it is that already, otherwise a copy.

    Args:
        name: of the object's field that has it, or has the arrays around it.
    """
    kind = type(value)
    if kind is dict:
        return _plain_object(value)
    if kind is list:
        return value if _SCALARS.issuperset(map(type, value)) else _plain_array(value, name)
    if kind in _SCALARS or (kind is float and math.isfinite(value)):
        return value
    if isinstance(value, dict):
        return _plain_object(dict(value.items()))
    if isinstance(value, list | tuple):
        return _plain_array(list(value), name)
    return value if name in FIELDS and is_object(value) else _encoded(value)


def _plain_object(given: dict[Any, Any]) -> dict[str, Any]:
    made = given
    for key, value in given.items():
        if type(key) is not str:
            return _plain_object({name if type(name) is str else _key(name): each for name, each in given.items()})
        if type(value) in _SCALARS:
            continue
        try:
            plain = _plain(value, key)
        except _NotJsonError as error:
            error.path.append(key)
            raise
        if plain is not value:
            made = {**given} if made is given else made
            made[key] = plain
    return made


def _plain_array(given: list[object], name: str) -> list[object]:
    made = given
    for i, value in enumerate(given):
        if type(value) in _SCALARS:
            continue
        try:
            plain = _plain(value, name)
        except _NotJsonError as error:
            error.path.append(i)
            raise
        if plain is not value:
            made = [*given] if made is given else made
            made[i] = plain
    return made


def _key(key: object) -> str:
    """A key as the encoder writes it: numbers, booleans and null become strings."""
    try:
        [name] = _encoded({key: None})
    except _NotJsonError as error:
        error.value, error.expected = key, "keys that are strings"
        raise
    return str(name)


def _encoded(value: object) -> Any:
    try:
        return json.loads(sdk.openapi_dumps(value))
    except RecursionError:
        raise
    except Exception as error:  # serializers of pydantic objects are the caller's own code
        raise _NotJsonError(value) from error


def _not_json(name: str, error: _NotJsonError) -> BadRequest:
    path = name + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in reversed(error.path))
    if isinstance(error.__cause__, TypeError):
        return BadRequest.wrong_type(path, error.expected, error.value)
    if isinstance(error.value, float):
        return BadRequest.refused(path, f"JSON has no number {error.value}. Pass a finite one")
    return BadRequest.refused(path, f"it cannot be written as JSON: {error.__cause__}")


def make_request(client: sdk.Client, options: sdk.RequestOptions) -> httpx.Request:
    """Make a request like `sdk.make_request`, also where it holds objects."""
    if not sdk.is_raw(options) or not holds_objects((options.json_data, options.extra_json)):
        return sdk.make_request(client, options)
    bare = sdk.make_request(client, options.model_copy(update={"json_data": None, "extra_json": None}))
    return _LazyRequest(client, options, bare)


class _LazyRequest(httpx.Request):
    """All that the SDK would have sent, with data URLs for objects, which are made when its content is read."""

    def __init__(self, client: sdk.Client, options: sdk.RequestOptions, bare: httpx.Request) -> None:
        super().__init__(bare.method, bare.url, headers=bare.headers, content=_content(client, options))

    @property
    def content(self) -> bytes:
        return self.read()

    async def aread(self) -> bytes:
        return self.read()


def _content(client: sdk.Client, options: sdk.RequestOptions) -> Iterator[bytes]:
    parts = {name: with_data_urls(getattr(options, name), name) for name in ("json_data", "extra_json")}
    yield sdk.make_request(client, options.model_copy(update=parts)).content
