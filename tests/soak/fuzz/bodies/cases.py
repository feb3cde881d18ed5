"""One request: an endpoint, a body, and the way in which it is sent."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from openai.types.batch_create_params import BatchCreateParams
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as Chat
from openai.types.completion_create_params import CompletionCreateParamsBase as Completion
from openai.types.conversations.conversation_create_params import ConversationCreateParams
from openai.types.conversations.conversation_update_params import ConversationUpdateParams
from openai.types.conversations.item_create_params import ItemCreateParams
from openai.types.embedding_create_params import EmbeddingCreateParams
from openai.types.responses.input_token_count_params import InputTokenCountParams
from openai.types.responses.response_compact_params import ResponseCompactParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase as Response

from tests.soak.fuzz import wild
from tests.soak.fuzz.bodies.typed import of, text

WAYS = ("create", "create", "stream", "parse", "helper", "post", "raw")
UNKNOWN = ("min_p", "top_k", "ignore_eos", "guided_json", "chat_template_kwargs", "x", "", "stream", "__class__", "é")


@dataclass(frozen=True, repr=False)
class Request:
    """What is sent.

    Attributes:
        path: of the endpoint.
        body: as the caller's language has it.
        way: a method of the SDK: one of `WAYS`.
        asynchronous: by the async client.
        real: by a real model, and not by a scripted one.
        reply: number of the scripted reply.
    """

    path: str
    body: dict[str, Any]
    way: str
    asynchronous: bool
    real: bool
    reply: int

    def __repr__(self) -> str:
        try:
            body = repr(self.body)[:3000]
        except RecursionError:
            body = "nested too deeply to be shown"
        how = f"asynchronous={self.asynchronous}, real={self.real}, reply={self.reply}"
        return f"Request({self.path!r}, {body}, {self.way!r}, {how})"


_PATHS: dict[str, tuple[Any, int]] = {
    "/chat/completions": (Chat, 10),
    "/responses": (Response, 10),
    "/completions": (Completion, 4),
    "/embeddings": (EmbeddingCreateParams, 2),
    "/rerank": (None, 1),
    "/responses/input_tokens": (InputTokenCountParams, 1),
    "/responses/compact": (ResponseCompactParams, 1),
    "/conversations": (ConversationCreateParams, 1),
    "/conversations/{conversation}": (ConversationUpdateParams, 1),
    "/conversations/{conversation}/items": (ItemCreateParams, 1),
    "/batches": (BatchCreateParams, 1),
}
_RERANK = st.fixed_dictionaries({"query": text(), "documents": st.lists(text(), max_size=3)})


def _agreeing(body: dict[str, Any]) -> dict[str, Any]:
    """A body whose fields agree with each other: types do not say which of them need others."""
    body = copy.deepcopy(body)
    if body.keys() & {"tool_choice", "parallel_tool_calls"} and not body.get("tools"):
        function = {"name": "a", "parameters": {"type": "object", "properties": {}}, "strict": False}
        nested = {"type": "function", "function": function}
        body["tools"] = [nested if "messages" in body else {"type": "function", **function}]
    if "messages" in body and body.get("top_logprobs") is not None:
        body["logprobs"] = True
    body.pop("stream_options", None)
    messages = body.get("messages") or []
    for at in reversed(range(len(messages))):
        if messages[at]["role"] == "tool":
            made = {
                "id": messages[at]["tool_call_id"],
                "type": "function",
                "function": {"name": "a", "arguments": "{}"},
            }
            messages.insert(at, {"role": "assistant", "tool_calls": [made]})
    return body


def _broken(body: dict[str, Any], seed: int) -> dict[str, Any]:
    """A body with none to three places that are changed."""
    rng = random.Random(seed)
    if rng.random() < 0.9:
        body = _agreeing(body)
    for _ in range(rng.choice([0, 0, 0, 0, 1, 1, 2, 3])):
        if rng.random() < 0.8:
            wild.changed(body, rng)
        else:
            body[rng.choice(UNKNOWN)] = wild.value(rng)
    if rng.random() < 0.1:
        _set_anywhere(body, rng, rng.choice(EXTREMES)())
    return body


def _looped() -> Any:
    made: dict[str, Any] = {}
    made["a"] = made
    return made


EXTREMES: list[Callable[[], Any]] = [
    lambda: "\ud800",
    lambda: "a\udfff",
    lambda: wild.nested(3000),
    lambda: {"a": wild.nested(150, {})},
    lambda: "x" * 2_000_000,
    lambda: list(range(2000)),
    lambda: {str(number): None for number in range(3000)},
    lambda: 10**400,
    lambda: "9" * 5000,
    lambda: b"bytes",
    lambda: {1: 2, None: 3},
    lambda: (1, 2),
    lambda: {3},
    lambda: object(),
    _looped,
]


def _set_anywhere(body: dict[str, Any], rng: random.Random, value: Any) -> None:
    found = list(wild.places(body))
    if found:
        where, key = rng.choice(found)
        where[key] = value


def _limited(request: Request) -> Request:
    """A real model is not to write for long."""
    if not request.real:
        return request
    names = {
        "/chat/completions": "max_completion_tokens",
        "/completions": "max_tokens",
        "/responses": "max_output_tokens",
    }
    body = dict(request.body)
    if (name := names.get(request.path)) and "max_tokens" not in body:
        body.setdefault(name, 16)
    return Request(request.path, body, request.way, request.asynchronous, True, 0)


def requests(replies: int) -> st.SearchStrategy[Request]:
    """A strategy for requests, with so many scripted replies."""
    paths = [path for path, (_, weight) in _PATHS.items() for _ in range(weight)]

    def of_path(path: str) -> st.SearchStrategy[Request]:
        kind = _PATHS[path][0]
        body = _RERANK if kind is None else of(kind)
        return st.builds(
            Request,
            st.just(path),
            st.builds(_broken, body, st.integers(0, 2**32)),
            st.sampled_from(WAYS),
            st.booleans(),
            st.integers(0, 15).map(lambda number: number == 15),
            st.integers(0, replies - 1),
        ).map(_limited)

    return st.sampled_from(paths).flatmap(of_path)


def raw_json(body: dict[str, Any]) -> bytes:
    """A body as another program may write it: with a key twice, NaN, or a lone surrogate.

    Raises:
        TypeError, ValueError, RecursionError: there is no JSON of it.
    """
    text = json.dumps(body)
    doubled = text[:-1] + (", " if body else "") + '"model": "twice"}'
    return doubled.encode()
