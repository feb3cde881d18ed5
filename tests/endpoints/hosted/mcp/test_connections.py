"""Connections to MCP servers that are kept: how many, how long, for whom, and what happens when one dies."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from localai_shim.endpoints.hosted.mcp.connections import Address, Connections
from localai_shim.threads.deadline import Deadline, Overdue, until
from tests.engine.harness import eventually

A, B, C = (Address(f"http://{name}", (), False) for name in "abc")


class ConnectError(Exception):
    """An error as the HTTP library's."""


class McpError(Exception):
    """An error as the mcp package's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.error = SimpleNamespace(code=code, message=message)


class Line:
    """A connection, which dies with an error if it is told to."""

    def __init__(self, address: Address) -> None:
        self.address, self.loop = address, asyncio.get_running_loop()
        self.died: asyncio.Future[None] = self.loop.create_future()

    def die(self, error: Exception) -> None:
        self.loop.call_soon_threadsafe(self.died.set_exception, error)


class Net:
    """All connections so far, and those that were closed."""

    def __init__(self) -> None:
        self.made: list[Line] = []
        self.closed: list[Line] = []
        self.error: Exception | None = None

    @asynccontextmanager
    async def connect(self, address: Address) -> AsyncIterator[Line]:
        if self.error is not None:
            raise self.error
        line = Line(address)
        self.made.append(line)
        holder = asyncio.current_task()
        assert holder is not None
        line.died.add_done_callback(lambda died: died.cancelled() or holder.cancel())
        try:
            yield line
        except asyncio.CancelledError:
            if line.died.done():  # as task groups of anyio do
                raise line.died.exception() or AssertionError from None
            raise
        finally:
            self.closed.append(line)
            line.died.cancel()


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.fixture
def kept(net: Net) -> Iterator[Connections]:
    made = Connections(net.connect, most=2)
    yield made
    made.close()


async def same(line: Any) -> object:
    return line


def ask(kept: Connections, address: Address, work: Any = same, *, repeats: bool = False) -> Any:
    return kept.call(address, work, repeats=repeats)


def threads() -> int:
    return sum(thread.name == "localai_shim:mcp" for thread in threading.enumerate())


# -- how many, and how long -----------------------------------------------------------------------------------------


def test_calls_of_one_address_use_one_connection(net: Net, kept: Connections) -> None:
    assert [ask(kept, A), ask(kept, A)] == [net.made[0]] * 2
    assert ask(kept, B) is not net.made[0] and len(net.made) == 2 and not net.closed


def test_requests_with_other_headers_or_rules_have_another_connection(net: Net, kept: Connections) -> None:
    for address in (A, A._replace(headers=(("Authorization", "hunter2"),)), A._replace(public=True)):
        ask(kept, address)
        assert "hunter2" not in repr(address)
    assert len(net.made) == 3


def test_the_connection_that_was_not_used_for_longest_is_closed(net: Net, kept: Connections) -> None:
    for address in (A, B, A, C):
        ask(kept, address)
    assert eventually(lambda: [line.address for line in net.closed] == [B])
    ask(kept, A)
    assert len(net.made) == 3


def test_a_connection_that_is_not_used_is_closed_and_its_thread_ends(net: Net) -> None:
    kept, before = Connections(net.connect, idle=0.01), threads()
    ask(kept, A)
    assert eventually(lambda: len(net.closed) == 1 and threads() <= before)
    ask(kept, A)
    assert len(net.made) == 2
    kept.close()


def test_closing_closes_all_connections(net: Net, kept: Connections) -> None:
    ask(kept, A)
    ask(kept, B)
    kept.close()
    assert len(net.closed) == 2
    kept.close()
    with pytest.raises(RuntimeError, match="client is closed"):
        ask(kept, A)


def test_connections_are_closed_when_their_client_is_collected(net: Net) -> None:
    kept = Connections(net.connect)
    ask(kept, A)
    del kept
    gc.collect()
    assert eventually(lambda: len(net.closed) == 1)


def test_closing_ends_calls_that_wait(net: Net, kept: Connections) -> None:
    begun, raised = threading.Event(), list[BaseException]()

    async def forever(line: Line) -> object:
        begun.set()
        await line.died
        return None

    def wait() -> None:
        with pytest.raises((asyncio.CancelledError, ConnectionError)) as caught:
            ask(kept, A, forever)
        raised.append(caught.value)

    thread = threading.Thread(target=wait)
    thread.start()
    assert begun.wait(60)
    kept.close()
    thread.join(60)
    assert raised and len(net.closed) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_fork_leaves_the_connections_of_its_parent_alone(net: Net, kept: Connections) -> None:
    first = ask(kept, A)
    child = os.fork()
    if not child:
        try:
            ask(kept, A)
        except RuntimeError:
            kept.close()
            gc.collect()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert ask(kept, A) is first and not net.closed


# -- several calls --------------------------------------------------------------------------------------------------


def test_concurrent_calls_share_a_connection(net: Net, kept: Connections) -> None:
    barrier = threading.Barrier(3)

    async def meet(line: Line) -> object:
        await asyncio.to_thread(barrier.wait, 60)
        return line

    found: list[Any] = []
    running = [threading.Thread(target=lambda: found.append(ask(kept, A, meet))) for _ in range(3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    assert found == net.made * 3 and len(net.made) == 1


def test_a_call_that_is_left_is_canceled_and_its_connection_stays(net: Net, kept: Connections) -> None:
    begun, canceled = threading.Event(), threading.Event()
    deadline = Deadline()

    async def forever(line: Line) -> object:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            canceled.set()
            raise
        return None

    def leave() -> None:
        assert begun.wait(60)
        deadline.abandon()

    leaving = threading.Thread(target=leave)
    leaving.start()
    with until(deadline), pytest.raises(Overdue):
        ask(kept, A, forever)
    leaving.join(60)
    assert canceled.wait(60)
    assert ask(kept, A) is net.made[0] and not net.closed


def test_an_error_of_a_call_leaves_the_connection(net: Net, kept: Connections) -> None:
    async def fail(line: Line) -> object:
        raise McpError(-32602, "bad arguments")

    with pytest.raises(McpError, match="bad arguments"):
        ask(kept, A, fail)
    assert ask(kept, A) is net.made[0] and len(net.made) == 1


# -- connections that die -------------------------------------------------------------------------------------------


def test_a_server_that_does_not_answer_is_asked_again_by_the_next_call(net: Net, kept: Connections) -> None:
    net.error = ConnectError("refused")
    with pytest.raises(ConnectError, match="refused"):
        ask(kept, A)
    net.error = None
    assert ask(kept, A) is net.made[0]


def test_a_connection_that_died_while_nobody_used_it_is_made_again(net: Net, kept: Connections) -> None:
    ask(kept, A).die(ConnectionResetError("gone"))
    assert eventually(lambda: len(net.closed) == 1)
    assert ask(kept, A) is net.made[1]


def dying(*errors: Exception) -> Any:
    """Work on whose connections these errors come, one on each."""
    left = iter(errors)

    async def work(line: Line) -> object:
        error = next(left, None)
        if error is None:
            return line
        if isinstance(error, McpError):
            raise error
        line.died.set_exception(error)
        await asyncio.sleep(0)
        raise McpError(-32000, "Connection closed")

    return work


LOST = [McpError(-32600, "Session terminated"), McpError(-32001, "Session not found"), ConnectError("refused")]


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("error", LOST)
def test_work_that_was_not_begun_is_done_with_another_connection(
    error: Exception, repeats: bool, net: Net, kept: Connections
) -> None:
    ask(kept, A)
    assert ask(kept, A, dying(error), repeats=repeats) is net.made[1]
    assert ask(kept, A) is net.made[1] and len(net.made) == 2


def test_only_work_that_may_be_done_twice_is_repeated_when_a_connection_breaks(net: Net, kept: Connections) -> None:
    ask(kept, A)
    with pytest.raises(ConnectionResetError, match="gone"):
        ask(kept, A, dying(ConnectionResetError("gone")), repeats=False)
    ask(kept, A)
    assert ask(kept, A, dying(ConnectionResetError("gone")), repeats=True) is net.made[2]


def test_a_new_connection_that_breaks_is_not_made_again(net: Net, kept: Connections) -> None:
    with pytest.raises(ConnectError):
        ask(kept, A, dying(ConnectError("refused")), repeats=True)
    assert len(net.made) == 1
    ask(kept, A)
    with pytest.raises(ConnectError, match="second"):
        ask(kept, A, dying(ConnectError("first"), ConnectError("second")), repeats=True)
    assert len(net.made) == 3


def test_a_connection_that_dies_fails_only_calls_that_use_it(net: Net, kept: Connections) -> None:
    neighbor = ask(kept, B)
    with pytest.raises(ConnectError):
        ask(kept, A, dying(ConnectError("refused")))
    assert ask(kept, B) is neighbor
