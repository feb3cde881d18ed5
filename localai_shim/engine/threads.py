"""The threads that engines run on, their rest when the interpreter ends or forks, and their loss in a forked child.

They are kept for the next engines: MLX leaves one of its threads behind for each that has used it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator

from ..threads import greenlets
from ..threads.system import (
    Event,
    Lock,
    RLock,
    SimpleQueue,
    Thread,
    Timer,
    current_thread,
    get_ident,
    main_has_ended,
    make_thread,
    note_end,
    sleep,
)
from ..types import EngineClosedError, log

IDLE_NAME = "localai_shim:idle"


class Run:
    """One run of a function on one of the threads.

    Attributes:
        thread: that one; it runs something else afterwards.
        ended: set when it has ended, and its thread holds nothing of it any more.
    """

    def __init__(self, thread: Thread) -> None:
        self.thread, self.ended = thread, Event()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has `ended`; whether it has in time."""
        return self.ended.wait(timeout)


_Given = SimpleQueue[tuple[Run, str, Callable[[], object]]]
_all: list[Thread] = []
_idle: list[tuple[Thread, _Given]] = []
_runs: dict[Run, tuple[Callable[[], object], Callable[[], bool]]] = {}
_lock = Lock()


def start(
    run: Callable[[], object],
    name: str,
    stop: Callable[[], object] = lambda: None,
    is_loaded: Callable[[], bool] = lambda: True,
) -> Run:
    """Run something on a thread that is idle, or on a new one.

    Args:
        run: what is run.
        name: of the thread meanwhile.
        stop: has it end soon; called at the interpreter's end.
        is_loaded: False where it may take minutes to end, as it loads or fetches a model, and is to be interrupted.

    Raises:
        EngineClosedError: the interpreter is ending. Its main thread alone may start something then.
    """
    with _lock:
        if main_has_ended() and current_thread() is not threading.main_thread():
            raise EngineClosedError("the interpreter is ending")
        thread, given = _idle.pop() if _idle else (None, _Given())
        if thread is None:
            thread = make_thread(_serve, (given,), name=IDLE_NAME)
            thread.start()
            _all.append(thread)
        work = Run(thread)
        _runs[work] = stop, is_loaded
    given.put((work, name, run))
    return work


def _serve(given: _Given) -> None:
    """Run one function after another, and wait in between. A thread never ends: an interpreter that ends leaves it
    asleep.

    One that ended then would run MLX's thread-local destructors, which want the GIL, and Python would end the process.
    """
    thread = current_thread()
    while True:
        work, thread.name, run = _next(given)
        try:
            run()
        except BaseException:
            log.exception("an engine's thread failed")
        del run  # neither it nor its run is to be held while this one waits
        thread.name = IDLE_NAME
        with _lock:
            _runs.pop(work, None)
            _idle.append((thread, given))
        work.ended.set()
        del work


def _next(given: _Given) -> tuple[Run, str, Callable[[], object]]:
    get = given.get
    return get()  # alone in its line, see `_is_asleep`


# -- the interpreter's end ---------------------------------------------------------------------------------------------


@atexit.register
def _stop_all() -> None:
    """At interpreter exit, stop all that runs; the threads are left asleep.

    One that is cut off inside MLX can bring the process down.
    """
    note_end()
    with _lock:
        running = dict(_runs)
    for stop, _ in running.values():
        stop()
    for work, (_, is_loaded) in running.items():
        loaded = is_loaded()
        if not loaded:  # at the next line of Python
            ident = ctypes.c_ulong(work.thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))
        work.wait(30.0 if loaded else 2.0)
    for _ in range(1_000):  # for a second, lest one that is stuck keep the program from its end
        if all(map(_is_asleep, _all)):
            break
        sleep(0.001)


def _is_asleep(thread: Thread) -> bool:
    """True if the thread waits for something to run: it is in the call that `_next` ends with.

    The caller holds the GIL, which that call releases only to wait; on its way there a thread may still want it.
    """
    frame = sys._current_frames().get(thread.ident or 0)
    code = _next.__code__
    return frame is None or (frame.f_code is code and frame.f_lineno == code.co_firstlineno + 2)


# -- forks -----------------------------------------------------------------------------------------------------------

FORK_SECONDS = 10.0  # that a fork waits for an engine at most: a debugger may hold it up


class Computation:
    """Work of an engine's thread, as a context. The process is forked only where it is at a safepoint.

    A BLAS with threads ends them before a fork. OpenBLAS waits for ever for one inside a product, and holds the GIL
    meanwhile.

    Args:
        settle: wait for what was launched. Called on the engine's thread; raises nothing.
    """

    def __init__(self, settle: Callable[[], object]) -> None:
        self._settle = settle
        self.lock = RLock()
        """Held while it computes, and by a thread that forks."""
        self.thread: int | None = None
        """The engine's."""

    def __enter__(self) -> None:
        with _forking:
            _computations.add(self)
            self.thread = get_ident()
            self.lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._settle()
        self.lock.release()

    @contextlib.contextmanager
    def safe(self) -> Iterator[None]:
        """Compute nothing in the context: forks may happen."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    def safepoint(self) -> None:
        """Let a fork happen that waits for this one."""
        if _forker is not None:
            with self.safe():
                pass


_forking = RLock()
"""Held while the process is forked, or waits to be: nothing begins to compute."""
_forker: int | None = None
"""The thread that has it."""
_held: list[Computation] = []
"""Those that are stopped, or were waited for in vain."""
_computations: weakref.WeakSet[Computation] = weakref.WeakSet()
_interrupted = False
"""By Ctrl-C, which a hook cannot pass on."""
AGAIN_SECONDS = 0.05  # after a fork, when its thread is out of all hooks


def _before_fork() -> None:
    """Wait until nothing computes. May be called again where it was interrupted."""
    global _forker
    _forking.acquire()
    _forker = get_ident()
    for computation in list(_computations):
        if computation not in _held and computation.thread != _forker:
            if not _wait_for(computation):
                log.warning("the process is forked while a model computes: with some BLAS libraries it may hang")
            _held.append(computation)


def _wait_for(computation: Computation) -> bool:
    global _interrupted
    while True:
        try:
            return computation.lock.acquire(timeout=FORK_SECONDS)
        except KeyboardInterrupt:
            _interrupted = True


def _after_fork() -> None:
    """In the parent, continue. May be called again where it was interrupted, or the wait was."""
    global _forker, _interrupted
    if _forker == get_ident():
        while _held:
            _release(_held[-1].lock)
            _held.pop()
        _forker = None
    _release(_forking)
    if _interrupted:
        _interrupted = False
        Timer(AGAIN_SECONDS, _interrupt_main).start()


def _interrupt_main() -> None:
    if greenlets.are_used():  # the main thread's number is its greenlet's there
        os.kill(os.getpid(), signal.SIGINT)
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _release(lock: RLock) -> None:
    """Release what this thread has of a lock: nothing, or more than once."""
    with contextlib.suppress(RuntimeError):
        while True:
            lock.release()


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


def refuse(reason: str) -> None:
    """Make all engines of this process refuse further work for this reason, the first of such calls."""
    global _refused
    _refused = _refused or reason


def refusal() -> EngineClosedError | None:
    """The error of all requests of this process, if its GPU can do no work any more."""
    return None if _refused is None else EngineClosedError(_refused)


_refused: str | None = None


_lost = False


def _forget() -> None:
    """In a forked child: the parent's threads are not here, and its lock may be held for ever."""
    global _lock, _lost, _forking, _forker, _interrupted
    _lock, _forking, _forker, _interrupted = Lock(), RLock(), None, False
    _held.clear()
    _computations.clear()
    _all.clear()
    _idle.clear()
    _runs.clear()
    _lost = _lost or "mlx" in sys.modules  # nobody can tell whether it was used


os.register_at_fork(after_in_child=_forget)
for _ in range(2):  # a signal's handler that raises may keep one call from what it does, and the other makes up for it
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)
