"""A digest of the checkpoint and of its code, and the one that was recorded when all tests of it passed.

`python -m tests.builtin.digest` records it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import training
from localai_shim.builtin import CHECKPOINT

FILE = Path(__file__).with_name("checkpoint.sha256")
RECORD = "python -m tests.builtin.digest"


def digest() -> str:
    """Of the names and contents of the checkpoint's files and of the modules that make and ask it."""
    made = hashlib.sha256()
    for path in [*sorted(CHECKPOINT.iterdir()), *sorted(Path(training.__file__).parent.glob("*.py"))]:
        made.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return made.hexdigest()


def is_recorded() -> bool:
    return FILE.read_text(encoding="utf-8").strip() == digest()


if __name__ == "__main__":
    FILE.write_text(digest() + "\n", encoding="utf-8")
