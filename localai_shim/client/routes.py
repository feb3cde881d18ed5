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
        Route("get", "/chat/completions", _stored(stored_chat.list_completions)),
        Route("get", completion, _stored(stored_chat.retrieve)),
        Route("post", completion, _stored(stored_chat.update)),
        Route("delete", completion, _stored(stored_chat.delete)),
        Route("get", f"{completion}/messages", _stored(stored_chat.list_messages)),
        Route("get", response, _stored(stored_responses.retrieve, Runtime.background)),
        Route("delete", response, _stored(stored_responses.delete, Runtime.background)),
        Route("post", f"{response}/cancel", _stored(stored_responses.cancel, Runtime.background)),
        Route("get", f"{response}/input_items", _stored(stored_responses.input_items, Runtime.background)),
        Route("post", "/conversations", _stored(conversations.create)),
        Route("get", conversation, _stored(conversations.retrieve)),
        Route("post", conversation, _stored(conversations.update)),
        Route("delete", conversation, _stored(conversations.delete)),
        Route("post", f"{conversation}/items", _stored(conversations.create_items)),
        Route("get", f"{conversation}/items", _stored(conversations.list_items)),
        Route("get", f"{conversation}/items/([^/]+)", _stored(conversations.retrieve_item)),
        Route("delete", f"{conversation}/items/([^/]+)", _stored(conversations.delete_item)),
        Route("post", "/files", _stored(files.create)),
        Route("get", "/files", _stored(files.list_files)),
        Route("get", "/files/([^/]+)", _stored(files.retrieve)),
        Route("delete", "/files/([^/]+)", _stored(files.delete)),
        Route("get", "/files/([^/]+)/content", _stored(files.content)),
        Route("post", "/batches", _stored(batches.create, Runtime.batches)),
        Route("get", "/batches", _stored(batches.list_batches, Runtime.batches)),
        Route("get", "/batches/([^/]+)", _stored(batches.retrieve, Runtime.batches)),
        Route("post", "/batches/([^/]+)/cancel", _stored(batches.cancel, Runtime.batches)),
    ]


def _stored(handler: Callable[..., object], *needs: Callable[[Runtime], object]) -> Answer:
    """Answer a request about what is stored."""
    return _answer(handler, Runtime.store, *needs)


def _answer(handler: Callable[..., object], *needs: Callable[[Runtime], object]) -> Answer:
    """Answer a request by a handler, which gets these parts of the client before the request itself."""
    from ..endpoints.fields import Fields

    return lambda runtime, body, query, *ids: handler(*(need(runtime) for need in needs), Fields(body), query, *ids)
