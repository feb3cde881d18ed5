"""Starts the engine of a model, whose thread loads what the source names, and opens the store of a client."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..options import LocalOptions, check_option, processes
from . import served_models
from .offload import aside, import_modules
from .sources import ModelSource

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..models.loading import Servable

MAX_SWITCH_SECONDS = 1.0  # for which another thread could keep the GIL from an engine
LOST_SECONDS = 5.0  # after which an engine whose group was lost fails its requests, whatever its thread waits for
MODULES = ("models.loading", "engine.engine", "runtime.host")  # that run models


def start_engine(source: ModelSource) -> Engine[Servable]:
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


def open_store(store: Callable[[], object], close: Callable[[], None]) -> None:
    """Open a runtime's store now: better than to fail when the first answer is to be stored.

    Args:
        store: opens the file.
        close: closes the runtime.

    Raises:
        ValueError: the file cannot be used. The runtime is closed.
    """
    from ..state.errors import StoreError

    try:
        aside(store)
    except StoreError as error:
        close()
        raise ValueError(f"`store`: {error}") from error


def set_switch_interval(given: LocalOptions) -> None:
    """Have Python's threads take turns as the client wants, if it says so.

    Raises:
        ValueError: it is no number of seconds above 0.
    """
    seconds = given.get("switch_interval")
    if seconds is not None:
        check_option("switch_interval", seconds)
        if seconds > MAX_SWITCH_SECONDS:
            raise ValueError(f"`switch_interval` must be at most {MAX_SWITCH_SECONDS:g}, not {seconds!r}")
        sys.setswitchinterval(float(seconds))
