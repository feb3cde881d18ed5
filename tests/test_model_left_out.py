"""A request without `model` is served where one model serves every name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, async_http_client, http_client, rerank
from localai_shim.testing import ScriptedEngine, patch_openai, scripted
from tests.conftest import MESSAGES, refused
from tests.engine.harness import eventually

BODIES: dict[str, dict[str, Any]] = {
    "/chat/completions": {"messages": MESSAGES},
    "/completions": {"prompt": "Hi"},
    "/responses": {"input": "Hi"},
    "/responses/input_tokens": {"input": "Hi"},
    "/responses/compact": {"input": "Hi"},
    "/embeddings": {"input": ["Hi", "there"]},
    "/rerank": {"query": "Hi", "documents": ["Hi", "there"]},
}
STREAMED = ("/chat/completions", "/completions", "/responses")
each_path = pytest.mark.parametrize("path", BODIES)
each_absence = pytest.mark.parametrize("model", [{}, {"model": None}, {"model": ""}], ids=["left out", "null", "empty"])


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(lambda *_: "Hello") as made:
        yield made


@pytest.fixture
def client(engine: ScriptedEngine) -> LocalOpenAI:
    return LocalOpenAI(engine=engine)


@each_path
@each_absence
def test_the_loaded_model_answers(client: LocalOpenAI, path: str, model: dict[str, str | None]) -> None:
    answer: Any = client.post(path, cast_to=object, body={**BODIES[path], **model})
    assert answer.get("model", "scripted") == "scripted", "counts and compactions do not say which it was"


@each_path
def test_the_loaded_model_answers_stock_clients(engine: ScriptedEngine, path: str) -> None:
    stock = openai.OpenAI(api_key="x", http_client=http_client(engine=engine))
    with patch_openai(LocalOpenAI(engine=engine)):
        for each in (stock, openai.OpenAI(api_key="x", max_retries=0)):
            answer: Any = each.post(path, cast_to=object, body=BODIES[path])
            assert answer.get("model", "scripted") == "scripted"


@each_path
@pytest.mark.anyio
async def test_the_loaded_model_answers_async_clients(engine: ScriptedEngine, path: str) -> None:
    stock = openai.AsyncOpenAI(api_key="x", http_client=async_http_client(engine=engine))
    for client in (AsyncLocalOpenAI(engine=engine), stock):
        answer: Any = await client.post(path, cast_to=object, body=BODIES[path])
        assert answer.get("model", "scripted") == "scripted"


@pytest.mark.parametrize("path", STREAMED)
def test_the_loaded_model_streams(client: LocalOpenAI, path: str) -> None:
    stream: Any = client.post(
        path, cast_to=object, body={**BODIES[path], "stream": True}, stream=True, stream_cls=openai.Stream[object]
    )
    assert list(stream)


def test_the_sdk_s_own_methods_that_may_leave_it_out_do(client: LocalOpenAI) -> None:
    made = client.responses.create(input="Hi")
    assert (made.output_text, made.model) == ("Hello", "scripted")
    assert client.responses.parse(input="Hi").output_text == "Hello"
    assert [event.type for event in client.responses.create(input="Hi", stream=True)][-1] == "response.completed"
    assert client.responses.with_raw_response.create(input="Hi").parse().model == "scripted"
    assert client.responses.input_tokens.count(input="Hi").input_tokens > 0
    background = client.responses.create(input="Hi", background=True)
    assert [event.type for event in client.responses.retrieve(background.id, stream=True)][-1] == "response.completed"
    assert rerank(client, "Hi", ["Hi"]).model == "scripted"


def test_a_name_in_extra_body_is_as_one_beside_it(client: LocalOpenAI) -> None:
    for name in ("gpt-4o", None):
        made = client.responses.create(input="Hi", extra_body={"model": name})
        assert made.model == "scripted"


def test_a_line_of_a_batch_may_leave_it_out(engine: ScriptedEngine) -> None:
    lines = [{"custom_id": path, "method": "POST", "url": "/v1/responses", "body": {"input": "Hi"}} for path in "ab"]
    with LocalOpenAI(engine=engine) as client:
        file = client.files.create(file=("in", "\n".join(map(json.dumps, lines)).encode()), purpose="batch")
        batch = client.batches.create(completion_window="24h", endpoint="/v1/responses", input_file_id=file.id)
        assert eventually(lambda: client.batches.retrieve(batch.id).status == "completed")
        counts = client.batches.retrieve(batch.id).request_counts
        assert counts is not None and counts.completed == 2


def test_a_script_sees_requests_without_it() -> None:
    with scripted("One", "Two") as client:
        client.when(model="gpt-4o").reply("Named").always()
        assert client.responses.create(input="Hi").output_text == "One"
        assert client.responses.create(input="Hi", model="gpt-4o").output_text == "Named"
        client.post("/embeddings", cast_to=object, body={**BODIES["/embeddings"], "model": None})
        assert [call.model for call in client.calls] == ["", "gpt-4o", ""]
        assert client.post("/chat/completions", cast_to=object, body=BODIES["/chat/completions"]) is not None


@each_path
@each_absence
def test_with_several_models_it_has_to_be_there(path: str, model: dict[str, str | None]) -> None:
    with (
        LocalOpenAI(models={"first": None, "second": None}, keep_alive=0) as client,
        refused("model", None, "you must provide a model parameter: this client serves 'first', 'second'"),
    ):
        client.post(path, cast_to=object, body={**BODIES[path], **model})


@each_path
@each_absence
def test_the_only_one_of_models_serves_without_it(path: str, model: dict[str, str | None]) -> None:
    with LocalOpenAI(models={"only": None}) as client:
        assert client.post(path, cast_to=object, body={**BODIES[path], **model}) is not None


def test_the_only_one_of_models_serves_no_other_name() -> None:
    with LocalOpenAI(models={"only": None}) as client:
        assert client.responses.create(input="Hi", max_output_tokens=16).status in ("completed", "incomplete")
        with pytest.raises(openai.NotFoundError, match="serves 'only'"):
            client.responses.create(input="Hi", model="other")


def test_a_model_that_is_given_has_to_be_a_string(client: LocalOpenAI) -> None:
    with refused("model", "invalid_type", "a string"):
        client.post("/responses", cast_to=object, body={"input": "Hi", "model": 3})
