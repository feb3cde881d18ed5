"""Programs that gevent has patched: the objects that it replaced, how greenlets wait, and repairs for own threads.

Only this module knows gevent. It imports it only if the program has patched itself with it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from gevent.event import Event
    from gevent.hub import Hub

T = TypeVar("T")
log = logging.getLogger("localai_shim")

LOOK_SECONDS = 3600.0  # of a timer, which keeps a hub running: a hub without anything to wait for raises LoopExit


def original(module: str, name: str) -> Any:
    """The object that a module had under a name before the program was patched."""
    get_original = getattr(sys.modules.get("gevent.monkey"), "get_original", None)
    return getattr(import_module(module), name) if get_original is None else get_original(module, name)


def are_used() -> bool:
    """True if threads are greenlets in this program, or if sockets let greenlets run while they wait."""
    is_patched = getattr(sys.modules.get("gevent.monkey"), "is_module_patched", None)
    return is_patched is not None and bool(is_patched("threading") or is_patched("socket"))


def are_here() -> bool:
    """True if this thread may have other greenlets: what takes long must run on another thread."""
    return _hub() is not None


def refuse(what: str) -> None:
    """Raise ValueError in a program that gevent has patched, for a feature that needs unpatched sockets.

    Args:
        what: the feature's option or class.

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
    """Raise RuntimeError in a program that eventlet has patched: other threads cannot wake its greenlets."""
    is_patched = getattr(sys.modules.get("eventlet.patcher"), "is_monkey_patched", None)
    if is_patched is not None and is_patched("thread"):
        raise RuntimeError(
            "localai_shim does not work in programs patched by eventlet, because greenlets could not run while an "
            "answer is generated. Use gevent (`gunicorn -k gevent`) or threads (`gunicorn -k gthread`)."
        )


def close_hub() -> None:
    """Close the hub of a thread that ends, if a library's call has opened one: its files would stay open."""
    hub = _hub()
    if hub is not None:
        hub.destroy(destroy_loop=True)


def call_in_main_hub(function: Callable[[T], object], argument: T) -> bool:
    """Call a function on the main thread, in its hub; False: no greenlet has waited for anything yet."""
    return _main_hub is not None and _call_in(_main_hub, function, argument)


def _call_in(hub: Hub, function: Callable[[T], object], argument: T) -> bool:
    try:
        hub.loop.run_callback_threadsafe(function, argument)
    except Exception:  # its thread has ended
        return False
    return True


_main_hub: Hub | None = None
"""Hub of the main thread; another one's, until the main thread has waited for something of this package."""


def _hub() -> Hub | None:
    """The hub in which the running greenlet must wait; None: its thread has none, or the hub itself is running."""
    if not are_used():
        return None
    import gevent
    from gevent._hub_local import get_hub_if_exists  # `get_hub` opens files for each thread that asks

    global _main_hub
    hub = get_hub_if_exists()
    if hub is not None and (_main_hub is None or hub.main_hub):
        _main_hub = hub
    return None if hub is gevent.getcurrent() else hub


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


class Waiters:
    """The threads and greenlets that wait for the same thing, which one of them at a time can take."""

    def __init__(self) -> None:
        self._all: list[Waiter] = []

    def wake(self) -> None:
        """Have all of them try again: one alone may be killed before it can take what it waits for."""
        for waiter in tuple(self._all):
            waiter.wake()

    def take(self, attempt: Callable[[], bool], timeout: float | None = None) -> bool:
        """Try until an attempt succeeds; False: none did within `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while not attempt():
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return False
            waiter = make_waiter()
            self._all.append(waiter)  # first: it may become free before the next line
            try:
                if attempt():
                    break
                waiter.wait(left)
            finally:
                self._all.remove(waiter)
        return True


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

    def __init__(self, hub: Hub) -> None:
        from gevent.event import Event

        self._hub, self._event = hub, Event()

    def wake(self) -> None:
        _call_in(self._hub, _set, self._event)

    def wait(self, timeout: float | None) -> None:
        while not self._event.wait(LOOK_SECONDS if timeout is None else timeout) and timeout is None:
            pass


def _set(event: Event) -> None:
    event.set()


# -- repairs for threads of the system ------------------------------------------------------------------------------

# They start processes, and share locks with greenlets. Libraries do both on the threads that this package starts, for
# example when they log. The methods of gevent's classes are replaced, since the program has objects of them already.

_get_ident = original("_thread", "get_ident")
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
        close_hub()
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
        waiters: Waiters = vars(lock).setdefault(_WAITERS, Waiters())
        return waiters.take(partial(_try, lock), 0.0 if not blocking else None if timeout == -1 else timeout)

    def release(lock: LockType) -> int:
        if is_own_thread() and lock.linkcount() and not lock.counter:
            lock.counter = 1
            _notify_soon(lock)
        else:
            give(lock)
        waiters: Waiters | None = vars(lock).get(_WAITERS)
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
        if not call_in_main_hub(_notify, lock):
            _notify(lock)

    def _notify(lock: LockType) -> None:
        if BoundedSemaphore.acquire(lock, False):
            give(lock)

    LockType.acquire, LockType.release = acquire, release


_WAITERS = "localai_shim_waiters"
"""Attribute of a lock: the own threads that wait for it."""
