"""State that a client and its copies share, apart from engines: the store, background responses and batches."""

from __future__ import annotations

from collections.abc import Callable

from ..endpoints.batches.runner import Batches
from ..endpoints.responses.background import Background
from ..state.store import Store
from ..threads.system import Lock

MakeBatches = Callable[[Store, Background], Batches]


class ClientState:
    """A store, with the responses and batches that run in the background.

    Args:
        path: of the store; None: memory.

    Raises:
        StoreError: the file cannot be used.
    """

    def __init__(self, path: str | None) -> None:
        self.store = Store(path)
        self.background = Background(self.store, shared=path is not None)
        self._batches: list[Batches] = []  # one, once it is asked for
        self._lock = Lock()

    def batches(self, make: MakeBatches) -> Batches:
        """Runner of batches, made when it is first asked for."""
        with self._lock:
            if not self._batches:
                self._batches.append(make(self.store, self.background))
            return self._batches[0]

    def stop(self) -> None:
        """Stop what runs, without waiting; the store closes with its last holder."""
        for batches in self._batches:
            batches.stop()
        self.background.stop()

    def close(self) -> None:
        """Stop what runs, wait for it, and close the store."""
        for batches in self._batches:
            batches.close()
        self.background.close()
        self.store.close()
