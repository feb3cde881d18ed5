"""Models whose vision encoder is in a file next to them, as llama.cpp's own converter makes both."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from localai_shim import LocalOpenAI
from localai_shim.media import Media
from localai_shim.models.loading import load_model
from localai_shim.models.text import TextModel
from localai_shim.models.vision.model import VisionModel
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests.endpoints.pictures import BLUE, RED, data_url
from tests.models.gguf import writing
from tests.models.gguf.converting import CONVERTED, unpack
from tests.models.gguf.originals import IMAGE_TOKENS, PIXELS, PLACES, image_prompt

NAME = "gemma3-vision"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A model, and its encoder in the same folder."""
    unpack(f"mmproj-{NAME}", tmp_path)
    return unpack(NAME, tmp_path)


def load(file: Path, **options: Any) -> VisionModel:
    model = load_model(str(file), LoadOptions(**options))
    assert isinstance(model, VisionModel)
    return model


def logits(model: VisionModel) -> np.ndarray:
    """Logits for the prompt with an image of which the encoder reads `PIXELS`."""
    first = model.tokenizer.convert_tokens_to_ids(IMAGE_TOKENS[0])
    ids = mx.array([image_prompt(first)])
    made = model._embeddings(ids, mx.array(PIXELS))
    return np.array(model._language(ids, inputs_embeds=made.inputs_embeds).logits[0, PLACES])


def test_a_model_with_its_encoder_gives_the_logits_of_transformers(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "localai_shim"):
        model = load(file)
    expected = np.load(CONVERTED / "logits.npz")[NAME]
    assert np.abs(expected).max() > 0.5
    assert np.allclose(logits(model)[:, : expected.shape[1]], expected, atol=1e-3)  # the projection is in float16
    assert f"'{file.name}' reads images with the vision encoder in 'mmproj-{NAME}.gguf'" in caplog.text


def test_an_encoder_in_8_bits_is_read(file: Path, tmp_path: Path) -> None:
    encoder = tmp_path / f"mmproj-{NAME}.gguf"
    expected = logits(load(file))

    def packed(name: str, values: np.ndarray) -> tuple[np.ndarray, Type] | None:
        is_packed = ".ffn_down.weight" in name
        return (gguf.quants.quantize(values, Type.Q8_0), Type.Q8_0) if is_packed else None

    writing.rewrite(encoder, encoder.with_suffix(".new"), packed)
    encoder.with_suffix(".new").replace(encoder)
    found = logits(load(file))
    assert 0 < np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)


def test_feed_forward_layers_are_told_apart_by_their_shapes(file: Path, tmp_path: Path) -> None:
    """Older converters give each the name of the other."""
    expected = logits(load(file))
    encoder = tmp_path / f"mmproj-{NAME}.gguf"
    other = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}

    def renamed(name: str) -> str:
        *start, part, ending = name.split(".")
        return ".".join([*start, other.get(part, part), ending])

    writing.rewrite(encoder, encoder.with_suffix(".new"), lambda *_: None, renamed)
    encoder.with_suffix(".new").replace(encoder)
    assert (logits(load(file)) == expected).all()


def test_pixels_are_normalized_as_the_encoder_file_says(file: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (56, 56, 3), dtype=np.uint8)
    made = load(file).text.process(Media("image", image, ""))
    expected = (image.transpose(2, 0, 1) / 255 - 0.5) / 0.5
    assert np.allclose(made.inputs["pixel_values"][0], expected, atol=1e-5)
    assert len(made.tokens) > 4


def test_clients_send_images(file: Path) -> None:
    def ask(client: LocalOpenAI, color: tuple[int, int, int]) -> Any:
        image = {"type": "image_url", "image_url": {"url": data_url(color)}}
        messages: Any = [{"role": "user", "content": [{"type": "text", "text": "What?"}, image]}]
        done = client.chat.completions.create(
            messages=messages, model="any", max_tokens=4, temperature=0, logprobs=True
        )
        assert done.choices[0].logprobs and done.choices[0].logprobs.content
        return [each.logprob for each in done.choices[0].logprobs.content]

    with LocalOpenAI(model=file) as client:
        red, blue, again = (ask(client, color) for color in (RED, BLUE, RED))
    assert red == again != blue


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


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"clip.projector_type": "qwen9vl"},
            "encoders of the kind 'qwen9vl' cannot be read with 'gemma3', only those of",
        ),
        ({"clip.vision.projection_dim": 64}, "its features have 64 numbers, and the model's embeddings 32"),
    ],
)
def test_an_encoder_that_does_not_fit_is_not_used_and_logged(
    change: dict[str, Any], why: str, file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_encoder(tmp_path / f"mmproj-{NAME}.gguf", change)
    with caplog.at_level(logging.INFO, "localai_shim"):
        assert type(load_model(str(file), LoadOptions())) is TextModel
    assert f"'{file.name}' is loaded as a text model: the vision encoder in 'mmproj-{NAME}.gguf'" in caplog.text
    assert why in caplog.text


def test_an_encoder_that_is_damaged_is_an_error(file: Path, tmp_path: Path) -> None:
    encoder = tmp_path / f"mmproj-{NAME}.gguf"
    encoder.write_bytes(encoder.read_bytes()[:-5000])
    with pytest.raises(ModelLoadError, match=r"mmproj-gemma3-vision.gguf' is damaged, or was not downloaded complete"):
        load(file)
    write_encoder(encoder, {})
    with pytest.raises(ModelLoadError, match=r"the metadata's 'clip.vision.image_size' is missing"):
        load(file)


def write_encoder(path: Path, changes: dict[str, Any]) -> None:
    """Write an encoder that has little but its kind."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_string("clip.projector_type", changes.get("clip.projector_type", "gemma3"))
    writer.add_uint32("clip.vision.projection_dim", changes.get("clip.vision.projection_dim", 32))
    writer.add_tensor("v.patch_embd.weight", np.ones((4, 4), np.float32))
    writing.close(writer)
