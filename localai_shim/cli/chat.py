"""Chat with a model on the terminal, or answer one question from a pipe."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..types import Json
from .shared import add_model, given_options, make_console, one_line, open_client, write

if TYPE_CHECKING:
    import openai
    from rich.console import Console

    from ..client.local import LocalOpenAI

HELP = """\
/image PATH   show the model a picture with your next question
/system TEXT  set the system message
/save PATH    write the conversation to a file, as JSON
/clear        forget the conversation, but for the system message
/quit         leave, as does Ctrl-D; Ctrl-C stops an answer
A line that ends with \\ goes on in the next one; \"\"\" begins and ends a text of several lines.
"""
PROMPT, GOES_ON, QUOTE = "> ", "... ", '"""'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--system", metavar="TEXT", help="system message")
    parser.add_argument("--temperature", type=float, metavar="T", help="0 is greedy; defaults to the model's default")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="maximum number of tokens of an answer")
    add_model(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask questions until there are no more; 1 if the only one had no answer."""
    fields = {name: getattr(arguments, name) for name in ("temperature", "max_tokens")}
    asked = {name: value for name, value in fields.items() if value is not None}
    with open_client("chat", arguments.model, given_options(arguments)) as client:
        chat = Chat(client, make_console(), asked)
        if arguments.system is not None:
            chat.set_system(arguments.system)
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            return 0 if chat.ask(sys.stdin.read().strip()) else 1
        _converse(chat, client)
    return 0


def _converse(chat: Chat, client: LocalOpenAI) -> None:
    """Ask what a person types, until they leave."""
    _edit_lines()
    model = client._runtime.engine_of("").model
    chat.say(f"{model.name}. /help says what else you can type.\n")
    while True:
        try:
            command, text = _read()
            if command == "quit":
                return
            if command is not None:
                chat.command(command, text)
            elif text:
                chat.ask(text)
        except EOFError:
            chat.say("\n")
            return
        except KeyboardInterrupt:
            chat.say("\n/quit or Ctrl-D leaves.\n")


def _edit_lines() -> None:
    """Give `input` a history and keys for editing; several lines that are pasted come as one."""
    with contextlib.suppress(ImportError):
        import readline

        if "libedit" not in (readline.__doc__ or ""):  # macOS's own, which has no such thing
            readline.parse_and_bind("set enable-bracketed-paste on")


def _read() -> tuple[str | None, str]:
    """Read what a person types next: a command, or None, and its text, which may have several lines."""
    text, command = input(PROMPT).strip(), None
    if text.startswith("/"):
        command, _, text = text[1:].partition(" ")
        text = text.lstrip()
    if text.startswith(QUOTE):
        text = text.removeprefix(QUOTE)
        while not text.rstrip().endswith(QUOTE):
            text += f"\n{input(GOES_ON)}"
        return command, text.rstrip().removesuffix(QUOTE).strip("\n")
    while text.endswith("\\"):
        text = f"{text[:-1]}\n{input(GOES_ON).rstrip()}"
    return command, text.strip()


class Chat:
    """A conversation, its pictures for the next question, and the terminal that shows it.

    Args:
        client: of the model.
        console: where answers go.
        fields: what each request asks for, apart from its messages.
    """

    def __init__(self, client: LocalOpenAI, console: Console, fields: Json) -> None:
        self._client, self._console, self._fields = client, console, fields
        self.messages: list[Json] = []
        self._pictures: list[Path] = []

    def say(self, text: str, style: str | None = "dim") -> None:
        """Show something that is not an answer, where a person looks."""
        if self._console.is_terminal:
            write(self._console, text, style)

    def set_system(self, text: str) -> None:
        """Set the system message, or take it away."""
        self.messages = [message for message in self.messages if message["role"] != "system"]
        if text:
            self.messages.insert(0, {"role": "system", "content": text})

    def command(self, name: str, rest: str) -> None:
        """Do what a line that begins with a slash asks for."""
        commands = {"image": self._add_picture, "system": self._say_system, "save": self._save, "clear": self._clear}
        if name in commands:
            commands[name](rest)
        else:
            self.say(HELP if name == "help" else f"There is no command /{name}. These are:\n{HELP}")

    def _say_system(self, text: str) -> None:
        had = any(message["role"] == "system" for message in self.messages)
        self.set_system(text)
        if text:
            self.say(f"The system message is {'changed' if had else 'set'}.\n")
        else:
            self.say("The system message is gone.\n" if had else "There was no system message.\n")

    def _clear(self, _: str) -> None:
        kept = [message for message in self.messages if message["role"] == "system"]
        forgotten, self.messages = len(self.messages) - len(kept), kept
        pictures = f" and {_counted(len(self._pictures), 'picture')}" if self._pictures else ""
        self._pictures.clear()
        rest = " The system message stays." if kept else ""
        self.say(f"Forgotten: {_counted(forgotten, 'message')}{pictures}.{rest}\n")

    def _add_picture(self, path: str) -> None:
        named = (Path(each).expanduser() for each in (path, _unquoted(path)) if each)
        picture = next((each for each in named if each.is_file()), None)
        if "image" not in self._client.stats().modalities:
            self.say("This model reads no images.\n", "red")
        elif picture is None:
            self.say(f"There is no file '{path}'.\n", "red")
        else:
            self._pictures.append(picture.resolve())
            self.say(f"Your next question comes with {picture.name}.\n")

    def _save(self, path: str) -> None:
        try:
            with Path(path).expanduser().open("x", encoding="utf-8") as file:  # what is there stays
                json.dump(self.messages, file, ensure_ascii=False, indent=2, default=str)
            self.say(f"Saved: {path}\n")
        except OSError as error:
            self.say(f"Not saved: {error.strerror or error}.\n", "red")

    def ask(self, text: str) -> bool:
        """Stream the answer to a question; whether there was one.

        An answer that Ctrl-C stops stays in the conversation as far as it came.
        """
        from openai import OpenAIError

        from ..client.content import image
        from ..sdk import private as sdk

        pictures, self._pictures = self._pictures, []
        content = [{"type": "text", "text": text}, *(image(path) for path in pictures)] if pictures else text
        self.messages.append({"role": "user", "content": content})
        answer = _Answer(self._console)
        try:
            answer.read(self._client, self.messages, self._fields)
        except KeyboardInterrupt:
            if not self._console.is_terminal:
                raise
        except (OpenAIError, sdk.TransportError) as error:  # the latter where the SDK's 2.x line reads a stream
            self.messages.pop()
            write(make_console(errors=True), f"{_message(error)}\n", "red")
            return False
        if answer.content:
            self.messages.append({"role": "assistant", "content": answer.content})
        else:
            self.messages.pop()  # two questions in a row are more than many templates take
        self.say(answer.summary())
        return True


class _Answer:
    """One answer, as it comes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.content = self._reasoning = ""
        self._began = time.perf_counter()
        self._first = self._last = 0.0
        self._usage: openai.types.CompletionUsage | None = None

    def read(self, client: LocalOpenAI, messages: list[Any], fields: Json) -> None:
        """Show the answer piece by piece, reasoning dimmed."""
        try:
            with client.chat.completions.create(
                model="local", messages=messages, stream=True, stream_options={"include_usage": True}, **fields
            ) as stream:
                for chunk in stream:
                    self._usage = chunk.usage or self._usage
                    for choice in chunk.choices:
                        self._show(getattr(choice.delta, "reasoning_content", None), choice.delta.content)
        finally:
            if self.content or self._reasoning:
                write(self._console, "\n")

    def _show(self, reasoning: str | None, content: str | None) -> None:
        if reasoning or content:
            self._last = time.perf_counter()
            self._first = self._first or self._last
        if reasoning and self._console.is_terminal:
            self._reasoning += reasoning
            write(self._console, reasoning, "dim")
        if content:
            if self._reasoning and not self.content:
                write(self._console, "\n\n")
            self.content += content
            write(self._console, content)

    def summary(self) -> str:
        """Speed of the answer, in a line."""
        if self._usage is None:
            return "(stopped)\n"
        tokens, seconds = self._usage.completion_tokens, self._last - self._first
        speed = f", {(tokens - 1) / seconds:.0f} tok/s" if tokens > 1 and seconds > 0 else ""
        return f"TTFT {(self._first or time.perf_counter()) - self._began:.2f} s, {tokens} tokens{speed}\n"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _unquoted(path: str) -> str:
    """A path as terminals write one that is dropped on them: with quotes, or backslashes before spaces."""
    with contextlib.suppress(ValueError):
        return " ".join(shlex.split(path))
    return path


def _message(error: Exception) -> str:
    body = getattr(error, "body", None)
    return one_line(str(body["message"] if isinstance(body, dict) and "message" in body else error))
