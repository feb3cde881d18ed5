"""Points at which something is made to fail: amid which request, who fails, and what its caller gets."""

from __future__ import annotations

import errno
import math
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import openai

from tests.soak.faults.places import Fault

Who = Literal["own", "rows", "one", "nobody"]
"""Requests that fail: the one that meets the fault; those of its engine that run; any one of them; none, it is logged.
"""
Gets = type[Exception] | Literal["failed", "line", "right"]
"""What a caller gets: an exception, an object that says that it failed, a batch with a line that did, or its answer."""
INTERNAL, BAD = openai.InternalServerError, openai.BadRequestError


@dataclass(frozen=True)
class Point:
    """A function that raises amid a request of a kind."""

    boundary: str
    place: str
    kind: str
    who: Who = "own"
    gets: Gets = INTERNAL
    raised: Callable[[], BaseException] = Fault
    after: int = 0
    """Calls that go well before."""
    times: float = 1
    also: tuple[str, ...] = ()
    """Beginnings of other places whose errors come out here."""

    def __str__(self) -> str:
        calls = f" after {self.after}" if self.after else ""
        made = "" if self.raised is Fault else f" {self.raised.__name__}"
        return f"{self.boundary}: {self.place}{calls}{made} amid {self.kind}"


def no_memory() -> RuntimeError:
    """MLX's, which has no class for it."""
    return RuntimeError("[malloc_or_wait] Unable to allocate 1073741824 bytes.")


def bad_alloc() -> MemoryError:
    """That of C++ libraries, and Python's own."""
    return MemoryError("std::bad_alloc")


def full_disk() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_database() -> sqlite3.OperationalError:
    return sqlite3.OperationalError("database or disk is full")


def no_descriptors() -> OSError:
    return OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def no_network() -> OSError:
    return OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))


ALWAYS = math.inf
_STORE = "state.store:Store."
_PREPARING = [
    Point("template", "models.text:render", "chat", gets=BAD, times=ALWAYS, also=("models.text:_render_nulls",)),
    Point("template", "models.text:render", "chat", raised=bad_alloc),
    Point("template", "prompt.template:ChatTokenizer.render", "chat"),
    Point("template", "prompt.template:ChatTokenizer.render", "picture"),
    Point("template", "prompt.template:ChatTokenizer.boundaries", "chat"),
    Point("template", "prompt.template:ChatTokenizer.spans", "picture"),
    Point("tokenizer", "models.text:TextTokenizer.encode", "completion"),
    Point("tokenizer", "prompt.template:ChatTokenizer.prompt_end", "chat"),
    Point("tokenizer", "prompt.template:ChatTokenizer.detokenizer", "chat"),
    Point("picture", "prompt.media.parts:MediaSource.decode", "picture"),
    Point("picture", "prompt.media.pictures:_upright_pixels", "picture", gets=BAD, also=("prompt.media.pictures:",)),
    Point("picture", "prompt.media.pictures:_upright_pixels", "picture", raised=bad_alloc),
    Point("picture", "models.vision.processor:MediaProcessor._run", "picture", gets=BAD, also=("models.vision.pixel",)),
    Point("picture", "models.vision.processor:MediaProcessor._run", "picture", raised=bad_alloc),
    Point("picture", "models.vision.processor:VisionTokenizer.process", "picture"),
    Point("picture", "models.vision.processor:VisionTokenizer.spans", "picture", also=("models.vision.processor:",)),
    Point("picture", "prompt.media.sources:read_file", "file"),
    Point("descriptor limit", "prompt.media.sources:os.open", "file", raised=no_descriptors),
    Point("grammar compiler", "grammar.compile:Grammar.__init__", "schema", also=("grammar.",)),
    Point("grammar compiler", "grammar.compile:Grammar.matcher", "schema"),
    Point("adapter", "runtime.adapters:import_modules", "adapter"),
    Point("adapter", "models.adapters.folder:read_adapter", "adapter"),
    Point("adapter", "models.adapters.folder:read_header", "adapter", also=("models.adapters.folder:",)),
    Point("adapter", "models.text:TextModel.add_adapter", "adapter"),
    Point("adapter", "models.adapters.layers:Stack.write", "adapter", also=("models.adapters.layers:Stack",)),
    Point("adapter", "backends.own_forms:OwnForms.adapter_kernel", "adapter"),
]
_RUNNING = [
    Point("scheduler", "engine.work.scheduler:Scheduler.next", "chat", "rows"),
    Point("scheduler", "engine.work.scheduler:Decoding.next", "chat", "rows"),
    Point("scheduler", "engine.work.prefill:Prefill.next", "chat"),
    Point("prefill", "models.text:TextModel.prefill", "chat"),
    Point("prefill", "models.text:TextModel.new_cache", "chat", also=("models.text:TextModel._plain_cache",)),
    Point("prefill", "engine.prompts.prefill:Prefiller._timed", "chat"),
    Point("step", "models.text:TextModel.forward", "chat", "rows"),
    Point("step", "models.text:TextModel.adapted", "adapter", "rows"),
    Point("step", "engine.decode.in_flight:AwaitingHost.wait", "chat", "rows", also=("engine.decode.in_flight:",)),
    Point(
        "step",
        "engine.failures.unowned:mx.synchronize",
        "chat",
        "nobody",
        raised=no_memory,
        also=("engine.failures.unowned:synchronize",),
    ),
    Point("step", "engine.decode.batch:Batch.settle", "adapter", "rows"),
    Point("out of memory", "engine.prompts.prefill:mx.eval", "chat", raised=no_memory),
    Point(
        "out of memory", "engine.decode.in_flight:mx.eval", "chat", "rows", raised=no_memory, also=("engine.decode",)
    ),
    Point("out of memory", "engine.decode.in_flight:mx.eval", "seeded", "rows", raised=bad_alloc),
    Point("out of memory", "models.vision.model:mx.eval", "picture", raised=no_memory),
    Point("out of memory", "engine.kv.layers:KeyValueSlots.resize", "long", "rows", raised=no_memory),
    Point("sampler", "engine.sampling.sampler:Sampler.sample", "seeded", "rows"),
    Point("masks", "grammar.compile:GrammarMatcher.mask", "schema"),
    Point("masks", "grammar.compile:GrammarMatcher.accept", "schema"),
    Point("masks", "grammar.compile:GrammarMatcher.forced", "schema", "nobody"),
    Point("masks", "grammar.constraint:RowConstraint.mask", "tools"),
    Point("masks", "output.stop:RowText.feed", "stops"),
    Point("sink", "engine.sinks:SyncSink.put", "stream", "one"),
    Point("sink", "engine.sinks:AsyncSink.put", "stream", "one"),
    Point("sink", "engine.sinks:LoopWaker.wake", "stream", "rows"),
    Point("sink", "endpoints.responses.background:Run.put", "background", gets="failed"),
    Point("sink", "client.batch_lines:_Request.put", "batch", gets="line"),
    Point("prefix cache", "engine.prefix.tree:PrefixTree.insert", "chat", "nobody"),
    Point("prefix cache", "engine.prefix.tree:PrefixTree.match_prefix", "chat", "nobody"),
    Point("prefix cache", "engine.prefix.tree:PrefixTree.share", "schema", "nobody"),
    Point("prefix cache", "engine.prefix.sharing:Sharing.choose", "chat", "nobody", also=("engine.prefix.sharing:",)),
    Point("prefix cache", "engine.kv.slots:SlotCache.read", "chat", "nobody", also=("engine.kv.",)),
    Point("disk cache", "engine.prefix.store:PrefixStore._refresh", "long", "nobody", raised=no_descriptors),
    Point("disk cache", "engine.prefix.store:PrefixStore.write", "long", "nobody", also=("engine.prefix.store:",)),
    Point("full disk", "engine.prefix.store:PrefixStore.write", "long", "nobody", raised=full_disk),
    Point("lane", "engine.work.texts:TextJobs.add", "embeddings", "one"),
    Point("lane", "engine.work.runner:TextRunner.run", "embeddings", "rows"),
    Point(
        "lane", "engine.work.runner:mx.eval", "embeddings", "nobody", raised=no_memory, also=("engine.work.runner:",)
    ),
    Point("lane", "models.heads.pooling:Encoder.__call__", "embeddings", "nobody"),
    Point("tower", "models.vision.model:VisionModel.embed", "picture"),
    Point("tower", "models.vision.model:VisionModel.row_state", "picture"),
    Point("tower", "models.vision.model:VisionModel.first_pass", "picture", "nobody"),
    Point("tower", "models.vision.model:VisionModel._merged", "picture", also=("models.vision.model:",)),
]
_READING = [
    Point("detokeniser", "output.detokenizer:ByteDetokenizer.add_token", "chat"),
    Point("detokeniser", "output.detokenizer:ByteDetokenizer.finalize", "stream"),
    Point("parser", "output.answer:AnswerParser.feed", "chat"),
    Point("parser", "output.answer:AnswerParser.feed", "tools", after=2),
    Point("parser", "output.tool_calls:CallParser.feed", "tools"),
    Point("parser", "output.answer:AnswerParser.feed", "response", gets="failed", after=1),
    Point("parser", "output.answer:AnswerParser.feed", "background", gets="failed", after=1),
    Point("parser", "output.answer:AnswerParser.feed", "batch", gets="line", after=1),
    Point("consumer", "endpoints.chat.assembler:ChatAssembler.feed", "stream", after=2),
    Point("consumer", "client.call:Call.whole", "chat"),
    Point("consumer", "client.call:make_request", "chat", gets=Fault),
    Point("consumer", "telemetry.observe:Observation._served", "chat", "nobody"),
    Point("consumer", "telemetry.observe:Observation._served", "background", "nobody"),
]
_STORING = [
    Point("store", f"{_STORE}save", "chain", also=("prompt.objects:",)),
    Point("store", f"{_STORE}chain", "chain"),
    Point("store", f"{_STORE}get", "chain"),
    Point("store", f"{_STORE}items", "conversation"),
    Point("store", f"{_STORE}save", "stored"),
    Point("store", f"{_STORE}save", "background"),
    Point("store", f"{_STORE}save", "background", gets="failed", after=1),
    Point("store", f"{_STORE}save", "background", gets="failed", after=1, times=ALWAYS),
    Point("store", f"{_STORE}update", "background", gets="failed"),
    Point("full disk", f"{_STORE}update", "background", gets="failed", raised=full_database, times=ALWAYS),
    Point("store", f"{_STORE}save", "batch"),
    Point("store", f"{_STORE}save", "batch", after=1),
    Point("store", f"{_STORE}save", "batch", gets="failed", after=2),
    Point("store", f"{_STORE}update", "batch", gets="failed"),
    Point("store", f"{_STORE}update", "batch", gets="failed", after=1),
    Point("full disk", f"{_STORE}update", "batch", gets="failed", raised=full_database, times=ALWAYS, after=1),
    Point("full disk", "state.rows:write_object", "stored", raised=full_database),
    Point("batch runner", "endpoints.batches.runner:Job._validate", "batch", gets="failed"),
    Point("batch runner", "endpoints.batches.runner:Job.run", "batch", gets="failed"),
    Point("batch runner", "client.batch_lines:run_lines", "batch", gets="failed"),
    Point("batch runner", "client.batch_lines:_Request.prepare", "batch", gets="line"),
    Point("batch runner", "client.batch_lines:_Request.answer", "batch", gets="failed"),
]
# What may pass is tried again with the next request, so that it has to last here.
_LOADING = [
    Point("loader", "runtime.sources:ModelSource.files", "load", gets=Fault),
    Point("loader", "models.loading:load_model", "load", also=("models.loading:",)),
    Point("loader", "models.text:TextModel.read", "load", also=("models.", "prompt.control", "prompt.template_traits")),
    Point("loader", "models.loading:read_json", "load", raised=no_descriptors, times=ALWAYS),
    Point("loader", "backends.own_forms:OwnForms.prepare", "load"),
    Point("loader", "engine.loop:set_up", "load", also=("engine.memory:", "engine.probes:", "engine.prefix.sharing:")),
    Point("loader", "runtime.served_models:describe_loaded", "load"),
    Point("out of memory", "models.progress:mx.eval", "load", raised=no_memory, times=ALWAYS),
    Point(
        "download",
        "mlx_lm.utils:snapshot_download",
        "download",
        raised=no_network,
        times=ALWAYS,
        also=("models.hub:fetch",),
    ),
    Point("full disk", "mlx_lm.utils:snapshot_download", "download", raised=full_disk, times=ALWAYS),
]
PARTS = {
    "preparing": _PREPARING,
    "running": _RUNNING,
    "reading": _READING,
    "storing": _STORING,
    "loading": _LOADING,
}
POINTS = [point for points in PARTS.values() for point in points]
