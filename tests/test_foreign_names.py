"""Names that people bring from elsewhere, of models and of arguments: the error says what to use here."""

from __future__ import annotations

import os
from typing import Any

import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, http_client
from localai_shim.client.foreign_arguments import _HINTS, _OURS
from localai_shim.options import MODEL, OWN
from localai_shim.runtime import foreign_names
from localai_shim.runtime.sources import resolve_path
from tests.tiny import tiny

ELSEWHERE = [
    ("gpt-4o", "OpenAI"),
    ("openai/gpt-4o-mini", "OpenAI"),
    ("gpt-5.1-codex", "OpenAI"),
    ("o3", "OpenAI"),
    ("o4-mini", "OpenAI"),
    ("text-embedding-3-small", "OpenAI"),
    ("claude-sonnet-4-5", "Anthropic"),
    ("gemini-2.5-flash", "Google"),
]
OLLAMA = [
    ("llama3.2", "Llama-3.2-3B-Instruct-4bit"),
    ("llama3.2:latest", "Llama-3.2-3B-Instruct-4bit"),
    ("qwen3:8b", "Qwen3-8B-4bit"),
]


@pytest.fixture
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub would be asked through this."""
    monkeypatch.setattr("mlx_lm.utils.snapshot_download", None)


@pytest.mark.usefixtures("_no_network")
@pytest.mark.parametrize(("name", "service"), ELSEWHERE)
def test_a_model_of_a_service_is_refused_when_the_client_is_made(name: str, service: str) -> None:
    for make in (LocalOpenAI, AsyncLocalOpenAI):
        with pytest.raises(FileNotFoundError) as caught:
            make(name)
        assert str(caught.value) == (
            f"'{name}' is a model of {service} and is not available locally. Pass a Hugging Face ID such as "
            "'mlx-community/Qwen3-8B-4bit', a folder, or nothing for the small bundled model."
        )
    with pytest.raises(FileNotFoundError, match=f"a model of {service}"):
        LocalOpenAI(draft_model=name)
    with pytest.raises(FileNotFoundError, match=f"a model of {service}"):
        LocalOpenAI(models={name: name})


@pytest.mark.usefixtures("_no_network")
@pytest.mark.parametrize(("name", "model"), OLLAMA)
def test_a_name_of_ollama_s_gets_the_model_to_use(name: str, model: str) -> None:
    with pytest.raises(FileNotFoundError, match=f"'{name}' is Ollama's name for a model.*'mlx-community/{model}'"):
        LocalOpenAI(name)


@pytest.mark.usefixtures("_no_network")
def test_names_with_a_colon_and_addresses_are_refused() -> None:
    with pytest.raises(FileNotFoundError, match=r"'nomic-embed-text:v1.5' is not a Hugging Face ID.*no colon"):
        LocalOpenAI("nomic-embed-text:v1.5")
    for address in ("hf.co/some/model:Q4_K_M", "https://huggingface.co/some/model/tree/main"):
        with pytest.raises(FileNotFoundError, match="Pass the Hugging Face ID alone: 'some/model'"):
            LocalOpenAI(address)
    with pytest.raises(FileNotFoundError, match="'http://localhost:11434/v1' is an address, and this client runs"):
        LocalOpenAI("http://localhost:11434/v1")
    with pytest.raises(FileNotFoundError, match=r"There is no file '/nowhere/model\.gguf'"):
        LocalOpenAI("/nowhere/model.gguf")


@pytest.mark.parametrize(
    "name",
    [
        "gpt2",
        "openai/gpt-oss-20b",
        "gpt-oss-20b",
        "EleutherAI/gpt-j-6b",
        "openai/whisper-large-v3",
        "google/gemma-3-4b-it",
    ],
)
def test_names_that_the_hub_knows_are_left_to_it(name: str) -> None:
    assert resolve_path(name) == name


def test_a_folder_may_have_any_name(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("gpt-4o", "qwen3:8b"):
        (tmp_path / name).symlink_to(tiny("qwen3"))
        assert resolve_path(name) == os.path.realpath(tiny("qwen3"))
    with pytest.raises(Exception, match=r"There is no folder './gpt-4o:1'"):
        resolve_path("./gpt-4o:1")


def test_ollama_s_names_are_written_as_ollama_writes_them() -> None:
    for name, model in foreign_names._OLLAMA.items():
        assert name == name.lower() and ":latest" not in name and model.endswith(("-4bit", "-Q8"))


# -- arguments ------------------------------------------------------------------------------------------------------

ARGUMENTS = [
    ("n_ctx", "Use 'context_length' here."),
    ("num_ctx", "Use 'context_length' here."),
    ("max_model_len", "Use 'context_length' here."),
    ("gpu_memory_utilization", "Use 'memory_limit' here, which is in bytes."),
    ("max_num_seqs", "Use 'max_rows' here."),
    ("tensor_parallel_size", "Use 'tensor_parallel' here."),
    ("n_gpu_layers", "Leave it out: all of the model runs on the GPU, or on the CPU without one."),
    ("temperature", "It belongs to requests: client.chat.completions.create(..., temperature=...)."),
    ("max_output_tokens", "It belongs to requests: client.responses.create(..., max_output_tokens=...)."),
    ("top_k", "It belongs to requests: client.chat.completions.create(..., extra_body={'top_k': ...})."),
]


@pytest.mark.parametrize(("name", "hint"), ARGUMENTS)
def test_an_argument_that_others_have_gets_the_one_to_use(name: str, hint: str) -> None:
    makes: list[Any] = [LocalOpenAI, AsyncLocalOpenAI, http_client]
    for make in makes:
        with pytest.raises(TypeError) as caught:
            make(**{name: 1})
        assert str(caught.value) == f"{make.__name__}() got an unexpected keyword argument '{name}'. {hint}"


def test_hints_name_arguments_that_exist() -> None:
    assert MODEL and _OURS.keys() <= {"model", *OWN}
    assert not _HINTS.keys() & {"model", *OWN}
