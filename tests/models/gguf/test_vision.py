"""Models whose vision encoder is in a file next to them, as llama.cpp's own converter makes both."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from mlx import nn
from mlx.utils import tree_flatten
from PIL import Image

from localai_shim import LocalOpenAI
from localai_shim.media import Media
from localai_shim.models.gguf.checkpoint import read_seeing_checkpoint
from localai_shim.models.loading import load_model
from localai_shim.models.text import TextModel
from localai_shim.models.vision.model import VisionModel, on_device
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests.endpoints.pictures import BLUE, RED, data_url
from tests.models.gguf import writing
from tests.models.gguf.checkpoints import PLACES, PROMPT
from tests.models.gguf.converting import CONVERTED, unpack
from tests.models.gguf.pictured import SEEING, image_prompt, pixtral_image

NAME = "gemma3-vision"


def unpack_both(name: str, folder: Path) -> Path:
    """A model, with its encoder in the same folder."""
    unpack(f"mmproj-{name}", folder)
    return unpack(name, folder)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return unpack_both(NAME, tmp_path)


def load(file: Path, **options: Any) -> VisionModel:
    model = load_model(str(file), LoadOptions(**options))
    assert isinstance(model, VisionModel)
    return model


def logits(model: VisionModel, name: str = NAME) -> np.ndarray:
    """Logits for a family's prompt with an image."""
    ids = image_prompt(name, model.tokenizer.get_vocab())
    inputs = {key: mx.array(value) for key, value in SEEING[name].inputs.items()}
    made = model._embeddings(mx.array([ids]), inputs.pop("pixel_values"), **inputs)
    names = ("position_ids", "visual_pos_masks", "deepstack_visual_embeds")
    more = {each: value for each in names if (value := getattr(made, each)) is not None}
    return np.array(model._language(mx.array([ids]), inputs_embeds=made.inputs_embeds, **more).logits[0, PLACES])


@pytest.mark.parametrize("name", SEEING)
def test_a_model_with_its_encoder_gives_the_logits_of_transformers(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "localai_shim"):
        model = load(unpack_both(name, tmp_path))
    expected = np.load(CONVERTED / "logits.npz")[name]
    assert np.abs(expected).max() > 0.5
    assert np.allclose(logits(model, name)[:, : expected.shape[1]], expected, atol=1e-3)  # some weights are in float16
    assert f"'{name}.gguf' reads images with the vision encoder in 'mmproj-{name}.gguf'" in caplog.text


PACKED = {
    NAME: r".*\.ffn_down\.weight",
    "qwen25-vision": r".*\.attn_[qkv]\.weight",
    "pixtral-vision": r".*\.attn_[qk]\.weight",
    "mistral3-vision": r".*\.(attn_[qk]|patch_merger)\.weight|mm\.\d\.weight",
    "qwen3-vision": r"v\.position_embd\.weight|.*\.attn_qkv\.weight|(v\.deepstack\.2\.fc\d|mm\.\d)\.weight",
}
"""Tensors that are packed, of those whose rows have a multiple of 32 columns."""


@pytest.mark.parametrize("name", PACKED)
def test_an_encoder_in_8_bits_is_read(name: str, tmp_path: Path) -> None:
    file = unpack_both(name, tmp_path)
    expected = logits(load(file), name)

    def packed(tensor: str, values: np.ndarray) -> tuple[np.ndarray, Type] | None:
        is_packed = re.fullmatch(PACKED[name], tensor)
        return (gguf.quants.quantize(values, Type.Q8_0), Type.Q8_0) if is_packed else None

    rewrite_encoder(file, packed)
    found = logits(load(file), name)
    assert 0 < np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)


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


def test_tensors_of_one_layer_must_have_one_type(tmp_path: Path) -> None:
    file = unpack_both("qwen25-vision", tmp_path)

    def packed(tensor: str, values: np.ndarray) -> tuple[np.ndarray, Type] | None:
        is_packed = tensor.endswith("attn_q.weight")
        return (gguf.quants.quantize(values, Type.Q8_0), Type.Q8_0) if is_packed else None

    rewrite_encoder(file, packed)
    with pytest.raises(ModelLoadError, match=r"'v.blk.0.attn_q.weight', .* are one layer, and must have one type"):
        load(file)


@pytest.mark.parametrize("name", ["v.patch_embd.weight", "v.blk.0.ln1.weight", "mm.input_projection.weight"])
def test_a_quantized_tensor_of_no_layer_is_an_error(name: str, file: Path) -> None:
    def packed(tensor: str, values: np.ndarray) -> tuple[np.ndarray, Type] | None:
        raw = np.zeros((*values.shape[:-1], 32), np.float32)
        return (gguf.quants.quantize(raw, Type.Q8_0), Type.Q8_0) if tensor == name else None

    rewrite_encoder(file, packed)
    with pytest.raises(ModelLoadError, match=f"tensor '{re.escape(name)}' is quantized, which only layers can be"):
        load(file)


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


def test_pixels_are_normalized_as_the_encoder_file_says(file: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (56, 56, 3), dtype=np.uint8)
    made = load(file).text.process(Media("image", image, ""))
    expected = (image.transpose(2, 0, 1) / 255 - 0.5) / 0.5
    assert np.allclose(made.inputs["pixel_values"][0], expected, atol=1e-5)
    assert len(made.tokens) > 4


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("qwen2-vision", (90, 60)),
        ("qwen25-vision", (300, 100)),
        ("qwen3-vision", (90, 60)),
        ("qwen3moe-vision", (90, 60)),
        ("qwen35-vision", (90, 60)),
        ("smolvlm-vision", (300, 100)),
        ("pixtral-vision", (90, 60)),
        ("mistral3-vision", (60, 90)),
    ],
)
def test_images_are_processed_as_transformers_does(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    model = load(unpack_both(name, tmp_path))
    made = model.text.process(Media("image", image, ""))
    expected = oracle(name)(images=[Image.fromarray(image)], return_tensors="np")
    assert set(made.inputs) == set(expected)
    for key, values in expected.items():
        assert np.allclose(np.array(on_device(made.inputs[key])), values, atol=1e-5), key
    features = model.embed(made).rows
    tokens = SEEING[name].tokens
    place = tokens.get("image_token_id") or tokens["image_token_index"]
    assert features.shape[0] == list(made.tokens).count(model.tokenizer.convert_tokens_to_ids(place))


def oracle(name: str) -> Any:
    """transformers' processor of images, with the settings of a family's checkpoint."""
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    seeing = SEEING[name]
    vision = seeing.settings["vision_config"]
    if "[IMG]" in seeing.tokens.values():
        patch = vision["patch_size"] * seeing.settings.get("spatial_merge_size", 1)
        return PixtralImageProcessorPil(patch_size={"height": patch, "width": patch}, **seeing.preprocessor)
    if seeing.kind == "SmolVLM":
        return Idefics3ImageProcessorPil(max_image_size={"longest_edge": vision["image_size"]}, **seeing.preprocessor)
    least, most = (65536, 16777216) if seeing.kind.startswith("Qwen3") else (3136, 12845056)  # as published
    return Qwen2VLImageProcessorPil(
        patch_size=vision["patch_size"], min_pixels=least, max_pixels=most, **seeing.preprocessor
    )


def test_tiles_of_an_image_are_marked_as_transformers_does(tmp_path: Path) -> None:
    from transformers.models.idefics3.processing_idefics3 import Idefics3Processor

    name = "smolvlm-vision"
    image = np.zeros((300, 100, 3), np.uint8)
    made = load(unpack_both(name, tmp_path)).text.process(Media("image", image, ""))
    oracle = SimpleNamespace(
        image_token="<image>",
        fake_image_token="<fake_token_around_image>",
        global_image_tag="<global-img>",
        image_seq_len=4,
    )
    expected = Idefics3Processor.replace_image_token(cast(Any, oracle), {"rows": [[3]], "cols": [[1]]}, 0)
    assert made.expansion == expected
    assert made.inputs["pixel_values"].shape == (1, 4, 3, 56, 56)


@pytest.mark.parametrize(("name", "rows", "columns"), [("pixtral-vision", 8, 6), ("mistral3-vision", 4, 3)])
def test_rows_of_an_image_end_with_a_token(name: str, rows: int, columns: int, tmp_path: Path) -> None:
    made = load(unpack_both(name, tmp_path)).text.process(Media("image", np.zeros((90, 60, 3), np.uint8), ""))
    assert made.expansion == "".join(pixtral_image(rows, columns))


def test_the_embedding_of_a_token_in_an_encoder_file_is_skipped(tmp_path: Path) -> None:
    file = unpack_both("pixtral-vision", tmp_path)
    expected = logits(load(file), "pixtral-vision")
    rewrite_encoder(file, more={"v.token_embd.img_break": np.ones(32, np.float32)})
    assert (logits(load(file), "pixtral-vision") == expected).all()


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


@pytest.mark.parametrize("name", [name for name in SEEING if name.startswith("qwen")])
def test_models_of_qwen_read_videos(name: str, tmp_path: Path) -> None:
    model = load(unpack_both(name, tmp_path))
    frames = np.random.default_rng(0).integers(0, 256, (4, 56, 56, 3), dtype=np.uint8)
    made = model.text.process(Media("video", frames, "", rate=2.0))
    features = model.embed(made).rows
    place = model.tokenizer.convert_tokens_to_ids("<|video_pad|>")
    assert features.shape[0] == list(made.tokens).count(place) > 1


@pytest.mark.parametrize("name", ["ministral3-vision", "qwen3-vision", "qwen35-vision"])
def test_a_neighbor_in_a_batch_does_not_change_an_answer_about_an_image(name: str, tmp_path: Path) -> None:
    """Some are longer than the context before it was stretched."""
    prompts = [PROMPT[:3], [*PROMPT, *PROMPT], PROMPT]
    with LocalOpenAI(model=unpack_both(name, tmp_path)) as client:

        def ask(prompts: list[list[int]]) -> list[Any]:
            done = client.completions.create(model="any", prompt=prompts, max_tokens=4, temperature=0, logprobs=1)
            return [choice.logprobs and choice.logprobs.token_logprobs for choice in done.choices]

        assert np.allclose(ask(prompts), [ask([prompt])[0] for prompt in prompts], atol=1e-4)


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
            "encoders of the kind 'qwen9vl' cannot be read with 'gemma3', only gemma3 with gemma3, ",
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


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        (NAME, {"clip.vision.n_wa_pattern": 4}, "its metadata has 'clip.vision.n_wa_pattern', which is not known"),
        (NAME, {"clip.has_audio_encoder": True}, "'clip.has_audio_encoder' is True, and mlx-vlm computes with False"),
        ("qwen25-vision", {"clip.use_silu": False}, "'clip.use_silu' is False, and mlx-vlm computes with True"),
        (
            "qwen2-vision",
            {"clip.vision.attention.layer_norm_epsilon": 0.5},
            "'clip.vision.attention.layer_norm_epsilon' is 0.5, and mlx-vlm computes with 1e-06",
        ),
    ],
)
def test_an_encoder_with_other_settings_than_the_class_has_is_not_used_and_logged(
    name: str, change: dict[str, Any], why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = unpack_both(name, tmp_path)
    rewrite_encoder(file, metadata=change)
    with caplog.at_level(logging.INFO, "localai_shim"):
        assert type(load_model(str(file), LoadOptions())) is TextModel
    assert why in caplog.text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda name: name.replace("v.blk.1.ln1", "v.blk.1.ln9"), "tensor 'v.blk.1.ln9.weight' is not known"),
        (lambda name: name.replace("v.blk.2.", "v.blk.7."), "there are tensors of 3 layers, up to number 7"),
        (lambda name: name.replace("mm.2.", "mm.blk.2."), "tensor 'mm.blk.2.bias' is not known"),
    ],
)
def test_tensors_with_wrong_names_are_an_error(change: Callable[[str], str], why: str, tmp_path: Path) -> None:
    file = unpack_both("qwen25-vision", tmp_path)
    rewrite_encoder(file, rename=change)
    with pytest.raises(ModelLoadError, match=re.escape(why)):
        load(file)


def test_a_tensor_of_another_shape_is_an_error(tmp_path: Path) -> None:
    file = unpack_both("pixtral-vision", tmp_path)
    rewrite_encoder(file, lambda name, values: (values[:, :16], Type.F32) if name == "mm.1.weight" else None)
    with pytest.raises(ModelLoadError, match=r"does not have the tensors of its kind: Expected shape \(32, 32\)"):
        load(file)


@pytest.mark.parametrize(
    ("name", "setting", "value", "why"),
    [
        (
            "qwen25-vision",
            "block_count",
            1 << 30,
            "'clip.vision.block_count' is 1073741824, but there are tensors of 3",
        ),
        ("qwen25-vision", "embedding_length", 1 << 30, "is 1073741824, but patches have 32 numbers"),
        (
            "qwen25-vision",
            "attention.head_count",
            3,
            "attention.head_count', 3, does not divide 32",
        ),
        ("smolvlm-vision", "image_size", 3, "images of 3 pixels have no patch of 7"),
        ("qwen25-vision", "n_wa_pattern", 0, "the metadata lacks 'clip.vision.n_wa_pattern', or it is 0"),
        ("mistral3-vision", "image_size", 1 << 20, "images of 1048576 pixels have more than 1024 patches of 7"),
        ("mistral3-vision", "spatial_merge_size", 1, "the metadata lacks 'clip.vision.spatial_merge_size', which"),
    ],
)
def test_a_setting_that_cannot_be_is_an_error(name: str, setting: str, value: int, why: str, tmp_path: Path) -> None:
    file = unpack_both(name, tmp_path)
    rewrite_encoder(file, metadata={f"clip.vision.{setting}": value})
    with pytest.raises(ModelLoadError, match=rf"{re.escape(why)}.*\. Pass text_only=True to load the model without"):
        load(file)


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("qwen25-vision", {"qwen2vl.rope.scaling.type": "yarn"}, "rope scaling is not supported with images"),
        ("qwen3-vision", {"qwen3vl.n_deepstack_layers": 3}, "the language model reads those of 3"),
        ("smolvlm-vision", {"llama.rope.scaling.type": "yarn"}, "rope scaling is not supported with images"),
        ("pixtral-vision", {"llama.rope.scaling.type": "yarn"}, "rope scaling is not supported with images"),
    ],
)
def test_a_language_model_that_cannot_read_images_is_an_error(
    name: str, change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    file = unpack_both(name, tmp_path)
    writing.rewrite(file, tmp_path / "new", lambda *_: None, metadata=change).replace(file)
    with pytest.raises(ModelLoadError, match=rf"{re.escape(why)}.*\. Pass text_only=True to load the model without"):
        load(file)
    assert type(load_model(str(file), LoadOptions(text_only=True))) is TextModel


def test_an_encoder_that_is_damaged_is_an_error(file: Path, tmp_path: Path) -> None:
    encoder = tmp_path / f"mmproj-{NAME}.gguf"
    encoder.write_bytes(encoder.read_bytes()[:-5000])
    with pytest.raises(ModelLoadError, match=r"mmproj-gemma3-vision.gguf' is damaged, or was not downloaded complete"):
        load(file)
    write_encoder(encoder, {})
    with pytest.raises(ModelLoadError, match=r"the metadata lacks 'clip.vision.block_count'"):
        load(file)


def write_encoder(path: Path, changes: dict[str, Any]) -> None:
    """Write an encoder that has little but its kind."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_string("clip.projector_type", changes.get("clip.projector_type", "gemma3"))
    writer.add_uint32("clip.vision.projection_dim", changes.get("clip.vision.projection_dim", 32))
    writer.add_tensor("v.patch_embd.weight", np.ones((4, 4), np.float32))
    writing.close(writer)


def rewrite_encoder(
    file: Path,
    change: Callable[[str, np.ndarray], tuple[np.ndarray, Type] | None] = lambda *_: None,
    rename: Callable[[str], str] = str,
    metadata: Mapping[str, Any] = MappingProxyType({}),
    more: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> None:
    """Write the encoder of a model again; see `rewrite`."""
    encoder = file.with_name(f"mmproj-{file.name}")
    new = writing.rewrite(encoder, encoder.with_suffix(".new"), change, rename, metadata, more)
    new.replace(encoder)
