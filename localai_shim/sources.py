"""A model as a client names it: a folder, a hub id, or the checkpoint in the package, and how it is to be loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from .builtin import CHECKPOINT
from .options import ModelOptions, ModelPath
from .types import ModelLoadError

BUILTIN_NAME = "localai-shim-builtin"


@dataclass(frozen=True, slots=True)
class Source:
    """A model and how it is loaded and run: clients with equal sources share one engine."""

    path: str
    options: ModelOptions = field(default_factory=ModelOptions, hash=False)
    progress: bool | None = field(default=None, compare=False)
    """Whether a bar is shown while it is loaded; None: on a terminal."""

    @property
    def name(self) -> str:
        """What `response.model` says: the hub id, or the folder's name."""
        if self.path == builtin_path():
            return BUILTIN_NAME
        return Path(self.path).name if os.path.isdir(self.path) else self.path


def builtin_path() -> str:
    """The folder of the checkpoint that ships with the package."""
    return str(CHECKPOINT)


def resolve_path(model: ModelPath | None) -> str:
    """A folder's real path, or a hub id as it is.

    Raises:
        ModelLoadError: it looks like a path and is none.
    """
    if model is None:
        return builtin_path()
    text = os.fspath(model)
    path = Path(text).expanduser()
    if path.exists():
        if not (path / "config.json").exists():
            raise ModelLoadError(f"'{text}' is not a model: it has no config.json.", missing=True)
        return str(path.resolve())
    if text.startswith((".", "/", "~")) or text.count("/") > 1 or (os.sep != "/" and os.sep in text):
        raise ModelLoadError(f"There is no folder '{text}'.", missing=True)
    return text
