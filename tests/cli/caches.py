"""The hub's cache, made on the spot."""

from __future__ import annotations

import shutil
from pathlib import Path

COMMIT = "0" * 40


def cache_model(
    home: Path, name: str, folder: Path | None, *, revision: str = "main", commit: str = COMMIT, **more: str
) -> Path:
    """Put a model into the hub's cache below HF_HOME; returns the folder of its snapshot."""
    repo = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = repo / "snapshots" / commit
    if folder is None:
        snapshot.mkdir(parents=True)
    else:
        shutil.copytree(folder, snapshot)
    for file, text in more.items():
        (snapshot / file.replace("_json", ".json")).write_text(text)
    (repo / "refs").mkdir(exist_ok=True)
    (repo / "refs" / revision).write_text(commit)
    return snapshot
