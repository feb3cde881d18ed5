"""The lines of a batch's files: requests as they are read and checked, answers as they are written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...errors import listed
from ...state.store import Json
from ..request_fields import new_id

_ID = "batch_req_"
_KEYS = {"custom_id": str, "method": str, "url": str, "body": dict}
ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
"""Endpoints that the lines of a batch may ask for."""


def usage_json(read: int = 0, cached: int = 0, written: int = 0, reasoning: int = 0) -> Json:
    """`batch.usage` of these numbers of tokens."""
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": read + written,
    }


NO_USAGE = usage_json()


class Line(NamedTuple):
    """A request of a batch."""

    number: int
    """Of the line in its file, from 1."""
    custom_id: str
    url: str
    """Such as /v1/chat/completions."""
    body: Json


class Answered(NamedTuple):
    """Answer to a line, or its error."""

    line: Line
    text: str
    """The line of the output file, or of the error file; JSON, without an end of line."""
    ok: bool
    model: str | None = None
    """Name of the model that answered."""
    usage: Json = NO_USAGE


class InvalidLine(Exception):
    """A line that is not a request, in the terms of `batch.errors`."""

    def __init__(self, number: int | None, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.number, self.code, self.message, self.param = number, code, message, param

    def to_json(self) -> Json:
        """An entry of `batch.errors.data`."""
        return {"code": self.code, "line": self.number, "message": self.message, "param": self.param}


def split_lines(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a file and their numbers from 1, without those that are blank.

    Args:
        pieces: of its content; they end anywhere.
    """
    number, rest = 0, b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            number += 1
            if line.strip():
                yield number, line
    if rest.strip():
        yield number + 1, rest


def read_line(number: int, raw: bytes | str, endpoint: str | None) -> Line:
    """A request.

    Args:
        number: of the line.
        raw: its JSON.
        endpoint: the batch's; None: any will do.

    Raises:
        InvalidLine: it is none.
    """
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        raise InvalidLine(number, "invalid_json_line", "This line is not parseable as valid JSON.") from None
    if not isinstance(value, dict):
        raise InvalidLine(number, "invalid_json_line", "This line is not a JSON object.")
    for name in _KEYS:
        if value.get(name) is None:
            raise InvalidLine(number, "missing_required_parameter", f"Missing required parameter: '{name}'.", name)
    for name, kind in _KEYS.items():
        if not isinstance(value[name], kind):
            what = "an object" if kind is dict else "a string"
            raise InvalidLine(number, "invalid_type", f"Invalid type for '{name}': expected {what}.", name)
    for name in value:
        if name not in _KEYS and value[name] is not None:
            message = f"Unknown parameter: '{name}'. A line has {listed(_KEYS)}; fields of the request go into 'body'."
            raise InvalidLine(number, "unknown_parameter", message, name)
    if value["method"] != "POST":
        message = f"Invalid value: {value['method']!r}. Supported values are: 'POST'."
        raise InvalidLine(number, "invalid_value", message, "method")
    url = value["url"]
    if endpoint not in (None, url):
        message = f"The url '{url}' of this request is not the endpoint of the batch, '{endpoint}'."
        raise InvalidLine(number, "url_mismatch", message, "url")
    if url not in ENDPOINTS:
        raise InvalidLine(number, "invalid_url", f"Supported values are: {listed(ENDPOINTS)}.", "url")
    return Line(number, value["custom_id"], url, value["body"])


def read_lines(lines: Iterable[tuple[int, bytes | str]], endpoint: str | None) -> Iterator[Line | InvalidLine]:
    """The requests of a file, with an error instead of each invalid one."""
    seen: set[str] = set()
    for number, raw in lines:
        try:
            line = read_line(number, raw, endpoint)
            if line.custom_id in seen:
                message = (
                    f"The custom_id '{line.custom_id}' is that of an earlier line: each must be unique in a batch."
                )
                raise InvalidLine(number, "duplicate_custom_id", message, "custom_id")
        except InvalidLine as error:
            yield error
        else:
            seen.add(line.custom_id)
            yield line


def answer_text(custom_id: str | None, status: int, request_id: str, body: bytes) -> str:
    """A line for what has been answered, or refused, as an HTTP response would be.

    Args:
        custom_id: of the request.
        status: of the response.
        request_id: of the response's headers.
        body: of the response; JSON.
    """
    response = f'{{"status_code":{status},"request_id":{json.dumps(request_id)},"body":{body.decode()}}}'
    return f'{{"id":"{new_id(_ID)}","custom_id":{json.dumps(custom_id)},"response":{response},"error":null}}'


def error_text(custom_id: str | None, code: str, message: str) -> str:
    """The line of the error file for a request without a response."""
    error = {"code": code, "message": message}
    return json.dumps({"id": new_id(_ID), "custom_id": custom_id, "response": None, "error": error})
