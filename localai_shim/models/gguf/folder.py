"""Folder that stands for a GGUF file: a config and a tokenizer as those of any checkpoint, and a link to the file."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

from .config import read_config
from .header import Header, read_header
from .tokenizer import end_tokens, read_tokenizer

SUFFIX = ".gguf"
WEIGHTS = "model.gguf"
_SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}

_lock = threading.Lock()
_folders: dict[tuple[str, int, int], TemporaryDirectory[str]] = {}


def is_gguf(path: Path) -> bool:
    """True for a file that is named as a GGUF file is."""
    return path.suffix.lower() == SUFFIX and path.is_file()


def folder_of(file: Path) -> Path:
    """The folder that stands for a file; written once in a process, and again when the file has changed.

    Raises:
        ModelLoadError: the file cannot be read.
    """
    status = file.stat()
    key = (str(file.absolute()), status.st_size, status.st_mtime_ns)
    with _lock:
        made = _folders.get(key)
        if made is None or not os.path.isdir(made.name):
            made = TemporaryDirectory(prefix="localai-shim-gguf-")
            try:
                _write(read_header(file), Path(made.name))
            except BaseException:
                made.cleanup()
                raise
            _folders[key] = made
        return Path(made.name)


def _write(header: Header, folder: Path) -> None:
    config, ends = read_config(header), end_tokens(header)
    read_tokenizer(header).save_pretrained(str(folder))
    sampling = {name: header.metadata.get(f"general.sampling.{key}") for key, name in _SAMPLING.items()}
    generation = {"eos_token_id": ends, **{name: value for name, value in sampling.items() if value is not None}}
    for name, content in (("config.json", {**config, "eos_token_id": ends}), ("generation_config.json", generation)):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    (folder / WEIGHTS).symlink_to(header.path.absolute())
    seconds = header.path.stat().st_mtime
    os.utime(folder / "config.json", (seconds, seconds))  # when the model was made
