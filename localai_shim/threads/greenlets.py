"""Programs that gevent has patched: what was there before, and how a greenlet waits.

Nothing else here knows of gevent or eventlet, and nothing of them is imported that the program has not imported.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any, Protocol

LOOK_SECONDS = 3600.0  # a timer keeps a hub running: one in which nothing else may happen would give up


def original(module: str, name: str) -> Any:
    """The object that a module had under a name before the program was patched."""
    get_original = getattr(sys.modules.get("gevent.monkey"), "get_original", None)
    return getattr(import_module(module), name) if get_original is None else get_original(module, name)


def are_used() -> bool:
    """True if threads are greenlets in this program, or if sockets let greenlets run while they wait."""
    is_patched = getattr(sys.modules.get("gevent.monkey"), "is_module_patched", None)
    return is_patched is not None and bool(is_patched("threading") or is_patched("socket"))


def are_here() -> bool:
    """True if this thread may have other greenlets to run: what takes long must run on another thread."""
    return _hub() is not None


def refuse(what: str) -> None:
    """Raise ValueError in a program that gevent has patched: what is asked for needs sockets as they were.

    Args:
        what: an option, or a class.

    Raises:
        RuntimeError: see `check`.
    """
    check()
    if are_used():
        raise ValueError(
            f"{what}: this does not work in a program that gevent has patched. Run the model in one process, or the "
            "program with threads (`gunicorn -k gthread`)."
        )


def check() -> None:
    """Raise RuntimeError in a program that eventlet has patched: it has no way to wake a thread of greenlets."""
    is_patched = getattr(sys.modules.get("eventlet.patcher"), "is_monkey_patched", None)
    if is_patched is not None and is_patched("thread"):
        raise RuntimeError(
            "localai_shim does not work in a program that eventlet has patched: no greenlet would run while an answer "
            "is generated. Use gevent (`gunicorn -k gevent`) or threads (`gunicorn -k gthread`)."
        )


def _hub() -> Any:
    """The hub in which the running greenlet has to wait; None: its thread has none, or the hub itself is running."""
    if not are_used():
        return None
    import gevent
    from gevent._hub_local import get_hub_if_exists  # `get_hub` opens files for each thread that asks

    hub = get_hub_if_exists()
    return None if hub is gevent.getcurrent() else hub


# -- threads of the system ------------------------------------------------------------------------------------------

_own: set[int] = set()
"""Numbers of the threads of the system that this package has started."""
os.register_at_fork(after_in_child=_own.clear)


@contextlib.contextmanager
def own_thread() -> Iterator[None]:
    """Do what a thread of the system does; libraries may start processes and wait for what gevent has patched."""
    _let_libraries_start_processes()
    ident = original("_thread", "get_ident")()
    _own.add(ident)
    try:
        yield
    finally:
        _own.discard(ident)
        if (hub := _hub()) is not None:  # a library's call has opened one
            hub.destroy(destroy_loop=True)


def is_own_thread() -> bool:
    """True on a thread of the system that this package has started in such a program."""
    return original("_thread", "get_ident")() in _own


@cache
def _let_libraries_start_processes() -> None:
    """Make processes that own threads start the standard library's: gevent's can be started by the main thread alone.

    Libraries start some when they are imported, to find other libraries.
    """
    import subprocess

    from gevent.subprocess import Popen

    spec = find_spec("subprocess")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(pristine := module_from_spec(spec))
    for name in ("SubprocessError", "CalledProcessError", "TimeoutExpired", "CompletedProcess"):
        setattr(pristine, name, getattr(subprocess, name))

    make = Popen.__new__

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        if cls is Popen and is_own_thread():
            return pristine.Popen(*args, **kwargs)
        return make(cls) if make is object.__new__ else make(cls, *args, **kwargs)

    Popen.__new__ = staticmethod(new)


# -- waiting --------------------------------------------------------------------------------------------------------


class Waiter(Protocol):
    """One wait of one thread or greenlet."""

    def wake(self) -> None:
        """End the wait, or the one that comes. Any thread may call this, and finalizers."""

    def wait(self, timeout: float | None) -> None:
        """Wait until it is woken, for `timeout` seconds at most; None: as long as it takes."""


def make_waiter() -> Waiter:
    """Make what this thread, or greenlet, waits with."""
    hub = _hub()
    return _ThreadWaiter() if hub is None else _GreenletWaiter(hub)


class _ThreadWaiter:
    """For threads: a lock that is released to wake."""

    def __init__(self) -> None:
        self._lock = original("_thread", "allocate_lock")()
        self._lock.acquire()

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # it was woken before
            self._lock.release()

    def wait(self, timeout: float | None) -> None:
        self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout))


class _GreenletWaiter:
    """For greenlets: the others of the thread run meanwhile."""

    def __init__(self, hub: Any) -> None:
        from gevent.event import Event

        self._hub, self._event = hub, Event()

    def wake(self) -> None:
        try:
            self._hub.loop.run_callback_threadsafe(self._event.set)
        except Exception:  # the thread has ended, and its hub with it
            return

    def wait(self, timeout: float | None) -> None:
        while not self._event.wait(LOOK_SECONDS if timeout is None else timeout) and timeout is None:
            pass
