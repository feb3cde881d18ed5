"""State that a client and its copies share, apart from engines: the store, background responses and batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..endpoints.batches.runner import Batches
from ..endpoints.responses.background import Background
from ..endpoints.vector_stores.ingestion import Ingestion
from ..endpoints.vector_stores.library import Library
from ..state.store import Store
from ..threads.system import Lock

T = TypeVar("T")
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
        return self._only(self._batches, make)

    def library(self, make: MakeLibrary) -> Library:
        """Vector stores, made when they are first asked for."""
        return self._only(self._libraries, make)

    def _only(self, made: list[T], make: Callable[[Store, Background], T]) -> T:
        with self._lock:
            if not made:
                made.append(make(self.store, self.background))
            return made[0]

    def _runners(self) -> list[Ingestion | Batches | Background]:
        return [*(library.ingestion for library in self._libraries), *self._batches, self.background]

    def stop(self) -> None:
        """Stop what runs, without waiting; the store closes with its last holder."""
        for runner in self._runners():
            runner.stop()

    def close(self) -> None:
        """Stop what runs, wait for it, and close the store."""
        for runner in self._runners():
            runner.close()
        self.store.close()
