"""POST and GET /vector_stores, /vector_stores/{id}, and the search in one."""

from __future__ import annotations

from collections.abc import Mapping

from ...state.store import Json, MissingError
from ...state.vectors import Held
from ..fields import Fields, as_strings
from ..paging import check_query, finish
from ..request_fields import new_id, now, read_metadata
from .fields import MAX_FILES, expires_at, read_expiry, read_queries, read_strategy, read_wanted
from .library import Library, Result, has_expired, unknown_store
from .pages import read_range, unknown_start
from .store_files import attach

Query = Mapping[str, object]


def create(library: Library, fields: Fields, query: Query) -> Json:
    """POST /vector_stores."""
    check_query(query)
    name, description = fields.string("name"), fields.string("description")
    metadata, expiry, strategy = read_metadata(fields), read_expiry(fields), read_strategy(fields)
    given = fields.get("file_ids")
    ids = [] if given is None else as_strings("file_ids", given, most=MAX_FILES)
    fields.finish()
    library.ingestion.check()
    created = now()
    body: Json = {
        "created_at": created,
        "name": name or "",
        "description": description,
        "metadata": metadata,
        "expires_after": expiry,
        "last_active_at": created,
    }
    id = new_id("vs_")
    entries = [library.new_file(file, f"file_ids[{i}]", strategy, None) for i, file in enumerate(dict.fromkeys(ids))]
    library.vectors.create(id, body)
    attach(library, id, entries)
    return shown(id, library.find(id))


def retrieve(library: Library, fields: Fields, query: Query, id: str) -> Json:
    """GET /vector_stores/{id}."""
    finish(fields, query)
    return shown(id, library.find(id))


def update(library: Library, fields: Fields, query: Query, id: str) -> Json:
    """POST /vector_stores/{id}: the fields that are there; null removes them."""
    check_query(query)
    read = {
        "name": fields.string("name") or "",
        "metadata": read_metadata(fields),
        "expires_after": read_expiry(fields),
    }
    changes = {name: value for name, value in read.items() if fields.has(name) or fields.is_null(name)}
    fields.finish()
    library.find_usable(id)
    held = library.vectors.update(id, lambda body: {**body, **changes, "last_active_at": now()})
    if held is None:
        raise unknown_store(id)
    return shown(id, held)


def delete(library: Library, fields: Fields, query: Query, id: str) -> Json:
    """DELETE /vector_stores/{id}. Its files stay in `client.files`."""
    finish(fields, query)
    if not library.vectors.delete(id):
        raise unknown_store(id)
    return {"id": id, "object": "vector_store.deleted", "deleted": True}


def list_stores(library: Library, fields: Fields, query: Query) -> dict[str, object]:
    """GET /vector_stores: newest first."""
    fields.finish()
    wanted = read_range(query)
    try:
        found, has_more = library.vectors.list(after=wanted.start, limit=wanted.limit, descending=wanted.descending)
    except MissingError:
        raise unknown_start("Vector store", wanted) from None
    return wanted.page([shown(*each) for each in found], has_more)


def search(library: Library, fields: Fields, query: Query, id: str) -> dict[str, object]:
    """POST /vector_stores/{id}/search."""
    check_query(query)
    queries = read_queries(fields)
    fields.boolean("rewrite_query")  # a query is searched as it is
    wanted = read_wanted(
        {name: fields.get(name) for name in ("max_num_results", "ranking_options", "filters")},
    )
    fields.finish()
    held = library.find_usable(id)
    library.use(id, held)
    return {
        "object": "vector_store.search_results.page",
        "search_query": queries,
        "data": [_result(each) for each in library.search([id], queries, wanted)],
        "has_more": False,
        "next_page": None,
    }


def shown(id: str, held: Held) -> Json:
    """A vector store as callers see it."""
    body = held.body
    status = "expired" if has_expired(body) else "in_progress" if held.counts["in_progress"] else "completed"
    return {
        "id": id,
        "object": "vector_store",
        **{name: body[name] for name in ("created_at", "name", "description", "metadata", "last_active_at")},
        "usage_bytes": held.usage,
        "file_counts": {**held.counts, "total": sum(held.counts.values())},
        "status": status,
        "expires_after": body["expires_after"],
        "expires_at": expires_at(body),
    }


def _result(found: Result) -> Json:
    return {
        "file_id": found.file_id,
        "filename": found.filename,
        "score": found.score,
        "attributes": found.attributes or {},
        "content": [{"type": "text", "text": found.text}],
    }
