"""Clients of models that other programs have put on this machine."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.models import hub
from localai_shim.options import Search, search_options
from localai_shim.types import ModelLoadError
from tests import inside
from tests.models.local.stores import Stores, stores
from tests.tiny import tiny

__all__ = ["stores"]
ASK: dict[str, Any] = {
    "model": "any",
    "messages": [{"role": "user", "content": "Hello there"}],
    "max_tokens": 8,
    "temperature": 0,
}


def said(model: Any, **options: Any) -> tuple[str, str]:
    """Name and text of an answer."""
    with LocalOpenAI(model, keep_alive=0, progress=False, **options) as client:
        answer = client.chat.completions.create(**ASK)
    return answer.model, str(answer.choices[0].message.content)


def prompt_of(client: LocalOpenAI, **fields: Any) -> str:
    """The prompt that a chat completion runs."""
    asked = {**ASK, "extra_body": {"return_token_ids": True}, **fields}
    answer = client.chat.completions.create(**asked)
    served = inside.runtime(client).served(inside.engine(client))
    tokens: list[int] = answer.to_dict()["prompt_token_ids"]  # type: ignore[assignment]
    return served.tokenizer.decode(tokens)


# -- each program -----------------------------------------------------------------------------------------------------


def test_a_model_of_each_program_answers_as_its_original(stores: Stores) -> None:
    _, expected = said(tiny("qwen3"))
    stores.folder(stores.lm_studio / "publisher" / "one")
    model = stores.model(stores.lm_studio / "publisher" / "two-GGUF" / "two-F32.gguf")
    stores.cached("o/three", {path.name: path for path in tiny("qwen3").iterdir()})
    stores.cached("o/four-GGUF", {"four-F32.gguf": model})
    stores.pulled("tiny:f32", model)
    for name, called in (
        ("publisher/one", "publisher/one"),
        ("publisher/two-GGUF", "publisher/two-GGUF:F32"),
        ("o/three", "o/three"),
        ("o/four-GGUF:F32", "o/four-GGUF:F32"),
        ("ollama/tiny:f32", "tiny:f32"),
    ):
        assert said(name) == (called, expected), name
    assert said("o/four-GGUF:F32", revision="main")[1] == expected


@pytest.mark.anyio
async def test_async_clients_and_several_models_take_the_same_names(stores: Stores) -> None:
    stores.folder(stores.lm_studio / "publisher" / "one")
    stores.pulled("tiny", stores.model(stores.home / "tiny.gguf"))
    async with AsyncLocalOpenAI(models={"a": "publisher/one", "b": "tiny:latest"}, keep_alive=0) as client:
        answers = [await client.chat.completions.create(**{**ASK, "model": name}) for name in "ab"]
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content


def test_two_names_of_one_model_share_an_engine(stores: Stores) -> None:
    stores.pulled("tiny", stores.model(stores.home / "tiny.gguf"))
    with LocalOpenAI("tiny", keep_alive=0) as one, LocalOpenAI("ollama/tiny:latest", keep_alive=0) as other:
        assert inside.engine(one) is inside.engine(other)


def test_a_draft_model_is_found_too(stores: Stores) -> None:
    stores.folder(stores.lm_studio / "publisher" / "one")
    stores.folder(stores.lm_studio / "publisher" / "draft")
    _, expected = said("publisher/one")
    assert said("publisher/one", draft_model="publisher/draft")[1] == expected


def test_files_without_an_ending_are_told_apart_by_their_contents(stores: Stores) -> None:
    """Fingerprints and stored prompts depend on it."""
    from localai_shim.models.checkpoint.contents import contents_of, stamps_of

    one, other = stores.model(stores.home / "one"), stores.header(stores.home / "other")
    assert contents_of([one]) != contents_of([other]) and stamps_of([one]) != stamps_of([other])


# -- turning it off, and staying offline ------------------------------------------------------------------------------


def test_the_search_is_turned_off_by_an_option_and_a_variable(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    stores.folder(stores.lm_studio / "publisher" / "one")
    stores.pulled("tiny", stores.model(stores.home / "tiny.gguf"))
    with pytest.raises(FileNotFoundError, match="'tiny:latest'"):
        LocalOpenAI("tiny:latest", local_models=False)
    with (
        LocalOpenAI("publisher/one", local_models=False, keep_alive=0) as client,
        pytest.raises(openai.NotFoundError, match="neither a folder") as caught,
    ):
        client.chat.completions.create(**ASK)
    assert "On this machine" not in str(caught.value)
    monkeypatch.setenv("LOCALAI_SHIM_LOCAL_MODELS", "0")
    with pytest.raises(FileNotFoundError):
        LocalOpenAI("tiny:latest")
    assert said("tiny:latest", local_models=True)[0] == "tiny:latest"


@pytest.mark.parametrize(
    ("value", "given", "expected"),
    [("", {}, True), ("1", {}, True), ("0", {}, False), ("Off", {}, False), ("0", {"local_models": True}, True)],
)
def test_the_variable_is_the_option_s_default(
    value: str, given: Any, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALAI_SHIM_LOCAL_MODELS", value)
    assert search_options(given).local is expected


def test_switches_that_are_neither_true_nor_false_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("local_models", "offline"):
        with pytest.raises(ValueError, match=f"`{name}` must be True, False or None, not 'no'"):
            LocalOpenAI(**{name: "no"})  # type: ignore[arg-type]
    monkeypatch.setenv("LOCALAI_SHIM_LOCAL_MODELS", "perhaps")
    with pytest.raises(ValueError, match="LOCALAI_SHIM_LOCAL_MODELS must be 1 or 0, not 'perhaps'"):
        LocalOpenAI()


@pytest.fixture
def asked(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Requests to the hub, which is there, and has nothing."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    made: list[str] = []

    def info(_: Any, repo_id: str, **__: Any) -> Any:
        made.append(repo_id)
        import httpx2

        response = httpx2.Response(404, request=httpx2.Request("GET", "https://hub.invalid"))
        raise HfHubHTTPError("nothing is there", response=response)

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", info)
    return made


def test_a_whole_copy_in_the_hub_s_cache_is_used_without_asking_the_hub(stores: Stores, asked: list[str]) -> None:
    stores.cached("o/n", {path.name: path for path in tiny("qwen3").iterdir()})
    said("o/n")
    assert asked == []
    said("o/n", local_models=False)  # as before: the hub may have a newer one
    assert asked == ["o/n"]


def test_a_copy_that_may_lack_files_is_completed_from_the_hub(stores: Stores, asked: list[str]) -> None:
    names = [path for path in tiny("qwen3").iterdir() if path.suffix != ".jinja"]
    stores.cached("o/n", {path.name: path for path in names})
    assert hub.is_whole("o/n", None) is False
    assert hub.fetch("o/n", False) is not None and asked == ["o/n"]


def test_a_copy_that_the_hub_s_list_says_is_incomplete_is_completed_from_the_hub(
    stores: Stores, asked: list[str]
) -> None:
    from huggingface_hub import _tree_cache

    snapshot = stores.cached("o/n", {path.name: path for path in tiny("qwen3").iterdir()})
    entries = {name: _tree_cache.TreeCacheEntry(size=1, blob_id="0") for name in ("config.json", "more.json")}
    _tree_cache.write_tree_cache(str(snapshot.parents[1]), snapshot.name, entries)
    with pytest.raises(ModelLoadError, match="downloaded in part only"):
        hub.fetch("o/n", False)
    assert asked == ["o/n"]


def test_offline_never_asks_the_hub(stores: Stores, asked: list[str]) -> None:
    stores.cached("o/n", {path.name: path for path in tiny("qwen3").iterdir()})
    said("o/n", offline=True)
    said("o/n", offline=True, local_models=False)
    with (
        LocalOpenAI("o/absent", offline=True, revision="x", keep_alive=0) as client,
        pytest.raises(
            openai.NotFoundError, match=r"not on this machine, and with `offline`.*`hf download o/absent --revision x`"
        ),
    ):
        client.chat.completions.create(**ASK)
    with (
        LocalOpenAI("o/n", adapters={"a": "o/adapter"}, offline=True, keep_alive=0) as client,
        pytest.raises(openai.OpenAIError, match="not on this machine"),
    ):
        client.chat.completions.create(**{**ASK, "model": "a"})
    with (
        LocalOpenAI("o/n", draft_model="o/absent", offline=True, keep_alive=0) as client,
        pytest.raises(openai.OpenAIError, match=r"draft_model: .*not on this machine"),
    ):
        client.chat.completions.create(**ASK)
    assert asked == []


def test_a_running_engine_takes_none_of_these_options(stores: Stores) -> None:
    with LocalOpenAI(keep_alive=0) as client:
        for name in ("offline", "local_models"):
            with pytest.raises(ValueError, match=f"`engine` runs already: `{name}` would have no effect"):
                LocalOpenAI(engine=inside.engine(client), **{name: True})


# -- errors -----------------------------------------------------------------------------------------------------------


def test_near_misses_are_named(stores: Stores) -> None:
    stores.folder(stores.lm_studio / "publisher" / "Qwen3-8B-4bit")
    stores.pulled("qwen3:8b", stores.header(stores.home / "a"))
    with pytest.raises(FileNotFoundError, match=r"On this machine there is: .*'qwen3:8b'"):
        LocalOpenAI("qwen3:4b")
    with (
        LocalOpenAI("publisher/Qwen3-8B-8bit", keep_alive=0) as client,
        pytest.raises(openai.NotFoundError, match=r"On this machine there is: 'publisher/Qwen3-8B-4bit'"),
    ):
        client.chat.completions.create(**ASK)


def test_several_files_of_a_name_are_an_error_of_the_client(stores: Stores) -> None:
    for kind in ("Q4_0", "Q8_0"):
        stores.header(stores.lm_studio / "p" / "x-GGUF" / f"x-{kind}.gguf")
    with pytest.raises(FileNotFoundError, match=r"may be any of 'p/x-GGUF:Q4_0', 'p/x-GGUF:Q8_0'"):
        LocalOpenAI("p/x-GGUF")


def test_a_file_that_cannot_be_read_is_said_by_the_first_request(stores: Stores) -> None:
    stores.pulled("x", stores.header(stores.home / "a", "unheard-of"))
    with (
        LocalOpenAI("x", keep_alive=0) as client,
        pytest.raises(openai.InternalServerError, match="of the architecture 'unheard-of'"),
    ):
        client.chat.completions.create(**ASK)


def test_a_path_to_a_blob_is_a_model(stores: Stores) -> None:
    stores.pulled("tiny", stores.model(stores.home / "tiny.gguf"), system="Unused.")
    [blob] = [path for path in (stores.ollama / "blobs").iterdir() if path.stat().st_size > 1000]
    name, text = said(blob)
    assert (name, text) == (blob.name, said(tiny("qwen3"))[1])


# -- Ollama's defaults ------------------------------------------------------------------------------------------------


@pytest.fixture
def model(stores: Stores) -> Path:
    return stores.model(stores.home / "tiny.gguf")


def test_a_system_prompt_counts_where_a_conversation_begins_with_none(stores: Stores, model: Path) -> None:
    stores.pulled("tiny", model, system="You are terse.")
    with LocalOpenAI("tiny", keep_alive=0) as client:
        assert "You are terse." in prompt_of(client)
        own = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
        prompt = prompt_of(client, messages=own)
        assert "Be kind." in prompt and "terse" not in prompt
        own[0]["role"] = "developer"
        assert "terse" not in prompt_of(client, messages=own)
        own[0]["content"] = ""
        assert "terse" not in prompt_of(client, messages=own)


def test_a_system_prompt_counts_in_responses_without_instructions(stores: Stores, model: Path) -> None:
    stores.pulled("tiny", model, system="You are terse.")
    stores.pulled("plain", model)

    def tokens(name: str, **fields: Any) -> int:
        with LocalOpenAI(name, keep_alive=0) as client:
            made = client.responses.create(model="any", input="Hello", max_output_tokens=16, **fields)
            assert made.usage is not None and made.instructions == fields.get("instructions")
            return made.usage.input_tokens

    assert tokens("tiny") == tokens("plain", instructions="You are terse.") > tokens("plain")
    assert tokens("tiny", instructions="Be kind.") == tokens("plain", instructions="Be kind.")


def test_parameters_are_defaults_and_a_request_s_own_win(stores: Stores, model: Path) -> None:
    given = {"temperature": 0, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "repeat_penalty": 1.2, "num_predict": 5}
    more = {"presence_penalty": 0.5, "frequency_penalty": 1, "seed": 7}
    stores.pulled("tiny", model, params={**given, **more})
    asked = {"model": "any", "messages": ASK["messages"]}
    with LocalOpenAI("tiny", keep_alive=0) as client:
        from localai_shim.endpoints.fields import Fields
        from localai_shim.endpoints.request_fields import read_generation, read_own

        served = inside.runtime(client).served(inside.engine(client))

        def generation(**own: Any) -> Any:
            fields = Fields(own)
            return read_own(fields, read_generation(fields, served, served.max_new_tokens, top_logprobs=None), served)

        made = generation()
        sampling = made.sampling
        assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (0, 3, 0.5, 0.1)
        assert (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) == (1.2, 0.5, 1)
        assert (made.seed, made.limits.max_tokens) == (7, 5) and generation(user="me").seed == 7
        own = generation(temperature=1, top_k=0, presence_penalty=0, seed=1, frequency_penalty=-1)
        assert (own.sampling.temperature, own.sampling.top_k, own.sampling.presence_penalty) == (1, 0, 0)
        assert (own.seed, own.sampling.frequency_penalty) == (1, -1)
        answer = client.chat.completions.create(**asked)
        assert answer.usage is not None and answer.usage.completion_tokens == 5
        longer = client.chat.completions.create(**asked, max_tokens=9)
        assert longer.usage is not None and longer.usage.completion_tokens == 9


def test_stop_strings_are_defaults(stores: Stores, model: Path) -> None:
    stores.pulled("plain", model)
    text = said("plain")[1]
    stop = text[2:4]
    stores.pulled("tiny", model, params={"stop": [stop, "<|im_end|>", "<|im_start|>"]})
    with LocalOpenAI("tiny", keep_alive=0) as client:
        answer = client.chat.completions.create(**ASK)
        assert answer.choices[0].finish_reason == "stop"
        assert answer.choices[0].message.content == text.partition(stop)[0]
        assert client.chat.completions.create(**ASK, stop=["\u2603"]).choices[0].message.content == text
        assert client.chat.completions.create(**ASK, stop=[]).choices[0].message.content == text
        defaults = inside.engine(client).model.request_defaults
        assert defaults["stop"] == [stop] and len(defaults["stop_token_ids"]) == 2


def test_num_ctx_is_the_context_unless_the_client_has_one(stores: Stores, model: Path) -> None:
    stores.pulled("small", model, params={"num_ctx": 64})
    stores.pulled("large", model, params={"num_ctx": 10**6})
    stores.pulled("plain", model)

    def length(name: str, **options: Any) -> int | None:
        with LocalOpenAI(name, keep_alive=0, **options) as client:
            return inside.engine(client).model.context_length

    assert length("small") == 64 and length("small", context_length=100) == 100
    assert length("large") == length("plain") != 10**6


def test_layers_that_are_damaged_or_unknown_are_named_in_the_log(
    stores: Stores, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "localai_shim")
    stores.pulled("broken", model, params="{")
    assert said("broken")[1]
    assert "'broken:latest': Ollama's layer 'params' cannot be read, and has no effect" in caplog.text
    caplog.clear()
    caplog.set_level(logging.INFO, "localai_shim")
    odd = {"temperature": "hot", "stop": 7, "mirostat": 2, "num_gpu": 99, "presence_penalty": 9, "num_predict": -1}
    stores.pulled("odd", model, params=odd, messages=[{"role": "user", "content": "x"}], projector="x")
    assert said("odd")[1]
    for what in ("temperature is 'hot'", "stop is 7", "no effect here: mirostat", "presence_penalty is 9", "(MESSAGE)"):
        assert what in caplog.text, what
    assert "is loaded as a text model: the vision encoder in 'sha256-" in caplog.text and "num_gpu" not in caplog.text


def test_a_template_that_only_ollama_reads_is_named_in_the_log(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.models.gguf.writing import write

    bare = write(tiny("qwen3"), stores.home / "bare", rest={"tokenizer.chat_template": None})
    stores.pulled("bare", bare, template="{{ .Prompt }}")
    LocalOpenAI("bare", keep_alive=0).close()
    assert "'bare:latest' has a chat template in Ollama's own form only" in caplog.text


def test_changed_defaults_are_another_engine(stores: Stores, model: Path) -> None:
    stores.pulled("tiny", model, system="One.")
    with LocalOpenAI("tiny", keep_alive=0) as first:
        assert "One." in prompt_of(first)
        stores.pulled("tiny", model, system="Two.")
        with LocalOpenAI("tiny", keep_alive=0) as second:
            assert "Two." in prompt_of(second) and "One." in prompt_of(first)


def test_sources_compare_without_the_places_that_were_searched() -> None:
    from localai_shim.runtime.sources import ModelSource

    assert ModelSource("a/b", search=Search(offline=True)) == ModelSource("a/b")
    assert hash(ModelSource("a/b", defaults={"stop": ["x"]})) == hash(ModelSource("a/b"))
    assert ModelSource("a/b", defaults={"stop": ["x"]}) != ModelSource("a/b")
