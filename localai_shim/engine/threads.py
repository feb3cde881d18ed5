"""The threads that engines run on, and their loss in a forked child.

They are kept for the next engines: MLX leaves a thread of its own behind for each that has used it.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from collections.abc import Callable

from ..types import EngineClosedError

log = logging.getLogger("localai_shim")

IDLE_NAME = "localai_shim:idle"


class Run:
    """One run of a function on one of the threads.

    Attributes:
        thread: that one; it runs something else afterwards.
        ended: set when it has ended, and its thread holds nothing of it any more.
    """

    def __init__(self, thread: threading.Thread) -> None:
        self.thread, self.ended = thread, threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has `ended`; whether it has in time."""
        return self.ended.wait(timeout)


_Given = queue.SimpleQueue[tuple[Run, str, Callable[[], object]]]
_idle: list[tuple[threading.Thread, _Given]] = []
_lock = threading.Lock()


def _serve(given: _Given) -> None:
    """Run one function after another, and wait in between. A thread never ends: an interpreter that ends leaves it
    asleep.

    One that ended then would run MLX's thread-local destructors while the process tears down what they use.
    """
    thread = threading.current_thread()
    while True:
        work, thread.name, run = given.get()
        try:
            run()
        except BaseException:
            log.exception("an engine's thread failed")
        del run  # neither it nor its run is to be held while this one waits
        thread.name = IDLE_NAME
        with _lock:
            _idle.append((thread, given))
        work.ended.set()
        del work


def start(run: Callable[[], object], name: str) -> Run:
    """Run something on a thread that is idle, or on a new one, which has this name meanwhile."""
    with _lock:
        thread, given = _idle.pop() if _idle else (None, _Given())
    if thread is None:
        thread = threading.Thread(target=_serve, args=(given,), name=IDLE_NAME, daemon=True)
        thread.start()
    work = Run(thread)
    given.put((work, name, run))
    return work


# -- forks -----------------------------------------------------------------------------------------------------------


def lost() -> EngineClosedError:
    """Make the error for what belongs to the process that this one was forked from."""
    return EngineClosedError(
        "this process was forked from one that had made a client or imported MLX, and neither the model's thread nor "
        "MLX's came along: start processes with multiprocessing's 'spawn' method, or fork before the first client is "
        "made and MLX is imported"
    )


def are_lost() -> bool:
    """True where MLX cannot be used: this process was forked from one that had imported it.

    MLX has a thread for each stream, which the child lacks: it would wait for one for ever, and hold the GIL meanwhile.
    """
    return _lost


def check() -> None:
    """Raise EngineClosedError where MLX cannot be used."""
    if _lost:
        raise lost()


_lost = False


def _forget() -> None:
    """In a forked child: the parent's threads are not here, and its lock may be held for ever."""
    global _lock, _lost
    _lock = threading.Lock()
    _idle.clear()
    _lost = _lost or "mlx" in sys.modules  # nobody can tell whether it was used


os.register_at_fork(after_in_child=_forget)
