"""Python objects in the place of URLs, as data URLs."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from localai_shim.prompt.objects import with_data_urls


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"])
def test_the_data_url_of_a_file_says_its_media_type(kind: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (3, 2)).save(file, kind)
    assert with_data_urls(file.getvalue(), "input").startswith(f"data:image/{kind.lower()};base64,")


def test_the_data_url_of_a_sound_does_not_call_it_a_picture() -> None:
    sound = b"RIFF\x24\0\0\0WAVEfmt " + bytes(28)
    assert with_data_urls({"data": sound}, "input")["data"].startswith("data:application/octet-stream;base64,")
