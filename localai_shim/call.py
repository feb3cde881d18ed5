"""One request on its way: which endpoint and engine serve it, and what its failures become."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import anyio
import openai
from anyio.lowlevel import RunVar

from . import sdk
from .errors import BadRequest, NotFound, RequestError, TooManyRequests
from .grammar import TooComplexError
from .state.errors import StoreError
from .types import (
    EngineClosedError,
    EngineError,
    EngineLike,
    ModelLoadError,
    QueueFullError,
    RowError,
    TooManyRowsError,
)

if TYPE_CHECKING:
    from .client import AsyncLocalOpenAI, LocalOpenAI
    from .runtime import Runtime

_SUPPORTED = "chat.completions, responses, conversations, completions and models"


class Call:
    """What one request needs before it waits for anything; shared by both clients."""

    def __init__(self, client: LocalOpenAI | AsyncLocalOpenAI, options: Any) -> None:
        self.client = client
        self.runtime: Runtime = client._runtime
        self.started = time.monotonic()
        self.request = sdk.make_request(client, options)
        self._options = options
        self.timeout: float | None = None
        self.method = options.method.lower()
        self.path = "/" + str(options.url).removeprefix(sdk.BASE_URL).split("?")[0].strip("/")
        self._parts = (options.json_data, options.extra_json)
        self._query = query(options)
        self.body: dict[str, Any] = {}

    def local(self) -> Callable[[], Any] | None:
        """What answers where no model has to run; it may read files. None for the other endpoints.

        Raises:
            RequestError: no such endpoint or model, or no such timeout.
        """
        if self.client.is_closed():
            raise EngineClosedError("this client was closed")
        self.timeout = sdk.seconds(self.client, self._options)
        for part in self._parts:
            if part is not None and not isinstance(part, Mapping):
                raise BadRequest.wrong_type("body", "an object", part)
            self.body.update(part or {})
        if (self.method, self.path) in _GENERATING:
            return None
        from .routes import find

        route = find(self.method, self.path)
        if route is not None:
            return partial(route, self.runtime, self.body, self._query)
        raise NotFound(
            f"{self.method.upper()} {self.path} does not exist: this client is local, runs a model in this process and "
            f"never uses the network. It supports {_SUPPORTED}.",
            code="unknown_url",
        )

    def engine(self) -> EngineLike:
        """The engine that serves the request's model.

        Raises:
            RequestError: there is none.
        """
        name = self.body.get("model")
        if name is None and self.path == "/responses/input_tokens" and not self.runtime.only:
            name = ""
        if name is None:
            raise BadRequest("you must provide a model parameter", param="model")
        if not isinstance(name, str):
            raise BadRequest.wrong_type("model", "a string", name)
        engine = self.runtime.engine(name)
        if engine is None:
            from .endpoints.models import unknown_model

            raise unknown_model(name, self.runtime.names())
        return engine

    def prepare(self, engine: EngineLike) -> Any:
        """Wait for the model, validate, render, tokenise. Not for event loops."""
        served = self.runtime.served(engine)
        return _GENERATING[self.method, self.path]()(self.body, served, self.runtime.store)

    @staticmethod
    def follows(answer: Any) -> bool:
        """Whether an answer is a stream of events to follow."""
        return hasattr(answer, "source")

    def remaining(self, since: float) -> float | None:
        """Seconds left for the whole answer."""
        return None if self.timeout is None else max(0.0, self.timeout - (time.monotonic() - since))

    def fail(self, error: BaseException) -> BaseException:
        """The SDK's exception for what went wrong; what is not ours stays as it is."""
        if isinstance(error, TimeoutError):
            return openai.APITimeoutError(request=self.request)
        if isinstance(error, ModelLoadError):
            error = (
                NotFound(str(error), param="model", code="model_not_found") if error.missing else _server_error(error)
            )
        elif isinstance(error, QueueFullError):
            error = TooManyRequests(f"{error}.")
        elif isinstance(error, TooManyRowsError):
            error = BadRequest(f"Invalid 'n': {error}.", param="n", code="invalid_value")
        elif isinstance(error, EngineClosedError):
            return openai.APIConnectionError(message=f"Connection error: {error}.", request=self.request)
        elif isinstance(error, RowError) and isinstance(error.__cause__, TooComplexError):
            error = BadRequest(f"The grammar of this request became too complex as the answer grew: {error.__cause__}")
        elif isinstance(error, Exception) and not isinstance(error, RequestError | openai.OpenAIError):
            error = _server_error(error)
        if isinstance(error, RequestError):
            if error.code == "unknown_parameter":
                error.message += sdk.newer_argument(self.client, self.path, error.param)
            return sdk.status_error(self.client, error, self.request)
        return error

    def whole(self, answer: Any) -> sdk.LocalResponse:
        """The response that carries a whole answer."""
        return sdk.LocalResponse(answer, request=self.request, seconds=time.monotonic() - self.started)


def query(options: Any) -> dict[str, Any]:
    """A request's query, from wherever it was given."""
    given = {**dict(parse_qsl(str(options.url).partition("?")[2])), **(options.params or {})}
    return {key: value for key, value in given.items() if not isinstance(value, openai.NotGiven | openai.Omit)}


_limiter: RunVar[anyio.CapacityLimiter] = RunVar("localai_shim.preparing")


def preparing() -> anyio.CapacityLimiter:
    """Few at a time: each thread that renders and tokenises keeps the event loop waiting for the GIL in its turn."""
    try:
        return _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(2)
        _limiter.set(limiter)
        return limiter


def _server_error(error: BaseException) -> RequestError:
    known = isinstance(error, EngineError | StoreError)
    return RequestError(f"{error}" if known else f"localai_shim failed: {error!r}")


def _chat() -> Callable[..., Any]:
    from .endpoints.chat import create as chat_completions

    return chat_completions.prepare


def _completions() -> Callable[..., Any]:
    from .endpoints import completions

    return completions.prepare


def _responses() -> Callable[..., Any]:
    from .endpoints.responses import create as responses

    return responses.prepare


def _input_tokens() -> Callable[..., Any]:
    from .endpoints.responses import counts as response_counts

    return response_counts.prepare_count


def _compact() -> Callable[..., Any]:
    from .endpoints.responses import counts as response_counts

    return response_counts.prepare_compaction


_GENERATING: dict[tuple[str, str], Callable[[], Callable[..., Any]]] = {
    ("post", "/chat/completions"): _chat,
    ("post", "/completions"): _completions,
    ("post", "/responses"): _responses,
    ("post", "/responses/input_tokens"): _input_tokens,
    ("post", "/responses/compact"): _compact,
}
