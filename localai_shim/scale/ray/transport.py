"""Transports for httpx whose requests replicas answer: an explicit sync/async pair around one `Exchange`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import openai
import ray
from ray.exceptions import RayError

from ...runtime.offload import wait, wait_async
from ...sdk import private as sdk
from ...threads.deadline import Deadline
from .pool import ClosedError, Pool
from .replica import Broken, Head, Item, Leaving
from .routing import kept_ids, read_wish

if TYPE_CHECKING:
    import httpx2 as httpx
else:
    httpx = sdk.httpx

CONNECT_SECONDS = 60.0  # in which there has to be a replica, where the request has no limit of its own
CLOSE_SECONDS = 5.0  # that answers have to break off when a client is closed
_STREAMS = "localai_shim.streams"
"""Extension of requests whose answers are read after `send`."""
MAX_DEATHS = 2
"""Replicas that may die of one request before it fails: it may be what they die of."""


class Exchange:
    """One request on its way to a replica, to another one where that dies first, and the answer on its way back.

    Args:
        pool: the replicas.
        request: was read.
    """

    def __init__(self, pool: Pool, request: httpx.Request) -> None:
        self.pool, self._request = pool, request
        self._wish = read_wish(request.method, request.url.path, request.content)
        limits = request.extensions.get("timeout", {})
        self.seconds: float | None = limits.get("read")
        self._connect = Deadline(limits.get("connect") or CONNECT_SECONDS)
        self._start = Deadline(self.seconds)
        self._name: str | None = None
        self._deaths = 0
        self.items: ray.ObjectRefGenerator | None = None
        """Items of the answer, as Ray has them."""
        self.head: Head | None = None

    def send(self) -> Future[None] | None:
        """Give the request to a replica; a future if the request must wait until there may be one.

        Raises:
            httpx.ConnectError: there will be none.
        """
        try:
            found = self.pool.begin(self._wish)
            if isinstance(found, Future):
                return found
            self._name, actor = found
            headers, url = self._request.headers.multi_items(), str(self._request.url)
            self.items = actor.request.remote(self._request.method, url, headers, self._request.content)
        except (ClosedError, RayError) as error:
            raise httpx.ConnectError(str(error), request=self._request) from error
        return None

    def deadline(self) -> Deadline:
        """Time by which there has to be a replica: models take longer to be loaded than servers to be connected to."""
        return self._start if self.pool.is_starting else self._connect

    def receive(self, item: Item | None) -> None:
        """Take the beginning of the answer; without one the request is to be sent again."""
        assert self._name is not None
        if isinstance(item, Leaving):
            self.pool.leaves(self._name)
            self.end()
        elif isinstance(item, Head):
            self.head = item
            if item.body is not None:
                self.piece(item.body)
                self.items = None
                self.end()
        else:
            raise self._broken(item)

    def piece(self, item: Item) -> bytes:
        """A piece of the answer.

        Raises:
            httpx.ReadError: it breaks off.
        """
        if not isinstance(item, bytes):
            raise self._broken(item)
        if self._wish.keeps and self._name is not None:
            self.pool.keep(self._name, kept_ids(item))
            self._wish = self._wish._replace(keeps=False)
        return item

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Raise httpx's errors while there is no replica."""
        try:
            yield
        except TimeoutError:
            message = f"no replica takes requests: {self.pool.describe()}"
            raise httpx.ConnectError(message, request=self._request) from None

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Have another replica get the request where the one that has it dies, unless two have died of it."""
        try:
            yield
        except TimeoutError as error:
            raise self._broken(error) from None
        except ClosedError as error:
            raise httpx.ConnectError(str(error), request=self._request) from error
        except RayError as error:
            assert self._name is not None
            self.pool.lost(self._name)
            self.end()
            self._deaths += 1
            if self._deaths == MAX_DEATHS:
                message = f"{self._deaths} replicas have died: {error}"
                raise httpx.ConnectError(message, request=self._request) from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Raise errors that the SDK converts to its own. In a stream, openai 2.x raises httpx's errors unchanged."""
        try:
            yield
            self.items = None
        except (ClosedError, RayError, TimeoutError, httpx.ReadError) as error:
            broken = self._broken(error)
            # Amid a stream the SDK says no reason, and its 2.x line lets httpx's errors through.
            if self._request.extensions.get(_STREAMS) and isinstance(broken, httpx.ReadError):
                raise openai.APIConnectionError(message=sentence(broken), request=self._request) from error
            raise broken from error
        finally:
            self.end()

    def _broken(self, reason: object) -> httpx.TransportError:
        """The error where an answer breaks off."""
        if isinstance(reason, TimeoutError):
            return httpx.ReadTimeout("The model took longer than the request's timeout", request=self._request)
        if isinstance(reason, httpx.ReadError):
            return reason
        if isinstance(reason, RayError) and self._name is not None:
            self.pool.lost(self._name)
        message = reason.message if isinstance(reason, Broken) else f"the replica's answer breaks off: {reason}"
        return httpx.ReadError(message, request=self._request)

    def end(self) -> None:
        """Count the request down, and stop what still runs for it."""
        name, self._name = self._name, None
        items, self.items = self.items, None
        if items is not None and not sys.is_finalizing() and self.pool.is_connected:
            ray.cancel(items)
        if name is not None:
            self.pool.end(name)

    def __del__(self) -> None:
        self.end()

    def response(self) -> httpx.Response:
        """The response whose answer has begun."""
        assert self.head is not None
        return httpx.Response(self.head.status, headers=self.head.headers, stream=_Body(self), request=self._request)


class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of an answer, for whichever client reads it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._whole = exchange.head and exchange.head.body

    def __iter__(self) -> Iterator[bytes]:
        with self._exchange.reading():
            if self._whole is not None:
                yield self._whole
            while (item := _next(self._exchange)) is not None:
                yield self._exchange.piece(item)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with self._exchange.reading():
            if self._whole is not None:
                yield self._whole
            while (item := await _anext(self._exchange)) is not None:
                yield self._exchange.piece(item)

    def close(self) -> None:
        self._exchange.end()

    async def aclose(self) -> None:
        self._exchange.end()


def _next(exchange: Exchange) -> Item | None:
    """The next item of an answer; None behind the end."""
    items = exchange.items
    if items is None:
        return None
    with exchange.pool.calling():
        if not ray.wait([items], timeout=exchange.seconds, fetch_local=False)[0]:
            raise TimeoutError
        reference = next(items, None)
        return None if reference is None else ray.get(reference)


async def _anext(exchange: Exchange) -> Item | None:
    """Async form of `_next`."""
    items = exchange.items
    if items is None:
        return None
    with exchange.pool.calling():
        async with asyncio.timeout(exchange.seconds):
            reference = await anext(items, None)
            return None if reference is None else await reference


class RayTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers the requests of an `httpx.Client`, or of an `httpx.AsyncClient` on asyncio: Ray's futures are its."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        with contextlib.ExitStack() as leaving:
            exchange = Exchange(self._pool, request)
            leaving.callback(exchange.end)
            while exchange.head is None:
                if (free := exchange.send()) is not None:
                    with exchange.waiting():
                        wait(free, exchange.deadline())
                    continue
                with exchange.asking():
                    exchange.receive(_next(exchange))
            leaving.pop_all()
        return exchange.response()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        with contextlib.ExitStack() as leaving:
            exchange = Exchange(self._pool, request)
            leaving.callback(exchange.end)
            while exchange.head is None:
                if (free := exchange.send()) is not None:
                    with exchange.waiting():
                        await wait_async(free, exchange.deadline())
                    continue
                with exchange.asking():
                    exchange.receive(await _anext(exchange))
            leaving.pop_all()
        return exchange.response()


class RayHttpClient(httpx.Client):
    """Replaces the SDK's http client; closing it ends the replicas that it has started.

    Args:
        pool: the replicas.
        timeout: of requests that do not set a timeout.
    """

    def __init__(self, pool: Pool, timeout: sdk.Timeout) -> None:
        super().__init__(transport=RayTransport(pool), timeout=timeout)
        self.pool = pool

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        _check_open(self, request)
        request.extensions = {**request.extensions, _STREAMS: options.get("stream", False)}
        return super().send(request, **options)

    def close(self) -> None:
        if (idle := self.pool.begin_to_close()) is not None:
            with contextlib.suppress(TimeoutError):
                wait(idle, Deadline(CLOSE_SECONDS))
            self.pool.close()
        super().close()


class AsyncRayHttpClient(httpx.AsyncClient):
    """Async form of `RayHttpClient`."""

    def __init__(self, pool: Pool, timeout: sdk.Timeout) -> None:
        super().__init__(transport=RayTransport(pool), timeout=timeout)
        self.pool = pool

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        _check_open(self, request)
        request.extensions = {**request.extensions, _STREAMS: options.get("stream", False)}
        return await super().send(request, **options)

    async def aclose(self) -> None:
        if (idle := self.pool.begin_to_close()) is not None:
            with contextlib.suppress(TimeoutError):
                await wait_async(idle, Deadline(CLOSE_SECONDS))
            self.pool.close()
        await super().aclose()


def sentence(error: BaseException) -> str:
    """An error's text as the message of the SDK's."""
    why = str(error).strip()
    return f"{why[:1].upper()}{why[1:].removesuffix('.')}."


def _check_open(client: httpx.Client | httpx.AsyncClient, request: httpx.Request) -> None:
    """Raise an error that the SDK converts to its own; httpx would raise a RuntimeError."""
    if client.is_closed:
        raise httpx.ConnectError("client is closed", request=request)
