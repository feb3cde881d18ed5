"""Fields of a request that say how its response is delivered: stream, background, storage, and optional parts."""

from __future__ import annotations

from ...errors import BadRequest
from .. import request_fields
from ..fields import Fields
from ..items import includes


def read_delivery(fields: Fields) -> tuple[bool, bool, bool]:
    """Read if the response is streamed, runs in the background, and is stored."""
    stream, background = fields.boolean("stream") or False, fields.boolean("background") or False
    kept = fields.boolean("store")
    if background and kept is False:
        raise BadRequest.invalid(
            "store", "Invalid value for 'store': a response in the background has to be stored to be found again."
        )
    _read_background_options(fields, waits=background and not stream)
    request_fields.stream_options(fields, stream).finish()
    return stream, background, kept is not False


def _read_background_options(fields: Fields, *, waits: bool) -> None:
    """`background_options`: the answer is made as soon as possible, which is within any window."""
    inner = fields.inner("background_options")
    window = inner.choice("completion_window", ("soonest", "2h", "8h"))
    if window not in (None, "soonest") and not waits:
        raise BadRequest.invalid(
            "background_options.completion_window",
            f"Invalid value: '{window}'. 'completion_window' requires 'background' without 'stream'.",
        )
    inner.string("continuation_id")
    inner.finish()


def read_image(fields: Fields) -> None:
    """`image`: how OpenAI may compress the images of a conversation; here none are."""
    inner = fields.inner("image")
    if inner.choice("context_compression", ("auto", "enabled", "disabled")) == "enabled":  # which demands it
        raise BadRequest.unsupported_value("image.context_compression", "Images are not compressed here; pass 'auto'.")
    inner.finish()


def read_include(fields: Fields) -> frozenset[str]:
    value = fields.get("include")
    if isinstance(value, str):  # which a url may have
        raise BadRequest.wrong_type("include", "an array of strings", value)
    return includes.read_include({"include": value})
