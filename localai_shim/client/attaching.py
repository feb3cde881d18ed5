"""Batches and vector stores of a client: made when they are first used, resumed if some of their work is left."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..endpoints.vector_stores.tool import FileSearchHook
from ..runtime.engines import Runtime
from ..runtime.offload import resume_later
from ..threads.deadline import Deadline, Overdue, until
from ..types import EngineClosedError

if TYPE_CHECKING:
    from ..endpoints.batches.runner import Batches
    from ..endpoints.responses.background import Background
    from ..endpoints.vector_stores.library import Library
    from ..state.store import Store

RESUME_SECONDS = 0.1  # that a constructor waits for other processes before it leaves unfinished work to another thread


def attach_state(runtime: Runtime) -> None:
    """Start the runners of batches and of vector stores, and resume unfinished work from the store."""
    runtime.make_batches = partial(_make_batches, weakref.ref(runtime))
    runtime.make_library = partial(_make_library, weakref.ref(runtime))
    runtime.hooks = {"file_search": FileSearchHook(partial(_library_of, weakref.ref(runtime))), **runtime.hooks}
    if runtime.store_path is None:
        return
    if runtime.store().owned("batch"):
        _resume(runtime.batches().resume)
    from ..state.vectors import has_unfinished

    if has_unfinished(runtime.store()):
        _resume(lambda: runtime.library().ingestion.resume())


def _resume(resume: Callable[[], None]) -> None:
    try:
        with until(Deadline(RESUME_SECONDS)):
            resume()
    except Overdue:  # another process writes just now
        resume_later(resume)


def _library_of(runtime: weakref.ref[Runtime]) -> Library:
    alive = runtime()
    if alive is None:
        raise EngineClosedError("the client is gone")
    return alive.library()


def _make_library(runtime: weakref.ref[Runtime], store: Store, background: Background) -> Library:
    from .vector_stores import make_library

    return make_library(runtime, store, background)


def _make_batches(runtime: weakref.ref[Runtime], store: Store, background: Background) -> Batches:
    from .batch_lines import make_batches

    return make_batches(runtime, store, background)
