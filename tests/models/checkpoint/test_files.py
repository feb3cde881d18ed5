"""Folders that nobody means well with: what is wrong is said, with the file's name, and nothing waits for ever."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.models.checkpoint.files import MAX_TEXT_BYTES, read_json
from localai_shim.models.loading import load_model
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests.embedding_models import tiny_embedder
from tests.tiny import tiny

MESSAGES: list[Any] = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny("qwen3"), tmp_path / "broken"))


def with_fields(folder: Path, file: str, **fields: Any) -> None:
    path = folder / file
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, **fields}))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("make", [pipe, device])
def test_a_file_that_never_ends_is_not_read(folder: Path, file: str, make: Callable[[Path], None]) -> None:
    make(folder / file)
    with pytest.raises(ModelLoadError, match=rf"{file}' is not a regular file"):
        load_model(str(folder), LoadOptions())
    assert read_json(folder / file) == {}


def test_a_file_of_gigabytes_is_not_read(folder: Path) -> None:
    os.truncate(folder / "tokenizer.json", MAX_TEXT_BYTES + 1)
    with pytest.raises(ModelLoadError, match=r"tokenizer.json' is damaged: it has 268,435,457 bytes"):
        load_model(str(folder), LoadOptions())


@pytest.mark.parametrize("fields", [{"num_hidden_layers": 2**31}, {"text_config": {"num_hidden_layers": 10**30}}])
def test_layers_that_no_memory_has_room_for_are_not_made(folder: Path, fields: dict[str, Any]) -> None:
    with_fields(folder, "config.json", **fields)
    with pytest.raises(ModelLoadError, match=r"config.json': num_hidden_layers is \d+, and no model has more"):
        load_model(str(folder), LoadOptions())


@pytest.mark.parametrize("target", ["nowhere", "model.safetensors"])
def test_weights_that_are_a_link_to_nothing_are_missing(folder: Path, target: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(target)
    with pytest.raises(ModelLoadError, match=str(folder)):
        load_model(str(folder), LoadOptions())


def test_what_is_found_out_after_loading_names_the_folder(folder: Path) -> None:
    """An end of sequence is compared with the vocabulary."""
    with_fields(folder, "config.json", eos_token_id=10**6)
    with (
        LocalOpenAI(folder, keep_alive=0) as client,
        pytest.raises(
            openai.InternalServerError, match=f"'{folder}' could not be loaded: its eos_token_id 1000000 is no"
        ),
    ):
        client.chat.completions.create(model="m", messages=MESSAGES)


@pytest.mark.parametrize("value", [10**400, -(10**30), 1e308, float("nan"), float("-inf"), True, "hot", None, []])
def test_generation_config_may_have_any_number(folder: Path, value: Any) -> None:
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_new_tokens")
    with_fields(folder, "generation_config.json", **dict.fromkeys(names, value))
    with LocalOpenAI(folder, keep_alive=0) as client:
        answer = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=3)
    assert answer.usage is not None and answer.usage.completion_tokens in (1, 2, 3)


def with_token(folder: Path, text: str, number: int) -> None:
    """Give an added token another id."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    [token] = [token for token in content["added_tokens"] if token["content"] == text]
    token["id"] = content["model"]["vocab"][text] = number
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("number", [400, 100_000, 2**31 - 1])
def test_a_token_without_an_embedding_is_refused_where_it_is_needed(folder: Path, number: int) -> None:
    """MLX would read what stands behind the embeddings in memory, or end the process."""
    with_token(folder, "<|im_start|>", number)
    with LocalOpenAI(folder, keep_alive=0) as client:
        with pytest.raises(
            openai.BadRequestError, match=rf"its token {number}, '<\|im_start\|>', is beyond .* 400 emb"
        ):
            client.chat.completions.create(model="m", messages=MESSAGES)
        answer = client.completions.create(model="m", prompt="Hello", max_tokens=2)
        assert answer.usage is not None and answer.usage.completion_tokens in (1, 2)
        with pytest.raises(openai.BadRequestError, match="whose ids go from 0 to 399"):
            client.completions.create(model="m", prompt=[400], max_tokens=2)


@pytest.mark.parametrize("number", [-(10**6), 10**6, "1"])
def test_positions_that_there_are_none_of_are_not_read(tmp_path: Path, number: Any) -> None:
    """RoBERTa's positions begin behind the padding's id."""
    folder = Path(shutil.copytree(tiny_embedder("xlm-roberta"), tmp_path / "broken"))
    with_fields(folder, "config.json", pad_token_id=number)
    with pytest.raises(ModelLoadError, match=rf"'{folder}' could not be loaded: .*pad_token_id"):
        load_model(str(folder), LoadOptions())


@pytest.mark.parametrize("number", [-1, 10**8])
def test_texts_are_padded_with_a_token_that_there_is(tmp_path: Path, number: int) -> None:
    folder = Path(shutil.copytree(tiny_embedder("bert"), tmp_path / "broken"))
    with_fields(folder, "config.json", pad_token_id=number)
    texts = ["Hello", "Hello there, how are you?"]
    with LocalOpenAI(folder, keep_alive=0) as client, LocalOpenAI(tiny_embedder("bert"), keep_alive=0) as good:
        broken, whole = (each.embeddings.create(model="m", input=texts) for each in (client, good))
    assert np.allclose([each.embedding for each in broken.data], [each.embedding for each in whole.data], atol=1e-6)
