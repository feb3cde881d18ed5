"""Requests about a response by its id: retrieve, delete, cancel, and the items of its input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openai.types.responses import Response

from ...errors import BadRequest, NotFound
from ...state.store import Json, Store
from ..fields import Fields
from ..items.resources import read_include
from ..paging import Query, finish, found, list_object, read_paging, stored_page, url_value
from ..turn import EventSink, put_events
from .assembler import UNFINISHED, make_event, make_response
from .background import Background, Run

_ENDED_WITH_PROCESS = {"code": "server_error", "message": "The process that ran this response has ended."}


class StoredEvents:
    """The events of a response that has ended, to be followed like those of a `Run`."""

    def __init__(self, events: Sequence[Json]) -> None:
        self._events = events

    def follow(self, sink: EventSink, after: int) -> None:
        """Put the stored events behind `after` into a sink, like `Run.follow`."""
        events = []
        for event in self._events:
            if event["sequence_number"] > after:
                if "response" in event:
                    event = {**event, "response": make_response(event["response"])}
                events.append(make_event(**event))
        put_events(sink, [*events, None])

    def leave(self, sink: EventSink) -> None:
        """Nothing more comes."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Events to stream, those with larger sequence numbers than `after`."""

    source: Run | StoredEvents
    after: int = -1


def retrieve(store: Store, background: Background, fields: Fields, query: Query, id: str) -> Response | Followed:
    """GET /responses/{id}, with `stream` and `starting_after` for those in the background."""
    fields.finish()
    read_include(query)  # checked only: what was to be included was stored with the response
    wanted = Fields({name: url_value(value) for name, value in query.items() if name not in ("include", "include[]")})
    wanted.boolean("include_obfuscation")
    stream, after = wanted.boolean("stream") or False, wanted.integer("starting_after", 0, 2**31)
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
            f"Response with id '{id}' was not created in the background: its events were not stored. Retrieve it "
            "without 'stream'.",
            param="stream",
        )
    if body.status in UNFINISHED:
        raise BadRequest(
            f"Response with id '{id}' runs in another process, which has its events: retrieve it without 'stream' "
            "until it is finished.",
            param="stream",
        )
    return Followed(StoredEvents(store.events(id)), -1 if after is None else after)


def delete(store: Store, background: Background, fields: Fields, query: Query, id: str) -> dict[str, object]:
    """DELETE /responses/{id}; one that still runs is stopped."""
    finish(fields, query)
    background.cancel(id)
    if not store.delete("response", id):
        raise no_response(id)
    return {"id": id, "object": "response", "deleted": True}


def cancel(store: Store, background: Background, fields: Fields, query: Query, id: str) -> Response:
    """POST /responses/{id}/cancel: only those in the background; again and again if one likes."""
    finish(fields, query)
    body = _stored(store, background, id)
    if not body.background:
        raise BadRequest(
            "Cannot cancel a synchronous response: only responses created with background=true can be cancelled.",
            param="response_id",
            code="response_not_background",
        )
    if body.status in UNFINISHED and not background.cancel(id):
        store.update("response", id, _unless_ended(status="cancelled"))  # the process that runs it looks now and then
    return _stored(store, background, id)


def input_items(store: Store, background: Background, fields: Fields, query: Query, id: str) -> dict[str, object]:
    """GET /responses/{id}/input_items: what the request of this response brought, newest first by default."""
    fields.finish()
    read_include(query)
    paging = read_paging(query, default_order="desc", others=("include",))
    return list_object(stored_page(store, "response", id, "input", paging, missing=no_response, item="Item"))


def no_response(id: str) -> NotFound:
    """The error for an id that no stored response has."""
    return NotFound(f"Response with id '{id}' not found.", param="response_id", code="response_not_found")


def _unless_ended(**changes: object) -> Callable[[Json], Json]:
    """Changes a stored response that has not ended."""
    return lambda body: {**body, **changes} if body["status"] in UNFINISHED else body


def _stored(store: Store, background: Background, id: str) -> Response:
    body = found(store.get("response", id), no_response(id))
    if body["status"] in UNFINISHED and background.get(id) is None:
        body = _without_owner(store, background, id) or body
    return make_response({**body, "output": store.items("response", id, "output")})


def _without_owner(store: Store, background: Background, id: str) -> Json | None:
    """Have a response fail whose process has ended; None if it runs."""
    owner = dict(store.owned()).get(id)
    if owner is None or background.is_alive(owner):
        return store.get("response", id)
    return store.update("response", id, _unless_ended(status="failed", error=_ENDED_WITH_PROCESS), release=True)
