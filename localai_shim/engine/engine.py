"""The engine: one background thread that owns a model and batches everything that is in flight."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  # can no longer be imported, by a model's loader, once the main thread ended
import ctypes
import logging
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import mlx.core as mx

from ..adapters.caches import Contents
from ..core import (
    EngineClosedError,
    EngineStats,
    Event,
    Failure,
    GenerationRequest,
    ModelLoadError,
    RowError,
    Sink,
    Ticket,
    hand_over,
)
from .batch import Batch, Model, Row
from .kv import fits_slots
from .prefix_cache import PrefixCache, default_budget
from .scheduler import Scheduler

log = logging.getLogger("localai_shim")

ModelT = TypeVar("ModelT", bound=Model)

_QUIET = 0.2  # seconds without a request after which a piece of the prefix cache is written to disk
_SAVE_AT_END = 5.0  # seconds that a closing engine may take for what is not written yet
_CLEAR_AFTER = 256  # steps after which an idle engine returns MLX's cached buffers to the system


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine runs."""

    max_rows: int = 64
    """Most rows that decode together; more wait."""
    max_stall: float = 0.05
    """Seconds that prefilling a prompt may keep running rows from their next token."""
    prefill_chunk: int = 2048
    """Most prompt tokens per forward pass."""
    prefix_cache_bytes: int | None = None
    """Most bytes that finished prompts and turns may hold; 0 keeps none, None a share of the memory."""
    cache_dir: str | os.PathLike[str] | None = None
    """A folder in which these survive the process; several processes may share it. None: there is none."""
    cache_dir_bytes: int = 10 * 2**30
    """Most bytes in that folder."""


@dataclass(slots=True)
class _Submit:
    ticket: Ticket
    requests: Sequence[GenerationRequest]
    sink: Sink


@dataclass(slots=True)
class _Cancel:
    ticket: Ticket
    index: int | None


_Inbox = queue.SimpleQueue[_Submit | _Cancel | None]


class Engine(Generic[ModelT]):
    """Runs a model on a thread of its own.

    Args:
        load: makes the model; called once, on the engine thread, because MLX arrays must not cross threads.
        options: see `EngineOptions`.
        name: of the thread.

    `submit` and `cancel` may be called from any thread, `cancel` from finalizers too. The thread ends on `close`, at
    interpreter exit, and when nobody holds the engine any more.
    """

    def __init__(
        self, load: Callable[[], ModelT], options: EngineOptions | None = None, *, name: str = "model"
    ) -> None:
        if _forked:
            raise EngineClosedError(_FORKED)
        self._inbox: _Inbox = queue.SimpleQueue()
        self._loop = _Loop(load, options or EngineOptions(), self._inbox)
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._loop.run, name=f"localai_shim:{name}", daemon=True)
        # An abandoned engine's thread is told to end and not waited for: finalizers run anywhere, event loops included.
        weakref.finalize(self, _tell_to_stop, self._loop, self._inbox, self._pid).atexit = False
        self._thread.start()
        with _running_lock:
            _running[self._thread] = (self._loop, self._inbox)

    @property
    def model(self) -> ModelT:
        """The loaded model; waits for it.

        Raises:
            ModelLoadError: it could not be loaded.
            EngineClosedError: the engine was closed before it was.
        """
        self.wait()
        if self._loop.model is None:
            raise self._loop.load_error or EngineClosedError("the engine was closed")
        return self._loop.model

    def wait(self) -> None:
        """Wait until the model is loaded, or could not be."""
        self.check_process()
        self._loop.ready.wait()

    @property
    def is_ready(self) -> bool:
        """The model is loaded, or could not be: `model` does not wait."""
        return self._loop.ready.is_set()

    def submit(self, requests: Sequence[GenerationRequest], sink: Sink) -> Ticket:
        """Queue requests; each one's events go to the sink under its place in the sequence.

        Raises:
            EngineClosedError: the engine was closed, or this process was forked from the one that made it.
        """
        self.check_process()
        ticket = Ticket()
        with self._loop.lock:
            if self._loop.ended or self._loop.closing:
                raise EngineClosedError("the engine was closed")
            self._inbox.put(_Submit(ticket, requests, sink))
        return ticket

    def cancel(self, ticket: Ticket, index: int | None = None) -> None:
        """Remove a submission's rows, or the one with this index, without another event. Never blocks."""
        self._inbox.put(_Cancel(ticket, index))

    def stats(self) -> EngineStats:
        """A snapshot, without waiting for the engine."""
        return self._loop.stats()

    @property
    def is_closed(self) -> bool:
        return self._loop.closing or self._pid != os.getpid()

    def close(self) -> None:
        """End the thread and wait for the step that it is in; requests in flight fail with `EngineClosedError`."""
        _tell_to_stop(self._loop, self._inbox, self._pid)
        if self._pid == os.getpid() and self._thread is not threading.current_thread():
            self._thread.join()
            _wait_until_gone(self._thread)

    def check_process(self) -> None:
        """Raise EngineClosedError in a process that was forked from the engine's."""
        if self._pid != os.getpid():
            raise EngineClosedError(_FORKED)


class _Loop(Generic[ModelT]):
    """What runs on the thread. It does not know the `Engine`, so that an abandoned engine can be collected."""

    def __init__(self, load: Callable[[], ModelT], options: EngineOptions, inbox: _Inbox) -> None:
        self._load, self._options, self._inbox = load, options, inbox
        self.closing = False
        self.lock = threading.Lock()
        """Held while a request is put into the inbox, and while the thread looks at the inbox for the last time."""
        self.ended = False
        self.ready = threading.Event()
        self.done = threading.Event()
        self.parked = threading.Event()
        self.exiting = False
        """The interpreter is ending: stay, see `_stop_all`."""
        self.model: ModelT | None = None
        self.load_error: ModelLoadError | None = None
        self._batch: Batch | None = None
        self._scheduler: Scheduler | None = None
        self._prefixes: PrefixCache | None = None
        self._tickets: dict[Row, Ticket] = {}
        self._out: list[tuple[Row, Event]] = []
        self._steps = 0
        self._cleared = 0

    def run(self) -> None:
        try:
            self._start()
            while not self.closing:
                self.step()
        finally:
            self._end()
            self.done.set()
        if self.exiting:
            self.parked.set()
            threading.Event().wait()
        mx.clear_streams()
        with _running_lock:
            _running.pop(threading.current_thread(), None)

    def step(self) -> None:
        """Take the inbox, decode one token for all rows, hand over, prefill while the rows can wait."""
        assert self._batch is not None and self._scheduler is not None
        self._take_inbox(wait=not (len(self._batch) or len(self._scheduler)))
        if self.closing:
            return
        if len(self._batch):
            try:
                self._batch.step()
            except Exception as error:
                log.exception("a model step failed; its rows fail, the engine goes on")
                self._batch.fail(_caused_by(error, "the model failed"))
            self._hand_over()
        if len(self._scheduler):
            self._scheduler.prefill()
            self._hand_over()
        self._steps += 1

    def stats(self) -> EngineStats:
        running = len(self._batch) if self._batch is not None else 0
        prefixes = self._prefixes
        return EngineStats(
            running=running,
            waiting=max(0, len(self._tickets) - running),
            steps=self._steps,
            cache_hits=prefixes.hits if prefixes else 0,
            cache_misses=prefixes.misses if prefixes else 0,
            cache_tokens=prefixes.reused if prefixes else 0,
            cache_bytes=prefixes.bytes if prefixes else 0,
        )

    # -----------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        try:
            self.model = self._load()
        except ModelLoadError as error:
            self.load_error = error
        except BaseException as error:
            self.load_error = ModelLoadError(f"loading the model failed: {error!r}")
            self.load_error.__cause__ = error
        if self.model is None:
            self.closing = True
        else:
            options = self._options
            budget = default_budget() if options.prefix_cache_bytes is None else options.prefix_cache_bytes
            if budget > 0 and fits_slots(self.model.new_cache()):
                self._prefixes = PrefixCache(self.model, budget, options.cache_dir, options.cache_dir_bytes)
            self._batch = Batch(self.model, self._emit, self._leave if self._prefixes else None)
            self._scheduler = Scheduler(
                self.model,
                self._batch,
                self._emit,
                max_rows=options.max_rows,
                max_stall=options.max_stall,
                prefill_chunk=options.prefill_chunk,
                prefixes=self._prefixes,
            )
        self.ready.set()

    def _take_inbox(self, *, wait: bool) -> None:
        """Admit and cancel; `wait` blocks until there is something to do."""
        if wait and self._steps - self._cleared >= _CLEAR_AFTER:
            # Only when nothing is in flight: on the CPU back end this waits for it, and holds the GIL meanwhile.
            mx.clear_cache()
            self._cleared = self._steps
        cancelled: set[tuple[Ticket, int | None]] = set()
        try:
            while True:
                message = self._next_message(wait)
                wait = False
                if isinstance(message, _Submit):
                    self._admit(message)
                elif isinstance(message, _Cancel):
                    cancelled.add((message.ticket, message.index))
                elif self.closing:
                    return
        except queue.Empty:
            pass
        if cancelled:
            self._drop(lambda row: bool({(self._tickets[row], None), (self._tickets[row], row.index)} & cancelled))

    def _next_message(self, wait: bool) -> _Submit | _Cancel | None:
        """Raises queue.Empty. Where nothing comes for a while, what is to survive the process is written to disk."""
        while wait and self._prefixes is not None and self._prefixes.unsaved:
            try:
                return self._inbox.get(timeout=_QUIET)
            except queue.Empty:
                self._prefixes.save()
        return self._inbox.get(block=wait)

    def _save(self) -> None:
        deadline = time.monotonic() + _SAVE_AT_END
        while self._prefixes is not None and self._prefixes.unsaved and time.monotonic() < deadline:
            self._prefixes.save()

    def _admit(self, message: _Submit) -> None:
        assert self.model is not None and self._scheduler is not None
        try:
            rows = [Row(request, message.sink, index, self.model) for index, request in enumerate(message.requests)]
        except Exception as error:
            failure = Failure(_caused_by(error, "the request could not be admitted"))
            for index in range(len(message.requests)):
                _put_last(message.sink, index, failure)
            return
        for row in rows:
            self._tickets[row] = message.ticket
        self._scheduler.add(rows)

    def _drop(self, gone: Callable[[Row], bool]) -> None:
        assert self._batch is not None and self._scheduler is not None
        leaving = {row for row in self._tickets if gone(row)}
        if not leaving:
            return
        self._batch.drop(leaving.__contains__)
        self._scheduler.drop(leaving.__contains__)
        for row in leaving:
            del self._tickets[row]

    def _leave(self, row: Row, tokens: Sequence[int], read: Callable[[int], list[Contents]]) -> None:
        if self._prefixes is not None:  # not while the engine ends
            self._prefixes.keep(row.request.prompt.salt, tokens, read)

    def _emit(self, row: Row, event: Event) -> None:
        self._out.append((row, event))

    def _hand_over(self) -> None:
        """Give the step's events to the sinks, and wake each event loop once."""
        if not self._out:
            return
        out, self._out = self._out, []
        for row, event in out:
            if isinstance(event, Failure) or event.finish_reason is not None:
                self._tickets.pop(row, None)
        lost = hand_over(out, self._tickets)
        if lost:
            self._drop(lost.__contains__)

    def _end(self) -> None:
        """Fail what is in flight and let the model go."""
        self.closing = True
        error = self.load_error or EngineClosedError("the engine was closed")
        with self.lock:
            self.ended = True
            while not self._inbox.empty():
                message = self._inbox.get()
                if isinstance(message, _Submit):
                    for index in range(len(message.requests)):
                        _put_last(message.sink, index, Failure(error))
        for row in self._tickets:
            _put_last(row.sink, row.index, Failure(error))
        self._tickets.clear()
        self._save()
        self._batch = self._scheduler = self._prefixes = self.model = None
        self.ready.set()


def _caused_by(error: Exception, what: str) -> RowError:
    failure = RowError(f"{what}: {error!r}")
    failure.__cause__ = error
    return failure


def _put_last(sink: Sink, index: int, event: Event) -> None:
    try:
        sink.put(index, event)
        if sink.waker is not None:
            sink.waker.wake()
    except Exception:
        log.debug("a consumer was gone before its engine ended", exc_info=True)


def _tell_to_stop(loop: _Loop[Any], inbox: _Inbox, pid: int) -> None:
    if os.getpid() == pid:
        loop.closing = True
        inbox.put(None)


_running: dict[threading.Thread, tuple[_Loop[Any], _Inbox]] = {}
_running_lock = threading.Lock()


@atexit.register
def _stop_all() -> None:
    """At interpreter exit, bring every engine to a halt and leave its thread asleep.

    A thread that ends now would run MLX's thread-local destructors while the process tears down what they use, and one
    that is cut off inside MLX can bring the process down; both abort it.
    """
    with _running_lock:
        running = dict(_running)
    for loop, inbox in running.values():
        loop.exiting = loop.closing = True
        inbox.put(None)
    for thread, (loop, _) in running.items():
        if not loop.ready.is_set():  # loading and fetching a model may take minutes: stop at the next line of Python
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
        loop.done.wait(30.0 if loop.ready.is_set() else 2.0)
        if loop.done.is_set() and not loop.parked.wait(0.1):
            _wait_until_gone(thread)


def _wait_until_gone(thread: threading.Thread) -> None:
    """`Thread.join` returns before the system's thread has run its destructors; wait for these, too."""
    task = f"/proc/self/task/{thread.native_id}"
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline and os.path.exists(task):
        time.sleep(0.001)
    if not os.path.isdir("/proc/self/task"):
        time.sleep(0.01)


_forked = False
_FORKED = (
    "this process was forked from one that ran a model, and neither the model's thread nor MLX's came along: start "
    "processes with multiprocessing's 'spawn' method, or fork before the first client is made"
)


def _forget_threads() -> None:
    """In a forked child: the parent's threads are not here to be joined, and its locks may be held for ever."""
    global _forked, _running_lock
    _forked = True  # this module is imported with the first engine only
    _running_lock = threading.Lock()
    _running.clear()


os.register_at_fork(after_in_child=_forget_threads)
