"""The clients as drop-ins: construction, copies, closing, names, and the world outside."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.runtime import engines as runtime
from localai_shim.sdk import private as sdk
from tests import inside
from tests.engine.harness import eventually
from tests.tiny import tiny

ASK: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}


@pytest.fixture(scope="module")
def path() -> str:
    return str(tiny("qwen3"))


@pytest.fixture
def client(path: str) -> Iterator[LocalOpenAI]:
    with LocalOpenAI(path) as client:
        yield client


def test_the_clients_are_the_sdk_s_clients(path: str) -> None:
    assert isinstance(LocalOpenAI(path), openai.OpenAI)
    assert isinstance(AsyncLocalOpenAI(path), openai.AsyncOpenAI)


def test_no_environment_variable_changes_where_requests_go(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://example.com/v1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    client = LocalOpenAI(path)
    assert str(client.base_url) == "http://localhost:0/v1/"
    assert client.api_key == ""
    assert client.chat.completions.create(**ASK).choices[0].finish_reason in ("stop", "length")


@pytest.mark.parametrize("kind", [LocalOpenAI, AsyncLocalOpenAI])
def test_there_is_no_key_that_anybody_could_sign_in_with(
    kind: type[LocalOpenAI | AsyncLocalOpenAI], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """openai-agents sends prompts to OpenAI's traces with the key of the client that it is given, unless it is empty.

    The SDK's own is empty, too, until a function has given it.
    """
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    client = kind(path)
    assert client.api_key == client.with_options(timeout=3).api_key == ""
    assert kind(path, api_key="sk-1").with_options(timeout=3).api_key == "sk-1"
    assert client.with_options(api_key="sk-2").api_key == "sk-2"


def test_raw_responses_show_their_whole_request_without_a_key(client: LocalOpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(**ASK)
    assert "authorization" not in raw.http_request.headers
    assert json.loads(raw.http_request.content)["messages"] == ASK["messages"]


def test_what_holds_the_http_client_cannot_reach_the_network(client: LocalOpenAI) -> None:
    with pytest.raises(sdk.httpx.ConnectError, match="never uses the network"):
        client._client.get("http://localhost/")

    async def main() -> None:
        async with AsyncLocalOpenAI(str(tiny("qwen3"))) as asynchronous:
            with pytest.raises(sdk.httpx.ConnectError, match="never uses the network"):
                await asynchronous._client.get("http://localhost/")

    asyncio.run(main())


def test_websockets_lead_nowhere(client: LocalOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="local"), client.realtime.connect(model="gpt-realtime"):
        pass


def test_any_model_name_is_served_by_the_loaded_model(client: LocalOpenAI, path: str) -> None:
    answer = client.chat.completions.create(**ASK)
    assert answer.model == Path(path).name
    assert [model.id for model in client.models.list()] == [Path(path).name]


def test_several_models_by_name_load_on_first_use_and_others_are_not_found(path: str) -> None:
    other = str(tiny("llama"))
    with LocalOpenAI(models={"gpt-4o": path, "gpt-4o-mini": other}) as client:
        assert not inside.runtime(client)._engines
        assert client.chat.completions.create(**ASK).model == Path(path).name
        assert len(inside.runtime(client)._engines) == 1
        assert client.chat.completions.create(**{**ASK, "model": "gpt-4o-mini"}).model == Path(other).name
        assert [model.id for model in client.models.list()] == ["gpt-4o", "gpt-4o-mini"]
        with pytest.raises(openai.NotFoundError, match="'gpt-4o', 'gpt-4o-mini'") as caught:
            client.chat.completions.create(**{**ASK, "model": "gpt-5"})
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_copies_share_the_engine_and_closing_one_closes_all_as_with_the_sdk(path: str) -> None:
    client = LocalOpenAI(path)
    copies = [
        client.copy(),
        client.with_options(timeout=1, max_retries=7),
        client.with_options(http_client=client._client),
        client.with_options(http_client=sdk.httpx.Client(transport=sdk._Refuse())),
        copy.copy(client),
    ]
    for other in copies:
        assert type(other) is LocalOpenAI
        assert inside.runtime(other) is inside.runtime(client)
        assert other.chat._client is other
        assert other.chat.completions.create(**ASK).usage is not None
    assert copies[1].max_retries == 7 and copies[1].timeout == 1
    copies[0].close()
    assert client.is_closed() and copies[4].is_closed()
    with pytest.raises(openai.APIConnectionError, match="closed"):
        client.chat.completions.create(**ASK)


def test_a_subclass_with_a_constructor_of_its_own_can_be_copied(path: str) -> None:
    class Mine(LocalOpenAI):
        def __init__(self, **options: Any) -> None:
            super().__init__(path, **options)

    mine = Mine(timeout=9)
    assert mine.with_options(max_retries=1).timeout == 9
    assert inside.runtime(mine.with_options(max_retries=1)) is inside.runtime(mine)


def test_resources_are_the_same_object_each_time(client: LocalOpenAI) -> None:
    assert client.chat.completions is client.chat.completions


def test_clients_of_one_model_share_an_engine_that_outlives_them_for_keep_alive(path: str) -> None:
    first, second = LocalOpenAI(path, max_rows=9), AsyncLocalOpenAI(path, max_rows=9)
    engine = inside.engine(first)
    assert engine is inside.engine(second)
    assert engine is not inside.engine(LocalOpenAI(path, max_rows=8))
    first.close()
    asyncio.run(second.close())
    assert engine is not None and not engine.is_closed
    third = LocalOpenAI(path, max_rows=9, keep_alive=0)
    assert inside.engine(third) is engine
    third.close()
    assert eventually(lambda: engine.is_closed)


def test_a_client_that_is_dropped_lets_its_engine_go(path: str) -> None:
    client = LocalOpenAI(path, max_rows=7, keep_alive=0)
    engine = inside.engine(client)
    client.chat.completions.create(**ASK)
    del client
    gc.collect()
    assert engine is not None and eventually(lambda: engine.is_closed)
    assert all(source.options.get("max_rows") != 7 for source in runtime._shared)


def test_an_engine_can_be_handed_over_and_stays_the_caller_s(path: str) -> None:
    with LocalOpenAI(path, max_rows=5) as owner:
        engine = inside.engine(owner)
        with LocalOpenAI(engine=engine) as guest:
            assert guest.chat.completions.create(**ASK).usage is not None
        assert owner.chat.completions.create(**ASK).usage is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "a", "models": {"b": "c"}}, "one of"),
        ({"models": {}}, "empty"),
        ({"max_rows": 0}, "max_rows"),
        ({"context_length": -1}, "context_length"),
        ({"max_stall": 0}, "max_stall"),
    ],
)
def test_contradicting_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LocalOpenAI(**options)


@pytest.mark.parametrize("make", [LocalOpenAI, AsyncLocalOpenAI])
def test_a_path_that_is_not_there_is_reported_at_once(make: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no folder"):
        make(str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        make(tmp_path)


def test_a_broken_checkpoint_is_reported_by_each_request(path: str, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"nothing of the kind")
    client = LocalOpenAI(tmp_path / "broken")
    for _ in range(2):
        with pytest.raises(openai.InternalServerError, match="could not be loaded"):
            client.chat.completions.create(**ASK)


def test_a_hub_id_that_cannot_be_fetched_is_a_missing_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    client = LocalOpenAI("nobody/nothing")
    with pytest.raises(openai.NotFoundError, match="nobody/nothing") as caught:
        client.chat.completions.create(**ASK)
    assert caught.value.code == "model_not_found"


def test_the_fingerprint_changes_with_the_model_and_its_options(path: str) -> None:
    prints = set()
    for client in (LocalOpenAI(path), LocalOpenAI(path, context_length=77), LocalOpenAI(tiny("llama"))):
        answers = [client.chat.completions.create(**ASK) for _ in range(2)]
        assert answers[0].system_fingerprint == answers[1].system_fingerprint
        prints.add(answers[0].system_fingerprint)
    assert len(prints) == 3 and all(p and p.startswith("fp_") for p in prints)


def test_the_fingerprint_changes_with_the_versions_of_what_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    from localai_shim.models import loading, text
    from localai_shim.models.checkpoint import files

    load = partial(loading.load_model, str(tiny("qwen3")), text.LoadOptions())
    before = load().fingerprint
    assert load().fingerprint == before
    monkeypatch.setattr(files, "version", lambda name: "99" if name == "mlx" else "1")
    assert load().fingerprint != before


def test_timeouts_are_the_sdk_s(client: LocalOpenAI) -> None:
    endless = {**ASK, "max_tokens": 900, "extra_body": {"ignore_eos": True}}
    with pytest.raises(openai.APITimeoutError) as caught:
        client.with_options(timeout=0.01).chat.completions.create(**endless)
    assert caught.value.request.url.path == "/v1/chat/completions"
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(**endless, timeout=openai.Timeout(10, read=0.01))
    assert client.chat.completions.create(**ASK, timeout=None).usage is not None


@pytest.mark.skipif(not os.environ.get("HOME"), reason="needs a home folder")
def test_a_path_may_start_at_the_home_folder(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(Path(path).parent))
    assert LocalOpenAI(f"~/{Path(path).name}").chat.completions.create(**ASK).model == Path(path).name
