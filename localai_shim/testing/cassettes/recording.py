"""Asks a client of the SDK, and takes down what comes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import openai
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDelta
from openai.types.responses import (
    Response,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseStreamEvent,
)

from ...client.local import LocalOpenAI
from ...contrib.reranking import RerankResponse
from ...endpoints.hosted.table import BY_ITEM
from ...prompt.items import qualified_name
from ...replacing.clients import unpatched
from ...sdk import private as sdk
from ...types import Json
from . import mcp
from .audio import TRANSCRIPTIONS, record_speech, record_transcription
from .tape import CassetteError, Interaction, spelling_bytes

_STREAMS: dict[str, tuple[str, Any, Any]] = {
    "chat.completions": ("/chat/completions", ChatCompletion, openai.Stream[ChatCompletionChunk]),
    "completions": ("/completions", Completion, openai.Stream[Completion]),
    "responses": ("/responses", Response, openai.Stream[ResponseStreamEvent]),
}
_REASONING = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
_ARGUMENTS = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")


def record(source: openai.OpenAI, api: str, request: Json, file: tuple[str, bytes] | None = None) -> Interaction:
    """The answer of a client to a request. It is asked for a stream, whatever the caller wants; not for audio.

    Args:
        source: the client.
        api: the endpoint.
        request: the body.
        file: name and content of the file that is transcribed.

    Raises:
        openai.APIError: the client's own; it is not recorded.
        CassetteError: there is something in the answer, or the request, that cannot be recorded.
    """
    if not isinstance(source, sdk.OpenAI):
        raise CassetteError(f"a cassette's source must be a sync client, not {source!r}")
    if api in ("embeddings", "rerank"):
        return _record_vectors(source, api, request)
    if api == "audio.speech":
        return record_speech(source, request)
    if api in TRANSCRIPTIONS:
        assert file is not None
        return record_transcription(source, api, request, file)
    if api not in _STREAMS:
        known = ", ".join([*_STREAMS, *TRANSCRIPTIONS, "audio.speech", "embeddings"])
        raise CassetteError(f"{api} cannot be recorded: only {known} and rerank can")
    for name in ("echo", "prompt_logprobs", "return_token_ids"):
        if request.get(name) not in (None, False):
            raise CassetteError(f"what '{name}' adds to an answer cannot be recorded: leave it out")
    path, whole, stream_cls = _STREAMS[api]
    body = {**request, "stream": True}
    body |= {"store": False} if api == "responses" else {"stream_options": {"include_usage": True}}
    made = Interaction(api, request)
    began = time.monotonic()
    with unpatched(), source.post(path, cast_to=whole, body=body, stream=True, stream_cls=stream_cls) as events:
        for event in events:
            deltas = _of_event(event, made) if api == "responses" else _of_chunk(event, made)
            at = round(time.monotonic() - began, 3)
            made.deltas += [{"at": at, **delta} for delta in deltas]
    _check(made)
    if made.fingerprint is None and isinstance(source, LocalOpenAI):
        made.fingerprint = source._runtime.engine_of(request.get("model", "")).model.fingerprint
    return made


def _record_vectors(source: openai.OpenAI, api: str, request: Json) -> Interaction:
    """The vectors of a client, or the scores of all documents."""
    made, began = Interaction(api, request), time.monotonic()
    answer: CreateEmbeddingResponse | RerankResponse
    with unpatched():
        if api == "rerank":
            answer = source.post("/rerank", cast_to=RerankResponse, body=request)
            found = {each.index: [each.relevance_score] for each in answer.results}
        else:
            body = {**request, "encoding_format": "base64"}
            answer = source.post("/embeddings", cast_to=CreateEmbeddingResponse, body=body)
            found = {each.index: each.embedding for each in answer.data}
    at = round(time.monotonic() - began, 3)
    for index in sorted(found):
        made.add_vector(at, found[index])
    made.model = answer.model or ""
    made.usage = None if answer.usage is None else answer.usage.to_dict(mode="json")
    return made


def _of_chunk(chunk: ChatCompletionChunk | Completion, made: Interaction) -> Iterator[Json]:
    """The deltas of a chunk of a completion."""
    made.model, made.fingerprint = chunk.model or made.model, chunk.system_fingerprint or made.fingerprint
    if chunk.usage is not None:
        made.usage = chunk.usage.to_dict(mode="json")
    for choice in chunk.choices:
        where = {"choice": choice.index} if choice.index else {}
        for delta in _of_delta(choice.delta) if hasattr(choice, "delta") else _named("content", choice.text):
            yield {**where, **delta}
        if annotations := getattr(getattr(choice, "delta", None), "annotations", None):
            yield {**where, "annotations": list(annotations)}
        if choice.logprobs is not None and (tokens := _tokens(choice.logprobs)):
            yield {**where, "tokens": tokens}
        if choice.finish_reason is not None:
            yield {**where, "end": choice.finish_reason}


def _named(name: str, text: str | None) -> list[Json]:
    return [{name: text}] if text else []


def _of_delta(delta: ChoiceDelta) -> Iterator[Json]:
    yield from _named("refusal", delta.refusal)
    yield from _named("reasoning", getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None))
    yield from _named("content", delta.content)
    calls = [(call.index, call.function or getattr(call, "custom", None)) for call in delta.tool_calls or ()]
    for index, call in [*calls, *([(0, delta.function_call)] if delta.function_call else [])]:
        fields = call if isinstance(call, dict) else call.to_dict() if call is not None else {}
        if fields.get("name"):
            yield {"call": index, "name": fields["name"]}
        text = fields.get("arguments") or fields.get("input")
        if text:
            yield {"call": index, "arguments": text}


def _of_event(event: ResponseStreamEvent, made: Interaction) -> Iterator[Json]:
    """The deltas of an event of a response."""
    if event.type in ("response.failed", "error"):
        raise CassetteError(f"the answer has {event.type}, which cannot be recorded: {event.to_json(indent=None)}")
    if event.type == "response.output_text.delta":
        yield from _named("content", event.delta)
        if event.logprobs:
            yield {"tokens": [_scored(each) for each in event.logprobs]}
    elif event.type == "response.refusal.delta":
        yield from _named("refusal", event.delta)
    elif event.type == "response.reasoning_text.delta" or event.type == "response.reasoning_summary_text.delta":
        yield from _named("reasoning", event.delta)
    elif (
        event.type == "response.function_call_arguments.delta" or event.type == "response.custom_tool_call_input.delta"
    ):
        yield {"call": event.output_index, "arguments": event.delta}
    elif event.type == "response.output_item.added" and event.item.type in ("function_call", "custom_tool_call"):
        name = qualified_name(getattr(event.item, "namespace", None), event.item.name)
        yield {"call": event.output_index, "name": name}
    elif event.type in ("response.output_item.added", "response.output_item.done"):
        yield from _of_item(event)
    elif event.type in ("response.completed", "response.incomplete"):
        made.model = event.response.model
        made.usage = event.response.usage.to_dict(mode="json") if event.response.usage else None
        cut = event.response.incomplete_details
        yield {"end": "stop" if cut is None else "content_filter" if cut.reason == "content_filter" else "length"}


def _of_item(event: ResponseOutputItemAddedEvent | ResponseOutputItemDoneEvent) -> Iterator[Json]:
    """The deltas of a hosted tool's item that begins or is done, and of a message's annotations once it is done."""
    item, is_done = event.item, event.type == "response.output_item.done"
    if item.type in BY_ITEM:
        made = {"item": item.to_dict(mode="json")} if is_done else {"name": BY_ITEM[item.type].name}
        yield {"call": event.output_index, **made}
    elif item.type in mcp.TYPES:
        yield from mcp.deltas(event.output_index, item.to_dict(mode="json"), is_done=is_done)
    elif item.type == "message" and is_done:
        annotations = [each.to_dict(mode="json") for part in item.content for each in getattr(part, "annotations", ())]
        if annotations:
            yield {"annotations": annotations}


def _tokens(logprobs: Any) -> list[Json]:
    """The tokens of a chunk: of a chat, or in the older form of completions."""
    if not hasattr(logprobs, "token_logprobs"):
        return [_scored(each) for each in [*(logprobs.content or ()), *(logprobs.refusal or ())]]
    likeliest = logprobs.top_logprobs or [None] * len(logprobs.tokens)
    return [
        {"token": token, "logprob": logprob, "top": list((top or {}).items())}
        for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, likeliest, strict=True)
    ]


def _scored(token: Any) -> Json:
    """A token, with its logprob and those of the likeliest ones."""
    top = [(_spelling(each), each.logprob) for each in token.top_logprobs or ()]
    return {"token": _spelling(token), "logprob": token.logprob, "top": top}


def _spelling(token: Any) -> str | list[int]:
    """A token's text, or its bytes where these are not UTF-8."""
    written: list[int] | None = getattr(token, "bytes", None)
    return token.token if written is None or bytes(written) == token.token.encode() else written


def _check(made: Interaction) -> None:
    """Check that all of it can be played again.

    Raises:
        CassetteError: it cannot.
    """
    for choice in {delta.get("choice", 0) for delta in made.deltas}:
        deltas = [delta for delta in made.deltas if delta.get("choice", 0) == choice]
        texts = {name: "".join(delta.get(name, "") for delta in deltas) for name in ("content", "refusal")}
        if all(texts.values()):
            raise CassetteError("an answer that has both content and a refusal cannot be recorded")
        spelled = b"".join(spelling_bytes(each["token"]) for delta in deltas for each in delta.get("tokens", ()))
        text = "".join(texts.values()).encode()
        if any("reasoning" in delta or "call" in delta for delta in deltas):
            spelled, text = spelled.strip(), text.strip()  # space between an answer's parts belongs to none of them
        if spelled and spelled != text:
            raise CassetteError("an answer whose logprobs are not those of its text cannot be recorded")
