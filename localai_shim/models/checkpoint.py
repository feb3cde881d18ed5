"""Reads a checkpoint and makes a model of it, whatever its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast

from ..backends.machine import is_out_of_memory
from ..options import LoadOptions, ModelOptions, check_names
from ..types import Json, ModelLoadError
from .hub import fetch
from .upstream_imports import LOADING, keeping_file_limits, without_advice

if TYPE_CHECKING:
    from mlx import nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper

_VOCABULARIES = ("tokenizer.json", "*.model", "tekken.json", "*.tiktoken", "vocab.json", "vocab.txt")


class Checkpoint(NamedTuple):
    """Contents of a checkpoint that was read, for the model that it becomes; `name` is that of `response.model`."""

    name: str
    model: nn.Module
    tokenizer: TokenizerWrapper
    config: Json
    path: Path
    options: LoadOptions


class Loadable(Protocol):
    """Model that a checkpoint is loaded as; `TextModel` has the docs of each method."""

    applied: Mapping[str, int]
    """Forms that `backends.prepare` applied, each with its number of layers."""

    def __init__(self, checkpoint: Checkpoint) -> None: ...

    @staticmethod
    def read(path: Path, options: LoadOptions) -> tuple[nn.Module, TokenizerWrapper, Json]: ...

    def check(self) -> None: ...

    def warm_up(self) -> None: ...


LoadableT = TypeVar("LoadableT", bound=Loadable)


def load_as(
    kind: Callable[[Path], type[LoadableT]],
    path_or_id: str,
    options: LoadOptions,
    name: str | None = None,
    progress: bool | None = None,
) -> LoadableT:
    """Load a folder or a hub id; a bar shows how far that is.

    Args:
        kind: what to load a folder as.
        path_or_id: the folder, or the hub id.
        options: see `LoadOptions`.
        name: what `response.model` will say; the folder's name or the hub id by default.
        progress: whether a bar is shown; None: on a terminal.

    Raises:
        ModelLoadError: no such model, or it is broken.
    """
    import mlx.core as mx
    from mlx.utils import tree_flatten

    check_names(options)
    with LOADING, without_advice(), keeping_file_limits():
        import mlx_lm.utils  # noqa: F401

    from ..backends.prepare import prepare
    from .progress import announce, read_weights

    announce(name or Path(path_or_id).name, path_or_id, progress)
    path = fetch(path_or_id, progress)
    if not options.get("trust_remote_code"):
        _check_tokenizer(path, path_or_id)
    read_as = kind(path)
    try:
        model, tokenizer, config = read_as.read(path, options)
        read_weights(name or path.name, [array for _, array in tree_flatten(model.parameters())], mx.eval, progress)
    except Exception as error:
        raise ModelLoadError(
            f"The model '{path_or_id}' could not be loaded: {type(error).__name__}: {error}",
            transient=is_out_of_memory(error)
            or isinstance(error, ImportError)
            or (isinstance(error, OSError) and not isinstance(error, FileNotFoundError)),
        ) from error
    applied = prepare(model, cast(ModelOptions, options).get("memory_limit"))
    name = name or (path.name if Path(path_or_id).exists() else path_or_id)
    loaded = read_as(Checkpoint(name, model, tokenizer, config, path, options))
    loaded.applied = applied
    loaded.check()
    loaded.warm_up()
    return loaded


def _check_tokenizer(path: Path, path_or_id: str) -> None:
    """Refuse a folder without any file of a vocabulary: what fails then says nothing of it."""
    if not any(next(path.glob(pattern), None) for pattern in _VOCABULARIES):
        raise ModelLoadError(
            f"The model '{path_or_id}' has no tokenizer: its folder has none of {', '.join(_VOCABULARIES)}. Copy the "
            "tokenizer's files from the checkpoint that it was made of."
        )
