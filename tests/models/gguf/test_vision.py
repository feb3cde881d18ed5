"""Models whose vision encoder is in a file next to them, as llama.cpp's own converter makes both."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from mlx import nn
from mlx.utils import tree_flatten

from localai_shim import LocalOpenAI
from localai_shim.models.gguf.checkpoint import read_seeing_checkpoint
from localai_shim.models.loading import load_model
from localai_shim.models.text import TextModel
from localai_shim.options import LoadOptions
from tests.endpoints.pictures import BLUE, RED, data_url
from tests.models.gguf import writing
from tests.models.gguf.checkpoints import PROMPT
from tests.models.gguf.converting import CONVERTED
from tests.models.gguf.image_families import SEEING
from tests.models.gguf.pictured import save_published
from tests.models.gguf.published_families import PUBLISHED
from tests.models.gguf.seeing import NAME, load, logits, rewrite_encoder, unpack_both
from tests.tiny import tiny


@pytest.mark.parametrize("name", [name for name in SEEING if name not in PUBLISHED])
def test_a_model_with_its_encoder_gives_the_logits_of_transformers(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "localai_shim"):
        model = load(unpack_both(name, tmp_path))
    expected = np.load(CONVERTED / "logits.npz")[name]
    assert np.abs(expected).max() > 0.5
    assert np.allclose(logits(model, name)[:, : expected.shape[1]], expected, atol=1e-3)  # some weights are in float16
    assert f"'{name}.gguf' reads images with the vision encoder in 'mmproj-{name}.gguf'" in caplog.text


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_that_transformers_lacks_gives_the_logits_of_its_folder(name: str, tmp_path: Path) -> None:
    """The oracle is mlx-vlm's class, which reads the checkpoint that the converter got."""
    save_published(name, tmp_path / "original", tiny("qwen3"))
    expected = logits(load(tmp_path / "original"), name)
    assert np.abs(expected).max() > 0.5
    assert np.allclose(logits(load(unpack_both(name, tmp_path)), name), expected, atol=1e-3)


PACKED = {
    "dots-ocr": r"v\..*\.(attn_qkv|ffn_up|ffn_gate)\.weight|mm\.[02]\.weight",
    "minicpmv-vision": r"v\..*\.(attn_[qkv]|ffn_up|ds_ffn_up)\.weight|mm\.(up|down)\.weight",
    "glm4v-moe": r"v\..*\.(attn_qkv|ffn_up)\.weight|mm\.(model\.fc|gate)\.weight",
    "internvl-qwen3": r"v\..*\.(attn_[qkv]|ffn_up)\.weight|mm\.model\.mlp\.[13]\.weight",
    "gemma4-e2b-vision": r"v\..*\.(attn_[qkv]|attn_out|ffn_up|ffn_gate)\.weight|mm\.input_projection\.weight",
    NAME: r".*\.ffn_down\.weight",
    "qwen25-vision": r".*\.attn_[qkv]\.weight",
    "pixtral-vision": r".*\.attn_[qk]\.weight",
    "mistral3-vision": r".*\.(attn_[qk]|patch_merger)\.weight|mm\.\d\.weight",
    "qwen3-vision": r"v\.position_embd\.weight|.*\.attn_qkv\.weight|(v\.deepstack\.2\.fc\d|mm\.\d)\.weight",
}
"""Tensors that are packed, of those whose rows have a multiple of 32 columns."""


@pytest.mark.parametrize("name", PACKED)
def test_an_encoder_in_8_bits_is_read(name: str, tmp_path: Path) -> None:
    """It gives the logits of the same values in float32."""
    file = unpack_both(name, tmp_path)
    encoder = file.with_name(f"mmproj-{file.name}")
    before, original = logits(load(file), name), encoder.read_bytes()

    def packed(tensor: str, values: np.ndarray) -> tuple[np.ndarray, Type] | None:
        is_packed = re.fullmatch(PACKED[name], tensor)
        return (gguf.quants.quantize(values, Type.Q8_0), Type.Q8_0) if is_packed else None

    def unpacked(tensor: str, values: np.ndarray) -> tuple[np.ndarray, Type] | None:
        found = packed(tensor, values)
        return found and (gguf.quants.dequantize(*found), Type.F32)

    rewrite_encoder(file, packed)
    found = logits(load(file), name)
    encoder.write_bytes(original)
    rewrite_encoder(file, unpacked)
    expected = logits(load(file), name)
    assert np.linalg.norm(found - expected) < 0.01 * np.linalg.norm(expected)
    assert (found != before).any()


def test_an_encoder_with_large_numbers_computes_in_bfloat16(tmp_path: Path) -> None:
    """Qwen2.5-VL's last layers exceed float16, in which the language model computes."""
    file = unpack_both("qwen25-vision", tmp_path)
    expected = logits(load(file), "qwen25-vision")
    halves = writing.rewrite(file, tmp_path / "new", lambda _, values: (values.astype(np.float16), Type.F16))
    halves.replace(file)
    model, _, _ = read_seeing_checkpoint(file)  # before it is prepared for a CPU
    for part, dtype in (("vision_tower", mx.bfloat16), ("language_model", mx.float16)):
        assert {array.dtype for _, array in tree_flatten(model[part].parameters())} == {dtype}
    found = logits(load(file), "qwen25-vision")
    assert np.linalg.norm(found - expected) < 0.05 * np.linalg.norm(expected)


@pytest.mark.parametrize("name", [NAME, "qwen2-vision", "qwen25-vision", "qwen3-vision"])
def test_feed_forward_layers_are_told_apart_by_their_shapes(name: str, tmp_path: Path) -> None:
    """Older converters give each the name of the other."""
    file = unpack_both(name, tmp_path)
    expected = logits(load(file), name)
    other = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}

    def renamed(name: str) -> str:
        *start, part, ending = name.split(".")
        return ".".join([*start, other.get(part, part), ending])

    rewrite_encoder(file, rename=renamed)
    assert (logits(load(file), name) == expected).all()


def test_the_embedding_of_a_token_in_an_encoder_file_is_skipped(tmp_path: Path) -> None:
    file = unpack_both("pixtral-vision", tmp_path)
    expected = logits(load(file), "pixtral-vision")
    rewrite_encoder(file, more={"v.token_embd.img_break": np.ones(32, np.float32)})
    assert (logits(load(file), "pixtral-vision") == expected).all()


def test_a_tied_head_is_the_embedding_for_a_class_that_has_both(tmp_path: Path) -> None:
    """A file has only one of them then; the class of dots.ocr has the head inside another part than other classes."""
    name = "dots-ocr"
    file = unpack_both(name, tmp_path)
    (embedding,) = (np.array(each.data) for each in gguf.GGUFReader(file).tensors if each.name == "token_embd.weight")

    def same(tensor: str, values: np.ndarray) -> tuple[np.ndarray, Type] | None:
        return (embedding, Type.F32) if tensor == "output.weight" else None

    writing.rewrite(file, tmp_path / "new", same).replace(file)
    expected = logits(load(file), name)
    writing.rewrite(
        file, tmp_path / "new", same, lambda tensor: "v.head" if tensor == "output.weight" else tensor
    ).replace(file)
    assert (logits(load(file), name) == expected).all()


@pytest.mark.parametrize("name", SEEING)
def test_clients_send_images(name: str, tmp_path: Path) -> None:
    def ask(client: LocalOpenAI, color: tuple[int, int, int]) -> Any:
        image = {"type": "image_url", "image_url": {"url": data_url(color)}}
        messages: Any = [{"role": "user", "content": [{"type": "text", "text": "What?"}, image]}]
        done = client.chat.completions.create(
            messages=messages, model="any", max_tokens=4, temperature=0, logprobs=True
        )
        assert done.choices[0].logprobs and done.choices[0].logprobs.content
        return [each.logprob for each in done.choices[0].logprobs.content]

    with LocalOpenAI(model=unpack_both(name, tmp_path)) as client:
        red, blue, again = (ask(client, color) for color in (RED, BLUE, RED))
    assert np.allclose(red, again, atol=1e-4)
    assert not np.allclose(red, blue, atol=1e-3)


def test_faults_of_mlx_vlm_are_mended_for_files_too(tmp_path: Path) -> None:
    """Its class has the two GELUs in each other's layers, which is less than a test of logits notices on a GPU."""
    tower = load(unpack_both("qwen3moe-vision", tmp_path))._model.vision_tower
    x = mx.linspace(-4, 4, 100)
    assert mx.allclose(tower.merger.act_fn(x), nn.gelu(x), rtol=0, atol=1e-5)
    assert mx.allclose(tower.blocks[0].mlp.act_fn(x), nn.gelu_approx(x), rtol=0, atol=1e-5)
    assert not mx.allclose(nn.gelu(x), nn.gelu_approx(x), rtol=0, atol=1e-4)
    layer = load(unpack_both("internvl-qwen2", tmp_path))._model.vision_model.encoder.layers[0]
    assert mx.allclose(layer.mlp.activation_fn(x), nn.gelu(x), rtol=0, atol=1e-5)
    glm = load(unpack_both("glm4v-moe", tmp_path))._model.vision_tower.blocks[0]
    assert glm.norm1.eps == glm.norm2.eps == pytest.approx(1e-5)


@pytest.mark.parametrize("name", ["gemma4-vision", "ministral3-vision", "qwen3-vision", "qwen35-vision"])
def test_a_neighbor_in_a_batch_does_not_change_an_answer_about_an_image(name: str, tmp_path: Path) -> None:
    """Some are longer than the context before it was stretched."""
    prompts = [PROMPT[:3], [*PROMPT, *PROMPT], PROMPT]
    with LocalOpenAI(model=unpack_both(name, tmp_path)) as client:

        def ask(prompts: list[list[int]]) -> list[Any]:
            done = client.completions.create(model="any", prompt=prompts, max_tokens=4, temperature=0, logprobs=1)
            return [choice.logprobs and choice.logprobs.token_logprobs for choice in done.choices]

        together, alone = ask(prompts), [ask([prompt])[0] for prompt in prompts]
        assert [len(each) for each in together] == [len(each) for each in alone]
        assert np.allclose(np.concatenate(together), np.concatenate(alone), atol=1e-4)


@pytest.mark.parametrize("name", ["gemma4-12b-vision", "qwen3omni-vision"])
def test_an_audio_encoder_that_is_skipped_is_logged(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "localai_shim"):
        load(unpack_both(name, tmp_path))
    assert "does not read audio: the audio encoder in the same file is skipped" in caplog.text


def test_an_audio_encoder_that_is_read_is_not_logged_as_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "localai_shim"):
        load(unpack_both("gemma4-e2b-vision", tmp_path))
    assert "does not read audio" not in caplog.text


def test_text_only_leaves_the_encoder_out(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "localai_shim"):
        model = load_model(str(file), LoadOptions(text_only=True))
    assert type(model) is TextModel
    assert "is not used, because text_only=True was passed" in caplog.text


def test_the_fingerprint_changes_with_the_encoder(file: Path, tmp_path: Path) -> None:
    first, encoder = load(file).fingerprint, tmp_path / f"mmproj-{NAME}.gguf"
    content = bytearray(encoder.read_bytes())
    content[-4] ^= 1
    encoder.write_bytes(content)
    assert load(file).fingerprint != first


def in_one_folder(folder: Path, model: bytes, encoder: bytes) -> Path:
    (folder / "mmproj-model-f16.gguf").write_bytes(encoder)
    (folder / "a.gguf").write_bytes(model)
    return folder / "a.gguf"


def in_the_cache_of_llama_cpp(folder: Path, model: bytes, encoder: bytes) -> Path:
    """All models share one folder."""
    (folder / "google_gemma-3_mmproj-model-f16.gguf").write_bytes(encoder)
    (folder / "google_other_mmproj-model-f16.gguf").write_bytes(b"GGUF")
    (folder / "google_gemma-3_it-Q4_K_M.gguf").write_bytes(model)
    return folder / "google_gemma-3_it-Q4_K_M.gguf"


def in_the_store_of_ollama(folder: Path, model: bytes, encoder: bytes) -> Path:
    names = {"model": "a" * 64, "projector": "b" * 64}
    (folder / "blobs").mkdir()
    for name, content in zip(names.values(), (model, encoder), strict=True):
        (folder / "blobs" / f"sha256-{name}").write_bytes(content)
    layers = [
        {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{name}"}
        for kind, name in names.items()
    ]
    manifest = folder / "manifests/registry.ollama.ai/library/gemma3/4b"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": layers}))
    manifest.with_name("broken").write_text("{")
    return folder / "blobs" / f"sha256-{names['model']}"


@pytest.mark.parametrize("store", [in_one_folder, in_the_cache_of_llama_cpp, in_the_store_of_ollama])
def test_an_encoder_is_found_where_tools_put_it(
    store: Callable[[Path, bytes, bytes], Path], file: Path, tmp_path: Path
) -> None:
    (tmp_path / "store").mkdir()
    encoder = tmp_path / f"mmproj-{NAME}.gguf"
    path = store(tmp_path / "store", file.read_bytes(), encoder.read_bytes())
    assert (logits(load(path)) == logits(load(file))).all()
