"""Routes of requests to endpoints: one table of methods and paths."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from ..runtime.engines import Runtime
from ..types import Task

if TYPE_CHECKING:
    from ..endpoints.prepared import Prepared
    from ..endpoints.served import ServedModel
    from ..state.store import Store

JsonObject = Mapping[str, object]
Answer = Callable[..., object]
"""(runtime, body, query, *ids of the path) -> the answer. No model has to run; it may read files."""


class Generation(NamedTuple):
    """An endpoint that runs a model."""

    prepare: Callable[[JsonObject, ServedModel, Callable[[], Store]], Prepared]
    """Validate, render and tokenise."""
    task: Task = "generate"
    """Task that the model must serve."""
    differ: Sequence[str] = ()
    """The field that has the text, and those that lead to more of it: all others are read once, see `FieldCache`."""


class Route(NamedTuple):
    """One row of the table."""

    method: str
    path: str
    """A pattern; its groups are ids."""
    endpoint: Generation | Answer


def load() -> None:
    """Import the endpoints; takes long. The first request does it otherwise."""
    _routes()


def are_loaded() -> bool:
    """True if `find` returns at once."""
    return _routes.cache_info().currsize > 0


def find(method: str, path: str) -> tuple[Generation | Answer, list[str]] | None:
    """The endpoint that serves a request, and the ids in its path; None if there is no such endpoint."""
    for route in _routes():
        match = re.fullmatch(route.path, path) if route.method == method else None
        if match is not None:
            return route.endpoint, [unquote(id) for id in match.groups()]
    return None


@functools.cache
def _routes() -> list[Route]:
    """The table, made with the first request: importing the package stays quick."""
    from ..endpoints import files, models
    from ..endpoints.batches import stored as batches
    from ..endpoints.chat import create as chat
    from ..endpoints.chat import stored as stored_chat
    from ..endpoints.completions import asked
    from ..endpoints.completions import create as completions
    from ..endpoints.embeddings import create as embeddings
    from ..endpoints.embeddings import rerank
    from ..endpoints.items import conversations
    from ..endpoints.responses import counts
    from ..endpoints.responses import create as responses
    from ..endpoints.responses import stored as stored_responses

    completion, response, conversation = (
        f"/{kind}/([^/]+)" for kind in ("chat/completions", "responses", "conversations")
    )
    return [
        Route("post", "/chat/completions", Generation(chat.prepare, differ=chat.DIFFER)),
        Route("post", "/completions", Generation(completions.prepare, differ=asked.DIFFER)),
        Route("post", "/embeddings", Generation(embeddings.prepare, task="embed")),
        Route("post", "/rerank", Generation(rerank.prepare, task="rerank")),
        Route("post", "/responses", Generation(responses.prepare, differ=responses.DIFFER)),
        Route("post", "/responses/input_tokens", Generation(counts.prepare_count)),
        Route("post", "/responses/compact", Generation(counts.prepare_compaction)),
        Route("get", "/models", _answer(models.list_models, Runtime.names)),
        Route("get", "/models/(.+)", _answer(models.retrieve, Runtime.names, attrgetter("only"))),
        Route("get", "/chat/completions", _answer(stored_chat.list_completions, Runtime.store)),
        Route("get", completion, _answer(stored_chat.retrieve, Runtime.store)),
        Route("post", completion, _answer(stored_chat.update, Runtime.store)),
        Route("delete", completion, _answer(stored_chat.delete, Runtime.store)),
        Route("get", f"{completion}/messages", _answer(stored_chat.list_messages, Runtime.store)),
        Route("get", response, _answer(stored_responses.retrieve, Runtime.store, Runtime.background)),
        Route("delete", response, _answer(stored_responses.delete, Runtime.store, Runtime.background)),
        Route("post", f"{response}/cancel", _answer(stored_responses.cancel, Runtime.store, Runtime.background)),
        Route(
            "get", f"{response}/input_items", _answer(stored_responses.input_items, Runtime.store, Runtime.background)
        ),
        Route("post", "/conversations", _answer(conversations.create, Runtime.store)),
        Route("get", conversation, _answer(conversations.retrieve, Runtime.store)),
        Route("post", conversation, _answer(conversations.update, Runtime.store)),
        Route("delete", conversation, _answer(conversations.delete, Runtime.store)),
        Route("post", f"{conversation}/items", _answer(conversations.create_items, Runtime.store)),
        Route("get", f"{conversation}/items", _answer(conversations.list_items, Runtime.store)),
        Route("get", f"{conversation}/items/([^/]+)", _answer(conversations.retrieve_item, Runtime.store)),
        Route("delete", f"{conversation}/items/([^/]+)", _answer(conversations.delete_item, Runtime.store)),
        Route("post", "/files", _answer(files.create, Runtime.store)),
        Route("get", "/files", _answer(files.list_files, Runtime.store)),
        Route("get", "/files/([^/]+)", _answer(files.retrieve, Runtime.store)),
        Route("delete", "/files/([^/]+)", _answer(files.delete, Runtime.store)),
        Route("get", "/files/([^/]+)/content", _answer(files.content, Runtime.store)),
        Route("post", "/batches", _answer(batches.create, Runtime.store, Runtime.batches)),
        Route("get", "/batches", _answer(batches.list_batches, Runtime.store, Runtime.batches)),
        Route("get", "/batches/([^/]+)", _answer(batches.retrieve, Runtime.store, Runtime.batches)),
        Route("post", "/batches/([^/]+)/cancel", _answer(batches.cancel, Runtime.store, Runtime.batches)),
    ]


def _answer(handler: Callable[..., object], *needs: Callable[[Runtime], object]) -> Answer:
    """Answer a request by a handler, which gets these parts of the client before the request itself."""
    from ..endpoints.fields import Fields

    return lambda runtime, body, query, *ids: handler(*(need(runtime) for need in needs), Fields(body), query, *ids)
