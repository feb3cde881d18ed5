"""Changes of a client's model while requests run: adapters that come and go, other weights."""

from __future__ import annotations

from functools import partial

from ..options import ModelPath
from ..runtime.engines import Runtime
from ..runtime.offload import aside, run_to_end
from ..runtime.weights import Running, Weights, compute_arrays, read_weights, update_weights


class ModelChanges:
    """Those of a sync client."""

    _runtime: Runtime

    def load_adapter(self, name: str, path: ModelPath) -> None:
        """Load a LoRA adapter while requests run; one of the same name is replaced, and rows that use it keep it.

        Args:
            name: by which requests name it.
            path: its folder, as mlx-lm or PEFT makes it, or its hub id.

        Raises:
            FileNotFoundError: there is no such folder.
            ValueError: it does not fit this model, or into its memory; names the file, the tensor and the shapes.
        """
        aside(partial(self._runtime.adapters.load, name, path, self._runtime.engine_of("")))

    def unload_adapter(self, name: str) -> None:
        """Forget a LoRA adapter; rows that use it keep it until they end.

        Raises:
            ValueError: there is none of this name.
        """
        self._runtime.adapters.unload(name)

    def update_weights(self, weights: Weights, *, running: Running = "continue") -> None:
        """Give the model other weights while requests run; see docs/adapters.md.

        Args:
            weights: NumPy's or MLX's arrays by the names of the tensors, some or all, or a folder with *.safetensors.
            running: what becomes of requests that came before: they go on with the new weights, or fail.

        Raises:
            FileNotFoundError: there is no such folder.
            ValueError: they do not fit this model; names the tensors and the shapes. Nothing has changed.
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
        """Forget a LoRA adapter: see `LocalOpenAI.unload_adapter`."""
        self._runtime.adapters.unload(name)

    async def update_weights(self, weights: Weights, *, running: Running = "continue") -> None:
        """Give the model other weights while requests run: see `LocalOpenAI.update_weights`.

        Arrays are copied on another thread: change none of them before this returns.
        """
        compute_arrays(weights)
        new = await run_to_end(partial(read_weights, self._runtime, weights, running))
        await run_to_end(partial(update_weights, self._runtime, new, running))
