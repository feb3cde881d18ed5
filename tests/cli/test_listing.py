"""`models`: the list of the models on this machine, in a table and as JSON."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from localai_shim.cli import listing
from localai_shim.cli.main import main
from localai_shim.models.gguf import header
from localai_shim.models.local.search import find_model
from tests.models.gguf.writing import close
from tests.models.local.stores import Stores, stores
from tests.models_page import families, text_models
from tests.tiny import tiny

__all__ = ["stores"]


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, Any]]:
    assert main(["models", "--json", *arguments]) == 0
    return {model["name"]: model for model in json.loads(capsys.readouterr().out)}


def test_models_of_all_programs_are_listed(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    stores.folder(stores.lm_studio / "publisher" / "one")
    file = stores.model(stores.lm_studio / "publisher" / "two-GGUF" / "two-F32.gguf")
    stores.pulled("tiny:f32", file)
    stores.cached("o/n", {path.name: path for path in tiny("qwen3").iterdir()})
    stores.header(stores.lm_studio / "publisher" / "odd" / "odd-Q8_0.gguf", "unheard-of")
    found = listed(capsys)
    assert list(found) == [
        *("localai-shim-builtin", "localai-shim-builtin-vision", "publisher/odd:Q8_0", "publisher/one"),
        *("publisher/two-GGUF:F32", "o/n", "tiny:f32"),
    ]
    one, two, tiny_ = found["publisher/one"], found["publisher/two-GGUF:F32"], found["tiny:f32"]
    assert (one["program"], one["format"], one["architecture"], one["runs"]) == (
        *("LM Studio", "safetensors", "qwen3"),
        True,
    )
    assert (two["format"], two["architecture"], two["runs"], two["batched"]) == ("GGUF F32", "qwen3", True, True)
    assert (tiny_["program"], tiny_["format"], tiny_["bytes"]) == ("Ollama", "GGUF F32", file.stat().st_size)
    assert one["problem"] is None and one["calls"] == two["calls"] != ""
    odd = found["publisher/odd:Q8_0"]
    assert odd["runs"] is odd["batched"] is False and "architecture 'unheard-of'" in odd["problem"]
    assert odd["architecture"] == "unheard-of"
    for name, model in found.items():
        if model["runs"] and "builtin" not in name:
            again = find_model(name)
            assert again is not None and str(again.path) == model["path"]


def test_the_table_says_why_a_model_does_not_run(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stores.folder(stores.lm_studio / "p" / "hy_v4")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "hy_v4"}))
    other = stores.folder(stores.lm_studio / "p" / "odd")
    (other / "config.json").write_text(json.dumps({**config, "model_type": "unheard_of"}))
    half = stores.folder(stores.lm_studio / "p" / "half")
    (half / "model.safetensors").write_bytes((half / "model.safetensors").read_bytes()[:-8])
    blind = stores.folder(stores.lm_studio / "p" / "untokenized")
    (blind / "tokenizer.json").unlink()
    assert main(["models"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line[0] != " "}
    assert rows["p/hy_v4"].endswith("  one request at a time")
    assert "no: the architecture 'unheard_of' is not" in " ".join(rows["p/odd"].split())
    assert "no: 'model.safetensors'" in rows["p/half"]
    assert "no: The model" in rows["p/untokenized"]


def test_links_that_leave_a_folder_are_listed_and_not_read(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    stores.folder(stores.home / "outside")
    stores.lm_studio.joinpath("p").mkdir(parents=True)
    (stores.lm_studio / "p" / "x").symlink_to(stores.home / "outside")
    found = listed(capsys)["p/x"]
    assert found["runs"] is False and "outside LM Studio's folder" in found["problem"]
    assert (found["bytes"], found["architecture"]) == (0, "")


def test_the_option_and_the_variable_leave_the_hub_s_cache(
    stores: Stores, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stores.folder(stores.lm_studio / "p" / "x")
    stores.cached("o/n", {path.name: path for path in tiny("qwen3").iterdir()})
    expected = ["localai-shim-builtin", "localai-shim-builtin-vision", "o/n"]
    assert list(listed(capsys, "--no-local-models")) == expected
    monkeypatch.setenv("LOCALAI_SHIM_LOCAL_MODELS", "0")
    assert list(listed(capsys)) == expected


def test_one_model_is_described_by_its_name(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    stores.pulled("tiny", stores.model(stores.home / "tiny.gguf"))
    assert main(["models", "tiny:latest"]) == 0
    assert "<|im_start|>user" in capsys.readouterr().out
    assert main(["models", "tiny:latest", "--no-local-models"]) == 1
    assert "not a Hugging Face ID" in capsys.readouterr().err
    assert main(["models", "o/absent", "--offline"]) == 1
    assert "with `offline` the Hugging Face Hub is not asked" in capsys.readouterr().err


def test_chat_takes_the_options(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "o/absent", "--offline"]) == 1
    assert "with `offline` the Hugging Face Hub is not asked" in capsys.readouterr().err
    stores.pulled("tiny", stores.model(stores.home / "tiny.gguf"))
    assert main(["chat", "tiny", "--no-local-models", "--offline"]) == 1
    assert "not on this machine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quantization": {"bits": 4, "group_size": 64}}, "MLX 4-bit"),
        ({"quantization": {"bits": 4, "mode": "mxfp4"}, "quantization_config": {}}, "MLX mxfp4"),
        ({"quantization_config": {"quant_method": "awq"}}, "safetensors awq"),
        ({"torch_dtype": "bfloat16"}, "safetensors bfloat16"),
        ({"text_config": {"dtype": "float16"}}, "safetensors float16"),
        ({}, "safetensors"),
    ],
)
def test_the_format_is_the_config_s(config: dict[str, Any], expected: str) -> None:
    assert listing._format(config) == expected


def test_the_format_of_a_file_without_a_label_is_that_of_its_weights(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "qwen3")
    writer.add_tensor("token_embd.weight", np.zeros((4, 34), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("output_norm.weight", np.zeros(8, np.float32))
    file = close(writer)
    assert listing._gguf_format(file, header.peek(file)) == "GGUF Q8_0"


def test_architectures_that_run_one_request_at_a_time_are_those_of_the_documentation() -> None:
    text = {name for name, how in text_models().items() if how == "one request at a time"}
    seeing = {name for name, (how, _, _) in families().items() if how == "one request at a time"}
    assert text | seeing == listing.ONE_AT_A_TIME


def test_no_weights_and_no_heavy_module_are_read_for_each_model(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of 2 GB costs as much as its header."""
    folder = stores.folder(stores.lm_studio / "p" / "x")
    file = stores.model(stores.home / "large.gguf")
    os.truncate(file, 2**31)  # sparse
    stores.lm_studio.joinpath("p", "y").mkdir()
    file.rename(stores.lm_studio / "p" / "y" / "y-F32.gguf")
    listing.local_models()
    started = time.thread_time()
    assert [model.name for model in listing.local_models()] == ["p/x", "p/y:F32"]
    assert time.thread_time() - started < 1
    assert folder.exists()
