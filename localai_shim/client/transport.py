"""Transports for httpx that answer from this process, as a server would: status, headers, JSON, server-sent events.

They serve clients of the SDK that other code builds, and requests that reach this package's HTTP client: from tools
that replace `openai.OpenAI.request`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import openai

from ..errors import RequestError
from ..runtime.engines import Runtime
from ..sdk import private as sdk
from ..sdk import stock_clients
from ..sdk.event_stream import AnyResponse, LocalStreamResponse, lost_connection
from ..state.errors import StoreError
from ..types import EngineError
from .call import Call

if TYPE_CHECKING:
    import httpx2 as httpx
else:
    httpx = sdk.httpx

_ANTICIPATED = (RequestError, openai.OpenAIError, EngineError, StoreError)
"""Errors that clients may try again, as the SDK thinks fit."""
Respond = Callable[[Call], AnyResponse]
RespondAsync = Callable[[Call], Awaitable[AnyResponse]]
RespondT = TypeVar("RespondT", Respond, RespondAsync)


class _Transport(Generic[RespondT]):
    """Parts that both have in common.

    Args:
        runtime: the models that answer.
        respond: makes the response to a call.
        base_url: requests to other addresses are refused; None: whatever the address, they are answered.
    """

    _asynchronous: bool

    def __init__(self, runtime: Runtime, respond: RespondT, base_url: str | None = None) -> None:
        self._runtime, self._base_url = runtime, base_url
        self._respond: RespondT = respond

    def _call(self, request: httpx.Request) -> Call:
        """The call of a request whose content was read."""
        if self._base_url is not None and not str(request.url).startswith(self._base_url):
            sdk.refuse(request)
        call = Call(stock_clients.stock_client(self._asynchronous), self._runtime, stock_clients.read_request(request))
        call.request = request
        return call


class LocalTransport(_Transport[Respond], httpx.BaseTransport):
    """Answers the requests of an `httpx.Client`."""

    _asynchronous = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        call = self._call(request)
        try:
            return _sent(self._respond(call), request)
        except BaseException as error:
            return _failed(call, error)


class LocalAsyncTransport(_Transport[RespondAsync], httpx.AsyncBaseTransport):
    """Answers the requests of an `httpx.AsyncClient`."""

    _asynchronous = True

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        call = self._call(request)
        try:
            return _sent(await self._respond(call), request)
        except BaseException as error:
            return _failed(call, error)


def _sent(response: httpx.Response, request: httpx.Request) -> httpx.Response:
    """A response as a transport returns it: its body is still to be read."""
    if isinstance(response, LocalStreamResponse):
        return response
    stream = httpx.ByteStream(response.content)
    return httpx.Response(response.status_code, headers=response.headers, stream=stream, request=request)


def _failed(call: Call, error: BaseException) -> httpx.Response:
    """The response that says what went wrong.

    Raises:
        httpx.TransportError: where a server would not have answered.
    """
    try:
        call.fail(error)
    except openai.APIStatusError as failure:
        response = _sent(failure.response, call.request)
        response.local_error = failure  # type: ignore[attr-defined]  # what clients of ours raise
        if not isinstance(error, _ANTICIPATED):
            response.headers["x-should-retry"] = "false"  # it would fail again
        return response
    except openai.APIConnectionError as failure:
        raise lost_connection(failure, call.request) from error
