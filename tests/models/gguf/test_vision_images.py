"""Images, videos, and audio for models whose encoders are in a GGUF file."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import mlx.core as mx
import numpy as np
import pytest
from PIL import Image

from localai_shim import LocalOpenAI
from localai_shim.media import Media
from localai_shim.models.vision.model import on_device
from tests.models.gguf.image_families import SEEING
from tests.models.gguf.image_parts import gemma4_image, pixtral_image
from tests.models.gguf.seeing import load, unpack_both
from tests.prompt.media.files import SINE, wav

READS_VIDEOS = re.compile(r"gemma4-(vision|e2b)|qwen(?!3omni)")


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
        ("glm4v-moe", (300, 100)),
        ("smolvlm-vision", (300, 100)),
        ("pixtral-vision", (90, 60)),
        ("mistral3-vision", (60, 90)),
        ("dots-ocr", (90, 60)),
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
    from transformers.models.glm46v.image_processing_pil_glm46v import Glm46VImageProcessorPil
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    seeing = SEEING[name]
    vision = seeing.settings["vision_config"]
    if "[IMG]" in seeing.tokens.values():
        patch = vision["patch_size"] * seeing.settings.get("spatial_merge_size", 1)
        return PixtralImageProcessorPil(patch_size={"height": patch, "width": patch}, **seeing.preprocessor)
    if seeing.kind == "Glm4vMoe":
        return Glm46VImageProcessorPil(patch_size=vision["patch_size"], **seeing.preprocessor)
    if seeing.kind == "DotsOCR":
        return Qwen2VLImageProcessorPil(**seeing.preprocessor)
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


@pytest.mark.parametrize("size", [(90, 60), (300, 100)])
def test_gemma_4_gets_the_patches_of_transformers(size: tuple[int, int], tmp_path: Path) -> None:
    from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil, convert_image_to_patches

    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    model = load(unpack_both("gemma4-vision", tmp_path))
    made = model.text.process(Media("image", image, ""))
    expected = Gemma4ImageProcessorPil(patch_size=4)(images=[Image.fromarray(image)], return_tensors="np")
    (tokens,) = expected["num_soft_tokens_per_image"]
    found = convert_image_to_patches(made.inputs["pixel_values"][0], 4)
    assert np.allclose(found, expected["pixel_values"][0, : len(found)], atol=1e-5)
    assert len(found) == 9 * tokens
    assert made.expansion == "".join(gemma4_image(tokens))
    assert model.embed(made).rows.shape[0] == tokens


def test_images_of_internvl_are_cut_into_tiles(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (28, 56, 3), dtype=np.uint8)
    made = load(unpack_both("internvl-qwen2", tmp_path)).text.process(Media("image", image, ""))
    assert made.expansion == f"<img>{'<IMG_CONTEXT>' * 4 * 3}</img>"  # two tiles, and the image in the size of one
    mean, deviation = (SEEING["internvl-qwen2"].preprocessor[name] for name in ("image_mean", "image_std"))
    expected = ((image / 255 - mean) / deviation).transpose(2, 0, 1)
    found = made.inputs["pixel_values"][0]
    assert found.shape == (3, 3, 28, 28)
    assert np.allclose(np.concatenate([found[0], found[1]], axis=-1), expected, atol=1e-5)


@pytest.mark.parametrize("size", [(20, 20), (56, 56), (300, 100), (40, 200)])
def test_minicpm_gets_the_parts_of_an_image_as_from_transformers(size: tuple[int, int], tmp_path: Path) -> None:
    """Some have parts of two sizes."""
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil
    from transformers.models.minicpmv4_6.processing_minicpmv4_6 import MiniCPMV4_6Processor

    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    model, settings = load(unpack_both("minicpmv-vision", tmp_path)), SEEING["minicpmv-vision"].preprocessor
    made = model.text.process(Media("image", image, ""))
    expected = MiniCPMV4_6ImageProcessorPil(patch_size=4, **settings)([Image.fromarray(image)], return_tensors="np")
    assert np.allclose(made.inputs["pixel_values"], expected["pixel_values"], atol=1e-5)
    assert np.array_equal(made.inputs["tgt_sizes"][0], expected["target_sizes"])
    oracle = SimpleNamespace(
        image_token="<|image_pad|>",
        image_start_token="<image>",
        image_end_token="</image>",
        slice_start_token="<slice>",
        slice_end_token="</slice>",
        slice_mode=True,
    )
    text = MiniCPMV4_6Processor.replace_image_token(cast(Any, oracle), expected, 0, image_token_divisor=16)
    assert made.expansion == f"<image_id>0</image_id>{text}"
    assert model.embed(made).rows.shape[0] == text.count("<|image_pad|>")


def test_images_of_minicpm_are_numbered(tmp_path: Path) -> None:
    from tests.models.vision.seeing import prompt_of

    model = load(unpack_both("minicpmv-vision", tmp_path))
    images = [model.text.process(Media("image", np.zeros((20, 20, 3), np.uint8), "")) for _ in range(2)]
    text = model.tokenizer.decode(prompt_of(model, images).tokens)
    assert text.count("<image_id>0</image_id><image>") == text.count("<image_id>1</image_id><image>") == 1


def test_gemma_4_12b_gets_the_patches_of_transformers(tmp_path: Path) -> None:
    from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil

    image = np.random.default_rng(0).integers(0, 256, (90, 60, 3), dtype=np.uint8)
    model = load(unpack_both("gemma4-12b-vision", tmp_path))
    made = model.text.process(Media("image", image, ""))
    (count,) = Gemma4ImageProcessorPil(patch_size=4, pooling_kernel_size=2)([Image.fromarray(image)])[
        "num_soft_tokens_per_image"
    ]
    assert made.expansion == "".join(gemma4_image(count))
    assert model.embed(made).rows.shape[0] == count


@pytest.mark.parametrize("name", [name for name in SEEING if READS_VIDEOS.match(name)])
def test_videos_are_read(name: str, tmp_path: Path) -> None:
    model = load(unpack_both(name, tmp_path))
    frames = np.random.default_rng(0).integers(0, 256, (4, 56, 56, 3), dtype=np.uint8)
    made = model.text.process(Media("video", frames, "", rate=2.0))
    features = model.embed(made).rows
    place = model.tokenizer.convert_tokens_to_ids(SEEING[name].tokens["video_token_id"])
    assert features.shape[0] == list(made.tokens).count(place) > 1


@pytest.mark.parametrize("name", ["qwen3omni-vision", "minicpmv-vision", "gemma4-12b-vision"])
def test_videos_and_audio_of_other_families_are_refused(name: str, tmp_path: Path) -> None:
    assert load(unpack_both(name, tmp_path)).text.media_kinds == {"image"}


@pytest.mark.parametrize(("length", "tokens"), [(24000, 38), (16000, 25), (16100, 25), (16200, 26)])
def test_gemma_4_hears_as_transformers_does(length: int, tokens: int, tmp_path: Path) -> None:
    """The last token has its own features: mlx-vlm counts 26 tokens for 16100 samples, which have 25."""
    from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor

    model = load(unpack_both("gemma4-e2b-vision", tmp_path))
    samples = np.random.default_rng(0).normal(0, 0.1, length).astype(np.float32)
    made = model.text.process(Media("audio", samples, "", rate=16000.0))
    expected = Gemma4AudioFeatureExtractor()([samples], return_tensors="np")
    for key in ("input_features", "input_features_mask"):
        assert np.allclose(made.inputs[key], expected[key], atol=1e-3), key
    assert made.expansion == f"<|audio>{'<|audio|>' * tokens}<audio|>"
    rows = model.embed(made).rows
    assert rows.shape[0] == tokens
    assert not mx.allclose(rows[0], rows[-1], atol=1e-3)


def test_clients_send_audio(tmp_path: Path) -> None:
    with LocalOpenAI(model=unpack_both("gemma4-e2b-vision", tmp_path)) as client:

        def ask(volume: int) -> Any:
            data = base64.b64encode(wav((SINE * volume).astype(np.int16))).decode()
            part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
            messages: Any = [{"role": "user", "content": [{"type": "text", "text": "What?"}, part]}]
            done = client.chat.completions.create(
                messages=messages, model="any", max_tokens=4, temperature=0, logprobs=True
            )
            assert done.usage and done.usage.prompt_tokens_details
            assert done.usage.prompt_tokens_details.audio_tokens
            assert done.choices[0].logprobs and done.choices[0].logprobs.content
            return [each.logprob for each in done.choices[0].logprobs.content]

        loud, quiet = ask(9000), ask(90)
    assert not np.allclose(loud[:1], quiet[:1], atol=1e-3)
