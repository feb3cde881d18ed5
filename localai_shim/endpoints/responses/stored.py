"""What can be asked of a response by its id: retrieve, delete, cancel, and the items of its input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from ...errors import BadRequest, NotFound
from ..fields import Fields
from ..items.includes import read_include
from ..paging import list_object, read_paging, unknown_after
from .assembler import make_response

if TYPE_CHECKING:
    from ...state.store import Store
    from .background import Background, Run

_ENDED_WITH_PROCESS = {"code": "server_error", "message": "The process that ran this response has ended."}


class StoredEvents:
    """The events of a response that has ended, as `Run.follow` hands out those of one that runs."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self._events = events

    def follow(self, sink: Any, after: int) -> None:
        adapter: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
        for event in self._events:
            if event["sequence_number"] > after:
                made = adapter.validate_python(event)
                if hasattr(made, "response"):
                    made.response = make_response(event["response"])
                sink.put(0, made)
        sink.put(0, None)
        if sink.waker is not None:
            sink.waker.wake()

    def leave(self, sink: Any) -> None:
        """Nothing comes any more."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A stream of events, and the sequence number after which it begins."""

    source: Run | StoredEvents
    after: int = -1


def retrieve(
    store: Store, background: Background, fields: Fields, query: Mapping[str, Any], id: str
) -> Response | Followed:
    """GET /responses/{id}, with `stream` and `starting_after` for those in the background."""
    fields.finish()
    read_include(query)  # what the response was to include is there, and nothing else was kept
    wanted = Fields(query)
    wanted.get("include"), wanted.get("include[]"), _boolean(wanted, "include_obfuscation")
    stream = _boolean(wanted, "stream")
    after = _integer(wanted, "starting_after")
    wanted.finish()
    if after is not None and not stream:
        raise BadRequest("'starting_after' is only allowed when 'stream' is enabled.", param="starting_after")
    run = background.get(id)
    if not stream:
        return run.response() if run is not None else _stored(store, background, id)
    if run is not None:
        return Followed(run, -1 if after is None else after)
    body = _stored(store, background, id)
    if not body.background:
        raise BadRequest(
            f"Response with id '{id}' was not created in the background: its events are not kept.", param="stream"
        )
    if body.status in ("queued", "in_progress"):
        raise BadRequest(
            f"Response with id '{id}' runs in another process, where its events are: poll it here.", param="stream"
        )
    return Followed(StoredEvents(store.events(id)), -1 if after is None else after)


def delete(store: Store, background: Background, fields: Fields, query: Mapping[str, Any], id: str) -> dict[str, Any]:
    """DELETE /responses/{id}; one that still runs is stopped."""
    fields.finish()
    Fields(query).finish()
    background.cancel(id)
    if not store.delete("response", id):
        raise no_response(id)
    return {"id": id, "object": "response", "deleted": True}


def cancel(store: Store, background: Background, fields: Fields, query: Mapping[str, Any], id: str) -> Response:
    """POST /responses/{id}/cancel: only those in the background; again and again if one likes."""
    fields.finish()
    Fields(query).finish()
    body = _stored(store, background, id)
    if not body.background:
        raise BadRequest(
            "Cannot cancel a synchronous response: only responses created with background=true can be cancelled.",
            param="response_id",
            code="response_not_background",
        )
    if body.status in ("queued", "in_progress") and not background.cancel(id):
        store.update("response", id, _cancelled)  # the process that runs it looks from time to time
    return _stored(store, background, id)


def input_items(
    store: Store, background: Background, fields: Fields, query: Mapping[str, Any], id: str
) -> dict[str, Any]:
    """GET /responses/{id}/input_items: what the request of this response brought, newest first by default."""
    from ...state.store import MissingError

    fields.finish()
    read_include(query)
    paging = read_paging(query, default_order="desc", others=("include",))
    try:
        page = store.page("response", id, "input", after=paging.after, limit=paging.limit, descending=paging.descending)
    except MissingError as error:
        if error.kind == "item":
            raise unknown_after("Item", paging.after) from None
        raise no_response(id) from None
    return list_object(page)


def no_response(id: str) -> NotFound:
    return NotFound(f"Response with id '{id}' not found.", param="response_id", code="response_not_found")


def _cancelled(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "status": "cancelled"} if body["status"] in ("queued", "in_progress") else body


def _stored(store: Store, background: Background, id: str) -> Response:
    body = store.get("response", id)
    if body is None:
        raise no_response(id)
    if body["status"] in ("queued", "in_progress") and background.get(id) is None:
        body = _without_owner(store, background, id) or body
    return make_response({**body, "output": store.items("response", id, "output")})


def _without_owner(store: Store, background: Background, id: str) -> dict[str, Any] | None:
    """Have a response fail whose process has ended; None if it runs."""
    owner = dict(store.owned()).get(id)
    if owner is None or background.is_alive(owner):
        return store.get("response", id)
    failed = {"status": "failed", "error": _ENDED_WITH_PROCESS}
    body = store.update(
        "response", id, lambda body: {**body, **failed} if body["status"] in ("queued", "in_progress") else body
    )
    if body is not None:
        store.save("response", id, body)  # which nobody works on
    return body


def _boolean(fields: Fields, name: str) -> bool:
    value = fields.get(name)
    if isinstance(value, str) and value in ("true", "false"):
        value = value == "true"
    if value is not None and not isinstance(value, bool):
        raise BadRequest.wrong_type(name, "a boolean", value)
    return bool(value)


def _integer(fields: Fields, name: str) -> int | None:
    value = fields.get(name)
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        value = int(value)
    if value is None:
        return None
    return Fields({name: value}).integer(name, 0, 2**31)
