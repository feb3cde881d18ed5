"""The loop of an engine's thread: it takes requests, runs steps and emits tokens."""

from __future__ import annotations

import gc
import queue
import weakref
from collections.abc import Callable, Collection
from functools import partial
from typing import Generic, TypeVar, cast

import mlx.core as mx

from ..media import modalities
from ..options import EngineOptions
from ..stats import EngineStats
from ..threads.system import Future, Lock
from ..types import (
    AdapterGoneError,
    EngineClosedError,
    EngineError,
    Event,
    Failure,
    ModelLoadError,
    NewWeights,
    RowError,
    Ticket,
    log,
)
from ..types.timeline import Recording
from . import threads
from .adapters import Adapters
from .costs.cost_model import Meter
from .drafts.ports import Drafting
from .failures.gpu import take_timeout
from .failures.unowned import load_error, logged, synchronize
from .inbox import Change, Changes, Inbox, Message, Submit, put_last
from .memory import Memory
from .mirror import journal as mirror
from .ports import Encoder, Model, host
from .prefix.cache import Pressure
from .row import release_frames, row_error
from .setup import MAX_ROWS, Setup, set_up
from .sinks import deliver_events
from .threads import Computation
from .work.batcher import Batcher
from .work.lane import Entry
from .work.recorder import start_recording
from .work.tickets import Tickets

ModelT = TypeVar("ModelT", bound=Encoder)
Loaded = tuple[ModelT, Drafting | None]
"""A model, and the one that drafts for it."""

QUIET_SECONDS = 0.2  # without a request, after which a piece of the prefix cache is written to disk
SAVE_SECONDS = 5.0  # that a closing engine may take for what is not written yet
SLEEP_SECONDS = 30.0  # without a request, after which nothing is wired for the engine
CLEAR_STEPS = 256  # after which an idle engine returns MLX's free buffers to the system

MAX_QUEUE_ROWS = 16_384


class Loop(Generic[ModelT]):
    """The loop of the thread. It holds no reference to the `Engine`, so that an abandoned engine can be collected."""

    def __init__(self, options: EngineOptions, inbox: Inbox) -> None:
        self._options, self._inbox = options, inbox
        self._meter = Meter()
        max_queue = options.get("max_queue")
        most = (options.get("max_rows") or MAX_ROWS) + (MAX_QUEUE_ROWS if max_queue is None else max_queue)
        self.tickets = Tickets(most, self._meter)
        """Places in it are reserved with the lock held."""
        self.closing = False
        self.lock = Lock()
        """Held while a request is put into the inbox, and while the thread empties it for the last time."""
        self.ended = False
        self.ready: Future[None] = Future()
        self.model: ModelT | None = None
        self.load_error: ModelLoadError | None = None
        self._setup: Setup | None = None
        self._batcher: Batcher | None = None
        self.adapters: Adapters | None = None
        """On the engine thread only."""
        self._changes = Changes()
        self._out: list[tuple[Entry, Event]] = []
        self._steps = 0
        self._clears_at = CLEAR_STEPS
        """Step after which free buffers are returned to the system when the engine rests."""
        self._pressure: Pressure | None = None
        self._computation = Computation(synchronize)

    def run(self, load: Callable[[], Loaded[ModelT]]) -> None:
        """Load the model and run steps until the engine is closed."""
        try:
            host().memory.enter(self)
            self._start(load)
            with self._computation:
                while not self.closing:
                    try:
                        self.step()
                    except BaseException as error:  # that of a panic in Rust is no Exception
                        with logged("an engine could not recover; it continues"):
                            self._recover(error)
                    self._heed_gpu_faults()
        finally:
            if self._end():
                host().memory.leave(self)

    def stop(self) -> None:
        """Have it end after the step that it is in. Called on any thread."""
        self.closing = True
        self._inbox.put(None)

    def step(self) -> None:
        """Take the inbox, run what the scheduler says, and deliver what came of it."""
        self._computation.safepoint()
        self._take_inbox(wait=not self._batcher and not self._changes)
        if self.closing:
            return
        self._make_changes()
        batcher = self._batcher
        if batcher is None:
            return
        self._flush()
        self._look_at_pressure()
        batcher.step()
        self._flush()
        self._sweep()
        self._steps += 1

    def stats(self, *, plans: bool = False) -> EngineStats:
        setup, batcher, meter, model = self._setup, self._batcher, self._meter, self.model
        batch = None if batcher is None or batcher.rows is None else batcher.rows.batch
        memory, prefixes = (None, None) if setup is None else (setup.memory, setup.prefixes)
        features, speculation = (None, None) if setup is None else (setup.features, setup.speculation)
        running = len(batch) if batch is not None else 0
        return EngineStats(
            running=running,
            max_rows=(self._options.get("max_rows") or MAX_ROWS) if setup is None else setup.max_rows,
            waiting=max(0, self.tickets.taken - running),
            steps=self._steps,
            prompt_tokens=meter.prompt_tokens,
            prefilled_tokens=meter.prefilled_tokens,
            generated_tokens=meter.generated_tokens,
            embedded_texts=meter.embedded_texts,
            embedded_tokens=meter.embedded_tokens,
            refused=meter.refused,
            preempted=meter.preempted,
            cache_hits=prefixes.hits if prefixes else 0,
            cache_misses=prefixes.misses if prefixes else 0,
            cache_tokens=prefixes.reused if prefixes else 0,
            cache_bytes=prefixes.bytes if prefixes else 0,
            tower_runs=features.runs if features else 0,
            feature_hits=features.hits if features else 0,
            feature_bytes=features.bytes if features else 0,
            adapter_bytes=0 if self.adapters is None else self.adapters.nbytes,
            kv_bytes=batch.nbytes if batch is not None else 0,
            shared_bytes=0 if setup is None or setup.sharing is None else setup.sharing.bytes,
            kv_bytes_per_token=memory.per_token if memory else 0,
            kv_bytes_per_token_unquantised=memory.per_token_unquantised if memory else 0,
            kv_budget=memory.budget if memory else None,
            active_bytes=mx.get_active_memory(),
            step_seconds=meter.step_seconds(),
            stall_seconds=meter.stall_seconds(),
            drafts={} if speculation is None else speculation.counts.copy(),
            backend=host().machine.describe_backend(),
            failure=str(threads.refusal() or ""),
            modalities=() if model is None else modalities(model.text.media_kinds),
            plans=batcher.scheduler.plans() if plans and batcher is not None else (),
        )

    def record(self, name: str, most: int) -> Recording:
        """Record what the engine does from now on, in at most this many entries. Called on any thread."""
        return start_recording(name, self._meter, self.tickets.running, most)

    def update_weights(self, weights: NewWeights, *, fails: bool) -> None:
        """Give the model other weights, on the engine thread, between two steps.

        Args:
            weights: some or all of them.
            fails: work in flight fails; else it begins again, rows with their output.

        Raises:
            ModelLoadError: they do not fit. Nothing has changed.
        """
        assert self.model is not None and self._setup is not None
        apply = self.model.read_weights(weights)
        if fails:
            failure = Failure(RowError("the model's weights were updated, and `running` was 'fail'"))
            entries = [*self.tickets]
            self._out += [(entry, failure) for entry in entries]
            self._drop(entries)
        if self._batcher is not None:
            self._batcher.restart()
        apply()
        self._setup.renew(self.model.fingerprint)
        self._flush()

    def fail_all(self, error: EngineError) -> None:
        """Fail what is in flight, and what comes; on another thread only where the engine's does not come back."""
        with self.lock:
            self.ended = True
            while not self._inbox.empty():
                message = self._inbox.get()
                if isinstance(message, Change):
                    message.fail(error)
                elif isinstance(message, Submit):
                    message.fail(error)
                    self.tickets.free(message.ticket)
            self._changes.fail(error)
        for entry in self.tickets.clear():
            put_last(entry.sink, entry.index, Failure(error))

    # -----------------------------------------------------------------------------------------------------------

    def _start(self, load: Callable[[], Loaded[ModelT]]) -> None:
        try:
            self.model, draft = load()
        except ModelLoadError as error:
            self.load_error = error
        except BaseException as error:
            # Another thread that imports transformers meanwhile may show this one a half-made module.
            transient = isinstance(error, ImportError) or not isinstance(error, Exception)
            self.load_error = load_error(f"loading the model failed: {error!r}", error, transient=transient)
        if self.model is not None:
            try:
                weights = self.model.weight_bytes + (0 if draft is None else draft.weight_bytes)
                host().memory.loaded(self, weights)
                with self._computation:
                    self._setup = set_up(cast(Model, self.model), draft, self._options)
                memory = self._setup.memory
                self.adapters = Adapters(self.model, memory if isinstance(memory, Memory) else None)
                if (prefixes := self._setup.prefixes) is not None:
                    self._pressure = Pressure(prefixes, self._setup.costs.now)
                self._batcher = self._make_batcher()
            except BaseException as error:
                self.load_error = load_error(f"the model '{self.model.name}' cannot be run: {error}", error)
                self.model = draft = None
        if self.model is None:
            self.closing = True
        if self.load_error is not None:
            release_frames(self.load_error)
        self.ready.set_result(None)

    def _make_batcher(self) -> Batcher:
        """Make what runs work, and has none."""
        assert self.model is not None and self._setup is not None
        # A model that generates no text is no more than an `Encoder`.
        model = cast(Model, self.model)
        return Batcher(model, self._setup, self._meter, self, self._emit, self._flush)

    def _recover(self, error: BaseException) -> None:
        """Fail all that is in flight, since the cause of the error is unknown, and start afresh."""
        log.error("the engine failed, and its requests with it; the engine continues", exc_info=error)
        failure, (out, self._out) = Failure(row_error("the engine failed", error)), (self._out, [])
        for row, event in out:  # what came before
            put_last(row.sink, row.index, event)
        ended = {row for row, event in out if isinstance(event, Failure) or event.finish_reason is not None}
        for row in self.tickets.clear():
            if row not in ended:
                put_last(row.sink, row.index, failure)
        with logged("an engine could not start afresh; it tries again with its next request"):
            batcher, self._batcher = self._batcher, None
            if batcher is not None:
                batcher.close()
            if self._setup is not None:
                self._setup.forget()
            self._batcher = self._make_batcher()

    def _heed_gpu_faults(self) -> None:
        """Run smaller passes after one that took the GPU too long, and end if the GPU refuses further work."""
        if take_timeout() and self._setup is not None and self.model is not None:
            self._setup.halve_passes(self.model.name)
        if threads.refusal() is not None:
            self.closing = True

    def _take_inbox(self, *, wait: bool) -> None:
        """Admit and cancel work; `wait` blocks until there is a message."""
        cancelled: set[Ticket] = set()
        try:
            while True:
                message = self._wait_for_message() if wait else self._inbox.get(block=False)
                wait = False
                if isinstance(message, Submit):
                    self._admit(message)
                elif isinstance(message, Change):
                    self._changes.add(message)
                elif message is not None:
                    cancelled.add(message)
                    self.tickets.free(message)  # where its submission was interrupted
                elif self.closing:
                    return
        except queue.Empty:
            pass
        if gone := self.tickets.find(cancelled):
            self._drop(gone)

    def _sweep(self) -> None:
        """Have an adapter removed that was unloaded, once nothing uses it."""
        if not self._changes and self.adapters is not None and (gone := self.adapters.unused(self.tickets)) is not None:
            self._changes.add(Change(partial(self.adapters.remove, gone), Future()))

    def _make_changes(self) -> None:
        """Make pieces of the changes that wait."""
        self._sweep()
        if self._changes:
            if self._batcher is not None and (rows := self._batcher.rows) is not None:
                rows.batch.settle()  # what was not run yet holds arrays, which could not be written in place
            synchronize()
            self._changes.run()

    def _rest(self) -> None:
        """Nothing is in flight: apply the limit of MLX's free buffers, or return them to the system."""
        if self._batcher is not None:
            self._batcher.record_level()
        clear = self._steps >= self._clears_at
        if clear:
            self._clears_at = self._steps + CLEAR_STEPS
        memory = None if self._setup is None else self._setup.memory
        free = None if memory is None else memory.free
        if (journal := mirror.journal()) is not None:
            journal.rest(free, weights=0 if self.model is None else self.model.weight_bytes, clear=clear)
        host().memory.rest(self, free=free, clear=clear)

    def _look_at_pressure(self) -> None:
        if self._pressure is not None and self._pressure.look():
            self._clears_at = 0

    def _wait_for_message(self) -> Message:
        """The next message. While none comes, the prefix cache is written to disk, and then the engine sleeps."""
        found: list[Message] = []
        quiet, prefixes = QUIET_SECONDS, None if self._setup is None else self._setup.prefixes
        with logged("an idle engine's housekeeping failed; it waits for requests"):
            self._rest()
            while not found and prefixes is not None and prefixes.unsaved:
                try:
                    found.append(self._next_message(quiet))
                except queue.Empty:
                    host().memory.work(self)
                    prefixes.save()
                    self._rest()
                    quiet = 0.0
            found = found or self._fall_asleep()
        message = found[0] if found else self._next_message()
        with logged("an engine could not say that it works"):
            host().memory.work(self)
        return message

    def _fall_asleep(self) -> list[Message]:
        """The next message, if it comes soon enough; otherwise nothing stays wired for this engine."""
        try:
            return [self._next_message(SLEEP_SECONDS)]
        except queue.Empty:
            self._look_at_pressure()
            self._rest()
            host().memory.sleep(self)
            return []

    def _next_message(self, timeout: float | None = None) -> Message:
        with self._computation.safe():
            return self._inbox.get(timeout=timeout)

    def _admit(self, message: Submit) -> None:
        try:
            if self._batcher is None:  # it could not start afresh
                self._batcher = self._make_batcher()
            batcher, entries = self._batcher, list[Entry]()
            for index, work in enumerate(message.works):
                if self.adapters is not None:
                    self.adapters.check(work)
                entries.append(batcher.lane(work.task).enter(work, message.sink, index))
            self.tickets.enter(message.ticket, entries)
        except BaseException as error:
            what = "the request could not be admitted"
            message.fail(error if isinstance(error, AdapterGoneError) else row_error(what, error))
            self.tickets.free(message.ticket)
            return
        for lane, own in batcher.by_lane(entries).items():
            try:
                lane.add(own)
            except BaseException as error:
                lane.drop(set(own))
                failure = Failure(row_error("the request could not be admitted", error))
                self._out += [(entry, failure) for entry in own]

    def _drop(self, gone: Collection[Entry]) -> None:
        """Drop entries, which may be waiting, running or gone; no event is sent."""
        for entry in gone:
            self.tickets.forget(entry)
        if self._batcher is not None:
            for lane, own in self._batcher.by_lane(gone).items():
                lane.drop(set(own))

    def _emit(self, entry: Entry, event: Event) -> None:
        self._out.append((entry, event))

    def _flush(self) -> None:
        """Pass the step's events to the sinks, wake each event loop once, and drop what is not read any more."""
        if (journal := mirror.journal()) is not None and journal.is_lost:
            self._out = []  # the engine ends, and those who wait are told why
        if not self._out:
            return
        out = self._out
        for entry, event in out:
            if isinstance(event, Failure):
                self.tickets.forget(entry, failed=True)
                continue
            work = entry.request
            self._meter.generated_tokens += work.emits_tokens
            if event.finish_reason is not None:
                work.timings.finish_reason = event.finish_reason
                self.tickets.forget(entry)
        lost = deliver_events(out, self.tickets)
        self._out = []
        if lost:
            self._drop(lost)

    def _end(self) -> bool:
        """Fail what is in flight and release the model; False where MLX cannot be used any more."""
        self.closing, usable = True, True
        refusal = threads.refusal()
        self.fail_all(self.load_error or mirror.lost() or refusal or EngineClosedError("engine is closed"))
        with logged("an engine that ends could not write its prefix cache"):
            if self._setup is not None and self._setup.prefixes is not None:
                self._setup.prefixes.close(SAVE_SECONDS)
        with logged("an engine that ends could not release its memory"):
            self._release()
        with logged("an engine that ends could not end its other processes"):
            usable = mirror.end() and refusal is None
        if not self.ready.done():
            self.ready.set_result(None)
        return usable

    def _release(self) -> None:
        """Return the memory of the model and of all rows to the system."""
        if self._batcher is not None:
            self._batcher.close()
        if self._setup is not None:
            self._setup.close()
        self._setup = self._batcher = self.adapters = self._pressure = None
        model = None if self.model is None else weakref.ref(self.model)
        self.model = None
        if model is not None and model() is not None:  # a reference cycle, or the caller, holds it
            gc.collect()
