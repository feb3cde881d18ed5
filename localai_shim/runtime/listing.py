"""Models as clients list them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from ..types import EngineError, EngineLike
from .offload import import_modules
from .sources import Source
from .starting import MODULES

if TYPE_CHECKING:
    from ..endpoints.models import Listed


def listed(source: Source, engine: EngineLike | None) -> Listed:
    """Entry of a model for lists, without waiting for it to be loaded.

    Args:
        engine: that runs it; None: it was not asked for yet.
    """
    import_modules(*MODULES)
    from ..endpoints.models import Listed
    from ..models.checkpoint_files import context_length, read_json
    from ..models.loading import only_tasks

    config = Path(source.path) / "config.json"
    made = config.parent if config.parent.is_file() else config
    created = int(made.stat().st_mtime) if made.exists() else 0
    if engine is not None and engine.is_ready and not engine.is_closed:
        with contextlib.suppress(EngineError):
            return Listed.of(engine.model, created, source.path)
    length = source.options.get("context_length") or context_length(read_json(config), None)
    return Listed(created, source.path, length, tasks=only_tasks(config.parent))
