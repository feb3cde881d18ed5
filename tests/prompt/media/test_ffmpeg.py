"""Sounds that the program ffmpeg decodes: what is handed to it, and what is said if it is missing or fails."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from localai_shim.errors import BadRequest
from localai_shim.prompt.media import ffmpeg
from localai_shim.prompt.media.ffmpeg import decode_foreign, is_foreign_sound
from localai_shim.threads.deadline import Deadline, Overdue, until
from tests.prompt.media.files import SINE, flac, mp3, wav

BEGINNINGS = {
    "mov": b"\0\0\0\x20ftypM4A ",
    "ogg": b"OggS",
    "matroska": b"\x1aE\xdf\xa3",
    "aac": b"\xff\xf1",
    "aiff": b"FORM\0\0\0\0AIFF",
    "wav": b"RF64\0\0\0\0WAVE",
    "amr": b"#!AMR\n",
    "mpeg": b"\0\0\x01\xba",
}
PROGRAM = """#!{python}
import sys, time
from pathlib import Path

arguments = sys.argv[1:]
Path({log!r}).write_text("\\n".join(arguments))
given, made = (each.removeprefix("file:") for each in (arguments[arguments.index("-i") + 1], arguments[-1]))
data = Path(given).read_bytes()
{body}
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the PATH, and nothing else there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(folder: Path, body: str) -> Path:
    """Put a stand-in for ffmpeg there; returns the file in which it notes its arguments."""
    log, file = folder / "arguments", folder / "ffmpeg"
    file.write_text(PROGRAM.format(python=sys.executable, log=str(log), body=body))
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return log


def refusal(data: bytes, seconds: float = 10.0) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        decode_foreign(data, "file", seconds)
    assert caught.value.param == "file"
    return caught.value


@pytest.mark.parametrize("reader", BEGINNINGS)
def test_a_file_is_read_by_the_reader_of_its_kind_alone(reader: str, program: Path) -> None:
    log = install(program, 'Path(made).write_bytes(b"\\0\\x40" * 160)')
    data = BEGINNINGS[reader] + bytes(40)
    assert is_foreign_sound(data)
    samples, rate = decode_foreign(data, "file", 10.0)
    assert rate == 16_000 and samples.dtype == np.float32 and np.array_equal(samples, np.full(160, 0.5, np.float32))
    arguments = log.read_text().split("\n")
    assert arguments[arguments.index("-f") + 1] == reader and arguments[arguments.index("-t") + 1] == "11.0"
    assert arguments[arguments.index("-protocol_whitelist") + 1] == "file" and "-nostdin" in arguments
    assert not Path(arguments[-1].removeprefix("file:")).exists(), "nothing is left behind"


@pytest.mark.parametrize("data", [wav(SINE), mp3(3), flac([0]), b"", b"hello", b"#EXTM3U\nhttp://x/", b"ffconcat"])
def test_sounds_of_miniaudio_and_playlists_are_not_for_ffmpeg(data: bytes) -> None:
    assert not is_foreign_sound(data)


def test_without_ffmpeg_the_error_says_what_to_do(program: Path) -> None:
    error = refusal(BEGINNINGS["mov"])
    assert error.code == "unsupported_value" and error.status == 400
    assert "the audio is MP4 or M4A" in error.message and "Install ffmpeg, or send WAV, MP3, or FLAC" in error.message


def test_a_file_that_ffmpeg_cannot_decode_is_refused_with_its_words(program: Path) -> None:
    install(program, 'sys.stderr.write("first\\n" + given + ": moov atom not found\\n\\n"); sys.exit(69)')
    error = refusal(BEGINNINGS["mov"])
    assert "ffmpeg cannot decode it: " in error.message and error.message.endswith("moov atom not found.")
    assert "localai_shim-" not in error.message, "the folder of its files is nobody's business"


def test_a_program_that_says_nothing_is_reported_with_its_status(program: Path) -> None:
    install(program, "sys.exit(3)")
    assert "it ended with 3" in refusal(BEGINNINGS["ogg"]).message


def test_a_sound_that_is_empty_or_too_long_is_refused(program: Path) -> None:
    install(program, 'Path(made).write_bytes(b"")')
    assert "no samples" in refusal(BEGINNINGS["ogg"]).message
    install(program, "Path(made).write_bytes(bytes(2 * 16_001))")
    assert "more than 1 seconds" in refusal(BEGINNINGS["ogg"], 1.0).message


def test_a_program_that_hangs_ends_with_the_request(program: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    install(program, f"import os\nPath({str(started)!r}).write_text(str(os.getpid()))\ntime.sleep(600)")
    with until(Deadline(2.0)), pytest.raises(Overdue):
        decode_foreign(BEGINNINGS["ogg"], "file", 10.0)
    if started.exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int(started.read_text()), 0)


def test_a_program_that_takes_too_long_is_ended(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(program, "time.sleep(600)")
    monkeypatch.setattr(ffmpeg, "_MAX_SECONDS", 0.1)
    assert "more than 0 seconds" in refusal(BEGINNINGS["ogg"]).message
