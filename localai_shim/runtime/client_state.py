"""State that a client and its copies share, apart from engines: the store, background responses and batches."""

from __future__ import annotations

from collections.abc import Callable

from ..endpoints.batches.runner import Batches
from ..endpoints.responses.background import Background
from ..endpoints.vector_stores.library import Library
from ..state.store import Store
from ..threads.system import Lock

MakeBatches = Callable[[Store, Background], Batches]
MakeLibrary = Callable[[Store, Background], Library]


class ClientState:
    """A store, with the responses, batches, and files of vector stores that are worked on in the background.

    Args:
        path: of the store; None: memory.

    Raises:
        StoreError: the file cannot be used.
    """

    def __init__(self, path: str | None) -> None:
        self.store = Store(path)
        self.background = Background(self.store, shared=path is not None)
        self._batches: list[Batches] = []  # one, once it is asked for
        self._libraries: list[Library] = []  # one, once it is asked for
        self._lock = Lock()

    def batches(self, make: MakeBatches) -> Batches:
        """Runner of batches, made when it is first asked for."""
        with self._lock:
            if not self._batches:
                self._batches.append(make(self.store, self.background))
            return self._batches[0]

    def library(self, make: MakeLibrary) -> Library:
        """Vector stores, made when they are first asked for."""
        with self._lock:
            if not self._libraries:
                self._libraries.append(make(self.store, self.background))
            return self._libraries[0]

    def stop(self) -> None:
        """Stop what runs, without waiting; the store closes with its last holder."""
        for library in self._libraries:
            library.ingestion.stop()
        for batches in self._batches:
            batches.stop()
        self.background.stop()

    def close(self) -> None:
        """Stop what runs, wait for it, and close the store."""
        for library in self._libraries:
            library.ingestion.close()
        for batches in self._batches:
            batches.close()
        self.background.close()
        self.store.close()
