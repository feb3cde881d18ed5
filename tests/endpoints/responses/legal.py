"""The grammar of Responses streams: is a list of events a legal stream, and is a response one that the API returns?

Written from the SDK's types (`openai.types.responses`), from what its accumulator demands
(`openai.lib.streaming.responses`) and from OpenAI's reference of streaming events. Where these leave a choice:

* A cancelled background response ends its stream with `response.failed` whose response has `status="cancelled"` and no
  error. There is no `response.cancelled` in the SDK's union and none is documented; of the three final events this is
  the one for an end without an answer, and the status says which end it was.
* A response that waits is created with the status `queued`, and `response.queued` follows; any other is created
  `in_progress`. `response.in_progress` comes before any output, and is left out only by a response that fails or is
  cancelled in the queue.
* Output items come one at a time, and so do the parts of an item: one model writes them one after the other. Items of
  hosted tools stay open until their tool was called, behind all calls of the model's turn.
* A response that fails or is cancelled may leave its last item without an `output_item.done`; `response.output` then
  ends before that item, or has it as `incomplete` with what was streamed of it.
* A delta says something: text, or the logprobs of a token whose text is still to come.
* Reasoning items and custom tool calls may be without a status (the SDK's custom tool call has no such field), in
  `added` and `done` alike. Messages and function calls have one.
* Only what a local model makes is known here: events and items of other hosted tools and of audio are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from openai.types.responses import Response, ResponseOutputItem, ResponseStreamEvent

from tests.endpoints.responses.legal_hosted import CALLS, HostedCalls
from tests.endpoints.responses.legal_response import check_item, check_response, may_lack, revalidate

__all__ = ["check_response", "check_stream"]

_EVENTS: frozenset[type] = frozenset(get_args(get_args(ResponseStreamEvent)[0]))

_PLACES = {
    "message": ("content",),
    "reasoning": ("content", "summary"),
    "function_call": ("arguments",),
    "custom_tool_call": ("input",),
}
"""Type of an output item -> its fields that are streamed: lists of parts, or a text that counts as the only part."""

_BEFORE = {
    "response.created": {"nothing"},
    "response.queued": {"response.created"},
    "response.in_progress": {"response.created", "response.queued"},
    "error": {"response.queued", "response.in_progress"},
    "response.completed": {"response.in_progress"},
    "response.incomplete": {"response.in_progress"},
    "response.failed": {"response.queued", "response.in_progress", "error"},
}
"""Event about the whole response -> those that it may follow."""

_STATUSES = {
    "response.created": {"queued", "in_progress"},
    "response.queued": {"queued"},
    "response.in_progress": {"in_progress"},
    "response.completed": {"completed"},
    "response.incomplete": {"incomplete"},
    "response.failed": {"failed", "cancelled"},
}
_FINAL = {"response.completed", "response.incomplete", "response.failed"}

_CONSTANT = (
    *("id", "created_at", "model", "background", "conversation", "instructions", "max_output_tokens", "metadata"),
    *("parallel_tool_calls", "previous_response_id", "reasoning", "temperature", "text", "tool_choice", "tools"),
    *("top_logprobs", "top_p", "truncation", "user"),
)
"""Fields of a response that do not change while it is made."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A text that comes in deltas."""

    item: str
    """Type of the item that it belongs to."""
    place: str
    """Field of the item."""
    field: str
    """Where the whole text stands, in the `done` event and in the part."""
    part: str | None
    """Type of the part; None: the text is the item's own field."""

    def index(self, event: Any) -> int:
        """Position of the part among those of its place."""
        return 0 if self.part is None else int(getattr(event, f"{self.place}_index"))


_KINDS = {
    "response.output_text": _Kind("message", "content", "text", "output_text"),
    "response.refusal": _Kind("message", "content", "refusal", "refusal"),
    "response.reasoning_text": _Kind("reasoning", "content", "text", "reasoning_text"),
    "response.reasoning_summary_text": _Kind("reasoning", "summary", "text", "summary_text"),
    "response.function_call_arguments": _Kind("function_call", "arguments", "arguments", None),
    "response.custom_tool_call_input": _Kind("custom_tool_call", "input", "input", None),
}
"""Type of the delta and done events, without the last word -> kind."""

_PARTS = {kind.part: kind for kind in _KINDS.values() if kind.part}


@dataclass(slots=True)
class _Part:
    """A part that is being streamed, or the text of a call."""

    kind: _Kind
    index: int
    whole: bool = True
    """False: the events that we have begin in the middle of it."""
    done: bool = False
    text: str = ""
    logprobs: list[Any] = field(default_factory=list)
    annotations: list[Any] = field(default_factory=list)

    def adds_up(self, name: str, given: Any) -> None:
        """What was streamed is what is given, or the end of it."""
        streamed = getattr(self, name)
        end = given if self.whole else given[len(given) - len(streamed) :]
        assert end == streamed, f"{name} is {given!r}, and what was streamed of it is {streamed!r}"


@dataclass(slots=True)
class _Item:
    """An output item that is being streamed."""

    id: str
    type: str
    index: int
    added: ResponseOutputItem | None
    """None: the events that we have begin in the middle of it."""
    part: _Part | None = None
    parts: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    """(place, index) -> each part that is done."""
    cut: bool = False
    """A part of it was said to be incomplete."""

    def count(self, place: str) -> int | None:
        """How many parts a place has by now; None: not known."""
        indexes = [index for where, index in self.parts if where == place]
        return max(indexes) + 1 if indexes else None if self.added is None else 0

    def check(self, item: Any) -> None:
        """An item, whole or cut off, has the parts that were streamed, and no others."""
        assert (item.id, item.type) == (self.id, self.type), f"item {self.id} ({self.type}) is now {item.id}"
        for name in ("call_id", "name"):
            if self.added is not None:
                before, now = getattr(self.added, name, None), getattr(item, name, None)
                assert before == now, f"{name} of {self.id} was {before!r} and is {now!r}"
        for place in _PLACES[self.type]:
            value = getattr(item, place)
            given = [{place: value}] if isinstance(value, str) else [_dump(part) for part in value or []]
            for (where, index), part in self.parts.items():
                same = where != place or given[index : index + 1] == [part]
                assert same, f"{where} {index} of {self.id} was done as {part}, and the item has {given}"
            count = self.count(place)
            if self.part is not None and self.part.kind.place == place and len(given) > self.part.index:
                self.part.adds_up("text", given[self.part.index].get(self.part.kind.field, ""))
                count = self.part.index + 1
            assert count in (None, len(given)), f"{self.id} has {len(given)} of {place}, and {count} were streamed"


class _Stream:
    """What is known after some events of a stream. `self.stage` is the last event about the whole response."""

    def __init__(self, starting_after: int | None) -> None:
        self.number = 0 if starting_after is None else starting_after + 1
        self.stage = "nothing" if starting_after is None else "unknown"
        self.response: Response | None = None
        self.items = 0 if starting_after is None else None  # how many were added
        self.item: _Item | None = None  # the one that is being streamed
        self.hosted = HostedCalls()
        self.done: dict[int, ResponseOutputItem] = {}
        self.ids: set[str] = set()

    def take(self, event: Any) -> None:
        """Check one event and go on to the state after it."""
        assert type(event) in _EVENTS, "is not one of the SDK's ResponseStreamEvent"
        revalidate(event)
        assert self.stage not in _FINAL, f"comes after {self.stage}, which is the last event"
        assert event.sequence_number == self.number, f"has sequence_number {event.sequence_number}, not {self.number}"
        self.number += 1
        start, _, word = event.type.rpartition(".")
        if event.type in _BEFORE:
            self._whole_response(event)
        elif start in _KINDS and word in ("delta", "done"):
            (self._delta if word == "delta" else self._text_done)(event, _KINDS[start])
        elif start in ("response.content_part", "response.reasoning_summary_part"):
            (self._part_added if word == "added" else self._part_done)(event, _PARTS[event.part.type])
        elif start == "response.output_item":
            (self._item_added if word == "added" else self._item_done)(event)
        elif event.type == "response.output_text.annotation.added":
            self._annotation(event)
        elif self.hosted.takes(event):
            self._in_progress()
        else:
            raise AssertionError("belongs to hosted tools or audio: there is no rule for it")

    def _whole_response(self, event: Any) -> None:
        """An event about the whole response, or an error, which announces that it fails."""
        if self.stage == "unknown":
            assert event.type != "response.created", "comes at the beginning only"
        else:
            assert self.stage in _BEFORE[event.type], f"comes after {self.stage}"
        if event.type != "error":
            self._lifecycle(event)
        self.stage = event.type

    def _lifecycle(self, event: Any) -> None:
        response: Response = event.response
        status = response.status
        assert status in _STATUSES[event.type], f"has a response with the status {status}"
        if self.stage == "response.created" and self.response is not None:
            assert status == self.response.status, f"follows the status {self.response.status} with {status}"
        assert (self.stage, status) != ("error", "cancelled"), "is cancelled after an error"
        check_response(response)
        if self.response is not None:
            for name in _CONSTANT:
                before, now = getattr(self.response, name), getattr(response, name)
                assert before == now, f"has {name} {now!r}, and it was {before!r} in {self.stage}"
        if event.type in _FINAL:
            self._output(response)
        else:
            assert not response.output, "has output before any was streamed"
        self.response = response

    def _output(self, response: Response) -> None:
        """The final response has the items that were streamed."""
        given = response.output
        for index, item in self.done.items():
            same = index < len(given) and _dump(given[index]) == _dump(item)
            assert same, f"output {index} is not the item that was done: {item}"
        assert not self.hosted.open, f"comes while {[*self.hosted.open]} are not done"
        count = self.items
        if self.item is not None:
            cut = response.status in ("failed", "cancelled")
            assert cut, f"comes while output {self.item.index} ({self.item.id}) is not done"
            count = self.item.index
            if len(given) > count:
                status = getattr(given[count], "status", None)
                assert status in ("incomplete", None), f"has {self.item.id}, which was not done, as {status}"
                self.item.check(given[count])
                count += 1
        assert count in (None, len(given)), f"has {len(given)} items of output, and {count} were streamed"

    def _item_added(self, event: Any) -> None:
        item = event.item
        self._in_progress()
        assert self.item is None, f"comes while output {self.item and self.item.index} is not done"
        assert self.items in (None, event.output_index), f"has output_index {event.output_index}, not {self.items}"
        cut = [done.id for done in self.done.values() if getattr(done, "status", None) == "incomplete"]
        assert not cut, f"comes after an incomplete item, which is the last: {cut}"
        check_item(item)
        assert item.id not in self.ids, f"has an id that was used: {item.id}"
        if item.type in CALLS:
            self.hosted.add(item, event.output_index)
            self.items = event.output_index + 1
            self.ids.add(item.id)
            return
        status = getattr(item, "status", None)
        assert status == "in_progress" or may_lack(item), f"has an item with the status {status}"
        for place in _PLACES[item.type]:
            assert not getattr(item, place), f"has an item with {place} before any was streamed"
        self._open(_Item(item.id, item.type, event.output_index, item))

    def _open(self, item: _Item) -> None:
        kind = next((k for k in _KINDS.values() if k.item == item.type and k.part is None), None)
        if kind is not None and item.added is not None:
            item.part = _Part(kind, 0)
        self.item, self.items = item, item.index + 1
        self.ids.add(item.id)

    def _item_done(self, event: Any) -> None:
        item = event.item
        check_item(item)
        if item.type in CALLS:
            self.hosted.done(event)
            self.done[event.output_index] = item
            return
        state = self._current(event, item.type, item.id)
        assert state.part is None, f"comes before the {state.part and state.part.kind.field} of its item is done"
        status, before = getattr(item, "status", None), getattr(state.added, "status", None)
        assert status in ("completed", "incomplete") or may_lack(item), f"has an item with the status {status}"
        lost = state.added is not None and (before is None) != (status is None)
        assert not lost, f"has an item with the status {status}, and it was added with {before}"
        assert not state.cut or status != "completed", "has a completed item, one part of which is incomplete"
        state.check(item)
        self.done[event.output_index] = item
        self.item = None

    def _in_progress(self) -> None:
        if self.stage == "unknown":
            self.stage = "response.in_progress"
        assert self.stage == "response.in_progress", f"comes after {self.stage}"

    def _current(self, event: Any, item_type: str, item_id: str) -> _Item:
        """The item that an event is about, which has to be the one that is being streamed."""
        self._in_progress()
        if self.items is None:  # the events that we have begin in the middle of this item
            self._open(_Item(item_id, item_type, event.output_index, None))
        item = self.item
        assert item is not None, "comes while no item is being streamed"
        assert event.output_index == item.index, f"has output_index {event.output_index}, not {item.index}"
        assert item_id == item.id, f"is about item {item_id}, and output {item.index} is {item.id}"
        assert item_type == item.type, f"is about a {item_type}, and output {item.index} is a {item.type}"
        return item

    def _part_added(self, event: Any, kind: _Kind) -> None:
        item = self._current(event, kind.item, event.item_id)
        assert item.part is None, f"comes before {kind.place} {item.part and item.part.index} is done"
        index, count = kind.index(event), item.count(kind.place)
        assert count in (None, index), f"has {kind.place}_index {index}, not {count}"
        for name in (kind.field, "annotations", "logprobs"):
            assert not getattr(event.part, name, None), f"has a part with {name} before any was streamed"
        item.part = _Part(kind, index)

    def _part(self, event: Any, kind: _Kind, *, done: bool = False) -> tuple[_Item, _Part]:
        """The part that an event is about, with its item; `done`: the event follows the `done` of its text."""
        item = self._current(event, kind.item, event.item_id)
        if item.part is None and item.added is None and not item.parts:  # begins in the middle of this part
            text = getattr(event.part, kind.field) if done else ""
            item.part = _Part(kind, kind.index(event), whole=False, text=text, done=done)
        part = item.part
        assert part is not None, f"comes while no part of {item.id} is being streamed"
        assert part.kind == kind, f"is about {kind.part or kind.field}, in a part of type {part.kind.part}"
        index = kind.index(event)
        assert index == part.index, f"has {kind.place}_index {index}, not {part.index}"
        assert part.done == done, "comes before its text is done" if done else "comes after its text is done"
        return item, part

    def _delta(self, event: Any, kind: _Kind) -> None:
        _, part = self._part(event, kind)
        logprobs = _logprobs(event)
        assert event.delta or logprobs, "says nothing"
        part.text += event.delta
        part.logprobs += logprobs

    def _text_done(self, event: Any, kind: _Kind) -> None:
        item, part = self._part(event, kind)
        text, logprobs = getattr(event, kind.field), _logprobs(event)
        part.adds_up("text", text)
        part.adds_up("logprobs", logprobs)
        part.text, part.logprobs, part.done = text, logprobs, True
        if kind.item == "function_call":
            # A field of the type in openai 2.x only, which those who read 2.x streams need.
            name = getattr(event, "name", None)
            assert name, "has no name"
            given = getattr(item.added, "name", name)
            assert name == given, f"has the name {name!r}, and the call is {given!r}"
        if kind.part is None:
            item.parts[kind.place, 0] = {kind.field: text}
            item.part = None

    def _annotation(self, event: Any) -> None:
        _, part = self._part(event, _KINDS["response.output_text"])
        count = len(part.annotations)
        index = event.annotation_index
        # In a part whose beginning we have not seen, any number may have come before.
        assert index == count or not part.whole, f"has annotation_index {index}, not {count}"
        assert event.annotation is not None, "has no annotation"
        part.annotations.append(_dump(event.annotation))

    def _part_done(self, event: Any, kind: _Kind) -> None:
        item, part = self._part(event, kind, done=True)
        text = getattr(event.part, kind.field)
        assert text == part.text, f"has a part with {text!r}, and its text was done as {part.text!r}"
        seen = part.whole or part.logprobs
        assert not seen or _logprobs(event.part) == part.logprobs, "has other logprobs than those that were streamed"
        part.adds_up("annotations", [_dump(each) for each in getattr(event.part, "annotations", ())])
        item.cut |= getattr(event, "status", None) == "incomplete"
        item.parts[kind.place, part.index] = _dump(event.part)
        item.part = None


def check_stream(
    events: Sequence[ResponseStreamEvent], *, complete: bool = True, starting_after: int | None = None
) -> None:
    """The events are what one call that streams a response may give: `create`, or `retrieve` with `stream=True`.

    Args:
        events: the raw events, in order; not those that the SDK's `responses.stream()` makes of them.
        complete: they go on to the end; False: the caller stopped reading, so only what came is checked.
        starting_after: the `starting_after` of a stream that was resumed: the events before are not there. What they
            would have said is taken as right, and all the rest is checked.

    Raises:
        AssertionError: they are not; names the index of the event in `events`, its type, and what is wrong.
    """
    stream = _Stream(starting_after)
    for i, event in enumerate(events):
        try:
            stream.take(event)
        except AssertionError as error:
            name = getattr(event, "type", type(event).__name__)
            raise AssertionError(f"event {i} ({name}): {error}") from None
    last = f"event {len(events) - 1} ({events[-1].type})" if events else "no event at all"
    assert not complete or stream.stage in _FINAL, f"the stream ends with {last}, which is not a final one"


def _dump(made: Any) -> dict[str, Any]:
    """The fields of an object; an annotation is a mapping in openai 2.x."""
    return dict(made) if isinstance(made, Mapping) else made.model_dump(by_alias=True)


def _logprobs(holder: Any) -> list[Any]:
    """Logprobs of an event or a part as plain values: their types differ, and those of events have no bytes."""
    return [
        (each.token, each.logprob, [(top.token, top.logprob) for top in each.top_logprobs or []])
        for each in getattr(holder, "logprobs", None) or []
    ]
