"""`transcribe`: files of speech become text or subtitles."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from localai_shim.cli.main import main
from tests.endpoints.audio.quiet import quiet_whisper
from tests.prompt.media.files import wav


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Two files of half a second."""
    made = [tmp_path / "a.wav", tmp_path / "b.wav"]
    for path in made:
        path.write_bytes(wav(np.zeros(8_000, np.int16)))
    quiet_whisper()
    capsys.readouterr()
    return [str(path) for path in made]


def test_each_file_is_printed_in_its_order(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", *files, "-m", str(quiet_whisper()), "--format", "verbose_json", "-l", "de"]) == 0
    out, err = capsys.readouterr()
    first, second = (json.loads(each) for each in out.replace("}\n{", "}\0{").split("\0"))
    assert first == second and (first["language"], first["duration"], first["text"]) == ("german", 0.5, "")
    assert err == ""


def test_a_folder_gets_a_file_for_each_and_a_file_that_fails_fails_alone(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, folder = tmp_path / "c.wav", tmp_path / "out"
    broken.write_bytes(b"no sound")
    names = [files[0], str(broken), str(tmp_path / "d.wav"), files[1]]
    assert main(["transcribe", *names, "-m", str(quiet_whisper()), "-f", "vtt", "-t", "-o", str(folder)]) == 1
    assert {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(("a.vtt", "b.vtt"), "WEBVTT\n\n")
    out, err = capsys.readouterr()
    [first, second] = err.splitlines()
    assert out == "" and first == f"{broken}: Invalid 'file': the audio is neither WAV nor MP3 nor FLAC."
    assert second.startswith(f"{tmp_path / 'd.wav'}: ") and "No such file" in second


def test_files_that_do_not_exist_are_noticed_before_a_model_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", "a.wav", "b.wav", "-m", "no/such/model"]) == 1
    assert "no such file: a.wav, b.wav" in capsys.readouterr().err


def test_a_model_of_text_says_that_it_does_not_transcribe(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", files[0], "-m", "builtin:vision"]) == 1
    assert "cannot transcribe speech" in capsys.readouterr().err


def test_a_model_must_be_given_because_the_bundled_one_does_not_hear(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["transcribe", files[0]])
    assert caught.value.code == 2
    assert "required: -m/--model" in capsys.readouterr().err


def test_no_file_overwrites_that_of_another(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["-m", str(quiet_whisper()), "-o", str(tmp_path / "out")]
    assert main(["transcribe", files[0], files[0], *arguments]) == 1
    assert "two files would be written to" in capsys.readouterr().err and not (tmp_path / "out").exists()
