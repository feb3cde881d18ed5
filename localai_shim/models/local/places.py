"""Folders in which other programs keep models. They are read, never written."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import NamedTuple

from ..checkpoint.files import read_json

LM_STUDIO, HUB, OLLAMA, LLAMA_CPP, OMLX, JAN = "LM Studio", "Hugging Face", "Ollama", "llama.cpp", "omlx", "Jan"
"""Programs, in the order in which their folders are searched."""


class Place(NamedTuple):
    """A program's folder of models."""

    program: str
    root: Path


def find_places() -> list[Place]:
    """The folders that exist, in the order in which they are searched."""
    found = [
        *(Place(LM_STUDIO, root) for root in _lm_studio()),
        Place(HUB, _hub()),
        *(Place(OLLAMA, root) for root in _ollama()),
        Place(LLAMA_CPP, _llama_cpp()),
        Place(OMLX, Path.home() / ".omlx" / "models"),
        *(Place(JAN, root) for root in _jan()),
    ]
    known: dict[str, Place] = {}
    for place in found:
        if os.path.isdir(place.root):
            known.setdefault(os.path.realpath(place.root), place)
    return [*known.values()]


def is_inside(path: str | Path, root: Path) -> bool:
    """True if a path, with all links followed, is below a root."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _lm_studio() -> list[Path]:
    """LM Studio's folder, and where older versions had it; its settings may name another one."""
    old = Path.home() / ".cache" / "lm-studio"
    homes = [Path.home() / ".lmstudio", old]
    with contextlib.suppress(OSError, ValueError):
        homes.insert(0, Path((Path.home() / ".lmstudio-home-pointer").read_text(encoding="utf-8").strip()))
    named = [read_json(home / "settings.json").get("downloadsFolder") for home in homes]
    chosen = [Path(folder).expanduser() for folder in named if isinstance(folder, str) and os.path.isabs(folder)]
    return [*chosen, *(home / "models" for home in homes)]


def _hub() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _ollama() -> list[Path]:
    if given := os.environ.get("OLLAMA_MODELS"):
        return [Path(given).expanduser()]
    return [Path.home() / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")]


def _llama_cpp() -> Path:
    if given := os.environ.get("LLAMA_CACHE"):
        return Path(given).expanduser()
    return _cache() / "llama.cpp"


def _cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _jan() -> list[Path]:
    """Jan's folders of GGUF files and of MLX's; its settings may name another folder of data."""
    if sys.platform == "darwin":
        homes = [Path.home() / "Library" / "Application Support" / "Jan"]
    else:
        homes = [
            Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "Jan",
            Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "Jan",
        ]
    named = [read_json(home / "settings.json").get("data_folder") for home in homes]
    chosen = [Path(folder) for folder in named if isinstance(folder, str) and os.path.isabs(folder)]
    data = [*chosen, *(home / "data" for home in homes)]
    return [folder / kind / "models" for folder in data for kind in ("llamacpp", "mlx")]
