"""Content parts of both APIs: which fields hold what, which parts a model takes, and the errors' paths."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from localai_shim.errors import BadRequest
from localai_shim.media import MediaRules
from localai_shim.prompt.media.parts import open_media

AT = "messages[0].content[1]"


def png(colour: str = "red", size: tuple[int, int] = (3, 2)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, "PNG")
    return out.getvalue()


URL = "data:image/png;base64," + base64.b64encode(png()).decode()
RED = np.full((2, 3, 3), (255, 0, 0), np.uint8)


def refusal(part: dict[str, Any]) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        open_media(part, AT, MediaRules()).decode()
    return caught.value


@pytest.mark.parametrize(
    ("part", "field", "detail"),
    [
        ({"type": "image_url", "image_url": {"url": URL}}, "image_url.url", "auto"),
        ({"type": "image_url", "image_url": {"url": URL, "detail": "low"}}, "image_url.url", "low"),
        ({"type": "image_url", "image_url": {"url": URL, "detail": None}}, "image_url.url", "auto"),
        ({"type": "image_url", "image_url": URL}, "image_url", "auto"),
        ({"type": "input_image", "image_url": URL, "detail": "high"}, "image_url", "high"),
        ({"type": "input_image", "image_url": URL, "detail": "original", "file_id": None}, "image_url", "original"),
        ({"type": "input_image", "image_url": {"url": URL, "detail": "high"}}, "image_url.url", "high"),
    ],
)
def test_images_of_both_apis(part: dict[str, Any], field: str, detail: str) -> None:
    media = open_media(part, AT, MediaRules()).decode()
    assert (media.kind, media.detail, media.path, media.rate) == ("image", detail, f"{AT}.{field}", None)
    assert (media.data == RED).all()


@pytest.mark.parametrize("value", [Image.open(io.BytesIO(png())), RED, RED / 255, png(), bytearray(png())])
def test_objects_in_the_place_of_a_url(value: object) -> None:
    for part in ({"type": "image_url", "image_url": {"url": value}}, {"type": "input_image", "image_url": value}):
        assert (open_media(part, AT, MediaRules()).decode().data == RED).all()


def test_a_path_that_the_program_hands_in_needs_no_rule(tmp_path: Path) -> None:
    file = tmp_path / "red.png"
    file.write_bytes(png())
    assert (open_media({"type": "input_image", "image_url": file}, AT, MediaRules()).decode().data == RED).all()
    error = refusal({"type": "input_image", "image_url": str(file)})
    assert "allow_local_files" in error.message


@pytest.mark.parametrize(
    ("part", "field", "says"),
    [
        ({"type": "image_url"}, "image_url", "Missing"),
        ({"type": "image_url", "image_url": None}, "image_url", "Missing"),
        ({"type": "image_url", "image_url": {}}, "image_url.url", "Missing"),
        ({"type": "image_url", "image_url": {"url": 3}}, "image_url.url", "expected a string"),
        ({"type": "image_url", "image_url": {"url": ""}}, "image_url.url", "empty string"),
        ({"type": "image_url", "image_url": {"url": [URL]}}, "image_url.url", "expected a string"),
        ({"type": "image_url", "image_url": {"url": URL, "detail": "huge"}}, "image_url.detail", "'original'"),
        ({"type": "image_url", "image_url": {"url": URL, "detail": 3}}, "image_url.detail", "expected a string"),
        ({"type": "input_image", "image_url": URL, "detail": "huge"}, "detail", "'original'"),
        ({"type": "input_image", "detail": "auto", "file_id": "file-1"}, "file_id", "no uploaded files"),
        ({"type": "image_url", "image_url": {"file_id": "file-1"}}, "image_url.file_id", "no uploaded files"),
        ({"type": "input_audio", "input_audio": {"format": "wav"}}, "input_audio.data", "Missing"),
        ({"type": "input_audio", "input_audio": {"data": RED}}, "input_audio.data", "expected a string"),
        ({"type": "video", "video": []}, "video", "empty array"),
        ({"type": "video", "video": [URL] * 769}, "video", "maximum length 768"),
        ({"type": "video", "video": [URL, 3]}, "video[1]", "expected a string"),
        ({"type": "video", "video": [png(), png(size=(5, 5))]}, "video", "one size"),
        ({"type": "video", "video": [URL], "fps": "2"}, "fps", "expected a decimal"),
        ({"type": "video", "video": [URL], "fps": 0}, "fps", "between"),
        ({"type": "video", "video": RED}, "video", "[frames, height, width, 3]"),
        ({"type": "video", "video": [{"type": "text", "text": "a"}]}, "video[0].type", "'image_url' and 'input_image'"),
    ],
)
def test_a_wrong_field_is_named(part: dict[str, Any], field: str, says: str) -> None:
    error = refusal(part)
    assert error.param == f"{AT}.{field}"
    assert says in error.message


@pytest.mark.parametrize(
    "frames",
    [
        [URL, png("blue")],
        [{"type": "image_url", "image_url": {"url": URL}}, {"type": "image_url", "image_url": {"url": png("blue")}}],
        np.stack([RED, RED[..., ::-1]]),
        (RED, Image.new("RGB", (3, 2), "blue")),
    ],
)
def test_a_list_of_frames_is_a_video(frames: object) -> None:
    media = open_media({"type": "video", "video": frames, "fps": 4}, AT, MediaRules()).decode()
    assert (media.kind, media.rate) == ("video", 4.0)
    assert (media.data == np.stack([RED, RED[..., ::-1]])).all()
    assert not media.data.flags.writeable


def key(value: object, detail: str = "auto") -> str:
    return open_media({"type": "input_image", "image_url": value, "detail": detail}, AT, MediaRules()).key


def test_a_key_is_of_the_content(tmp_path: Path) -> None:
    file = tmp_path / "red.png"
    file.write_bytes(png())
    assert key(URL) == key(png()) == key(file) == key(URL.replace("png;", "jpeg;"))
    assert key(RED) == key(Image.new("RGB", (3, 2), "red")) == key(RED / 255)
    assert key(RED) != key(RED.reshape(3, 2, 3))
    assert len({key(URL), key(URL, "low"), key(png("blue")), key(RED), key(RED[..., ::-1])}) == 5


def test_a_key_of_frames_is_of_their_order() -> None:
    def of(*frames: object) -> str:
        return open_media({"type": "video", "video": frames}, AT, MediaRules()).key

    assert of(URL, png("blue")) == of(png(), png("blue")) != of(png("blue"), URL)


def test_a_key_is_there_before_anything_is_decoded() -> None:
    source = open_media({"type": "input_image", "image_url": png()[:40]}, AT, MediaRules())
    with pytest.raises(BadRequest, match="cannot be decoded"):
        source.decode()


def test_an_array_is_copied_before_its_key_is_made() -> None:
    array = RED.copy()
    source = open_media({"type": "input_image", "image_url": array}, AT, MediaRules())
    array[:] = 0
    assert (source.decode().data == RED).all()
