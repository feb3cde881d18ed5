"""Finds the file with the vision encoder of a GGUF model, as the tools that download both lay it down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ...types import ModelLoadError
from .header import peek

_MARK = "mmproj"
_PROJECTORS = {"gemma3": "gemma3"}
"""Kinds of encoders that can be read, with the architecture of their language models."""
_MODEL, _PROJECTOR = (f"application/vnd.ollama.image.{kind}" for kind in ("model", "projector"))
MAX_MANIFEST_BYTES = 1 << 24


def find_encoder(file: Path) -> tuple[Path | None, str]:
    """The vision encoder of a model; or None, and why the one that is there is not used.

    The reason is empty if there is no such file.
    """
    why = ""
    for encoder in _candidates(file):
        if not (reason := _unreadable(file, encoder)):
            return encoder, ""
        why = why or f"the vision encoder in '{encoder.name}' is not used: {reason}"
    return None, why


def _candidates(file: Path) -> Iterator[Path]:
    """Files that may be the encoder, by the names of LM Studio, the hub, llama.cpp's cache, and Ollama."""
    if file.parent.name == "blobs":
        yield from _ollama(file)
        return
    for path in sorted(file.parent.glob(f"*{_MARK}*.gguf")):
        before = path.name.partition(_MARK)[0]  # in a cache that all models share, the owner and the repository
        if path != file and file.name.startswith(before):
            yield path


def _ollama(file: Path) -> Iterator[Path]:
    """Projectors of the manifests whose model is this blob."""
    for manifest in sorted((file.parent.parent / "manifests").glob("*/*/*/*")):
        try:
            if manifest.stat().st_size > MAX_MANIFEST_BYTES:
                continue
            layers = {
                str(layer["mediaType"]): str(layer["digest"]) for layer in json.loads(manifest.read_text())["layers"]
            }
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        names = {kind: digest.replace(":", "-") for kind, digest in layers.items()}
        if names.get(_MODEL) == file.name and (name := names.get(_PROJECTOR)) and Path(name).name == name:
            path = file.parent / name
            if path.is_file() and not path.is_symlink():
                yield path


def _unreadable(file: Path, encoder: Path) -> str:
    """Why an encoder is not used; empty if it is."""
    try:
        model, header = peek(file), peek(encoder)
        architecture = model.get("general.architecture", "")
        kind = header.get("clip.projector_type", "") or header.get("clip.vision.projector_type", "")
        widths = model.get(f"{architecture}.embedding_length", 0), header.get("clip.vision.projection_dim", 0)
    except ModelLoadError as error:
        return str(error)
    if header.get("general.architecture", "") != "clip":
        return "it is not an encoder"
    if _PROJECTORS.get(kind) != architecture:
        known = ", ".join(_PROJECTORS.values())
        return f"encoders of the kind '{kind[:100]}' cannot be read with '{architecture[:100]}', only those of {known}"
    if widths[0] != widths[1]:
        return f"its features have {widths[1]} numbers, and the model's embeddings {widths[0]}"
    return ""
