"""docs/cli.md shows what the commands say: its blocks are run, and numbers may differ."""

from __future__ import annotations

import io
import re
import shlex
import sys
from pathlib import Path

import huggingface_hub.constants
import pytest

from localai_shim.cli import bench, doctor
from localai_shim.cli.chat import HELP
from localai_shim.cli.main import COMMANDS, main

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def subjects(text: str) -> list[str]:
    """The first words of each line; where a machine differs, these do not, but for advice."""
    return [" ".join(line.split()[:2]) for line in text.splitlines() if not line.startswith("note")]


def shape(text: str) -> list[str]:
    """A text's words, line by line, with any number as 0."""
    return [" ".join(re.sub(r"[\d.,]*\d", "0", line).split()) for line in text.splitlines()]


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_a_block_shows_what_the_command_says(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "none"))
    monkeypatch.setattr(doctor, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(bench, "SECONDS", 0.1)
    if piped := re.match(r'echo "(.*)" \| ', command):
        monkeypatch.setattr(sys, "stdin", io.StringIO(piped[1] + "\n"))
        command = command[piped.end() :]
    name, *arguments = shlex.split(command)
    assert name == "localai-shim" and main(arguments) == 0
    said = capsys.readouterr().out
    if arguments == ["doctor"]:
        assert subjects(said) == subjects(shown)
    elif arguments[0] == "chat":
        assert said == shown
    else:
        assert shape(said) == shape(shown)


def test_the_page_has_every_command() -> None:
    assert re.findall(r"^## (\S+)$", PAGE, re.MULTILINE) == list(COMMANDS)


def test_the_page_has_every_line_that_chat_knows() -> None:
    known = re.findall(r"^(/\w+)", HELP, re.MULTILINE)
    assert set(known) <= set(re.findall(r"`(/\w+)", PAGE))
