"""Replies that are decided when the request comes, by functions, plain or async."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from .answers import Answer, ScriptedReply, read_answer

if TYPE_CHECKING:
    from .requests import Request


def decide(reply: ScriptedReply, request: Request) -> Answer:
    """Find the answer that a reply gives to a request.

    A function is called on this thread; what it has to wait for is awaited on the event loop that the thread works
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

    from ..client.call import preparing

    async def beside_others() -> object:
        limiter = preparing()
        limiter.total_tokens += 1  # this thread waits, perhaps for a request that has to be prepared first
        try:
            return await made
        finally:
            limiter.total_tokens -= 1

    try:
        anyio.from_thread.run_sync(int)
    except RuntimeError:  # this thread works for no event loop
        return _on_a_loop_of_its_own(made)
    return anyio.from_thread.run(beside_others)


def _on_a_loop_of_its_own(made: Awaitable[object]) -> object:
    """Run an awaitable on a thread of its own: this thread may have a running event loop."""
    import anyio

    result: Future[object] = Future()

    async def wait() -> object:
        return await made

    def run() -> None:
        try:
            result.set_result(anyio.run(wait))
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=run, name="localai_shim:reply", daemon=True)
    thread.start()
    thread.join()
    return result.result()
