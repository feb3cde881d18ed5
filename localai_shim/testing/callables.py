"""Replies that are decided when the request comes, by functions, plain or async."""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from ..threads.workers import Workers
from .answers import Answer, ScriptedReply, read_answer

if TYPE_CHECKING:
    from .requests import Request


_loops = Workers("reply", idle=0.0)


def decide(reply: ScriptedReply, request: Request) -> Answer:
    """Find the answer that a reply gives to a request.

    A function is called on this thread; an awaitable that it returns is awaited on the event loop that the thread works
    for, if there is one.

    Raises:
        TypeError: a function returned what is not an answer.
        Exception: what a function raises.
    """
    made: object = reply
    if callable(reply) and not isinstance(reply, type):
        made = reply(request)
        if inspect.isawaitable(made):
            made = _wait_for(made)
    return read_answer(made)


def _wait_for(made: Awaitable[object]) -> object:
    import anyio.from_thread

    from ..runtime.offload import turns

    async def alone() -> object:
        return await made

    async def beside_others() -> object:
        with turns().given_away():  # this thread waits, perhaps for a request that has to be prepared first
            return await made

    try:
        anyio.from_thread.run_sync(int)
    except RuntimeError:  # this thread works for no event loop
        # It may have a running event loop itself, which its context tells of.
        return contextvars.Context().run(_loops.submit, partial(anyio.run, alone)).result()
    return anyio.from_thread.run(beside_others)
