"""Threads, locks, queues and futures of the operating system, also in programs whose `threading` makes greenlets.

The engine and all that works for callers use these. If nothing is patched, they are the standard library's. A caller
may be a greenlet: while it waits for one of them, the other greenlets of its thread run.

A lock of this module is never held while something is waited for: the next greenlet of the thread that wants it would
stop them all. `make_held_lock` makes a lock that may be.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import queue
import threading
from _queue import SimpleQueue
from _thread import RLock
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar, cast

from . import greenlets

__all__ = ["RLock", "SimpleQueue"]

T = TypeVar("T")

Lock: Callable[[], threading.Lock] = greenlets.original("_thread", "allocate_lock")
get_ident: Callable[[], int] = greenlets.original("_thread", "get_ident")
sleep: Callable[[float], None] = greenlets.original("time", "sleep")
_start_new_thread: Callable[..., int] = greenlets.original("_thread", "start_new_thread")


class Future(concurrent.futures.Future[T]):
    """A future that any thread may set, and that any thread or greenlet may wait for."""

    def __init__(self) -> None:
        super().__init__()
        if greenlets.are_used():
            self._condition = threading.Condition(RLock())  # its lock would be a greenlet's

    def result(self, timeout: float | None = None) -> T:
        if greenlets.are_used() and not self.done():
            waiter = greenlets.make_waiter()
            self.add_done_callback(lambda _: waiter.wake())
            waiter.wait(timeout)
            if not self.done():
                raise TimeoutError
        return super().result(timeout)


class Event:
    """A `threading.Event` that is never cleared."""

    def __init__(self) -> None:
        self._set = Future[None]()

    def set(self) -> None:
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # it is already
            self._set.set_result(None)

    def is_set(self) -> bool:
        return self._set.done()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for `timeout` seconds at most; whether it is."""
        with contextlib.suppress(TimeoutError):
            self._set.result(timeout)
        return self.is_set()


# -- threads --------------------------------------------------------------------------------------------------------


class _SystemThread:
    """A thread of the operating system in a program whose `threading` makes greenlets."""

    def __init__(self, target: Callable[..., object], args: tuple[object, ...], name: str) -> None:
        self._work: tuple[Callable[..., object], tuple[object, ...]] | None = (target, args)
        self._name, self._ended = name, Event()
        self.ident: int | None = None

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        """Called on the thread itself, for which `threading` has its own object."""
        self._name = threading.current_thread().name = name

    def start(self) -> None:
        self.ident = _start_new_thread(self._run, ())

    def is_alive(self) -> bool:
        return self.ident is not None and not self._ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def _run(self) -> None:
        self.ident = ident = get_ident()
        _running[ident] = self
        self.name = self._name
        assert self._work is not None
        (target, args), self._work = self._work, None
        try:
            with greenlets.own_thread():
                target(*args)
        finally:
            del target, args, _running[ident]
            self._ended.set()


Thread = threading.Thread | _SystemThread
_running: dict[int, _SystemThread] = {}


def make_thread(target: Callable[..., object], args: tuple[object, ...] = (), *, name: str) -> Thread:
    """Make a daemon thread. The caller starts it."""
    if greenlets.are_used():
        return _SystemThread(target, args, name)
    return threading.Thread(target=target, args=args, name=name, daemon=True)


def current_thread() -> Thread:
    """The thread that runs this."""
    return _running.get(get_ident()) or threading.current_thread()


def _forget_threads() -> None:
    """Forget the parent's threads in a forked child, in which only the forking thread runs."""
    mine = _running.get(get_ident())
    _running.clear()
    if mine is not None:
        _running[get_ident()] = mine


os.register_at_fork(after_in_child=_forget_threads)


def main_has_ended() -> bool:
    """True if the interpreter is ending: its main thread alone runs on."""
    return _is_ending if greenlets.are_used() else not threading.main_thread().is_alive()


def note_end() -> None:
    """Note that the interpreter is ending. gevent's `threading` lets greenlets run before it says so."""
    global _is_ending
    _is_ending = True


_is_ending = False


class Timer:
    """Calls a function after some seconds, on its own thread, unless it is canceled before."""

    def __init__(self, seconds: float, call: Callable[[], object]) -> None:
        self._seconds, self._call, self._canceled = seconds, call, Event()

    def start(self) -> None:
        make_thread(self._run, name="localai_shim:timer").start()

    def cancel(self) -> None:
        self._canceled.set()

    def _run(self) -> None:
        if not self._canceled.wait(self._seconds):
            self._call()


# -- what callers wait with -----------------------------------------------------------------------------------------


class _GreenletQueue(Generic[T]):
    """A `SimpleQueue` at which greenlets may wait."""

    def __init__(self) -> None:
        self._items, self._waiters = deque[T](), greenlets.Waiters()

    def put(self, item: T) -> None:
        self._items.append(item)
        self._waiters.wake()

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        taken: list[T] = []

        def take() -> bool:
            with contextlib.suppress(IndexError):
                taken.append(self._items.popleft())
            return bool(taken)

        if not self._waiters.take(take, timeout if block else 0.0):
            raise queue.Empty
        return taken[0]


def make_queue() -> SimpleQueue[T]:
    """Make a queue at which callers may wait. At a `SimpleQueue`, only threads of this package may."""
    return cast("SimpleQueue[T]", _GreenletQueue()) if greenlets.are_used() else SimpleQueue()


class HeldLock:
    """A lock that a greenlet may hold while it waits for something. May be made before the program is patched."""

    def __init__(self) -> None:
        self._lock, self._waiters = Lock(), greenlets.Waiters()

    def __enter__(self) -> None:
        self._waiters.take(partial(self._lock.acquire, blocking=False))

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self._waiters.wake()


def make_held_lock() -> contextlib.AbstractContextManager[object]:
    """Make a `HeldLock`, which is a plain lock if nothing is patched by now."""
    return HeldLock() if greenlets.are_used() else Lock()
