"""Requests about batches: create, retrieve, list, cancel.

Shapes follow OpenAI's API reference (https://platform.openai.com/docs/api-reference/batch) and the SDK's types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import BadRequest, NotFound
from ...state.errors import MissingError
from ...state.store import Json, Page, Store
from .. import files
from ..fields import Fields
from ..paging import Query, check_query, finish, found, list_object, read_paging, stored_list
from ..request_fields import new_id, now, read_metadata
from .lines import ENDPOINTS
from .runner import KIND, LOCAL, UNFINISHED, failed

if TYPE_CHECKING:
    from .runner import Batches

_WINDOW_SECONDS = 24 * 3600
_TIMES = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")


def create(store: Store, batches: Batches, fields: Fields, query: Query) -> Json:
    """POST /batches."""
    check_query(query)
    file_id = fields.text("input_file_id")
    endpoint = fields.option("endpoint", ENDPOINTS)
    fields.option("completion_window", ("24h",))
    metadata = read_metadata(fields)
    expires_at = files.read_expiry(fields, "output_expires_after")
    progress = fields.boolean("progress") or False
    fields.finish()
    _check_file(store, file_id)
    created = now()
    body: Json = {
        "id": new_id("batch_"),
        "object": "batch",
        "endpoint": endpoint,
        "model": None,
        "errors": None,
        "input_file_id": file_id,
        "completion_window": "24h",
        "status": "validating",
        "output_file_id": None,
        "error_file_id": None,
        "created_at": created,
        "expires_at": created + _WINDOW_SECONDS,
        **{f"{status}_at": None for status in _TIMES},
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
        "usage": None,
        "metadata": metadata,
    }
    # The files that may come of it have their ids from the start: finalizing may be interrupted.
    seconds = None if expires_at is None else expires_at - created
    body[LOCAL] = {"expires_after": seconds, "output": new_id("file-"), "error": new_id("file-")}
    try:
        batches.start(body, file_id, files.CONTENT, progress=progress)
    except MissingError:
        raise _no_file(file_id) from None
    return _shown(body)


def retrieve(store: Store, batches: Batches, fields: Fields, query: Query, id: str) -> Json:
    """GET /batches/{id}."""
    finish(fields, query)
    errors = batches.unstored(id)
    body = found(store.get(KIND, id), _unknown(id))
    return _shown(body if errors is None else failed(body, errors))


def list_batches(store: Store, batches: Batches, fields: Fields, query: Query) -> dict[str, object]:
    """GET /batches: newest first."""
    fields.finish()
    page = stored_list(store, KIND, read_paging(query, default_order="desc"), item="Batch")
    return list_object(Page([_shown(body) for body in page.data], page.has_more))


def cancel(store: Store, batches: Batches, fields: Fields, query: Query, id: str) -> Json:
    """POST /batches/{id}/cancel: what was answered already becomes its files. It may be called again."""
    finish(fields, query)
    body = found(store.update(KIND, id, _cancelling), _unknown(id))
    if body["status"] not in ("cancelling", "cancelled", "finalizing"):
        raise BadRequest(
            f"Cannot cancel a batch with status '{body['status']}': it has ended.", param="batch_id", code="batch_ended"
        )
    batches.wake(id)
    batches.resume(id)  # one whose process has ended is ended here
    return _shown(body)


# ---------------------------------------------------------------------------------------------------------------------


def _cancelling(body: Json) -> Json:
    if body["status"] not in UNFINISHED or body["status"] in ("finalizing", "cancelling"):
        return body
    return {**body, "status": "cancelling", "cancelling_at": now()}


def _check_file(store: Store, id: str) -> None:
    try:
        file = files.find(store, id)
    except NotFound:
        raise _no_file(id) from None
    if file["purpose"] != "batch":
        why = f"the file '{id}' has the purpose '{file['purpose']}'. Upload one with purpose='batch'"
        raise BadRequest.refused("input_file_id", why)


def _no_file(id: str) -> BadRequest:
    why = f"there is no file '{id}'. Upload one with client.files.create(purpose='batch')"
    return BadRequest.refused("input_file_id", why, "file_not_found")


def _unknown(id: str) -> NotFound:
    return NotFound(f"No batch found with id '{id}'.", param="batch_id", code="batch_not_found")


def _shown(body: Json) -> Json:
    """Fields of a batch that callers see."""
    return {name: value for name, value in body.items() if name != LOCAL}
