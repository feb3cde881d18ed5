"""docs/cli.md shows what the commands say: its blocks are run, and numbers may differ."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub.constants
import pytest

from localai_shim.cli import bench, chat, doctor
from localai_shim.cli.chat import HELP
from localai_shim.cli.main import COMMANDS, main
from tests.cli.terminal import console, plain

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def subjects(text: str) -> list[str]:
    """The first words of each line; where a machine differs, these do not, but for advice and a CPU's BLAS."""
    words = [line.split()[:2] for line in text.splitlines()]
    return [" ".join(first) for first in words if first[:1] != ["note"] and first != ["ok", "BLAS"]]


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


def session(command: str) -> str:
    """The block that begins with a command, less that."""
    found = re.search(rf"^```text\n\$ localai-shim {command}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_conversation_goes_as_it_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written = session("chat --temperature 0")
    lines = re.findall(r"^(?:> |\.\.\. )(.*)$", written, re.MULTILINE)
    made, shown = console()

    def type_line(prompt: str) -> str:
        shown.write(f"{prompt}{lines[0]}\n")
        return lines.pop(0)

    at_terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(chat, "sys", SimpleNamespace(stdin=at_terminal, stdout=at_terminal))
    monkeypatch.setattr(chat, "make_console", lambda: made)
    monkeypatch.setattr(chat, "input", type_line, raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["chat", "--temperature", "0"]) == 0
    assert shape(plain(shown.getvalue())) == shape(written)
    assert [each["role"] for each in json.loads(Path("talk.json").read_text())] == ["user", "assistant"] * 2


def test_the_batch_is_answered_as_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    [requests] = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    Path("requests.jsonl").write_text(requests)
    assert main(["batch", "requests.jsonl", "answers.jsonl"]) == 0
    assert capsys.readouterr().err == session("batch requests.jsonl answers.jsonl")
    answers = {each["custom_id"]: each for each in map(json.loads, Path("answers.jsonl").read_text().splitlines())}
    assert {name: each["response"]["status_code"] for name, each in answers.items()} == {"name": 200, "sum": 200}
    assert "Shim" in str(answers["name"]) and "2 + 3 = 5" in str(answers["sum"])
    kept, *_ = Path("answers.jsonl").read_text().splitlines(keepends=True)
    Path("answers.jsonl").write_text(kept + "torn")
    assert main(["batch", "--resume", "requests.jsonl", "answers.jsonl"]) == 0
    assert capsys.readouterr().err == session("batch --resume requests.jsonl answers.jsonl")


def test_every_session_is_run_by_a_test() -> None:
    assert PAGE.count("\n$ ") == len(BLOCKS) + 3  # those of `chat` and `batch` have tests of their own, above


def test_the_page_has_every_command() -> None:
    assert re.findall(r"^## (\S+)$", PAGE, re.MULTILINE) == list(COMMANDS)


def test_the_page_has_every_line_that_chat_knows() -> None:
    known = re.findall(r"^(/\w+)", HELP, re.MULTILINE)
    assert set(known) <= set(re.findall(r"`(/\w+)", PAGE))
