"""Tells GGUF files from others by their first bytes, whatever their names are."""

from __future__ import annotations

from pathlib import Path

from ...types import ModelLoadError

MAGIC = b"GGUF"
_POINTER = b"version https://git-lfs.github.com/spec"


def is_gguf(path: Path) -> bool:
    """True for a file that begins as GGUF files do."""
    try:
        return path.is_file() and _first_bytes(path).startswith(MAGIC)
    except OSError:
        return False


def check_gguf(path: Path) -> None:
    """Refuse a file that is not GGUF.

    Raises:
        ModelLoadError: says what it is instead, if that is known.
    """
    first = _first_bytes(path)
    if first.startswith(_POINTER):
        raise ModelLoadError(
            f"'{path}' is a pointer of git-lfs, not the file itself. Run `git lfs pull` in its folder, or download it "
            "again.",
            missing=True,
        )
    if not first.startswith(MAGIC):
        raise ModelLoadError(
            f"'{path}' is not a model: it is no GGUF file, because it does not begin with 'GGUF'. Pass a GGUF file, or "
            "a folder with config.json and *.safetensors.",
            missing=True,
        )


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_POINTER))
