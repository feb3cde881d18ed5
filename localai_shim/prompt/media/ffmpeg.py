"""Sounds in containers that only the program ffmpeg reads: MP4, M4A, Ogg, WebM, AAC, AIFF and some more."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from ...errors import BadRequest
from ...threads.deadline import check
from .sounds import Samples

_RATE = 16_000
_MAX_SECONDS = 600.0
"""Time that the program gets. It decodes some hundred seconds of sound per second."""
_POLL_SECONDS = 0.05
_KINDS = (
    (re.compile(rb"....ftyp", re.DOTALL), "MP4 or M4A", "mov"),
    (re.compile(rb"OggS"), "Ogg", "ogg"),
    (re.compile(rb"\x1aE\xdf\xa3"), "WebM or Matroska", "matroska"),
    (re.compile(rb"\xff[\xf0\xf1\xf8\xf9]"), "AAC", "aac"),
    (re.compile(rb"FORM....AIF[FC]", re.DOTALL), "AIFF", "aiff"),
    (re.compile(rb"(RIFX|RF64)....WAVE", re.DOTALL), "WAV of type RIFX or RF64", "wav"),
    (re.compile(rb"#!AMR"), "AMR", "amr"),
    (re.compile(rb"\x00\x00\x01\xba"), "MPEG", "mpeg"),
)
"""Beginnings of files, their names, and ffmpeg's names of their readers. ffmpeg never guesses: some of its readers
open other files and addresses that a file names."""

_refuse = BadRequest.refused


def is_foreign_sound(data: bytes) -> bool:
    """True if a file begins as those do that `decode_foreign` reads."""
    return any(pattern.match(data) for pattern, _, _ in _KINDS)


def decode_foreign(data: bytes, path: str, seconds: float) -> tuple[Samples, float]:
    """Decode a sound to one channel of 16,000 samples per second, with the program ffmpeg.

    Args:
        data: content of the file; `is_foreign_sound` is true of it.
        path: the field that it came from.
        seconds: the most that is read.

    Raises:
        BadRequest: ffmpeg is not installed, cannot read it, takes too long, or the sound is empty or longer than that.
        Overdue: the caller no longer waits for it.
    """
    name, reader = next((name, reader) for pattern, name, reader in _KINDS if pattern.match(data))
    program = shutil.which("ffmpeg")
    if program is None:
        raise BadRequest.unsupported_value(
            path,
            f"Invalid '{path}': the audio is {name}, which the program ffmpeg decodes, and no ffmpeg is on the PATH. "
            "Install ffmpeg, or send WAV, MP3, or FLAC.",
        )
    with tempfile.TemporaryDirectory(prefix="localai_shim-") as folder:  # M4A is read from both ends: no pipe does it
        given, made = Path(folder, "given"), Path(folder, "made")
        given.write_bytes(data)
        command = [program, "-nostdin", "-hide_banner", "-loglevel", "error", "-protocol_whitelist", "file"]
        command += ["-f", reader, "-i", f"file:{given}", "-vn", "-sn", "-dn", "-map", "0:a:0", "-t", f"{seconds + 1}"]
        command += ["-ac", "1", "-ar", f"{_RATE}", "-f", "s16le", f"file:{made}"]
        complaint = _run(command, Path(folder), path)
        if complaint is not None:
            raise _refuse(path, f"the audio is {name}, and ffmpeg cannot decode it: {complaint}")
        found = np.fromfile(made, "<i2")
    if not len(found):
        raise _refuse(path, "the audio has no samples")
    if len(found) > seconds * _RATE:
        raise _refuse(path, f"the audio has more than {seconds:.0f} seconds, the most that is read; cut it")
    samples = found.astype(np.float32) / np.float32(32_768)
    samples.flags.writeable = False
    return samples, float(_RATE)


def _run(command: list[str], folder: Path, path: str) -> str | None:
    """Run the program to its end; returns the last line of its complaint if it failed."""
    end = time.monotonic() + _MAX_SECONDS
    complaints = folder / "complaints"
    with complaints.open("wb") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, cwd=folder
        )
        try:
            while True:
                try:
                    process.wait(_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    check()
                    if time.monotonic() > end:
                        raise _refuse(path, f"ffmpeg decodes it for more than {_MAX_SECONDS:.0f} seconds") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode == 0:
        return None
    lines = complaints.read_bytes()[-4096:].decode(errors="replace").replace(str(folder), "").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), f"it ended with {process.returncode}")
