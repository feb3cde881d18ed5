"""Raw bodies and events held against OpenAI's published description of its API (2.3.0): what is required, what null.

`required_fields.json` has, per object and event, the names of the fields that are required, of the others, and of those
that may be null. Objects that do not say themselves what they are have their path there, such as "response usage".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localai_shim.sdk import event_stream
from localai_shim.sdk import private as sdk

FIELDS: dict[str, dict[str, list[str]]] = json.loads((Path(__file__).parent / "required_fields.json").read_text())

_ALSO_NULL = {
    "list": {"first_id", "last_id"},  # of an empty page
    "response": {"usage"},  # until the end: https://platform.openai.com/docs/api-reference/responses-streaming
    "text_completion": {"usage"},  # but in the last chunk: `stream_options.include_usage`
    "text_completion choices": {"finish_reason"},  # until the end
}
_TIMES = ("created", "created_at", "completed_at")
_HOLDS = {"choices", "content", "data", "delta", "item", "logprobs", "message", "output", "part", "response"} | {
    "top_logprobs",
    "usage",
}
"""Fields that hold objects of the API; metadata, tools and schemas are the caller's."""


def check_body(body: Mapping[str, Any]) -> None:
    """A raw body, or event of a stream, has all fields that are required, and null only where it may be.

    Raises:
        AssertionError: says which field of what is wrong.
    """
    _check(_kind(body), body)


violations: list[str] = []
"""What was wrong with the running test's answers: what is raised here becomes a 500, which a test may expect."""


def note_violations(answer: Any) -> None:
    """`check_body` for an answer or event on its way to a caller."""
    if isinstance(answer, bytes | str):  # the content of a file, or a plain text
        return
    try:
        check_body(sdk.raw_fields(answer))
    except AssertionError as error:
        violations.append(str(error))
        raise


def _check(kind: str, body: Mapping[str, Any]) -> None:
    known = FIELDS.get(kind)
    if known is not None:
        missing = [name for name in known["required"] if name not in body]
        assert not missing, f"{kind} without {missing}: {body}"
        nulls = {name for name in known["required"] + known["optional"] if name in body and body[name] is None}
        wrong = nulls - {*known["nullable"]} - _ALSO_NULL.get(kind, set())
        assert not wrong, f"{kind} with null as {sorted(wrong)}: {body}"
    for name in _TIMES:
        assert type(body.get(name)) in (int, type(None)), f"{kind} with {name} {body[name]!r}, which is no integer"
    for name in _HOLDS & body.keys():
        for each in body[name] if isinstance(body[name], list) else [body[name]]:
            if isinstance(each, dict):
                _check(_kind(each) or f"{kind} {name}", each)


def _kind(body: Mapping[str, Any]) -> str:
    """What an object says that it is; empty where it does not."""
    kind = body.get("object") or body.get("type")
    if "results" in body:
        return "rerank"  # which OpenAI does not have
    if kind == "list" and "first_id" not in body:
        items = {each.get("object") for each in body["data"]} & {"model", "embedding"}
        if items:
            return f"{items.pop()} list"
    if kind == "message":
        return "output message" if body["role"] == "assistant" else "input message"
    if "deleted" in body and kind == "response":
        return "response.deleted"  # which is not described: the SDK returns nothing
    return kind if isinstance(kind, str) else ""


class CheckedResponse(sdk.LocalResponse):
    """A whole answer whose body was checked."""

    def __init__(self, answer: Any, **options: Any) -> None:
        super().__init__(answer, **options)
        note_violations(answer)


class CheckedStreamResponse(event_stream.LocalStreamResponse):
    """A streamed answer whose events are checked as they are read."""

    def __init__(self, events: Any, **options: Any) -> None:
        if options.get("media_type") is None:  # else the events are bytes
            events = (_AsyncChecked if hasattr(events, "__anext__") else _Checked)(events)
        super().__init__(events, **options)


class _Checked:
    def __init__(self, events: Any) -> None:
        self._events = events
        self.close = events.close

    def __iter__(self) -> _Checked:
        return self

    def __next__(self) -> Any:
        event = next(self._events)
        note_violations(event)
        return event


class _AsyncChecked:
    def __init__(self, events: Any) -> None:
        self._events = events
        self.close, self.aclose = events.close, events.aclose

    def __aiter__(self) -> _AsyncChecked:
        return self

    async def __anext__(self) -> Any:
        event = await self._events.__anext__()
        note_violations(event)
        return event
