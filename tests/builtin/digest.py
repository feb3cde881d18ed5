"""Digests of the checkpoints and of their code, and those that were recorded when all tests of each passed.

`python -m tests.builtin.digest checkpoint` records one, `... vision` the other.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import training
from localai_shim.builtin import CHECKPOINT, VISION
from tests.samples import exhaustive

CODE = Path(training.__file__).parent
FOLDERS = {"checkpoint": (CHECKPOINT, CODE), "vision": (VISION, CODE / "vision")}
RECORD = "python -m tests.builtin.digest"


def file(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.sha256")


def digest(name: str) -> str:
    """Of the names and contents of a checkpoint's files and of the modules that make and ask it."""
    made, (folder, code) = hashlib.sha256(), FOLDERS[name]
    for path in [*sorted(folder.iterdir()), *sorted(code.glob("*.py"))]:
        made.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return made.hexdigest()


def is_recorded(name: str) -> bool:
    return file(name).read_text(encoding="utf-8").strip() == digest(name)


def when_changed(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`make test` runs it when the checkpoint, or what makes and asks it, is not what was tested last."""
    return exhaustive if is_recorded(name) else lambda test: test


if __name__ == "__main__":
    for each in sys.argv[1:]:
        file(each).write_text(digest(each) + "\n", encoding="utf-8")
