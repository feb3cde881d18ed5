"""A digest of the checkpoint and of its code, and the one that was recorded when all tests of it passed.

`python -m tests.builtin.digest` records it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from localai_shim.builtin import CHECKPOINT

FILE = Path(__file__).with_name("checkpoint.sha256")
RECORD = "python -m tests.builtin.digest"


def digest() -> str:
    """Of the names and contents of the checkpoint's files, its package's modules and its tests."""
    made = hashlib.sha256()
    modules = [*CHECKPOINT.parent.glob("*.py"), *Path(__file__).parent.glob("*.py")]
    for path in sorted([*CHECKPOINT.iterdir(), *modules], key=lambda path: (path.parent.name, path.name)):
        if path.is_file():
            made.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return made.hexdigest()


def is_recorded() -> bool:
    return FILE.read_text(encoding="utf-8").strip() == digest()


if __name__ == "__main__":
    FILE.write_text(digest() + "\n", encoding="utf-8")
