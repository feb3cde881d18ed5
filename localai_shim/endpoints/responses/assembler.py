"""Token events -> the events of a streamed response, or one Response made of the same items.

Order and content of the events follow https://platform.openai.com/docs/api-reference/responses-streaming.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from openai.types import responses as types
from openai.types.chat import ChatCompletionTokenLogprob

from ...output.answer import Delta, TextParser
from ...types import Json, Prompt, Token
from ..answer_fields import by_kind, token_logprobs, usage_fields
from ..chat.assembler import invalid_call, new_call_id
from ..hosted.items import citations
from ..hosted.kind import Calls
from ..items.content import seal
from ..items.resources import new_item_id
from ..request_fields import new_id, now
from ..served import ServedModel
from ..turn import Assembler

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
Kind = Literal["reasoning", "summary", "message", "refusal", "function", "custom"]


class Form(NamedTuple):
    """Names that a kind of item has for what it holds."""

    type: str
    """The item's."""
    events: str
    """Beginning of the types of its text's events."""
    text: str
    """The field that has the text, of the last of these events, and of the item's part or, in calls, of the item."""
    part: str = ""
    """Type of the one part that messages and reasoning have."""
    place: str = ""
    """The field that has the part."""


_FORMS: dict[Kind, Form] = {
    "message": Form("message", "response.output_text", "text", "output_text", "content"),
    "refusal": Form("message", "response.refusal", "refusal", "refusal", "content"),
    "reasoning": Form("reasoning", "response.reasoning_text", "text", "reasoning_text", "content"),
    "summary": Form("reasoning", "response.reasoning_summary_text", "text", "summary_text", "summary"),
    "function": Form("function_call", "response.function_call_arguments", "arguments"),
    "custom": Form("custom_tool_call", "response.custom_tool_call_input", "input"),
}
_EVENTS: Mapping[str, Callable[..., types.ResponseStreamEvent]] = {
    get_args(event.model_fields["type"].annotation)[0]: event
    for event in get_args(get_args(types.ResponseStreamEvent)[0])
}
"""The SDK's classes of events, by their types."""
UNFINISHED: tuple[Status, ...] = ("queued", "in_progress")

_NOT_YET = dict.fromkeys(
    ("error", "incomplete_details", "usage", "completed_at", "safety_identifier", "prompt_cache_key")
)
"""Fields of a response that are null where they do not apply, and never absent."""


def make_response(fields: Mapping[str, object]) -> types.Response:
    """A response with the numbers that Open Responses requires and the SDK's type does not have."""
    return types.Response.model_validate({"presence_penalty": 0.0, "frequency_penalty": 0.0, **fields})


def make_event(type: str, **fields: object) -> types.ResponseStreamEvent:
    """An event of a stream, of the SDK's class for its type."""
    return _EVENTS[type](type=type, **fields)


class OutputItem:
    """An output item that is being made, or is done."""

    __slots__ = (
        *("annotations", "at", "call_id", "form", "id", "index", "kind", "logprobs", "name", "namespace", "status"),
        "text",
    )

    def __init__(self, kind: Kind, index: int, name: str = "", form: Form | None = None) -> None:
        self.kind, self.index, self.name = kind, index, name
        self.form = form or _FORMS[kind]
        self.namespace: str | None = None
        self.id = new_item_id(self.form.type)
        self.call_id = "" if self.form.part else new_call_id()
        self.at: dict[str, str | int] = {"item_id": self.id, "output_index": index}
        """Place that its events belong to."""
        if self.form.part:
            self.at[f"{self.form.place}_index"] = 0
        self.text: list[str] = []
        self.logprobs: list[ChatCompletionTokenLogprob] = []
        self.annotations: Sequence[Json] = ()
        self.status = "in_progress"


class ResponseAssembler(Assembler[types.Response]):
    """Turns the tokens of one request into events, or into one response.

    Beyond OpenAI's fields a response has `invalid_tool_calls` (text and error of each) where the model marked something
    as a call that cannot be read as one.

    Args:
        model: what serves the request.
        parser: reads the tokens; None: the first round has one.
        prompt: what the response continues; None: the first round has it.
        fields: those of the response that repeat the request.
        logprobs: the text comes with its tokens' logprobs.
        token_ids: the response has the prompt's token ids and the output's, reasoning and calls included; with
            `logprobs` the output's logprobs as well.
        summary: the reasoning is shown as its own summary: local models write no other.
        encrypted: reasoning items have `encrypted_content`.
        background: the response is queued first.
        namespaces: of functions, by the names that the model knows: namespace and name.
        keep: see `Assembler`.
    """

    earlier: Sequence[Json] = ()
    """Items that the response continues: what they have found can be cited."""
    cited: Mapping[str, Sequence[Json]] | None = None
    """Recorded annotations, by the texts of their messages; None: they are made."""

    def __init__(
        self,
        *,
        model: ServedModel,
        parser: TextParser | None,
        prompt: Prompt | None,
        fields: Mapping[str, object],
        logprobs: bool,
        token_ids: bool,
        summary: bool,
        encrypted: bool,
        background: bool = False,
        namespaces: Mapping[str, tuple[str, str]] | None = None,
        keep: Callable[[types.Response], None] | None = None,
    ) -> None:
        super().__init__(keep)
        self.id = new_id("resp_", 24)
        self._model = model
        self._prompts: list[Prompt] = []
        self._parsers: list[TextParser] = []
        """Those of each round."""
        if parser is not None and prompt is not None:
            self._parser, self._prompts, self._parsers = parser, [prompt], [parser]
        self._logprobs, self._summary, self._encrypted = logprobs, summary, encrypted
        self._sampled: list[Token] | None = [] if token_ids else None
        self._namespaces = namespaces or {}
        self.status: Status = "queued" if background else "in_progress"
        self._fields: dict[str, object] = {
            "id": self.id,
            "object": "response",
            "created_at": now(),
            "model": model.name,
            **_NOT_YET,
            **fields,
        }
        self._items: list[OutputItem] = []
        self._open: OutputItem | None = None
        self._invalid: list[dict[str, object]] = []
        self._ending: dict[str, object] = {}
        self._events: list[types.ResponseStreamEvent] = []
        self._sequence = 0
        self._streams = True
        self.refuses = False
        """The text is a refusal: tests may play one."""

    def begin(self) -> list[types.ResponseStreamEvent]:
        """The events before the first token."""
        self._emit("response.created", response=self.result())
        self._emit(f"response.{self.status}", response=self.result())
        return self._flush()

    def start(self) -> list[types.ResponseStreamEvent]:
        """The response leaves the queue; returns the event for that, or nothing if it had left before."""
        if self.status != "queued":
            return []
        self.status = "in_progress"
        self._emit("response.in_progress", response=self.result())
        return self._flush()

    def feed(self, index: int, token: Token) -> list[types.ResponseStreamEvent]:
        """Take the next token; returns the events that it makes."""
        self._sample(token)
        self._take(self._parser.feed(token))
        return self._flush()

    def collect(self, index: int, token: Token) -> None:
        """Take the next token, when the response is wanted whole."""
        self._streams = False
        self._sample(token)
        self._take(self._parser.feed(token))

    def fail(self, error: Exception) -> list[types.ResponseStreamEvent]:
        """End with an error; returns the last events."""
        details = {"code": "server_error", "message": str(error) or repr(error)}
        self._close("incomplete")
        self._end("failed", error=details)
        self.finished = True
        self._emit("error", param=None, **details)
        self._emit("response.failed", response=self.result())
        return self._flush()

    def cancel(self) -> list[types.ResponseStreamEvent]:
        """End as cancelled; returns the last events.

        The API has no event for that: of those that end a stream `response.failed` claims the least, and its response
        has the status.
        """
        self._close("incomplete")
        self._end("cancelled")
        self.finished = True
        self._emit("response.failed", response=self.result())
        return self._flush()

    def finish_reasons(self) -> tuple[str, ...]:
        if self.status not in ("completed", "incomplete"):
            return ()
        called = any(item.form.type in ("function_call", "custom_tool_call") for item in self._items)
        return ("length" if self.status == "incomplete" else "tool_calls" if called else "stop",)

    @property
    def reasoning_tokens(self) -> int:
        return sum(parser.reasoning_tokens for parser in self._parsers)

    def result(self) -> types.Response:
        """The response as it is now."""
        output = [self._made(item) for item in self._items]
        invalid = {"invalid_tool_calls": self._invalid} if self._invalid else {}
        return make_response({**self._fields, "status": self.status, "output": output, **invalid, **self._ending})

    def _sample(self, token: Token) -> None:
        if self._sampled is not None:
            self._sampled.append(token)

    def _tokens(self) -> dict[str, object]:
        """vLLM's fields of token ids, and the logprobs of all of them, if the request asks for them."""
        if self._sampled is None:
            return {}
        logprobs = {"token_logprobs": [token.logprob for token in self._sampled]} if self._logprobs else {}
        prompt = self._prompts[0].tokens if self._prompts else ()
        ids = {"prompt_token_ids": list(prompt), "token_ids": [token.id for token in self._sampled]}
        return {**ids, **logprobs}

    # -- events -------------------------------------------------------------------------------------------------

    def _emit(self, type: str, **fields: object) -> None:
        if self._streams:
            self._events.append(make_event(type, sequence_number=self._sequence, **fields))
            self._sequence += 1

    def _flush(self) -> list[types.ResponseStreamEvent]:
        events, self._events = self._events, []
        return events

    # -- items --------------------------------------------------------------------------------------------------

    def _take(self, delta: Delta) -> None:
        if delta.reasoning:
            self._add(self._item("summary" if self._summary else "reasoning"), delta.reasoning)
        if delta.text or delta.tokens:
            self._add_text(delta.text, delta.tokens)
        for call in delta.calls:
            item = self._item("custom" if call.custom else "function", call.name or "")
            if call.arguments:
                self._add(item, call.arguments)
        for invalid in delta.invalid:
            self._invalid.append(invalid_call(len(self._invalid), invalid))
        if delta.finish_reason is not None:
            self._finish(cut=delta.finish_reason == "length")

    def _item(self, kind: Kind, name: str = "") -> OutputItem:
        """The open item of this kind, or a new one. Each call has its own item."""
        if self._open is not None and self._open.kind == kind and not name:
            return self._open
        self._close("completed")
        self._open = item = OutputItem(kind, len(self._items), name)
        if name in self._namespaces:
            item.namespace, item.name = self._namespaces[name]
        self._items.append(item)
        if self._streams:
            added = self._made(item, empty=True)
            self._emit("response.output_item.added", item=added, output_index=item.index)
            self._emit_part(item, "added", "")
        return item

    def _add_text(self, text: str, tokens: Sequence[tuple[Token, int]]) -> None:
        if self.refuses:
            self._add(self._item("refusal"), text)
            return
        item = self._item("message")
        logprobs: list[ChatCompletionTokenLogprob] = []
        if self._logprobs and tokens:
            logprobs = token_logprobs(tokens, self._model.tokenizer)
            item.logprobs += logprobs
        self._add(item, text, logprobs=_brief(logprobs))

    def _add(self, item: OutputItem, text: str, **more: object) -> None:
        item.text.append(text)
        if self._streams:
            self._emit(item.form.events + ".delta", delta=text, **item.at, **more)

    def _close(self, status: Literal["completed", "incomplete"]) -> None:
        """The open item is done."""
        item, self._open = self._open, None
        if item is None:
            return
        item.status = status
        text = "".join(item.text)
        if item.kind == "message":
            item.annotations = self._annotations(text)
        if not self._streams:
            return
        for i, annotation in enumerate(item.annotations):
            self._emit("response.output_text.annotation.added", annotation=annotation, annotation_index=i, **item.at)
        more: dict[str, object] = {item.form.text: text}
        if item.kind == "message":
            more["logprobs"] = _brief(item.logprobs)
        elif item.kind == "function":
            more["name"] = item.name
        self._emit(item.form.events + ".done", **more, **item.at)
        self._emit_part(item, "done", text)
        self._emit("response.output_item.done", item=self._made(item), output_index=item.index)

    def _annotations(self, text: str) -> Sequence[Json]:
        """Annotations of a message's whole text."""
        return self.cited.get(text, ()) if self.cited is not None else citations(text, self._found(), self.earlier)

    def _found(self) -> Mapping[Calls, Sequence[Json]]:
        """Results that this response has found, by kinds of hosted tools."""
        return {}

    def _emit_part(self, item: OutputItem, what: Literal["added", "done"], text: str) -> None:
        """The one part that messages and reasoning have begins or is done."""
        if item.form.part:
            kind = "reasoning_summary_part" if item.kind == "summary" else "content_part"
            self._emit(f"response.{kind}.{what}", part=self._part(item, text), **item.at)

    def _part(self, item: OutputItem, text: str) -> dict[str, object]:
        """The one part that messages and reasoning have."""
        part: dict[str, object] = {"type": item.form.part, item.form.text: text}
        if item.kind == "message":
            part |= {"annotations": [*item.annotations], "logprobs": [one.to_dict() for one in item.logprobs]}
        return part

    def _made(self, item: OutputItem, *, empty: bool = False) -> dict[str, object]:
        """The item as the API shows it; `empty`: as it is when it is added."""
        text, form = "" if empty else "".join(item.text), item.form
        made: dict[str, object] = {"id": item.id, "type": form.type, "status": item.status}
        if not form.part:
            made |= {"call_id": item.call_id, "name": item.name, form.text: text}
            return made if item.namespace is None else {**made, "namespace": item.namespace}
        more: dict[str, object] = {"role": "assistant"} if form.type == "message" else {"summary": []}
        made |= more
        made[form.place] = [] if empty else [self._part(item, text)]
        if self._encrypted and form.type == "reasoning":
            made["encrypted_content"] = seal(text)
        return made

    # -- the end ------------------------------------------------------------------------------------------------

    def _finish(self, *, cut: bool) -> None:
        """The model has written all of a round."""
        self._complete(cut=cut)
        self.finished = True

    def _complete(self, *, cut: bool) -> None:
        """The response is completed, or incomplete."""
        if not self._items:
            self._item("refusal" if self.refuses else "message")
        self._close("incomplete" if cut else "completed")
        if cut:
            self._end("incomplete", incomplete_details={"reason": "max_output_tokens"})
        else:
            self._end("completed", completed_at=now())
        if self._streams:
            self._emit(f"response.{self.status}", response=self.result())

    def _end(self, status: Status, **ending: object) -> None:
        self.status = status
        self._ending = {"usage": response_usage(self._prompts, self._parsers), **self._tokens(), **ending}


def response_usage(prompts: Sequence[Prompt], parsers: Sequence[TextParser]) -> dict[str, object]:
    """Token counts of all rounds in the form of this API."""
    reasoning = sum(parser.reasoning_tokens for parser in parsers)
    usage = usage_fields(prompts, sum(parser.generated for parser in parsers), reasoning)
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    # Under chat.completions' names: this API has none.
    details = by_kind(prompts) if any(prompt.media for prompt in prompts) else {}
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0, **details},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": usage["total_tokens"],
    }


def _brief(logprobs: Sequence[ChatCompletionTokenLogprob]) -> list[dict[str, object]]:
    """Logprobs as text events have them: without bytes."""
    return [one.model_dump(exclude={"bytes": True, "top_logprobs": {"__all__": {"bytes"}}}) for one in logprobs]
