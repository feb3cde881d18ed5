"""Videos and sounds, where the model and mlx-vlm read them: tokens and logits are those of `mlx_vlm.generate_step`."""

from __future__ import annotations

import re

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.media import Media, MediaKind
from localai_shim.models.text import render
from localai_shim.models.vision.families import _AUDIO_FAMILIES, _VIDEO_FAMILIES
from localai_shim.models.vision.model import VisionModel
from localai_shim.models.vision.processor import _resampled
from localai_shim.types import Prompt
from tests.models.vision.seeing import CHUNK, QUESTION, WHOLE, compare, generate, load, poison, prepared
from tests.models_page import DOCUMENT
from tests.vision import film, picture, sound, user

SWEPT = ("qwen2_5_vl", "gemma4")
VIDEO = ["qwen2_vl", "qwen3_vl", "qwen3_5", "gemma4_bidirectional", *SWEPT]
VIDEO_PARAMS = [pytest.param(kind, marks=pytest.mark.exhaustive if kind in SWEPT else ()) for kind in VIDEO]


def question(model: VisionModel, *kinds: MediaKind) -> str:
    return render(model.tokenizer, user(QUESTION, *kinds), {}, None, True)


@pytest.mark.parametrize("kind", VIDEO_PARAMS)
def test_a_video(kind: str) -> None:
    model = load(kind)
    poison(model)
    media = [film(5, 56, 84)]
    compare(model, media, prepared(kind, question(model, "video"), media))


@pytest.mark.parametrize("kind", VIDEO_PARAMS)
def test_a_video_beside_an_image(kind: str) -> None:
    """In one piece and in chunks; mlx-vlm's own code for Qwen2-VL reads one kind only."""
    model = load(kind)
    poison(model)
    items = [model.text.process(picture(60, 80)), model.text.process(film(4, 56, 84))]
    ids = model.text.apply_chat_template(user("Both", "image", "video"), {}, media=items)
    spans = model.text.spans(ids, items)
    assert [span.media.kind for span in spans] == ["image", "video"]
    prompt, features = Prompt(ids, media=spans), [model.embed(item) for item in items]
    whole, chunked = (generate(model, prompt, features, most) for most in (WHOLE, CHUNK))
    for (_, one), (_, other) in zip(whole, chunked, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_frames_and_their_rate_matter() -> None:
    """Qwen3-VL's processor writes the time of each pair of frames."""
    text = load("qwen3_vl").text
    assert text.process(film(4, 56, 84, rate=2.0)).expansion.startswith("<0.2 seconds>")
    assert text.process(film(4, 56, 84, rate=0.5)).expansion.startswith("<1.0 seconds>")
    more, fewer = (len(text.process(film(n, 56, 84)).tokens) for n in (8, 4))
    assert more > fewer


def test_a_sound() -> None:
    model = load("gemma4")
    assert model.text.media_kinds == {"image", "video", "audio"}
    media = [sound(0.6)]
    compare(model, media, prepared("gemma4", question(model, "audio"), media))


def test_a_model_without_an_audio_tower_reads_no_sound() -> None:
    text = load("gemma4_bidirectional").text
    with pytest.raises(ValueError, match="does not read audio; it reads image, video"):
        text.process(sound(0.1))


def test_a_sound_is_brought_to_the_rate_of_the_model() -> None:
    text = load("gemma4").text
    times = np.arange(16_000) / 16_000
    tone = np.sin(2 * np.pi * 440 * times).astype(np.float32)
    twice = np.sin(2 * np.pi * 440 * np.arange(32_000) / 32_000).astype(np.float32)
    made = [
        text.process(Media("audio", samples, "x", rate=rate)) for samples, rate in ((tone, 16_000.0), (twice, 32_000.0))
    ]
    assert len(made[0].tokens) == len(made[1].tokens)
    np.testing.assert_allclose(_resampled(twice, 32_000.0, 16_000), tone, atol=1e-3)
    assert len(_resampled(tone[:8000], 8_000.0, 16_000)) == 16_000


def test_frequencies_above_the_new_rate_do_not_come_back_as_others() -> None:
    high = np.sin(2 * np.pi * 15_000 * np.arange(48_000) / 48_000).astype(np.float32)
    assert np.abs(_resampled(high, 48_000.0, 16_000)).max() < 1e-3


def test_an_empty_sound_is_refused() -> None:
    with pytest.raises(ValueError, match="audio"):
        load("gemma4").text.process(Media("audio", np.zeros(0, np.float32), "x", rate=16_000.0))


def test_a_sound_that_is_longer_than_the_model_hears_is_refused() -> None:
    """Its extractor would leave the end out without a word."""
    text = load("gemma4").text
    with pytest.raises(ValueError, match=r"audio too long: 30\.5 s, maximum 30 s"):
        text.process(sound(30.5))
    with pytest.raises(ValueError, match="too long: 31"):
        text.process(sound(31, rate=1000.0))
    assert text.process(sound(30, rate=1000.0)).tokens


def test_features_are_evaluated() -> None:
    model = load("gemma4")
    features = model.embed(model.text.process(sound(0.3)))
    assert features.rows.shape[0] > 0 and features.nbytes == features.rows.nbytes
    assert isinstance(features.rows, mx.array)


def test_the_documentation_names_the_families_of_videos_and_of_audio() -> None:
    text = " ".join(DOCUMENT.read_text(encoding="utf-8").split())
    said = re.search(r"video with (.*?), and audio with (.*?)\. `client", text)
    assert said is not None
    videos, sounds = (set(re.findall(r"`(\w+)`", part)) for part in said.groups())
    assert videos == _VIDEO_FAMILIES
    assert sounds == _AUDIO_FAMILIES


def test_the_table_of_well_known_families_says_what_is_read() -> None:
    page = DOCUMENT.with_name("models.md").read_text(encoding="utf-8")
    section = page.partition("read images, video, and audio\n")[2]
    rows = re.findall(r"^\| [^|`]+ \| ([^|]+) \| ([^|]+) \|$", section.partition("\n## ")[0], re.MULTILINE)[1:]
    assert len(rows) > 5
    for names, read in rows:
        for name in re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", names)):
            assert ("video" in read) == (name in _VIDEO_FAMILIES), name
            assert ("audio" in read) == (name in _AUDIO_FAMILIES), name
