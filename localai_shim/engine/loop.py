"""What runs on an engine's thread: it takes requests, runs steps and emits tokens."""

from __future__ import annotations

import gc
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, cast

import mlx.core as mx

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
    Sink,
    Ticket,
    deliver_events,
    release_frames,
)
from .decode.batch import Batch
from .drafts.controller import Speculation
from .drafts.draft_model import speculation_for
from .inbox import Cancel, Inbox, Submit, put_last
from .memory import Memory, Workspace
from .meter import Meter
from .plan.scheduler import Scheduler
from .ports import Encoder, Model, host
from .prefix.cache import PrefixCache, default_budget
from .prompts.features import FeatureCache
from .row import Row, row_error
from .setup import PREFILL_CHUNK_TOKENS, Setup, set_up
from .texts.lane import PASS_TOKENS, EmbeddingJob, EmbeddingLane, decoding
from .tickets import Entry, Tickets

log = logging.getLogger("localai_shim")

ModelT = TypeVar("ModelT", bound=Encoder)
Loaded = tuple[ModelT, Model | None]
"""A model, and the one that drafts for it."""

QUIET_SECONDS = 0.2  # without a request, after which a piece of the prefix cache is written to disk
SAVE_SECONDS = 5.0  # that a closing engine may take for what is not written yet
CLEAR_STEPS = 256  # after which an idle engine returns MLX's free buffers to the system

MAX_ROWS = 64
MAX_STALL_SECONDS = 0.05
MAX_QUEUE_ROWS = 16_384
FEATURES_SHARE = 1 / 8  # of what the prefix cache has: features take about so much of the keys and values that follow


class Loop(Generic[ModelT]):
    """What runs on the thread. It holds no reference to the `Engine`, so that an abandoned engine can be collected."""

    def __init__(
        self, load: Callable[[], Loaded[ModelT]], options: EngineOptions, inbox: Inbox, ran: Callable[[Loop[Any]], None]
    ) -> None:
        """`ran` is called last of all."""
        self._load, self._options, self._inbox, self._ran = load, options, inbox, ran
        self._max_rows = options.get("max_rows") or MAX_ROWS
        max_queue = options.get("max_queue")
        self._meter = Meter()
        self._tickets = Tickets(self._max_rows + (MAX_QUEUE_ROWS if max_queue is None else max_queue), self._meter)
        self.reserve = self._tickets.reserve
        """Reserve places in the queue; called with the lock held."""
        self.closing = False
        self.lock = threading.Lock()
        """Held while a request is put into the inbox, and while the thread empties it for the last time."""
        self.ended = False
        self.ready: Future[None] = Future()
        self.model: ModelT | None = None
        self.load_error: ModelLoadError | None = None
        self._batch: Batch | None = None
        self._scheduler: Scheduler | None = None
        self._setup: Setup | None = None
        self._prefixes: PrefixCache | None = None
        self._memory: Memory | Workspace | None = None
        self._lane: EmbeddingLane | None = None
        self._features = FeatureCache(0)
        self._speculation: Speculation | None = None
        self._draft: Model | None = None
        self._out: list[tuple[Entry, Event]] = []
        self._steps = self._cleared = 0
        self._together = True

    def run(self) -> None:
        try:
            host().memory.enter(self)
            self._start()
            while not self.closing:
                try:
                    self.step()
                except BaseException as error:  # that of a panic in Rust is no Exception
                    self._recover(error)
        finally:
            self._end()
            try:
                host().memory.leave(self)
            finally:
                self._ran(self)

    def step(self) -> None:
        """Take the inbox, decode one token for all rows, emit events, prefill or embed while the rows can wait."""
        assert self._lane is not None
        self._take_inbox(wait=not (self._batch or self._scheduler or self._lane))
        if self.closing:
            return
        self._flush()
        if self._batch and self._scheduler is not None:
            start, rows = time.perf_counter(), len(self._batch)
            self._scheduler.make_room()
            self._batch.step(ahead=not self._scheduler.will_prefill)
            self._flush()
            self._meter.stepped(seconds := time.perf_counter() - start, rows)
            self._lane.stepped(seconds)
        if self._lane and self._texts_are_due(self._lane):
            self._lane.run(beside=bool(self._batch))
            self._flush()
        elif self._scheduler:
            self._scheduler.prefill()
            self._flush()
        elif not self._batch:
            time.sleep(self._lane.pause)
        (decoding.add if self._batch else decoding.discard)(self)
        self._steps += 1

    def _texts_are_due(self, lane: EmbeddingLane) -> bool:
        try:
            return lane.is_due(bool(self._batch), self._scheduler.priority if self._scheduler else None)
        except BaseException as error:
            lane.fail(error)
            return False

    def stats(self) -> EngineStats:
        batch, prefixes, memory, meter = self._batch, self._prefixes, self._memory, self._meter
        running, model = len(batch) if batch is not None else 0, self.model
        return EngineStats(
            running=running,
            max_rows=self._max_rows if self._together else 1,
            waiting=max(0, self._tickets.taken - running),
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
            backend=host().machine.describe_backend(),
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
            transient = _may_pass(error) or isinstance(error, ImportError) or not isinstance(error, Exception)
            self.load_error = ModelLoadError(f"loading the model failed: {error!r}", transient=transient)
            self.load_error.__cause__ = error
        if self.model is not None:
            try:
                self._set_up(cast(Model, self.model), self._draft)
            except Exception as error:
                self.load_error = ModelLoadError(f"this model cannot be run: {error}", transient=_may_pass(error))
                self.load_error.__cause__ = error
                self.model = self._draft = None
        if self.model is None:
            self.closing = True
        if self.load_error is not None:
            release_frames(self.load_error)
        self.ready.set_result(None)

    def _set_up(self, model: Model, draft: Model | None) -> None:
        """Find out how the model is run, and make what runs it; one that only embeds is no more than an `Encoder`."""
        options = self._options
        weights = model.weight_bytes + (0 if draft is None else draft.weight_bytes)
        host().memory.loaded(self, weights)
        if "generate" in model.tasks:
            self._setup = setup = set_up(model, draft, options)
            self._together, self._memory, self._prefixes = setup.together, setup.memory, setup.prefixes
            wanted = options.get("vision_cache_bytes")
            self._features = FeatureCache(int(FEATURES_SHARE * default_budget(weights)) if wanted is None else wanted)
            self._speculation = speculation_for(model, draft, options, options.get("max_stall") or MAX_STALL_SECONDS)
        else:
            self._memory = Workspace(model.weight_bytes, options.get("memory_limit"))
        self._make_parts(model)

    def _make_parts(self, model: Model) -> None:
        """Make what has rows and texts, without any."""
        options, setup = self._options, self._setup
        stall = options.get("max_stall") or MAX_STALL_SECONDS
        self._lane = EmbeddingLane(
            model,
            self._emit,
            lambda: None if self._batch is None else self._batch.wait(),
            engine=self,
            most_tokens=options.get("prefill_chunk", PASS_TOKENS),
            max_stall=stall,
            meter=self._meter,
        )
        if setup is None:
            return
        self._batch = Batch(model, self._emit, self._prefixes, self._flush, self._speculation, setup.runs_built)
        self._scheduler = Scheduler(
            model,
            self._batch,
            self._emit,
            max_rows=self._max_rows if setup.together else 1,
            max_stall=stall,
            ends_prompts=setup.ends_prompts,
            prefill_chunk=options.get("prefill_chunk", PREFILL_CHUNK_TOKENS),
            meter=self._meter,
            prefixes=setup.prefixes,
            memory=setup.memory,
            features=self._features,
        )

    def _recover(self, error: BaseException) -> None:
        """Fail all that is in flight, since nobody knows whose error this was, and start afresh."""
        log.error("the engine failed, and what was in flight with it; it goes on", exc_info=error)
        failure, (out, self._out) = Failure(row_error("the engine failed", error)), (self._out, [])
        for row, event in out:  # what came before
            put_last(row.sink, row.index, event)
        ended = {row for row, event in out if isinstance(event, Failure) or event.finish_reason is not None}
        for row in self._tickets.clear():
            if row not in ended:
                put_last(row.sink, row.index, failure)
        self._features.clear()
        if self._speculation is not None:
            self._speculation.keep(())
        if self._lane is not None:
            self._lane.close()
        self._make_parts(cast(Model, self.model))

    def _take_inbox(self, *, wait: bool) -> None:
        """Admit and cancel rows; `wait` blocks until there is a message."""
        cancelled: set[Ticket] = set()
        try:
            while True:
                message = self._wait_for_message() if wait else self._inbox.get(block=False)
                wait = False
                if isinstance(message, Submit):
                    self._admit(message)
                elif isinstance(message, Cancel):
                    cancelled.add(message.ticket)
                elif self.closing:
                    return
        except queue.Empty:
            pass
        gone = {row for ticket in cancelled for row in self._tickets.find(ticket)}
        if gone:
            self._drop(gone)

    def _rest(self) -> None:
        """Nothing is in flight: apply the limit of MLX's free buffers, or return them to the system."""
        clear = self._steps - self._cleared >= CLEAR_STEPS
        if clear:
            self._cleared = self._steps
        host().memory.rest(self, free=None if self._memory is None else self._memory.free, clear=clear)

    def _wait_for_message(self) -> Submit | Cancel | None:
        """The next message. While none comes, the prefix cache is written to disk."""
        found: list[Submit | Cancel | None] = []
        quiet = QUIET_SECONDS
        with _logged("an idle engine's housekeeping failed; it waits for requests"):
            self._rest()
            while not found and self._prefixes is not None and self._prefixes.unsaved:
                try:
                    found.append(self._inbox.get(timeout=quiet))
                except queue.Empty:
                    host().memory.work(self)
                    self._prefixes.save()
                    self._rest()
                    quiet = 0.0
        message = found[0] if found else self._inbox.get()
        with _logged("an engine could not say that it works"):
            host().memory.work(self)
        return message

    def _admit(self, message: Submit) -> None:
        entries: list[Entry] = []
        try:
            for index, request in enumerate(message.requests):
                entries.append(self._enter(request, message.sink, index))
        except BaseException as error:
            failure = Failure(row_error("the request could not be admitted", error))
            for index in range(len(message.requests)):
                put_last(message.sink, index, failure)
            self._tickets.free(len(message.requests))
            return
        self._tickets.enter(message.ticket, entries)
        rows = [row for row in entries if isinstance(row, Row)]
        if rows and self._scheduler is not None:
            try:
                self._scheduler.add(rows)
            except BaseException as error:
                self._scheduler.drop(rows)
                failure = Failure(row_error("the request could not be admitted", error))
                self._out += [(row, failure) for row in rows]

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
        for row in gone:
            self._tickets.forget(row)
        try:
            self._lane.drop([job for job in gone if isinstance(job, EmbeddingJob)])
        except BaseException as error:
            self._lane.fail(error)
        rows = {row for row in gone if isinstance(row, Row)}
        if rows and self._batch is not None and self._scheduler is not None:
            self._batch.drop(rows)
            try:
                self._scheduler.drop(rows)
            except BaseException as error:
                self._scheduler.fail(error)

    def _emit(self, row: Entry, event: Event) -> None:
        self._out.append((row, event))

    def _flush(self) -> None:
        """Pass the step's events to the sinks, and wake each event loop once."""
        if not self._out:
            return
        out = self._out
        for row, event in out:
            if isinstance(event, Failure):
                self._tickets.forget(row)
                continue
            self._meter.generated_tokens += type(row) is Row
            if event.finish_reason is not None:
                row.request.timings.finish_reason = event.finish_reason
                self._tickets.forget(row)
        self._out = []
        lost = deliver_events(out, self._tickets)
        if lost:
            self._drop(lost)

    def _end(self) -> None:
        """Fail what is in flight and release the model."""
        self.closing = True
        error = self.load_error or EngineClosedError("the engine was closed")
        with self.lock:
            self.ended = True
            while not self._inbox.empty():
                message = self._inbox.get()
                if isinstance(message, Submit):
                    for index in range(len(message.requests)):
                        put_last(message.sink, index, Failure(error))
                    self._tickets.free(len(message.requests))
        for row in self._tickets.clear():
            put_last(row.sink, row.index, Failure(error))
        with _logged("an engine that ends could not write its prefix cache"):
            if self._prefixes is not None:
                self._prefixes.close(SAVE_SECONDS)
        with _logged("an engine that ends could not release its memory"):
            self._release()
        if not self.ready.done():
            self.ready.set_result(None)

    def _release(self) -> None:
        """Return the memory of the model and of all rows to the system."""
        if self._lane is not None:
            self._lane.close()
        if self._memory is not None:
            self._memory.close()
        if self._speculation is not None:
            self._speculation.keep(())  # rows hold the model that drafts, and it them
        self._setup = self._batch = self._scheduler = self._lane = self._prefixes = self._memory = None
        self._draft = self._speculation = None
        self._features.clear()
        model = None if self.model is None else weakref.ref(self.model)
        self.model = None
        if model is not None and model() is not None:  # a reference cycle, or the caller, holds it
            gc.collect()


@contextmanager
def _logged(what: str) -> Iterator[None]:
    """Log what is raised where nobody's request could fail with it, and go on."""
    try:
        yield
    except BaseException:
        log.exception(what)


def _may_pass(error: BaseException) -> bool:
    """True for a lack of memory, which may be there later."""
    return host().machine.is_out_of_memory(error)
