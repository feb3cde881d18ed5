"""Repairs of gevent for threads of the system: processes that they start, and locks that they share with greenlets.

Libraries use both on the threads that this package starts, for example when they log. The methods of gevent's classes
are replaced, since the program has objects of them already.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from functools import cache, partial
from importlib.util import find_spec, module_from_spec

from . import greenlets

log = logging.getLogger("localai_shim")

_get_ident = greenlets.original("_thread", "get_ident")
_own: set[int] = set()
"""Numbers of the threads of the system that this package has started."""
os.register_at_fork(after_in_child=_own.clear)


@contextlib.contextmanager
def own_thread() -> Iterator[None]:
    """Context for what a thread of the system runs in a program that gevent has patched."""
    _repair()
    ident = _get_ident()
    _own.add(ident)
    try:
        yield
    finally:
        greenlets.close_hub()
        _own.discard(ident)


def is_own_thread() -> bool:
    """True on a thread of the system that this package has started in such a program."""
    return _get_ident() in _own


@cache
def _repair() -> None:
    for repair in (_repair_processes, _repair_locks):
        try:
            repair()
        except Exception:
            log.warning("gevent has changed: libraries may hang at a lock, or not start a process", exc_info=True)


def _repair_processes() -> None:
    """Let own threads start processes by the standard library's `Popen`: gevent's works on the main thread alone.

    Libraries start processes when they are imported, to find other libraries.
    """
    import subprocess

    from gevent.subprocess import Popen

    spec = find_spec("subprocess")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(pristine := module_from_spec(spec))
    for name in ("SubprocessError", "CalledProcessError", "TimeoutExpired", "CompletedProcess"):
        setattr(pristine, name, getattr(subprocess, name))
    make = Popen.__new__

    def new(cls: type, *args: object, **kwargs: object) -> object:
        if cls is Popen and is_own_thread():
            return pristine.Popen(*args, **kwargs)
        return make(cls) if make is object.__new__ else make(cls, *args, **kwargs)

    Popen.__new__ = staticmethod(new)


def _repair_locks() -> None:
    """Let own threads use gevent's locks: they wait in a list here, and wake greenlets through the main thread's hub.

    gevent loses wake-ups: a thread that releases a lock cannot switch to a greenlet of another thread.
    """
    from gevent._hub_local import get_hub_if_exists, set_hub
    from gevent.lock import BoundedSemaphore
    from gevent.thread import LockType

    take, give = LockType.acquire, LockType.release

    def acquire(lock: LockType, blocking: bool = True, timeout: float | None = -1) -> bool:
        if not is_own_thread():
            return bool(take(lock, blocking, timeout))
        waiters: greenlets.Waiters = vars(lock).setdefault(_WAITERS, greenlets.Waiters())
        return waiters.take(partial(_try, lock), 0.0 if not blocking else None if timeout == -1 else timeout)

    def release(lock: LockType) -> int:
        if is_own_thread() and lock.linkcount() and not lock.counter:
            lock.counter = 1
            _notify_soon(lock)
        else:
            give(lock)
        waiters: greenlets.Waiters | None = vars(lock).get(_WAITERS)
        if waiters is not None:
            waiters.wake()
        return int(lock.counter)

    def _try(lock: LockType) -> bool:
        hub = get_hub_if_exists()
        set_hub(None)  # else the lock belongs to this hub, which may not run when greenlets are to be woken
        try:
            return bool(BoundedSemaphore.acquire(lock, False))
        finally:
            set_hub(hub)

    def _notify_soon(lock: LockType) -> None:
        if not greenlets.call_in_main_hub(_notify, lock):
            _notify(lock)

    def _notify(lock: LockType) -> None:
        if BoundedSemaphore.acquire(lock, False):
            give(lock)

    LockType.acquire, LockType.release = acquire, release


_WAITERS = "localai_shim_waiters"
"""Attribute of a lock: the own threads that wait for it."""
