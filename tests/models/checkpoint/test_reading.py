"""Errors of upstream's code are said to be of the file that they are about."""

from __future__ import annotations

from pathlib import Path

import pytest

from localai_shim.models.loading import load_model
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests.tiny import make_model


def test_a_config_that_transformers_refuses_is_not_said_to_be_the_tokenizer(tmp_path: Path) -> None:
    """transformers reads the config before the tokenizer, and checks that the heads of Mamba layers fit."""
    folder = make_model(tmp_path / "model", "granitemoehybrid of 64", mamba_d_head=32)
    with pytest.raises(
        ModelLoadError, match=r"config\.json has values that transformers refuses .*Mamba head"
    ) as caught:
        load_model(str(folder), LoadOptions())
    assert "tokenizer" not in str(caught.value)


def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model", "qwen3")
    (folder / "tokenizer.json").write_text('{"model": {"type": "none"}}')
    with pytest.raises(
        ModelLoadError, match=r"its tokenizer \(tokenizer\.json, tokenizer_config\.json\) cannot be read"
    ):
        load_model(str(folder), LoadOptions())
