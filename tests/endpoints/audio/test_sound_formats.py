"""Sound in formats: samples in pieces of any length give the bytes of the whole, and files that other programs read."""

from __future__ import annotations

import gc
import io
import shutil
import wave
from pathlib import Path

import numpy as np
import pytest

from localai_shim.endpoints.audio.speaking.formats import FORMATS, FfmpegWriter, WavWriter, Writer, as_pcm, make_writer
from localai_shim.errors import BadRequest, RequestError
from localai_shim.speech.resampling import Resampler
from tests.mlx_audio_models import sound

FFMPEG = shutil.which("ffmpeg")
SCRIPT = """#!/bin/sh
# stands in for ffmpeg: what comes goes out again behind a letter
printf x
exec cat
"""


def tone(rate: int, hertz: float = 440.0, seconds: float = 0.5) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def pieces_of(samples: np.ndarray, seed: int = 0) -> list[np.ndarray]:
    """The samples in pieces of random lengths, some of them empty."""
    cuts = np.sort(np.random.default_rng(seed).integers(0, len(samples) + 1, 7))
    return np.split(samples, cuts)


def resampled(samples: np.ndarray, rate: int, wanted: int = 24_000, seed: int | None = None) -> np.ndarray:
    resampler = Resampler(rate, wanted)
    pieces = [samples] if seed is None else pieces_of(samples, seed)
    return np.concatenate([*map(resampler.add, pieces), resampler.end()])


# -- resampling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 32_000, 44_100, 48_000])
def test_a_resampled_tone_is_the_tone_at_the_other_rate(rate: int) -> None:
    made, expected = resampled(tone(rate), rate), tone(24_000)
    assert len(made) == len(expected)
    inner = slice(500, -500)  # the tone begins and ends suddenly
    assert np.abs(made[inner] - expected[inner]).max() < 2e-4


def test_what_the_lower_rate_cannot_hold_is_damped() -> None:
    made = resampled(tone(48_000, 15_000), 48_000)
    assert np.abs(made[500:-500]).max() < 1e-3


@pytest.mark.parametrize("rate", [16_000, 22_050, 32_000, 48_000])
def test_pieces_of_any_length_give_what_the_whole_gives(rate: int) -> None:
    samples = np.concatenate([sound(2.1), tone(16_000)])
    whole = resampled(samples, rate)
    for seed in range(3):
        made = resampled(samples, rate, seed=seed)
        assert made.shape == whole.shape and np.abs(made - whole).max() < 1e-6


def test_no_samples_give_none() -> None:
    assert len(resampled(np.zeros(0, np.float32), 16_000)) == 0


# -- wav and pcm ----------------------------------------------------------------------------------------------------


def written(writer: Writer, rate: int, samples: np.ndarray) -> tuple[bytes, bytes]:
    """(the bytes of a stream, those of the whole answer)."""
    stream = b"".join(writer.add(piece, rate) for piece in pieces_of(samples)) + writer.end()
    return stream, writer.whole(stream)


def test_a_wav_file_says_its_rate_and_length_and_has_the_samples() -> None:
    samples = tone(32_000)
    _, whole = written(WavWriter(), 32_000, samples)
    with wave.open(io.BytesIO(whole)) as file:
        assert file.getparams()[:4] == (1, 2, 32_000, len(samples))
        read = np.frombuffer(file.readframes(len(samples)), "<i2")
    assert np.abs(read / 32767 - samples).max() < 1e-4
    assert int.from_bytes(whole[4:8], "little") == len(whole) - 8


def test_a_streamed_wav_file_has_the_same_samples_and_an_open_end() -> None:
    stream, whole = written(WavWriter(), 24_000, tone(24_000))
    assert stream[44:] == whole[44:] and stream[40:44] == b"\xff" * 4
    with wave.open(io.BytesIO(stream)) as file:
        assert len(file.readframes(10**6)) == len(whole) - 44


def test_pcm_has_24_000_samples_per_second_whatever_the_model_has() -> None:
    for rate in (16_000, 24_000, 44_100):
        stream, whole = written(Writer(), rate, tone(rate))
        assert stream == whole and len(whole) == 2 * 12_000


def test_samples_beyond_1_are_clipped() -> None:
    read = np.frombuffer(as_pcm(np.array([-3, -1, 0, 1, 9], np.float32)), "<i2")
    assert read.tolist() == [-32767, -32767, 0, 32767, 32767]


# -- ffmpeg ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mp3", "opus", "aac", "flac"])
def test_without_ffmpeg_an_error_says_which_formats_need_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BadRequest, match=rf"'{name}' needs the program ffmpeg.*'wav' or 'pcm', or install") as error:
        make_writer(name, was_given=True)
    assert error.value.param == "response_format"
    with pytest.raises(BadRequest, match="which is the default,"):
        make_writer(name, was_given=False)


def program(folder: Path, text: str) -> str:
    """An executable script that is named as ffmpeg."""
    path = folder / "ffmpeg"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_bytes_go_through_the_program_in_order_whatever_their_number(tmp_path: Path) -> None:
    writer = FfmpegWriter(program(tmp_path, SCRIPT), ("-f", "mp3"))
    samples = np.tile(sound(20), 2)  # many times what a pipe holds
    stream, whole = written(writer, 16_000, samples)
    assert stream == whole == b"x" + as_pcm(samples)


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    writer = FfmpegWriter(program(tmp_path, "#!/bin/sh\necho 'Unknown encoder' >&2\nexit 1\n"), ())
    with pytest.raises(RequestError, match="ffmpeg could not write this format: Unknown encoder"):
        written(writer, 16_000, np.tile(sound(20), 2))


def test_a_program_that_fails_at_its_end_says_why(tmp_path: Path) -> None:
    writer = FfmpegWriter(program(tmp_path, "#!/bin/sh\ncat > /dev/null\necho 'disk full' >&2\nexit 3\n"), ())
    with pytest.raises(RequestError, match="disk full"):
        written(writer, 16_000, sound())


def test_the_program_ends_when_its_reader_leaves(tmp_path: Path) -> None:
    writer = FfmpegWriter(program(tmp_path, SCRIPT), ())
    writer.add(sound(), 16_000)
    process = writer._process
    assert process is not None and process.poll() is None
    del writer
    gc.collect()
    assert process.poll() is not None and process.stdin is not None and process.stdin.closed


@pytest.mark.skipif(FFMPEG is None, reason="ffmpeg is not installed; the tests above need none")
@pytest.mark.parametrize(("name", "begins"), [("mp3", b""), ("opus", b"OggS"), ("aac", b"\xff"), ("flac", b"fLaC")])
def test_ffmpeg_writes_files_that_it_can_read(name: str, begins: bytes, tmp_path: Path) -> None:
    import subprocess

    assert FFMPEG is not None
    samples = tone(24_000, seconds=2.0)
    stream, _ = written(make_writer(name, was_given=True), 24_000, samples)
    assert stream.startswith(begins) and FORMATS[name].ffmpeg is not None
    file = tmp_path / f"speech.{name}"
    file.write_bytes(stream)
    command = [FFMPEG, "-loglevel", "error", "-i", str(file), "-f", "s16le", "-ar", "24000", "-ac", "1", "pipe:1"]
    decoded = np.frombuffer(subprocess.run(command, capture_output=True, check=True).stdout, "<i2") / 32767
    assert abs(len(decoded) - len(samples)) < 24_000 * 0.15
    power = np.abs(np.fft.rfft(decoded[12_000:36_000]))
    assert abs(int(power.argmax()) - 440) <= 1  # a bin per hertz
