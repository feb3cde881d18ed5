"""Files that were uploaded, or that batches have made: POST /files, GET and DELETE /files/{id}, their content and list.

Shapes follow OpenAI's API reference (https://platform.openai.com/docs/api-reference/files) and the SDK's types.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Final

from ..errors import BadRequest, NotFound
from ..prompt.messages import encodable
from ..state.store import Json, Kind, MissingError, Store
from ..state.vectors import remove_everywhere
from .fields import Fields, as_integer
from .paging import Query, check_query, finish, list_object, read_paging, stored_list, url_value
from .request_fields import new_id, now

KIND: Final = "file"
CONTENT = "content"
"""The part of a stored file that holds its pieces, each a JSON object with `text`."""

PURPOSES = ("assistants", "batch", "user_data", "vision")
"""Purposes of uploads. There is no fine-tuning, and there are no evals."""

_PIECE_BYTES = 256 * 2**10
_MAX_LISTED = 10_000
MAX_FILE_BYTES = 512 * 2**20
_ANY_BYTES = "surrogateescape"  # the error handler that lets text stand for bytes of any kind


def create(store: Store, fields: Fields, query: Query) -> Json:
    """POST /files: the content comes as `file`, as the SDK's multipart bodies have it."""
    check_query(query)
    purpose, expires_at = fields.text("purpose"), read_expiry(fields, "expires_after")
    name, content = read_upload(fields.require("file"))
    fields.finish()
    if purpose not in PURPOSES:
        raise BadRequest.unknown_value("purpose", purpose, PURPOSES)
    body = describe(name, len(content), purpose, expires_at)
    pieces = (
        content[start : start + _PIECE_BYTES].decode("utf-8", _ANY_BYTES)
        for start in range(0, len(content), _PIECE_BYTES)
    )
    store.save(KIND, body["id"], body, numbered={CONTENT: enumerate({"text": piece} for piece in pieces)})
    return body


def retrieve(store: Store, fields: Fields, query: Query, id: str) -> Json:
    """GET /files/{id}."""
    finish(fields, query)
    return find(store, id)


def content(store: Store, fields: Fields, query: Query, id: str) -> bytes:
    """GET /files/{id}/content."""
    finish(fields, query)
    find(store, id)
    return b"".join(read_pieces(store, KIND, id, CONTENT))


def delete(store: Store, fields: Fields, query: Query, id: str) -> Json:
    """DELETE /files/{id}. Batches that were made of it continue; vector stores lose it."""
    finish(fields, query)
    find(store, id)
    store.delete(KIND, id)
    remove_everywhere(store, id)
    return {"id": id, "object": "file", "deleted": True}


def list_files(store: Store, fields: Fields, query: Query) -> dict[str, object]:
    """GET /files: newest first unless the caller asks otherwise."""
    fields.finish()
    purpose = Fields(query).string("purpose")
    paging = read_paging(query, default_order="desc", others=("purpose",), largest=_MAX_LISTED, default=_MAX_LISTED)

    def wanted(body: Json) -> bool:
        return purpose in (None, body["purpose"]) and not _has_expired(body)

    return list_object(stored_list(store, KIND, paging, item="File", where=wanted))


# -- for batches and prompts ------------------------------------------------------------------------------------------


def describe(name: str, size: int, purpose: str, expires_at: int | None) -> Json:
    """The JSON of a new file.

    Args:
        name: of the file.
        size: in bytes.
        purpose: one of `PURPOSES`, or "batch_output".
        expires_at: seconds since 1970; None: it stays.
    """
    return {
        "id": new_id("file-"),
        "object": "file",
        "bytes": size,
        "created_at": now(),
        "expires_at": expires_at,
        "filename": name,
        "purpose": purpose,
        "status": "processed",
        "status_details": None,
    }


def find(store: Store, id: str) -> Json:
    """A file's JSON; one that has expired is removed.

    Raises:
        NotFound: there is none.
    """
    body = store.get(KIND, id)
    if body is not None and _has_expired(body):
        store.delete(KIND, id)
        body = None
    if body is None:
        raise NotFound(f"No such File object: {id}", param="id", code="file_not_found")
    return body


def read_whole(store: Callable[[], Store], id: str, path: str) -> tuple[str, bytes]:
    """Name and content of a file.

    Args:
        store: where files are.
        path: the field that names it.

    Raises:
        NotFound: there is no such file.
    """
    try:
        body = find(store(), id)
    except NotFound as error:
        raise NotFound(error.message, param=path, code=error.code) from None
    return str(body["filename"]), b"".join(read_pieces(store(), KIND, id, CONTENT))


def read_pieces(store: Store, kind: Kind, id: str, part: str) -> Iterator[bytes]:
    """The content of a file in pieces; it ends early if the file is deleted."""
    at = -1
    while True:
        try:
            found = store.numbered(kind, id, part, after=at, limit=1)
        except MissingError:
            return
        if not found:
            return
        [(at, item)] = found
        yield item["text"].encode("utf-8", _ANY_BYTES)


def read_expiry(fields: Fields, name: str) -> int | None:
    """`expires_after`: the time in seconds since 1970, from an hour to 30 days from now; None: never."""
    if fields.get(name) is None:
        return None
    with fields.inner(name) as inner:
        inner.option("anchor", ("created_at",))
        seconds = as_integer(f"{name}.seconds", url_value(inner.require("seconds")), 3600, 2_592_000)
    return None if seconds is None else now() + seconds


def read_upload(
    value: object, most: int = MAX_FILE_BYTES, limit: str = "at most 512 MiB are kept"
) -> tuple[str, bytes]:
    """Name and content of what was uploaded as `file`: bytes, an open file, or a tuple of a name and one of these.

    Args:
        value: as the SDK passes it.
        most: bytes that it may have.
        limit: says so in the error.

    Raises:
        BadRequest: it is nothing of this, too large, or a file that cannot be read.
    """
    name: object = None
    if isinstance(value, tuple | list) and len(value) >= 2:
        name, value = value[0], value[1]
    if name is None:
        name = os.path.basename(str(getattr(value, "name", "upload")))
    if hasattr(value, "read"):
        value = _read_open(value)
    if isinstance(value, str):
        value = value.encode("utf-8", _ANY_BYTES)
    if not isinstance(value, bytes | bytearray | memoryview):
        raise BadRequest.wrong_type("file", "bytes, an open file, or a tuple of a name and one of these", value)
    if len(value) > most:
        raise BadRequest(f"Invalid 'file': it has {len(value)} bytes, and {limit}.", param="file")
    return encodable(str(name), "file"), bytes(value)


def _read_open(file: Any) -> object:
    """Content of an open file, from its start."""
    try:
        if hasattr(file, "seek") and file.seekable():
            file.seek(0)  # as a transport would, which a retry makes read it again
        return file.read()
    except UnicodeDecodeError:
        raise BadRequest.refused("file", "it is open as text; open it with mode 'rb'") from None
    except ValueError as error:  # it is closed, or open for writing alone
        raise BadRequest.refused("file", f"it cannot be read ({error}); pass a file that is open with 'rb'") from None


# ---------------------------------------------------------------------------------------------------------------------


def _has_expired(body: Json) -> bool:
    return body["expires_at"] is not None and body["expires_at"] <= now()
