"""Formats of sound: samples as they come -> bytes of a file. wav and pcm are written here, others by ffmpeg."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import weakref
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ....errors import BadRequest, RequestError
from ....speech.resampling import Resampler

PCM_RATE = 24_000
"""Samples per second of pcm, as OpenAI has it."""
_READ_BYTES = 65_536
_UNKNOWN = 0xFFFFFFFF  # stands for the length of a wav file that is not known yet
_HEADER_BYTES = 44

Samples = npt.NDArray[np.float32]


class Format(NamedTuple):
    """A format of `response_format`."""

    media_type: str
    ffmpeg: tuple[str, ...] | None = None
    """Arguments of ffmpeg for its output; None: it is written here."""


FORMATS: Mapping[str, Format] = {
    "mp3": Format("audio/mpeg", ("-codec:a", "libmp3lame", "-f", "mp3")),
    "opus": Format("audio/ogg", ("-codec:a", "libopus", "-f", "ogg")),
    "aac": Format("audio/aac", ("-codec:a", "aac", "-f", "adts")),
    "flac": Format("audio/flac", ("-codec:a", "flac", "-f", "flac")),
    "wav": Format("audio/wav"),
    "pcm": Format("audio/pcm"),
}


class Writer:
    """Writes pcm: 16 bits, mono, 24 kHz, without a header.

    Attributes:
        waits: `end` waits for another program.
    """

    waits = False

    def __init__(self) -> None:
        self._resampler: Resampler | None = None

    def add(self, samples: Samples, rate: int) -> bytes:
        """Take the next samples; returns what can be written of the file."""
        if rate == PCM_RATE:
            return as_pcm(samples)
        if self._resampler is None:
            self._resampler = Resampler(rate, PCM_RATE)
        return as_pcm(self._resampler.add(samples))

    def end(self) -> bytes:
        """The rest of the file.

        Raises:
            RequestError: another program has failed.
        """
        return b"" if self._resampler is None else as_pcm(self._resampler.end())

    def whole(self, content: bytes) -> bytes:
        """The file, of all that was written."""
        return content


class WavWriter(Writer):
    """Writes wav: 16 bits, mono, with the model's own rate. The header of a stream says that the length is unknown."""

    def __init__(self) -> None:
        super().__init__()
        self._rate: int | None = None

    def add(self, samples: Samples, rate: int) -> bytes:
        begins, self._rate = self._rate is None, rate
        return (wav_header(rate) if begins else b"") + as_pcm(samples)

    def end(self) -> bytes:
        return b""

    def whole(self, content: bytes) -> bytes:
        assert self._rate is not None
        return wav_header(self._rate, len(content) - _HEADER_BYTES) + content[_HEADER_BYTES:]


class FfmpegWriter(Writer):
    """Writes other formats by the program ffmpeg, which gets samples and gives bytes as they come.

    Args:
        program: path of ffmpeg.
        arguments: for its output.
    """

    waits = True

    def __init__(self, program: str, arguments: tuple[str, ...]) -> None:
        super().__init__()
        self._program, self._arguments = program, arguments
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, samples: Samples, rate: int) -> bytes:
        process = self._process = self._process or self._start(rate)
        assert process.stdin is not None and process.stdout is not None
        left, found = memoryview(as_pcm(samples)), list[bytes]()
        source, target = process.stdout.fileno(), process.stdin.fileno()
        while left:
            readable, writable, _ = select.select([source], [target], [])
            if readable:
                if not (read := os.read(source, _READ_BYTES)):
                    raise self._failed()
                found.append(read)
            if writable:
                try:
                    left = left[os.write(target, left) :]
                except BrokenPipeError:
                    raise self._failed() from None
        return b"".join(found)

    def end(self) -> bytes:
        process = self._process
        assert process is not None and process.stdout is not None and process.stdin is not None
        process.stdin.close()
        rest = b"".join(iter(lambda: os.read(process.stdout.fileno(), _READ_BYTES), b""))  # type: ignore[union-attr]
        if process.wait() != 0:
            raise self._failed()
        _close(process)
        return rest

    def _start(self, rate: int) -> subprocess.Popen[bytes]:
        given = ("-f", "s16le", "-ar", str(rate), "-ac", "1", "-i", "pipe:0")
        command = (self._program, "-hide_banner", "-loglevel", "error", *given, *self._arguments)
        process = subprocess.Popen(
            [*command, "-flush_packets", "1", "pipe:1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        weakref.finalize(self, _close, process)  # its reader may leave at any time
        return process

    def _failed(self) -> RequestError:
        assert self._process is not None and self._process.stderr is not None
        self._process.kill()
        said = self._process.stderr.read().decode(errors="replace").strip()[-500:]
        return RequestError(f"ffmpeg could not write this format: {said or 'it ended without a message'}")


def make_writer(name: str, *, was_given: bool) -> Writer:
    """Make the writer of a format.

    Args:
        name: one of `FORMATS`.
        was_given: the request names it. False: it is OpenAI's default.

    Raises:
        BadRequest: it needs ffmpeg, which is not installed.
    """
    arguments = FORMATS[name].ffmpeg
    if arguments is None:
        return WavWriter() if name == "wav" else Writer()
    program = shutil.which("ffmpeg")
    if program is None:
        what = f"'{name}'" if was_given else f"'{name}', which is the default,"
        raise BadRequest.unsupported_value(
            "response_format",
            f"response_format {what} needs the program ffmpeg, which is not installed. Pass response_format='wav' or "
            "'pcm', or install ffmpeg.",
        )
    return FfmpegWriter(program, arguments)


def as_pcm(samples: Samples) -> bytes:
    """16 bits, little-endian, of samples from -1 to 1."""
    return np.rint(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def wav_header(rate: int, length: int | None = None) -> bytes:
    """The header of a wav file of 16 bits and one channel.

    Args:
        rate: samples per second.
        length: bytes that follow; None: they are not known.
    """
    size = _UNKNOWN if length is None else length
    whole = _UNKNOWN if length is None else length + _HEADER_BYTES - 8

    def number(value: int, width: int) -> bytes:
        return value.to_bytes(width, "little")

    layout = number(1, 2) + number(1, 2) + number(rate, 4) + number(2 * rate, 4) + number(2, 2) + number(16, 2)
    return b"RIFF" + number(whole, 4) + b"WAVEfmt " + number(16, 4) + layout + b"data" + number(size, 4)


def _close(process: subprocess.Popen[bytes]) -> None:
    """End a process, if it has not ended, and close its pipes."""
    if process.poll() is None:
        process.kill()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    process.wait()
