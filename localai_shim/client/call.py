"""One request: finds the endpoint and the engine that serve it, and turns failures into the SDK's exceptions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, NoReturn, cast
from urllib.parse import parse_qsl

import openai
from openai.types import CreateEmbeddingResponse, Embedding
from openai.types.create_embedding_response import Usage

from .. import types
from ..endpoints.audio.speaking.binary import Binary
from ..endpoints.models import unknown_model
from ..endpoints.turn import AnyAssembler, Turn
from ..engine import threads
from ..errors import BadRequest, NotFound, RequestError, TooManyRequests, listed
from ..grammar import TooComplexError
from ..media import Contents, UnreadError
from ..runtime.engines import Runtime
from ..runtime.offload import aside, importing_later, read_all, wait
from ..runtime.served_models import is_described
from ..sdk import event_stream
from ..sdk import private as sdk
from ..sdk.requests import make_request, read_body
from ..state.errors import StoreError
from ..telemetry.observe import observe
from ..threads.deadline import Deadline, Overdue, computing, until
from ..threads.panics import PanicError, is_interruption, is_panic
from ..types import EngineLike
from . import routes

if TYPE_CHECKING:
    from ..endpoints.responses.background import Run
    from ..endpoints.responses.stored import StoredEvents
    from ..endpoints.served import ServedModel

_RAISED = (RequestError, openai.OpenAIError, sdk.TransportError)
LIGHT_SECONDS = 0.05  # that an event loop prepares a request for at most
_SUPPORTED = (
    "chat.completions, responses, conversations, completions, embeddings, rerank, audio.transcriptions, "
    "audio.translations, audio.speech, files, vector_stores, batches and models"
)


class Call:
    """One request up to the point where it waits; both clients share it."""

    def __init__(self, client: sdk.Client, runtime: Runtime, options: sdk.RequestOptions) -> None:
        self.client, self.runtime, self._options = client, runtime, options
        self.started = time.monotonic()
        self.request = make_request(client, options)
        self.timeout: float | None = None
        self.deadline = Deadline()
        """Time by which the answer has to be there, or the first event of a stream."""
        self.cast_to: object = None
        """Type to which the SDK converts a complete answer; None if it is unknown."""
        self.attempt = sdk.retries_taken(options)
        """Number of retries that came before it."""
        self.method = options.method.lower()
        self.path = "/" + str(options.url).removeprefix(sdk.BASE_URL).split("?")[0].strip("/")
        self.body: dict[str, object] = {}
        self.adapter: str | None = None
        """The name of the adapter that it uses."""
        self._generation: routes.Generation | None = None
        self._contents = Contents()
        operation = routes.operation(self.method, self.path)
        self._observation = observe(self.method, self.path, operation, self.body, self.started)

    def begin(self) -> Future[None] | None:
        """Read what every request has; returns the imports that have to be waited for, if there are some.

        Raises:
            RequestError: no such timeout, or no body.
        """
        if self.client.is_closed():
            raise types.EngineClosedError("client is closed")
        self.timeout = sdk.seconds(self.client, self._options)
        if not self.runtime.is_scripted:
            self.deadline = Deadline(self.timeout, self.started)
        self.body.update(read_body(self._options))
        self.body.update(self._options.files or {})
        if routes.are_loaded() and self.runtime.is_imported:
            return None
        if not self.runtime.is_imported:  # nor is it to be, where a thread of the parent was amid that
            threads.check()
        return importing_later(partial(_load, self.runtime))

    def local(self) -> Callable[[], object] | None:
        """Function that answers a request that needs no model; it may read files. None for the other endpoints.

        Raises:
            RequestError: no such endpoint.
        """
        found = routes.find(self.method, self.path)
        if found is None:
            raise NotFound(
                f"{self.method.upper()} {self.path} does not exist: this client is local, runs a model in this process "
                f"and never uses the network. It supports {_SUPPORTED}.",
                code="unknown_url",
            )
        endpoint, ids = found
        if isinstance(endpoint, routes.Generation):
            self._generation = endpoint
            return None
        return partial(self._in_time, partial(endpoint, self.runtime, self.body, query(self._options), *ids))

    def _in_time(self, work: Callable[[], object]) -> object:
        """Do work that uses the store, which changes nothing after the deadline."""
        with until(self.deadline):
            self.deadline.check()
            return work()

    def save(self, assembler: AnyAssembler, seconds: float | None = None) -> None:
        """Store an answer, if it is to be stored.

        Args:
            seconds: that it may take; None: as many as are left for the request. A script's time is another.

        Raises:
            Overdue: the store was not free in time; nothing of the answer is in it.
        """
        late = Deadline() if self.runtime.is_scripted else self.deadline if seconds is None else Deadline(seconds)
        if assembler.keeps:
            with until(late):
                aside(assembler.save)

    def engine(self) -> EngineLike:
        """The engine that serves the request's model.

        Raises:
            RequestError: there is none.
        """
        name = self.body.get("model")
        if name is None or name == "":
            name = self.runtime.default_name
        if name is None:
            known = ", ".join(f"'{each}'" for each in self.runtime.names())
            raise BadRequest(f"you must provide a model parameter: this client serves {known}", param="model")
        if not isinstance(name, str):
            raise BadRequest.wrong_type("model", "a string", name)
        engine = self.runtime.engine(name)
        if engine is None:
            raise unknown_model(name, self.runtime.names())
        self.adapter = self._read_adapter(name)
        return engine

    def _read_adapter(self, model: str) -> str | None:
        """The adapter that the request names, in `adapter` or as its model.

        Raises:
            RequestError: there is no such adapter.
        """
        given = self.body.pop("adapter", None)
        if given is None:
            if model in self.runtime.adapters:
                return model
            if not self.runtime.serves(model):
                raise _unknown_adapter(model, self.runtime.adapters.paths(), param="model")
            return None
        if not isinstance(given, str):
            raise BadRequest.wrong_type("adapter", "a string", given)
        if given not in self.runtime.adapters:
            raise _unknown_adapter(given, self.runtime.adapters.paths())
        return given

    def prepare(self, engine: EngineLike) -> Turn:
        """Validate, render and tokenise, and read files and URLs for it. Not for event loops."""
        while True:
            try:
                return self.read(engine)
            except UnreadError:
                wait(self.read_contents(), self.deadline)

    def read(self, engine: EngineLike) -> Turn:
        """Prepare the request from the contents that have been read.

        Raises:
            Overdue: the caller no longer waits for it.
            UnreadError: `read_contents` must be called first.
        """
        assert self._generation is not None
        with computing(self.deadline):
            self.deadline.check()
            served = self._served(engine)
            routes.check_task(served, self._generation.task, self.runtime.names)
            turn = self._generation.prepare(self.body, served, self.runtime.store)
            if turn.assembler.media_type is not None:  # its caller says by a header how it is read
                turn.stream = sdk.is_read_in_pieces(self.request)
            return turn

    def _served(self, engine: EngineLike) -> ServedModel:
        try:
            return self.runtime.served(engine, self._contents, self.adapter)
        except KeyError:
            if self.adapter is None or self.adapter in self.runtime.adapters:
                raise
            raise _unknown_adapter(self.adapter, self.runtime.adapters.paths()) from None
        except types.ModelLoadError as error:
            if self.adapter is None or error.transient:
                raise
            raise BadRequest(str(error), param="adapter", code="invalid_adapter") from error

    def read_contents(self) -> Future[None]:
        """Read the files and URLs that a request names, on threads that nothing else waits for."""
        return read_all(self._contents.unread, self.deadline)

    def read_at_once(self, engine: EngineLike) -> Turn | None:
        """Do what `read` does on an event loop; None if that takes too long, or may take too long."""
        if not self.is_light(engine):
            return None
        deadline, quick = self.deadline, Deadline(LIGHT_SECONDS)
        quick.at, self.deadline = min(quick.at, deadline.at), quick
        try:
            return self.read(engine)
        except Overdue:
            return None
        finally:
            self.deadline = deadline

    def is_light(self, engine: EngineLike) -> bool:
        """True if `read` takes so little that no other thread need do it."""
        assert self._generation is not None
        texts, differ = self._generation.texts, self._generation.differ
        if not texts or not is_described(engine) or hasattr(engine, "stage_call"):
            return False
        if self.adapter is not None and not self.runtime.adapters.is_ready(self.adapter, engine):
            return False
        served = self.runtime.served(engine, adapter=self.adapter)
        return served.is_quick and served.field_cache.is_light(self.body, texts, differ)

    def stage(self, engine: EngineLike, turn: Turn) -> Run | None:
        """Do the last steps before a turn is submitted. A test's engine may see the turn; a background turn is started.

        Raises:
            Overdue: the caller no longer waits for the request: it must not be submitted.
        """
        if self._generation is not None and self._generation.task == "embed":
            turn.assembler.decoded = _decodes_vectors(self._options)
        stage = getattr(engine, "stage_call", None)
        if stage is not None:
            turn.stage = partial(stage, self)
            turn.stage(turn)
        self._contents = Contents()  # which may be large
        if self.runtime.is_scripted:  # what a script takes is said by its replies, and not by the machine
            self.deadline = Deadline(self.timeout)
        if self._observation is not None:
            self._observation.prepared(engine, turn)
        self.deadline.check()
        if turn.background is None:
            return None
        run = cast("Run", turn.background(turn))
        if self._observation is not None:
            run.ended_with = self._observation.end
        with until(Deadline() if self.runtime.is_scripted else self.deadline):
            self.runtime.background().start(run, engine)
        return run

    def ended(self, error: BaseException | None = None) -> None:
        """Report the end of the request to its observers. Only the first call counts."""
        if self._observation is not None:
            self._observation.end(None if error is None else self._failure(error))

    def followed(self, answer: object) -> tuple[Run | StoredEvents, int] | None:
        """Source and position of an answer that is a stream of events to follow: whose, and after which."""
        from ..endpoints.responses.stored import Followed

        if not isinstance(answer, Followed):
            return None
        self.ended()
        return answer.source, answer.after

    def fail(self, error: BaseException) -> NoReturn:
        """Raise the SDK's exception for an error; errors that need no conversion are raised unchanged.

        Work that still runs for the request stops when it next checks the deadline.
        """
        self.deadline.abandon()
        failure = self._failure(error)
        if self._observation is not None:
            self._observation.end(failure)
        try:
            if failure is error:
                raise error
            raise failure from error
        finally:
            del error, failure  # which hold this frame

    def fail_amid_stream(self, error: BaseException) -> NoReturn:
        """Do what `fail` does, for an error in the middle of a stream."""
        if isinstance(error, TimeoutError | Overdue):
            error = openai.APITimeoutError(request=self.request)
        if isinstance(error, openai.APIConnectionError):
            error = event_stream.raised_amid_stream(error)
        try:
            self.fail(error)
        finally:
            del error  # which holds this frame

    def _failure(self, error: BaseException) -> BaseException:
        if isinstance(error, PanicError) or is_panic(error):
            error = self._panicked(error)
        if is_interruption(error):
            return KeyboardInterrupt()
        if isinstance(error, TimeoutError | Overdue):
            return openai.APITimeoutError(request=self.request)
        if isinstance(error, types.EngineClosedError):
            why = str(error)
            return openai.APIConnectionError(message=f"{why[:1].upper()}{why[1:]}.", request=self.request)
        if isinstance(error, Exception) and not isinstance(error, _RAISED):
            error = _request_error(error)
        if isinstance(error, RequestError):
            if error.code == "unknown_parameter":
                error.message += sdk.newer_argument(self.client, self.path, error.param)
            return sdk.status_error(self.client, error, self.request)
        return error

    def _panicked(self, error: BaseException) -> BadRequest:
        fields = [name for name in _TEXTS if self.body.get(name) is not None]
        return BadRequest(
            f"The tokenizer of this model cannot read a text in {listed(fields)}: {error}. Send another text, or a "
            "shorter one.",
            param=fields[0] if len(fields) == 1 else None,
            code="invalid_value",
        )

    def whole(self, answer: object) -> sdk.LocalResponse:
        """The response that carries a whole answer."""
        if self._observation is not None:
            self._observation.answered()
        seconds = time.monotonic() - self.started
        if isinstance(answer, Binary):
            response = sdk.LocalResponse(answer.content, request=self.request, seconds=seconds)
            response.headers["content-type"] = answer.media_type
            return response
        return sdk.LocalResponse(answer, request=self.request, seconds=seconds, cast_to=self.cast_to)

    def streamed(self, events: event_stream.Events, media_type: str | None = None) -> event_stream.LocalStreamResponse:
        """The response whose answer comes in events, or in pieces of its bytes if these have a type."""
        return event_stream.LocalStreamResponse(events, request=self.request, media_type=media_type)


_TEXTS = ("messages", "input", "instructions", "prompt", "suffix", "documents", "prediction", "bad_words")
"""Fields of which tokens are made."""


def _unknown_adapter(name: str, known: Collection[str], param: str = "adapter") -> NotFound:
    some = f"It has {listed(sorted(known))}" if known else "It has none"
    return NotFound(
        f"The adapter '{name}' does not exist. {some}: pass `adapters=` to the client, or call its `load_adapter`.",
        param=param,
        code="model_not_found",
    )


def _load(runtime: Runtime) -> None:
    """Import what requests need."""
    routes.load()
    runtime.load_modules()


def _decodes_vectors(options: sdk.RequestOptions) -> bool:
    """True if the SDK makes numbers of the base64 of a call's answer: its caller has asked for no format."""
    parse, probe = options.post_parser, Embedding(embedding=[], index=0, object="embedding")
    if sdk.is_raw(options) or not callable(parse):
        return False
    probe.embedding = "AAAAAA=="  # type: ignore[assignment]
    usage = Usage(prompt_tokens=0, total_tokens=0)
    parse(CreateEmbeddingResponse(data=[probe], model="", object="list", usage=usage))
    return not isinstance(probe.embedding, str)


def query(options: sdk.RequestOptions) -> dict[str, object]:
    """A request's query, from wherever it was given."""
    given = {**dict(parse_qsl(str(options.url).partition("?")[2])), **(options.params or {})}
    return {key: value for key, value in given.items() if not isinstance(value, openai.NotGiven | openai.Omit)}


def _request_error(error: Exception) -> RequestError:
    """Report of the engine or the store, in the terms of OpenAI's error body."""
    if isinstance(error, types.ModelLoadError) and error.missing:
        return NotFound(str(error), param="model", code="model_not_found")
    if isinstance(error, types.AdapterGoneError):
        return NotFound(f"{error}.", param="adapter", code="model_not_found")
    if isinstance(error, types.QueueFullError):
        return TooManyRequests(f"{error}.")
    if isinstance(error, types.TooManyRowsError):
        return BadRequest.invalid("n", f"Invalid 'n': {error}.")
    if isinstance(error, types.RowError) and isinstance(error.__cause__, TooComplexError):
        return BadRequest(f"The grammar of this request became too complex as the answer grew: {error.__cause__}")
    if isinstance(error, types.EngineError | StoreError):
        return RequestError(f"{error}")
    if isinstance(error, ImportError):
        name = error.name or "a module"
        return RequestError(f"{name} could not be imported: {error}. It is tried again with the next request.")
    return RequestError(f"localai_shim failed: {error!r}", headers={"x-should-retry": "false"})
