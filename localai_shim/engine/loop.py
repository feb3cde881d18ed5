"""What runs on an engine's thread: it takes requests, runs steps and emits tokens."""

from __future__ import annotations

import gc
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Generic, TypeVar, cast

import mlx.core as mx

from ..adapters import device
from ..adapters.backend import describe_backend, is_out_of_memory
from ..media import modalities
from ..options import EngineOptions
from ..stats import EngineStats
from ..types import (
    EmbeddingRequest,
    EngineClosedError,
    Event,
    Failure,
    GenerationRequest,
    ModelLoadError,
    QueueFullError,
    RowError,
    Sink,
    Ticket,
    TooManyRowsError,
    deliver_events,
    release_frames,
)
from .agreement import agreement, ends_prompts, runs_built
from .batch import Batch
from .draft_model import speculation_for
from .embedding import PASS_TOKENS, EmbeddingJob, EmbeddingLane, decoding
from .features import FeatureCache
from .inbox import Cancel, Inbox, Submit, put_last
from .kv import can_batch, fits_slots
from .memory import Memory, Workspace
from .meter import Meter
from .model import Encoder, Model
from .prefix.cache import PrefixCache, default_budget
from .row import Row, row_error
from .scheduler import Scheduler
from .speculation import Speculation

log = logging.getLogger("localai_shim")

ModelT = TypeVar("ModelT", bound=Encoder)
Entry = Row | EmbeddingJob
Loaded = tuple[ModelT, Model | None]
"""A model, and the one that drafts for it."""

QUIET_SECONDS = 0.2  # without a request, after which a piece of the prefix cache is written to disk
SAVE_SECONDS = 5.0  # that a closing engine may take for what is not written yet
CLEAR_STEPS = 256  # after which an idle engine returns MLX's free buffers to the system

MAX_ROWS = 64
MAX_STALL_SECONDS = 0.05
PREFILL_CHUNK_TOKENS = 2048
MAX_QUEUE_ROWS = 16_384
CACHE_DIR_BYTES = 10 * 2**30
FEATURES_SHARE = 1 / 8  # of what the prefix cache has: features take about so much of the keys and values that follow


class Loop(Generic[ModelT]):
    """What runs on the thread. It holds no reference to the `Engine`, so that an abandoned engine can be collected."""

    def __init__(
        self, load: Callable[[], Loaded[ModelT]], options: EngineOptions, inbox: Inbox, ran: Callable[[], None]
    ) -> None:
        """`ran` is called last of all, unless the interpreter is ending."""
        self._load, self._options, self._inbox, self.ran = load, options, inbox, ran
        self._max_rows = options.get("max_rows") or MAX_ROWS
        self.closing = False
        self.lock = threading.Lock()
        """Held while a request is put into the inbox, and while the thread empties it for the last time."""
        self.ended = False
        self.ready: Future[None] = Future()
        self.done, self.parked = threading.Event(), threading.Event()
        self.exiting = False
        """The interpreter is ending, and the thread must not: see `_stop_all`."""
        self.model: ModelT | None = None
        self.load_error: ModelLoadError | None = None
        self._batch: Batch | None = None
        self._scheduler: Scheduler | None = None
        self._prefixes: PrefixCache | None = None
        self._memory: Memory | Workspace | None = None
        self._lane: EmbeddingLane | None = None
        self._features = FeatureCache(0)
        self._speculation: Speculation | None = None
        self._draft: Model | None = None
        self._meter = Meter()
        self._tickets: dict[Entry, Ticket] = {}
        self._rows: dict[Ticket, set[Entry]] = {}
        self._out: list[tuple[Entry, Event]] = []
        self._reserved = self._freed = 0  # places in the queue; one thread at a time writes each
        self._steps = self._cleared = 0
        self._together = True

    def run(self) -> None:
        try:
            device.process.enter(self)
            self._start()
            while not self.closing:
                self.step()
        finally:
            self._end()
            try:
                device.process.leave(self)
            finally:
                self.done.set()
        if self.exiting:
            self.parked.set()
            threading.Event().wait()
        mx.clear_streams()
        self.ran()

    def step(self) -> None:
        """Take the inbox, decode one token for all rows, emit events, prefill or embed while the rows can wait."""
        assert self._lane is not None
        self._take_inbox(wait=not (self._batch or self._scheduler or self._lane))
        if self.closing:
            return
        if self._batch and self._scheduler is not None:
            start, rows = time.perf_counter(), len(self._batch)
            try:
                self._scheduler.make_room()
                self._batch.step(ahead=not self._scheduler.will_prefill)
            except Exception as error:
                log.exception("a model step failed; its rows fail, the engine goes on")
                self._batch.fail(_caused_by(error, "the model failed"))
            self._flush()
            self._meter.stepped(seconds := time.perf_counter() - start, rows)
            self._lane.stepped(seconds)
        if self._lane and self._lane.is_due(bool(self._batch), self._scheduler.priority if self._scheduler else None):
            self._lane.run(beside=bool(self._batch))
            self._flush()
        elif self._scheduler:
            self._scheduler.prefill()
            self._flush()
        elif not self._batch:
            time.sleep(self._lane.pause)
        (decoding.add if self._batch else decoding.discard)(self)
        self._steps += 1

    def reserve(self, rows: int) -> None:
        """Reserve places in the queue; called with the lock held.

        Raises:
            QueueFullError: there are not enough.
            TooManyRowsError: nor would there be if nothing else ran.
        """
        max_queue = self._options.get("max_queue")
        most = self._max_rows + (MAX_QUEUE_ROWS if max_queue is None else max_queue)
        if rows > most:
            raise TooManyRowsError(
                f"{rows} choices are more than may run and wait together, which is {most} (max_rows + max_queue)"
            )
        taken = self._reserved - self._freed
        if taken + rows > most:
            self._meter.refused += rows
            raise QueueFullError(
                f"{taken} requests run or wait already, and at most {most} may (max_rows + max_queue): try again later"
            )
        self._reserved += rows

    def stats(self) -> EngineStats:
        batch, prefixes, memory, meter = self._batch, self._prefixes, self._memory, self._meter
        running, model = len(batch) if batch is not None else 0, self.model
        return EngineStats(
            running=running,
            max_rows=self._max_rows if self._together else 1,
            waiting=max(0, self._reserved - self._freed - running),
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
            tower_runs=self._features.runs,
            feature_hits=self._features.hits,
            feature_bytes=self._features.bytes,
            kv_bytes=batch.nbytes if batch is not None else 0,
            kv_bytes_per_token=memory.per_token if memory else 0,
            kv_bytes_per_token_unquantised=memory.per_token_unquantised if memory else 0,
            kv_budget=memory.budget if memory else None,
            active_bytes=mx.get_active_memory(),
            step_seconds=meter.step_seconds(),
            stall_seconds=meter.stall_seconds(),
            drafts={} if self._speculation is None else self._speculation.counts.copy(),
            backend=describe_backend(),
            modalities=() if model is None else modalities(model.text.media_kinds),
        )

    # -----------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        try:
            self.model, self._draft = self._load()
        except ModelLoadError as error:
            self.load_error = error
        except BaseException as error:
            # Another thread that imports transformers meanwhile may show this one a half-made module.
            transient = is_out_of_memory(error) or isinstance(error, ImportError) or not isinstance(error, Exception)
            self.load_error = ModelLoadError(f"loading the model failed: {error!r}", transient=transient)
            self.load_error.__cause__ = error
        if self.model is not None:
            try:
                self._set_up(cast(Model, self.model), self._draft)
            except Exception as error:
                self.load_error = ModelLoadError(
                    f"this model cannot be run: {error}", transient=is_out_of_memory(error)
                )
                self.load_error.__cause__ = error
                self.model = self._draft = None
        if self.model is None:
            self.closing = True
        if self.load_error is not None:
            release_frames(self.load_error)
        self.ready.set_result(None)

    def _set_up(self, model: Model, draft: Model | None) -> None:
        """Make what runs the model; one that only embeds is no more than an `Encoder`."""
        options = self._options
        weights = model.weight_bytes + (0 if draft is None else draft.weight_bytes)
        device.process.loaded(self, weights)
        self._lane = EmbeddingLane(
            model,
            self._emit,
            lambda: None if self._batch is None else self._batch.wait(),
            engine=self,
            most_tokens=options.get("prefill_chunk", PASS_TOKENS),
            max_stall=options.get("max_stall") or MAX_STALL_SECONDS,
            meter=self._meter,
        )
        if "generate" not in model.tasks:
            self._memory = Workspace(model.weight_bytes, options.get("memory_limit"))
            return
        found = agreement(model)
        self._together = found.together
        if can_batch(model.new_cache()) and not found.together:
            log.warning("this model's code gives wrong results for several rows at once: it runs one row at a time")
        if not found.in_pieces:
            log.warning("this model's code gives other results when a prompt is run in pieces: no prompt is reused")
        if fits_slots(model.new_cache()):
            self._plan_memory(model, draft, reuse_prompts=found.in_pieces)
        wanted = options.get("vision_cache_bytes")
        self._features = FeatureCache(int(FEATURES_SHARE * default_budget(weights)) if wanted is None else wanted)
        stall = options.get("max_stall") or MAX_STALL_SECONDS
        self._speculation = speculation_for(model, draft, options, stall)
        self._batch = Batch(model, self._emit, self._prefixes, self._flush, self._speculation, runs_built(model))
        self._scheduler = Scheduler(
            model,
            self._batch,
            self._emit,
            max_rows=self._max_rows if found.together else 1,
            max_stall=stall,
            ends_prompts=ends_prompts(model),
            prefill_chunk=options.get("prefill_chunk", PREFILL_CHUNK_TOKENS),
            meter=self._meter,
            prefixes=self._prefixes,
            memory=self._memory if isinstance(self._memory, Memory) else None,
            features=self._features,
        )

    def _plan_memory(self, model: Model, draft: Model | None, *, reuse_prompts: bool) -> None:
        """Measure what rows take, lower the context to what fits, and give the prefix cache its share."""
        options = self._options
        chunk = options.get("prefill_chunk", PREFILL_CHUNK_TOKENS)
        self._memory = memory = Memory(model, options.get("memory_limit"), chunk, draft)
        longest = memory.longest()
        if longest is not None and (model.context_length is None or longest < model.context_length):
            if model.context_length is not None:
                log.warning("there is memory for %d tokens of the context's %d", longest, model.context_length)
            model.context_length = longest
        wanted = options.get("prefix_cache_bytes")
        budget = min(default_budget(memory.weights) if wanted is None else wanted, memory.budget)
        if budget > 0 and reuse_prompts:
            row, folder = model.new_cache(), options.get("cache_dir")
            most_bytes = options.get("cache_dir_bytes", CACHE_DIR_BYTES)
            self._prefixes = PrefixCache(row, model.fingerprint, budget, folder, most_bytes)

    def _take_inbox(self, *, wait: bool) -> None:
        """Admit and cancel rows; `wait` blocks until there is a message."""
        if wait:
            self._rest()
        cancelled: set[tuple[Ticket, int | None]] = set()
        try:
            while True:
                message = self._next_message(wait)
                if wait:
                    device.process.work(self)
                wait = False
                if isinstance(message, Submit):
                    self._admit(message)
                elif isinstance(message, Cancel):
                    cancelled.add((message.ticket, message.index))
                elif self.closing:
                    return
        except queue.Empty:
            pass
        gone = {
            row
            for ticket, index in cancelled
            for row in self._rows.get(ticket, ())
            if index is None or row.index == index
        }
        if gone:
            self._drop(gone)

    def _rest(self) -> None:
        """Nothing is in flight: apply the limit of MLX's free buffers, or return them to the system."""
        clear = self._steps - self._cleared >= CLEAR_STEPS
        if clear:
            self._cleared = self._steps
        device.process.rest(self, free=None if self._memory is None else self._memory.free, clear=clear)

    def _next_message(self, wait: bool) -> Submit | Cancel | None:
        """The next message; raises queue.Empty. While none comes, the prefix cache is written to disk."""
        quiet = QUIET_SECONDS
        while wait and self._prefixes is not None and self._prefixes.unsaved:
            try:
                return self._inbox.get(timeout=quiet)
            except queue.Empty:
                device.process.work(self)
                self._prefixes.save()
                self._rest()
                quiet = 0.0
        return self._inbox.get(block=wait)

    def _admit(self, message: Submit) -> None:
        try:
            rows = [self._enter(request, message.sink, index) for index, request in enumerate(message.requests)]
        except Exception as error:
            failure = Failure(_caused_by(error, "the request could not be admitted"))
            for index in range(len(message.requests)):
                put_last(message.sink, index, failure)
            self._freed += len(message.requests)
            return
        for row in rows:
            self._tickets[row] = message.ticket
        self._rows[message.ticket] = set(rows)
        if self._scheduler is not None:
            self._scheduler.add([row for row in rows if isinstance(row, Row)])

    def _enter(self, request: GenerationRequest | EmbeddingRequest, sink: Sink, index: int) -> Entry:
        """What a request is here; texts are queued at once."""
        assert self._lane is not None
        if isinstance(request, EmbeddingRequest):
            return self._lane.add(request, sink)
        if self._scheduler is None:
            raise ValueError("this model generates no text")
        return Row(request, sink, index, cast(Model, self.model))

    def _drop(self, gone: Collection[Entry]) -> None:
        """Drop rows, which may be waiting, running or gone; no event is sent."""
        assert self._lane is not None
        self._lane.drop([job for job in gone if isinstance(job, EmbeddingJob)])
        rows = {row for row in gone if isinstance(row, Row)}
        if rows and self._batch is not None and self._scheduler is not None:
            self._batch.drop(rows)
            self._scheduler.drop(rows)
        for row in gone:
            self._forget(row)

    def _forget(self, row: Entry) -> None:
        ticket = self._tickets.pop(row, None)
        if ticket is not None:
            row.request.timings.finish(time.monotonic(), self._meter.steps)
            self._freed += 1
            rows = self._rows[ticket]
            rows.remove(row)
            if not rows:
                del self._rows[ticket]

    def _emit(self, row: Entry, event: Event) -> None:
        self._out.append((row, event))

    def _flush(self) -> None:
        """Pass the step's events to the sinks, and wake each event loop once."""
        if not self._out:
            return
        out, self._out = self._out, []
        for row, event in out:
            if isinstance(event, Failure):
                self._forget(row)
                continue
            self._meter.generated_tokens += type(row) is Row
            if event.finish_reason is not None:
                row.request.timings.finish_reason = event.finish_reason
                self._forget(row)
        lost = deliver_events(out, self._tickets)
        if lost:
            self._drop(lost)

    def _end(self) -> None:
        """Fail what is in flight and release the model."""
        self.closing = True
        if self._lane is not None:
            self._lane.close()
        error = self.load_error or EngineClosedError("the engine was closed")
        with self.lock:
            self.ended = True
            while not self._inbox.empty():
                message = self._inbox.get()
                if isinstance(message, Submit):
                    for index in range(len(message.requests)):
                        put_last(message.sink, index, Failure(error))
            self._freed = self._reserved
        for row in self._tickets:
            put_last(row.sink, row.index, Failure(error))
        self._tickets.clear()
        self._rows.clear()
        if self._prefixes is not None:
            self._prefixes.close(SAVE_SECONDS)
        self._release()
        if not self.ready.done():
            self.ready.set_result(None)

    def _release(self) -> None:
        """Return the memory of the model and of all rows to the system."""
        if self._memory is not None:
            self._memory.close()
        if self._speculation is not None and self._speculation.costly is not None:
            self._speculation.costly.keep(())  # rows hold it, and it them
        self._draft = self._batch = self._scheduler = self._lane = self._prefixes = self._memory = self._speculation = (
            None
        )
        self._features.clear()
        model = None if self.model is None else weakref.ref(self.model)
        self.model = None
        if model is not None and model() is not None:  # a reference cycle, or the caller, holds it
            gc.collect()


def _caused_by(error: Exception, what: str) -> RowError:
    release_frames(error)  # whoever holds the exception must not hold the batch
    return row_error(what, error)
