"""The hub's cache, made on the spot."""

from __future__ import annotations

import shutil
from pathlib import Path


def cache_model(home: Path, name: str, folder: Path | None, **more: str) -> Path:
    """Put a model into the hub's cache below HF_HOME; returns the folder of its snapshot."""
    repo = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = repo / "snapshots" / ("0" * 40)
    if folder is None:
        snapshot.mkdir(parents=True)
    else:
        shutil.copytree(folder, snapshot)
    for file, text in more.items():
        (snapshot / file.replace("_json", ".json")).write_text(text)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40)
    return snapshot
