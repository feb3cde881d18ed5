"""Coroutines in an event loop of the thread that waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ....threads.caller_loop import LOOK_SECONDS
from ....threads.deadline import check


def run_here(call: Callable[[], Awaitable[object]]) -> object:
    """Result of a coroutine, in an event loop of this thread. It is canceled when the caller of the request leaves."""
    return asyncio.run(_awaited(call))


async def _awaited(call: Callable[[], Awaitable[object]]) -> object:
    task = asyncio.ensure_future(call())
    while not task.done():
        check()
        await asyncio.wait([task], timeout=LOOK_SECONDS)
    return task.result()
