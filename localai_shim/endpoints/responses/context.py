"""The items that a response continues, how it is delivered, and how it is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from openai.types.responses import Response, ResponseStreamEvent

from ...errors import BadRequest, NotFound
from ...prompt.items import Item
from ...prompt.messages import encodable
from ...prompt.objects import with_data_urls
from ...state.errors import MissingError
from ...state.store import Store
from ...threads.cache import LRUCache
from .. import request_fields
from ..fields import Fields, as_array
from ..items.conversations import unknown_conversation
from ..items.repeats import without_repeats
from ..items.resources import item_resources, user_item

_first_responses: LRUCache[str] = LRUCache(4096)
"""Id of a response -> id of the first one of its chain, for timelines."""


@dataclass(frozen=True, slots=True)
class Context:
    """The items that a response reads."""

    stored: list[Item] = field(default_factory=list[Item])
    """Those of earlier responses, or of the conversation: they were checked before they were stored."""
    given: list[Item] = field(default_factory=list[Item])
    """Those of the request that the stored ones do not have."""
    paths: dict[str, str] = field(default_factory=dict[str, str])
    """Id of each item of the request -> its path, such as `input[2]`."""
    previous: str | None = None
    conversation: str | None = None

    @property
    def items(self) -> list[Item]:
        """All of them, oldest first."""
        return [*self.stored, *self.given]

    def agent(self, response: str) -> str:
        """Name that all responses of the conversation have in timelines: its id, or the first response's.

        Args:
            response: id of the one that is made.
        """
        if self.conversation is not None:
            return self.conversation
        if self.previous is None:
            return response
        first = _first_responses.get(self.previous) or self.previous
        _first_responses.put(response, first)
        return first


def read_context(fields: Fields, store: Callable[[], Store]) -> Context:
    """`previous_response_id` and `conversation`.

    Raises:
        NotFound: there is no such response or conversation.
        BadRequest: both were given, or the response is not finished.
    """
    previous, conversation = fields.string("previous_response_id"), _read_conversation(fields)
    if previous is not None and conversation is not None:
        raise BadRequest(
            "Mutually exclusive parameters: pass 'previous_response_id' or 'conversation', not both.",
            param="previous_response_id",
            code="mutually_exclusive_parameters",
        )
    if previous is not None:
        return Context(_chain(store(), previous), previous=previous)
    if conversation is None:
        return Context()
    try:
        return Context(store().items("conversation", conversation), conversation=conversation)
    except MissingError:
        raise unknown_conversation(conversation, "conversation") from None


def _read_conversation(fields: Fields) -> str | None:
    value = fields.get("conversation")
    if isinstance(value, dict):
        with fields.inner("conversation") as inner:
            return inner.text("id")
    if value is not None and not isinstance(value, str):
        raise BadRequest.wrong_type("conversation", "one of a string or an object", value)
    return fields.string("conversation")


def _chain(store: Store, previous: str) -> list[Item]:
    try:
        items = store.chain(previous)
    except MissingError:
        raise NotFound(
            f"Previous response with id '{previous}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        ) from None
    body = store.get("response", previous) or {}
    if body.get("status") in ("queued", "in_progress"):
        raise BadRequest(
            f"Previous response with id '{previous}' is still {body['status'].replace('_', ' ')}: wait until it is "
            "finished.",
            param="previous_response_id",
            code="previous_response_not_finished",
        )
    return items


def read_input(fields: Fields, context: Context, store: Callable[[], Store]) -> Context:
    """Add `input` to the stored items.

    Raises:
        BadRequest: with the path of what is wrong, such as `input[1].content[0].text`.
        NotFound: an item that is referred to is not there.
    """
    value = fields.get("input")
    if value is None:
        return context
    if isinstance(value, str):
        return replace(context, given=[user_item(encodable(value, "input"))])
    as_array("input", value, "one of a string or an array of items", empty=bool(context.stored))
    items = item_resources(value, "input", lambda key: store().find_item(key))
    paths = {item["id"]: f"input[{i}]" for i, item in enumerate(items)}
    return replace(context, given=without_repeats(items, context.stored), paths=paths)


def save_response(
    store: Store,
    context: Context,
    response: Response,
    *,
    kept: bool = True,
    owner: str | None = None,
    events: Sequence[ResponseStreamEvent] = (),
) -> None:
    """Store a response as it is now; one that has been cancelled meanwhile stays as it was.

    Args:
        owner: the process that still works on it.
        events: of one that ran in the background and has ended.

    Raises:
        NotFound: its conversation is gone.
    """
    from ...state.rows import EVENTS

    context.given[:] = with_data_urls(context.given, "input")
    body = response.to_dict(mode="json")
    output: list[Item] = body.pop("output")  # type: ignore[assignment]
    ended = owner is None
    items = [*context.given, *output] if context.conversation and ended else []
    try:
        if not kept:
            if context.conversation is not None:
                store.append("conversation", context.conversation, items)
            return
        store.save(
            "response",
            response.id,
            body,
            parts={"input": context.given, "output": output},
            numbered={EVENTS: [(event.sequence_number, event.to_dict(mode="json")) for event in events]},
            previous=context.previous,
            conversation=context.conversation if ended else None,
            append=items,
            owner=owner,
            unless=("cancelled",),
        )
    except MissingError:
        raise unknown_conversation(context.conversation or "", "conversation") from None


def read_delivery(fields: Fields) -> tuple[bool, bool, bool]:
    """Read if the response is streamed, runs in the background, and is stored."""
    stream, background = fields.boolean("stream") or False, fields.boolean("background") or False
    kept = fields.boolean("store")
    if background and kept is False:
        raise BadRequest.invalid(
            "store", "Invalid value for 'store': a response in the background has to be stored to be found again."
        )
    _read_background_options(fields, waits=background and not stream)
    request_fields.stream_options(fields, stream).finish()
    return stream, background, kept is not False


def _read_background_options(fields: Fields, *, waits: bool) -> None:
    """`background_options`: the answer is made as soon as possible, which is within any window."""
    with fields.inner("background_options") as inner:
        window = inner.choice("completion_window", ("soonest", "2h", "8h"))
        if window not in (None, "soonest") and not waits:
            raise BadRequest.invalid(
                "background_options.completion_window",
                f"Invalid value: '{window}'. 'completion_window' requires 'background' without 'stream'.",
            )
        inner.string("continuation_id")


def read_image(fields: Fields) -> None:
    """`image`: how OpenAI may compress the images of a conversation; here none are."""
    with fields.inner("image") as inner:
        if inner.choice("context_compression", ("auto", "enabled", "disabled")) == "enabled":  # which demands it
            raise BadRequest.unsupported_value(
                "image.context_compression", "Images are not compressed here; pass 'auto'."
            )
