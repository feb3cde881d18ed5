"""Other weights for models of GGUF files: what follows is what a client says that is made of a file with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import mlx.core as mx
import pytest
from gguf import GGMLQuantizationType as Type
from mlx.utils import tree_flatten

from localai_shim import LocalOpenAI
from localai_shim.models.gguf.checkpoint import read_checkpoint
from tests.lora import ids
from tests.models.gguf.writing import write
from tests.tiny import tiny

PROMPT = (5, 9, 13, 21, 8, 3, 77, 140)


def changed(kind: str, made: Path) -> Path:
    """A checkpoint like a tiny one with other matrices."""
    shutil.copytree(tiny(kind), made)
    weights = mx.load(str(made / "model.safetensors"))
    assert isinstance(weights, dict)
    mx.random.seed(5)
    moved = {n: each + 0.05 * mx.random.normal(each.shape) if each.ndim > 1 else each for n, each in weights.items()}
    mx.save_safetensors(str(made / "model.safetensors"), moved, {"format": "mlx"})
    return made


def said(client: LocalOpenAI) -> list[int]:
    tokens: list[int] = ids(client, "any", PROMPT, 24, extra_body={"ignore_eos": True})
    return tokens


def of(file: Path) -> list[int]:
    with LocalOpenAI(file, keep_alive=0) as client:
        return said(client)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "qwen3_moe", "gemma3_text"])
def test_a_folder_of_the_original_s_form_or_its_arrays(kind: str, tmp_path: Path) -> None:
    """Rows of q and k, and norms, are the original's here, not the file's."""
    old, folder = write(tiny(kind), tmp_path / "old.gguf"), changed(kind, tmp_path / "new")
    wanted = of(write(folder, tmp_path / "new.gguf"))
    arrays = mx.load(str(folder / "model.safetensors"))
    assert isinstance(arrays, dict)
    with LocalOpenAI(old, keep_alive=0) as client:
        before = said(client)
        assert before != wanted
        client.update_weights(folder)
        assert said(client) == wanted
        client.update_weights(tiny(kind))
        assert said(client) == before
        client.update_weights(arrays)
        assert said(client) == wanted


def test_packed_tensors_of_another_file(tmp_path: Path) -> None:
    old = write(tiny("qwen3"), tmp_path / "old.gguf", Type.Q8_0)
    new = write(changed("qwen3", tmp_path / "new"), tmp_path / "new.gguf", Type.Q8_0)
    wanted = of(new)
    model, _, _ = read_checkpoint(new)
    with LocalOpenAI(old, keep_alive=0) as client:
        assert said(client) != wanted
        client.update_weights(dict(tree_flatten(model.parameters())))
        assert said(client) == wanted
        with pytest.raises(ValueError, match=r"new.gguf' is a file. Pass a folder with \*.safetensors, or a mapping"):
            client.update_weights(new)
        assert said(client) == wanted
