"""Output of commands: tables and styles on a terminal, plain text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

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
