"""The models on this machine: what each is, and whether it can be loaded, without reading any weights."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path

from ..formats.markup import Evidence, detect
from ..models.chat_templates import read_formats
from ..models.checkpoint.files import read_json
from ..models.gguf.config import read_config
from ..models.gguf.header import Header, peek, read_header, type_name
from ..models.loading import refusal
from ..models.local.folders import Found, label_of
from ..models.local.places import HUB
from ..models.local.search import all_models
from ..types import Json, ModelLoadError

PACKAGE = "localai_shim"
ONE_AT_A_TIME = frozenset({"hy_v4"})
"""Architectures whose requests do not share a pass, as docs/model-architectures.md has them. Loading tries each."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that is on this machine, as far as its files say."""

    name: str
    """By which it is used."""
    program: str
    """The program that has put it here."""
    path: str
    bytes: int
    """Of its weights' files."""
    format: str
    """Form and quantization of its weights."""
    architecture: str
    """The config's `model_type`, or a GGUF file's architecture."""
    reads: tuple[str, ...]
    """Kinds of media that it reads."""
    batched: bool
    """Its requests share forward passes."""
    calls: str
    """Format of its tool calls; empty if it has no chat template."""
    reasoning: str
    """Format of its reasoning; empty if it has no chat template."""
    problem: str = ""
    """Reason why it cannot be loaded; empty if its files show none."""

    @property
    def kind(self) -> str:
        """Architecture and kinds of media."""
        return ", ".join([self.architecture or "unknown", *self.reads])


def local_models(*, hub_only: bool = False) -> list[LocalModel]:
    """The models that other programs have put on this machine, in the order in which their folders are searched.

    Args:
        hub_only: list only the hub's cache.
    """
    return [_describe(found) for found in all_models() if found.place.program == HUB or not hub_only]


def describe_folder(name: str, folder: str, program: str = PACKAGE, problem: str = "") -> LocalModel:
    """Describe the checkpoint of a folder."""
    path = Path(folder)
    config = read_json(path / "config.json")
    weights = [file for file in path.glob("*.safetensors") if file.exists()]
    media = (("image", "vision_config"), ("audio", "audio_config"))
    formats = read_formats(path)
    kind = str(config.get("model_type") or "")
    return LocalModel(
        name,
        program,
        folder,
        sum(file.stat().st_size for file in weights),
        _format(config),
        kind,
        tuple(medium for medium, key in media if config.get(key)),
        kind not in ONE_AT_A_TIME,
        "" if formats is None or formats.tools is None else formats.tools.name,
        "" if formats is None else formats.reasoning,
        problem or refusal(path),
    )


def _describe(found: Found) -> LocalModel:
    program, path = found.place.program, str(found.path)
    if found.is_folder and not found.leaves:
        return describe_folder(found.name, path, program, found.problem)
    size = 0 if found.leaves else sum(file.stat().st_size for file in found.files if file.exists())
    header: Header | None = None
    problem = found.problem
    if not problem:
        header, problem = _read_gguf(found.path)
    metadata = {} if header is None else header.metadata
    template = metadata.get("tokenizer.chat_template")
    formats = detect(Evidence(template)) if isinstance(template, str) else None
    return LocalModel(
        found.name,
        program,
        path,
        size,
        _gguf_format(found.path, header),
        str(metadata.get("general.architecture", "")),
        (),
        True,
        "" if formats is None or formats.tools is None else formats.tools.name,
        "" if formats is None else formats.reasoning,
        problem,
    )


def _read_gguf(file: Path) -> tuple[Header | None, str]:
    """A file's header, and why it cannot be loaded."""
    try:
        header = read_header(file, lists=False)
    except (ModelLoadError, OSError) as error:
        problem = str(error)
    else:
        try:
            read_config(header)
        except ModelLoadError as error:
            return header, str(error)
        return header, ""
    with contextlib.suppress(ModelLoadError, OSError):
        return peek(file), problem
    return None, problem


def _format(config: Json) -> str:
    own, foreign = config.get("quantization"), config.get("quantization_config")
    if isinstance(own, dict):
        mode = own.get("mode", "affine")
        return f"MLX {own.get('bits', '?')}-bit" if mode == "affine" else f"MLX {mode}"
    if isinstance(foreign, dict):
        return f"safetensors {foreign.get('quant_method', 'quantized')}"
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else {}
    names = (part.get(key) for part in (config, inner) for key in ("dtype", "torch_dtype"))
    return f"safetensors {next((name for name in names if isinstance(name, str)), '')}".rstrip()


def _gguf_format(file: Path, header: Header | None) -> str:
    """The quantization that a file's name has, or else the type of most of its weights."""
    if label := label_of(file.stem.partition("-00001-of-")[0]):
        return f"GGUF {label}"
    if header is None or not header.tensors:
        return "GGUF"
    sizes: Counter[int] = Counter()
    for tensor in header.tensors.values():
        sizes[tensor.kind] += prod(tensor.shape)
    return f"GGUF {type_name(sizes.most_common(1)[0][0])}"
