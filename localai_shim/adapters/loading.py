"""Loads a checkpoint as what it is: a model of text through mlx-lm; one that sees, hears or embeds through mlx-vlm."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from ..options import LoadOptions
from ..types import Task
from .classifier import ClassifierModel, is_classifier
from .embedding import EmbeddingModel, encoder_module
from .files import read_json
from .text import TextModel, load_as

Servable = TextModel | EmbeddingModel | ClassifierModel


def load_model(
    path_or_id: str, options: LoadOptions, name: str | None = None, progress: bool | None = None
) -> Servable:
    """Load a folder or a hub id; a bar shows how far that is.

    Args:
        path_or_id: the folder, or the hub id.
        options: see `LoadOptions`.
        name: what `response.model` will say; the folder's name or the hub id by default.
        progress: whether a bar is shown; None: on a terminal.

    Raises:
        ModelLoadError: no such model, or it is broken, or of a kind that cannot be served.
    """
    return load_as(lambda path: _kind(path, options), path_or_id, options, name, progress)


def _kind(path: Path, options: LoadOptions) -> type[Servable]:
    config = read_json(path / "config.json")
    if is_classifier(config):
        return ClassifierModel
    if encoder_module(path, config) is not None:
        return EmbeddingModel
    kind = config.get("model_type")
    if not _has_tower(config) and isinstance(kind, str) and _mlx_lm_has(kind):
        return TextModel
    from .vision_families import model_type, refuse

    refuse(path.name, config, options)
    if model_type(config) is None:  # mlx-lm leaves the tower out where it knows the language model, and else says so
        return TextModel
    from .vision import VisionModel

    return VisionModel


def only_tasks(folder: Path) -> tuple[Task, ...] | None:
    """What a checkpoint is for that generates no text, before it is loaded; None for all others."""
    config = read_json(folder / "config.json")
    if is_classifier(config):
        return tuple(ClassifierModel.tasks)
    return None if encoder_module(folder, config) is None else tuple(EmbeddingModel.tasks)


def _has_tower(config: dict[str, Any]) -> bool:
    return bool(config.get("vision_config") or config.get("audio_config"))


def _mlx_lm_has(kind: str) -> bool:
    from mlx_lm.utils import MODEL_REMAPPING

    return importlib.util.find_spec(f"mlx_lm.models.{MODEL_REMAPPING.get(kind, kind)}") is not None
