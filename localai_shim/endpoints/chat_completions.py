"""POST /chat/completions.

Shapes follow OpenAI's API reference (https://platform.openai.com/docs/api-reference/chat) and the SDK's types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage, ChatCompletionTokenLogprob
from openai.types.chat.chat_completion import Choice, ChoiceLogprobs
from openai.types.chat.chat_completion_token_logprob import TopLogprob

from ..core import FinishReason, GenerationRequest, Token
from ..errors import BadRequest
from ..output.text import Delta, TextParser
from ..prompt.messages import template_messages
from ..prompt.template import ChatTokenizer
from . import generation as common
from .fields import Fields
from .generation import ServedModel

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_NOT_YET = "This version of localai_shim does not support it."
_REFUSED = {
    "tools": f"Tool calling: {_NOT_YET}",
    "tool_choice": f"Tool calling: {_NOT_YET}",
    "parallel_tool_calls": f"Tool calling: {_NOT_YET}",
    "functions": f"Function calling: {_NOT_YET}",
    "function_call": f"Function calling: {_NOT_YET}",
    "audio": "Local text models do not speak.",
    "moderation": "There is no moderation model in this process.",
    "web_search_options": "Web search is hosted by OpenAI; this client never uses the network.",
}


@dataclass(slots=True)
class ChatCall:
    """A validated request, and the assembler of its answer."""

    requests: list[GenerationRequest]
    stream: bool
    assembler: ChatAssembler


def prepare(body: Mapping[str, Any], model: ServedModel) -> ChatCall:
    """Validate a request body and render its prompt.

    Raises:
        BadRequest: with the field, its value and what to do.
    """
    fields = Fields(body)
    fields.string("model")
    fields.refuse(_REFUSED)
    messages = template_messages(fields.require("messages"), knows_developer=model.tokenizer.knows_developer)
    stream = fields.boolean("stream") or False
    include_usage = common.read_stream_options(fields, stream)
    n = fields.integer("n", 1, 128) or 1
    logprobs, top_logprobs = _read_logprobs(fields)
    sampling = common.read_sampling(fields, model, top_logprobs=top_logprobs if logprobs else None)
    limits = common.read_limits(fields, _read_max_tokens(fields, model))
    variables = _read_template_variables(fields, model)
    metadata = _read_without_effect(fields)
    fields.finish()
    prompt = model.tokenizer.render(messages, variables)
    assembler = ChatAssembler(
        model=model,
        parsers=[
            TextParser(model.tokenizer.detokenizer(), limits.stop, min_tokens=limits.min_tokens, with_tokens=logprobs)
            for _ in range(n)
        ],
        prompt_tokens=len(prompt),
        logprobs=logprobs,
        include_usage=include_usage,
        metadata=metadata,
    )
    requests = common.make_requests(prompt, n, sampling, limits, model, param="messages")
    return ChatCall(requests, stream, assembler)


def _read_logprobs(fields: Fields) -> tuple[bool, int]:
    logprobs = fields.boolean("logprobs") or False
    top = fields.integer("top_logprobs", 0, 20)
    if top is not None and not logprobs:
        raise BadRequest(
            "Invalid value for 'top_logprobs': 'logprobs' must be true when 'top_logprobs' is given.",
            param="top_logprobs",
            code="invalid_value",
        )
    return logprobs, top or 0


def _read_max_tokens(fields: Fields, model: ServedModel) -> int | None:
    if fields.has("max_tokens") and fields.has("max_completion_tokens"):
        raise BadRequest(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.", param="max_tokens"
        )
    old = common.read_max_tokens(fields, "max_tokens", model)
    new = common.read_max_tokens(fields, "max_completion_tokens", model)
    given = old if new is None else new
    default = model.generation_defaults.get("max_new_tokens")
    return default if given is None and isinstance(default, int) and default > 0 else given


def _read_template_variables(fields: Fields, model: ServedModel) -> dict[str, Any]:
    variables = fields.mapping("chat_template_kwargs") or {}
    model.tokenizer.check_variables(list(variables), "chat_template_kwargs")
    effort = fields.choice("reasoning_effort", _EFFORTS)
    if effort is not None:
        variables.setdefault("reasoning_effort", effort)
        if effort in ("none", "minimal"):
            variables.setdefault("enable_thinking", False)
    verbosity = fields.choice("verbosity", ("low", "medium", "high"))
    if verbosity in ("low", "high"):
        if not model.tokenizer.knows("verbosity"):
            raise BadRequest(
                f"Unsupported value: 'verbosity' does not support '{verbosity}' with this model. Supported values are: "
                "'medium'. Ask for brevity or detail in a message.",
                param="verbosity",
                code="unsupported_value",
            )
        variables.setdefault("verbosity", verbosity)
    return variables


def _read_without_effect(fields: Fields) -> dict[str, str] | None:
    """Fields that cannot change the answer of a local model; returns the metadata to echo."""
    common.read_accepted(fields)
    fields.choice("service_tier", common.SERVICE_TIERS)
    fields.mapping("prediction")  # speeds up what OpenAI serves; the answer is the same without
    if fields.boolean("store"):
        raise BadRequest.unsupported("store", f"Stored completions: {_NOT_YET}")
    _check_modalities(fields.get("modalities", ["text"]))
    format = fields.mapping("response_format")
    if format is not None and format.get("type") is None:
        raise BadRequest.missing("response_format.type")
    if format is not None and format["type"] != "text":
        raise BadRequest.unsupported("response_format", f"Structured outputs: {_NOT_YET}")
    return common.read_metadata(fields)


def _check_modalities(modalities: Any) -> None:
    if not isinstance(modalities, list | tuple):
        raise BadRequest.wrong_type("modalities", "an array of strings", modalities)
    if "audio" in modalities:
        raise BadRequest.unsupported("modalities", "Local text models do not speak; leave it out or pass ['text'].")
    if list(modalities) != ["text"]:
        raise BadRequest("Invalid value for 'modalities': expected ['text'].", param="modalities", code="invalid_value")


class ChatAssembler:
    """Turns the events of one request into chunks, or into one completion.

    Args:
        model: what serves the request.
        parsers: one per choice.
        prompt_tokens: length of the prompt.
        logprobs: whether the caller asked for them.
        include_usage: end a stream with a chunk that has the usage and no choices.
        metadata: echoed in a whole completion.
    """

    def __init__(
        self,
        *,
        model: ServedModel,
        parsers: Sequence[TextParser],
        prompt_tokens: int,
        logprobs: bool,
        include_usage: bool,
        metadata: dict[str, str] | None,
    ) -> None:
        self.id = common.new_id("chatcmpl")
        self._created = common.now()
        self._model, self._parsers, self._prompt_tokens = model, parsers, prompt_tokens
        self._logprobs, self._include_usage, self._metadata = logprobs, include_usage, metadata
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

    @property
    def finished(self) -> bool:
        """All choices have ended."""
        return self._open == 0

    def feed(self, index: int, token: Token) -> list[ChatCompletionChunk]:
        """Take a choice's next token; returns the chunks that it makes, in a stream."""
        delta, choice = self._take(index, token)
        chunks: list[ChatCompletionChunk] = []
        if not choice.started:
            choice.started = True
            chunks.append(self._chunk(index, {"role": "assistant", "content": "", "refusal": None}))
        if delta.text or delta.tokens:
            chunks.append(self._chunk(index, {"content": delta.text}, delta.tokens))
        if delta.finish_reason is not None:
            chunks.append(self._chunk(index, {}, finish_reason=delta.finish_reason))
            if self.finished and self._include_usage:
                chunks.append(self._make_chunk([], usage=self._usage()))
        return chunks

    def collect(self, index: int, token: Token) -> None:
        """Take a choice's next token, when the answer is wanted whole."""
        delta, choice = self._take(index, token)
        choice.text.append(delta.text)
        choice.tokens += delta.tokens

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
        )

    # -----------------------------------------------------------------------------------------------------------

    def _take(self, index: int, token: Token) -> tuple[Delta, _ChoiceState]:
        delta, choice = self._parsers[index].feed(token), self._choices[index]
        if delta.finish_reason is not None:
            choice.finish_reason = delta.finish_reason
            self._open -= 1
        return delta, choice

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        tokens: Sequence[tuple[Token, int]] = (),
        finish_reason: FinishReason | None = None,
    ) -> ChatCompletionChunk:
        logprobs = None
        if tokens:
            logprobs = {"content": _token_logprobs(tokens, self._model.tokenizer), "refusal": None}
        choice = {"index": index, "delta": delta, "finish_reason": finish_reason, "logprobs": logprobs}
        return self._make_chunk([choice])

    def _make_chunk(self, choices: list[dict[str, Any]], usage: CompletionUsage | None = None) -> ChatCompletionChunk:
        # One validation of the whole costs less than a constructor per part.
        fields = {**self._constant, "choices": choices}
        if self._include_usage:
            fields["usage"] = usage
        return ChatCompletionChunk.model_validate(fields)

    def _choice(self, index: int, choice: _ChoiceState) -> Choice:
        logprobs = None
        if self._logprobs:
            logprobs = ChoiceLogprobs(content=_token_logprobs(choice.tokens, self._model.tokenizer), refusal=None)
        return Choice(
            index=index,
            finish_reason=choice.finish_reason,
            logprobs=logprobs,
            message=ChatCompletionMessage(role="assistant", content="".join(choice.text), refusal=None, annotations=[]),
        )

    def _usage(self) -> CompletionUsage:
        return common.usage(self._prompt_tokens, sum(parser.generated for parser in self._parsers))


class _ChoiceState:
    """What has come of one choice so far."""

    __slots__ = ("finish_reason", "started", "text", "tokens")

    def __init__(self) -> None:
        self.started = False
        self.text: list[str] = []
        self.tokens: list[tuple[Token, int]] = []
        self.finish_reason: Literal["stop", "length"] = "length"


def _token_logprobs(tokens: Iterable[tuple[Token, int]], tokenizer: ChatTokenizer) -> list[ChatCompletionTokenLogprob]:
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
