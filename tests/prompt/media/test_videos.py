"""Videos come out as frames, the same that mlx-vlm takes, or as a 400 that says why not."""

from __future__ import annotations

import base64
import contextlib
import glob
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from mlx_vlm.utils import load_video

from localai_shim.errors import BadRequest
from localai_shim.media import MediaRules
from localai_shim.prompt.media import videos
from localai_shim.prompt.media.parts import open_media
from localai_shim.prompt.media.videos import decode_video

AT = "messages[0].content[0]"
PATH = f"{AT}.video_url.url"


@pytest.fixture(autouse=True)
def _temporary_files_are_removed(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert glob.glob(f"{folder}/*") == []


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Ten frames per second, each brighter than the one before."""
    folder = tmp_path_factory.mktemp("clips")
    found = {}
    for name, codec, frames in (
        ("a.mp4", "mp4v", 40),
        ("a.avi", "MJPG", 40),
        ("a.mkv", "mp4v", 40),
        ("one.mp4", "mp4v", 1),
    ):
        found[name] = folder / name
        writer = cv2.VideoWriter(str(found[name]), cv2.VideoWriter_fourcc(*codec), 10, (64, 48))
        for i in range(frames):
            writer.write(np.full((48, 64, 3), (0, 0, 6 * i), np.uint8))  # red, as OpenCV writes it
        writer.release()
    return found


def refusal(data: bytes) -> str:
    with pytest.raises(BadRequest) as caught:
        decode_video(data, PATH)
    assert caught.value.param == PATH
    return caught.value.message


@pytest.mark.parametrize("name", ["a.mp4", "a.avi", "a.mkv"])
@pytest.mark.parametrize("rate", [None, 1.0, 5.0])
def test_the_frames_are_those_of_mlx_vlm(name: str, rate: float | None, clips: dict[str, Path]) -> None:
    frames, found = decode_video(clips[name].read_bytes(), PATH, rate)
    expected, metadata = load_video(str(clips[name]), fps=rate)
    assert (frames == expected.transpose(0, 2, 3, 1)).all()
    assert found == pytest.approx(metadata.sampled_fps)
    assert len(frames) == {None: 8, 1.0: 4, 5.0: 20}[rate]
    assert frames[-1, 24, 32, 0] > 200 > frames[-1, 24, 32, 2]
    assert not frames.flags.writeable


def test_a_single_frame_is_a_video(clips: dict[str, Path]) -> None:
    assert decode_video(clips["one.mp4"].read_bytes(), PATH)[0].shape == (1, 48, 64, 3)


def test_a_file_that_does_not_say_how_many_frames_it_has(
    clips: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Capture:
        def __init__(self, *arguments: object) -> None:
            self.capture = real(*arguments)

        def __getattr__(self, name: str) -> object:
            return getattr(self.capture, name)

        def get(self, key: int) -> float:
            return -1.0 if key == cv2.CAP_PROP_FRAME_COUNT else self.capture.get(key)

    data, real = clips["a.avi"].read_bytes(), cv2.VideoCapture
    expected = decode_video(data, PATH)
    monkeypatch.setattr(cv2, "VideoCapture", Capture)
    found = decode_video(data, PATH)
    assert (found[0] == expected[0]).all()
    assert found[1] == expected[1]


def test_many_frames_are_scaled_to_fit(clips: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(videos, "MAX_VIDEO_PIXELS", 64 * 48 * 2)
    assert decode_video(clips["a.mp4"].read_bytes(), PATH)[0].shape == (8, 24, 32, 3)


def test_limits(clips: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    data = clips["a.mp4"].read_bytes()
    monkeypatch.setattr(videos, "MAX_VIDEO_FRAMES", 6)
    assert len(decode_video(data, PATH)[0]) == 6
    monkeypatch.setattr(videos, "MAX_PICTURE_PIXELS", 64 * 47)
    assert "64x48" in refusal(data)
    monkeypatch.undo()
    monkeypatch.setattr(videos, "VIDEO_SECONDS", -1.0)
    assert "takes longer" in refusal(data)


def test_frames_that_are_too_many_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(videos, "MAX_VIDEO_PIXELS", 100)
    part = {"type": "video", "video": [np.zeros((8, 8, 3), np.uint8)] * 2}
    with pytest.raises(BadRequest, match="megapixels"):
        open_media(part, AT, MediaRules()).decode()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1/a.ts\n", "neither MP4"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "neither MP4"),
        (b"v=0\no=- 0 0 IN IP4 127.0.0.1\n", "neither MP4"),
        (b"\x00\x00\x00\x18ftypisom" + bytes(200), "cannot be opened"),
    ],
)
def test_what_is_no_video_is_named(data: bytes, says: str) -> None:
    assert says in refusal(data)


@pytest.mark.parametrize("name", ["a.mp4", "a.avi", "a.mkv"])
def test_truncated_files_are_refused_or_shorter(name: str, clips: dict[str, Path]) -> None:
    data = clips[name].read_bytes()
    for length in range(0, len(data), len(data) // 25):
        with contextlib.suppress(BadRequest):
            assert decode_video(data[:length], PATH)[0].shape[1:] == (48, 64, 3)


def test_parts(clips: dict[str, Path]) -> None:
    data = clips["a.mp4"].read_bytes()
    url = "data:video/mp4;base64," + base64.b64encode(data).decode()
    rules = MediaRules(folder=str(clips["a.mp4"].parent))
    parts = [
        {"type": "video_url", "video_url": {"url": url}},
        {"type": "video_url", "video_url": "a.mp4"},
        {"type": "input_video", "video_url": data},
        {"type": "input_video", "video": clips["a.mp4"]},
        {"type": "video", "video": url},
    ]
    sources = [open_media(part, AT, rules) for part in parts]
    assert len({source.key for source in sources}) == 1
    for source in sources:
        media = source.decode()
        assert (media.data.shape, media.rate) == ((8, 48, 64, 3), 2.0)
    slower = {"type": "video_url", "video_url": {"url": url}, "fps": 1}
    assert open_media(slower, AT, rules).decode().rate == 1.0


def test_an_error_without_a_text_is_named_by_its_type(clips: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> None:
        raise cv2.error()

    monkeypatch.setattr(videos, "_read", broken)
    with pytest.raises(BadRequest, match=r"the video cannot be decoded: error\.$"):
        decode_video(next(iter(clips.values())).read_bytes(), PATH)
