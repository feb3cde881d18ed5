"""The files of a vector store: /vector_stores/{id}/files, /vector_stores/{id}/files/{id}, and their content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import NotFound
from ...state.store import Json, MissingError
from ...state.vectors import STATES
from ..fields import Fields
from ..paging import check_query, finish
from ..request_fields import now
from .fields import read_attributes, read_strategy
from .library import Library, NewFile, unknown_store
from .pages import read_range, unknown_start

Query = Mapping[str, object]


def create(library: Library, fields: Fields, query: Query, id: str) -> Json:
    """POST /vector_stores/{id}/files: a file that is there already is embedded again."""
    check_query(query)
    file_id, attributes, strategy = fields.word("file_id"), read_attributes(fields), read_strategy(fields)
    fields.finish()
    library.find_usable(id)
    attach(library, id, [library.new_file(file_id, "file_id", strategy, attributes)])
    return _found(library, id, file_id)


def attach(library: Library, id: str, entries: Sequence[NewFile], batch: tuple[str, Json] | None = None) -> None:
    """Add files to a vector store, and let them be embedded.

    Raises:
        NotFound: there is no such vector store.
    """
    if not entries:
        return
    library.ingestion.check()
    try:
        numbers = library.vectors.attach(id, entries, owner=library.ingestion.owner, batch=batch)
    except MissingError:
        raise unknown_store(id) from None
    library.vectors.update(id, lambda body: {**body, "last_active_at": now()})
    library.ingestion.start(numbers)


def retrieve(library: Library, fields: Fields, query: Query, id: str, file_id: str) -> Json:
    """GET /vector_stores/{id}/files/{id}."""
    finish(fields, query)
    return _found(library, id, file_id)


def update(library: Library, fields: Fields, query: Query, id: str, file_id: str) -> Json:
    """POST /vector_stores/{id}/files/{id}: new attributes; null removes them."""
    check_query(query)
    attributes = read_attributes(fields)
    if not fields.is_null("attributes"):
        fields.require("attributes")
    fields.finish()
    library.find_usable(id)
    body = library.vectors.update_file(id, file_id, lambda body: {**body, "attributes": attributes})
    if body is None:
        raise _unknown(id, file_id)
    return shown(id, body)


def delete(library: Library, fields: Fields, query: Query, id: str, file_id: str) -> Json:
    """DELETE /vector_stores/{id}/files/{id}. It stays in `client.files`."""
    finish(fields, query)
    library.find(id)
    if not library.vectors.remove_file(id, file_id):
        raise _unknown(id, file_id)
    return {"id": file_id, "object": "vector_store.file.deleted", "deleted": True}


def list_files(library: Library, fields: Fields, query: Query, id: str, batch: str | None = None) -> dict[str, object]:
    """GET /vector_stores/{id}/files: newest first; all, or those with one status."""
    fields.finish()
    status = Fields(query).choice("filter", STATES)
    wanted = read_range(query, ("filter",))
    library.find(id)
    try:
        page = library.vectors.files(
            id, batch=batch, status=status, after=wanted.start, limit=wanted.limit, descending=wanted.descending
        )
    except MissingError:
        raise unknown_start("File", wanted) from None
    return wanted.page([shown(id, body) for body in page.data], page.has_more)


def content(library: Library, fields: Fields, query: Query, id: str, file_id: str) -> dict[str, object]:
    """GET /vector_stores/{id}/files/{id}/content: the text that was read of it."""
    finish(fields, query)
    library.find(id)
    body = library.file(id, file_id)
    if body is None:
        raise _unknown(id, file_id)
    texts = library.vectors.texts_of(id, file_id) or []
    return {
        "object": "vector_store.file_content.page",
        "file_id": file_id,
        "filename": body["filename"],
        "attributes": body["attributes"] or {},
        "data": [{"type": "text", "text": text} for text in texts],
        "has_more": False,
        "next_page": None,
    }


def shown(id: str, body: Json) -> Json:
    """A file as callers see it."""
    return {
        "id": body["id"],
        "object": "vector_store.file",
        "created_at": body["created_at"],
        "usage_bytes": body["usage"],
        "vector_store_id": id,
        "status": body["status"],
        "last_error": body["last_error"],
        "attributes": body["attributes"] or {},
        "chunking_strategy": body["chunking_strategy"],
    }


def _found(library: Library, id: str, file_id: str) -> Json:
    library.find(id)
    body = library.file(id, file_id)
    if body is None:
        raise _unknown(id, file_id)
    return shown(id, body)


def _unknown(id: str, file_id: str) -> NotFound:
    message = f"No file found with id '{file_id}' in vector store '{id}'."
    return NotFound(message, param="file_id", code="file_not_found")
