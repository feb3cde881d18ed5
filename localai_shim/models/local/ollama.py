"""Ollama's models: manifests that name files by their digests, and the defaults that come with a model."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from ...types import Json, ModelLoadError
from ..gguf.header import peek
from .folders import Found
from .places import Place, is_inside

log = logging.getLogger("localai_shim")

PREFIX = "ollama/"
MAX_LAYER_BYTES = 1 << 24
"""Most bytes of a manifest, and of a layer that is read as text."""
_REGISTRY, _LIBRARY, _LATEST = "registry.ollama.ai", "library", "latest"
_HUB_HOSTS = ("hf.co", "huggingface.co")
_PART = re.compile(r"\w[\w.-]{0,349}", re.ASCII)
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
_KIND = "application/vnd.ollama.image."
_MODEL, _TENSOR, _ADAPTER = "model", "tensor", "adapter"
_PARAMS, _SYSTEM, _MESSAGES, _DRAFT = "params", "system", "messages", "draft"
_TEMPLATE = "template"
_READ = (_PARAMS, _SYSTEM)
_PASSED_OVER = {
    _MESSAGES: "its example messages (MESSAGE) are not added to conversations",
    _DRAFT: "its draft model is not used: pass `draft_model`",
}


def find_model(place: Place, name: str) -> Found | None:
    """The model of a name as Ollama takes it: [[host/]owner/]model[:tag]."""
    base, tag = split_tag(name)
    parts = base.split("/")
    if len(parts) > 3 or not all(map(_PART.fullmatch, [*parts, tag or _LATEST])):
        return None
    hosts = [_REGISTRY, *_HUB_HOSTS] if len(parts) == 2 else [_REGISTRY]
    hosts, rest = ([parts[0]], parts[1:]) if len(parts) == 3 else (hosts, [_LIBRARY, *parts][-2:])
    for host in hosts:
        manifest = place.root.joinpath("manifests", host, *rest, tag or _LATEST)
        if manifest.is_file():
            return _read(place, manifest)
    return None


def all_models(place: Place) -> Iterator[Found]:
    """All models that have a manifest."""
    for host in _names(place.root / "manifests"):
        for owner in _names(host):
            for model in _names(owner):
                yield from (_read(place, tag) for tag in _names(model))


def split_tag(name: str) -> tuple[str, str]:
    """A name without its tag, and the tag, which is empty if there is none."""
    base, colon, tag = name.rpartition(":")
    return (base, tag) if colon and "/" not in tag else (name, "")


def read_defaults(found: Found) -> Json:
    """Defaults for fields that a request leaves out: Ollama's parameters, and the system prompt as `system`.

    A layer that cannot be read is named in the log. So is a part of the model that is not used here.
    """
    made: Json = {}
    layers, name = found.layers, found.name
    if _TEMPLATE in layers and not _has_template(found.path):
        log.warning("'%s' has a chat template in Ollama's own form only, which is not read: it completes text", name)
    for kind, what in _PASSED_OVER.items():
        if kind in layers:
            log.warning("'%s': %s", name, what)
    for kind, parse in _PARSERS.items():
        if kind not in layers:
            continue
        try:
            made |= parse(_text(layers[kind]))
        except (OSError, ValueError) as error:
            log.warning("'%s': Ollama's layer '%s' cannot be read, and has no effect: %s", name, kind, error)
    return made


def _has_template(file: Path) -> bool:
    try:
        return "tokenizer.chat_template" in peek(file).metadata
    except ModelLoadError:  # which is said when it is loaded
        return True


def _read_params(text: str) -> Json:
    given = json.loads(text)
    if not isinstance(given, dict):
        raise ValueError("it is no JSON object")
    return {key: value for key, value in given.items() if value is not None and key != _SYSTEM}


_PARSERS: dict[str, Callable[[str], Json]] = {_PARAMS: _read_params, _SYSTEM: lambda text: {_SYSTEM: text}}


def _text(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(MAX_LAYER_BYTES + 1)
    if len(content) > MAX_LAYER_BYTES:
        raise ValueError(f"it has more than {MAX_LAYER_BYTES:,} bytes")
    return content.decode()


def _names(folder: Path) -> list[Path]:
    """Entries of a folder of manifests."""
    try:
        return sorted(path for path in folder.iterdir() if _PART.fullmatch(path.name))
    except OSError:
        return []


def _shown(manifest: Path) -> str:
    """The shortest name by which Ollama knows a manifest."""
    host, owner, model, tag = manifest.parts[-4:]
    if host != _REGISTRY:
        return f"{host}/{owner}/{model}:{tag}"
    return f"{model}:{tag}" if owner == _LIBRARY else f"{owner}/{model}:{tag}"


def _read(place: Place, manifest: Path) -> Found:
    name = _shown(manifest)
    try:
        if not is_inside(manifest, place.root):
            where = os.path.realpath(manifest)
            problem = f"its manifest leads to '{where}', outside Ollama's folder '{place.root}'"
            return Found(name, place, manifest, problem=problem, leaves=True)
        content = json.loads(_text(manifest))
        layers = [(str(layer["mediaType"]), layer) for layer in content["layers"]]
    except OSError as error:
        return Found(name, place, manifest, problem=f"its manifest cannot be read: {error.strerror}")
    except (ValueError, KeyError, TypeError, RecursionError):
        return Found(name, place, manifest, problem=f"its manifest '{manifest}' is damaged: run `ollama pull {name}`")
    kinds = [(kind.removeprefix(_KIND), layer) for kind, layer in layers]
    try:
        return _found(name, place, kinds)
    except _UnusableError as error:
        return Found(name, place, manifest, problem=str(error), leaves=error.leaves)


class _UnusableError(Exception):
    """A model whose manifest is whole cannot be loaded."""

    def __init__(self, why: str, *, leaves: bool = False) -> None:
        super().__init__(why)
        self.leaves = leaves


def _found(name: str, place: Place, layers: list[tuple[str, Json]]) -> Found:
    kinds = [kind for kind, _ in layers]
    if _TENSOR in kinds:
        raise _UnusableError(
            "it is in Ollama's own form for MLX, a file for each tensor, which only Ollama reads: take another tag, or "
            "an MLX model of the Hugging Face Hub"
        )
    if _ADAPTER in kinds:
        raise _UnusableError("it has a LoRA adapter in GGUF, which is not read, and answers without it would differ")
    if kinds.count(_MODEL) != 1:
        count = kinds.count(_MODEL)
        raise _UnusableError(f"its weights are {count} files" if count else "it has no weights: it runs elsewhere")
    used = {kind: _blob(name, place, layer) for kind, layer in layers if kind in (_MODEL, *_READ)}
    passed = {kind: place.root for kind in kinds if kind == _TEMPLATE or kind in _PASSED_OVER}
    model = used.pop(_MODEL)
    return Found(name, place, model, (model,), layers=passed | used)


def _blob(name: str, place: Place, layer: Json) -> Path:
    """The file of a layer.

    Raises:
        _UnusableError: it is not there, or not whole, or it leaves the folder.
    """
    digest = _DIGEST.fullmatch(str(layer.get("digest")))
    if digest is None:
        raise _UnusableError(f"its manifest is damaged: {layer.get('digest')!r:.100} is no digest")
    path = place.root / "blobs" / f"sha256-{digest[1]}"
    if not is_inside(path, place.root):
        where = os.path.realpath(path)
        raise _UnusableError(f"'{path}' leads to '{where}', outside Ollama's folder '{place.root}'", leaves=True)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise _UnusableError(f"the file '{path}' is not there: run `ollama pull {name}`") from None
    except OSError as error:
        raise _UnusableError(f"the file '{path}' cannot be read: {error.strerror}") from None
    if not os.access(path, os.R_OK):
        raise _UnusableError(f"the file '{path}' cannot be read: this user has no permission")
    given = layer.get("size")
    if isinstance(given, int) and given != size:
        why = f"the file '{path}' has {size:,} bytes, not {given:,}: run `ollama pull {name}`"
        raise _UnusableError(why)
    return path
