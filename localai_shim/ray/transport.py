"""Transports for httpx whose requests replicas answer: an explicit sync/async pair around one `Exchange`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import openai
import ray
from ray.exceptions import RayError

from ..runtime.offload import wait, wait_async
from ..sdk import private as sdk
from ..threads.deadline import Deadline
from .pool import ClosedError, Pool
from .replica import Broken, Head, Item, Leaving
from .routing import kept_ids, read_wish

if TYPE_CHECKING:
    import httpx2 as httpx
else:
    httpx = sdk.httpx

CONNECT_SECONDS = 60.0  # in which there has to be a replica, where the request has no limit of its own
MAX_DEATHS = 2
"""Replicas that may die of one request before it fails: it may be what they die of."""


class Exchange:
    """One request on its way to a replica, to another one where that dies first, and the answer on its way back.

    Args:
        pool: the replicas.
        request: was read.
    """

    def __init__(self, pool: Pool, request: httpx.Request) -> None:
        self._pool, self._request = pool, request
        self._wish = read_wish(request.method, request.url.path, request.content)
        limits = request.extensions.get("timeout", {})
        self.seconds: float | None = limits.get("read")
        self._connect = Deadline(limits.get("connect") or CONNECT_SECONDS)
        self._start = Deadline(self.seconds)
        self._name: str | None = None
        self._deaths = 0
        self.items: Any = None
        """What comes from the replica, as Ray has it."""
        self.head: Head | None = None

    def send(self) -> Future[None] | None:
        """Give the request to a replica; a future where it has to wait until there may be one.

        Raises:
            httpx.ConnectError: there will be none.
        """
        try:
            found = self._pool.begin(self._wish)
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
        return self._start if self._pool.is_starting else self._connect

    def late(self) -> httpx.ConnectError:
        """The error where there is no replica in time."""
        return httpx.ConnectError(f"no replica takes requests: {self._pool.describe()}", request=self._request)

    def receive(self, item: Item | None) -> None:
        """Take the beginning of the answer; without one the request is to be sent again."""
        assert self._name is not None
        if isinstance(item, Leaving):
            self._pool.leaves(self._name)
            self.end()
        elif isinstance(item, Head):
            self.head = item
            if item.body is not None:
                self._keep(item.body)
                self.items = None
                self.end()
        else:
            raise self.broken(item)

    def died(self, error: RayError) -> None:
        """Have another replica get the request, unless two have died of it.

        Raises:
            httpx.ConnectError: they have.
        """
        assert self._name is not None
        self._pool.lost(self._name)
        self.end()
        self._deaths += 1
        if self._deaths == MAX_DEATHS:
            raise httpx.ConnectError(f"{self._deaths} replicas have died: {error}", request=self._request) from error

    def piece(self, item: Item) -> bytes:
        """A piece of the answer.

        Raises:
            httpx.TransportError: it breaks off.
        """
        if not isinstance(item, bytes):
            raise self.broken(item)
        self._keep(item)
        return item

    def _keep(self, head: bytes) -> None:
        if self._wish.keeps and self._name is not None:
            self._pool.keep(self._name, kept_ids(head))
            self._wish = self._wish._replace(keeps=False)

    def broken(self, reason: object) -> httpx.TransportError:
        """The error where an answer breaks off."""
        if isinstance(reason, TimeoutError):
            return httpx.ReadTimeout("The model took longer than the request's timeout", request=self._request)
        if isinstance(reason, RayError) and self._name is not None:
            self._pool.lost(self._name)
        message = reason.message if isinstance(reason, Broken) else f"the replica's answer breaks off: {reason}"
        return httpx.ReadError(message, request=self._request)

    def amid_stream(self, reason: object) -> Exception:
        """The error that a reader of a stream gets: the SDK's 2.x line lets those of httpx through."""
        broken = self.broken(reason)
        if sdk.SERIES >= 3 or isinstance(broken, httpx.TimeoutException):
            return broken
        error = openai.APIConnectionError(message=f"Connection error: {broken}", request=self._request)
        error.__cause__ = broken
        return error

    def end(self) -> None:
        """Count the request down, and stop what still runs for it."""
        name, self._name = self._name, None
        items, self.items = self.items, None
        if items is not None and not sys.is_finalizing() and ray.is_initialized():
            ray.cancel(items)
        if name is not None:
            self._pool.end(name)

    def __del__(self) -> None:
        self.end()


class RayTransport(httpx.BaseTransport):
    """Answers the requests of an `httpx.Client`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        exchange = Exchange(self._pool, request)
        try:
            while exchange.head is None:
                if (waiting := exchange.send()) is not None:
                    try:
                        wait(waiting, exchange.deadline())
                    except TimeoutError:
                        raise exchange.late() from None
                    continue
                try:
                    exchange.receive(_next(exchange))
                except RayError as error:
                    exchange.died(error)
                except TimeoutError as error:
                    raise exchange.broken(error) from None
        except BaseException:
            exchange.end()
            raise
        head = exchange.head
        return httpx.Response(head.status, headers=head.headers, stream=_Body(exchange), request=request)


def _next(exchange: Exchange) -> Item | None:
    """What comes next from the replica; None behind the end."""
    items = exchange.items
    if not ray.wait([items], timeout=exchange.seconds, fetch_local=False)[0]:
        raise TimeoutError
    reference = next(items, None)
    return None if reference is None else ray.get(reference)


class _Body(httpx.SyncByteStream):
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        exchange = self._exchange
        if exchange.head is not None and exchange.head.body is not None:
            yield exchange.head.body
            return
        try:
            while exchange.items is not None and (item := _next(exchange)) is not None:
                yield exchange.piece(item)
            exchange.items = None
        except (RayError, TimeoutError) as error:
            raise exchange.amid_stream(error) from error
        finally:
            exchange.end()

    def close(self) -> None:
        self._exchange.end()


class AsyncRayTransport(httpx.AsyncBaseTransport):
    """Answers the requests of an `httpx.AsyncClient`, on asyncio: Ray's futures are its."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        exchange = Exchange(self._pool, request)
        try:
            while exchange.head is None:
                if (waiting := exchange.send()) is not None:
                    try:
                        await wait_async(waiting, exchange.deadline())
                    except TimeoutError:
                        raise exchange.late() from None
                    continue
                try:
                    exchange.receive(await _anext(exchange))
                except RayError as error:
                    exchange.died(error)
                except TimeoutError as error:
                    raise exchange.broken(error) from None
        except BaseException:
            exchange.end()
            raise
        head = exchange.head
        return httpx.Response(head.status, headers=head.headers, stream=_AsyncBody(exchange), request=request)


async def _anext(exchange: Exchange) -> Item | None:
    async with asyncio.timeout(exchange.seconds):
        reference = await anext(exchange.items, None)
        return None if reference is None else await reference


class _AsyncBody(httpx.AsyncByteStream):
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        exchange = self._exchange
        if exchange.head is not None and exchange.head.body is not None:
            yield exchange.head.body
            return
        try:
            while exchange.items is not None and (item := await _anext(exchange)) is not None:
                yield exchange.piece(item)
            exchange.items = None
        except (RayError, TimeoutError) as error:
            raise exchange.amid_stream(error) from error
        finally:
            exchange.end()

    async def aclose(self) -> None:
        self._exchange.end()


class RayHttpClient(httpx.Client):
    """Takes the place of the SDK's http client; closing it ends the replicas that it has started.

    Args:
        pool: the replicas.
        timeout: of requests that have none of their own.
    """

    def __init__(self, pool: Pool, timeout: sdk.Timeout) -> None:
        super().__init__(transport=RayTransport(pool), timeout=timeout)
        self.pool = pool

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        _check_open(self, request)
        return super().send(request, **options)

    def close(self) -> None:
        self.pool.close()
        super().close()


class AsyncRayHttpClient(httpx.AsyncClient):
    """Async form of `RayHttpClient`."""

    def __init__(self, pool: Pool, timeout: sdk.Timeout) -> None:
        super().__init__(transport=AsyncRayTransport(pool), timeout=timeout)
        self.pool = pool

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        _check_open(self, request)
        return await super().send(request, **options)

    async def aclose(self) -> None:
        self.pool.close()
        await super().aclose()


def _check_open(client: httpx.Client | httpx.AsyncClient, request: httpx.Request) -> None:
    """Raise what the SDK makes an exception of its own of; httpx would raise a RuntimeError."""
    if client.is_closed:
        raise httpx.ConnectError("this client was closed", request=request)
