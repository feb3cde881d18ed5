"""Legal Responses streams of every kind, written with the SDK's own classes and with nothing of the package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openai import BaseModel
from openai.types import responses as sdk
from openai.types.responses.response_output_text import Logprob, LogprobTopLogprob

USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 4},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 29,
}
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True}
SCHEMA = {"format": {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}}
CITATION = {"type": "url_citation", "url": "https://example.org", "title": "Example", "start_index": 0, "end_index": 2}
LOGPROBS = [
    Logprob(
        token=t, logprob=-0.5, bytes=list(t.encode()), top_logprobs=[LogprobTopLogprob(token=t, logprob=-0.5, bytes=[])]
    )
    for t in ("He", "l", "lo")
]


def make(cls: type[BaseModel], **fields: Any) -> Any:
    """An object of the SDK's class, validated as the SDK does not."""
    return cls.model_validate(fields)


class Script:
    """Writes a stream, event by event; the final event takes up what was streamed."""

    def __init__(self, **response: Any) -> None:
        self.events: list[Any] = []
        self.output: list[Any] = []
        self.response = {
            "id": "resp_1",
            "object": "response",
            "created_at": 1000,
            "model": "local",
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [TOOL],
            "text": SCHEMA,
            **response,
        }

    def emit(self, cls: type[BaseModel], type_: str, **fields: Any) -> Script:
        self.events.append(make(cls, type=type_, sequence_number=len(self.events), **fields))
        return self

    def state(self, word: str, status: str, **fields: Any) -> Script:
        """`response.<word>` with a response of that status."""
        cls = getattr(sdk, "Response" + "".join(part.title() for part in word.split("_")) + "Event")
        response = {**self.response, "status": status, "output": [], **fields}
        return self.emit(cls, f"response.{word}", response=response)

    def start(self) -> Script:
        return self.state("created", "in_progress").state("in_progress", "in_progress")

    def queue(self) -> Script:
        self.response["background"] = True
        return self.state("created", "queued").state("queued", "queued")

    def end(self, word: str = "completed", status: str | None = None, **fields: Any) -> list[Any]:
        if word != "failed":
            fields = {"usage": USAGE, **fields}
        dumps = [item.model_dump(by_alias=True) for item in self.output]
        self.state(word, status or word, **{"output": dumps, **fields})
        return self.events

    def item(self, item_type: str, **fields: Any) -> dict[str, Any]:
        """`output_item.added`; returns what the item's events say of it."""
        prefix = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}[item_type]
        base = {"id": f"{prefix}_{len(self.output)}", "type": item_type, "status": "in_progress", **fields}
        self.emit(
            sdk.ResponseOutputItemAddedEvent, "response.output_item.added", output_index=len(self.output), item=base
        )
        return {"item_id": base["id"], "output_index": len(self.output)}

    def item_done(self, status: str | None = "completed", **fields: Any) -> Script:
        added = next(event for event in reversed(self.events) if event.type == "response.output_item.added")
        item = {**added.item.model_dump(by_alias=True), "status": status, **fields}
        done = {"output_index": len(self.output), "item": item}
        self.emit(sdk.ResponseOutputItemDoneEvent, "response.output_item.done", **done)
        self.output.append(self.events[-1].item)
        return self

    def part(
        self, at: dict[str, Any], index: int, deltas: Sequence[str], annotations: Sequence[Any] = ()
    ) -> dict[str, Any]:
        """A part of output text; returns it."""
        at, part = {**at, "content_index": index}, dict[str, Any](type="output_text", annotations=[])
        self.emit(sdk.ResponseContentPartAddedEvent, "response.content_part.added", part={**part, "text": ""}, **at)
        for delta in deltas:
            self.emit(sdk.ResponseTextDeltaEvent, "response.output_text.delta", delta=delta, logprobs=[], **at)
        for i, each in enumerate(annotations):
            fields = {"annotation": each, "annotation_index": i, **at}
            cls = sdk.ResponseOutputTextAnnotationAddedEvent
            self.emit(cls, "response.output_text.annotation.added", **fields)
        part |= {"text": "".join(deltas), "annotations": list(annotations)}
        self.emit(sdk.ResponseTextDoneEvent, "response.output_text.done", text=part["text"], logprobs=[], **at)
        self.emit(sdk.ResponseContentPartDoneEvent, "response.content_part.done", part=part, **at)
        return part

    def message(self, *parts: Sequence[str], status: str = "completed", annotations: Sequence[Any] = ()) -> Script:
        at = self.item("message", role="assistant", content=[])
        content = [self.part(at, i, deltas, annotations) for i, deltas in enumerate(parts)]
        return self.item_done(status, content=content)

    def simple_part(self, at: dict[str, Any], kind: str, field: str, deltas: Sequence[str]) -> dict[str, Any]:
        """The only part of an item, of a kind that is nothing but its text; returns it."""
        at, part = {**at, "content_index": 0}, {"type": kind, field: "".join(deltas)}
        event = "Response" + "".join(word.title() for word in kind.split("_"))
        self.emit(sdk.ResponseContentPartAddedEvent, "response.content_part.added", part={**part, field: ""}, **at)
        for delta in deltas:
            self.emit(getattr(sdk, f"{event}DeltaEvent"), f"response.{kind}.delta", delta=delta, **at)
        self.emit(getattr(sdk, f"{event}DoneEvent"), f"response.{kind}.done", **{field: part[field]}, **at)
        self.emit(sdk.ResponseContentPartDoneEvent, "response.content_part.done", part=part, **at)
        return part

    def refusal(self) -> Script:
        at = self.item("message", role="assistant", content=[])
        part = self.simple_part(at, "refusal", "refusal", ("I will", " not."))
        return self.item_done(content=[part])

    def with_logprobs(self) -> Script:
        """A message whose second token adds no text yet."""
        at = self.item("message", role="assistant", content=[])
        at, part = {**at, "content_index": 0}, {"type": "output_text", "annotations": [], "text": "", "logprobs": []}
        each: Any = [one.model_dump() for one in LOGPROBS]
        self.emit(sdk.ResponseContentPartAddedEvent, "response.content_part.added", part=part, **at)
        for delta, one in zip(("He", "", "llo"), each, strict=True):
            fields = {"delta": delta, "logprobs": [one], **at}
            self.emit(sdk.ResponseTextDeltaEvent, "response.output_text.delta", **fields)
        part = {**part, "text": "Hello", "logprobs": each}
        self.emit(sdk.ResponseTextDoneEvent, "response.output_text.done", text="Hello", logprobs=each, **at)
        self.emit(sdk.ResponseContentPartDoneEvent, "response.content_part.done", part=part, **at)
        return self.item_done(content=[part])

    def thought(self, at: dict[str, Any]) -> dict[str, Any]:
        """A part of reasoning text; returns it."""
        return self.simple_part(at, "reasoning_text", "text", ("Hm,", " 2."))

    def summary(self, at: dict[str, Any], index: int, deltas: Sequence[str], **last: Any) -> dict[str, Any]:
        """A part of a summary; returns it."""
        at, part = {**at, "summary_index": index}, {"type": "summary_text", "text": "".join(deltas)}
        start = "response.reasoning_summary"
        self.emit(sdk.ResponseReasoningSummaryPartAddedEvent, f"{start}_part.added", part={**part, "text": ""}, **at)
        for delta in deltas:
            self.emit(sdk.ResponseReasoningSummaryTextDeltaEvent, f"{start}_text.delta", delta=delta, **at)
        self.emit(sdk.ResponseReasoningSummaryTextDoneEvent, f"{start}_text.done", text=part["text"], **at)
        self.emit(sdk.ResponseReasoningSummaryPartDoneEvent, f"{start}_part.done", part=part, **at, **last)
        return part

    def reasoning(self, *, status: bool = True) -> Script:
        """An item with reasoning text and a summary in two parts."""
        at = self.item("reasoning", summary=[], **({} if status else {"status": None}))
        content = [self.thought(at)]
        summary = [self.summary(at, 0, ["Thinks", "."]), self.summary(at, 1, ["Adds."])]
        return self.item_done("completed" if status else None, content=content, summary=summary, encrypted_content="x")

    def call(self, n: int, deltas: Sequence[str] = ('{"a":', " 1}"), status: str = "completed") -> Script:
        arguments = "".join(deltas)
        at = self.item("function_call", name="add", call_id=f"call_{n}", arguments="")
        for delta in deltas:
            fields = {"delta": delta, **at}
            cls = sdk.ResponseFunctionCallArgumentsDeltaEvent
            self.emit(cls, "response.function_call_arguments.delta", **fields)
        fields = {"arguments": arguments, "name": "add", **at}
        self.emit(sdk.ResponseFunctionCallArgumentsDoneEvent, "response.function_call_arguments.done", **fields)
        return self.item_done(status, arguments=arguments)

    def custom_call(self) -> Script:
        at = self.item("custom_tool_call", name="shell", call_id="call_c", input="", status=None)
        for delta in ("ls", " -l"):
            self.emit(
                sdk.ResponseCustomToolCallInputDeltaEvent, "response.custom_tool_call_input.delta", delta=delta, **at
            )
        self.emit(sdk.ResponseCustomToolCallInputDoneEvent, "response.custom_tool_call_input.done", input="ls -l", **at)
        return self.item_done(None, input="ls -l")

    def error(self) -> Script:
        return self.emit(sdk.ResponseErrorEvent, "error", code="server_error", message="broken", param=None)


ERROR = {"code": "server_error", "message": "broken"}
CUT = {"reason": "max_output_tokens"}


def cut_in_text(*, keep: bool) -> list[Any]:
    """Cancelled in the middle of a message, which the response keeps or drops."""
    script = Script().queue().state("in_progress", "in_progress").call(0)
    at = {**script.item("message", role="assistant", content=[]), "content_index": 0}
    part = {"type": "output_text", "annotations": [], "text": ""}
    script.emit(sdk.ResponseContentPartAddedEvent, "response.content_part.added", part=part, **at)
    script.emit(sdk.ResponseTextDeltaEvent, "response.output_text.delta", delta="Hel", logprobs=[], **at)
    if keep:
        fields = {"id": at["item_id"], "type": "message", "role": "assistant", "status": "incomplete"}
        script.output.append(make(sdk.ResponseOutputMessage, **fields, content=[{**part, "text": "Hel"}]))
    return script.end("failed", "cancelled")


def cut_in_summary() -> list[Any]:
    script = Script().start()
    at = script.item("reasoning", summary=[])
    summary = [script.summary(at, 0, ["Thin"], status="incomplete")]
    return script.item_done("incomplete", summary=summary).end("incomplete", incomplete_details=CUT)


STREAMS: dict[str, list[Any]] = {
    "text": Script().start().message(["Hel", "lo"]).end(completed_at=1001),
    "no text": Script().start().message([]).end(),
    "no parts": Script().start().message().end(),
    "two parts, two messages": Script().start().message(["a", "b"], ["c"]).message(["d"]).end(),
    "annotations": Script().start().message(["see"], annotations=[CITATION, {**CITATION, "end_index": 3}]).end(),
    "logprobs": Script(top_logprobs=1).start().with_logprobs().end(),
    "refusal": Script().start().refusal().end(),
    "reasoning": Script().start().reasoning().message(["2"]).end(),
    "reasoning without status": Script().start().reasoning(status=False).message(["2"]).end(),
    "calls": Script().start().call(0).call(1, ["{}"]).custom_call().end(),
    "call without deltas": Script().start().call(0, []).end(),
    "incomplete text": Script().start().message(["Hel"], status="incomplete").end("incomplete", incomplete_details=CUT),
    "incomplete call": Script().start().call(0, ["{"], status="incomplete").end("incomplete", incomplete_details=CUT),
    "incomplete summary": cut_in_summary(),
    "incomplete after an item": Script().start().reasoning().end("incomplete", incomplete_details=CUT),
    "nothing": Script().start().end("incomplete", incomplete_details=CUT),
    "failed": Script().start().message(["a"]).end("failed", error=ERROR),
    "failed with an error event": Script().start().error().end("failed", error=ERROR, usage=USAGE),
    "background": Script().queue().state("in_progress", "in_progress").message(["a"]).end(),
    "failed in the queue": Script().queue().error().end("failed", error=ERROR),
    "cancelled in the queue": Script().queue().end("failed", "cancelled"),
    "cancelled": cut_in_text(keep=False),
    "cancelled, the rest kept": cut_in_text(keep=True),
}
