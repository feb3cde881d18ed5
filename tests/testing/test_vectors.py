"""Embeddings and rerankings of scripted clients: made up, scripted, failing, and what the test is told of them."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import openai
import pytest

from localai_shim import http_client, rerank
from localai_shim.testing import (
    AsyncScriptedOpenAI,
    ClientFactory,
    IncompleteScript,
    Request,
    ScriptedOpenAI,
    UnexpectedRequest,
    connection_error,
    embedding,
    hang,
    patch_openai,
    rate_limit,
    relevance,
    server_error,
    timeout,
)
from localai_shim.testing.stage import Stage
from tests.engine.harness import eventually


def embed(client: Any, input: Any = "Paris", **more: Any) -> list[list[float]]:
    response = client.embeddings.create(model="text-embedding-3-small", input=input, **more)
    return [each.embedding for each in response.data]


def chat(client: openai.OpenAI, text: str = "Hi") -> str | None:
    messages: Any = [{"role": "user", "content": text}]
    return client.chat.completions.create(model="gpt-4o", messages=messages).choices[0].message.content


def likeness(a: list[float], b: list[float]) -> float:
    return float(np.dot(a, b))


# -- made up --------------------------------------------------------------------------------------------------------


def test_nothing_has_to_be_scripted(client: ScriptedOpenAI) -> None:
    rain, shower, bread = embed(client, ["the rain in Spain", "rain in Spain", "bread and butter"])
    assert len(rain) == 1536 and abs(likeness(rain, rain) - 1) < 1e-6
    assert likeness(rain, shower) > 0.8 > 0.3 > likeness(rain, bread)
    assert embed(ScriptedOpenAI(), "the rain in Spain") == [rain]
    assert [r.index for r in rerank(client, "rain", ["bread", "rain"]).results] == [1, 0]
    client.assert_complete()


def test_texts_that_are_scripted_are_left_to_those_who_want_text(client: ScriptedOpenAI) -> None:
    client.script("one", "two")
    made_up = embed(client)
    assert chat(client) == "one"
    assert embed(client) == made_up
    assert chat(client) == "two"
    client.assert_complete()


# -- scripted -------------------------------------------------------------------------------------------------------


def test_vectors_are_played_as_they_are(client: ScriptedOpenAI) -> None:
    client.script(embedding([1, 0, 0], [3, 4, 0]), embedding([0.5, 0.25]))
    assert embed(client, ["a", "b"]) == [[1, 0, 0], [3, 4, 0]]
    assert embed(client, ["a", "b", "c"]) == [[0.5, 0.25]] * 3
    client.assert_complete()


def test_texts_and_vectors_keep_an_order_each(client: ScriptedOpenAI) -> None:
    client.script("one", embedding([1.0]), "two", relevance(0.1, 0.9), embedding([2.0]))
    assert embed(client) == [[1.0]]
    assert [r.relevance_score for r in rerank(client, "q", ["a", "b"]).results] == [
        pytest.approx(0.9),
        pytest.approx(0.1),
    ]
    assert [chat(client), chat(client)] == ["one", "two"]
    assert embed(client) == [[2.0]]
    client.assert_complete()


def test_what_comes_after_the_last_scripted_vector_is_unexpected(client: ScriptedOpenAI) -> None:
    client.script(embedding([1.0]))
    embed(client)
    with pytest.raises(UnexpectedRequest, match=r"embeddings\(model='text-embedding-3-small', 1 text: 'Paris'\)"):
        embed(client)
    with pytest.raises(IncompleteScript, match="UnexpectedRequest"):
        client.assert_complete()


def test_vectors_that_are_left_are_told(client: ScriptedOpenAI) -> None:
    client.script(embedding([1.0]))
    with pytest.raises(IncompleteScript, match="1 of 1 replies were not played"):
        client.assert_complete()


def test_a_reply_with_another_number_of_vectors_is_refused(client: ScriptedOpenAI) -> None:
    client.script(embedding([1.0], [2.0]), relevance(0.5))
    with pytest.raises(UnexpectedRequest, match=r"the reply has 2 vectors, and .* wants 3"):
        embed(client, ["a", "b", "c"])
    with pytest.raises(UnexpectedRequest, match="wants 2"):
        rerank(client, "q", ["a", "b"])


@pytest.mark.parametrize("given", [(), ([],), ([1.0], [1.0, 2.0])])
def test_what_is_no_vector_is_refused_where_it_is_written(given: Any) -> None:
    with pytest.raises(ValueError, match="equally many numbers"):
        embedding(*given)


def test_rules_choose_by_api_and_text(client: ScriptedOpenAI) -> None:
    client.when(user="Paris").reply("It rains.")  # text: for those who want text
    client.when(user="Paris").reply(embedding([1.0])).always()
    client.when(api="embeddings", user="Rome").reply(lambda request: embedding([float(len(request.texts))])).always()
    client.when(api="rerank", user="Rome").reply(relevance(0.25))
    assert embed(client, ["a", "in Paris"]) == [[1.0], [1.0]]
    assert embed(client, ["a", "in Rome", "b"]) == [[3.0]] * 3
    assert rerank(client, "Rome", ["a"]).results[0].relevance_score == 0.25
    assert len(embed(client, "Berlin")[0]) == 1536
    assert chat(client, "in Paris?") == "It rains."
    client.assert_complete()


def test_a_rule_for_embeddings_has_no_text(client: ScriptedOpenAI) -> None:
    client.when(api="embeddings").reply("Hello!")
    with pytest.raises(UnexpectedRequest, match=r"is answered with embedding\(\[0.6, 0.8\]\), or a failure"):
        embed(client)


def test_a_function_sees_the_request(client: ScriptedOpenAI) -> None:
    seen: list[Request] = []

    async def decide(request: Request) -> Any:
        await anyio.lowlevel.checkpoint()
        seen.append(request)
        return embedding(*([float(len(text))] for text in request.texts))

    client.when(api="embeddings").reply(decide)
    assert embed(client, ["a", "abc"], dimensions=256, user="me") == [[1.0], [3.0]]
    assert (seen[0].texts, seen[0].parameters["dimensions"]) == (["a", "abc"], 256)


# -- failures -------------------------------------------------------------------------------------------------------


def test_a_failure_is_retried_as_the_sdk_does(client: ScriptedOpenAI) -> None:
    client.when(api="embeddings").reply(rate_limit(retry_after=20), server_error(), embedding([1.0]))
    assert embed(client) == [[1.0]]
    assert client.clock.sleeps[0] == 20
    assert [(call.api, call.attempt, type(call.error).__name__) for call in client.calls] == [
        ("embeddings", 0, "RateLimitError"),
        ("embeddings", 1, "InternalServerError"),
        ("embeddings", 2, "NoneType"),
    ]
    client.assert_complete()


def test_a_failure_that_comes_next_is_for_whatever_is_asked_next(client: ScriptedOpenAI) -> None:
    client.script(rate_limit(), "Hello!", server_error())
    assert len(embed(client)[0]) == 1536  # at the second attempt
    assert chat(client) == "Hello!"
    with pytest.raises(openai.InternalServerError):
        embed(client.with_options(max_retries=0))
    client.assert_complete()


@pytest.mark.parametrize(
    ("trouble", "error"),
    [(timeout(), openai.APITimeoutError), (connection_error(), openai.APIConnectionError), (KeyError("x"), KeyError)],
)
def test_scripted_failures_are_raised_for_embeddings(trouble: Any, error: type[Exception]) -> None:
    client = ScriptedOpenAI(max_retries=0, timeout=30).script(trouble)
    with pytest.raises(error):
        embed(client)
    assert client.clock.now == (30 if error is openai.APITimeoutError else 0)
    client.assert_complete()


def test_a_hang_lasts_until_the_timeout(client: ScriptedOpenAI) -> None:
    client.when(api="embeddings").reply(hang())
    with pytest.raises(openai.APITimeoutError):
        embed(client.with_options(max_retries=0, timeout=0.05))


def test_a_hang_ends_when_the_clock_is_advanced() -> None:
    stage = Stage(clock="manual")
    client = ScriptedOpenAI(engine=stage, max_retries=0, timeout=60)
    client.script(hang())
    failed: list[type[BaseException]] = []

    def ask() -> None:
        try:
            embed(client)
        except openai.APITimeoutError as error:
            failed.append(type(error))

    thread = threading.Thread(target=ask)
    thread.start()
    assert eventually(lambda: bool(stage.embedded))
    client.clock.advance(61)
    thread.join(30)
    assert failed == [openai.APITimeoutError]


# -- what was asked -------------------------------------------------------------------------------------------------


def test_calls_say_what_was_asked(client: ScriptedOpenAI) -> None:
    embed(client, ["Paris", "Rome"], dimensions=8)
    rerank(client, "rain", ["Paris", {"text": "Rome"}], top_n=1)
    first, second = client.calls
    assert (first.api, first.model, first.texts) == ("embeddings", "text-embedding-3-small", ["Paris", "Rome"])
    assert first.parameters == {"dimensions": 8, "encoding_format": "base64"}
    assert (first.prompt_tokens, first.completion_tokens, first.stream) == (9, 0, False)
    assert (second.api, second.texts, second.parameters["top_n"]) == ("rerank", ["Paris", "Rome"], 1)
    assert first.snapshot()["input"] == ["Paris", "Rome"]
    client.assert_called(times=1, api="embeddings", user="Rome")
    client.assert_called(times=1, api="rerank", user="rain")
    client.assert_not_called(api="responses")
    assert client.stage.report() == [
        "1. embeddings(model='text-embedding-3-small', 2 texts: 'Paris') -> 2 vectors",
        "2. rerank(model='', 2 documents: 'Paris') -> 2 scores",
    ]


def test_token_ids_are_told_as_their_text(client: ScriptedOpenAI) -> None:
    client.embeddings.create(model="m", input=[list(b"Paris"), list(b"Rome")])
    assert client.last_call.texts == ["Paris", "Rome"]
    client.embeddings.create(model="m", input=list(b"Paris"))
    assert client.last_call.texts == ["Paris"]


def test_a_budget_counts_what_is_embedded(client: ScriptedOpenAI) -> None:
    with client.token_budget(max_prompt=5, max_requests=1):
        embed(client, "Paris")
    with pytest.raises(AssertionError, match="6 of max_total=5"), client.token_budget(max_total=5):
        embed(client, "Berlin")


def test_a_request_that_is_refused_is_no_call(client: ScriptedOpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        embed(client, [])
    assert client.calls == []


# -- the other ways in ----------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_async_client(local_openai_factory: ClientFactory) -> None:
    client: AsyncScriptedOpenAI = local_openai_factory.make_async(rate_limit(), embedding([1.0, 0.0]))
    response = await client.embeddings.create(model="m", input="a")
    assert response.data[0].embedding == [1.0, 0.0]
    texts = [f"text {i}" for i in range(8)]
    client.when(api="embeddings").reply(lambda request: embedding([float(request.texts[0][-1])])).always()
    found: dict[str, float] = {}

    async def ask(text: str) -> None:
        found[text] = (await client.embeddings.create(model="m", input=text)).data[0].embedding[0]

    async with anyio.create_task_group() as tasks:
        for text in texts:
            tasks.start_soon(ask, text)
    assert found == {text: float(i) for i, text in enumerate(texts)}
    assert [(await rerank(client, "b", ["a", "b"])).results[0].index] == [1]


def test_both_clients_of_a_test_share_the_script(local_openai: ScriptedOpenAI, async_local_openai: Any) -> None:
    async_local_openai.script(embedding([1.0]))
    assert embed(local_openai) == [[1.0]]
    assert async_local_openai.last_call.texts == ["Paris"]


def test_clients_that_code_makes_for_itself(client: ScriptedOpenAI) -> None:
    client.when(api="embeddings").reply(rate_limit(retry_after=5), embedding([0.6, 0.8]))
    with patch_openai(client):
        theirs = openai.OpenAI()
        assert embed(theirs) == [[pytest.approx(0.6), pytest.approx(0.8)]]
        assert openai.embeddings.create(model="m", input="a").data[0].object == "embedding"
        assert rerank(theirs, "b", ["a", "b"], top_n=1).results[0].index == 1
    assert client.clock.sleeps == [5]
    assert [call.api for call in client.calls] == ["embeddings"] * 3 + ["rerank"]


def test_a_transport_sends_what_a_server_would(client: ScriptedOpenAI) -> None:
    client.script(embedding([0.5, -2.0]), embedding([0.5, -2.0]))
    stock = openai.OpenAI(http_client=http_client(engine=client.stage), api_key="none", base_url="http://any.test/v1")
    assert embed(stock) == [[0.5, -2.0]]
    raw = stock.embeddings.with_raw_response.create(model="m", input="a")
    assert raw.http_response.json()["data"][0]["embedding"] == "AAAAPwAAAMA="  # float32, little-endian


def test_raw_responses_have_the_body_of_a_server(client: ScriptedOpenAI) -> None:
    client.script(embedding([0.5]), embedding([0.5]))
    raw = client.embeddings.with_raw_response.create(model="m", input="a")
    assert raw.http_response.json()["data"][0] == {"embedding": "AAAAPw==", "index": 0, "object": "embedding"}
    assert raw.parse().data[0].embedding == [0.5]
    raw = client.embeddings.with_raw_response.create(model="m", input="a", encoding_format="float")
    assert raw.http_response.json()["data"][0]["embedding"] == [0.5]


@pytest.mark.local_openai(script=[embedding([1.0])], model="embedder", client={"max_retries": 0})
def test_the_marker_scripts_vectors_too(local_openai: ScriptedOpenAI) -> None:
    response = local_openai.embeddings.create(model="m", input="a")
    assert (response.model, response.data[0].embedding) == ("embedder", [1.0])
