"""Batches of files that are added to a vector store together: /vector_stores/{id}/file_batches."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import BadRequest, NotFound
from ...state.store import Json
from ...state.vectors import Held
from ..fields import Fields, as_array, as_strings
from ..paging import check_query, finish
from ..request_fields import new_id, now
from .fields import MAX_FILES, read_attributes, read_strategy
from .library import OWNER, Library, NewFile
from .store_files import attach
from .store_files import list_files as list_stored

Query = Mapping[str, object]


def create(library: Library, fields: Fields, query: Query, id: str) -> Json:
    """POST /vector_stores/{id}/file_batches."""
    check_query(query)
    entries = _read_files(library, fields)
    fields.finish()
    library.find_usable(id)
    batch_id = new_id("vsfb_")
    attach(library, id, entries, (batch_id, {"created_at": now(), "cancelled": False, OWNER: library.ingestion.owner}))
    return _shown(id, batch_id, library.batch(id, batch_id))


def _read_files(library: Library, fields: Fields) -> list[NewFile]:
    """`file_ids` with what holds for all, or `files` with what holds for each."""
    attributes, strategy = read_attributes(fields), read_strategy(fields)
    if fields.has("files") and fields.has("file_ids"):
        raise BadRequest.invalid("files", "Pass one of 'files' and 'file_ids'.")
    made: dict[str, NewFile] = {}
    if fields.has("files"):
        items = as_array("files", fields.get("files"), empty=False, most=MAX_FILES)
        for i, item in enumerate(items):
            with Fields(item, f"files[{i}]") as inner:
                file_id, own, how = inner.word("file_id"), read_attributes(inner), read_strategy(inner)
            made[file_id] = library.new_file(file_id, inner.at("file_id"), how, own)
        return list(made.values())
    ids = as_strings("file_ids", fields.require("file_ids"), empty=False, most=MAX_FILES)
    for i, file_id in enumerate(ids):
        made[file_id] = library.new_file(file_id, f"file_ids[{i}]", strategy, attributes)
    return list(made.values())


def retrieve(library: Library, fields: Fields, query: Query, id: str, batch_id: str) -> Json:
    """GET /vector_stores/{id}/file_batches/{id}."""
    finish(fields, query)
    library.find(id)
    return _shown(id, batch_id, library.batch(id, batch_id))


def cancel(library: Library, fields: Fields, query: Query, id: str, batch_id: str) -> Json:
    """POST /vector_stores/{id}/file_batches/{id}/cancel: files that are embedded stay. It may be called again."""
    finish(fields, query)
    library.find(id)
    return _shown(id, batch_id, library.vectors.cancel_batch(id, batch_id))


def list_files(library: Library, fields: Fields, query: Query, id: str, batch_id: str) -> dict[str, object]:
    """GET /vector_stores/{id}/file_batches/{id}/files."""
    library.find(id)
    _shown(id, batch_id, library.vectors.batch(id, batch_id))
    return list_stored(library, fields, query, id, batch_id)


def _shown(id: str, batch_id: str, held: Held | None) -> Json:
    if held is None:
        message = f"No file batch found with id '{batch_id}' in vector store '{id}'."
        raise NotFound(message, param="batch_id", code="vector_store_file_batch_not_found")
    total = sum(held.counts.values())
    if held.counts["in_progress"]:
        status = "in_progress"
    elif held.body["cancelled"]:
        status = "cancelled"
    else:
        status = "failed" if total and held.counts["failed"] == total else "completed"
    return {
        "id": batch_id,
        "object": "vector_store.files_batch",
        "created_at": held.body["created_at"],
        "vector_store_id": id,
        "status": status,
        "file_counts": {**held.counts, "total": total},
    }
