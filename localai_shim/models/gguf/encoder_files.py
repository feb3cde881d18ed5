"""Finds the file with the vision encoder of a GGUF model, as the tools that download both lay it down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ...types import ModelLoadError
from .encoders.description import PREFIX
from .encoders.table import ENCODERS, projector_type
from .header import Header, peek

_MARK = "mmproj"
_MODEL_LAYER, _PROJECTOR_LAYER = (f"application/vnd.ollama.image.{kind}" for kind in ("model", "projector"))
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
        if names.get(_MODEL_LAYER) == file.name and (name := names.get(_PROJECTOR_LAYER)) and Path(name).name == name:
            path = file.parent / name
            if path.is_file() and not path.is_symlink():
                yield path


def _unreadable(file: Path, encoder: Path) -> str:
    """Why an encoder is not used; empty if it is."""
    try:
        model, header = peek(file), peek(encoder)
        if header.get("general.architecture", "") != "clip":
            return "it is not an encoder"
        return _misfit(model, header)
    except ModelLoadError as error:
        return str(error)


def _misfit(model: Header, encoder: Header) -> str:
    """Why an encoder does not belong to a model, or cannot be read."""
    architecture, kind = model.get("general.architecture", ""), projector_type(encoder)
    known = ENCODERS.get(kind)
    if known is None or architecture not in known.architectures:
        pairs = ", ".join(f"{name} with {' or '.join(each.architectures)}" for name, each in ENCODERS.items())
        return f"encoders of the kind '{kind[:100]}' cannot be read with '{architecture[:100]}', only {pairs}"
    width, features = model.get(f"{architecture}.embedding_length", 0), encoder.get(f"{PREFIX}.projection_dim", 0)
    if features not in (0, width):  # 0 in files of an old converter
        return f"its features have {features} numbers, and the model's embeddings {width}"
    return known.misfit(encoder)
