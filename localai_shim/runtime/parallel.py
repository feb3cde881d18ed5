"""Has the engine's thread of a model that is spread over several processes begin: with followers, and a journal."""

from __future__ import annotations

from collections.abc import Callable

from ..engine.mirror import journal as mirror
from ..models.checkpoint_files import read_json
from ..models.hub import fetch
from ..models.sharded import check_shards
from ..options import ModelOptions, processes
from ..parallel import group, launched
from ..types import EngineClosedError, ModelLoadError
from .host import connect
from .sources import Source


def begin(source: Source, on_lost: Callable[[], None]) -> None:
    """Check that a model can be spread, start the other processes, and journal what this thread does.

    Args:
        source: the model.
        on_lost: see `Leader`.

    Raises:
        ModelLoadError: it cannot, or a process could not be started.
    """
    size = processes(source.options)
    config = read_json(fetch(source.path, source.progress) / "config.json")
    check_shards(config, source.name, size, text_only=source.options.get("text_only", False))
    try:
        lead = group.start if launched.rank() is None else launched.lead
        mirror.begin(lead(size, on_lost))
        connect()
    except EngineClosedError as error:
        raise ModelLoadError(f"tensor_parallel={size}: {error}", transient=True) from error


def join_if_launched(options: ModelOptions) -> None:
    """Join the group that mlx.launch has started, if it has; all but one of its processes do not come back from here.

    Raises:
        EngineClosedError: the processes are not as many as `tensor_parallel`.
    """
    if processes(options) > 1 and launched.rank() is not None:
        launched.join(processes(options))
