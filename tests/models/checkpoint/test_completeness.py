"""Folders whose files are not all there, or not whole: named, with what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.models.checkpoint.completeness import check_weights
from localai_shim.models.loading import load_model
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests.tiny import tiny

WEIGHTS = "model.safetensors"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 503799\n"


def cut(name: str, size: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:size])

    return change


def replaced(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: print((folder / name).write_text(text), end="")  # noqa: T201


def renamed(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / WEIGHTS).rename(folder / name)


def without_shard(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "model-00001-of-00003.safetensors")


def indexed(*shards: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        weight_map = {str(i): shard for i, shard in enumerate(shards)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    return change


def lost(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to("../../blobs/gone")


CHANGES: list[Any] = [
    (cut(WEIGHTS, 400_000), "'model.safetensors' was cut off: it has 400,000 of 503,799 bytes"),
    (cut(WEIGHTS, 100), "'model.safetensors' was cut off within its header, at 100 bytes"),
    (cut(WEIGHTS, 0), "'model.safetensors' was cut off within its header, at 0 bytes"),
    (replaced(WEIGHTS, "<!DOCTYPE html>"), "'model.safetensors' is damaged: it does not begin with a header"),
    (replaced(WEIGHTS, POINTER), r"'model.safetensors' is a pointer of git-lfs, not the file itself \(`git lfs pull`"),
    (replaced("tokenizer.json", POINTER), "'tokenizer.json' is a pointer of git-lfs"),
    (replaced("config.json", POINTER), "'config.json' is a pointer of git-lfs"),
    (cut("config.json", 50), r"'config.json' is no JSON, so that it was cut off or damaged \("),
    (cut("tokenizer.json", 5000), "'tokenizer.json' is no JSON"),
    (replaced("generation_config.json", '{"eos_'), "'generation_config.json' is no JSON"),
    (replaced("tokenizer_config.json", "[1]"), "'tokenizer_config.json' holds no JSON object"),
    (lambda folder: (folder / "config.json").unlink(), "it has no config.json"),
    (
        lambda folder: (folder / WEIGHTS).unlink(),
        r"it has no weights \(model\*.safetensors\), only files that describe",
    ),
    (lost, "'model.safetensors' is a link to a file that is not there"),
    (without_shard, "2 of its files of weights are missing: 'model-00002-of-00003.safetensors', 'model-00003-of"),
    (indexed(WEIGHTS, "model-2.safetensors"), "1 of its files of weights is missing: 'model-2.safetensors'"),
    (indexed(WEIGHTS, "../outside.safetensors"), "index.json' names '../outside.safetensors', which is no file of"),
    (indexed(WEIGHTS, None), "index.json' names None, which is no file"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES, ids=range(len(CHANGES)))
def test_an_incomplete_folder_is_said_to_be_so(change: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("qwen3"), tmp_path / "broken"))
    change(folder)
    with pytest.raises(ModelLoadError, match=message) as caught:
        load_model(str(folder), LoadOptions())
    assert f"'{folder}' could not be loaded, since its files are incomplete or damaged: " in str(caught.value)
    assert str(caught.value).endswith("Copy or download it again.")
    assert not caught.value.missing


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pytorch_model.bin", "It has 'pytorch_model.bin', which are pickles and are not read: choose a version"),
        ("weights.safetensors", "It has 'weights.safetensors', but only files whose names begin with 'model' are"),
        ("weights.npz", "It has 'weights.npz', which are not read"),
        ("tiny.gguf", "It has 'tiny.gguf', which are models by themselves: pass the path of one"),
    ],
)
def test_weights_in_another_form_are_named(name: str, message: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("qwen3"), tmp_path / "broken"))
    renamed(name)(folder)
    with pytest.raises(ModelLoadError, match=rf"it has no weights \(model\*.safetensors\)\. {message}"):
        load_model(str(folder), LoadOptions())


def test_weights_that_mlx_saved_without_metadata_are_whole(tmp_path: Path) -> None:
    """Its header then says that they are null."""
    folder = Path(shutil.copytree(tiny("qwen3"), tmp_path / "whole"))
    mx.save_safetensors(str(folder / WEIGHTS), dict(mx.load(str(folder / WEIGHTS))))  # type: ignore[arg-type]
    check_weights(folder, WEIGHTS)


@pytest.mark.parametrize("noted", [{"a": 7}, 7])
def test_metadata_that_is_no_text_is_damage(noted: Any, tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": noted, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (tmp_path / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(ModelLoadError, match="is damaged: its header cannot be read"):
        check_weights(tmp_path, WEIGHTS)


@pytest.mark.parametrize(
    "change",
    [
        indexed("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
        indexed(WEIGHTS, "mtp.safetensors"),
        lambda folder: (folder / "consolidated-00001-of-00003.safetensors").write_text(POINTER),
        lambda folder: (folder / "consolidated.safetensors").write_text(POINTER),
        lambda folder: (folder / "added_tokens.json").write_text("{}"),
        lambda folder: (folder / "README.md").write_text(POINTER),
    ],
)
def test_what_says_nothing_of_the_weights_is_no_reason(change: Callable[[Path], object], tmp_path: Path) -> None:
    """An index of the files before they were quantized, weights in another form that nothing reads."""
    folder = Path(shutil.copytree(tiny("qwen3"), tmp_path / "whole"))
    change(folder)
    load_model(str(folder), LoadOptions())
