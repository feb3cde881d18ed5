"""Changes of a client's model while requests run: adapters that come and go, other weights."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, cast

from ..options import ModelPath
from ..runtime.engines import Runtime
from ..runtime.offload import aside, import_modules, run_to_end
from ..types import EngineLike, ModelLoadError, NewWeights

Weights = Mapping[str, object] | ModelPath
"""Arrays of NumPy or MLX by the names of the tensors, or a folder with *.safetensors."""
Running = Literal["continue", "fail"]


class ModelChanges:
    """Those of a sync client."""

    _runtime: Runtime

    def load_adapter(self, name: str, path: ModelPath) -> None:
        """Load a LoRA adapter while requests run. It replaces one of the same name; requests that use that one keep it.

        Args:
            name: Name that requests use.
            path: Folder in mlx-lm's or PEFT's format, or Hub ID.

        Raises:
            EngineClosedError: The client is closed.
            FileNotFoundError: No such folder.
            ValueError: The adapter does not fit the model or into memory. The message names file, tensor, and shapes.
        """
        aside(partial(self._runtime.adapters.load, name, path, self._runtime.engine_of("")))

    def unload_adapter(self, name: str) -> None:
        """Unload a LoRA adapter. Requests that use it keep it until they end.

        Raises:
            ValueError: No adapter has this name.
        """
        self._runtime.adapters.unload(name)

    def update_weights(self, weights: Weights, *, running: Running = "continue") -> None:
        """Replace weights of the model while requests run. See docs/adapters.md.

        Args:
            weights: NumPy or MLX arrays by tensor name, for some or all tensors, or a folder with *.safetensors.
            running: Earlier requests continue with the new weights ("continue") or fail ("fail").

        Raises:
            EngineClosedError: The client is closed.
            FileNotFoundError: No such folder.
            ValueError: The weights do not fit the model, which is unchanged. The message names tensors and shapes.
        """
        compute_arrays(weights)
        new = aside(partial(read_weights, self._runtime, weights, running))
        aside(partial(update_weights, self._runtime, new, running))


class AsyncModelChanges:
    """Those of an async client."""

    _runtime: Runtime

    async def load_adapter(self, name: str, path: ModelPath) -> None:
        """Load a LoRA adapter while requests run: see `LocalOpenAI.load_adapter`."""
        engine = self._runtime.engine_of("")
        await run_to_end(partial(self._runtime.adapters.load, name, path, engine))

    async def unload_adapter(self, name: str) -> None:
        """Unload a LoRA adapter: see `LocalOpenAI.unload_adapter`."""
        self._runtime.adapters.unload(name)

    async def update_weights(self, weights: Weights, *, running: Running = "continue") -> None:
        """Replace weights of the model while requests run: see `LocalOpenAI.update_weights`.

        Arrays are copied on another thread. Do not change them before the call returns.
        """
        compute_arrays(weights)
        new = await run_to_end(partial(read_weights, self._runtime, weights, running))
        await run_to_end(partial(update_weights, self._runtime, new, running))


# -- weights ----------------------------------------------------------------------------------------------------------


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
