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
