"""Token events -> ChatCompletionChunks, or one ChatCompletion from the same deltas.

Nearly every token of a stream makes a copy of a chunk that was validated once. Validating a chunk with its choice and
delta takes nearly twice as long. A copy is equal to a validated object in all that pydantic knows of one: fields, extra
fields, and which were set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from openai import BaseModel
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from ...output.answer import Delta
from ...output.tool_calls import CallDelta, InvalidCall
from ...types import Json, Prompt, Token
from ..answer_fields import NO_PROMPT, Extras, PredictionCounts, token_logprobs, usage_fields
from ..request_fields import new_id, now
from ..served import ServedModel
from ..turn import Assembler

FinishReason = Literal["stop", "length", "tool_calls", "function_call"]


class ChoiceParser(Protocol):
    """Reads the tokens of a choice: see `TextParser`."""

    @property
    def generated(self) -> int: ...
    @property
    def reasoning_tokens(self) -> int: ...
    @property
    def stop_reason(self) -> int | str | None: ...
    def text(self, token: Token) -> str | None: ...
    def feed(self, token: Token) -> Delta: ...


class ChatAssembler(Assembler[ChatCompletion]):
    """Turns the events of one request into chunks, or into one completion.

    Beyond OpenAI's fields, messages and deltas have `reasoning_content`, as DeepSeek's, and the same as `reasoning`, as
    vLLM's newer ones (null where there is none), and `invalid_tool_calls` (text and error of each) where the model
    marked something as a call that cannot be read as one.

    Args:
        model: what serves the request.
        parsers: one per choice.
        prompt: what the choices continue.
        logprobs: whether the caller asked for them.
        metadata: echoed in a whole completion.
        legacy: answer with a `function_call` instead of `tool_calls`.
        keep: see `Assembler`.
        extras: what the answer has beyond OpenAI's fields.
        predicted: counts the tokens of a prediction.
    """

    def __init__(
        self,
        *,
        model: ServedModel,
        parsers: Sequence[ChoiceParser],
        prompt: Prompt,
        logprobs: bool,
        metadata: dict[str, str] | None,
        legacy: bool,
        keep: Callable[[ChatCompletion], None] | None,
        extras: Extras,
        predicted: PredictionCounts,
    ) -> None:
        super().__init__(keep)
        self._predicted = predicted
        self.id, self._created = new_id("chatcmpl-"), now()
        self._model, self._parsers, self._prompt = model, parsers, prompt
        self._later: list[tuple[int, Prompt]] = []
        """Prompts of later rounds, each with its choice."""
        self._logprobs, self._metadata = logprobs, metadata
        self._legacy, self._extras = legacy, extras
        self._only_text = not (extras.token_ids or extras.continuous_usage)
        """A chunk has what one token added, and nothing that is counted."""
        self._text_alone = self._only_text and keep is None and not predicted.counts_any
        """No other reader looks at tokens."""
        self._began = False
        self._choices = [_ChoiceState() for _ in parsers]
        self._open = len(parsers)
        self._constant: dict[str, object] = {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": model.name,
            "service_tier": "default",
            "system_fingerprint": model.fingerprint,
            **NO_PROMPT,
        }
        if extras.include_usage:
            self._constant["usage"] = None

    def feed(self, index: int, token: Token) -> list[ChatCompletionChunk]:
        """Take a choice's next token; returns the chunks that it makes, in a stream."""
        choice, parser = self._choices[index], self._parsers[index]
        if self._text_alone and choice.started and (text := parser.text(token)) is not None:
            return [self._text_chunk(choice, index, text)] if text else []  # what nearly every token makes
        delta = parser.feed(token)
        self._predicted.feed(index, token)
        if self._extras.token_ids:
            choice.token_ids.append(token.id)
        if self._keep is not None:
            choice.take(delta)
        if self._only_text and choice.started and delta.is_text:
            return [self._text_chunk(choice, index, delta.text)] if delta.text else []
        fields = self._delta(choice, delta)
        chunks: list[ChatCompletionChunk] = []
        if fields or delta.tokens:
            if not choice.started:
                self._start(index, choice, chunks, fields)
            chunks.append(self._chunk(index, fields, delta.tokens))
        if delta.finish_reason is not None:
            chunks += self._end(index, delta.finish_reason)
            self.finished = self._open == 0
        return chunks

    def collect(self, index: int, token: Token) -> None:
        """Take a choice's next token, when the answer is wanted whole."""
        delta = self._parsers[index].feed(token)
        self._predicted.feed(index, token)
        self._choices[index].take(delta)
        if self._extras.token_ids:
            self._choices[index].token_ids.append(token.id)
        if delta.finish_reason is not None:
            self._finish(self._choices[index], delta.finish_reason)
            self.finished = self._open == 0

    def finish_reasons(self) -> tuple[str, ...]:
        return tuple(choice.finish_reason for choice in self._choices) if self.finished else ()

    @property
    def reasoning_tokens(self) -> int:
        return sum(parser.reasoning_tokens for parser in self._parsers)

    def result(self) -> ChatCompletion:
        """The whole completion, once `finished`."""
        fields: dict[str, object] = {
            **self._constant,
            "object": "chat.completion",
            "choices": [self._choice(index, choice) for index, choice in enumerate(self._choices)],
            "usage": self._usage(),
            **self._extras.of_prompt(self._prompt, self._model.tokenizer),
        }
        if self._metadata is not None:
            fields["metadata"] = self._metadata
        return ChatCompletion.model_validate(fields)  # one validation of the whole, as of chunks

    # -- streams ------------------------------------------------------------------------------------------------

    def _delta(self, choice: _ChoiceState, delta: Delta) -> Json:
        """The fields of a chunk's delta."""
        fields: Json = {}
        if delta.reasoning and self._extras.reasoning:
            fields["reasoning_content"] = fields["reasoning"] = delta.reasoning
        if delta.text:
            fields["content"], choice.has_text = delta.text, True
        if delta.calls:
            self._add_calls(choice, delta.calls, fields)
        if delta.invalid:
            first, choice.invalid_sent = choice.invalid_sent, choice.invalid_sent + len(delta.invalid)
            fields["invalid_tool_calls"] = [invalid_call(i, call) for i, call in enumerate(delta.invalid, first)]
        return fields

    def _add_calls(self, choice: _ChoiceState, calls: Sequence[CallDelta], fields: Json) -> None:
        choice.called = True
        merged: dict[int, CallDelta] = {}
        for call in calls:
            known = merged.setdefault(call.index, call)
            if known is not call:
                known.arguments += call.arguments
        if not self._legacy:
            fields["tool_calls"] = [_call_delta(call) for call in merged.values()]
        elif 0 in merged:  # the deprecated field holds one call
            first = merged[0]
            name = {} if first.name is None else {"name": first.name}
            fields["function_call"] = {**name, "arguments": first.arguments}

    def _start(self, index: int, choice: _ChoiceState, chunks: list[ChatCompletionChunk], fields: Json) -> None:
        """The chunk that a choice begins with: its content is null unless there is some.

        The choices before it begin, too: the SDK's stream helper takes them in the order of their first chunks.
        """
        for earlier in (i for i in range(index) if not self._choices[i].started):
            self._start(earlier, self._choices[earlier], chunks, {})
        choice.started = True
        content = "" if "content" in fields else None
        chunks.append(self._chunk(index, {"role": "assistant", "content": content, "refusal": None}))

    def _end(self, index: int, finish_reason: FinishReason) -> list[ChatCompletionChunk]:
        """The chunks that a choice ends with, and behind the last choice the usage."""
        choice, chunks = self._choices[index], list[ChatCompletionChunk]()
        if not choice.started:
            self._start(index, choice, chunks, {})
        if annotations := self._annotations(index):
            chunks.append(self._chunk(index, {"annotations": annotations}))
        rest = {} if choice.has_text or choice.called else {"content": ""}  # null is for calls
        chunks.append(self._chunk(index, rest, finish_reason=self._finish(choice, finish_reason)))
        if self._open == 0 and self._extras.include_usage:
            chunks.append(self._make_chunk([], usage=self._usage()))
        return chunks

    def _annotations(self, index: int) -> list[Json]:
        """Annotations of a choice's whole content."""
        return []

    def _text_chunk(self, choice: _ChoiceState, index: int, text: str) -> ChatCompletionChunk:
        """Make `_chunk` of a delta with nothing but content."""
        if choice.original is None:
            choice.original = Original(self._chunk(index, {"content": text}), "choices", "delta")
            choice.has_text = True
        return choice.original.copy({"content": text})

    def _chunk(
        self,
        index: int,
        delta: Json,
        tokens: Sequence[tuple[Token, int]] = (),
        finish_reason: FinishReason | None = None,
    ) -> ChatCompletionChunk:
        choice: Json = {
            "index": index,
            "delta": {**_NO_REASONING, **delta},  # clients read it of every chunk
            "finish_reason": finish_reason,
            "logprobs": self._scored(tokens) if tokens else None,
            "token_ids": None,
        }
        if finish_reason is not None:
            choice["stop_reason"] = self._parsers[index].stop_reason
        begins = "role" in delta
        if self._extras.token_ids and not begins:
            state = self._choices[index]
            choice["token_ids"], state.ids_sent = state.token_ids[state.ids_sent :], len(state.token_ids)
        usage = None
        if self._extras.continuous_usage:  # whose first chunk comes with the first token, and counts none, as in vLLM
            usage = self._usage(index, begins=begins)
        return self._make_chunk([choice], usage)

    def _make_chunk(self, choices: list[Json], usage: Json | None = None) -> ChatCompletionChunk:
        # One validation of the whole costs less than a constructor per part.
        fields: dict[str, object] = {**self._constant, "choices": choices}
        if usage is not None:
            fields["usage"] = usage
        if not self._began:
            self._began = True
            fields.update(self._extras.of_prompt(self._prompt, self._model.tokenizer))
        if any("custom" in call for choice in choices for call in choice["delta"].get("tool_calls", ())):
            return ChatCompletionChunk.construct(None, **fields)  # the SDK's type of a delta knows functions only
        return ChatCompletionChunk.model_validate(fields)

    # -- whole answers ------------------------------------------------------------------------------------------

    def _finish(self, choice: _ChoiceState, finish_reason: FinishReason) -> FinishReason:
        self._open -= 1
        choice.finish_reason = finish_reason
        if choice.finish_reason == "stop" and choice.called:
            choice.finish_reason = "function_call" if self._legacy else "tool_calls"
        return choice.finish_reason

    def _choice(self, index: int, choice: _ChoiceState) -> dict[str, object]:
        return {
            "index": index,
            "finish_reason": choice.finish_reason,
            "logprobs": self._scored(choice.tokens) if self._logprobs else None,
            "message": {**self._message(choice), "annotations": self._annotations(index)},
            "stop_reason": self._parsers[index].stop_reason,
            "token_ids": choice.token_ids if self._extras.token_ids else None,
        }

    def _scored(self, tokens: Sequence[tuple[Token, int]]) -> Json:
        """The logprobs of content."""
        return {"content": token_logprobs(tokens, self._model.tokenizer), "refusal": None}

    def _message(self, choice: _ChoiceState) -> dict[str, object]:
        text, reasoning = "".join(choice.text), None
        if self._extras.reasoning:
            reasoning = "".join(choice.reasoning) or None
        fields: dict[str, object] = {
            "role": "assistant",
            "content": text or (None if choice.calls else ""),
            "refusal": None,
            "reasoning_content": reasoning,
            "reasoning": reasoning,
        }
        if choice.calls and self._legacy:
            first = choice.calls[0]
            fields["function_call"] = {"name": first.name, "arguments": "".join(first.arguments)}
        elif choice.calls:
            fields["tool_calls"] = [call.made() for call in choice.calls]
        if choice.invalid:
            fields["invalid_tool_calls"] = choice.invalid
        return fields

    def _usage(self, choice: int | None = None, *, begins: bool = False) -> Json:
        """Of one choice, or of all; `begins`: before its first token."""
        if begins:
            return usage_fields([self._prompt], 0)
        prompts = [self._prompt, *(prompt for i, prompt in self._later if choice in (None, i))]
        parsers = self._parsers if choice is None else [self._parsers[choice]]
        generated = sum(parser.generated for parser in parsers)
        reasoning = sum(parser.reasoning_tokens for parser in parsers)
        return usage_fields(prompts, generated, reasoning, self._predicted.counts(choice))


@dataclass(slots=True)
class _ChoiceState:
    """One choice, as far as it was generated."""

    started: bool = False
    called: bool = False
    has_text: bool = False  # of a stream
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: list[_Call] = field(default_factory=list["_Call"])
    invalid: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    invalid_sent: int = 0
    tokens: list[tuple[Token, int]] = field(default_factory=list[tuple[Token, int]])
    token_ids: list[int] = field(default_factory=list[int])
    ids_sent: int = 0
    finish_reason: FinishReason = "length"
    original: Original[ChatCompletionChunk] | None = None

    def take(self, delta: Delta) -> None:
        self.text.append(delta.text)
        self.tokens += delta.tokens
        if delta.reasoning:
            self.reasoning.append(delta.reasoning)
        for call in delta.calls:
            self.called = True
            if call.name is not None:
                self.calls.append(_Call(call.custom, call.name))
            self.calls[call.index].arguments.append(call.arguments)
        for invalid in delta.invalid:
            self.invalid.append(invalid_call(len(self.invalid), invalid))


@dataclass(slots=True)
class _Call:
    """A tool call that is being made."""

    custom: bool
    name: str
    id: str = field(default_factory=lambda: new_call_id())
    arguments: list[str] = field(default_factory=list[str])

    def made(self) -> dict[str, object]:
        """Call in the form of the API."""
        kind, text = _CALL_KINDS[self.custom]
        return {"id": self.id, "type": kind, kind: {"name": self.name, text: "".join(self.arguments)}}


_CALL_KINDS = {False: ("function", "arguments"), True: ("custom", "input")}
"""The type of a call, by whether its tool is a custom one, and what its text is called there."""

_NO_REASONING: Json = {"reasoning_content": None, "reasoning": None}  # DeepSeek's name, and vLLM's


def new_call_id() -> str:
    """A unique id such as OpenAI's: `call_` and 24 letters and digits."""
    return new_id("call_", 12)


def _call_delta(call: CallDelta) -> dict[str, object]:
    kind, text = _CALL_KINDS[call.custom]
    if call.name is None:
        return {"index": call.index, kind: {text: call.arguments}}
    inner = {"name": call.name, text: call.arguments}
    return {"index": call.index, "id": new_call_id(), "type": kind, kind: inner}


def invalid_call(index: int, call: InvalidCall) -> dict[str, object]:
    """Text that was marked as a call and cannot be read as one, as answers show it."""
    return {"index": index, "text": call.text, "error": call.error}


ModelT = TypeVar("ModelT", bound=BaseModel)


def _setter(name: str) -> Callable[[object, object], None]:
    """Sets an attribute of an SDK object, whatever its class says about that."""
    slot = next(vars(cls)[name] for cls in BaseModel.__mro__ if name in vars(cls))
    return slot.__set__  # type: ignore[no-any-return]


_new = object.__new__
_set_fields, _set_fields_set = _setter("__dict__"), _setter("__pydantic_fields_set__")
_set_extra, _set_private = _setter("__pydantic_extra__"), _setter("__pydantic_private__")


class Original(Generic[ModelT]):
    """A validated object that is copied with other values of some fields.

    Copies share all other values, which therefore must be immutable.

    Args:
        model: the object; it is not kept.
        *path: the fields that lead to the object inside whose fields those are; lists have one item.
    """

    __slots__ = ("_levels",)

    def __init__(self, model: ModelT, *path: str) -> None:
        self._levels = [_model_state(model, "", False)]
        inner: Any = model
        for name in path:
            inner = getattr(inner, name)
            listed = isinstance(inner, list)
            if listed:
                (inner,) = inner
            self._levels.insert(0, _model_state(inner, name, listed))

    def copy(self, fields: Mapping[str, object]) -> ModelT:
        """A copy with these values, which are what validation would make of them, of fields that were set."""
        made: Any = None
        for model_class, others, fields_set, more, private, name, listed in self._levels:
            made = _new(model_class)
            _set_fields(made, {**others, **fields})
            _set_fields_set(made, fields_set.copy())
            _set_extra(made, more.copy())
            _set_private(made, private and private.copy())
            fields = {name: [made] if listed else made}
        return made  # type: ignore[no-any-return]


_ModelState = tuple[
    type[BaseModel], Mapping[str, object], set[str], dict[str, object], dict[str, object] | None, str, bool
]


def _model_state(model: BaseModel, name: str, listed: bool) -> _ModelState:
    """State that pydantic keeps of an object; the field that it is in, and True if in a list."""
    extra, private = model.__pydantic_extra__, model.__pydantic_private__
    return type(model), model.__dict__.copy(), model.model_fields_set.copy(), dict(extra or {}), private, name, listed
