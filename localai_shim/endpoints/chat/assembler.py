"""Token events -> ChatCompletionChunks, or one ChatCompletion from the same deltas."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage, ChatCompletionTokenLogprob
from openai.types.chat.chat_completion import Choice, ChoiceLogprobs
from openai.types.chat.chat_completion_token_logprob import TopLogprob

from ...output.answer import AnswerParser
from ...output.text import Delta, TextParser
from ...output.tool_calls import CallDelta
from ...prompt.template import ChatTokenizer
from ...types import Prompt, Token
from .. import request_fields as common
from ..assembler import Assembler
from ..extras import NO_EXTRAS, Extras
from ..request_fields import ServedModel

FinishReason = Literal["stop", "length", "tool_calls", "function_call"]


class ChatAssembler(Assembler):
    """Turns the events of one request into chunks, or into one completion.

    Beyond OpenAI's fields, messages and deltas have `reasoning_content`, as DeepSeek's, and the same as `reasoning`, as
    vLLM's newer ones (null where there is none), and `invalid_tool_calls` (text and error of each) where the model
    marked something as a call that cannot be read as one.

    Args:
        model: what serves the request.
        parsers: one per choice.
        prompt: what the choices continue.
        logprobs: whether the caller asked for them.
        include_usage: end a stream with a chunk that has the usage and no choices.
        metadata: echoed in a whole completion.
        legacy: answer with a `function_call` instead of `tool_calls`.
        keep: stores the completion, once it is finished; may block.
        extras: what the answer has beyond OpenAI's fields.
    """

    def __init__(
        self,
        *,
        model: ServedModel,
        parsers: Sequence[TextParser | AnswerParser],
        prompt: Prompt,
        logprobs: bool,
        include_usage: bool,
        metadata: dict[str, str] | None,
        legacy: bool = False,
        keep: Callable[[ChatCompletion], None] | None = None,
        extras: Extras = NO_EXTRAS,
    ) -> None:
        self.id = common.new_id("chatcmpl")
        self._created = common.now()
        self._model, self._parsers, self._prompt = model, parsers, prompt
        self._logprobs, self._include_usage, self._metadata = logprobs, include_usage, metadata
        self._legacy, self._extras = legacy, extras
        self._text_alone = not (extras.token_ids or extras.continuous_usage)
        self._began = False
        self.keep = keep
        self._choices = [_ChoiceState() for _ in parsers]
        self._open = len(parsers)
        self._constant: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": model.name,
            "service_tier": "default",
            "system_fingerprint": model.fingerprint,
        }
        if include_usage:
            self._constant["usage"] = None

    @property
    def finished(self) -> bool:
        """All choices have ended."""
        return self._open == 0

    def feed(self, index: int, token: Token) -> list[ChatCompletionChunk]:
        """Take a choice's next token; returns the chunks that it makes, in a stream."""
        delta = self._parsers[index].feed(token)
        choice = self._choices[index]
        if self._extras.token_ids:
            choice.token_ids.append(token.id)
        if self.keep is not None:
            choice.take(delta)
        if choice.started and self._text_alone and delta.is_text:  # what nearly every token makes
            return [self._text_chunk(index, delta.text)] if delta.text else []
        fields = self._delta_fields(choice, delta)
        chunks: list[ChatCompletionChunk] = []
        if fields or delta.tokens:
            if not choice.started:
                self._start(index, choice, chunks, fields)
            chunks.append(self._chunk(index, fields, delta.tokens))
        if delta.finish_reason is not None:
            if not choice.started:
                self._start(index, choice, chunks, {"content": ""})
            chunks.append(self._chunk(index, {}, finish_reason=self._finish(choice, delta)))
            if self.finished and self._include_usage:
                chunks.append(self._make_chunk([], usage=self._usage()))
        return chunks

    def collect(self, index: int, token: Token) -> None:
        """Take a choice's next token, when the answer is wanted whole."""
        delta = self._parsers[index].feed(token)
        self._choices[index].take(delta)
        if self._extras.token_ids:
            self._choices[index].token_ids.append(token.id)
        if delta.finish_reason is not None:
            self._finish(self._choices[index], delta)

    def result(self) -> ChatCompletion:
        """The whole completion, once `finished`."""
        metadata: dict[str, Any] = {} if self._metadata is None else {"metadata": self._metadata}
        return ChatCompletion(
            id=self.id,
            object="chat.completion",
            created=self._created,
            model=self._model.name,
            choices=[self._choice(index, choice) for index, choice in enumerate(self._choices)],
            usage=self._usage(),
            service_tier="default",
            system_fingerprint=self._model.fingerprint,
            **metadata,
            **self._extras.of_prompt(self._prompt, self._model.tokenizer),
        )

    # -- streams ------------------------------------------------------------------------------------------------

    def _delta_fields(self, choice: _ChoiceState, delta: Delta) -> dict[str, Any]:
        """What a chunk's delta says."""
        fields: dict[str, Any] = {}
        if delta.reasoning and self._extras.reasoning:
            fields.update(_reasoning_fields(delta.reasoning))
        if delta.text:
            fields["content"] = delta.text
        if delta.calls:
            fields.update(self._call_fields(choice, delta.calls))
        if delta.invalid:
            first, choice.invalid_told = choice.invalid_told, choice.invalid_told + len(delta.invalid)
            fields["invalid_tool_calls"] = [
                {"index": first + i, "text": call.text, "error": call.error} for i, call in enumerate(delta.invalid)
            ]
        return fields

    def _call_fields(self, choice: _ChoiceState, calls: Sequence[CallDelta]) -> dict[str, Any]:
        choice.called = True
        merged: dict[int, CallDelta] = {}
        for call in calls:
            known = merged.setdefault(call.index, call)
            if known is not call:
                known.arguments += call.arguments
        if not self._legacy:
            return {"tool_calls": [_call_delta(call) for call in merged.values()]}
        first = merged.get(0)  # the deprecated field holds one call
        if first is None:
            return {}
        name = {} if first.name is None else {"name": first.name}
        return {"function_call": {**name, "arguments": first.arguments}}

    def _start(
        self, index: int, choice: _ChoiceState, chunks: list[ChatCompletionChunk], fields: dict[str, Any]
    ) -> None:
        """The chunk that a choice begins with: its content is null unless there is some.

        The choices before it begin, too: the SDK's stream helper takes them in the order of their first chunks.
        """
        for earlier in (i for i in range(index) if not self._choices[i].started):
            self._start(earlier, self._choices[earlier], chunks, {})
        choice.started = True
        content = "" if "content" in fields else None
        chunks.append(self._chunk(index, {"role": "assistant", "content": content, "refusal": None}))

    def _text_chunk(self, index: int, text: str) -> ChatCompletionChunk:
        """As `_chunk` of a delta with nothing but content, in one step."""
        delta = {**_NO_REASONING, "content": text}
        choice = {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}
        return ChatCompletionChunk.model_validate({**self._constant, "choices": [choice]})

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        tokens: Sequence[tuple[Token, int]] = (),
        finish_reason: FinishReason | None = None,
    ) -> ChatCompletionChunk:
        logprobs = None
        if tokens:
            logprobs = {"content": token_logprobs(tokens, self._model.tokenizer), "refusal": None}
        delta = {**_NO_REASONING, **delta}  # clients read it of every chunk
        choice = {"index": index, "delta": delta, "finish_reason": finish_reason, "logprobs": logprobs}
        if finish_reason is not None:
            choice["stop_reason"] = self._parsers[index].stop_reason
        if self._extras.token_ids and "role" not in delta:
            known = self._choices[index]
            choice["token_ids"], known.told_ids = known.token_ids[known.told_ids :], len(known.token_ids)
        return self._make_chunk([choice], self._usage(index) if self._extras.continuous_usage else None)

    def _make_chunk(self, choices: list[dict[str, Any]], usage: CompletionUsage | None = None) -> ChatCompletionChunk:
        # One validation of the whole costs less than a constructor per part.
        fields = {**self._constant, "choices": choices}
        if usage is not None:
            fields["usage"] = usage
        if not self._began:
            self._began = True
            fields.update(self._extras.of_prompt(self._prompt, self._model.tokenizer))
        if any("custom" in call for choice in choices for call in choice["delta"].get("tool_calls", ())):
            return ChatCompletionChunk.construct(**fields)  # the SDK's type of a delta knows functions only
        return ChatCompletionChunk.model_validate(fields)

    # -- whole answers ------------------------------------------------------------------------------------------

    def _finish(self, choice: _ChoiceState, delta: Delta) -> FinishReason:
        self._open -= 1
        choice.finish_reason = delta.finish_reason or "stop"
        if choice.finish_reason == "stop" and choice.called:
            choice.finish_reason = "function_call" if self._legacy else "tool_calls"
        return choice.finish_reason

    def _choice(self, index: int, choice: _ChoiceState) -> Choice:
        logprobs = None
        if self._logprobs:
            logprobs = ChoiceLogprobs(content=token_logprobs(choice.tokens, self._model.tokenizer), refusal=None)
        extra: dict[str, Any] = {"stop_reason": self._parsers[index].stop_reason}
        if self._extras.token_ids:
            extra["token_ids"] = choice.token_ids
        return Choice(
            index=index, finish_reason=choice.finish_reason, logprobs=logprobs, message=self._message(choice), **extra
        )

    def _message(self, choice: _ChoiceState) -> ChatCompletionMessage:
        text = "".join(choice.text)
        fields: dict[str, Any] = {"content": text if text or not choice.has_more else None}
        reasoning = "".join(choice.reasoning) if self._extras.reasoning else ""
        fields.update(_reasoning_fields(reasoning or None))
        if choice.calls and self._legacy:
            function = choice.calls[0]["function"]
            fields["function_call"] = {"name": function["name"], "arguments": "".join(function["arguments"])}
        elif choice.calls:
            fields["tool_calls"] = [_whole_call(call) for call in choice.calls]
        if choice.invalid:
            fields["invalid_tool_calls"] = choice.invalid
        return ChatCompletionMessage(role="assistant", refusal=None, annotations=[], **fields)

    def _usage(self, choice: int | None = None) -> CompletionUsage:
        """Of one choice, or of all."""
        parsers = self._parsers if choice is None else [self._parsers[choice]]
        generated = sum(parser.generated for parser in parsers)
        reasoning = sum(parser.reasoning_tokens for parser in parsers)
        return common.usage([self._prompt], generated, reasoning)


class _ChoiceState:
    """What has come of one choice so far."""

    __slots__ = (
        "called",
        "calls",
        "finish_reason",
        "invalid",
        "invalid_told",
        "reasoning",
        "started",
        "text",
        "token_ids",
        "tokens",
        "told_ids",
    )

    def __init__(self) -> None:
        self.started = self.called = False
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.invalid: list[dict[str, Any]] = []
        self.invalid_told = 0
        self.tokens: list[tuple[Token, int]] = []
        self.token_ids: list[int] = []
        self.told_ids = 0
        self.finish_reason: FinishReason = "length"

    @property
    def has_more(self) -> bool:
        """There is something beside the content, which is then null if there is none."""
        return bool(self.calls or self.reasoning or self.invalid)

    def take(self, delta: Delta) -> None:
        self.text.append(delta.text)
        self.tokens += delta.tokens
        if delta.reasoning:
            self.reasoning.append(delta.reasoning)
        for call in delta.calls:
            self.called = True
            if call.name is not None:
                kind = "custom" if call.custom else "function"
                self.calls.append({"id": new_call_id(), "type": kind, kind: {"name": call.name, "arguments": []}})
            made = self.calls[call.index]
            made[made["type"]]["arguments"].append(call.arguments)
        for invalid in delta.invalid:
            self.invalid.append({"index": len(self.invalid), "text": invalid.text, "error": invalid.error})


def _reasoning_fields(text: str | None) -> dict[str, str | None]:
    """Under DeepSeek's name, and under vLLM's."""
    return {"reasoning_content": text, "reasoning": text}


_NO_REASONING = _reasoning_fields(None)


def new_call_id() -> str:
    """A unique id such as OpenAI's: `call_` and 24 letters and digits."""
    return f"call_{secrets.token_hex(12)}"


def _call_delta(call: CallDelta) -> dict[str, Any]:
    kind, text = ("custom", "input") if call.custom else ("function", "arguments")
    if call.name is None:
        return {"index": call.index, kind: {text: call.arguments}}
    inner = {"name": call.name, text: call.arguments}
    return {"index": call.index, "id": new_call_id(), "type": kind, kind: inner}


def _whole_call(call: dict[str, Any]) -> dict[str, Any]:
    kind = call["type"]
    text = "input" if kind == "custom" else "arguments"
    return {"id": call["id"], "type": kind, kind: {"name": call[kind]["name"], text: "".join(call[kind]["arguments"])}}


def token_logprobs(tokens: Iterable[tuple[Token, int]], tokenizer: ChatTokenizer) -> list[ChatCompletionTokenLogprob]:
    out = []
    for token, _ in tokens:
        raw = tokenizer.token_bytes(token.id)
        top = []
        for token_id, logprob in token.top:
            other = tokenizer.token_bytes(token_id)
            top.append(TopLogprob(token=tokenizer.token_bytes.text(token_id), bytes=list(other), logprob=logprob))
        out.append(
            ChatCompletionTokenLogprob(
                token=tokenizer.token_bytes.text(token.id),
                bytes=list(raw),
                logprob=token.logprob if token.logprob is not None else -9999.0,
                top_logprobs=top,
            )
        )
    return out
