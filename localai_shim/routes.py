"""The endpoints that no model has to run for: path -> what answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

from .endpoints.fields import Fields
from .runtime import Runtime

Body = Mapping[str, Any]
Handler = Callable[..., Any]
_ID = "([^/]+)"


def find(method: str, path: str) -> Callable[[Runtime, Body, Body], Any] | None:
    """What answers a request, given the runtime, its body and its query; None if there is no such endpoint."""
    for known, pattern, load in _ROUTES:
        match = re.fullmatch(pattern, path) if known == method else None
        if match is not None:
            return partial(_answer, load, [unquote(part) for part in match.groups()])
    return None


def _answer(load: Callable[[], Handler], ids: list[str], runtime: Runtime, body: Body, query: Body) -> Any:
    return load()(runtime, body, query, *ids)


def _models(runtime: Runtime, body: Body, query: Body) -> Any:
    from .endpoints import models

    return {"object": "list", "data": [model.to_dict() for model in models.listing(runtime.names())]}


def _model(runtime: Runtime, body: Body, query: Body, name: str) -> Any:
    from .endpoints import models

    return models.retrieve(name, runtime.names(), only=runtime.only)


def _response(name: str) -> Callable[[], Handler]:
    def load() -> Handler:
        from .endpoints.responses import stored as stored_responses

        handler = getattr(stored_responses, name)
        return lambda runtime, body, query, *ids: handler(
            runtime.store(), runtime.background(), Fields(body), query, *ids
        )

    return load


def _conversation(name: str) -> Callable[[], Handler]:
    def load() -> Handler:
        from .endpoints.items import conversations

        return _stored(getattr(conversations, name))

    return load


def _completion(name: str) -> Callable[[], Handler]:
    def load() -> Handler:
        from .endpoints.chat import stored as stored_completions

        return _stored(getattr(stored_completions, name))

    return load


def _stored(handler: Handler) -> Handler:
    return lambda runtime, body, query, *ids: handler(runtime.store(), Fields(body), query, *ids)


_RESPONSE, _COMPLETION = f"/responses/{_ID}", f"/chat/completions/{_ID}"
_CONVERSATION = f"/conversations/{_ID}"
_ROUTES: list[tuple[str, str, Callable[[], Handler]]] = [
    ("get", "/models", lambda: _models),
    ("get", "/models/(.+)", lambda: _model),
    ("get", _RESPONSE, _response("retrieve")),
    ("delete", _RESPONSE, _response("delete")),
    ("post", f"{_RESPONSE}/cancel", _response("cancel")),
    ("get", f"{_RESPONSE}/input_items", _response("input_items")),
    ("post", "/conversations", _conversation("create")),
    ("get", _CONVERSATION, _conversation("retrieve")),
    ("post", _CONVERSATION, _conversation("update")),
    ("delete", _CONVERSATION, _conversation("delete")),
    ("post", f"{_CONVERSATION}/items", _conversation("create_items")),
    ("get", f"{_CONVERSATION}/items", _conversation("list_items")),
    ("get", f"{_CONVERSATION}/items/{_ID}", _conversation("retrieve_item")),
    ("delete", f"{_CONVERSATION}/items/{_ID}", _conversation("delete_item")),
    ("get", "/chat/completions", _completion("list_completions")),
    ("get", _COMPLETION, _completion("retrieve")),
    ("post", _COMPLETION, _completion("update")),
    ("delete", _COMPLETION, _completion("delete")),
    ("get", f"{_COMPLETION}/messages", _completion("list_messages")),
]
