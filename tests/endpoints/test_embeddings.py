"""client.embeddings.create: what it takes, what it refuses, and what comes back."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import numpy.typing as npt
import openai
import pytest
from openai.types import CreateEmbeddingResponse

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, http_client
from localai_shim.sdk import private as sdk
from localai_shim.testing import ScriptedEngine
from localai_shim.vectors import Embedding
from tests.conftest import MESSAGES, revalidate
from tests.embedding_models import tiny_classifier, tiny_embedder
from tests.engine.harness import eventually
from tests.tiny import tiny

DIMENSIONS = 24


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(dimensions=DIMENSIONS, context_length=16) as engine:
        yield engine


@pytest.fixture
def scripted(engine: ScriptedEngine) -> LocalOpenAI:
    return LocalOpenAI(engine=engine)


def vectors(response: CreateEmbeddingResponse) -> npt.NDArray[np.float64]:
    assert [each.index for each in response.data] == list(range(len(response.data)))
    return np.array([each.embedding for each in response.data])


def embed(client: LocalOpenAI, input: Any, **more: Any) -> npt.NDArray[np.float64]:
    return vectors(client.embeddings.create(model="m", input=input, **more))


def refused(client: LocalOpenAI, **body: Any) -> openai.BadRequestError:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(**{"model": "m", **body})
    return caught.value


# -- texts ----------------------------------------------------------------------------------------------------------


def test_a_text_has_one_vector_of_length_1(scripted: LocalOpenAI) -> None:
    response = scripted.embeddings.create(model="m", input="one two", user="somebody")
    revalidate(response)
    assert (response.object, response.model, response.data[0].object) == ("list", "scripted", "embedding")
    assert response.usage.prompt_tokens == response.usage.total_tokens == len("one two")
    [vector] = vectors(response)
    assert vector.shape == (DIMENSIONS,) and abs(np.linalg.norm(vector) - 1) < 1e-6


def test_texts_have_their_vectors_in_their_order(scripted: LocalOpenAI) -> None:
    texts = ["one", "two three", "four"]
    together = embed(scripted, texts)
    assert np.array_equal(together, np.concatenate([embed(scripted, text) for text in texts]))
    assert not np.allclose(together[0], together[2])


def test_token_ids_are_taken_as_they_are(scripted: LocalOpenAI, engine: ScriptedEngine) -> None:
    ids = engine.tokenizer.encode("one two")
    assert np.array_equal(embed(scripted, ids), embed(scripted, "one two"))
    assert np.array_equal(embed(scripted, [ids, ids[:3]]), embed(scripted, ["one two", "one"]))
    assert [list(request.texts) for request in engine.embedded[-2:-1]] == [[ids, ids[:3]]]


@pytest.mark.anyio
async def test_the_async_client_embeds_alike(engine: ScriptedEngine, scripted: LocalOpenAI) -> None:
    client = AsyncLocalOpenAI(engine=engine)
    texts = ["one two", "three"]
    assert np.array_equal(vectors(await client.embeddings.create(model="m", input=texts)), embed(scripted, texts))
    found: dict[int, npt.NDArray[np.float64]] = {}

    async def ask(i: int) -> None:
        found[i] = vectors(await client.with_options(timeout=60).embeddings.create(model="m", input=f"text {i}"))

    async with anyio.create_task_group() as tasks:
        for i in range(20):
            tasks.start_soon(ask, i)
    assert all(np.array_equal(found[i], embed(scripted, f"text {i}")) for i in range(20))


@pytest.mark.parametrize(
    ("given", "param", "code"),
    [
        ("", "input", "string_below_min_length"),
        ([], "input", "empty_array"),
        (["a", "b", "c", ""], "input.3", "string_below_min_length"),
        ([[1], []], "input.1", "empty_array"),
        (["a", 1], "input.1", "invalid_type"),
        (["a", None], "input.1", "invalid_type"),
        ([[1, "a"]], "input.0[1]", "invalid_type"),
        ([True], "input.0", "invalid_type"),
        ([1, 10**9], "input[1]", "invalid_value"),
        ([-1], "input[0]", "invalid_value"),
        (17, "input", "invalid_type"),
        ("a\ud800", "input", "invalid_value"),
        (["a"] * 2049, "input", "array_above_max_length"),
        ("one two three four five six seven eight nine", "input", "context_length_exceeded"),
        (["a", [1] * 17], "input.1", "context_length_exceeded"),
    ],
)
def test_what_is_no_text_is_refused_by_its_place(scripted: LocalOpenAI, given: Any, param: str, code: str) -> None:
    error = refused(scripted, input=given)
    assert (error.param, error.code) == (param, code)


def test_2048_texts_are_embedded(scripted: LocalOpenAI) -> None:
    assert embed(scripted, ["a"] * 2048).shape == (2048, DIMENSIONS)


def test_a_long_text_is_cut_where_the_request_says_so(scripted: LocalOpenAI, engine: ScriptedEngine) -> None:
    words = "one two three four five six seven eight nine ten"
    assert np.array_equal(
        embed(scripted, words, extra_body={"truncate": True}),
        embed(scripted, engine.tokenizer.decode(engine.tokenizer.encode(words)[:16])),
    )
    assert "truncate" in refused(scripted, input=words).message


# -- vectors --------------------------------------------------------------------------------------------------------


def test_fewer_dimensions_are_cut_and_have_length_1_again(scripted: LocalOpenAI) -> None:
    [whole], [cut] = embed(scripted, "one two"), embed(scripted, "one two", dimensions=5)
    assert np.allclose(cut, whole[:5] / np.linalg.norm(whole[:5]))
    assert np.array_equal(embed(scripted, "one two", dimensions=DIMENSIONS)[0], whole)


def test_more_dimensions_than_there_are_are_refused(scripted: LocalOpenAI) -> None:
    error = refused(scripted, input="a", dimensions=DIMENSIONS + 1)
    assert error.param == "dimensions" and str(DIMENSIONS) in error.message
    assert refused(scripted, input="a", dimensions=0).param == "dimensions"


def test_a_raw_response_has_base64_unless_floats_were_asked_for(scripted: LocalOpenAI) -> None:
    raw = scripted.embeddings.with_raw_response.create(model="m", input="one two")
    sent = json.loads(raw.text)
    assert sent["usage"] == {"prompt_tokens": 7, "total_tokens": 7} and sent["object"] == "list"
    [vector] = embed(scripted, "one two")
    assert np.array_equal(np.frombuffer(base64.b64decode(sent["data"][0]["embedding"]), "<f4"), vector)
    assert np.array_equal(vectors(raw.parse())[0], vector)

    raw = scripted.embeddings.with_raw_response.create(model="m", input="one two", encoding_format="float")
    assert np.array_equal(json.loads(raw.text)["data"][0]["embedding"], vector)
    assert np.array_equal(vectors(raw.parse())[0], vector)


def test_base64_comes_as_it_is_where_it_was_asked_for(scripted: LocalOpenAI) -> None:
    response = scripted.embeddings.create(model="m", input="one two", encoding_format="base64")
    sent: Any = response.data[0].embedding
    assert np.array_equal(np.frombuffer(base64.b64decode(sent), "<f4"), embed(scripted, "one two")[0])


@pytest.mark.filterwarnings("error")
def test_a_streamed_response_can_be_read(scripted: LocalOpenAI) -> None:
    with scripted.embeddings.with_streaming_response.create(model="m", input="one two") as response:
        assert np.array_equal(vectors(response.parse()), embed(scripted, "one two"))


def test_unknown_encoding_formats_are_refused(scripted: LocalOpenAI) -> None:
    assert refused(scripted, input="a", encoding_format="int8").param == "encoding_format"


# -- prompts --------------------------------------------------------------------------------------------------------


@pytest.fixture
def prompted(engine: ScriptedEngine, scripted: LocalOpenAI) -> LocalOpenAI:
    """Of a model that has prompts."""
    made = Embedding(DIMENSIONS, prompts={"query": "find ", "document": ""}, default_prompt="query")
    engine.model.settings = {"embed": made}
    return scripted


def test_a_prompt_is_put_before_texts(prompted: LocalOpenAI, engine: ScriptedEngine) -> None:
    def read(**more: Any) -> str:
        prompted.embeddings.create(model="m", input="one", **more)
        return engine.tokenizer.decode(engine.embedded[-1].texts[0])

    assert read(extra_body={"prompt_name": "query"}) == "find one"
    assert read(extra_body={"prompt_name": "document"}) == "one"
    assert read(extra_body={"prompt": "any: "}) == "any: one"
    assert read(extra_body={"prompt": ""}) == "one"
    assert read() == "find one", "the model's default"


def test_a_prompt_counts_as_tokens(prompted: LocalOpenAI) -> None:
    response = prompted.embeddings.create(model="m", input="one", extra_body={"prompt_name": "query"})
    assert response.usage.prompt_tokens == len("find one")


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"prompt_name": "passage"}, "prompt_name"),
        ({"prompt_name": "query", "prompt": "x"}, "prompt_name"),
        ({"prompt": 1}, "prompt"),
        ({"truncate": "yes"}, "truncate"),
        ({"pooling": "mean"}, "pooling"),
        ({"priority": 0.5}, "priority"),
    ],
)
def test_wrong_fields_are_refused(prompted: LocalOpenAI, more: dict[str, Any], param: str) -> None:
    assert refused(prompted, input="a", extra_body=more).param == param


def test_token_ids_take_no_prompt_but_ignore_the_default(prompted: LocalOpenAI, engine: ScriptedEngine) -> None:
    assert refused(prompted, input=[1, 2], extra_body={"prompt_name": "query"}).param == "prompt_name"
    prompted.embeddings.create(model="m", input=[1, 2])
    assert list(engine.embedded[-1].texts[0]) == [1, 2]


# -- models ---------------------------------------------------------------------------------------------------------


def test_a_model_says_what_it_is_for(scripted: LocalOpenAI) -> None:
    found: Any = scripted.models.retrieve("scripted")
    assert found.tasks == ["generate", "embed", "rerank", "recognize", "speak"]
    assert found.embedding_dimensions == DIMENSIONS


def test_a_model_is_asked_for_what_it_can_do(engine: ScriptedEngine) -> None:
    engine.model.tasks = ("embed",)
    client = LocalOpenAI(engine=engine)
    calls: list[Any] = [
        lambda: client.chat.completions.create(model="m", messages=MESSAGES),
        lambda: client.completions.create(model="m", prompt="a"),
        lambda: client.responses.create(model="m", input="a"),
    ]
    for call in calls:
        with pytest.raises(openai.BadRequestError, match=r"cannot generate text: .* client.embeddings") as caught:
            call()
        assert caught.value.param == "model"
    assert embed(client, "a").shape == (1, DIMENSIONS)


def test_a_model_that_does_not_embed_says_so(engine: ScriptedEngine) -> None:
    engine.model.tasks, engine.model.settings = ("rerank",), {}
    error = refused(LocalOpenAI(engine=engine), input="a")
    assert error.param == "model" and "cannot embed texts" in error.message


# -- what is made, and where ----------------------------------------------------------------------------------------


def test_no_json_is_made_of_vectors_that_nobody_reads_as_json(
    scripted: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    raw_json = sdk.raw_json
    monkeypatch.setattr(sdk, "raw_json", lambda answer: (made.append(answer), raw_json(answer))[1])
    embed(scripted, ["one", "two"])
    embed(scripted, "one", encoding_format="base64")
    assert not made
    sent: Any = scripted.post("/embeddings", body={"model": "m", "input": "one"}, cast_to=object)
    assert len(made) == 1 and np.array_equal(sent["data"][0]["embedding"], embed(scripted, "one")[0])


def test_the_sdk_has_nothing_to_decode_and_would_decode_the_same(scripted: LocalOpenAI) -> None:
    """base64 is for who reads the response: numbers are made where the answer is, off the event loop."""
    direct = scripted.embeddings.create(model="m", input="one two")
    assert all(type(number) is float for number in direct.data[0].embedding)
    decoded = scripted.embeddings.with_raw_response.create(model="m", input="one two").parse()
    assert decoded == direct


def test_a_client_that_somebody_else_builds_gets_what_a_server_would_send(engine: ScriptedEngine) -> None:
    with openai.OpenAI(http_client=http_client(engine=engine), base_url="http://local/v1", api_key="none") as client:
        response = client.embeddings.create(model="m", input=["one two", "three"])
        assert np.array_equal(vectors(response), embed(LocalOpenAI(engine=engine), ["one two", "three"]))
        raw = client.embeddings.with_raw_response.create(model="m", input="one two")
        assert isinstance(json.loads(raw.text)["data"][0]["embedding"], str)


@pytest.mark.parametrize(("folder", "tasks"), [(tiny_embedder, ["embed"]), (tiny_classifier, ["rerank"])])
def test_files_say_what_a_model_is_for_before_it_is_loaded(folder: Callable[[], Path], tasks: list[str]) -> None:
    with LocalOpenAI(models={"other": tiny("qwen3"), "small": folder()}, keep_alive=0) as client:
        listed: list[Any] = client.models.list().data
        assert [each.tasks for each in listed] == [None, tasks]


def test_one_client_serves_both_kinds() -> None:
    with LocalOpenAI(models={"chat": tiny("qwen3"), "small": tiny_embedder()}, keep_alive=0) as client:
        made = client.embeddings.create(model="small", input=["one", "two"])
        revalidate(made)
        assert made.model == "tiny-bert-embedder" and vectors(made).shape == (2, 32)
        assert vectors(client.embeddings.create(model="chat", input="one")).shape == (1, 64)
        assert client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=1).choices
        with pytest.raises(openai.BadRequestError, match=r"'tiny-bert-embedder' cannot generate text"):
            client.chat.completions.create(model="small", messages=MESSAGES)
        known: Any = client.models.retrieve("small")
        assert (known.tasks, known.embedding_dimensions, known.max_model_len) == (["embed"], 32, 128)
        before = client.stats("small").embedded_texts  # of all clients that share the engine
        client.embeddings.create(model="small", input=["one", "two"])
        assert client.stats("small").embedded_texts == before + 2


@pytest.mark.anyio
async def test_the_event_loop_goes_on_while_texts_are_embedded() -> None:
    async with AsyncLocalOpenAI(tiny_embedder(), keep_alive=0) as client:
        beats, done = 0, anyio.Event()

        async def ask() -> None:
            await client.embeddings.create(model="m", input=["how are you today"] * 2048)
            done.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            while not done.is_set():
                beats += 1
                await anyio.sleep(0.001)
        assert beats > 3


@pytest.mark.anyio
async def test_a_cancelled_call_leaves_the_engine() -> None:
    async with AsyncLocalOpenAI(tiny_embedder(), keep_alive=0) as client:
        await client.embeddings.create(model="m", input="fox")
        with anyio.move_on_after(0.05):
            await client.embeddings.create(model="m", input=["how are you today " * 20] * 2048)
        again = await client.embeddings.create(model="m", input="fox")
        assert vectors(again).shape == (1, 32)
        assert await anyio.to_thread.run_sync(eventually, lambda: not client.stats().waiting)


def test_a_call_that_takes_too_long_times_out() -> None:
    with LocalOpenAI(tiny_embedder(), keep_alive=0) as client:
        embed(client, "fox")
        with pytest.raises(openai.APITimeoutError):
            client.embeddings.create(model="m", input=["how are you today " * 20] * 512, timeout=0.001)
        assert embed(client, "fox").shape == (1, 32)
