"""Files as models: served like folders, and refused with what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import mlx_lm
import numpy as np
import openai
import pytest
from gguf import GGMLQuantizationType as Type
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import linear_to_lora_layers

from localai_shim import LocalOpenAI
from localai_shim.cli.listing import describe_folder
from localai_shim.cli.main import main
from localai_shim.models.loading import load_model
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests.models.gguf import writing
from tests.models.gguf.writing import write
from tests.tiny import tiny

PROMPT = [101, 33, 60]
MESSAGES: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rest = {"general.sampling.temp": 0.5, "general.sampling.top_k": 7}
    return write(tiny("qwen3"), tmp_path_factory.mktemp("files") / "tiny.gguf", rest=rest)


def test_a_file_answers_as_its_folder(file: Path) -> None:
    with LocalOpenAI(model=file) as client, LocalOpenAI(model=tiny("qwen3")) as folder:
        answers = [
            each.chat.completions.create(messages=MESSAGES, model="any", max_tokens=16, temperature=0)
            for each in (client, folder)
        ]
        assert answers[0].choices[0].message == answers[1].choices[0].message
        assert answers[0].usage == answers[1].usage
        assert answers[0].model == "tiny.gguf"
        [listed] = client.models.list().data
        assert (listed.id, listed.created) == ("tiny.gguf", int(file.stat().st_mtime))
        assert client._runtime.engine_of("any").model.generation_defaults["top_k"] == 7


def test_options_are_those_of_a_folder(tmp_path: Path) -> None:
    """Adapters, keys and values in few bits, a draft model."""
    folder = tiny("qwen3", head_dim=32)
    file = write(folder, tmp_path / "a.gguf")
    model, _ = mlx_lm.load(str(folder))
    model.freeze()
    lora = {"num_layers": 2, "lora_parameters": {"rank": 4, "scale": 20.0, "dropout": 0.0}}
    linear_to_lora_layers(model, 2, lora["lora_parameters"])
    mx.random.seed(1)
    weights = {name: mx.random.normal(array.shape) * 0.3 for name, array in tree_flatten(model.trainable_parameters())}
    mx.save_safetensors(str(tmp_path / "adapters.safetensors"), weights)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"fine_tune_type": "lora", **lora}))
    said = []
    for path in (file, folder):
        with LocalOpenAI(path, adapter_path=tmp_path, kv_bits=8, kv_group_size=32, draft_model=path) as client:
            answer = client.completions.create(model="any", prompt=PROMPT, max_tokens=12, temperature=0)
            said.append(answer.choices[0].text)
    with LocalOpenAI(file) as plain:
        other = plain.completions.create(model="any", prompt=PROMPT, max_tokens=12, temperature=0).choices[0].text
    assert said[0] == said[1] != other


def test_the_fingerprint_changes_with_the_file(tmp_path: Path) -> None:
    """Keys and values in a `cache_dir` belong to one file."""
    path = write(tiny("qwen3"), tmp_path / "a.gguf")

    def fingerprint() -> str:
        return load_model(str(path), LoadOptions()).fingerprint

    first = fingerprint()
    assert fingerprint() == first
    write(tiny("qwen3"), path, Type.Q8_0)
    assert fingerprint() != first


def test_the_command_line_describes_a_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", str(file)]) == 0
    said = capsys.readouterr().out
    assert str(file) in said and "<|im_start|>user" in said


def test_a_folder_of_files_says_to_name_one(file: Path) -> None:
    assert describe_folder("it", str(file.parent)).problem
    with pytest.raises(FileNotFoundError, match=r"no config.json. It has GGUF files: pass .*tiny.gguf"):
        LocalOpenAI(model=file.parent)


def test_a_name_that_is_no_file_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"There is no file 'nowhere.gguf'"):
        LocalOpenAI(model="nowhere.gguf")
    (tmp_path / "model.gguf").write_bytes(b"PK\3\4")
    with pytest.raises(FileNotFoundError, match=r"model.gguf' is not a model: it is no GGUF file"):
        LocalOpenAI(model=tmp_path / "model.gguf")


def test_a_file_is_gguf_by_its_first_bytes_whatever_its_name(file: Path, tmp_path: Path) -> None:
    """As in Ollama's store."""
    blob = tmp_path / "sha256-0123456789abcdef"
    blob.write_bytes(file.read_bytes())
    with LocalOpenAI(model=blob) as client, LocalOpenAI(model=file) as named:
        answers = [
            each.chat.completions.create(messages=MESSAGES, model="any", max_tokens=8, temperature=0)
            for each in (client, named)
        ]
    assert answers[0].model == blob.name
    assert answers[0].choices[0].message == answers[1].choices[0].message


def test_a_tensor_that_cannot_be_read_is_named_before_anything_is_loaded(tmp_path: Path) -> None:
    """The error of a request and that of loading have the same text."""
    unreadable(tmp_path / "a.gguf")
    message = r"tensor 'blk.0.ffn_up.weight' is IQ3_S, which MLX has no form for. Choose another file .*llama-quantize"
    with pytest.raises(ModelLoadError, match=message) as loading:
        load_model(str(tmp_path / "a.gguf"), LoadOptions())
    with LocalOpenAI(model=tmp_path / "a.gguf") as client:
        for _ in range(2):
            with pytest.raises(openai.APIError, match=message) as asking:
                client.chat.completions.create(messages=MESSAGES, model="any")
            assert str(loading.value) in str(asking.value)


def test_a_file_runs_in_one_process(file: Path) -> None:
    with pytest.raises(ValueError, match=r"tensor_parallel: 'tiny.gguf' is a GGUF file.*take the model's folder"):
        LocalOpenAI(model=file, tensor_parallel=2)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def unreadable(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("blk.0.ffn_up.weight", np.zeros((2, 110), np.uint8), raw_dtype=Type.IQ3_S)
    writing.close(writer)


def version(path: Path) -> None:
    path.write_bytes(b"GGUF\1\0\0\0" + path.read_bytes()[8:])


def tensor(name: str) -> Callable[[Path], None]:
    def rename(path: Path) -> None:
        content, old = path.read_bytes(), b"blk.1.ffn_up.weight"
        assert content.count(old) == 1 and len(name) == len(old)
        path.write_bytes(content.replace(old, name.encode()))

    return rename


def metadata(key: str, value: Any) -> Callable[[Path], None]:
    return lambda path: print(write(tiny("qwen3"), path, rest={key: value}), end="")  # noqa: T201


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (unreadable, r"tensor 'blk.0.ffn_up.weight' is IQ3_S, which MLX has no form for. Choose .*llama-quantize"),
        (lambda path: cut(path, 300), "is damaged, or was not downloaded completely"),
        (lambda path: cut(path, 6), "is damaged, or was not downloaded completely"),
        (
            lambda path: cut(path, path.stat().st_size - 5000),
            r"tensor '.*' \(F32, \[.*\]\) ends past the end",
        ),
        (lambda path: path.write_bytes(b"PK\3\4" + bytes(99)), "is no GGUF file"),
        (lambda path: path.write_bytes(b""), "is no GGUF file"),
        (
            lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n"),
            "is a pointer of git-lfs, not",
        ),
        (version, "is of GGUF version 1; versions 2 and 3"),
        (tensor("blk.1.ffn_xx.weight"), "tensor 'blk.1.ffn_xx.weight' is not known in the architecture 'qwen3'"),
        (tensor("blk.1.ffn_up.bias\0\0"), "tensor 'blk.1.ffn_up.bias"),
        (tensor("blk.7.ffn_up.weight"), "'qwen3.block_count' is 2, but there are tensors of 3 layers"),
        (metadata("qwen3.block_count", 10**9), "'qwen3.block_count' is 1000000000, but there are tensors of 2 layers"),
        (metadata("qwen3.context_length", -1), "'qwen3.context_length' is -1"),
        (metadata("qwen3.rope.freq_base", float("nan")), "'qwen3.rope.freq_base' is nan"),
        (metadata("general.architecture", "mamba"), "architecture 'mamba'. GGUF files of these can be read: gemma3, g"),
        (metadata("split.count", 3), "one of 3 parts.*llama-gguf-split --merge"),
        (metadata("qwen3.block_count", None), "the metadata lacks 'qwen3.block_count'"),
        (metadata("qwen3.context_length", "long"), "the metadata's 'qwen3.context_length' is a str"),
        (metadata("qwen3.rope.scaling.type", "longrope"), "rope scaling 'longrope' is not supported"),
        (metadata("qwen3.rope.dimension_count", 8), r"Partial RoPE \(8 of 16 dims\) is not supported"),
    ],
)
def test_a_file_that_cannot_be_read_is_said(
    damage: Callable[[Path], None], message: str, file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(file.read_bytes())
    damage(path)
    with pytest.raises(ModelLoadError, match=message) as caught:
        load_model(str(path), LoadOptions())
    assert "broken.gguf" in str(caught.value)
