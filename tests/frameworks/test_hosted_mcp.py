"""MCP servers as OpenAI hosts them: real ones, with the mcp package, and as frameworks ask for them."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, http_client
from localai_shim.testing import ScriptedEngine
from tests.endpoints.functions import call
from tests.endpoints.hosted.hosting import script, types
from tests.frameworks.kit import framework
from tests.frameworks.mcp_http import Seen, serving

ADDS = call("calc__add", {"a": 2, "b": 3})
DIVIDES = call("calc__divide", {"a": 1, "b": 0})
ANSWER = "It is 5."
CALLS: Any = {"type": "mcp", "server_label": "calc", "require_approval": "never"}
ITEMS = ["mcp_list_tools", "mcp_call", "message"]
PROGRAM = Path(__file__).with_name("mcp_server.py")


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(script(ADDS, ANSWER)) as made:
        yield made


@pytest.fixture
def seen() -> Seen:
    """What has reached the server over HTTP."""
    return Seen()


@pytest.fixture
def url(seen: Seen) -> Iterator[str]:
    """A server over HTTP on loopback."""
    with serving(seen) as made:
        yield made


@asynccontextmanager
async def over_stdio(kind: str) -> AsyncIterator[Any]:
    """A session with a server that is a process."""
    mcp = framework("mcp")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = mcp.StdioServerParameters(command=sys.executable, args=[str(PROGRAM)], env=environment)
    if kind == "client":
        async with mcp.Client(command) as client:
            yield client
        return
    async with mcp.stdio_client(command) as streams, mcp.ClientSession(*streams) as session:
        await session.initialize()
        yield session


class TestServers:
    @pytest.mark.parametrize("kind", ["session", "client"])
    def test_a_session_over_stdio_serves_requests(self, kind: str, engine: ScriptedEngine) -> None:
        async def main() -> Any:
            async with (
                over_stdio(kind) as session,
                AsyncLocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": session}}) as client,
            ):
                fields: Any = {"model": "m", "input": "Weather?", "tools": [CALLS]}
                whole = await client.responses.create(**fields)
                events = [event async for event in await client.responses.create(**fields, stream=True)]
                return whole, events[-1].response

        for response in asyncio.run(main()):
            assert types(response) == ITEMS and response.output[1].output == "5"
            assert response.output[0].tools[0].annotations == {"readOnlyHint": True}

    def test_a_tool_that_raises_fails_its_call(self) -> None:
        async def main() -> Any:
            async with (
                over_stdio("session") as session,
                AsyncLocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": session}}) as client,
            ):
                return await client.responses.create(model="m", input="Weather?", tools=[CALLS])

        with ScriptedEngine(script(DIVIDES, ANSWER)) as engine:
            response = asyncio.run(main())
            assert "cannot divide by zero" in engine.prompts[1]
        assert types(response) == ITEMS and response.output[1].status == "failed"
        assert response.output[1].error.type == "mcp_tool_execution_error"

    @pytest.mark.parametrize("stream", [False, True])
    def test_a_url_of_the_client_serves_requests(
        self, stream: bool, url: str, engine: ScriptedEngine, seen: Seen
    ) -> None:
        tool = {**CALLS, "server_url": url, "authorization": "token", "headers": {"X-Key": "key"}}
        with LocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": url}}) as client:
            made: Any = client.responses.create(model="m", input="Weather?", tools=[tool], stream=stream)
            response = list(made)[-1].response if stream else made
        assert types(response) == ITEMS and response.output[1].output == "5"
        assert seen.headers
        assert all((each["authorization"], each["x-key"]) == ("Bearer token", "key") for each in seen.headers)

    def test_a_url_of_a_request_reaches_public_hosts_only(self, url: str, engine: ScriptedEngine, seen: Seen) -> None:
        tool = {**CALLS, "server_url": url}
        with LocalOpenAI(engine=engine) as client, pytest.raises(openai.BadRequestError, match="allow_remote_images"):
            client.responses.create(model="m", input="Weather?", tools=[tool])
        with LocalOpenAI(engine=engine, allow_remote_images=True) as client:
            response: Any = client.responses.create(model="m", input="Weather?", tools=[tool])
        assert "is not a public host" in response.output[0].error and not seen.headers

    def test_a_server_that_is_gone_fails_its_list_without_secrets(self, engine: ScriptedEngine) -> None:
        framework("mcp")
        with socket.socket() as taken:  # which nothing listens to
            taken.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp?key=secret"
            with LocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": url}}) as client:
                response: Any = client.responses.create(model="m", input="Weather?", tools=[CALLS])
        assert response.output[0].error and "secret" not in response.output[0].error


def test_the_program_of_the_documentation_runs(capfd: pytest.CaptureFixture[str]) -> None:
    """With the server of this folder, which has another tool."""
    framework("mcp")
    page = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python mcp\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    command = (
        f"command={sys.executable!r}, args=[{str(PROGRAM)!r}], env={{'PYTHONPATH': {os.pathsep.join(sys.path)!r}}}"
    )
    assert code.count('command="uvx", args=["mcp-server-time"]') == 1
    exec(compile(code.replace('command="uvx", args=["mcp-server-time"]', command), "docs/mcp.md", "exec"), {})
    assert capfd.readouterr().out.strip()


class TestLangChain:
    @pytest.mark.parametrize("streamed", [False, True])
    def test_its_built_in_tool_runs_unchanged(self, streamed: bool, url: str, engine: ScriptedEngine) -> None:
        chat_openai = framework("langchain_openai").ChatOpenAI
        with http_client(engine=engine, hosted_tools={"mcp": {"calc": url}}) as transport:
            model = chat_openai(model="gpt-4o", api_key="unused", http_client=transport, use_responses_api=True)
            bound = model.bind_tools([{**CALLS, "server_url": url}])
            if streamed:
                first: Any = None
                for chunk in bound.stream("Weather?"):
                    first = chunk if first is None else first + chunk
            else:
                first = bound.invoke("Weather?")
            bound.invoke([{"role": "user", "content": "Weather?"}, first, {"role": "user", "content": "So?"}])
        assert str(first.text) == ANSWER
        assert "<tool_response>\n5\n" in engine.prompts[-1] and len(engine.prompts) == 3


class TestPydanticAI:
    def test_its_mcp_server_tool_runs_unchanged(self, url: str, engine: ScriptedEngine) -> None:
        ai = framework("pydantic_ai")
        from pydantic_ai.capabilities import NativeTool
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        async def main() -> Any:
            async with AsyncLocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": url}}) as client:
                model = OpenAIResponsesModel("gpt-4o", provider=OpenAIProvider(openai_client=client))
                tool = NativeTool(ai.MCPServerTool(id="calc", url=url, authorization_token="token"))
                agent: Any = ai.Agent(model, capabilities=[tool])
                first = await agent.run("Weather?")
                return first, await agent.run("So?", message_history=first.all_messages())

        first, second = asyncio.run(main())
        assert (first.output, second.output) == (ANSWER, ANSWER)
        assert "<tool_response>\n5\n" in engine.prompts[-1]


class TestOpenAIAgents:
    @pytest.mark.parametrize("streamed", [False, True])
    @pytest.mark.parametrize("approval", ["never", "always"])
    def test_its_hosted_mcp_tool_runs_unchanged(
        self, approval: str, streamed: bool, url: str, engine: ScriptedEngine
    ) -> None:
        agents, asked = framework("agents"), list[Any]()

        def approve(request: Any) -> Any:
            asked.append(request.data.name)
            return {"approve": True}

        config = {**CALLS, "server_url": url, "require_approval": approval}
        tool = agents.HostedMCPTool(tool_config=config, on_approval_request=approve)

        async def main() -> Any:
            async with AsyncLocalOpenAI(engine=engine, hosted_tools={"mcp": {"calc": url}}) as client:
                model = agents.OpenAIResponsesModel(model="gpt-4o", openai_client=client)
                agent = agents.Agent(name="Assistant", tools=[tool], model=model)
                if not streamed:
                    first = await agents.Runner.run(agent, "Weather?")
                else:
                    first = agents.Runner.run_streamed(agent, "Weather?")
                    async for _ in first.stream_events():
                        pass
                given = [*first.to_input_list(), {"role": "user", "content": "So?"}]
                return first, await agents.Runner.run(agent, given)

        first, second = asyncio.run(main())
        assert (first.final_output, second.final_output) == (ANSWER, ANSWER)
        found = [item.raw_item.type for item in first.new_items if not isinstance(item.raw_item, dict)]
        assert [kind for kind in found if kind in ITEMS] == ITEMS
        assert asked[:1] == (["add"] if approval == "always" else [])
