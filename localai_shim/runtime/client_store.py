"""The file of a client's store, opened while the client is made."""

from __future__ import annotations

from typing import Protocol

from .offload import aside


class Storing(Protocol):
    """A runtime, as far as its store goes."""

    def store(self) -> object: ...

    def close(self) -> None: ...


def open_store(runtime: Storing) -> None:
    """Open the file now: better than to fail when the first answer is to be stored.

    Raises:
        ValueError: the file cannot be used. The runtime is closed.
    """
    from ..state.errors import StoreError

    try:
        aside(runtime.store)
    except StoreError as error:
        runtime.close()
        raise ValueError(f"`store`: {error}") from error
