"""The engine: one background thread that owns a model and batches all requests in flight."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # can no longer be imported, by a model's loader, once the main thread ended
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic

from ..options import EngineOptions, check_names
from ..stats import EngineStats
from ..threads.system import Future, SimpleQueue, current_thread
from ..types import Adapter, EngineClosedError, ModelLoadError, NewWeights, Product, Sink, Ticket, Work
from ..types.timeline import MAX_ENTRIES, Recording
from . import threads
from .drafts.ports import Drafting
from .inbox import Change, Inbox, Submit
from .loop import Loaded, Loop, ModelT

__all__ = ["Engine", "EngineOptions"]


class Engine(Generic[ModelT]):
    """Runs a model on its own thread.

    Args:
        load: makes the model; called once, on the engine thread, because MLX arrays must not cross threads.
        options: see `EngineOptions`.
        name: of the thread.
        load_draft: makes the model that drafts for the one that was loaded, on the same thread; None: there is none.

    `submit` and `cancel` may be called from any thread, `cancel` from finalizers too. The thread ends on `close`, at
    interpreter exit, and when the engine has no holder any more.
    """

    def __init__(
        self,
        load: Callable[[], ModelT],
        options: EngineOptions | None = None,
        *,
        name: str = "model",
        load_draft: Callable[[ModelT], Drafting | None] | None = None,
    ) -> None:
        threads.check()
        _check_gpu()
        options = options or EngineOptions()
        check_names(options)
        if options.get("draft_model") is not None and load_draft is None:
            raise ValueError("`draft_model` says what `load_draft` loads: pass that as well")
        self._inbox: Inbox = SimpleQueue()
        self._loop: Loop[ModelT] = Loop(options, self._inbox)
        self._name, self._pid = name, os.getpid()
        # An abandoned engine is told to end, and not waited for: finalizers run anywhere, on event loops, too.
        weakref.finalize(self, _tell_to_stop, self._loop, self._pid).atexit = False
        run = partial(self._loop.run, partial(_load, load, load_draft))
        self._work = threads.start(run, f"localai_shim:{name}", self._loop.stop, self._loop.ready.done)

    @property
    def model(self) -> ModelT:
        """The loaded model; waits for it.

        Raises:
            ModelLoadError: it could not be loaded.
            EngineClosedError: the engine was closed before it was.
        """
        self.wait()
        model = self._loop.model
        if model is None:
            raise self.failure or EngineClosedError("engine is closed")
        return model

    @property
    def failure(self) -> ModelLoadError | None:
        """Reason why the model could not be loaded; None where it could, or is not yet."""
        error = self._loop.load_error
        return None if error is None else error.again()

    @property
    def ready(self) -> Future[None]:
        """Done when the model is loaded, or could not be.

        Raises:
            EngineClosedError: nothing is loaded in a process that was forked from the engine's.
        """
        self.check_process()
        return self._loop.ready

    def wait(self) -> None:
        """Wait until the model is loaded, or could not be."""
        self.ready.result()

    @property
    def is_ready(self) -> bool:
        """The model is loaded, or could not be: `model` does not wait."""
        return self._loop.ready.done()

    def submit(self, works: Sequence[Work], sink: Sink, ticket: Ticket | None = None) -> Ticket:
        """Queue work of any kind; the events of each piece go to the sink under its place in the sequence.

        Args:
            works: all for one caller.
            sink: what gets their events.
            ticket: to cancel with, of a caller that may be interrupted before it gets the one that is returned.

        Raises:
            EngineClosedError: the engine was closed, or this process was forked from the one that made it.
            QueueFullError: too much work waits already.
            TooManyRowsError: this work alone is too much.
        """
        self.check_process()
        message = Submit(ticket or Ticket(), works, sink)
        for work in works:
            work.timings.queue()
        with self._loop.lock:
            if self._loop.ended or self._loop.closing:
                raise EngineClosedError("engine is closed")
            self._loop.tickets.reserve(message.ticket, len(works))
            self._inbox.put(message)
        return message.ticket

    def load_adapter(self, adapter: Adapter, products: Mapping[str, Product]) -> Future[None]:
        """Load an adapter between the next steps; done when it is loaded, or could not be. Work may name it then.

        It stays until it was unloaded as often as it was loaded.

        Args:
            adapter: what work names.
            products: its changes, by the layers' names.

        Raises:
            EngineClosedError: see `submit`.
        """
        return self._change(partial(_load_adapter, self._loop, adapter, products))

    def update_weights(self, weights: NewWeights, *, fails: bool = False) -> Future[None]:
        """Have the model compute with other weights, from the next step on; done when it does, or could not.

        Args:
            weights: some or all of them.
            fails: work in flight fails; else it continues with them.

        Raises:
            EngineClosedError: see `submit`.
        """
        return self._change(partial(self._loop.update_weights, weights, fails=fails))

    def _change(self, apply: Callable[[], Iterator[None] | None]) -> Future[None]:
        """Queue a change of the model."""
        self.check_process()
        done = Future[None]()
        with self._loop.lock:
            if self._loop.ended or self._loop.closing:
                raise EngineClosedError("engine is closed")
            self._inbox.put(Change(apply, done))
        return done

    def unload_adapter(self, adapter: Adapter) -> None:
        """Take an adapter's loading back. Work that uses it keeps it until it ends; new work may not name it.

        Never blocks: finalizers call it, too.
        """
        self._inbox.put(Change(partial(_unload_adapter, self._loop, adapter), Future()))

    def cancel(self, ticket: Ticket) -> None:
        """Remove a submission's rows, without another event. Never blocks."""
        self._inbox.put(ticket)

    def stats(self, *, plans: bool = False) -> EngineStats:
        """A snapshot, without waiting for the engine; with the plans of its last steps, if they are wanted."""
        return self._loop.stats(plans=plans)

    def record(self, most: int = MAX_ENTRIES) -> Recording:
        """Record a timeline of what the engine does, until the recording is stopped.

        Args:
            most: number of entries that are kept, the last ones.
        """
        return self._loop.record(self._name, most)

    @property
    def is_closed(self) -> bool:
        return self._loop.closing or self._pid != os.getpid()

    def close(self, *, wait: bool = True) -> None:
        """End the thread and wait for the step that it is in; requests in flight fail with `EngineClosedError`.

        Args:
            wait: False only tells it to end.

        With a `cache_dir`, writing what is not there yet may take up to five seconds more.
        """
        _tell_to_stop(self._loop, self._pid)
        if wait and self._pid == os.getpid() and self._work.thread is not current_thread():
            self._work.wait()

    def give_up(self, seconds: float) -> None:
        """End the thread; if it does not end in these seconds, as MLX waits for another machine, its requests fail
        all the same.
        """
        self.close(wait=False)
        if not self._work.wait(seconds):
            self._loop.fail_all(EngineClosedError("engine waits for a lost process"))

    def check_process(self) -> None:
        """Raise EngineClosedError in a process that was forked from the engine's, or whose GPU refuses further work."""
        if self._pid != os.getpid():
            raise threads.lost()
        _check_gpu()


def _check_gpu() -> None:
    if (error := threads.refusal()) is not None:
        raise error


def _load(load: Callable[[], ModelT], load_draft: Callable[[ModelT], Drafting | None] | None) -> Loaded[ModelT]:
    model = load()
    return model, None if load_draft is None else load_draft(model)


# Changes hold no `Engine`.


def _load_adapter(loop: Loop[ModelT], adapter: Adapter, products: Mapping[str, Product]) -> Iterator[None]:
    assert loop.adapters is not None
    return loop.adapters.load(adapter, products)


def _unload_adapter(loop: Loop[ModelT], adapter: Adapter) -> None:
    assert loop.adapters is not None
    loop.adapters.unload(adapter)


def _tell_to_stop(loop: Loop[ModelT], pid: int) -> None:
    if os.getpid() == pid:
        loop.stop()
