"""Weights are told from others by their contents: equal sizes and times say nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim import LocalOpenAI
from localai_shim.models.checkpoint import contents
from localai_shim.models.checkpoint.contents import contents_of
from localai_shim.models.loading import load_model
from localai_shim.models.weights import folder_weights
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests import inside
from tests.lora import alone, ids, make_adapter
from tests.models.gguf.writing import write
from tests.tiny import tiny

WHEN = (10**18, 10**18)
PROMPT = tuple(range(40, 140))


def dated(folder: Path) -> Path:
    for path in folder.iterdir():
        os.utime(path, ns=WHEN)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return dated(Path(shutil.copytree(tiny("qwen3"), tmp_path / "model")))


def other_weights(folder: Path) -> None:
    """Put other weights, of the same size and with the same time, into a model's folder."""
    path = folder / "model.safetensors"
    content = np.fromfile(path, np.uint8)
    first = 8 + int.from_bytes(content[:8].tobytes(), "little")
    content[first:][3::8] ^= 0x80  # the signs of half of the numbers
    content.tofile(path)
    dated(folder)


def test_cache_dir_gives_nothing_to_other_weights_of_the_same_size_and_time(folder: Path, tmp_path: Path) -> None:
    said = []
    for _ in range(2):
        with LocalOpenAI(folder, cache_dir=tmp_path / "cache", keep_alive=0) as client:
            said.append(ids(client, "any", PROMPT))
            assert client.stats().cache_tokens == 0
        other_weights(folder)
    assert said[0] == alone(tiny("qwen3"), None, PROMPT, 16) != said[1]


def test_the_same_weights_elsewhere_and_later_are_found_in_the_cache_dir(folder: Path, tmp_path: Path) -> None:
    for path in (folder, Path(shutil.copytree(tiny("qwen3"), tmp_path / "again" / "model"))):
        with LocalOpenAI(path, cache_dir=tmp_path / "cache", keep_alive=0) as client:
            ids(client, "any", PROMPT)
            found = client.stats().cache_tokens
    assert found == len(PROMPT) - 1


def test_another_adapter_of_the_same_size_and_time_is_another_model(folder: Path, tmp_path: Path) -> None:
    found = set()
    for seed in (1, 2, 1):
        adapter = dated(make_adapter(tmp_path / "adapter", tiny("qwen3"), seed=seed))
        found.add(load_model(str(folder), LoadOptions(adapter_path=str(adapter))).fingerprint)
    assert len(found) == 2


def test_gguf_file_is_told_by_its_contents(tmp_path: Path) -> None:
    path = write(tiny("qwen3"), tmp_path / "a.gguf").rename(tmp_path / "sha256-1")

    def fingerprint() -> str:
        return load_model(str(path), LoadOptions()).fingerprint

    os.utime(path, ns=WHEN)
    first = fingerprint()
    os.utime(path, ns=(5 * 10**17, 5 * 10**17))
    assert fingerprint() == first
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=WHEN)
    assert fingerprint() != first


def test_folder_of_new_weights_is_told_by_its_contents(folder: Path) -> None:
    before = folder_weights(folder)
    assert folder_weights(folder).digest == before.digest
    other_weights(folder)
    assert folder_weights(folder).digest != before.digest


def test_folder_that_changes_before_its_weights_are_read_changes_nothing(folder: Path) -> None:
    with LocalOpenAI(tiny("qwen3"), keep_alive=0) as client:
        engine: Any = inside.engine(client)
        before, said = engine.model.fingerprint, ids(client, "any", PROMPT)
        new = folder_weights(folder)
        other_weights(folder)
        with pytest.raises(ModelLoadError, match="changed while they were read, and nothing has changed"):
            engine.update_weights(new).result()
        assert (engine.model.fingerprint, ids(client, "any", PROMPT)) == (before, said)


def test_model_whose_files_change_while_it_is_loaded_is_not_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from localai_shim.models import loading

    kind = loading._kind

    def changing(path: Path, options: LoadOptions) -> Any:
        os.utime(folder / "model.safetensors")  # as writing it does
        return kind(path, options)

    monkeypatch.setattr(loading, "_kind", changing)
    with pytest.raises(ModelLoadError, match="its files changed while they were read") as caught:
        load_model(str(folder), LoadOptions())
    assert caught.value.transient


# -- large files ------------------------------------------------------------------------------------------------------


def save(path: Path, edit: Callable[[dict[str, Any]], None] = lambda arrays: None) -> str:
    arrays: dict[str, Any] = {
        "model.embed.weight": np.arange(400_000, dtype=np.float32).reshape(400, 1000),
        "model.layers.0.norm.weight": np.ones(64, np.float32),
        "model.layers.0.bias": np.zeros(4, np.float32),
    }
    edit(arrays)
    mx.save_safetensors(str(path / "model.safetensors"), {name: mx.array(array) for name, array in arrays.items()})
    os.utime(path / "model.safetensors", ns=WHEN)
    return contents_of([path])


def last(arrays: dict[str, Any]) -> None:
    arrays["model.embed.weight"][-1, -1] = 7


def first(arrays: dict[str, Any]) -> None:
    arrays["model.embed.weight"][0, 0] = 7


def norm(arrays: dict[str, Any]) -> None:
    arrays["model.layers.0.norm.weight"][33] = 7


def bias(arrays: dict[str, Any]) -> None:
    arrays["model.layers.0.bias"][2] = 7


def name(arrays: dict[str, Any]) -> None:
    arrays["model.layers.1.bias"] = arrays.pop("model.layers.0.bias")


def scaled(arrays: dict[str, Any]) -> None:
    arrays["model.embed.weight"] *= 1.0001


@pytest.mark.parametrize("edit", [first, last, norm, bias, name, scaled])
def test_change_of_a_large_file_is_noticed(edit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "WHOLE_BYTES", 1000)
    before = save(tmp_path)
    assert save(tmp_path) == before
    assert save(tmp_path, edit) != before


def test_large_file_with_another_time_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "WHOLE_BYTES", 1000)
    before = save(tmp_path)
    os.utime(tmp_path / "model.safetensors", ns=(5, 5))
    assert contents_of([tmp_path]) != before


@pytest.mark.parametrize("suffix", [".safetensors", ".gguf"])
def test_large_file_that_is_damaged_has_a_hash_too(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "WHOLE_BYTES", 1000)
    found = set()
    for content in (b"x" * 5_000_000, b"y" * 5_000_000):
        (tmp_path / f"model{suffix}").write_bytes(content)
        os.utime(tmp_path / f"model{suffix}", ns=WHEN)
        found.add(contents_of([tmp_path]))
    assert len(found) == 2


def test_large_file_is_read_in_few_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(os, "pread", lambda *args, pread=os.pread: read.append(args[1]) or pread(*args))
    read = list[int]()
    save(tmp_path)
    assert sum(read) < 10_000 < (tmp_path / "model.safetensors").stat().st_size / 100
