"""Other weights for the model of a client, while requests run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast

from ..options import ModelPath
from ..types import EngineLike, ModelLoadError, NewWeights
from .offload import import_modules

if TYPE_CHECKING:
    from .engines import Runtime

Weights = Mapping[str, object] | ModelPath
"""Arrays of NumPy or MLX by the names of the tensors, or a folder with *.safetensors."""
Running = Literal["continue", "fail"]


class UpdatingEngine(EngineLike, Protocol):
    """An engine that runs a model, not a script."""

    def update_weights(self, weights: NewWeights, /, *, fails: bool = False) -> Future[None]: ...


def compute_arrays(weights: Weights) -> None:
    """Compute a caller's arrays of MLX on its thread, to which they belong until then; any may copy them afterwards."""
    mx = sys.modules.get("mlx.core")
    if mx is not None and isinstance(weights, Mapping):
        mx.eval([array for array in weights.values() if isinstance(array, mx.array)])


def read_weights(runtime: Runtime, weights: Weights, running: Running) -> NewWeights:
    """Copy a caller's weights, on its thread, or on another one after `compute_arrays`.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: there are none, or this client's model can have no others.
    """
    if running not in ("continue", "fail"):
        raise ValueError(f"update_weights: `running` must be 'continue' or 'fail', not {running!r}")
    if not runtime.adapters.allowed:
        raise ValueError("update_weights: weights are for clients with one `model`, in one process")
    import_modules("models.weights")
    return _read(weights)


def update_weights(runtime: Runtime, new: NewWeights, running: Running) -> None:
    """Give the model of a client other weights; returns when they are used.

    Raises:
        ValueError: they do not fit. Nothing has changed.
    """
    engine = runtime.engine_of("")
    try:
        _ = engine.model  # waits for it
        with runtime.detached(engine):
            cast(UpdatingEngine, engine).update_weights(new, fails=running == "fail").result()
    except ModelLoadError as error:
        raise ValueError(str(error)) from error


def _read(weights: Weights) -> NewWeights:
    from ..models.weights import copy_weights, folder_weights

    if isinstance(weights, Mapping):
        return copy_weights(weights)
    if not isinstance(weights, str | os.PathLike):
        raise ValueError(f"update_weights: pass a mapping of names to arrays, or a folder, not {weights!r}")
    folder = Path(os.fspath(weights)).expanduser()
    if folder.is_file():
        raise ValueError(
            f"update_weights: '{folder}' is a file. Pass a folder with *.safetensors, or a mapping of the model's own "
            "names to arrays; a model of a GGUF file takes both."
        )
    if not folder.is_dir():
        raise FileNotFoundError(f"update_weights: there is no folder '{folder}'.")
    return folder_weights(folder.resolve())
