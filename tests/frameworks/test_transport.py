"""Frameworks that build the SDK's clients themselves, around an http client of ours."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, async_http_client, http_client
from localai_shim.testing import ScriptedEngine, patch_openai
from tests.conftest import MESSAGES
from tests.scripts import run

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ASK: dict[str, Any] = {"model": "gpt-4o", "messages": MESSAGES}


def decide(request: Any, prompt: str, before: int) -> str:
    """A call where there is a tool and no result yet."""
    if "get_weather" in prompt and "sunny" not in prompt:
        return CALL
    return "It is sunny in Paris." if "sunny" in prompt else "Hello there"


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(decide) as made:
        yield made


def get_weather(city: str) -> str:
    """The weather of a city."""
    assert city == "Paris"
    return "sunny"


# -- langchain ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])
def test_langchain_gets_http_clients(engine: ScriptedEngine, responses: bool) -> None:
    langchain = pytest.importorskip("langchain_openai")
    model = langchain.ChatOpenAI(
        model="gpt-4o",
        api_key="x",
        use_responses_api=responses,
        http_client=http_client(engine=engine),
        http_async_client=async_http_client(engine=engine),
    )
    assert model.invoke("Hi").text == "Hello there"
    assert "".join(chunk.text for chunk in model.stream("Hi")) == "Hello there"
    [call] = model.bind_tools([get_weather]).invoke("Weather?").tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})

    async def main() -> None:
        assert (await model.ainvoke("Hi")).text == "Hello there"
        assert "".join([chunk.text async for chunk in model.astream("Hi")]) == "Hello there"

    asyncio.run(main())


# -- openai-agents --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["chat_completions", "responses"])
def test_an_agent_runs_a_tool_over_a_client_of_its_own(engine: ScriptedEngine, api: Any) -> None:
    agents = pytest.importorskip("agents")

    async def main() -> None:
        client = openai.AsyncOpenAI(api_key="x", http_client=async_http_client(engine=engine))
        provider = agents.OpenAIProvider(openai_client=client, use_responses=api == "responses")
        agent = agents.Agent(name="A", instructions="Use tools.", tools=[agents.function_tool(get_weather)])
        config = agents.RunConfig(model_provider=provider, tracing_disabled=True)
        assert (await agents.Runner.run(agent, "Weather?", run_config=config)).final_output == "It is sunny in Paris."
        streamed = agents.Runner.run_streamed(agent, "Weather?", run_config=config)
        kinds = [event.type async for event in streamed.stream_events()]
        assert streamed.final_output == "It is sunny in Paris." and kinds.count("raw_response_event") > 5

    asyncio.run(main())


# -- litellm and dspy, which is built on it -------------------------------------------------------------------------


@pytest.fixture
def litellm(engine: ScriptedEngine) -> Iterator[Any]:
    litellm = pytest.importorskip("litellm")
    litellm.client_session, litellm.aclient_session = http_client(engine=engine), async_http_client(engine=engine)
    litellm.in_memory_llm_clients_cache.flush_cache()
    yield litellm
    litellm.client_session = litellm.aclient_session = None
    litellm.in_memory_llm_clients_cache.flush_cache()


def test_litellm_has_its_sessions(litellm: Any) -> None:
    ask: dict[str, Any] = {"model": "openai/gpt-4o", "api_key": "x", "messages": MESSAGES}
    assert litellm.completion(**ask).choices[0].message.content == "Hello there"
    chunks = litellm.completion(**ask, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello there"
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        litellm.completion(**ask, temperature=9)

    async def main() -> None:
        assert (await litellm.acompletion(**ask)).choices[0].message.content == "Hello there"
        chunks = [chunk async for chunk in await litellm.acompletion(**ask, stream=True)]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello there"

    asyncio.run(main())


def test_dspy_asks_through_litellm(litellm: Any) -> None:
    dspy = pytest.importorskip("dspy")
    model = dspy.LM("openai/gpt-4o", api_key="x", cache=False, engine="litellm")
    assert model("Hi") == ["Hello there"]
    assert model.history[-1]["usage"]["total_tokens"] > 0


# -- frameworks that make their clients around an http client -------------------------------------------------------


def test_llama_index_has_http_clients(engine: ScriptedEngine) -> None:
    llms = pytest.importorskip("llama_index.llms.openai")
    model = llms.OpenAI(
        "gpt-4o",
        api_key="x",
        http_client=http_client(engine=engine),
        async_http_client=async_http_client(engine=engine),
    )
    assert model.complete("Hi").text == "Hello there"
    assert asyncio.run(model.acomplete("Hi")).text == "Hello there"


def test_smolagents_has_an_http_client(engine: ScriptedEngine) -> None:
    smolagents = pytest.importorskip("smolagents")
    model = smolagents.OpenAIModel("gpt-4o", api_key="x", client_kwargs={"http_client": http_client(engine=engine)})
    assert model.generate([smolagents.ChatMessage(role="user", content="Hi")]).content == "Hello there"


# -- OpenInference, which replaces `request` of the SDK's classes ---------------------------------------------------


@pytest.fixture
def spans() -> Iterator[Any]:
    """An exporter that keeps the spans of OpenInference's instrumentation in memory, as long as a test takes."""
    openinference = pytest.importorskip("openinference.instrumentation.openai")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = openinference.OpenAIInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    yield exporter
    instrumentor.uninstrument()
    provider.shutdown()


def texts(spans: Any) -> list[str]:
    """The answers in the spans, each of which says how many tokens it took."""
    found = [dict(span.attributes) for span in spans.get_finished_spans()]
    assert all(each["llm.token_count.completion"] > 0 for each in found)
    return [each["llm.output_messages.0.message.content"] for each in found]


@pytest.mark.parametrize("stock", [False, True], ids=["LocalOpenAI", "OpenAI"])
def test_openinference_sees_each_request(spans: Any, engine: ScriptedEngine, stock: bool) -> None:
    http = http_client(engine=engine)
    client = openai.OpenAI(api_key="x", http_client=http) if stock else LocalOpenAI(engine=engine)
    assert client.chat.completions.create(**ASK).choices[0].message.content == "Hello there"
    stream = client.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True})
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == "Hello there"
    assert client.chat.completions.with_raw_response.create(**ASK).parse().usage is not None
    assert texts(spans) == ["Hello there"] * 3
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**ASK, temperature=9)
    assert spans.get_finished_spans()[-1].status.status_code.name == "ERROR"


def test_openinference_sees_responses(spans: Any, engine: ScriptedEngine) -> None:
    client = LocalOpenAI(engine=engine)
    assert client.responses.create(model="m", input="Hi").output_text == "Hello there"
    assert [event.type for event in client.responses.create(model="m", input="Hi", stream=True)][-1] == (
        "response.completed"
    )
    assert [span.attributes["llm.token_count.completion"] > 0 for span in spans.get_finished_spans()] == [True, True]


def test_openinference_sees_the_async_clients(spans: Any, engine: ScriptedEngine) -> None:
    async def main() -> None:
        stock = openai.AsyncOpenAI(api_key="x", http_client=async_http_client(engine=engine))
        for client in (AsyncLocalOpenAI(engine=engine), stock):
            made = await client.chat.completions.create(**ASK)
            assert made.choices[0].message.content == "Hello there"
            stream = await client.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True})
            assert len([chunk async for chunk in stream]) > 2

    asyncio.run(main())
    assert texts(spans) == ["Hello there"] * 4


# -- and without any http client of ours: `patch_openai` ------------------------------------------------------------


def ask_langchain(**key: str) -> str:
    langchain = pytest.importorskip("langchain_openai")
    return str(langchain.ChatOpenAI(model="gpt-4o", **key).invoke("Hi").text)


def ask_agents(**key: str) -> str:
    agents = pytest.importorskip("agents")
    config = agents.RunConfig(model_provider=agents.OpenAIProvider(**key), tracing_disabled=True)
    return str(asyncio.run(agents.Runner.run(agents.Agent(name="A"), "Hi", run_config=config)).final_output)


def ask_litellm(**key: str) -> str:
    litellm = pytest.importorskip("litellm")
    litellm.cache = None  # which dspy turns on
    litellm.in_memory_llm_clients_cache.flush_cache()
    return str(litellm.completion(model="openai/gpt-4o", **key, messages=MESSAGES).choices[0].message.content)


def ask_litellm_async(**key: str) -> str:
    litellm = pytest.importorskip("litellm")
    litellm.cache = None
    made = asyncio.run(litellm.acompletion(model="openai/gpt-4o", **key, messages=MESSAGES))
    return str(made.choices[0].message.content)


def ask_dspy(**key: str) -> str:
    dspy = pytest.importorskip("dspy")
    return str(dspy.LM("openai/gpt-4o", **key, cache=False, engine="litellm")("Hi")[0])


def ask_crewai(**key: str) -> str:
    crewai = pytest.importorskip("crewai")
    return str(crewai.LLM(model="gpt-4o", provider="openai", **key).call("Hi"))


def ask_pydantic_ai(**key: str) -> str:
    pydantic_ai, models = pytest.importorskip("pydantic_ai"), pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")
    model = models.OpenAIChatModel("gpt-4o", provider=providers.OpenAIProvider(**key))
    return str(pydantic_ai.Agent(model).run_sync("Hi").output)


def ask_llama_index(**key: str) -> str:
    llms = pytest.importorskip("llama_index.llms.openai")
    return str(llms.OpenAI("gpt-4o", **key).complete("Hi").text)


def ask_smolagents(**key: str) -> str:
    smolagents = pytest.importorskip("smolagents")
    model = smolagents.OpenAIModel("gpt-4o", **key)
    return str(model.generate([smolagents.ChatMessage(role="user", content="Hi")]).content)


def ask_agno(**key: str) -> str:
    agents, models = pytest.importorskip("agno.agent"), pytest.importorskip("agno.models.openai")
    model = models.OpenAIChat(id="gpt-4o", **key)
    return str(agents.Agent(model=model, telemetry=False).run("Hi").content)


def ask_autogen(**key: str) -> str:
    clients, models = pytest.importorskip("autogen_ext.models.openai"), pytest.importorskip("autogen_core.models")
    client = clients.OpenAIChatCompletionClient(model="gpt-4o", **key)
    return str(asyncio.run(client.create([models.UserMessage(content="Hi", source="user")])).content)


def ask_haystack(**key: str) -> str:
    generators = pytest.importorskip("haystack.components.generators.chat")
    secret, dataclasses = pytest.importorskip("haystack.utils").Secret, pytest.importorskip("haystack.dataclasses")
    made = {name: secret.from_token(value) for name, value in key.items()}
    generator = generators.OpenAIChatGenerator(**made, model="gpt-4o")
    return str(generator.run([dataclasses.ChatMessage.from_user("Hi")])["replies"][0].text)


def ask_semantic_kernel(**key: str) -> str:
    open_ai = pytest.importorskip("semantic_kernel.connectors.ai.open_ai")
    history = pytest.importorskip("semantic_kernel.contents").ChatHistory()
    history.add_user_message("Hi")
    service = open_ai.OpenAIChatCompletion("gpt-4o", **key)
    return str(asyncio.run(service.get_chat_message_content(history, open_ai.OpenAIChatPromptExecutionSettings())))


ASKS = [
    ask_langchain,
    ask_agents,
    ask_pydantic_ai,
    ask_litellm,
    ask_litellm_async,
    ask_dspy,
    ask_crewai,
    ask_llama_index,
    ask_smolagents,
    ask_agno,
    ask_autogen,
    ask_haystack,
    ask_semantic_kernel,
]


@pytest.mark.parametrize("ask", ASKS)
def test_clients_that_frameworks_make_are_patched(engine: ScriptedEngine, ask: Any) -> None:
    with patch_openai(LocalOpenAI(engine=engine)):
        assert ask(api_key="x") == "Hello there"
    assert len(engine.requests) == 1


@pytest.mark.parametrize("ask", ASKS)
def test_under_a_patch_they_need_no_credentials(
    engine: ScriptedEngine, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with patch_openai(LocalOpenAI(engine=engine)):
        assert ask() == "Hello there"


# -- and with the SDK's classes replaced before a framework is imported ---------------------------------------------

REPLACED = """
import openai
from localai_shim import AsyncLocalOpenAI, LocalOpenAI

openai.OpenAI = openai.Client = LocalOpenAI
openai.AsyncOpenAI = openai.AsyncClient = AsyncLocalOpenAI

from tests.frameworks.test_transport import ASK

print(ASK(api_key="x"))
"""


REPLACING = {
    "langchain_openai": ask_langchain,
    "agents": ask_agents,
    "pydantic_ai": ask_pydantic_ai,
    "crewai": ask_crewai,
    "llama_index": ask_llama_index,
    "smolagents": ask_smolagents,
    "agno": ask_agno,
    "haystack": ask_haystack,
}


@pytest.mark.parametrize(("framework", "ask"), REPLACING.items(), ids=REPLACING)
def test_frameworks_make_local_clients_where_these_stand_in_the_place_of_the_sdk_s_classes(
    framework: str, ask: Any
) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    done = run(REPLACED.replace("ASK", ask.__name__))
    assert done.stdout.strip(), done.stderr
