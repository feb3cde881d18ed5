"""Adapters of an engine's model: which are loaded, for how many callers, and which leave when their rows have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from ..types import Adapter, AdapterGoneError, ModelLoadError, Product, Work
from .memory import Memory
from .ports import Encoder
from .work.lane import Entry


class Adapters:
    """The adapters that work may name. On the engine thread only.

    Args:
        model: runs them.
        memory: what rows may take; None: it is not counted.
    """

    def __init__(self, model: Encoder, memory: Memory | None) -> None:
        self._model, self._memory = model, memory
        self._loads: Counter[Adapter] = Counter()
        self._leaving: set[Adapter] = set()
        self.nbytes = 0
        """Bytes of all that are loaded; may be read on any thread."""

    def load(self, adapter: Adapter, products: Mapping[str, Product]) -> Iterator[None]:
        """Load an adapter once more, piece by piece: it stays until it was unloaded as often.

        Raises:
            ModelLoadError: it does not fit the model, or into its memory.
        """
        if not self._loads[adapter]:
            yield from self._model.add_adapter(adapter, products)
            try:
                self._count_bytes()
            except ModelLoadError:
                yield from self._remove(adapter)
                raise
        self._leaving.discard(adapter)
        self._loads[adapter] += 1

    def unload(self, adapter: Adapter) -> None:
        """Take one load back; after the last one it leaves as soon as no work in flight uses it: see `unused`."""
        if self._loads[adapter] == 1:
            self._leaving.add(adapter)
        self._loads[adapter] = max(0, self._loads[adapter] - 1)

    def check(self, work: Work) -> None:
        """Refuse work whose adapter was unloaded.

        Raises:
            AdapterGoneError: it was.
        """
        if work.uses is not None and not self._loads[work.uses]:
            raise AdapterGoneError(f"the adapter '{work.uses.name}' was unloaded")

    def unused(self, in_flight: Collection[Entry]) -> Adapter | None:
        """An adapter that leaves and that nothing uses any more; None: there is none."""
        if not self._leaving:
            return None
        return next(iter(self._leaving - {entry.request.uses for entry in in_flight}), None)

    def remove(self, adapter: Adapter) -> Iterator[None]:
        """Remove an `unused` adapter piece by piece, unless it was loaded again."""
        if adapter in self._leaving:
            self._leaving.discard(adapter)
            yield from self._remove(adapter)

    def _remove(self, adapter: Adapter) -> Iterator[None]:
        del self._loads[adapter]
        yield from self._model.remove_adapter(adapter)
        self._count_bytes()

    def _count_bytes(self) -> None:
        """Take the adapters' bytes off what rows may have.

        Raises:
            ModelLoadError: then no row of a useful length fits.
        """
        self.nbytes = self._model.adapter_bytes
        if self._memory is None:
            return
        self._memory.set_adapters(self.nbytes)
        if self._memory.longest() == 0:
            raise ModelLoadError(
                f"there is no memory for another adapter: all of them take {self.nbytes} bytes, which "
                "leaves too little for a row. Raise `memory_limit`, or unload one."
            )
