"""Fields of a config.json that no model has are named; errors of upstream's code name the file that they are about."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from localai_shim.models.checkpoint.reading import MAX_SHOWN, check_fields
from localai_shim.models.loading import load_model
from localai_shim.options import LoadOptions
from localai_shim.types import Json, ModelLoadError
from tests.architectures import architectures, config_of
from tests.tiny import make_model, tiny
from tests.vision_families import FAMILIES


def with_fields(made: Path, name: str, **fields: Any) -> Path:
    shutil.copytree(tiny("qwen3"), made)
    path = made / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return made


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": None}, "has no 'model_type': it does not say of which architecture"),
        ({"model_type": ""}, "has no 'model_type'"),
        ({"model_type": 7}, "has the 'model_type' 7"),
        ({"model_type": ["llama"]}, r"has the 'model_type' \['llama'\]"),
        ({"architectures": 7}, "'architectures' is 7, not a list of names"),
        ({"architectures": [None]}, r"'architectures' is \[None\]"),
        ({"hidden_size": {"type": "x"}}, "'hidden_size' is {'type': 'x'}, not a whole number"),
        ({"num_attention_heads": "4"}, "'num_attention_heads' is '4', not a whole number"),
        ({"num_hidden_layers": float("inf")}, "'num_hidden_layers' is inf"),
        ({"num_hidden_layers": True}, "'num_hidden_layers' is True"),
        ({"vocab_size": 2**31}, "'vocab_size' is 2147483648"),
        ({"head_dim": -16}, "'head_dim' is -16"),
        ({"head_dim": 16.5}, "'head_dim' is 16.5"),
        ({"intermediate_size": [128, "x"]}, r"'intermediate_size' is \[128, 'x'\]"),
        ({"eos_token_id": -1}, "'eos_token_id' is -1, not the id of a token, or a list of ids"),
        ({"eos_token_id": [2, "x"]}, r"'eos_token_id' is \[2, 'x'\], not the id"),
        ({"eos_token_id": 2.5}, "'eos_token_id' is 2.5"),
        ({"text_config": {"eos_token_id": {}}}, "'text_config.eos_token_id' is {}"),
        ({"text_config": "x"}, "'text_config' is 'x', not an object"),
        ({"text_config": {"hidden_size": "64"}}, "'text_config.hidden_size' is '64'"),
    ],
)
def test_a_field_that_no_model_has_is_named(fields: Json, message: str, tmp_path: Path) -> None:
    folder = with_fields(tmp_path / "made", "config.json", **fields)
    with pytest.raises(ModelLoadError, match=rf"'{folder}' could not be loaded: config.json:? {message}"):
        load_model(str(folder), LoadOptions())


@pytest.mark.parametrize("name", architectures())
def test_what_architectures_have_passes(name: str) -> None:
    check_fields(config_of(name))


@pytest.mark.parametrize("name", FAMILIES)
def test_what_families_that_see_have_passes(name: str) -> None:
    check_fields(FAMILIES[name].config)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("tokenizer.json", {"model": {}}, r"its tokenizer \(tokenizer.json, tokenizer_config.json\) cannot be read \("),
        ("tokenizer.json", {"added_tokens": 7}, r"its tokenizer \(.*cannot be read \(TypeError"),
        ("tokenizer_config.json", {"pad_token": 7}, r"its tokenizer \(.*cannot be read \(.*pad_token"),
        ("config.json", {"intermediate_size": 0}, r"config.json and the weights make no model \(ZeroDivisionError"),
        ("config.json", {"hidden_size": 128}, r"make no model \(ValueError: Expected shape \(400, 128\) but"),
    ],
)
def test_what_upstream_cannot_read_is_named_by_its_files(name: str, fields: Json, message: str, tmp_path: Path) -> None:
    folder = with_fields(tmp_path / "made", name, **fields)
    with pytest.raises(ModelLoadError, match=message):
        load_model(str(folder), LoadOptions())


def test_ends_in_the_generation_config_are_ids(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny("qwen3"), tmp_path / "made"))
    (folder / "generation_config.json").write_text('{"eos_token_id": ["<|im_end|>"]}')
    with pytest.raises(
        ModelLoadError, match=r"generation_config.json: 'eos_token_id' is \['<\|im_end\|>'\], not the id"
    ):
        load_model(str(folder), LoadOptions())


def test_a_list_of_all_tensors_is_cut(tmp_path: Path) -> None:
    folder = with_fields(tmp_path / "made", "config.json", num_hidden_layers=2000)
    with pytest.raises(ModelLoadError, match=r"ValueError: Missing 21978 parameters: .* \.\.\.\)\.$") as caught:
        load_model(str(folder), LoadOptions())
    assert len(str(caught.value)) < MAX_SHOWN + 300


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
