"""Pictures of all formats and modes come out as upright RGB on white, or as a 400 that says why not."""

from __future__ import annotations

import io
import struct
import sys
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.WebPImagePlugin import WebPImageFile

from localai_shim.errors import BadRequest
from localai_shim.prompt.media import pictures
from localai_shim.prompt.media.pictures import array_pixels, decode_picture, picture_pixels
from tests.threads import in_threads

PATH = "messages[0].content[1].image_url.url"
RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def quarters(mode: str = "RGB") -> Image.Image:
    """Red, green / blue, white; 4 by 2 pixels."""
    image = Image.new("RGB", (4, 2))
    for x in range(4):
        for y in range(2):
            image.putpixel((x, y), ((RED, GREEN), (BLUE, WHITE))[y][x // 2])
    return image.convert(mode)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def refusal(data: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        decode_picture(data, PATH)
    assert caught.value.param == PATH
    assert PATH in caught.value.message
    return caught.value


EXACT = np.array([[RED, RED, GREEN, GREEN], [BLUE, BLUE, WHITE, WHITE]], np.uint8)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "tiff_adobe_deflate"}),
        ("TIFF", {"big_tiff": True}),
        ("GIF", {}),
    ],
)
def test_a_picture_that_loses_nothing_comes_out_as_it_was(kind: str, options: dict[str, Any]) -> None:
    pixels = decode_picture(encoded(quarters(), kind, **options), PATH)
    assert (pixels == EXACT).all()
    assert pixels.dtype == np.uint8
    assert not pixels.flags.writeable


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"keep_rgb": True}])
def test_jpeg(options: dict[str, Any]) -> None:
    image = quarters().resize((32, 16), Image.Resampling.NEAREST)
    pixels = decode_picture(encoded(image, "JPEG", quality=95, subsampling=0, **options), PATH)
    assert np.abs(pixels.astype(int) - np.asarray(image)).max() < 12


def test_cmyk_jpeg() -> None:
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    assert np.abs(decode_picture(encoded(image, "JPEG", quality=95), PATH).astype(int) - RED).max() < 12


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "I;16", "I", "F"])
def test_modes_of_tiff_and_png(mode: str) -> None:
    grey = Image.new("L", (3, 2), 255)
    if mode == "I;16":
        image = Image.fromarray(np.full((2, 3), 0xFFFF, np.uint16))
    elif mode in ("I", "F"):
        image = Image.fromarray(
            np.full((2, 3), 0xFFFF if mode == "I" else 1.0, np.int32 if mode == "I" else np.float32)
        )
    else:
        image = grey.convert(mode)
    kind = "TIFF" if mode in ("F", "I") else "PNG"
    assert (decode_picture(encoded(image, kind), PATH) == np.full((2, 3, 3), 255, np.uint8)).all()


def test_sixteen_bits_keep_their_upper_eight() -> None:
    image = Image.fromarray(np.array([[0, 0x7FFF, 0x8000, 0xFFFF]], np.uint16))
    assert decode_picture(encoded(image, "PNG"), PATH)[0, :, 0].tolist() == [0, 0x7F, 0x80, 0xFF]


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_what_is_transparent_is_white(kind: str) -> None:
    image = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    image.putpixel((1, 0), (0, 0, 0, 255))
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    assert decode_picture(encoded(image, kind, **options), PATH).tolist() == [[[255] * 3, [0] * 3]]


@pytest.mark.parametrize("transparency", [0, bytes([0, 255])])
def test_a_palette_with_transparency_is_on_white(transparency: int | bytes) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *BLUE])
    image.putpixel((1, 0), 1)
    pixels = decode_picture(encoded(image, "PNG", transparency=transparency), PATH)
    assert pixels.tolist() == [[list(WHITE), list(BLUE)]]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation(kind: str, orientation: int) -> None:
    """As PIL's own `exif_transpose` does it."""
    from PIL import ImageOps

    image = quarters().resize((32, 16), Image.Resampling.NEAREST)
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(image, kind, exif=exif)
    with Image.open(io.BytesIO(data)) as opened:
        assert (decode_picture(data, PATH) == np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))).all()
        assert decode_picture(data, PATH).shape[:2] == ((32, 16) if orientation > 4 else (16, 32))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_broken_exif_rotates_nothing(kind: str) -> None:
    data = encoded(quarters(), kind, exif=b"Exif\x00\x00II*\x00\xff\xff\xff\x7fgarbage")
    assert decode_picture(data, PATH).shape == (2, 4, 3)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_an_animation_the_first_frame_is_read(kind: str) -> None:
    frames = [Image.new("RGB", (3, 2), colour) for colour in (RED, GREEN, BLUE)]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert (decode_picture(data, PATH) == RED).all()


@pytest.mark.parametrize("size", [(1, 1), (20_000, 10), (10, 20_000)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF"])
def test_unusual_shapes(size: tuple[int, int], kind: str) -> None:
    assert decode_picture(encoded(Image.new("RGB", size), kind), PATH).shape == (size[1], size[0], 3)


def png_of(width: int, height: int) -> bytes:
    """A PNG that says it is so large and has next to nothing in it."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(64))) + chunk(b"IEND", b"")
    )


def gif_of(screen: tuple[int, int], frame: tuple[int, int]) -> bytes:
    data = bytearray(encoded(Image.new("P", (1, 1)), "GIF"))
    data[6:10] = struct.pack("<HH", *screen)
    at = data.rindex(b",", 0, -4)
    data[at + 5 : at + 9] = struct.pack("<HH", *frame)
    return bytes(data)


def bmp_of(width: int, height: int, compression: int) -> bytes:
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, compression, 4, 0, 0, 2, 0)
    offset = 14 + len(header) + 8
    return b"BM" + struct.pack("<IHHI", offset + 4, 0, 0, offset) + header + bytes(8) + b"\x00\x00\x00\x01"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(png_of(8_001, 8_000), id="png"),
        pytest.param(png_of(65_536, 1), id="a long row"),
        pytest.param(png_of(1, 65_536), id="a long column"),
        pytest.param(png_of(2**31 - 1, 2**31 - 1), id="largest png"),
        pytest.param(gif_of((65_535, 65_535), (1, 1)), id="gif's screen"),
        pytest.param(gif_of((1, 1), (65_535, 65_535)), id="gif's frame"),
        pytest.param(
            gif_of((1, 1), (65_535, 65_535)).replace(b",\0\0\0\0\xff", b"x,\0\0\0\0\xff"), id="gif, a stray byte"
        ),
        pytest.param(bmp_of(100_000, 100_000, 0), id="bmp"),
        pytest.param(bmp_of(5_000, 5_000, 1), id="bmp, compressed"),
    ],
)
def test_a_bomb_is_refused_before_it_is_decoded(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "_upright_pixels", None)
    assert refusal(data).code == "image_too_large"


def test_a_large_tile_of_a_small_tiff_is_refused() -> None:
    data = bytearray(encoded(Image.new("L", (16, 16)), "TIFF"))
    at = struct.unpack_from("<I", data, 4)[0]
    for i in range(struct.unpack_from("<H", data, at)[0]):
        entry = at + 2 + 12 * i
        tag = struct.unpack_from("<H", data, entry)[0]
        if tag in (278, 284):  # in the place of two that it can do without
            new = {278: 322, 284: 323}[tag]
            struct.pack_into("<HHII", data, entry, new, 4, 1, 60_000)
    assert refusal(bytes(data)).code == "image_too_large"


def test_a_jpeg_of_thousands_of_scans_is_refused() -> None:
    data = encoded(quarters(), "JPEG", progressive=True)
    scan = data[data.rindex(b"\xff\xda") : -2]
    assert "scans" in refusal(data[:-2] + scan * 5_000 + data[-2:]).message


def flooded(kind: str, note: bytes, count: int) -> bytes:
    """A picture with very many small notes in it."""
    data = encoded(quarters("P") if kind == "GIF" else quarters(), kind)
    at = {"PNG": 33, "JPEG": 2, "GIF": 13 + (3 << (data[10] & 7) + 1)}[kind]
    return data[:at] + note * count + data[at:]


TEXT = struct.pack(">I", 3) + b"tEXta\0b" + struct.pack(">I", zlib.crc32(b"tEXta\0b"))
FLOODS = {"PNG": TEXT, "JPEG": b"\xff\xfe\x00\x03a", "GIF": b"!\xfe\x01a\x00"}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_file_of_very_many_notes_takes_no_longer_than_it_may(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = flooded(kind, FLOODS[kind], 100)
    assert decode_picture(few, PATH).shape == (2, 4, 3)
    monkeypatch.setattr(pictures, "PICTURE_SECONDS", 0.05)
    assert "takes longer" in refusal(flooded(kind, FLOODS[kind], 99_000)).message


@pytest.mark.parametrize(
    ("data", "says", "code"),
    [
        (b"", "empty", "empty_image_file"),
        (b"not a picture", "unknown format; PNG, JPEG, GIF, WebP, BMP and TIFF are read", "invalid_image_format"),
        (b"%PDF-1.7", "a PDF", "invalid_image_format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "PostScript", "invalid_image_format"),
        (b"\x00\x00\x00\x18ftypheic", "HEIC", "invalid_image_format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG", "invalid_image_format"),
        (b"\n<!DOCTYPE html><html>", "a web page", "invalid_image_format"),
        (encoded(quarters(), "PNG")[:50], "cannot be decoded", "image_parse_error"),
    ],
)
def test_what_is_no_picture_is_named(data: bytes, says: str, code: str) -> None:
    error = refusal(data)
    assert says in error.message
    assert error.code == code


@pytest.mark.parametrize(
    ("array", "pixels"),
    [
        (np.full((2, 3), 7, np.uint8), 7),
        (np.full((2, 3, 1), 7, np.uint8), 7),
        (np.full((2, 3, 3), 7, np.uint8), 7),
        (np.dstack([np.full((2, 3, 3), 7, np.uint8), np.full((2, 3), 255, np.uint8)]), 7),
        (np.zeros((2, 3, 4), np.uint8), 255),
        (np.full((2, 3, 3), 1.0, np.float32), 255),
        (np.full((2, 3), 0.5, np.float64), 128),
        (np.full((3, 2, 3), 7, np.uint8).transpose(1, 0, 2), 7),
    ],
)
def test_arrays(array: np.ndarray[Any, Any], pixels: int) -> None:
    assert (array_pixels(array, PATH) == np.full((2, 3, 3), pixels, np.uint8)).all()


def test_an_array_is_copied() -> None:
    array = np.zeros((2, 3, 3), np.uint8)
    pixels = array_pixels(array, PATH)
    array[:] = 9
    assert not pixels.any()
    assert not pixels.flags.writeable


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((3, 8, 8), np.uint8), "[height, width"),
        (np.zeros(8, np.uint8), "[height, width"),
        (np.zeros((0, 8, 3), np.uint8), "[height, width"),
        (np.zeros((8, 8, 3), np.int64), "uint8"),
        (np.zeros((8, 8, 3), bool), "uint8"),
        (np.full((8, 8, 3), 255.0), "0 to 1"),
        (np.full((8, 8, 3), np.nan), "0 to 1"),
        (np.broadcast_to(np.uint8(0), (8_001, 8_000)), "megapixels"),
    ],
)
def test_arrays_that_are_no_pictures(array: np.ndarray[Any, Any], says: str) -> None:
    with pytest.raises(BadRequest, match="Invalid") as caught:
        array_pixels(array, PATH)
    assert says in caught.value.message


def test_a_picture_that_the_program_opened_is_turned_upright_and_stays_as_it_was() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.open(io.BytesIO(encoded(quarters(), "PNG", exif=exif)))
    assert picture_pixels(image, PATH).shape == (4, 2, 3)
    assert image.size == (4, 2)


def test_one_unread_picture_in_many_threads() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (400, 400, 3), np.uint8)
    image = Image.open(io.BytesIO(encoded(Image.fromarray(noise), "PNG")))
    found: list[bool] = []
    in_threads(lambda _: found.append(bool((picture_pixels(image, PATH) == noise).all())), range(8))
    assert found == [True] * 8


def test_a_picture_that_the_program_closed_is_a_400() -> None:
    image = Image.open(io.BytesIO(encoded(quarters(), "PNG")))
    image.close()
    with pytest.raises(BadRequest, match="cannot be decoded"):
        picture_pixels(image, PATH)


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize("options", [{"lossless": True}, {"quality": 60}], ids=["lossless", "lossy"])
def test_a_large_webp_is_decoded_by_opencv_to_what_pil_makes_of_it(
    mode: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cv2")
    exif = Image.Exif()
    exif[0x0112] = 6
    image = quarters(mode).resize((700, 520), Image.Resampling.BICUBIC)
    data = encoded(image, "WEBP", exif=exif, method=0, **options)
    held: list[Any] = []
    monkeypatch.setattr(WebPImageFile, "load", lambda self: held.append(self))
    pixels = decode_picture(data, PATH)
    assert not held, "PIL decodes it with the GIL in its hand"
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "cv2", None)
    np.testing.assert_array_equal(pixels, decode_picture(data, PATH))
    assert pixels.shape == (700, 520, 3)


def test_a_large_webp_that_is_broken_is_a_400() -> None:
    whole = encoded(quarters().resize((700, 520)), "WEBP", lossless=True)
    assert refusal(whole[: len(whole) // 2]).code == "image_parse_error"
