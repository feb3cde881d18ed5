"""`doctor --report`: what an issue about a machine has to say, as text to paste. It names no person and no place."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..builtin import CHECKPOINT
from . import machine_facts, model_trials
from .show import Fact, one_line, write

if TYPE_CHECKING:
    from rich.console import Console

Section = Callable[[], Iterator[Fact]]
NAME_WIDTH = 30
_HOMES = re.compile(r"/(?:Users|home)/[^/\s'\":;,]+")


def write_report(console: Console) -> int:
    """Write all sections as they are done. The status is 1 if one of them failed."""
    failed = False
    with tempfile.TemporaryDirectory(prefix="localai_shim-") as folder:
        for name, section in _sections(Path(folder)):
            write(console, f"{name}\n", "bold")
            try:
                _write_facts(console, section())
            except Exception as error:
                failed = True
                _write_facts(console, [("failed", _shown(error))])
    return int(failed)


def _sections(folder: Path) -> Iterator[tuple[str, Section]]:
    yield "machine", machine_facts.machine
    yield "software", machine_facts.software
    yield "memory", machine_facts.memory
    yield "variables", machine_facts.variables
    yield "model", functools.partial(model_trials.make_model, folder, CHECKPOINT)
    yield "self-test", model_trials.self_test
    yield "tokens", functools.partial(model_trials.tokens, folder)
    yield "steps", functools.partial(model_trials.steps, folder)
    yield "chunks", functools.partial(model_trials.chunks, folder)
    yield "free buffers", functools.partial(model_trials.free_buffers, folder)


def _write_facts(console: Console, facts: Iterable[Fact]) -> None:
    for name, value in facts:
        write(console, f"  {name:{NAME_WIDTH}}  {redacted(one_line(value))}\n")


def _shown(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def redacted(text: str) -> str:
    """A text without the user's name, their folders, and the name of the machine."""
    for path, shown in _paths().items():
        text = text.replace(path, shown)
    text = _HOMES.sub("~", text)
    for name in _names():
        text = re.sub(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", "***", text)
    return text


def _paths() -> dict[str, str]:
    """The user's folders, longest first, and what is shown for them."""
    known = {tempfile.gettempdir(): "$TMPDIR", str(Path.home()): "~"}
    known |= {os.path.realpath(path): shown for path, shown in known.items()}
    return {path: known[path] for path in sorted(known, key=len, reverse=True) if path != "/"}


def _names() -> list[str]:
    """Names of the user and of the machine, longest first."""
    import getpass

    names = {platform.node(), platform.node().partition(".")[0]}
    with contextlib.suppress(ImportError, KeyError, OSError):  # a container's user may have none
        names.add(getpass.getuser())
    return sorted(names - {""}, key=len, reverse=True)
