"""models.list, models.retrieve, names of models, and what this client does not have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import Model

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.models.checkpoint import files
from tests.conftest import MESSAGES, revalidate
from tests.tiny import make_model, tiny

CREATE: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 1, "temperature": 0}


def fingerprint(path: Path, **options: Any) -> str | None:
    """What a client of its own says."""
    with LocalOpenAI(path, keep_alive=0, **options) as client:
        return client.chat.completions.create(model="m", **CREATE).system_fingerprint


def test_the_list_holds_the_one_model(client: LocalOpenAI) -> None:
    page = client.models.list()
    [model] = page.data
    revalidate(model)
    assert (page.object, model.id, model.object, model.owned_by) == ("list", "tiny-qwen3", "model", "localai_shim")
    assert isinstance(model, Model) and model.created > 1_600_000_000
    assert [listed.id for listed in page] == ["tiny-qwen3"]


def test_a_listed_model_can_be_retrieved(client: LocalOpenAI) -> None:
    client.chat.completions.create(model="m", **CREATE)  # a model that is loaded tells more than its files do
    [listed] = client.models.list().data
    retrieved = client.models.retrieve(listed.id)
    revalidate(retrieved)
    assert retrieved == listed


@pytest.mark.anyio
async def test_the_async_client_lists_and_retrieves_alike(async_client: AsyncLocalOpenAI, client: LocalOpenAI) -> None:
    client.chat.completions.create(model="m", **CREATE)
    listed = [model async for model in async_client.models.list()]
    assert listed == client.models.list().data
    assert await async_client.models.retrieve("tiny-qwen3") == listed[0]


@pytest.mark.parametrize("name", ["plain", "org/name", "with space", "50%", "what?", "ünï", "a+b", "a#b", "v1:latest"])
def test_a_model_is_found_whatever_characters_its_name_has(model_path: Path, name: str) -> None:
    with LocalOpenAI(models={name: model_path, "other": model_path}) as client:
        assert [model.id for model in client.models.list()] == [name, "other"]
        assert client.models.retrieve(name).id == name


def test_an_unknown_model_is_not_found(model_path: Path) -> None:
    with LocalOpenAI(models={"small": model_path}) as client:
        calls: list[Callable[[], Any]] = [
            lambda: client.models.retrieve("gpt-4o"),
            lambda: client.chat.completions.create(model="gpt-4o", **CREATE),
            lambda: client.chat.completions.create(model="gpt-4o", stream=True, **CREATE),
            lambda: client.completions.create(model="gpt-4o", prompt="Hello"),
        ]
        for call in calls:
            with pytest.raises(openai.NotFoundError) as caught:
                call()
            error = caught.value
            assert (error.status_code, error.code, error.param) == (404, "model_not_found", "model")
            assert isinstance(error.body, dict) and error.body["type"] == "invalid_request_error"
            assert "'gpt-4o' does not exist" in error.body["message"] and "'small'" in error.body["message"]


def test_each_name_is_served_by_its_own_model(model_path: Path) -> None:
    with LocalOpenAI(models={"a": model_path, "b": tiny("llama")}) as client:
        made = {name: client.chat.completions.create(model=name, **CREATE) for name in ("a", "b")}
    assert (made["a"].model, made["b"].model) == ("tiny-qwen3", "tiny-llama")
    assert made["a"].system_fingerprint != made["b"].system_fingerprint


def test_without_names_one_model_serves_every_name(client: LocalOpenAI) -> None:
    made = [client.chat.completions.create(model=name, **CREATE) for name in ("gpt-4o", "o3", "tiny-qwen3")]
    assert {completion.model for completion in made} == {"tiny-qwen3"}
    assert made[0].choices == made[1].choices == made[2].choices


def test_the_fingerprint_changes_with_model_options_and_versions(
    model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fingerprint(model_path)
    assert fingerprint(model_path) == first
    others = [fingerprint(make_model(tmp_path / "m", "qwen3", seed=1)), fingerprint(model_path, context_length=99)]
    monkeypatch.setattr(files, "version", lambda name: "9.9.9")
    others.append(fingerprint(model_path, context_length=1000))
    monkeypatch.undo()
    others.append(fingerprint(model_path, context_length=1000))
    assert len({first, *others}) == 5


def test_the_builtin_checkpoint_has_a_name(builtin: LocalOpenAI) -> None:
    assert builtin.chat.completions.create(model="any", **CREATE).model == builtin.models.list().data[0].id
    assert builtin.models.list().data[0].id == "localai-shim-builtin"


def test_the_builtin_checkpoint_that_sees_has_one_alone_and_among_others() -> None:
    with LocalOpenAI("builtin:vision") as alone, LocalOpenAI(models={"seer": "builtin:vision", "m": None}) as several:
        assert [model.id for model in alone.models.list()] == ["localai-shim-builtin-vision"]
        assert [model.id for model in several.models.list()] == ["seer", "m"]
        assert several.chat.completions.create(model="seer", **CREATE).model == "localai-shim-builtin-vision"


@pytest.mark.parametrize("name", ["builtin:sound", "builtin"])
def test_a_builtin_checkpoint_that_is_none_says_which_there_is(name: str) -> None:
    with pytest.raises(FileNotFoundError, match=f"'{name}' is not in the package: pass 'builtin:vision'"):
        LocalOpenAI(name)


ABSENT: dict[str, Callable[[LocalOpenAI], Any]] = {
    "images": lambda c: c.images.generate(prompt="a cat"),
    "moderations": lambda c: c.moderations.create(input="x"),
    "fine_tuning": lambda c: c.fine_tuning.jobs.list(),
    "uploads": lambda c: c.uploads.cancel("upload_1"),
    "models.delete": lambda c: c.models.delete("tiny-qwen3"),
    "assistants": lambda c: c.post("/assistants", cast_to=object, body={}),
}


@pytest.mark.parametrize("name", ABSENT)
def test_an_endpoint_that_is_not_here_says_what_is(client: LocalOpenAI, name: str) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        ABSENT[name](client)
    assert isinstance(caught.value.body, dict)
    message = caught.value.body["message"]
    for fragment in ("does not exist", "this client is local", "chat.completions, responses"):
        assert fragment in message
    assert caught.value.request_id is not None


@pytest.mark.anyio
async def test_the_async_client_says_so_too(async_client: AsyncLocalOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="this client is local"):
        await async_client.images.generate(prompt="a cat")
    with pytest.raises(openai.NotFoundError, match="this client is local"):
        await async_client.moderations.create(input="x")


def test_a_closed_client_lists_nothing(model_path: Path) -> None:
    client = LocalOpenAI(model_path)
    client.close()
    with pytest.raises(openai.APIConnectionError, match="closed"):
        client.models.list()
