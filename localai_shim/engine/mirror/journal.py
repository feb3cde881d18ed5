"""Calls that followers of a tensor-parallel group repeat: what decides stays here, and what is decided is journalled.

A model whose weights are spread over several processes runs each pass in all of them, on caches of which each holds its
heads. One process has the engine. Its calls upon the model and upon caches that several passes share are `mirrored`:
where the thread has a journal they are written to it, and the others make them as well, in this order. A call made by a
mirrored one is part of it. Without a journal a mirrored call is the call itself.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import ParamSpec, Protocol, TypeVar

from ...types import EngineClosedError

P = ParamSpec("P")
R = TypeVar("R")


class Mirrored:
    """Base of objects that followers have, too. Journals name them; one that is new is written with its state."""

    def shape(self) -> object:
        """Plain values that are equal in all processes, such as widths, lengths and capacity; they are compared."""
        return ()


class Journal(Protocol):
    """Calls of one engine's thread, on their way to the followers."""

    def run(
        self,
        name: Callable[..., object],
        call: Callable[..., R],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> R:
        """Write a call, and make it.

        Args:
            name: stands for it: a function that followers import.
            call: the function itself.
            args: its arguments.
            kwargs: as well.

        Raises:
            EngineClosedError: the followers are lost.
        """

    @property
    def is_lost(self) -> bool:
        """The followers are lost: what passes have given since then is worth nothing."""

    def rest(self, free: int | None = None, *, weights: int = 0, clear: bool = False) -> None:
        """Nothing is in flight: have what was built and not launched run, which followers wait in.

        Args:
            free: bytes of free buffers that MLX may hold in each process; None: no limit is known.
            weights: bytes of the model in each process.
            clear: return free buffers to the system.
        """

    def lost(self, cause: BaseException | None = None) -> EngineClosedError | None:
        """The error of the requests of a group that is lost, of which this may be a consequence; None: it is whole."""

    def end(self) -> bool:
        """The engine ends, and the followers with it; False where MLX waits for one for good, and is not to be used."""


class _Thread(threading.local):
    journal: Journal | None = None


_thread = _Thread()
_begun = 0  # journals of this process so far: without one, a mirrored call looks no further


def journal() -> Journal | None:
    """This thread's, if there is one."""
    return _thread.journal


def begin(journal: Journal) -> None:
    """Have a journal for what this thread does, until `end`."""
    global _begun
    _thread.journal = journal
    _begun += 1


def lost(cause: BaseException | None = None) -> EngineClosedError | None:
    """See `Journal.lost`."""
    journal = _thread.journal
    return None if journal is None else journal.lost(cause)


def end() -> bool:
    """End this thread's journal, if there is one; see `Journal.end`."""
    journal, _thread.journal = _thread.journal, None
    return journal is None or journal.end()


def mirrored(call: Callable[P, R]) -> Callable[P, R]:
    """A call that followers make as well. Its arguments are plain values, `Mirrored`, layers of caches, and arrays, of
    which followers get the shape: what is in them comes by a collective operation of the call itself.
    """

    @functools.wraps(call)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if not _begun or (journal := _thread.journal) is None:
            return call(*args, **kwargs)
        return journal.run(run, call, args, kwargs)

    return run
