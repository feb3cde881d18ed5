"""The names of a checkpoint's tensors say if its language model has its own head."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from localai_shim.models.checkpoint.tensor_names import has_head


@pytest.mark.parametrize(
    "name",
    [
        "lm_head.weight",
        "language_model.lm_head.weight",
        "language_model.model.lm_head.scales",
        "model.llm.unembed.weight",
        "head.weight",
        "output.weight",
    ],
)
def test_a_head_is_found_under_each_of_its_names(name: str, tmp_path: Path) -> None:
    file = str(tmp_path / "model.safetensors")
    mx.save_safetensors(file, {"model.embed_tokens.weight": mx.zeros(2), name: mx.zeros(2)})
    assert has_head(tmp_path) is True
    mx.save_safetensors(file, {"model.embed_tokens.weight": mx.zeros(2), "vision.head.weight": mx.zeros(2)})
    assert has_head(tmp_path) is False


def test_a_folder_without_weights_says_nothing_about_a_head(tmp_path: Path) -> None:
    assert has_head(tmp_path) is None
