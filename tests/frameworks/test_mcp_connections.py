"""Connections to a real MCP server over HTTP, which a client keeps between its requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.endpoints.functions import call
from tests.endpoints.hosted.hosting import script, types
from tests.engine.harness import eventually
from tests.frameworks.mcp_http import Seen, serving

ADDS = call("calc__add", {"a": 2, "b": 3})
TOOL: Any = {"type": "mcp", "server_label": "calc", "require_approval": "never"}
ASK: dict[str, Any] = {"model": "m", "input": "Weather?", "tools": [TOOL]}
ITEMS = ["mcp_list_tools", "mcp_call", "message"]


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(script(ADDS + ADDS, "It is 5.")) as made:
        yield made


def ask(client: LocalOpenAI, **more: Any) -> Any:
    response = client.responses.create(**{**ASK, **more})
    assert types(response) == [*ITEMS[:2], *ITEMS[1:]] and {item.output for item in response.output[1:3]} == {"5"}
    return response


def threads() -> int:
    return sum(thread.name == "localai_shim:mcp" for thread in threading.enumerate())


def test_requests_use_one_connection_and_closing_the_client_closes_it(engine: ScriptedEngine) -> None:
    seen, before = Seen(), threads()
    with serving(seen) as url:
        with LocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": url}}) as client:
            for _ in range(2):
                ask(client)
            assert seen.sessions == 1 and seen.methods.count("tools/call") == 4
            assert seen.methods.count("tools/list") == 2, "each response asks, as tools may change"
            ask(client.with_options(timeout=60))
            assert seen.sessions == 1 and threads() == before + 1
        assert threads() == before


def test_an_async_client_keeps_its_connection_between_event_loops(engine: ScriptedEngine) -> None:
    seen = Seen()
    with serving(seen) as url:
        client = AsyncLocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": url}})

        async def main() -> Any:
            return await asyncio.gather(*(client.responses.create(**ASK) for _ in range(3)))

        for _ in range(2):
            assert [types(each)[-1] for each in asyncio.run(main())] == ["message"] * 3
        asyncio.run(client.close())
    assert seen.sessions == 1 and seen.methods.count("tools/call") == 12


def test_clients_and_secrets_do_not_share_a_connection(engine: ScriptedEngine) -> None:
    seen = Seen()
    with serving(seen) as url:
        hosted: Any = {"mcp": {"calc": url}}
        with (
            LocalOpenAI(engine=engine, hosted_tools=hosted) as first,
            LocalOpenAI(engine=engine, hosted_tools=hosted) as second,
        ):
            ask(first)
            ask(second)
            assert seen.sessions == 2
            ask(first, tools=[{**TOOL, "authorization": "token"}])
            assert seen.sessions == 3
            ask(first, tools=[{**TOOL, "authorization": "token"}])
            assert seen.sessions == 3


@pytest.mark.parametrize("legacy", [False, True])
def test_a_server_that_was_restarted_is_used_again(legacy: bool, engine: ScriptedEngine) -> None:
    """Also for calls, without a list before them. In the older protocol, it does not know their session."""
    before, after = Seen(), Seen()
    with serving(before, legacy=legacy) as url:
        client = LocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": url}})
        first = ask(client)
    with serving(after, urlsplit(url).port or 0, legacy=legacy):
        second = client.responses.create(**ASK, previous_response_id=first.id)
        assert types(second) == ["mcp_call", "mcp_call", "message"]
        assert [item.output for item in second.output[:2]] == ["5", "5"]
        assert after.sessions == legacy and after.methods.count("tools/call") == 2 + 2 * legacy
        client.close()


def test_a_server_that_is_gone_fails_its_calls_and_the_answer_continues(engine: ScriptedEngine) -> None:
    with serving(Seen()) as url:
        client = LocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": url}})
        first = ask(client)
    second = client.responses.create(**ASK, previous_response_id=first.id)
    assert [item.status for item in second.output] == ["failed", "failed", "completed"]
    third = client.responses.create(**ASK)
    assert types(third) == ["mcp_list_tools", "message"] and "ConnectError" in str(third.output[0].error)
    client.close()
    assert eventually(lambda: threads() == 0)
