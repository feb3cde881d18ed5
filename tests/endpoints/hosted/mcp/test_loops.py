"""Event loops that async MCP servers run on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.endpoints.hosted.hosting import script, types
from tests.endpoints.hosted.mcp.servers import ADDS, ANSWER, CALLS, AsyncServer
from tests.engine.harness import eventually

ASK: dict[str, Any] = {"model": "m", "input": "Weather?", "tools": [CALLS]}
ITEMS = ["mcp_list_tools", "mcp_call", "message"]


class Session(AsyncServer):
    """A server whose answers come from a task of one event loop, as those of a session of the mcp package do."""

    def __init__(self) -> None:
        super().__init__()
        self.questions: asyncio.Queue[tuple[Callable[[], Any], asyncio.Future[Any]]] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()
        self.task = asyncio.create_task(self._answer())

    async def _answer(self) -> None:
        while True:
            question, answer = await self.questions.get()
            answer.set_result(question())

    async def _ask(self, question: Callable[[], Any]) -> Any:
        assert asyncio.get_running_loop() is self.loop
        answer: asyncio.Future[Any] = self.loop.create_future()
        await self.questions.put((question, answer))
        return await answer

    async def list_tools(self) -> Any:
        return await self._ask(lambda: super(AsyncServer, self).list_tools())

    async def call_tool(self, name: str, arguments: Any) -> Any:
        return await self._ask(lambda: super(AsyncServer, self).call_tool(name, arguments))


class Wrapped:
    """Sync methods that return what has to be awaited, as decorators make them."""

    def __init__(self, server: Session) -> None:
        self.server = server

    def list_tools(self) -> Any:
        return self.server.list_tools()

    def call_tool(self, name: str, arguments: Any) -> Any:
        return self.server.call_tool(name, arguments)


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(script(ADDS, ANSWER)) as made:
        yield made


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_session_answers_on_the_event_loop_of_the_request(
    wrapped: bool, stream: bool, engine: ScriptedEngine
) -> None:
    """Also of a client that was made before there was an event loop."""
    served: dict[str, Any] = {}
    client = AsyncLocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": Late(served)}})

    async def main() -> Any:
        session = Session()
        served["server"] = Wrapped(session) if wrapped else session
        found: Any = await client.responses.create(**ASK, stream=stream)
        return [event async for event in found][-1].response if stream else found

    for _ in range(2):  # each time in another event loop
        assert types(asyncio.run(main())) == ITEMS


class Late:
    """A server that is another one later."""

    def __init__(self, served: dict[str, Any]) -> None:
        self.served = served

    def list_tools(self) -> Any:
        return self.served["server"].list_tools()

    def call_tool(self, name: str, arguments: Any) -> Any:
        return self.served["server"].call_tool(name, arguments)


def test_a_session_answers_a_response_in_the_background(engine: ScriptedEngine) -> None:
    async def main() -> Any:
        async with AsyncLocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": Session()}}) as client:
            made = await client.responses.create(**ASK, background=True)
            events = await client.responses.retrieve(made.id, stream=True)
            return [event async for event in events][-1].response

    assert types(asyncio.run(main())) == ITEMS


def test_a_session_answers_a_sync_client_in_a_thread_of_the_event_loop(engine: ScriptedEngine) -> None:
    async def main() -> Any:
        def request() -> Any:
            return client.responses.create(**ASK)

        with LocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": Session()}}) as client:
            return [await asyncio.to_thread(request), await asyncio.get_running_loop().run_in_executor(None, request)]

    assert [types(each) for each in asyncio.run(main())] == [ITEMS, ITEMS]


def test_a_sync_client_that_blocks_the_event_loop_of_an_async_server_says_so(engine: ScriptedEngine) -> None:
    async def main() -> Any:
        with LocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": Session()}}) as client:
            blocked = client.responses.create(**ASK)
            later = await asyncio.to_thread(lambda: client.responses.create(**ASK))
            made = client.responses.create(**ASK, background=True)
            followed = await asyncio.to_thread(lambda: list(client.responses.retrieve(made.id, stream=True)))
            return blocked, later, followed[-1].response

    blocked, later, background = asyncio.run(main())
    assert types(blocked)[0] == "mcp_list_tools" and "use AsyncLocalOpenAI" in blocked.output[0].error
    assert types(later) == types(background) == ITEMS


def test_an_async_server_without_an_event_loop_runs_in_one_of_another_thread(engine: ScriptedEngine) -> None:
    server = AsyncServer()
    with LocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": server}}) as client:
        assert types(client.responses.create(**ASK)) == ITEMS
    assert len(server.loops) == 2 and all(loop.is_closed() for loop in server.loops)


def test_an_event_loop_that_ends_fails_what_waits_for_its_server(engine: ScriptedEngine) -> None:
    """The response continues without its tools."""
    reached = threading.Event()

    class Endless(AsyncServer):
        async def list_tools(self) -> Any:
            reached.set()
            await asyncio.Event().wait()

    with LocalOpenAI(engine=engine) as keeper:

        async def main() -> str:
            client = AsyncLocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": Endless()}})
            clients.append(client)
            made = await client.responses.create(**ASK, background=True)
            await asyncio.to_thread(reached.wait, 60)
            return made.id

        clients: list[AsyncLocalOpenAI] = []
        made = asyncio.run(main())

        async def status() -> Any:
            return await clients[0].responses.retrieve(made)

        assert eventually(lambda: asyncio.run(status()).status == "completed")
        found = asyncio.run(status())
        assert types(found)[0] == "mcp_list_tools" and found.output[0].error
        assert keeper.responses.create(model="m", input="Hi").status == "completed"


def test_an_async_server_runs_on_the_event_loop_of_trio(engine: ScriptedEngine) -> None:
    tokens = []

    class OfTrio(AsyncServer):
        async def list_tools(self) -> Any:
            tokens.append(trio.lowlevel.current_trio_token())
            await trio.lowlevel.checkpoint()
            return super(AsyncServer, self).list_tools()

        async def call_tool(self, name: str, arguments: Any) -> Any:
            tokens.append(trio.lowlevel.current_trio_token())
            await anyio.lowlevel.checkpoint()
            return super(AsyncServer, self).call_tool(name, arguments)

    async def main() -> Any:
        tokens.append(trio.lowlevel.current_trio_token())
        async with AsyncLocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": OfTrio()}}) as client:
            return await client.responses.create(**ASK)

    assert types(trio.run(main)) == ITEMS and len(tokens) == 3 and len(set(map(id, tokens))) == 1


def test_an_async_server_of_trio_is_canceled_with_its_request(engine: ScriptedEngine) -> None:
    reached, canceled = trio.Event(), trio.Event()

    class OfTrio(AsyncServer):
        async def list_tools(self) -> Any:
            reached.set()
            try:
                await trio.sleep_forever()
            finally:
                canceled.set()

    async def main() -> Any:
        async with AsyncLocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": OfTrio()}}) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: client.responses.create(**ASK))
                await reached.wait()
                nursery.cancel_scope.cancel()
            await canceled.wait()

    trio.run(main)
