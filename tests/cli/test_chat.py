"""`chat`: what a person sees and types on a terminal, and what comes through a pipe."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from localai_shim.cli import chat as module
from localai_shim.cli.chat import HELP, Chat
from localai_shim.cli.main import main
from localai_shim.testing import ScriptedOpenAI, api_error, cut, reasoning, scripted
from tests import inside
from tests.cli.terminal import WAIT_SECONDS, Terminal, console, plain
from tests.engine.harness import eventually
from tests.tiny import tiny

# The tiny model goes on for ever, so that there is an answer to be stopped.
ENDLESS = """
import sys
from localai_shim.cli import chat, main
class Endless(chat.Chat):
    def __init__(self, client, console, fields):
        super().__init__(client, console, {**fields, "max_tokens": 150_000, "extra_body": {"ignore_eos": True}})
chat.Chat = Endless
raise SystemExit(main.main(["chat", *sys.argv[1:]]))
"""


def test_ctrl_c_stops_an_answer_and_not_the_program(tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    terminal = Terminal(ENDLESS, [str(tiny("qwen3", max_position_embeddings=200_000))])
    try:
        assert "tiny-qwen3. /help" in terminal.until("> ")
        for question in ("one", "two"):
            terminal.type(f"{question}\n")
            terminal.until(f"{question}\r\n")
            terminal.until(" ")  # the answer is under way
            terminal.interrupt()
            terminal.until("(stopped)")
            terminal.until("> ")
        terminal.type('"""one\n')
        terminal.until("... ")
        terminal.until("/quit or Ctrl-D leaves.", interrupting=True)
        terminal.until("> ")
        terminal.type("/nonsense\n")
        assert "There is no command /nonsense" in terminal.until("Ctrl-C stops an answer")
        terminal.until("> ")
        terminal.type("\x1b[200~three\rlines\rpasted\x1b[201~\n")  # as terminals send what is pasted
        terminal.until("pasted")
        terminal.until(" ")
        terminal.interrupt()
        terminal.until("(stopped)")
        terminal.until("> ")
        terminal.type(f"/save {saved}\n")
        terminal.until("Saved: ")
        terminal.until("> ")
        terminal.type("\x04")
        assert terminal.wait() == 0
        asked = [each["content"] for each in json.loads(saved.read_text()) if each["role"] == "user"]
        assert asked == ["one", "two", "three\nlines\npasted"]
    finally:
        terminal.close()


def test_a_question_through_a_pipe_gets_one_answer_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("What is your name?\n"))
    assert main(["chat", "--temperature", "0"]) == 0
    out, err = capsys.readouterr()
    assert "Shim" in out and out.count("\n") == 1 and out.endswith("\n") and "\x1b" not in out and err == ""


def test_a_model_that_is_none_is_said_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello"))
    assert main(["chat", "./nowhere"]) == 1
    assert capsys.readouterr() == ("", "localai-shim chat: There is no folder './nowhere'.\n")


# What is read first is a fifo: that goes on until somebody writes, as a download would.
LOADS = """
import sys
from pathlib import Path
from localai_shim.runtime import sources
from localai_shim.cli import main
from localai_shim.models import loading
sources.CHECKPOINT, fetch = Path(sys.argv[1]), loading.fetch
loading.fetch = lambda *given: (Path(sys.argv[1] + ".fifo").read_text(), fetch(*given))[1]
raise SystemExit(main.main(sys.argv[2:]))
"""


def writer_of(fifo: Path) -> int | None:
    """A descriptor behind which a program waits that reads the fifo; None while none does."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


@pytest.mark.parametrize("command", ["chat", "batch in out", "bench", "doctor"])
def test_ctrl_c_while_a_model_loads_ends_every_command_and_says_so(command: str, tmp_path: Path) -> None:
    name, *rest = command.split()
    model, fifo = shutil.copytree(tiny("qwen3"), tmp_path / "model"), tmp_path / "model.fifo"
    os.mkfifo(fifo)
    (tmp_path / "in").write_text("{}\n")
    opened: list[int] = []
    terminal = Terminal(LOADS, [str(model), name, *(str(tmp_path / each) for each in rest)])
    try:
        assert eventually(lambda: (fd := writer_of(fifo)) is not None and not opened.append(fd), WAIT_SECONDS)
        terminal.interrupt()
        assert f"localai-shim {name}: interrupted" in terminal.until("interrupted")
        assert terminal.wait() == 130
        assert not (tmp_path / "out").exists()
    finally:
        terminal.close()
        for fd in opened:
            os.close(fd)


# -- on a script -----------------------------------------------------------------------------------------------------


@pytest.fixture
def client() -> Iterator[ScriptedOpenAI]:
    with scripted() as client:
        yield client


def chat_with(client: ScriptedOpenAI, *, terminal: bool = True, **fields: Any) -> tuple[Chat, io.StringIO]:
    made, shown = console(terminal=terminal)
    return Chat(client, made, fields), shown


def test_reasoning_is_dimmed_and_the_speed_stands_below(client: ScriptedOpenAI) -> None:
    client.script([reasoning("Let me think."), "Paris is [bold]it[/bold] :smile:."])
    chat, shown = chat_with(client)
    assert chat.ask("The capital of France?")
    assert "\x1b[2m" in shown.getvalue().split("\n")[0] and "\nParis is [bold]it[/bold]" in shown.getvalue()
    thought, answer, speed, end = plain(shown.getvalue()).replace("\n\n", "\n").split("\n")
    assert thought == "Let me think."
    assert answer == "Paris is [bold]it[/bold] :smile:."
    words = speed.split()
    assert words[0] == "TTFT" and "tokens," in words and words[-1] == "tok/s" and end == ""
    assert chat.messages[-1] == {"role": "assistant", "content": "Paris is [bold]it[/bold] :smile:."}


def test_a_pipe_gets_the_answer_alone(client: ScriptedOpenAI) -> None:
    client.script([reasoning("Let me think."), "Paris."])
    chat, shown = chat_with(client, terminal=False)
    assert chat.ask("The capital of France?")
    assert shown.getvalue() == "Paris.\n"


def test_what_a_model_says_cannot_command_the_terminal(client: ScriptedOpenAI) -> None:
    client.script("a\x1b]0;title\x07b\x9b2Jc\td")
    chat, shown = chat_with(client)
    chat.ask("?")
    assert shown.getvalue().startswith("a]0;titleb2Jc\td\n")


def test_the_conversation_goes_on_and_begins_anew(client: ScriptedOpenAI) -> None:
    client.script("Hello Ada.", "Ada.", "Who knows.")
    chat, _ = chat_with(client, temperature=0.5, max_tokens=99)
    chat.command("system", "Be brief.")
    for question in ("I am Ada.", "Who am I?"):
        chat.ask(question)
    assert [message["role"] for message in client.last_call.messages] == ["system", "user", "assistant", "user"]
    assert (client.last_call.body["temperature"], client.last_call.body["max_tokens"]) == (0.5, 99)
    chat.command("clear", "")
    chat.ask("Who am I?")
    assert [message["content"] for message in client.last_call.messages] == ["Be brief.", "Who am I?"]
    chat.command("system", "")
    assert [message["role"] for message in chat.messages] == ["user", "assistant"]


def test_what_changes_the_conversation_says_what_it_did(client: ScriptedOpenAI) -> None:
    client.script("Hello.")
    chat, shown = chat_with(client)

    def said(name: str, text: str = "") -> str:
        before = len(shown.getvalue())
        chat.command(name, text)
        return plain(shown.getvalue()[before:])

    assert said("clear") == "Forgotten: 0 messages.\n"
    assert said("system") == "There was no system message.\n"
    assert said("system", "Be brief.") == "The system message is set.\n"
    assert said("system", "Be kind.") == "The system message is changed.\n"
    chat.ask("Hi")
    assert said("clear") == "Forgotten: 2 messages. The system message stays.\n"
    assert said("system") == "The system message is gone.\n"
    assert chat.messages == []


def test_a_picture_goes_with_the_next_question(client: ScriptedOpenAI, tmp_path: Path) -> None:
    client.script("A red square.", "Nothing.")
    Image.new("RGB", (8, 8), "red").save(tmp_path / "red.png")
    chat, shown = chat_with(client)
    chat.command("image", str(tmp_path / "none.png"))
    assert "There is no file" in shown.getvalue()
    chat.command("image", str(tmp_path / "red.png"))
    chat.ask("What is this?")
    text, picture = chat.messages[0]["content"]
    assert text == {"type": "text", "text": "What is this?"} and picture["type"] == "image_url"
    chat.ask("And now?")
    assert chat.messages[2]["content"] == "And now?"
    chat.command("save", str(tmp_path / "saved.json"))
    saved = json.loads((tmp_path / "saved.json").read_text(encoding="utf-8"))
    assert saved[0]["content"][1]["image_url"]["url"] == str(tmp_path / "red.png")
    assert saved[1:] == chat.messages[1:]


def test_saving_overwrites_nothing(client: ScriptedOpenAI, tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_text("kept")
    chat, shown = chat_with(client)
    chat.command("save", str(tmp_path / "kept.json"))
    assert "Not saved: File exists." in shown.getvalue() and (tmp_path / "kept.json").read_text() == "kept"


def test_a_model_that_reads_no_pictures_says_so(builtin: Any) -> None:
    chat, shown = chat_with(builtin)
    _ = inside.engine(builtin).model
    chat.command("image", __file__)
    assert "reads no images" in shown.getvalue()


def test_a_failure_is_said_and_forgotten(client: ScriptedOpenAI, capsys: pytest.CaptureFixture[str]) -> None:
    client.script(api_error(400, "That is too long."), "Fine.")
    chat, shown = chat_with(client)
    assert not chat.ask("x" * 50)
    assert capsys.readouterr().err == "That is too long.\n" and shown.getvalue() == ""
    assert chat.ask("Short") and [message["content"] for message in chat.messages] == ["Short", "Fine."]


def test_an_answer_that_breaks_off_is_said_and_forgotten(
    client: ScriptedOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    client.script(cut("one two"), "Fine.")
    chat, _ = chat_with(client)
    assert not chat.ask("Count")
    assert "onnection" in capsys.readouterr().err
    assert chat.ask("Short") and [message["content"] for message in chat.messages] == ["Short", "Fine."]


def test_help_names_every_command(client: ScriptedOpenAI) -> None:
    chat, shown = chat_with(client)
    chat.command("help", "")
    assert plain(shown.getvalue()) == HELP
    for name in ("image", "system", "save", "clear", "quit"):
        assert f"/{name}" in HELP


# -- what is typed ---------------------------------------------------------------------------------------------------


def typed(client: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch, *lines: str) -> tuple[Chat, str]:
    """A conversation in which somebody types these lines, and then Ctrl-D; and what it shows."""
    chat, shown = chat_with(client)
    left = list(lines)

    def read(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    monkeypatch.setattr(module, "input", read, raising=False)
    module._converse(chat, client)
    return chat, plain(shown.getvalue())


@pytest.mark.parametrize(
    ("lines", "question"),
    [
        (["One line."], "One line."),
        (["What is \\", "  2 + 3 \\", "+ 4?"], "What is \n  2 + 3 \n+ 4?"),
        (['"""one line"""'], "one line"),
        (['"""', "def f():", "    return 1", "", "/quit", '"""'], "def f():\n    return 1\n\n/quit"),
        (['"""one', 'two"""'], "one\ntwo"),
        (['""" a "quoted" word', 'ends "so""""'], ' a "quoted" word\nends "so"'),
        (["a backslash \\ amid a line"], "a backslash \\ amid a line"),
        (["pasted:", "/nonsense"], "pasted:"),
    ],
)
def test_a_question_may_have_several_lines(
    client: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch, lines: list[str], question: str
) -> None:
    client.script("Yes.")
    typed(client, monkeypatch, *lines)
    assert [message["content"] for message in client.last_call.messages] == [question]


def test_a_system_message_may_have_several_lines(client: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    client.script("Yes.")
    chat, _ = typed(client, monkeypatch, '/system """Be brief.', 'Be kind."""', "Hello", "/system \\", "Be rude.")
    assert client.last_call.messages[0] == {"role": "system", "content": "Be brief.\nBe kind."}
    assert chat.messages[0]["content"] == "Be rude."


def test_leaving_amid_a_text_asks_nothing(client: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    typed(client, monkeypatch, '"""one', "two")
    typed(client, monkeypatch, "", "   ", '""""""', "/quit", "after")
    assert not client.calls


@pytest.mark.parametrize("written", ["{}", "'{}'", '"{}"', "escaped"])
def test_a_path_may_be_written_as_terminals_drop_it(
    client: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str
) -> None:
    path = tmp_path / "a red square.png"
    Image.new("RGB", (8, 8), "red").save(path)
    client.script("Red.")
    given = str(path).replace(" ", "\\ ") if written == "escaped" else written.format(path)
    chat, shown = typed(client, monkeypatch, f"/image {given}", "What is this?")
    assert "Your next question comes with a red square.png." in shown
    assert chat.messages[0]["content"][1]["image_url"]["url"] == path
