"""A tokenizer whose pattern backtracks for too long: its library panics, and only the request fails that made it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic_core import SchemaError, SchemaValidator, core_schema

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.output.detokenizer import LibraryDetokenizer
from localai_shim.threads.panics import PanicError, is_interruption, panics_are_errors
from tests.tiny import tiny

BAD = "x" * 60  # the pattern tries all ways to divide these
PATTERN = r"(x+x+)+y"
ASKS: Any = {"role": "user", "content": "Hi"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model whose tokenizer divides texts by a pattern that backtracks, as some checkpoints' do."""
    folder = tmp_path_factory.mktemp("backtracks") / "model"
    shutil.copytree(tiny("qwen3", max_position_embeddings=200_000), folder)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, tokenizer["pre_tokenizer"]]}
    file.write_text(json.dumps(tokenizer))
    return str(folder)


@pytest.fixture(scope="module")
def client(path: str) -> Any:
    with LocalOpenAI(path) as client:
        yield client


REQUESTS: dict[str, tuple[Callable[[Any], Any], str | None]] = {
    "chat": (lambda c: c.chat.completions.create(model="m", messages=[{"role": "user", "content": BAD}]), "messages"),
    "stream": (
        lambda c: c.chat.completions.create(model="m", messages=[{"role": "user", "content": BAD}], stream=True),
        "messages",
    ),
    "responses": (lambda c: c.responses.create(model="m", input=BAD), "input"),
    "counting": (lambda c: c.responses.input_tokens.count(model="m", input=BAD), "input"),
    "background": (lambda c: c.responses.create(model="m", input=BAD, background=True), "input"),
    "completions": (lambda c: c.completions.create(model="m", prompt=BAD), "prompt"),
    "embeddings": (lambda c: c.embeddings.create(model="m", input=["a", BAD]), "input"),
    "prediction": (
        lambda c: c.chat.completions.create(model="m", messages=[ASKS], prediction={"type": "content", "content": BAD}),
        None,
    ),
    "bad words": (
        lambda c: c.chat.completions.create(model="m", messages=[ASKS], extra_body={"bad_words": [BAD]}),
        None,
    ),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_panic_is_a_400_of_its_own_request(client: LocalOpenAI, kind: str) -> None:
    ask, param = REQUESTS[kind]
    neighbour = client.chat.completions.create(
        model="m", messages=[ASKS], max_tokens=90_000, stream=True, extra_body={"ignore_eos": True}
    )
    with neighbour:
        next(neighbour)
        with pytest.raises(openai.BadRequestError, match="tokenizer of this model cannot read a text") as caught:
            ask(client)
        assert caught.value.param == param
        next(neighbour)
    assert client.chat.completions.create(model="m", messages=[ASKS], max_tokens=2).usage


def test_tasks_get_it_too(path: str) -> None:
    async def main() -> None:
        async with AsyncLocalOpenAI(path) as client:
            good, bad = (
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}], max_tokens=4)
                for text in ("Hi", BAD)
            )
            answer, error = await asyncio.gather(good, bad, return_exceptions=True)
            assert isinstance(error, openai.BadRequestError) and not isinstance(answer, BaseException)

    asyncio.run(main())


def test_a_line_of_a_batch_fails_alone(client: LocalOpenAI, tmp_path: Path) -> None:
    from localai_shim.client.batch_lines import answer_lines

    lines = [
        json.dumps(
            {
                "custom_id": text[0],
                "method": "POST",
                "url": "/v1/completions",
                "body": {"model": "m", "prompt": text, "max_tokens": 2},
            }
        ).encode()
        for text in ("Hi", BAD)
    ]
    answers = {answer["custom_id"]: answer for answer in map(json.loads, map(str, answer_lines(client, lines)))}
    assert answers["H"]["response"]["status_code"] == 200
    assert answers["x"]["response"]["status_code"] == 400


class Ctrl(BaseException):
    pass


Panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError(), Ctrl(), ValueError()])
def test_all_but_a_panic_is_raised_as_it_is(error: BaseException) -> None:
    @panics_are_errors
    def fails() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        fails()
    assert caught.value is error


@pytest.mark.parametrize(
    "read", [lambda each: each.add_token(1), lambda each: each.finalize(), lambda each: each.last_segment]
)
def test_a_panic_while_tokens_become_text_is_an_error_of_that_text(
    read: Callable[[LibraryDetokenizer], object],
) -> None:
    class Panics:
        def __getattribute__(self, name: str) -> Any:
            raise Panic("retry limit")

    detokenizer = LibraryDetokenizer(Panics())  # type: ignore[arg-type]
    with pytest.raises(PanicError, match="retry limit"):
        read(detokenizer)


def interrupted_build(*_: object, **__: object) -> None:
    """Build a validator as pydantic does at the first use of a model, and press Ctrl-C meanwhile."""

    class Pressed:
        def __repr__(self) -> str:
            raise KeyboardInterrupt

    choices = core_schema.literal_schema([Pressed()])
    SchemaValidator(core_schema.model_fields_schema({"role": core_schema.model_field(choices)}))


def test_pydantic_hides_ctrl_c_in_an_error_of_its_own() -> None:
    with pytest.raises(SchemaError) as caught:
        interrupted_build()
    assert is_interruption(caught.value)
    with pytest.raises(SchemaError) as wrong:
        SchemaValidator(core_schema.literal_schema([]))
    assert not is_interruption(wrong.value)


@pytest.mark.parametrize("stream", [False, True])
def test_ctrl_c_while_a_model_of_the_sdk_is_built_ends_the_call(
    client: LocalOpenAI, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    ask: Any = {"model": "m", "messages": [ASKS], "max_tokens": 2, "stream": stream}
    with monkeypatch.context() as patch:
        for model in (ChatCompletion, ChatCompletionChunk):
            patch.setattr(model, "model_validate", interrupted_build)
        with pytest.raises(KeyboardInterrupt):
            list(client.chat.completions.create(**ask))
    assert list(client.chat.completions.create(**ask))
