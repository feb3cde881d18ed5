"""A prompt that has no token is refused, with the field that it came from, and nobody else notices."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine
from localai_shim.vectors import Reranking
from tests.endpoints.batches.batching import finished, line, read, start
from tests.tiny import tiny

CONTENT_ONLY = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
EMPTY: Any = [{"role": "user", "content": ""}]
ANSWER: Any = [{"role": "assistant", "content": "Fine."}]  # of which the template shows nothing
HELLO: Any = [{"role": "user", "content": "Hello"}]
COUNT: Any = {"model": "m", "max_tokens": 60, "temperature": 0}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOpenAI]:
    """One whose model's template prints what users say and nothing else."""
    folder: Path = tmp_path_factory.mktemp("model") / "content-only"
    shutil.copytree(tiny("qwen3"), folder)
    (folder / "chat_template.jinja").write_text(CONTENT_ONLY)
    with LocalOpenAI(folder, keep_alive=0) as made:
        yield made


def refused(call: Any, **body: Any) -> openai.BadRequestError:
    with pytest.raises(openai.BadRequestError) as caught:
        call(model="m", **body)
    assert "zero tokens" in caught.value.message
    return caught.value


@pytest.mark.parametrize("messages", [EMPTY, ANSWER, [*ANSWER, *EMPTY]])
@pytest.mark.parametrize("stream", [False, True])
def test_messages_without_tokens_are_refused(client: LocalOpenAI, messages: Any, stream: bool) -> None:
    error = refused(client.chat.completions.create, messages=messages, stream=stream)
    assert (error.param, error.code) == ("messages", "invalid_value")
    assert "Add a non-empty text message" in error.message


@pytest.mark.parametrize("given", [EMPTY, ANSWER, ""])
@pytest.mark.parametrize("background", [False, True])
def test_an_input_of_a_response_without_tokens_is_refused(client: LocalOpenAI, given: Any, background: bool) -> None:
    error = refused(client.responses.create, input=given, background=background)
    assert error.param == "input"


def test_a_prompt_without_tokens_is_refused(client: LocalOpenAI) -> None:
    assert refused(client.completions.create, prompt=["Hello", ""]).param == "prompt[1]"


def test_a_document_without_tokens_is_refused() -> None:
    with ScriptedEngine() as engine:
        engine.model.settings = {**engine.model.settings, "rerank": Reranking(lambda ranking: [[3, 4], []])}
        body = {"query": "a", "documents": ["b", "c"]}
        with pytest.raises(openai.BadRequestError, match="zero tokens") as caught:
            LocalOpenAI(engine=engine).post("/rerank", cast_to=object, body=body)
    assert caught.value.param == "documents.1"


def test_a_text_to_embed_without_tokens_is_refused() -> None:
    with ScriptedEngine() as engine, pytest.raises(openai.BadRequestError) as caught:
        LocalOpenAI(engine=engine).embeddings.create(model="m", input=["a", ""])
    assert caught.value.param == "input.1"


def test_a_line_of_a_batch_without_tokens_is_refused_and_the_others_are_answered(client: LocalOpenAI) -> None:
    done = finished(client, start(client, [line("bad", messages=EMPTY), line("good", messages=HELLO)]).id)
    assert (done.request_counts.completed, done.request_counts.failed) == (1, 1)
    error = read(client, done.error_file_id)["bad"]["response"]["body"]["error"]
    assert error["param"] == "messages" and "zero tokens" in error["message"]
    assert list(read(client, done.output_file_id)) == ["good"]


def test_streams_and_requests_beside_it_go_on(client: LocalOpenAI) -> None:
    def stream() -> Any:
        return client.chat.completions.create(messages=HELLO, stream=True, **COUNT)

    undisturbed = "".join(chunk.choices[0].delta.content or "" for chunk in stream())
    streams = [stream() for _ in range(4)]
    begun = [next(each).choices[0].delta.content or "" for each in streams]
    refused(client.chat.completions.create, messages=EMPTY)
    answer = client.chat.completions.create(messages=HELLO, **COUNT)
    texts = [
        first + "".join(chunk.choices[0].delta.content or "" for chunk in rest)
        for first, rest in zip(begun, streams, strict=True)
    ]
    assert texts == [undisturbed] * 4 and answer.choices[0].message.content == undisturbed
