"""One of several engines, in its own process: the actor that Ray starts, and restarts when it dies."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Unpack

import ray.actor

from ...client.local import async_http_client
from ...options import LocalOptions, ModelPath
from ...runtime.offload import wait_async
from ...sdk import private as sdk
from ...stats import EngineStats
from ...threads.deadline import Deadline

MAX_REQUESTS = 1000
"""Requests that run at once in one replica; more wait before it."""
CONTROL = "control"
"""Group of calls that do not wait behind requests."""
POLL_SECONDS = 0.05  # between two looks at a replica that is to end when it is idle


class Head(NamedTuple):
    """The beginning of an answer."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes | None
    """All of it; None: it follows piece by piece."""


class Leaving(NamedTuple):
    """The answer of a replica that takes no more requests: another one is to be asked."""


class Broken(NamedTuple):
    """The end of an answer where a server would have broken off."""

    message: str


Item = Head | Leaving | Broken | bytes


class Replica:
    """An http client of a local model, for callers in other processes.

    Args:
        model: as `async_http_client` takes it.
        options: likewise.
    """

    def __init__(self, model: ModelPath | None, **options: Unpack[LocalOptions]) -> None:
        self._model, self._options = model, options
        self._http: sdk.LocalAsyncHttpClient | None = None
        self._running = 0
        self._leaving = False

    def open(self) -> sdk.LocalAsyncHttpClient:
        """The HTTP client, made on first use, so that each caller gets the error if the options are wrong."""
        if self._http is None:
            self._http = async_http_client(self._model, **self._options)
        return self._http

    async def check(self) -> None:
        """Raise what is wrong with the options."""
        self.open()

    async def load(self) -> int:
        """Wait until the model is loaded, or raise why it cannot be; returns the process's id."""
        runtime = self.open().runtime
        if not runtime.only:
            engine = runtime.engine_of("")
            await wait_async(engine.ready, Deadline())
            _ = engine.model
        return os.getpid()

    async def request(
        self, method: str, url: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> AsyncIterator[Item]:
        """Answer a request."""
        if self._leaving:
            yield Leaving()
            return
        self._running += 1
        try:
            http = self.open()
            request = http.build_request(method, url, headers=headers, content=body, timeout=None)
            response = await http.send(request, stream=True)
            try:
                head = Head(response.status_code, response.headers.multi_items(), None)
                if not response.headers["content-type"].startswith("text/event-stream"):
                    yield head._replace(body=await response.aread())
                    return
                yield head
                async for piece in response.aiter_raw():
                    yield piece
            finally:
                await response.aclose()
        except sdk.TransportError as error:
            yield Broken(str(error))
        finally:
            self._running -= 1

    async def stats(self, model: str) -> EngineStats:
        """A snapshot of the engine."""
        return self.open().runtime.engine_of(model).stats()

    async def leave(self) -> None:
        """Take no more requests, and end when those that run have."""
        self._leaving = True
        while self._running or self._is_busy():  # noqa: ASYNC110  # engines tell nobody
            await asyncio.sleep(POLL_SECONDS)
        ray.actor.exit_actor()

    def _is_busy(self) -> bool:
        """True while work runs that no request waits for, such as a response in the background."""
        if self._http is None:
            return False
        stats = [engine.stats() for engine in self._http.runtime.started()]
        return any(each.running or each.waiting for each in stats)
