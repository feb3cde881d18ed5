"""Starts the engine of a model: its thread loads what the source names."""

from __future__ import annotations

import os
import weakref
from functools import partial
from typing import TYPE_CHECKING

from ..options import processes
from . import served_models
from .offload import import_modules
from .sources import Source

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..models.loading import Servable

LOST_SECONDS = 5.0  # after which an engine whose group was lost fails its requests, whatever its thread waits for
MODULES = ("models.loading", "engine.engine", "runtime.host")  # that run models


def start_engine(source: Source) -> Engine[Servable]:
    """Start the engine of a source, whose thread loads the model; in several processes with a group of them."""
    import_modules(*MODULES)
    from ..engine.engine import Engine
    from ..models.loading import load_draft_model, load_model, not_loaded
    from ..models.text import TextModel
    from .host import connect
    from .ollama_defaults import apply_defaults

    connect()
    path = source.options.get("draft_model")
    draft = partial(
        load_draft_model,
        None if path is None else os.fspath(path),
        source.options,
        progress=source.progress,
        search=source.search,
    )
    drafts = source.options.get("speculation") != "off" and processes(source.options) == 1

    def start() -> Servable:
        if processes(source.options) > 1:
            from .group import begin

            begin(source, end)
        model = load_model(source.path, source.options, source.name, source.progress, tuple(source.search))
        try:
            if source.defaults and isinstance(model, TextModel):
                apply_defaults(model, source.defaults, source.options)
            served_models.describe_loaded(model, source.options)
        except Exception as error:
            raise not_loaded(source.path, error) from error
        return model

    def end() -> None:
        for engine in started:
            engine.give_up(LOST_SECONDS)

    started: weakref.WeakSet[Engine[Servable]] = weakref.WeakSet()
    started.add(made := Engine(start, source.options, name=source.name, load_draft=draft if drafts else None))
    return made
