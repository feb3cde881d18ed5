"""Responses that run without their caller: polled, followed as a stream, cancelled.

One thread per client takes the tokens of all of them, makes their events, stores them when they end, and hands events
to all followers.
"""

from __future__ import annotations

import os
import queue
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from openai.types.responses import Response, ResponseError, ResponseStreamEvent

from ...state.processes import is_running, start_time
from ...state.store import Json, Store
from ...threads.system import Event as Flag
from ...threads.system import Lock, RLock, SimpleQueue, Thread, make_thread
from ...types import EngineClosedError, EngineLike, Failure, log
from ..turn import EventSink, Turn, TurnEvent, put_events
from .assembler import ResponseAssembler
from .context import Context, save_response

_owners: set[str] = set()  # in this process
_POLL_SECONDS = 0.5  # after which a cancellation by another process is noticed at the latest
_Inbox = SimpleQueue[tuple["Run", TurnEvent | None] | None]
"""Events of turns, None for one that is to be cancelled, and None alone where all are to end."""


class Run:
    """One response that runs in the background; its turn's sink, all of whose events go into the one inbox."""

    waker = None
    inbox: _Inbox

    def __init__(self, context: Context, turn: Turn) -> None:
        self.context, self.turn = context, turn
        self.assembler = cast(ResponseAssembler, turn.assembler)
        self.id = self.assembler.id
        self.lock = RLock()
        self.ended = False
        self.over = Flag()
        """Set at its end, for waiting threads."""
        self.unstored: str | None = None
        """Reason for its answer not to be in the store: it has failed."""
        self.queued = self.assembler.result()
        """The response as it was when it was queued."""
        self.events: list[ResponseStreamEvent] = list(self.assembler.begin())
        self._followers: dict[int, EventSink] = {}
        self.ended_with: Callable[[BaseException | None], None] | None = None
        """Takes what went wrong, if something did, when it has ended."""
        self._error: BaseException | None = None

    def put(self, index: int, event: TurnEvent) -> None:
        self.inbox.put((self, event))

    def response(self) -> Response:
        """Response with what there is of it now."""
        with self.lock:
            made = self.assembler.result()
            return made if self.unstored is None else made.model_copy(update=_unstored(self.unstored))

    def follow(self, sink: EventSink, after: int) -> None:
        """Have a sink get the events with larger sequence numbers than `after`, and None behind the last one."""
        with self.lock:
            put_events(sink, [event for event in self.events if event.sequence_number > after])
            if self.ended:
                put_events(sink, [None])
            else:
                self._followers[id(sink)] = sink

    def leave(self, sink: EventSink) -> None:
        """The sink wants no more. Takes no lock: it may be called by the garbage collector, on any thread."""
        self._followers.pop(id(sink), None)

    def fail(self, error: Exception) -> Sequence[ResponseStreamEvent]:
        """Its last events, as it failed. Called with the lock held."""
        self._error = error
        return self.assembler.fail(error)

    def cancel(self) -> Sequence[ResponseStreamEvent]:
        """Its last events, as it was cancelled. Called with the lock held."""
        self._error = GeneratorExit()
        return self.assembler.cancel()

    def publish(self, events: Sequence[ResponseStreamEvent]) -> None:
        """Have the followers get these events. Called with the lock held."""
        self.events += events
        for sink in list(self._followers.values()):
            put_events(sink, events)

    def end(self) -> None:
        """No more events come. Called with the lock held."""
        self.ended = True
        for sink in list(self._followers.values()):
            put_events(sink, [None])
        self._followers.clear()
        del self.turn  # which has this sink
        if self.ended_with is not None:
            self.ended_with(self._error)


class Background:
    """All responses that run in the background for one client and its copies."""

    def __init__(self, store: Store, *, shared: bool) -> None:
        """`shared`: other processes may use the store, too."""
        self.owner = f"{os.getpid()}:{secrets.token_hex(8)}:{start_time(os.getpid())}"
        self._store, self._shared = store, shared
        self._inbox: _Inbox = SimpleQueue()
        self._runs: dict[str, Run] = {}
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False
        _owners.add(self.owner)

    @staticmethod
    def is_alive(owner: str) -> bool:
        """True if the owner still works on its responses."""
        id, _, started = f"{owner}::".split(":")[:3]
        if (pid := int(id)) == os.getpid():
            return owner in _owners
        return is_running(pid, started)

    def start(self, run: Run, engine: EngineLike) -> None:
        """Store a response as queued and let it run.

        Raises:
            EngineError: it cannot be submitted; nothing is stored then.
        """
        run.inbox = self._inbox
        with self._lock:
            self._check_open()
            if self._thread is None:
                self._start_thread()
        try:
            # Before the thread knows of it: it stops what is not in the store, as another process has deleted that.
            save_response(self._store, run.context, run.response(), owner=self.owner)
            with run.lock:  # no token is taken before all of this has happened
                with self._lock:
                    self._check_open()
                    self._runs[run.id] = run
                run.turn.start(engine, run)
        except BaseException:
            run.turn.leave()
            self._runs.pop(run.id, None)
            self._store.delete("response", run.id)
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosedError("client is closed")

    def _start_thread(self) -> None:
        work = (self._inbox, self._runs, self._store, self._shared)
        self._thread = make_thread(_pump, work, name="localai_shim:background")
        try:
            self._thread.start()
        except BaseException:  # there are too many threads, or Ctrl-C
            if not self._thread.is_alive():
                self._thread = None
            raise

    def get(self, id: str) -> Run | None:
        """A response that still runs in this process, or whose end could not be stored and still cannot be."""
        run = self._runs.get(id)
        if run is not None and run.unstored is not None and _fail_stored(id, self._store, run.unstored):
            self._runs.pop(id, None)
            return None
        return run

    def cancel(self, id: str) -> bool:
        """Stop a response and store it as cancelled; False if it does not run here (any more).

        The thread does it, so that a caller who is interrupted leaves nothing half done.
        """
        run, thread = self._runs.get(id), self._thread
        if run is None or thread is None or not thread.is_alive():  # as in a forked child
            return False
        if run.unstored is not None:
            self._runs.pop(id, None)
            return False
        self._inbox.put((run, None))
        run.over.wait()
        return True

    def close(self) -> None:
        """Fail what still runs, and wait for the thread to end."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self.stop()
        if thread is not None:
            thread.join()

    def stop(self) -> None:
        """Begin to close without waiting or taking a lock: the garbage collector may call this, on any thread."""
        self._inbox.put(None)
        _owners.discard(self.owner)


def _stop(run: Run, runs: dict[str, Run], store: Store, end: Callable[[], Sequence[ResponseStreamEvent]]) -> None:
    """Take a response's work from the engine and end it."""
    with run.lock:
        if not run.ended:
            run.turn.leave()
            _finish(run, runs, store, end())


def _pump(inbox: _Inbox, runs: dict[str, Run], store: Store, shared: bool) -> None:
    looked = time.monotonic()
    while True:
        if shared and time.monotonic() >= looked + _POLL_SECONDS:  # also while tokens never stop coming
            for run in list(runs.values()):
                _look(run, runs, store)
            looked = time.monotonic()
        try:
            message = inbox.get(timeout=_POLL_SECONDS if shared and runs else None)
        except queue.Empty:
            continue
        if message is None:
            error = EngineClosedError("client was closed while this response ran")
            for run in list(runs.values()):
                _give_up(run, runs, store, error)
            return
        try:
            _take(*message, runs, store)
        except Exception:
            log.exception("a response in the background failed")
            _give_up(message[0], runs, store, RuntimeError("it could not be stored"))


def _give_up(run: Run, runs: dict[str, Run], store: Store, error: Exception) -> None:
    """Make a response fail; the others continue, or end, in any case."""
    try:
        _stop(run, runs, store, partial(run.fail, error))
    except Exception:  # whoever opens a file later finds that nobody works on this one
        log.exception("a response in the background could not be ended")


def _look(run: Run, runs: dict[str, Run], store: Store) -> None:
    """Stop a response that another process has cancelled."""
    try:
        body = store.get("response", run.id)
        if body is None or body["status"] == "cancelled":
            _stop(run, runs, store, run.cancel)
    except Exception:
        log.exception("a response in the background could not be looked up")


def _take(run: Run, event: TurnEvent | None, runs: dict[str, Run], store: Store) -> None:
    if event is None:
        _stop(run, runs, store, run.cancel)
        return
    assembler = run.assembler
    with run.lock:
        if run.ended:
            return
        begun = assembler.start()
        if begun:
            store.update("response", run.id, _begun)
        try:
            events = cast("Sequence[ResponseStreamEvent]", run.turn.feed(0, event))
        except Exception as error:
            if not isinstance(event, Failure):
                log.exception("a response in the background could not be read")
            run.turn.leave()
            events = run.fail(error)
        if assembler.finished:
            _finish(run, runs, store, [*begun, *events])
        else:
            run.publish([*begun, *events])


def _begun(body: Json) -> Json:
    return {**body, "status": "in_progress"} if body["status"] == "queued" else body  # it may be cancelled already


def _finish(run: Run, runs: dict[str, Run], store: Store, last: Sequence[ResponseStreamEvent]) -> None:
    """Store a response that has ended, and publish its last events. Called with the lock held."""
    stored = True
    try:
        if store.get("response", run.id) is not None:  # else another process has deleted it
            save_response(store, run.context, run.response(), events=[*run.events, *last])
    except Exception as error:
        log.exception("a response in the background could not be stored")
        last = last[:-1]  # the very last one would claim what nobody will find
        run.unstored = f"It could not be stored: {error}"  # which is told to those who have the run already, too
        stored = _fail_stored(run.id, store, run.unstored)
    try:
        run.publish(last)
        run.end()
    finally:
        if stored:
            runs.pop(run.id, None)
        run.over.set()


def _fail_stored(id: str, store: Store, why: str) -> bool:
    """Mark a response as failed, as its answer could not be stored, for example in a deleted conversation; False where
    that cannot be stored, either, as on a full disk.
    """
    failed = {"status": "failed", "error": {"code": "server_error", "message": why}}
    try:
        store.update("response", id, lambda body: {**body, **failed}, release=True)
    except Exception:
        log.exception("a response in the background could not be marked as failed")
        return False
    return True


def _unstored(why: str) -> Json:
    """Fields of a response that failed as it could not be stored."""
    return {"status": "failed", "error": ResponseError(code="server_error", message=why)}
