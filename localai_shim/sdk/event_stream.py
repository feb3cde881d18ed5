"""The response whose answer comes in events: objects for this package's streams, server-sent events for others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import openai

from . import private as sdk

if TYPE_CHECKING:
    import httpx2 as httpx
else:
    httpx = sdk.httpx


class SyncEvents(Protocol):
    """Source of a stream, for threads."""

    def __iter__(self) -> Iterator[object]: ...
    def __next__(self) -> object: ...
    def close(self) -> None: ...


@runtime_checkable
class AsyncEvents(Protocol):
    """Source of a stream, for tasks."""

    def __aiter__(self) -> AsyncIterator[object]: ...
    async def __anext__(self) -> object: ...
    async def aclose(self) -> None: ...


Events = SyncEvents | AsyncEvents


class LocalStreamResponse(httpx.Response):
    """An answer that is being made: SDK objects for our stream classes, server-sent events for everyone else."""

    def __init__(self, events: Events, *, request: httpx.Request, media_type: str | None = None) -> None:
        body: _SyncSSE | _AsyncSSE
        if isinstance(events, AsyncEvents):
            body = (_AsyncSSE if media_type is None else _AsyncBytes)(events, request)
        else:
            body = (_SyncSSE if media_type is None else _SyncBytes)(events, request)
        headers = sdk.answer_headers(media_type or "text/event-stream; charset=utf-8")
        super().__init__(200, headers=headers, stream=body, request=request)
        self.elapsed = timedelta(0)
        self.local_events = events if media_type is None else None


AnyResponse = sdk.LocalResponse | LocalStreamResponse

_DONE = b"data: [DONE]\n\n"


def _name(event: object) -> str | None:
    """Events of responses have names, and no `[DONE]` behind the last one."""
    name = getattr(event, "type", None)
    return name if isinstance(name, str) else None


def _sse(event: object) -> bytes:
    name = _name(event)
    return b"%sdata: %s\n\n" % (b"" if name is None else f"event: {name}\n".encode(), sdk.raw_json(event))


def _failure(error: openai.APIStatusError | openai.APIConnectionError, request: httpx.Request) -> bytes:
    """The event by which a server's stream says that it failed; raises where no server would have said it."""
    if isinstance(error, openai.APIConnectionError):
        raise lost_connection(error, request) from error
    return b"data: %s\n\n" % error.response.content


class _SyncSSE(httpx.SyncByteStream):
    def __init__(self, events: SyncEvents, request: httpx.Request) -> None:
        self._events, self._request = events, request

    def __iter__(self) -> Iterator[bytes]:
        event: object = None
        try:
            for event in self._events:
                yield _sse(event)
            if _name(event) is None:
                yield _DONE
        except (openai.APIStatusError, openai.APIConnectionError) as error:
            yield _failure(error, self._request)

    def close(self) -> None:
        self._events.close()


class _AsyncSSE(httpx.AsyncByteStream):
    def __init__(self, events: AsyncEvents, request: httpx.Request) -> None:
        self._events, self._request = events, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        event: object = None
        try:
            async for event in self._events:
                yield _sse(event)
            if _name(event) is None:
                yield _DONE
        except (openai.APIStatusError, openai.APIConnectionError) as error:
            yield _failure(error, self._request)

    async def aclose(self) -> None:
        await self._events.aclose()


class _Content(Protocol):
    """Event with the next bytes of an answer."""

    @property
    def content(self) -> bytes: ...


class _SyncBytes(_SyncSSE):
    def __iter__(self) -> Iterator[bytes]:
        for event in self._events:
            yield cast(_Content, event).content


class _AsyncBytes(_AsyncSSE):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in self._events:
            yield cast(_Content, event).content


# -- connections that are lost --------------------------------------------------------------------------------------

CUT = "peer closed connection without sending complete message body (incomplete chunked read)"


def lost_connection(error: openai.APIConnectionError, request: httpx.Request) -> httpx.TransportError:
    """The exception of httpx for an error of a connection: the one that it was made of, if any."""
    cause = error.__cause__
    if isinstance(cause, httpx.TransportError):
        return type(cause)(str(cause), request=request)
    if isinstance(error, openai.APITimeoutError):
        return httpx.ReadTimeout("The model took longer than the request's timeout", request=request)
    return httpx.RemoteProtocolError(error.message, request=request)


def raised_amid_stream(error: openai.APIConnectionError) -> Exception:
    """The exception of the installed SDK for a connection that is lost while a stream is read: its 2.x line lets those
    of httpx through."""
    lost = lost_connection(error, error.request)
    if sdk.SERIES < 3:
        return lost
    error.__cause__ = lost
    return error
