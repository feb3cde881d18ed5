"""Files that are cut off or changed at random are answers or 400s; nothing hangs, warns, or keeps memory."""

from __future__ import annotations

import functools
import gc
import io
import random
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from localai_shim.errors import BadRequest
from localai_shim.prompt.media.pictures import decode_picture
from localai_shim.prompt.media.sounds import decode_sound
from tests.prompt.media.files import SINE, flac, mp3, wav

PATH = "input[0].content[0].image_url"
Decode = Callable[[bytes, str], object]
_NOISE = np.random.default_rng(5).integers(0, 256, (6, 7, 4), np.uint8)


def saved(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "a description"
    if kind in ("JPEG", "PNG", "WEBP"):
        options["exif"] = exif
    image = Image.fromarray(_NOISE).convert(mode)
    if options.get("save_all"):
        options["append_images"] = [image.rotate(90), image.rotate(180)]
    image.save(out, kind, **options)
    return out.getvalue()


def run_length_bmp() -> bytes:
    """What PIL reads and does not write."""
    body = bytes.fromhex("0401 0000  0003 010001 00 0000  0201 0200 0000  0400 0001")
    head = b"\x28\0\0\0" + b"\x04\0\0\0\x04\0\0\0\x01\0\x08\0\x01\0\0\0" + len(body).to_bytes(4, "little")
    head += bytes(8) + b"\x02\0\0\0\x02\0\0\0" + b"\0\0\xff\0\xff\0\0\0"
    start = 14 + len(head)
    return b"BM" + (start + len(body)).to_bytes(4, "little") + bytes(4) + start.to_bytes(4, "little") + head + body


PICTURES = {
    "png": saved("PNG"),
    "png, a palette": saved("PNG", "P", transparency=3),
    "png, animated": saved("PNG", "RGBA", save_all=True),
    "jpeg": saved("JPEG", quality=30),
    "jpeg, progressive": saved("JPEG", "CMYK", quality=30, progressive=True),
    "gif, animated": saved("GIF", "P", save_all=True),
    "webp": saved("WEBP", quality=20),
    "webp, animated": saved("WEBP", "RGBA", lossless=True, save_all=True),
    "bmp": saved("BMP"),
    "bmp, run lengths": run_length_bmp(),
    "tiff": saved("TIFF", "RGBA"),
    "tiff, compressed": saved("TIFF", compression="tiff_lzw"),
}


def with_right_checksums(data: bytes) -> bytes:
    """Of a PNG's chunks, so that what is in them is looked at."""
    out, at = bytearray(data), 8
    while at + 12 <= len(out):
        end = at + 8 + int.from_bytes(out[at : at + 4], "big")
        out[end : end + 4] = zlib.crc32(out[at + 4 : end]).to_bytes(4, "big")
        at = end + 4
    return bytes(out[: len(data)])


SOUNDS = {"wav": wav((SINE[:100] * 32_767).astype(np.int16)), "mp3": mp3(2)[:450], "flac": flac([1, -1], stated=0)}
CORPUS: dict[str, tuple[Decode, bytes]] = {
    **{name: (decode_picture, data) for name, data in PICTURES.items()},
    "png, right checksums": (lambda data, path: decode_picture(with_right_checksums(data), path), PICTURES["png"]),
    **{name: (decode_sound, data) for name, data in SOUNDS.items()},
}


def mutated(data: bytes, random_: random.Random) -> bytes:
    """Some bytes changed, lost, doubled or moved."""
    out = bytearray(data)
    for _ in range(random_.randint(1, 6)):
        at = random_.randrange(len(out))
        length = random_.randint(1, 8)
        match random_.randrange(5):
            case 0:
                out[at] ^= 1 << random_.randrange(8)
            case 1:
                out[at : at + length] = random_.randbytes(length)
            case 2:
                out[at : at + length] = random_.choice((b"\x00", b"\xff", b"\x7f")) * length
            case 3 if len(out) > 2 * length:
                del out[at : at + length]
            case _:
                out[at:at] = out[at : at + length]
    return bytes(out)


def mutations(data: bytes, seed: object, count: int) -> Iterable[bytes]:
    random_ = random.Random(str(seed))
    return (mutated(data, random_) for _ in range(count))


def survive(decode: Decode, files: Iterable[bytes]) -> tuple[int, int]:
    """Decode all and count answers and refusals; anything else ends the test."""
    answers = refusals = 0
    for data in files:
        begin = time.monotonic()
        try:
            decode(data, PATH)
            answers += 1
        except BadRequest as error:
            refusals += 1
            if error.param != PATH or PATH not in error.message:
                raise AssertionError(error.message) from error
        assert time.monotonic() - begin < 20, data
    return answers, refusals


def quietly(work: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    """Do it where every warning would be seen."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = work()
    assert [str(warning.message) for warning in seen] == []
    return result


def test_the_corpus_is_ten_files_in_six_formats_and_more() -> None:
    assert len(PICTURES) >= 10
    assert len({name.partition(",")[0] for name in PICTURES}) == 6
    assert all(quietly(functools.partial(survive, decode, [data])) == (1, 0) for decode, data in CORPUS.values())


@pytest.mark.parametrize("name", CORPUS)
def test_every_truncation(name: str) -> None:
    decode, data = CORPUS[name]
    answers, refusals = quietly(lambda: survive(decode, (data[:length] for length in range(len(data)))))
    assert answers + refusals == len(data)
    assert refusals >= 12


@pytest.mark.parametrize("name", CORPUS)
def test_random_mutations(name: str) -> None:
    decode, data = CORPUS[name]
    answers, refusals = quietly(lambda: survive(decode, mutations(data, name, 50)))
    assert answers + refusals == 50


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", CORPUS)
def test_many_random_mutations(name: str, seed: int) -> None:
    decode, data = CORPUS[name]
    quietly(lambda: survive(decode, mutations(data, (name, seed), 1_000)))


@pytest.mark.skipif(sys.platform != "linux", reason="reads what the process holds from /proc")
def test_broken_files_leave_no_memory_behind() -> None:
    def held() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096

    def sweep() -> None:
        for name, (decode, data) in CORPUS.items():
            survive(decode, mutations(data, name, 30))

    sweep()
    before = held()
    for _ in range(4):
        sweep()
    assert held() - before < 32 << 20


def test_threads_find_what_one_finds() -> None:
    def sweep() -> list[tuple[int, int]]:
        return [survive(decode, mutations(data, name, 20)) for name, (decode, data) in CORPUS.items()]

    expected = sweep()
    with ThreadPoolExecutor(6) as pool:
        assert [future.result() for future in [pool.submit(sweep) for _ in range(6)]] == [expected] * 6
