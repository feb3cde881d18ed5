"""Sources of a part's content: data URLs, files, the network, or objects that the program hands in."""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
import urllib.parse
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from ...errors import BadRequest
from ...media import MediaKind, MediaRules
from ...threads.panics import is_shortage
from .pictures import media_type
from .remote import fetch
from .sounds import is_sound
from .videos import is_video

SourceKind = MediaKind | Literal["file"]
MAX_FILE_BYTES: dict[SourceKind, int] = {"image": 64 << 20, "audio": 64 << 20, "video": 256 << 20, "file": 64 << 20}
"""OpenAI takes 50 MB in one request. A video goes through a temporary file."""

_PIECE_CHARACTERS = 1 << 19
_TAIL_CHARACTERS = 1 << 10
_MAX_PATH_CHARS = 4096  # characters
_SHOWN_CHARACTERS = 80
_PLAIN_DIGITS = bytes.maketrans(b"-_", b"+/")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):")
_KNOWN: dict[SourceKind, Callable[[bytes], object]] = {
    "image": media_type,
    "audio": is_sound,
    "video": is_video,
    "file": lambda data: False,  # a URL; base64 is in another field
}
_IMAGE_CODES = {
    "url": "invalid_image_url",
    "base64": "invalid_base64_image",
    "size": "image_file_too_large",
    "file": "image_file_not_found",
}


def read_source(value: object, path: str, kind: SourceKind, rules: MediaRules) -> bytes:
    """The bytes of an image, sound, video or other file; none where a file or URL is still to be read, see `Contents`.

    Args:
        value: a string from the request (`data:` URL, base64, URL, or the path of a file), which may read only what
            `rules` allow; or bytes or a `pathlib.Path`, which only the program itself can hand in: any file will do.
        path: the field that it came from.

    Raises:
        BadRequest: it cannot or may not be read, or is longer than `MAX_FILE_BYTES`.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return _limited(bytes(value), path, kind)
    if isinstance(value, Path):
        return rules.read((kind, value), partial(read_file, value, path, kind))
    if not isinstance(value, str):
        raise BadRequest.wrong_type(path, "a string", value)
    text = value.strip()
    if not text:
        raise BadRequest.empty_string(path)
    scheme = match[1].lower() if (match := _SCHEME.match(text[:32])) else ""
    if scheme == "data":
        return _data_url(text, path, kind)
    if scheme in ("http", "https"):
        if not rules.remote:
            why = "URLs are fetched only if the client has allow_remote_images=True; send a data: URL"
            raise _refuse(path, kind, why)
        return rules.read((kind, text), partial(fetch, text, path, MAX_FILE_BYTES[kind], code=_code(kind, "url")))
    if scheme not in ("", "file"):
        raise _refuse(path, kind, f"{scheme}: URLs are not read; send a data: URL")
    data = None if scheme else _raw_base64(text, kind, rules)
    if data is not None:
        return _limited(data, path, kind)
    return rules.read((kind, text), partial(_allowed_file, text, path, kind, rules))


def read_data(value: object, path: str) -> tuple[str | None, bytes]:
    """Media type and content of a file that travels with the request: a `data:` URL, base64, or bytes.

    Args:
        path: the field that it came from.

    Raises:
        BadRequest: it is none of these, or is longer than `MAX_FILE_BYTES`.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return None, _limited(bytes(value), path, "file")
    if not isinstance(value, str):
        raise BadRequest.wrong_type(path, "a string", value)
    text = value.strip()
    if not text:
        raise BadRequest.empty_string(path)
    if text[:5].lower() == "data:":
        return text[5:300].partition(",")[0].removesuffix(";base64") or None, _data_url(text, path, "file")
    if len(text) > 2 * MAX_FILE_BYTES["file"]:
        raise _too_long(path, "file")
    data = _decoded(text)
    if data is None:
        raise _refuse(path, "file", "it is neither base64 nor a data: URL, such as 'data:text/plain;base64,SGk='")
    return None, _limited(data, path, "file")


def _data_url(text: str, path: str, kind: SourceKind) -> bytes:
    """The data of a data: URL. Its media type is ignored: the content says what it is, and callers err."""
    comma = text.find(",")
    if comma < 0:
        raise _refuse(path, kind, "a data: URL has a comma before its content, as in 'data:image/png;base64,iVBOR...'")
    if len(text) - comma > 4 * MAX_FILE_BYTES[kind]:
        raise _too_long(path, kind)
    if re.search(r";\s*base64\s*$", text[:comma], re.IGNORECASE) is None:
        return _limited(urllib.parse.unquote_to_bytes(text[comma + 1 :]), path, kind)
    if text.find("%", comma) >= 0:
        text = text[: comma + 1] + urllib.parse.unquote(text[comma + 1 :])
    data = _decoded(text, comma + 1)
    if data is None:
        raise _refuse(path, kind, "the part after the comma of the data: URL is not base64", "base64")
    return _limited(data, path, kind)


def _raw_base64(text: str, kind: SourceKind, rules: MediaRules) -> bytes | None:
    """The content, if the text is base64 of a format that is known, or cannot be a path; None if it may be one."""
    beginning = _decoded("".join(text[:64].split())[:40])
    no_path = rules.folder is None and (kind == "audio" or len(text) > _MAX_PATH_CHARS)  # `input_audio` takes no URLs
    return _decoded(text) if no_path or (beginning is not None and _KNOWN[kind](beginning)) else None


def _decoded(text: str, start: int = 0) -> bytes | None:
    """Base64 from `start` on, with or without its padding, with or without whitespace, of either alphabet.

    In pieces, since other threads cannot run during any of these steps.
    """
    tail = text[max(start, len(text) - _TAIL_CHARACTERS) :]
    end = len(text) - len(tail) + len(tail.rstrip("= \t\r\n\f\v"))
    pieces, rest = [], b""
    try:
        for at in range(start, end, _PIECE_CHARACTERS):
            piece = text[at : min(at + _PIECE_CHARACTERS, end)].encode("ascii")
            digits = rest + piece.translate(_PLAIN_DIGITS, b" \t\r\n\f\v")
            whole = len(digits) // 4 * 4
            pieces.append(base64.b64decode(digits[:whole], validate=True))
            rest = digits[whole:]
        pieces.append(base64.b64decode(rest + b"=" * (-len(rest) % 4), validate=True))
    except (UnicodeEncodeError, binascii.Error):
        return None
    return b"".join(pieces)


def _allowed_file(text: str, path: str, kind: SourceKind, rules: MediaRules) -> bytes:
    """A file that the request names, if it is below the folder that the client allows."""
    if rules.folder is None:
        why = "it is not a data: URL, and files are read only below the folder that the client has as allow_local_files"
        raise _refuse(path, kind, why)
    root = Path(os.path.realpath(rules.folder))
    try:
        name = _url_path(text) if text[:5].lower() == "file:" else text
        found = Path(os.path.realpath(root / name))  # of an absolute name, that
    except (ValueError, OSError):
        raise _refuse(path, kind, "it is not the path of a file") from None
    if not found.is_relative_to(root):
        raise _refuse(path, kind, "the file is not below the folder that the client has as allow_local_files")
    return read_file(found, path, kind)


def _url_path(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise ValueError(url)
    return urllib.request.url2pathname(parts.path)


def read_file(file: Path, path: str, kind: SourceKind) -> bytes:
    """The bytes of a regular file.

    Raises:
        BadRequest: it is none, cannot be read, or is longer than `MAX_FILE_BYTES`.
    """
    name = file.name[:_SHOWN_CHARACTERS]
    try:
        # A pipe would block, and what is not a regular file has no length.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _refuse(path, kind, f"{name!r} is not a regular file", "file")
            return _limited(opened.read(MAX_FILE_BYTES[kind] + 1), path, kind)
    except (OSError, ValueError) as error:
        if is_shortage(error):
            raise
        why = getattr(error, "strerror", None) or str(error)
        raise _refuse(path, kind, f"the file {name!r} cannot be read: {why}", "file") from None


def _limited(data: bytes, path: str, kind: SourceKind) -> bytes:
    if len(data) > MAX_FILE_BYTES[kind]:
        raise _too_long(path, kind)
    return data


def _too_long(path: str, kind: SourceKind) -> BadRequest:
    most = f"{MAX_FILE_BYTES[kind] >> 20} MiB, the most that is read of one {kind}"
    return _refuse(path, kind, f"it has more than {most}", "size")


def _code(kind: SourceKind, fault: str) -> str:
    return _IMAGE_CODES[fault] if kind == "image" else "invalid_value"


def _refuse(path: str, kind: SourceKind, why: str, fault: str = "url") -> BadRequest:
    return BadRequest.refused(path, why, _code(kind, fault))
