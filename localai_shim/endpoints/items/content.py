"""Parts of an item's content, checked, with every field that the SDK's types of stored parts demand.

Text that callers hold as `encrypted_content` is written and read here, too.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Sequence

from ...errors import BadRequest
from ...prompt.messages import check_not_bytes
from ...prompt.objects import is_object
from ..fields import Fields, as_array, given

INPUT = ("input_audio", "input_video", "input_text", "input_image", "input_file")
OUTPUT = ("output_text", "refusal")

_DETAILS = ("low", "high", "auto", "original")
_URLS = ("data:", "http://", "https://", "file://", "/", "./", "../")  # and paths of files
MAX_INTEGER = 2**53
_ANNOTATIONS = {
    "file_citation": ("file_id", "filename", "index"),
    "url_citation": ("url", "title", "start_index", "end_index"),
    "container_file_citation": ("container_id", "file_id", "filename", "start_index", "end_index"),
    "file_path": ("file_id", "index"),
}
"""Type -> its fields: each index is a number, all others are strings."""


def content(fields: Fields, name: str, kinds: Sequence[str]) -> str | list[dict[str, object]]:
    """Content that may be a string, or parts of some kinds.

    Raises:
        BadRequest: it is neither, or a part is wrong.
    """
    value = fields.require(name)
    if isinstance(value, str):
        return fields.text(name)
    check_not_bytes(as_array(fields.at(name), value, "one of a string or array of objects"), fields.at(name))
    return parts(fields, name, kinds)


def parts(fields: Fields, name: str, kinds: Sequence[str]) -> list[dict[str, object]]:
    """Content that is an array of parts of some kinds.

    Raises:
        BadRequest: it is not, or a part is wrong.
    """
    return [_part(part, f"{fields.at(name)}[{i}]", kinds) for i, part in enumerate(fields.array(name))]


def output_text(text: str) -> dict[str, object]:
    """A part of the model's output."""
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def input_text(text: str) -> dict[str, object]:
    """A part of the model's input."""
    return {"type": "input_text", "text": text}


def _part(part: object, path: str, kinds: Sequence[str]) -> dict[str, object]:
    with Fields(part, path) as fields:
        kind = fields.option("type", kinds)
        return {"type": kind, **_READERS[kind](fields), **(_breakpoint(fields) if kind in INPUT else {})}


def _text(fields: Fields) -> dict[str, object]:
    return {"text": fields.text("text")}


def _refusal(fields: Fields) -> dict[str, object]:
    return {"refusal": fields.text("refusal")}


def _output_text(fields: Fields) -> dict[str, object]:
    fields.get("parsed")  # `responses.parse` adds it to the answer
    out = output_text(fields.text("text"))
    if fields.has("annotations"):
        out["annotations"] = _each(fields, "annotations", _annotation)
    if fields.has("logprobs"):
        out["logprobs"] = _each(fields, "logprobs", _logprob)
    return out


def _input_image(fields: Fields) -> dict[str, object]:
    url, file_id = _source(fields, "image_url"), fields.string("file_id")
    if url is None and file_id is None:
        raise BadRequest.missing(fields.at("image_url"))
    if url is not None and file_id is not None:
        raise BadRequest.mutually_exclusive([fields.at("image_url"), fields.at("file_id")])
    if isinstance(url, str) and not url.lower().startswith(_URLS):
        raise BadRequest.invalid(
            fields.at("image_url"),
            f"Invalid '{fields.at('image_url')}'. Expected a valid URL, but got a value with an invalid format.",
        )
    detail = fields.choice("detail", _DETAILS) or "auto"
    return {"detail": detail, **given(image_url=url, file_id=file_id)}


def _source(fields: Fields, name: str) -> object:
    """A string, or what may replace it: see `prompt.objects`."""
    value = fields.get(name)
    return value if is_object(value) else fields.string(name)


def _input_audio(fields: Fields) -> dict[str, object]:
    fields.require("input_audio")
    with fields.inner("input_audio") as inner:
        inner.require("data")
        out = {"data": _source(inner, "data"), **given(format=inner.string("format"))}
    return {"input_audio": out}


def _input_video(fields: Fields) -> dict[str, object]:
    """Read a video as mlx-vlm's server takes it: a URL, or a list of frames."""
    value = fields.require("video_url")
    if not is_object(value) and not isinstance(value, list | tuple):
        value = fields.text("video_url")
    fps = fields.number("fps", 0, 1000)
    detail = fields.choice("detail", _DETAILS)
    return {"video_url": value, **given(fps=fps, detail=detail)}


def _input_file(fields: Fields) -> dict[str, object]:
    found = given(
        file_data=_source(fields, "file_data"), file_id=fields.string("file_id"), file_url=fields.string("file_url")
    )
    if not found:
        raise BadRequest.missing(fields.at("file_data"))
    if len(found) > 1:
        raise BadRequest.mutually_exclusive(list(map(fields.at, found)))
    rest = {"filename": fields.string("filename"), "detail": fields.choice("detail", _DETAILS[:3])}
    return {**found, **given(**rest)}


def _breakpoint(fields: Fields) -> dict[str, object]:
    """A hint to OpenAI's prompt cache: stored with the item, but the local cache does not need it."""
    name = "prompt_cache_breakpoint"
    if not fields.has(name):
        return {}
    with fields.inner(name) as hint:
        out = {"mode": hint.option("mode", ("explicit",)), **given(ttl=hint.choice("ttl", ("30m", "12h")))}
    return {name: out}


def _each(fields: Fields, name: str, read: Callable[[Fields], dict[str, object]]) -> list[dict[str, object]]:
    out = []
    for i, value in enumerate(fields.array(name)):
        with Fields(value, f"{fields.at(name)}[{i}]") as inner:
            out.append(read(inner))
    return out


def _annotation(fields: Fields) -> dict[str, object]:
    kind = fields.option("type", tuple(_ANNOTATIONS))
    out: dict[str, object] = {"type": kind}
    for name in _ANNOTATIONS[kind]:
        out[name] = _integer(fields, name) if name.endswith("index") else fields.text(name)
    return out


def _logprob(fields: Fields) -> dict[str, object]:
    return {**_token(fields), "top_logprobs": _each(fields, "top_logprobs", _token)}


def _token(fields: Fields) -> dict[str, object]:
    fields.require("logprob")
    logprob = fields.number("logprob", -MAX_INTEGER, MAX_INTEGER)
    values = fields.array("bytes")
    for i, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadRequest.wrong_type(f"{fields.at('bytes')}[{i}]", "an integer", value)
    return {"token": fields.text("token"), "logprob": logprob, "bytes": values}


def _integer(fields: Fields, name: str) -> int:
    fields.require(name)
    return fields.integer(name, 0, MAX_INTEGER) or 0


_READERS: dict[str, Callable[[Fields], dict[str, object]]] = {
    "input_text": _text,
    "input_image": _input_image,
    "input_file": _input_file,
    "input_audio": _input_audio,
    "input_video": _input_video,
    "output_text": _output_text,
    "refusal": _refusal,
    "summary_text": _text,
    "reasoning_text": _text,
}


_MARK = b"localai1"


def seal(text: str) -> str:
    """The text as an opaque string: reasoning and summaries that the caller holds, and sends back.

    It is compressed, not encrypted: a local process does not have to hide it. So a conversation that is not stored can
    be sent back whole.
    """
    packed = zlib.compress(text.encode(errors="replace"))
    return base64.urlsafe_b64encode(_MARK + packed).decode()


def unseal(content: str) -> str | None:
    """The text that `seal` was given; None if something else made the content."""
    try:
        packed = base64.urlsafe_b64decode(content)
        if not packed.startswith(_MARK):
            return None
        return zlib.decompress(packed[len(_MARK) :]).decode()
    except (ValueError, binascii.Error, zlib.error):
        return None
