"""Has the engine's thread of a model that is spread over several processes begin: with followers, and a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.mirror import journal as mirror
from ..models.checkpoint.files import read_json
from ..models.gguf.detection import is_gguf
from ..models.hub import config_here, fetch
from ..models.sharded import check_shards
from ..options import ModelOptions, processes
from ..threads import greenlets
from ..types import EngineClosedError, Json, ModelLoadError
from .host import connect
from .sources import ModelSource, revision_of
from .surroundings import part

if TYPE_CHECKING:
    from ..engine.ports import Group


def check(sources: Iterable[ModelSource]) -> None:
    """Refuse models that cannot be spread, as far as their files are on this machine.

    Raises:
        ValueError: says which can, or gevent has patched the program.
    """
    greenlets.refuse("`tensor_parallel`")
    for source in sources:
        try:
            if is_gguf(Path(source.path)):
                raise ModelLoadError(
                    f"tensor_parallel: '{source.name}' is a GGUF file, which one process runs: take the model's folder."
                )
            if config := config_here(source.path, revision_of(source.options)):
                _check(source, config)
        except ModelLoadError as error:
            raise ValueError(str(error)) from None


def _check(source: ModelSource, config: Json) -> None:
    text_only = source.options.get("text_only", False)
    check_shards(config, source.name, processes(source.options), text_only=text_only)


def begin(source: ModelSource, on_lost: Callable[[], None]) -> None:
    """Check that a model can be spread, start the other processes, and journal what this thread does.

    Args:
        source: the model.
        on_lost: see `Group.lead`.

    Raises:
        ModelLoadError: it cannot, or a process could not be started.
    """
    size = processes(source.options)
    folder = fetch(source.path, source.progress, revision_of(source.options), source.search)
    _check(source, read_json(folder / "config.json"))
    try:
        mirror.begin(_group().lead(size, on_lost))
        connect()
    except EngineClosedError as error:
        raise ModelLoadError(f"tensor_parallel={size}: {error}", transient=True) from error


def join(options: ModelOptions) -> None:
    """See `Group.join`."""
    _group().join(processes(options))


def _group() -> Group:
    found: Group = part("group")
    return found
