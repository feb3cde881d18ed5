"""Requests as scripts without I/O: a generator yields calls and gets their answers, on whatever thread or loop."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import anyio

ENDED = ("completed", "failed", "cancelled", "expired", "incomplete")
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the SDK: `chat.completions.create`, or `rerank`."""

    path: str
    fields: dict[str, Any]
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds for which the caller waits before it asks again."""

    seconds: float = POLL_SECONDS


@dataclass(frozen=True, slots=True)
class Variation:
    """Differences between two requests that leave the answer as it is."""

    stream: bool = False
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """Of `extra_body`."""
    guess: str = ""
    """Text of a `prediction`."""


Script = Generator[Call | Pause, Any, Any]
Make = Callable[[Variation], Script]


def play(script: Script, ask: Callable[[Call], Any]) -> Any:
    """Play a script to its end, on this thread.

    Args:
        script: what is played.
        ask: makes a call, and gives its answer.
    """
    answer: Any = None
    while True:
        try:
            step = script.send(answer)
        except StopIteration as stop:
            return stop.value
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            answer = None
        else:
            answer = ask(step)


async def play_async(script: Script, ask: Callable[[Call], Awaitable[Any]]) -> Any:
    """Async form of `play`, on asyncio or trio."""
    answer: Any = None
    while True:
        try:
            step = script.send(answer)
        except StopIteration as stop:
            return stop.value
        if isinstance(step, Pause):
            await anyio.sleep(step.seconds)
            answer = None
        else:
            answer = await ask(step)


def _call(variation: Variation, path: str, fields: dict[str, Any]) -> Call:
    body = {**fields.get("extra_body", {}), **variation.extra}
    return Call(path, {**fields, "extra_body": body}, variation.stream)


def chat(fields: dict[str, Any]) -> Make:
    """One chat completion."""

    def script(variation: Variation) -> Script:
        more = {"prediction": {"type": "content", "content": variation.guess}} if variation.guess else {}
        return read_chat((yield _call(variation, "chat.completions.create", {**fields, **more})))

    return script


def stored_chat(fields: dict[str, Any]) -> Make:
    """One that is stored, read again and deleted."""

    def script(variation: Variation) -> Script:
        plain = Variation(extra=variation.extra)
        made = yield _call(plain, "chat.completions.create", {**fields, "store": True})
        kept = yield Call("chat.completions.retrieve", {"completion_id": made.id})
        yield Call("chat.completions.delete", {"completion_id": made.id})
        return [read_chat(made), read_chat(kept)]

    return script


def completion(fields: dict[str, Any]) -> Make:
    """One completion of text or of token ids."""

    def script(variation: Variation) -> Script:
        return read_completion((yield _call(variation, "completions.create", fields)))

    return script


def response(fields: dict[str, Any]) -> Make:
    """One response that nothing follows."""

    def script(variation: Variation) -> Script:
        return read_response((yield _call(variation, "responses.create", {**fields, "store": False})))

    return script


def chain(fields: dict[str, Any], turns: list[Any]) -> Make:
    """Responses that follow each other by `previous_response_id`; all but the last two are deleted."""

    def script(variation: Variation) -> Script:
        said: list[Any] = []
        more: dict[str, Any] = {}
        for text in turns:
            answer = yield _call(variation, "responses.create", {**fields, "input": text, **more})
            said.append(read_response(answer))
            more = {"previous_response_id": whole_response(answer).id}
        kept = yield Call("responses.retrieve", {"response_id": more["previous_response_id"]})
        yield Call("responses.delete", {"response_id": kept.id})
        return [*said, read_response(kept)]

    return script


def conversation(fields: dict[str, Any], turns: list[str]) -> Make:
    """Responses of one conversation, and its items at the end."""

    def script(variation: Variation) -> Script:
        made = yield Call("conversations.create", {})
        said: list[Any] = []
        for text in turns:
            more = {"input": text, "conversation": made.id}
            said.append(read_response((yield _call(variation, "responses.create", {**fields, **more}))))
        items = yield Call("conversations.items.list", {"conversation_id": made.id, "order": "asc"})
        yield Call("conversations.delete", {"conversation_id": made.id})
        return [*said, [(item.type, getattr(item, "role", None)) for item in items.data]]

    return script


def background(fields: dict[str, Any]) -> Make:
    """A response that runs by itself, until it is asked for, or while its events are read."""

    def script(variation: Variation) -> Script:
        made = yield _call(variation, "responses.create", {**fields, "background": True})
        made = whole_response(made)
        while made.status not in ENDED:
            yield Pause()
            made = yield Call("responses.retrieve", {"response_id": made.id})
        yield Call("responses.delete", {"response_id": made.id})
        return read_response(made)

    return script


def stopped(fields: dict[str, Any]) -> Make:
    """A response that runs by itself and is told to stop, which it does unless it has ended before."""

    def script(variation: Variation) -> Script:
        made = yield Call("responses.create", {**fields, "background": True})
        yield Pause()
        made = yield Call("responses.cancel", {"response_id": made.id})
        again = yield Call("responses.retrieve", {"response_id": made.id})
        yield Call("responses.delete", {"response_id": made.id})
        return [made.status in ENDED, again.status == made.status]

    return script


def batch(bodies: list[dict[str, Any]]) -> Make:
    """A file of requests, the batch that runs it, and the file of its answers."""
    url: Any = "/v1/chat/completions"

    def script(variation: Variation) -> Script:
        lines = [{"custom_id": str(i), "method": "POST", "url": url, "body": body} for i, body in enumerate(bodies)]
        content = "\n".join(map(json.dumps, lines)).encode()
        file = yield Call("files.create", {"file": ("in.jsonl", content), "purpose": "batch"})
        made = yield Call("batches.create", {"input_file_id": file.id, "endpoint": url, "completion_window": "24h"})
        while made.status not in ENDED:
            yield Pause()
            made = yield Call("batches.retrieve", {"batch_id": made.id})
        answers = yield Call("files.content", {"file_id": made.output_file_id})
        found = {each["custom_id"]: each["response"]["body"] for each in map(json.loads, answers.text.splitlines())}
        for id in (file.id, made.output_file_id):
            yield Call("files.delete", {"file_id": id})
        return [found[str(i)]["choices"][0]["message"]["content"] for i in range(len(bodies))]

    return script


def embeddings(fields: dict[str, Any]) -> Make:
    """Vectors of a few texts."""

    def script(variation: Variation) -> Script:
        answer = yield _call(Variation(extra=variation.extra), "embeddings.create", fields)
        return [each.embedding for each in answer.data]

    return script


def reranking(query: str, documents: list[str]) -> Make:
    """Documents in the order of their relevance."""

    def script(variation: Variation) -> Script:
        answer = yield Call("rerank", {"query": query, "documents": documents})
        return sorted((each.index, each.relevance_score) for each in answer.results)

    return script


def refused(path: str, fields: dict[str, Any]) -> Make:
    """A call that cannot be answered."""

    def script(variation: Variation) -> Script:
        yield Call(path, fields)

    return script


# -- what of an answer is compared ------------------------------------------------------------------------------------


def read_chat(answer: Any) -> list[Any]:
    """(content, calls, finish reason, logprobs) of each choice, of a whole answer or of its chunks."""
    if not isinstance(answer, list):
        return [
            _choice(each.message.content, each.message.tool_calls, each.finish_reason, each.logprobs)
            for each in answer.choices
        ]
    found: dict[int, dict[str, Any]] = {}
    for each in (choice for chunk in answer for choice in chunk.choices):
        to = found.setdefault(each.index, {"content": "", "calls": {}, "reason": None, "logprobs": []})
        to["content"] += each.delta.content or ""
        to["reason"] = each.finish_reason or to["reason"]
        to["logprobs"] += _logprobs(each.logprobs)
        for call in each.delta.tool_calls or ():
            name, arguments = to["calls"].get(call.index, ("", ""))
            to["calls"][call.index] = (name + (call.function.name or ""), arguments + (call.function.arguments or ""))
    return [
        [to["content"], list(to["calls"].values()), to["reason"], to["logprobs"]] for _, to in sorted(found.items())
    ]


def _choice(content: str | None, calls: Any, reason: str, logprobs: Any) -> list[Any]:
    listed = [(call.function.name, call.function.arguments) for call in calls or ()]
    return [content or "", listed, reason, _logprobs(logprobs)]


def _logprobs(logprobs: Any) -> list[tuple[str, float]]:
    return [(each.token, each.logprob) for each in (logprobs and logprobs.content) or ()]


def read_completion(answer: Any) -> list[Any]:
    """(text, finish reason, logprobs) of each choice, of a whole answer or of its chunks."""
    found: dict[int, list[Any]] = {}
    for each in (choice for part in (answer if isinstance(answer, list) else [answer]) for choice in part.choices):
        to = found.setdefault(each.index, ["", None, []])
        to[0] += each.text
        to[1] = each.finish_reason or to[1]
        to[2] += (each.logprobs and each.logprobs.token_logprobs) or []
    return [to for _, to in sorted(found.items())]


def whole_response(answer: Any) -> Any:
    """The response itself, of which a stream's last event has it."""
    return answer[-1].response if isinstance(answer, list) else answer


def read_response(answer: Any) -> list[Any]:
    """Status, text and calls."""
    made = whole_response(answer)
    calls = [(each.name, each.arguments) for each in made.output if each.type == "function_call"]
    return [made.status, made.output_text, calls]


def data_url(png: bytes) -> str:
    """A picture within a request."""
    return "data:image/png;base64," + base64.b64encode(png).decode()
