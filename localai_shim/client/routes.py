"""Routes of requests to endpoints: one table of methods and paths, and one of the kinds of work that they ask for."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from ..errors import BadRequest, listed
from ..runtime.engines import Runtime
from ..runtime.surroundings import part
from ..types import Task

if TYPE_CHECKING:
    from ..endpoints.models import Listed
    from ..endpoints.served import ServedModel
    from ..endpoints.turn import Turn
    from ..state.store import Store

JsonObject = Mapping[str, object]
Answer = Callable[..., object]
"""(runtime, body, query, *ids of the path) -> the answer. Needs no model; may read files."""


class Kind(NamedTuple):
    """A kind of work, as clients know it."""

    does: str
    """Ability of a model that serves it, as a verb."""
    serves: str
    """Methods that need such a model."""
    operations: Mapping[str, str]
    """Paths of endpoints, and their names in traces: of OpenTelemetry's conventions, if these have one."""
    models: str = ""
    """Sentence that says which models serve it, if their kind does not say so."""
    instead: Task | None = None
    """Models that serve this one are as good."""


KINDS: Mapping[Task, Kind] = {
    "generate": Kind(
        "generate text",
        "client.chat.completions, client.responses and client.completions",
        {
            "/chat/completions": "chat",
            "/completions": "text_completion",
            "/responses": "chat",
            "/responses/compact": "chat",
        },
    ),
    "embed": Kind(
        "embed texts", "client.embeddings and localai_shim.rerank(client, ...)", {"/embeddings": "embeddings"}
    ),
    "rerank": Kind(
        "rerank documents",
        "localai_shim.rerank(client, ...)",
        {"/rerank": "rerank"},  # not one of the conventions'
        "Rerankers are classifiers of bert, modernbert and xlm-roberta with one label, and Qwen3-Reranker; "
        "models that embed rank by cosine. ",
        instead="embed",
    ),
    "transcribe": Kind(
        "transcribe speech",
        "client.audio.transcriptions and client.audio.translations",
        {"/audio/transcriptions": "transcription", "/audio/translations": "translation"},  # none of the conventions'
        "Whisper models transcribe, such as mlx-community/whisper-large-v3-turbo-asr-fp16, and other speech-to-text "
        "models of mlx-audio. ",
        instead="recognize",
    ),
    "align": Kind("align words with speech", "", {}),  # a part of transcriptions
    "speak": Kind(
        "speak texts",
        "client.audio.speech",
        {"/audio/speech": "speech"},  # not one of the conventions'
        "Text-to-speech models of mlx-audio speak, such as Qwen3-TTS and Kokoro. ",
    ),
    "recognize": Kind("write down speech", "client.audio.transcriptions", {}),
}


class Generation(NamedTuple):
    """An endpoint that runs a model."""

    prepare: Callable[[JsonObject, ServedModel, Callable[[], Store]], Turn]
    """Validate, render and tokenise."""
    task: Task = "generate"
    """Task that the model must serve."""
    texts: Sequence[str] = ()
    """The field with the text, and those with more text or that lead to it; empty if the time to prepare is unknown."""
    differ: Sequence[str] = ()
    """The fields in which requests differ: all others are read once, see `FieldCache`."""


Route = tuple[str, str, Generation | Answer]
"""One row of the table: a method, a pattern of paths whose groups are ids, and what serves them."""


def operation(method: str, path: str) -> str | None:
    """The name of a request's endpoint in traces; None: it has no span. Imports nothing."""
    found = (kind.operations.get(path) for kind in KINDS.values())
    return next(filter(None, found), None) if method == "post" else None


def check_task(model: ServedModel, task: Task, names: Callable[[], Mapping[str, Listed]]) -> None:
    """Refuse a model that serves other kinds of work.

    Args:
        names: the client's models by name.

    Raises:
        BadRequest: says what the model is for, and which of the client's models serve the task.
    """
    kind = KINDS[task]
    if task in model.tasks or kind.instead in model.tasks:
        return
    uses = ", and to ".join(
        f"{KINDS[each].does}: it serves {KINDS[each].serves}" for each in model.tasks if KINDS[each].serves
    )
    # Only models that generate text do not say their tasks before they are loaded.
    serve = [name for name, each in names().items() if {task, kind.instead} & {*(each.tasks or ("generate",))}]
    advice = (
        f"This client's models that {kind.does} are {listed(serve)}: pass one of these as 'model'."
        if len(serve) > 1
        else f"Pass model='{serve[0]}', which this client has for that."
        if serve
        else f"{kind.models}Pass another model, such as one of several that a client has with `models=`."
    )
    raise BadRequest(
        f"The model '{model.name}' cannot {kind.does}: it is there to {uses}. {advice}",
        param="model",
        code="unsupported_model",
    )


def load() -> None:
    """Import the endpoints; takes long. The first request does it otherwise."""
    _routes()


def are_loaded() -> bool:
    """True if `find` returns at once."""
    return _routes.cache_info().currsize > 0


def find(method: str, path: str) -> tuple[Generation | Answer, list[str]] | None:
    """The endpoint that serves a request, and the ids in its path; None if there is no such endpoint."""
    for served, pattern, endpoint in _routes():
        match = re.fullmatch(pattern, path) if served == method else None
        if match is not None:
            return endpoint, [unquote(id) for id in match.groups()]
    return None


@functools.cache
def _routes() -> list[Route]:
    """The table, made with the first request: importing the package stays quick."""
    from ..endpoints import files, models
    from ..endpoints.audio.speaking import create as speech
    from ..endpoints.audio.transcriptions import create as transcriptions
    from ..endpoints.batches import stored as batches
    from ..endpoints.chat import create as chat
    from ..endpoints.chat import stored as stored_chat
    from ..endpoints.completions import create as completions
    from ..endpoints.completions import fields as completion_fields
    from ..endpoints.embeddings import create as embeddings
    from ..endpoints.items import conversations
    from ..endpoints.responses import counts
    from ..endpoints.responses import create as responses
    from ..endpoints.responses import stored as stored_responses
    from ..endpoints.vector_stores.table import ROUTES as VECTOR_STORES

    completion, response, conversation = (
        f"/{kind}/([^/]+)" for kind in ("chat/completions", "responses", "conversations")
    )
    return [
        ("post", "/chat/completions", Generation(chat.prepare, texts=chat.TEXTS, differ=chat.DIFFER)),
        (
            "post",
            "/completions",
            Generation(completions.prepare, texts=completion_fields.TEXTS, differ=completion_fields.DIFFER),
        ),
        ("post", "/embeddings", Generation(embeddings.prepare, task="embed")),
        ("post", "/audio/transcriptions", Generation(transcriptions.prepare_transcription, task="transcribe")),
        ("post", "/audio/translations", Generation(transcriptions.prepare_translation, task="transcribe")),
        ("post", "/audio/speech", Generation(speech.prepare, task="speak")),
        ("post", "/rerank", Generation(part("rerank").prepare, task="rerank")),
        ("post", "/responses", Generation(responses.prepare, texts=responses.TEXTS, differ=responses.DIFFER)),
        ("post", "/responses/input_tokens", Generation(counts.prepare_count)),
        ("post", "/responses/compact", Generation(counts.prepare_compaction)),
        ("get", "/models", _answer(models.list_models, Runtime.names)),
        ("get", "/models/(.+)", _answer(models.retrieve, Runtime.names, attrgetter("serves"))),
        ("get", "/chat/completions", _stored(stored_chat.list_completions)),
        ("get", completion, _stored(stored_chat.retrieve)),
        ("post", completion, _stored(stored_chat.update)),
        ("delete", completion, _stored(stored_chat.delete)),
        ("get", f"{completion}/messages", _stored(stored_chat.list_messages)),
        ("get", response, _stored(stored_responses.retrieve, Runtime.background)),
        ("delete", response, _stored(stored_responses.delete, Runtime.background)),
        ("post", f"{response}/cancel", _stored(stored_responses.cancel, Runtime.background)),
        ("get", f"{response}/input_items", _stored(stored_responses.input_items, Runtime.background)),
        ("post", "/conversations", _stored(conversations.create)),
        ("get", conversation, _stored(conversations.retrieve)),
        ("post", conversation, _stored(conversations.update)),
        ("delete", conversation, _stored(conversations.delete)),
        ("post", f"{conversation}/items", _stored(conversations.create_items)),
        ("get", f"{conversation}/items", _stored(conversations.list_items)),
        ("get", f"{conversation}/items/([^/]+)", _stored(conversations.retrieve_item)),
        ("delete", f"{conversation}/items/([^/]+)", _stored(conversations.delete_item)),
        ("post", "/files", _stored(files.create)),
        ("get", "/files", _stored(files.list_files)),
        ("get", "/files/([^/]+)", _stored(files.retrieve)),
        ("delete", "/files/([^/]+)", _stored(files.delete)),
        ("get", "/files/([^/]+)/content", _stored(files.content)),
        ("post", "/batches", _stored(batches.create, Runtime.batches)),
        ("get", "/batches", _stored(batches.list_batches, Runtime.batches)),
        ("get", "/batches/([^/]+)", _stored(batches.retrieve, Runtime.batches)),
        ("post", "/batches/([^/]+)/cancel", _stored(batches.cancel, Runtime.batches)),
        *((method, path, _answer(handler, Runtime.library)) for method, path, handler in VECTOR_STORES),
    ]


def _stored(handler: Callable[..., object], *needs: Callable[[Runtime], object]) -> Answer:
    """Answer a request about what is stored."""
    return _answer(handler, Runtime.store, *needs)


def _answer(handler: Callable[..., object], *needs: Callable[[Runtime], object]) -> Answer:
    """Answer a request by a handler, which gets these parts of the client before the request itself."""
    from ..endpoints.fields import Fields

    return lambda runtime, body, query, *ids: handler(*(need(runtime) for need in needs), Fields(body), query, *ids)
