"""The vector stores of a client: what embeds their files."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from functools import partial

from ..endpoints.responses.background import Background
from ..endpoints.vector_stores.embedder import LOOK_SECONDS, Opened
from ..endpoints.vector_stores.library import Library
from ..runtime.engines import Runtime
from ..state.store import Store
from ..threads.deadline import left
from ..types import EngineClosedError
from .routes import check_task


def make_library(reference: weakref.ref[Runtime], store: Store, background: Background) -> Library:
    """Make the vector stores of a client."""
    return Library(
        store,
        partial(_open, reference),
        model=_alive(reference).embedding_name(),
        owner=background.owner,
        is_alive=background.is_alive,
    )


def _open(reference: weakref.ref[Runtime], wanted: Callable[[], object]) -> Opened:
    """Wait for the model that embeds.

    Args:
        wanted: called while it waits; may raise.

    Raises:
        BadRequest: the model cannot embed.
        EngineError: it cannot be loaded, or the client is closed.
    """
    runtime = _alive(reference)
    engine = runtime.embedding_engine()
    while not engine.is_ready:
        wanted()
        with contextlib.suppress(TimeoutError):
            engine.ready.result(min(LOOK_SECONDS, left() or LOOK_SECONDS))
    served = runtime.served(engine)
    check_task(served, "embed", runtime.names)
    return Opened(engine, served)


def _alive(reference: weakref.ref[Runtime]) -> Runtime:
    runtime = reference()
    if runtime is None:
        raise EngineClosedError("the client is gone")
    return runtime
