"""Parts that commands share: a model's options, loading it, which Ctrl-C ends immediately, and output.

Output has tables and styles on a terminal, and is plain text elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast, get_args

from ..options import OWN, TYPES, LoadOptions, LocalOptions, RunOptions, SearchOptions

if TYPE_CHECKING:
    from rich.console import Console

    from ..client.local import LocalOpenAI

INTERRUPTED = 130  # what shells say of a program that Ctrl-C has ended
NAMES = (*LoadOptions.__annotations__, *SearchOptions.__annotations__, *RunOptions.__annotations__)
_TURNED_OFF = ("local_models",)  # switches that are on by default


def add_model(parser: argparse.ArgumentParser, *flags: str, required: str | None = None) -> None:
    """Add the model, as an argument that may be left out or under these flags, and all options of clients.

    Args:
        parser: gets the arguments.
        flags: for the model.
        required: help for a model that must be given by a flag; None: it is the bundled one by default.
    """
    help = "folder, GGUF file, Hub ID, name of a model on this machine, or builtin:vision; by default the bundled model"
    if flags:
        parser.add_argument(*flags, dest="model", metavar="MODEL", required=required is not None, help=required or help)
    else:
        parser.add_argument("model", nargs="?", metavar="MODEL", help=help)
    group = parser.add_argument_group("options of the model")
    for name in NAMES:
        flag, option, kinds = "--" + name.replace("_", "-"), OWN[name], {TYPES[name], *get_args(TYPES[name])}
        help = option.doc.replace("`", "").replace("%", "%%")
        if name in _TURNED_OFF:
            group.add_argument(
                f"--no-{flag[2:]}", action="store_false", dest=name, default=None, help=f"do not: {help}"
            )
            continue
        if bool in kinds:
            group.add_argument(flag, action="store_true", default=None, help=help)
            continue
        kind = int if int in kinds else float if float in kinds else str
        group.add_argument(flag, type=kind, choices=option.choices or None, metavar=_metavar(name, kind), help=help)


def _metavar(name: str, kind: type) -> str:
    if kind is int or kind is float:
        return "N" if kind is int else "SECONDS"
    return "PATH" if name.endswith(("path", "dir")) else "NAME" if name.endswith(("format", "revision")) else "HOW"


def given_options(arguments: argparse.Namespace) -> LocalOptions:
    """The options that were given."""
    found = {name: getattr(arguments, name) for name in NAMES if getattr(arguments, name) is not None}
    return cast(LocalOptions, found)  # argparse has read them by their types


def open_client(command: str, model: str | None, options: LocalOptions) -> LocalOpenAI:
    """A client whose model is loaded, with a bar on a terminal; the model goes when the client is closed.

    Raises:
        ModelLoadError: it could not be loaded.
    """
    with ending_at_once(command):
        from ..client.local import LocalOpenAI

        options["keep_alive"] = 0
        client = LocalOpenAI(model, **options)
        try:
            _ = client._runtime.engine_of("").model
        except Exception:
            client.close()
            raise
        return client


@contextlib.contextmanager
def ending_at_once(command: str) -> Iterator[None]:
    """End the program where Ctrl-C comes while there is nothing to lose, such as while a model is fetched or loaded.

    Threads that fetch or load cannot be stopped, and an ordinary end waits for them.
    """
    try:
        yield
    except KeyboardInterrupt:
        end = "\n" if sys.stderr.isatty() else ""  # of the bar's line, or of the ^C
        sys.stderr.write(f"{end}{interrupted(command)}")
        sys.stderr.flush()
        os._exit(INTERRUPTED)


def interrupted(command: str) -> str:
    """The line that a command ends with when Ctrl-C has ended it."""
    return f"localai-shim {command}: interrupted\n"


Fact = tuple[str, str]  # name and value
PLAIN_WIDTH = 160  # columns, where there is no terminal to ask
_CONTROLS = {code: None for code in (*range(32), 127, *range(128, 160)) if chr(code) not in "\n\t"}


def one_line(text: str) -> str:
    """A message without line breaks, as those of libraries have."""
    return " ".join(text.split())


def make_console(*, errors: bool = False) -> Console:
    """Writes to stdout, or to stderr, with styles where that is a terminal."""
    from rich.console import Console

    stream = sys.stderr if errors else sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False)


def write(console: Console, text: str, style: str | None = None) -> None:
    """Write a piece of text as it is, without control characters on a terminal: models and files may say anything."""
    if console.is_terminal:
        text = text.translate(_CONTROLS)
    if style is None:
        console.file.write(text)  # rich would turn tabs into spaces
    else:
        console.out(text, style=style, end="", highlight=False)
    console.file.flush()


def print_table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; columns whose names begin with '>' are aligned at the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    with console.capture() as shown:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in shown.get().splitlines()))
