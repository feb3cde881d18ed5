"""Files of requests for transcriptions, as tests and cassettes know them."""

from __future__ import annotations

import hashlib
from typing import Any

from ...endpoints.files import read_upload
from ...types import Json

MAX_BYTES = 2**31


def read_again(value: Any) -> tuple[str, bytes] | None:
    """Name and content of a file that its endpoint has read; None: it can be read once only, as a pipe."""
    source = value[1] if isinstance(value, tuple | list) and len(value) > 1 else value
    if hasattr(source, "read") and not (hasattr(source, "seek") and source.seekable()):
        return None
    return read_upload(value, MAX_BYTES)


def describe(value: object) -> Json:
    """A file as plain JSON: its name, the number of its bytes, and their SHA-256."""
    found = read_again(value)
    if found is None:
        return {"name": "", "bytes": None, "sha256": None}
    name, content = found
    return {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
