"""A program on a terminal of its own, and a console that stands for one."""

from __future__ import annotations

import io
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Sequence

from rich.console import Console

from tests.warm import ROOT, python

WAIT_SECONDS = 60.0  # that a program may take to say something


class Terminal:
    """A program whose input and output are a pseudo-terminal's, where a test types and reads."""

    def __init__(self, script: str, arguments: Sequence[str] = ()) -> None:
        self._ours, theirs = os.openpty()
        self._program = subprocess.Popen(
            [*python("mlx"), "-c", script, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"},
        )
        os.close(theirs)
        self._unread = ""

    def until(self, text: str, *, interrupting: bool = False) -> str:
        """What the program shows up to and with a text.

        `interrupting`: send Ctrl-C again and again. Python forgets one that comes right before it waits for a line.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while text not in self._unread:
            wait = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._ours], [], [], min(wait, 0.2) if interrupting else wait)
            assert ready or time.monotonic() < deadline, f"no {text!r} in {self._unread!r}"
            if not ready:
                self.interrupt()
                continue
            try:
                self._unread += os.read(self._ours, 4096).decode(errors="replace")
            except OSError as error:
                raise AssertionError(f"it has ended without {text!r}: {self._unread!r}") from error
        end = self._unread.index(text) + len(text)
        shown, self._unread = self._unread[:end], self._unread[end:]
        return shown

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self._program.send_signal(signal.SIGINT)

    def wait(self) -> int:
        """The exit status."""
        return self._program.wait(WAIT_SECONDS)

    def close(self) -> None:
        self._program.kill()
        self._program.wait()
        os.close(self._ours)


def console(*, terminal: bool = True) -> tuple[Console, io.StringIO]:
    """A console, and what it writes."""
    shown = io.StringIO()
    made = Console(
        file=shown, force_terminal=terminal, width=100, color_system="standard", highlight=False, markup=False
    )
    return made, shown


def plain(text: str) -> str:
    """A text without a terminal's styles."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
