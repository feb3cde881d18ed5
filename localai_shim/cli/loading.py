"""Waiting for a command's model, which Ctrl-C ends at once."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..client.local import LocalOpenAI
    from ..options import LocalOptions

INTERRUPTED = 130  # what shells say of a program that Ctrl-C has ended


def open_client(command: str, model: str | None, options: LocalOptions) -> LocalOpenAI:
    """A client whose model is loaded, beside a bar on a terminal; it goes when the client is closed.

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
